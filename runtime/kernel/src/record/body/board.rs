//! What happens to the board as a whole: that it began and ended, who has it, what stopped a part of it, what came from
//! outside.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::admission::Admission;
use crate::blueprint::Blueprint;
use crate::breaker;
use crate::digest::{Digest, Salt};
use crate::id::{BoardId, InvocationId, RuleName, Seq, Token, WorkerName};
use crate::ledger::Usage;
use crate::mode::Mode;
use crate::rejection::coded;
use crate::scheduler::Queued;

/// A body that says no more than its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// A pause, or its end.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steered {
    /// The caller's token, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// Why the kernel paused the board; none where a caller did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<PauseCause>,
}

coded! {
    /// Why the kernel pauses a board.
    PauseCause {
        /// A provider took no request until patience ended, or an operator must mend something first. The `deferred`
        /// record before says more.
        ProviderUnavailable = "provider_unavailable",
    }
}

/// An operator takes up again what was given up, or raises limits of the board. Its invocations are queued by `scheduled`
/// records after it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retried {
    /// Only invocations of this worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerName>,
    /// Only this invocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<InvocationId>,
    /// Limits of the board from now on.
    #[serde(default, skip_serializing_if = "Raised::is_none")]
    pub limits: Raised,
    /// Limits from now on of the worker that is named, or whose invocation is (since format 11).
    #[serde(default, skip_serializing_if = "RaisedOfWorker::is_none")]
    pub worker_limits: RaisedOfWorker,
    /// The caller's token, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
}

impl Retried {
    /// Returns true if an invocation that was given up is meant. One beyond its worker's limit is by name only.
    pub(crate) fn chooses(&self, queued: &Queued) -> bool {
        self.covers(&queued.branch)
            && self.invocation.is_none_or(|invocation| queued.invocation == invocation)
            && (!queued.is_beyond_limit || self.worker.is_some() || self.invocation.is_some())
    }

    /// Whether invocations of a branch may be meant.
    pub(crate) fn covers(&self, branch: &breaker::Branch) -> bool {
        self.worker.as_ref().is_none_or(|worker| branch.worker == *worker)
    }
}

/// Limits of a board that an operator has raised; those of its blueprint where none are named.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raised {
    /// Tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Running time, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// Commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commits: Option<u64>,
    /// Money, in 10⁻⁹ of the currency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money: Option<u64>,
    /// Edits of files (since format 11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edits: Option<u64>,
    /// Bytes of the journal (since format 20).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<u64>,
}

impl Raised {
    /// Returns true if no limit is raised.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the higher of each limit.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.max(other.tokens),
            wall_ms: self.wall_ms.max(other.wall_ms),
            commits: self.commits.max(other.commits),
            money: self.money.max(other.money),
            edits: self.edits.max(other.edits),
            journal: self.journal.max(other.journal),
        }
    }
}

/// Limits of a worker that an operator has raised; those of the blueprint where none are named.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RaisedOfWorker {
    /// Tokens of the worker, and of each rule that runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money of the worker, in 10⁻⁹ of the currency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money: Option<u64>,
}

impl RaisedOfWorker {
    /// Returns true if no limit is raised.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the higher of each limit.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { tokens: self.tokens.max(other.tokens), money: self.money.max(other.money) }
    }
}

/// The board came to be.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Created {
    /// [`FORMAT`](crate::record::FORMAT).
    pub format: u32,
    /// The board.
    pub board: BoardId,
    /// The blueprint's name.
    pub name: String,
    /// Digest of the initial state.
    pub state: Digest,
    /// Which system it runs as.
    #[serde(default, skip_serializing_if = "Mode::is_default")]
    pub mode: Mode,
    /// The accepted blueprint, fragments resolved and defaults spelled out.
    #[serde(skip_serializing)]
    pub blueprint: Value,
    /// What the user asked.
    #[serde(skip_serializing)]
    pub request: Value,
    /// What keeps this board's digests from being guessed.
    #[serde(skip_serializing)]
    pub salt: Salt,
    /// The models that were drawn for workers who have several to be drawn from.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drawn: BTreeMap<WorkerName, String>,
    /// Who wrote the blueprint, if a model did for this board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architect: Option<Architect>,
    /// Whose work it does, if it is a board inside a board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
}

/// The invocation that a board inside a board works for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parent {
    /// Its board.
    pub board: BoardId,
    /// The invocation there.
    pub invocation: InvocationId,
}

impl Created {
    /// The blueprint as this version reads it.
    ///
    /// # Errors
    /// It cannot, or would draw other models; for people.
    pub fn read_blueprint(&self) -> Result<Blueprint, String> {
        let blueprint = <Blueprint as Deserialize>::deserialize(&self.blueprint)
            .map_err(|error| format!("this version cannot read its blueprint: {error}"))?;
        if self.drawn != blueprint.drawn() {
            return Err("the models that it says were drawn are not those that its blueprint draws".to_owned());
        }
        Ok(blueprint)
    }
}

/// What it took to have a model write a board's blueprint, before there was the board; charged to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Architect {
    /// Calls of the model.
    pub calls: u32,
    /// Their tokens.
    pub usage: Usage,
    /// Of the tokens: those of calls after the first, which mended what was found wrong.
    #[serde(default)]
    pub repairs: Usage,
    /// Hashes of the prompts, in order; the texts are stored like those of workers.
    pub prompts: Vec<Digest>,
    /// The model that was asked, and its price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted: Option<Admission>,
}

/// A process took the board over; whatever was under way is lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Epoch {
    /// Counts owners, from 1.
    pub epoch: u64,
    /// The owner's random name.
    pub writer: String,
    /// The format of the records from here on, where that is later than before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<u32>,
}

