//! Records about the board as a whole: its start and end, ownership, breakers and budgets, and outside requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ablation::Mode;
use crate::admission::Admission;
use crate::blueprint::Blueprint;
use crate::breaker;
use crate::digest::{Digest, Salt};
use crate::id::{BoardId, IdempotencyKey, InvocationId, RuleName, Seq, WorkerName};
use crate::ledger::Usage;
use crate::rejection::code_enum;
use crate::scheduler::QueuedInvocation;

/// A body without content; the kind says everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// A pause or a resume.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    /// The caller's idempotency key, if it gave one.
    pub token: Option<IdempotencyKey>,
    /// Reason for which the kernel paused the board; none where a caller did.
    pub cause: Option<PauseCause>,
}

code_enum! {
    /// Reasons for which the kernel pauses a board.
    PauseCause {
        /// A provider accepted no request until patience ended, or an operator must fix a problem first. The preceding
        /// `deferred` record has the details.
        ProviderUnavailable = "provider_unavailable",
    }
}

/// An operator retries invocations that were given up, or raises limits of the board. The `scheduled` records that
/// follow queue the retries.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retried {
    /// Only invocations of this worker.
    pub worker: Option<WorkerName>,
    /// Only this invocation.
    pub invocation: Option<InvocationId>,
    /// New limits of the board.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub limits: LimitOverrides,
    /// New limits of the worker that is named, or that has the invocation (since format 11).
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub worker_limits: WorkerLimitOverrides,
    /// The caller's idempotency key, if it gave one.
    pub token: Option<IdempotencyKey>,
}

impl Retried {
    /// Returns true if a given-up invocation is selected. One beyond its worker's limit is selected by name only.
    pub(crate) fn selects(&self, queued: &QueuedInvocation) -> bool {
        self.covers(&queued.branch)
            && self.invocation.is_none_or(|invocation| queued.invocation == invocation)
            && (!queued.is_beyond_limit || self.worker.is_some() || self.invocation.is_some())
    }

    /// Returns true if invocations of a branch may be selected.
    pub(crate) fn covers(&self, branch: &breaker::Branch) -> bool {
        self.worker.as_ref().is_none_or(|worker| branch.worker == *worker)
    }
}

/// Limits of a board that an operator has raised. An absent limit is the blueprint's.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitOverrides {
    /// Tokens.
    pub tokens: Option<u64>,
    /// Running time, in milliseconds.
    pub wall_ms: Option<u64>,
    /// Commits.
    pub commits: Option<u64>,
    /// Money, in 10⁻⁹ of the currency.
    pub money: Option<u64>,
    /// Edits of files (since format 11).
    pub edits: Option<u64>,
    /// Bytes of the journal (since format 20).
    pub journal: Option<u64>,
}

impl LimitOverrides {
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

/// Limits of a worker that an operator has raised. An absent limit is the blueprint's.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerLimitOverrides {
    /// Tokens of the worker, and of each rule that runs it.
    pub tokens: Option<u64>,
    /// Money of the worker, in 10⁻⁹ of the currency.
    pub money: Option<u64>,
}

impl WorkerLimitOverrides {
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

/// A board was created.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Created {
    /// [`FORMAT`](crate::record::FORMAT).
    pub format: u32,
    /// The board's id.
    pub board: BoardId,
    /// The blueprint's name.
    pub name: String,
    /// Digest of the initial state.
    pub state: Digest,
    /// System as which the board runs: PatchBoard, perhaps without some components, or a baseline.
    #[serde(default, skip_serializing_if = "Mode::is_default")]
    pub mode: Mode,
    /// The accepted blueprint, with fragments resolved and defaults filled in.
    #[serde(skip_serializing)]
    pub blueprint: Value,
    /// The user's request.
    #[serde(skip_serializing)]
    pub request: Value,
    /// Salt of the board's digests, so that redacted values cannot be guessed from them.
    #[serde(skip_serializing)]
    pub salt: Salt,
    /// The models drawn for workers that have several candidates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drawn: BTreeMap<WorkerName, String>,
    /// The model that wrote the blueprint for this board, if one did.
    pub architect: Option<Architect>,
    /// The invocation that this nested board works for, if it is nested.
    pub parent: Option<Parent>,
}

/// The invocation that a nested board works for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parent {
    /// The outer board.
    pub board: BoardId,
    /// The invocation on the outer board.
    pub invocation: InvocationId,
}

impl Created {
    /// Parses the blueprint as this version reads it. Fails if this version cannot read it, or would draw other models,
    /// with a message for people.
    pub fn read_blueprint(&self) -> Result<Blueprint, String> {
        let blueprint = <Blueprint as Deserialize>::deserialize(&self.blueprint)
            .map_err(|error| format!("this version cannot read its blueprint: {error}"))?;
        if self.drawn != blueprint.drawn_models() {
            return Err("the models that it says were drawn are not those that its blueprint draws".to_owned());
        }
        Ok(blueprint)
    }
}

/// Cost of having a model write a board's blueprint before the board existed; charged to the board.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Architect {
    /// Number of model calls.
    pub calls: u32,
    /// Tokens of all calls.
    pub usage: Usage,
    /// Tokens of the calls after the first, which repaired a faulty blueprint.
    #[serde(default)]
    pub repairs: Usage,
    /// Hashes of the prompts, in order; the texts are stored like those of workers.
    pub prompts: Vec<Digest>,
    /// The model that was called, and its price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted: Option<Admission>,
}