/// The clock jumped forward: the machine slept, or its clock was set (since format 20). What jumped is no running time, and
/// deadlines, reservations and waits for providers move with it; schedules, delays and questions to persons do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jumped {
    /// How far, in milliseconds.
    pub ms: u64,
}

/// A breaker moved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Breaker {
    /// The branch's rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleName>,
    /// The branch's worker.
    pub worker: WorkerName,
    /// What happened to the branch.
    pub change: breaker::Change,
    /// Why.
    pub reason: breaker::Reason,
}

coded! {
    /// What ran out.
    Resource {
        /// Invocations of a worker.
        Invocations = "invocations",
        /// Tokens of a worker.
        WorkerTokens = "worker_tokens",
        /// Tokens of a rule with its worker.
        BranchTokens = "branch_tokens",
        /// Tokens of the board.
        BoardTokens = "board_tokens",
        /// Money of a worker, in 10⁻⁹ of the currency.
        WorkerMoney = "worker_money",
        /// Money of the board, in 10⁻⁹ of the currency.
        BoardMoney = "board_money",
    }
}

impl Resource {
    /// The unit in which it is counted.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Invocations => "invocations",
            Self::WorkerTokens | Self::BranchTokens | Self::BoardTokens => "tokens",
            Self::WorkerMoney | Self::BoardMoney => "10\u{207b}\u{2079} of the currency",
        }
    }
}

/// A budget did not suffice, so the call was not made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The branch's rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleName>,
    /// The branch's worker.
    pub worker: WorkerName,
    /// The invocation that ends with it, or is tried again, if it was scheduled already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<InvocationId>,
    /// What ran out.
    pub resource: Resource,
    /// How much the call would have needed.
    pub needed: u64,
    /// How much was left.
    pub left: u64,
    /// Admission of the call, if a gate had admitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted: Option<Admission>,
    /// True if the invocation is tried again at once, with a smaller view (since format 13).
    #[serde(rename = "again", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_tried_again: bool,
}

/// A signal arrived.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signal {
    /// Its name.
    pub name: String,
    /// What it carries.
    #[serde(skip_serializing)]
    pub value: Value,
    /// The caller's token, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
}

/// The board was stored as a whole, so that it can be made again without the records before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The last record that the snapshot includes; records may have come between that one and this.
    pub of: Seq,
    /// The number of its format ([`crate::snapshot::LAYOUT`]).
    pub layout: u32,
    /// Its digest.
    pub digest: Digest,
}

/// Values of records before were erased ([`crate::redaction`]).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redacted {
    /// The records whose payloads were written anew, each with the commitment to what stands there now.
    pub records: Vec<(Seq, Digest)>,
    /// Hashes of the views and prompts that were taken away.
    pub texts: Vec<Digest>,
    /// How many values were erased.
    pub erased: u64,
    /// Whether the board's salt went, too: from then on nothing but the chain can be verified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub salt: bool,
    /// The fingerprint of the whole request.
    pub asked: Digest,
    /// The caller's token, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// What was asked for: JSON Pointers, and numbers of records.
    #[serde(skip_serializing)]
    pub targets: Vec<String>,
}

coded! {
    /// How a board ends (SPEC section 6).
    End {
        /// Its `done` condition holds.
        Done = "done",
        /// Nothing is queued, running or pending, and it is not done. A signal wakes it again.
        Quiescent = "quiescent",
        /// A breaker or a limit stopped it.
        Stopped = "stopped",
        /// It could not go on.
        Failed = "failed",
        /// Somebody cancelled it.
        Cancelled = "cancelled",
    }
}

coded! {
    /// Why a board ended.
    Cause {
        /// The `done` condition holds.
        Done = "done",
        /// There was nothing left to do.
        NothingToDo = "nothing_to_do",
        /// There was nothing left to do, after invocations that were given up.
        GaveUp = "gave_up",
        /// A branch went in circles.
        Cycles = "cycles",
        /// Too many rejections in a row.
        Rejections = "rejections",
        /// Too many proposals in a row that changed nothing.
        NoOps = "no_ops",
        /// Too many replies in a row that passed.
        Passes = "passes",
        /// Too many invocations in a row were given up because the agent crashed.
        Crashes = "crashes",
        /// There was nothing left to do, and a breaker had stopped a branch. A signal may bring work to others.
        Breaker = "breaker",
        /// A budget was used up, and the blueprint stops the board for it.
        Budget = "budget",
        /// There was nothing left to do, and a budget had been used up. A signal may bring work to others.
        Exhausted = "exhausted",
        /// The limit of commits.
        Commits = "commits",
        /// The limit of edits of files.
        Edits = "edits",
        /// The limit of running time.
        Wall = "wall",
        /// The limit of the journal's size.
        Journal = "journal",
        /// The board's actors kept failing.
        Meltdown = "meltdown",
        /// Somebody cancelled it.
        Cancelled = "cancelled",
    }
}

/// The board ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// How.
    pub end: End,
    /// Why.
    pub cause: Cause,
}

impl Ended {
    /// Whether nothing takes it back. A board that merely stands still takes up work again when a signal or a direct
    /// proposal brings some.
    pub const fn is_final(self) -> bool {
        match self.cause {
            Cause::NothingToDo | Cause::GaveUp | Cause::Breaker | Cause::Exhausted => false,
            Cause::Done
            | Cause::Cycles
            | Cause::Rejections
            | Cause::NoOps
            | Cause::Passes
            | Cause::Crashes
            | Cause::Budget
            | Cause::Commits
            | Cause::Edits
            | Cause::Wall
            | Cause::Journal
            | Cause::Meltdown
            | Cause::Cancelled => true,
        }
    }
}