/// A process acquired the board; calls in flight are lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Epoch {
    /// Ownership counter, from 1.
    pub epoch: u64,
    /// The owner's random name.
    pub writer: String,
    /// The format of the records from here on, if it is newer than before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<u32>,
}

/// The clock jumped forward because the machine slept or its clock was set (since format 20). The jump does not count
/// as running time. Deadlines, reservations and provider waits move with it; schedules, delays and questions to persons
/// do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jumped {
    /// Length of the jump, in milliseconds.
    pub ms: u64,
}

/// A circuit breaker changed state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Breaker {
    /// The branch's rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleName>,
    /// The branch's worker.
    pub worker: WorkerName,
    /// State change of the branch.
    pub change: breaker::BreakerTransition,
    /// Reason for the change.
    pub reason: breaker::Reason,
}

code_enum! {
    /// Resource that ran out.
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
    /// Returns the unit in which the resource is counted.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Invocations => "invocations",
            Self::WorkerTokens | Self::BranchTokens | Self::BoardTokens => "tokens",
            Self::WorkerMoney | Self::BoardMoney => "10\u{207b}\u{2079} of the currency",
        }
    }
}

/// A budget was insufficient, so the call was not made.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The branch's rule.
    pub rule: Option<RuleName>,
    /// The branch's worker.
    pub worker: WorkerName,
    /// The invocation that this ends or retries, if it was scheduled already.
    pub invocation: Option<InvocationId>,
    /// The resource that ran out.
    pub resource: Resource,
    /// Amount that the call would have needed.
    pub needed: u64,
    /// Amount that was left.
    pub left: u64,
    /// Admission of the call, if a gate had admitted it.
    pub admitted: Option<Admission>,
    /// True if the invocation is retried at once, with a smaller view (since format 13).
    #[serde(rename = "again", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_tried_again: bool,
}

/// A signal arrived.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signal {
    /// The signal's name.
    pub name: String,
    /// The signal's payload.
    #[serde(skip_serializing)]
    pub value: Value,
    /// The caller's idempotency key, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<IdempotencyKey>,
}

/// A snapshot was stored, from which the board can be restored without the records before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Last record that the snapshot includes; other records may lie between it and this one.
    pub of: Seq,
    /// The snapshot's format number ([`crate::snapshot::LAYOUT`]).
    pub layout: u32,
    /// The snapshot's digest.
    pub digest: Digest,
}

/// Values of earlier records were redacted ([`crate::redaction`]).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redacted {
    /// Records with rewritten payloads, each with the commitment to its new payload.
    pub records: Vec<(Seq, Digest)>,
    /// Hashes of the views and prompts that were removed.
    pub texts: Vec<Digest>,
    /// Number of values that were redacted.
    pub erased: u64,
    /// True if the board's salt was erased too; only the hash chain can be verified afterwards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub salt: bool,
    /// Fingerprint of the whole request.
    #[serde(rename = "asked")]
    pub request: Digest,
    /// The caller's idempotency key, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<IdempotencyKey>,
    /// Requested targets: JSON Pointers and record numbers.
    #[serde(skip_serializing)]
    pub targets: Vec<String>,
}

code_enum! {
    /// Ways a board ends (SPEC section 6).
    End {
        /// The `done` condition holds.
        Done = "done",
        /// Nothing is queued, running or pending, and the board is not done. A signal resumes it.
        Quiescent = "quiescent",
        /// A circuit breaker or a limit stopped the board.
        Stopped = "stopped",
        /// The board could not continue.
        Failed = "failed",
        /// A caller cancelled the board.
        Cancelled = "cancelled",
    }
}

code_enum! {
    /// Reasons for which a board ends.
    Cause {
        /// The `done` condition holds.
        Done = "done",
        /// No work was left.
        NothingToDo = "nothing_to_do",
        /// No work was left, and some invocations had been given up.
        GaveUp = "gave_up",
        /// A branch repeated a cycle of states.
        Cycles = "cycles",
        /// Too many rejections in a row.
        Rejections = "rejections",
        /// Too many proposals in a row that changed nothing.
        NoOps = "no_ops",
        /// Too many replies in a row that passed.
        Passes = "passes",
        /// Too many invocations in a row were given up because the agent crashed.
        Crashes = "crashes",
        /// No work was left, and a circuit breaker had stopped a branch. A signal may bring work for other branches.
        Breaker = "breaker",
        /// A budget was exhausted, and the blueprint stops the board for it.
        Budget = "budget",
        /// No work was left, and a budget had been exhausted. A signal may bring work for other workers.
        Exhausted = "exhausted",
        /// The commit limit was reached.
        Commits = "commits",
        /// The limit of file edits was reached.
        Edits = "edits",
        /// The limit of running time was reached.
        Wall = "wall",
        /// The limit of the journal's size was reached.
        Journal = "journal",
        /// The board's actors kept failing.
        Meltdown = "meltdown",
        /// A caller cancelled the board.
        Cancelled = "cancelled",
    }
}

/// The board ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// How the board ended.
    pub end: End,
    /// Reason for the end.
    pub cause: Cause,
}

impl Ended {
    /// Returns true if the end is permanent. A board that only ran out of work, also because of a breaker or a budget,
    /// resumes when a signal or a direct proposal brings some.
    pub const fn is_final(self) -> bool {
        !matches!(self.cause, Cause::NothingToDo | Cause::GaveUp | Cause::Breaker | Cause::Exhausted)
    }
}
