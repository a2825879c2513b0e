//! What records say, by kind.
//!
//! A field that may hold what users, documents or models wrote is a *value*: it is left out of the header
//! (`skip_serializing`) and named in [`Body::values`].

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::blueprint::Unit;
use crate::breaker;
use crate::digest::{Digest, Salt};
use crate::failure::FailureCode;
use crate::id::{BoardId, InvocationId, RuleName, Seq, Timestamp, Token, Version, WorkerName};
use crate::ledger::Usage;
use crate::mode::Mode;
use crate::pipeline::Clarify;
use crate::rejection::{Code, Rejection, Stage, coded};

coded! {
    /// What a record records.
    Kind {
        /// The board came to be.
        Created = "created",
        /// A process took the board over.
        Epoch = "epoch",
        /// An invocation was put into the queue.
        Scheduled = "scheduled",
        /// An attempt of an invocation is about to be made.
        Invoked = "invoked",
        /// An attempt's call was answered, and it makes another one.
        Continued = "continued",
        /// A proposal was committed.
        Committed = "committed",
        /// A proposal changed nothing.
        NoOp = "no_op",
        /// A proposal changed nothing, and its author asked to be shown more.
        Expanded = "expanded",
        /// A proposal was refused.
        Rejected = "rejected",
        /// An attempt ended without a proposal.
        Failed = "failed",
        /// A proposal came that nobody waited for.
        Late = "late",
        /// Places are kept for a worker whose proposal was refused because others had been faster.
        Reserved = "reserved",
        /// A rule's condition had no truth value, so the rule did not fire.
        Skipped = "skipped",
        /// A proposal waits for a person, or a worker asks one something.
        Approval = "approval",
        /// A person answered.
        Answer = "answer",
        /// A breaker moved.
        Breaker = "breaker",
        /// A budget did not suffice.
        Budget = "budget",
        /// Dispatching was suspended.
        Paused = "paused",
        /// Dispatching goes on.
        Resumed = "resumed",
        /// Time passed, and something was due.
        Tick = "tick",
        /// A signal arrived.
        Signal = "signal",
        /// The board was stored as a whole.
        Snapshot = "snapshot",
        /// Values of records before were erased.
        Redacted = "redacted",
        /// The board ended.
        Ended = "ended",
    }
}

/// What a record says, by kind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Body {
    /// See [`Created`].
    Created(Box<Created>),
    /// See [`Epoch`].
    Epoch(Epoch),
    /// See [`Scheduled`].
    Scheduled(Scheduled),
    /// See [`Invoked`].
    Invoked(Invoked),
    /// See [`Continued`].
    Continued(Continued),
    /// See [`Committed`].
    Committed(Committed),
    /// See [`NoOp`].
    NoOp(NoOp),
    /// See [`Expanded`].
    Expanded(Expanded),
    /// See [`Rejected`].
    Rejected(Box<Rejected>),
    /// See [`Failed`].
    Failed(Failed),
    /// See [`Late`].
    Late(Late),
    /// See [`Reserved`].
    Reserved(Reserved),
    /// See [`Skipped`].
    Skipped(Skipped),
    /// See [`Approval`].
    Approval(Approval),
    /// See [`Answer`].
    Answer(Answer),
    /// See [`Breaker`].
    Breaker(Breaker),
    /// See [`Budget`].
    Budget(Budget),
    /// Dispatching was suspended.
    Paused(Steered),
    /// Dispatching goes on.
    Resumed(Steered),
    /// Time passed, and something was due.
    Tick(Empty),
    /// See [`Signal`].
    Signal(Signal),
    /// See [`Snapshot`].
    Snapshot(Snapshot),
    /// See [`Redacted`].
    Redacted(Redacted),
    /// See [`Ended`].
    Ended(Ended),
}

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
}

/// The board came to be.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Created {
    /// [`FORMAT`](super::FORMAT).
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
    /// Who wrote the blueprint, if a model did for this board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architect: Option<Architect>,
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
}

/// A process took the board over; whatever was under way is lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Epoch {
    /// Counts owners, from 1.
    pub epoch: u64,
    /// The owner's random name.
    pub writer: String,
}

/// Why an invocation is wanted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Trigger {
    /// The board began.
    Start,
    /// A commit did something to a place.
    Event {
        /// What it did.
        op: crate::blueprint::EventOp,
        /// Where, as a JSON Pointer.
        path: String,
        /// Which commit.
        version: Version,
    },
    /// A signal, or somebody asking for the rule by name.
    Signal {
        /// Its name.
        name: String,
        /// The record that brought it.
        seq: Seq,
    },
    /// The rules it waited for have completed.
    After,
    /// Nothing of the rules it waited for is under way any more.
    Idle,
    /// Its schedule.
    Every {
        /// When it was due. What was due several times while nobody could act on it is made up for once.
        due: Timestamp,
    },
    /// A breaker wakes the worker.
    Breaker {
        /// The stopped branch's rule.
        rule: Option<RuleName>,
        /// The stopped branch's worker.
        worker: WorkerName,
        /// Why it was stopped.
        reason: breaker::Reason,
    },
}

/// An invocation was put into the queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduled {
    /// Its number.
    pub invocation: InvocationId,
    /// The rule that wants it; none if a breaker does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleName>,
    /// Whom it invokes.
    pub worker: WorkerName,
    /// The invocation whose trigger it has once more, because that asked to be shown more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<InvocationId>,
    /// Why.
    #[serde(skip_serializing)]
    pub trigger: Trigger,
    /// JSON Pointers of the places that the invocations it follows asked to be shown.
    #[serde(default, skip_serializing)]
    pub expand: Vec<String>,
}

/// An attempt is about to be made; everything its view depended on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invoked {
    /// The invocation.
    pub invocation: InvocationId,
    /// Which attempt of it, from 1.
    pub attempt: u32,
    /// The worker.
    pub worker: WorkerName,
    /// Seq of the `scheduled` record.
    pub cause: Seq,
    /// The version the view was taken at; the base of what comes back.
    pub base: Version,
    /// The view budget in force.
    pub budget: u32,
    /// What the budget counts.
    pub unit: Unit,
    /// How tokens are counted ([`crate::view::TOKENIZER`]); none where characters are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// The view compiler's number ([`crate::view::COMPILER`]).
    pub compiler: u32,
    /// Seqs of the rejections the view shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feedback: Vec<Seq>,
    /// Hash of the view's text; the text is a blob.
    pub view: Digest,
    /// Hash of the prompt; the prompt is a blob.
    pub prompt: Digest,
    /// Tokens reserved for the call.
    pub reserved: u64,
    /// When the attempt times out.
    pub deadline: Timestamp,
    /// The read set: JSON Pointers whose whole values the view showed.
    #[serde(skip_serializing)]
    pub reads: Vec<String>,
    /// Collections of which the view showed what members they have, but not the whole of them; only where the worker's
    /// freshness is `members`.
    #[serde(default, skip_serializing)]
    pub members: Vec<String>,
}

/// An attempt's call was answered, and it makes another one: its agent has used tools, and goes on with what they gave.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Continued {
    /// Whose attempt it is, and what the call cost that was answered.
    pub by: Author,
    /// Tokens reserved for the next call.
    pub reserved: u64,
}

/// In whose name an administrator's own commits are recorded; no worker of a blueprint is called that.
pub const ADMINISTRATOR: &str = "$administrator";

/// What every proposal's record says of where it came from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Author {
    /// The worker in whose name it was made.
    pub worker: WorkerName,
    /// The attempt that made it; none for a direct proposal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// The idempotency token of a direct proposal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// The version it was written against.
    pub base: Version,
    /// What the call cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Seq of the `approval` record that put it to a person; what it cost is told there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Seq>,
    /// Where files are concerned: what the edit belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<Editing>,
}

/// What an edit of files belongs to. The edit itself is what the reply of a proposal is: `written`, or `reply`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Editing {
    /// The attempt that goes on after it; none of what has happened around the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
}

/// An attempt of an invocation, as the records of its outcome name it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// The invocation.
    pub invocation: InvocationId,
    /// Which attempt of it, from 1.
    pub number: u32,
    /// Seq of the `scheduled` record, which holds the triggering event.
    pub cause: Seq,
    /// Hash of the view it was shown.
    pub view: Digest,
}

/// A proposal was committed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Committed {
    /// Where it came from.
    pub by: Author,
    /// The version it made.
    pub version: Version,
    /// Digest of the state it made.
    pub state: Digest,
    /// The patch (RFC 6902).
    #[serde(skip_serializing)]
    pub patch: Value,
    /// What its author said it is for.
    #[serde(default, skip_serializing)]
    pub intent: Option<String>,
    /// JSON Pointers of the places that its author asked to be shown; the invocation goes on in another.
    #[serde(default, skip_serializing)]
    pub expand: Vec<String>,
    /// The reply as it came, where the patch was made of it ([`crate::mode::Interface`]); replays make it again.
    #[serde(default, skip_serializing)]
    pub written: Option<String>,
}

/// A proposal changed nothing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoOp {
    /// Where it came from.
    pub by: Author,
    /// The patch (RFC 6902).
    #[serde(skip_serializing)]
    pub patch: Value,
    /// What its author said it is for.
    #[serde(default, skip_serializing)]
    pub intent: Option<String>,
    /// The reply as it came, where the patch was made of it ([`crate::mode::Interface`]); replays make it again.
    #[serde(default, skip_serializing)]
    pub written: Option<String>,
}

/// A proposal changed nothing, and its author asked to be shown more; the invocation goes on in another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expanded {
    /// Where it came from.
    pub by: Author,
    /// The patch (RFC 6902).
    #[serde(skip_serializing)]
    pub patch: Value,
    /// What its author said.
    #[serde(default, skip_serializing)]
    pub intent: Option<String>,
    /// JSON Pointers of the places.
    #[serde(skip_serializing)]
    pub expand: Vec<String>,
}

/// A proposal was refused.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rejected {
    /// Where it came from.
    pub by: Author,
    /// The stage that failed.
    pub stage: Stage,
    /// The first violation's code.
    pub code: Code,
    /// Whether this was the invocation's last attempt.
    #[serde(rename = "final", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
    /// All violations, and what is allowed instead.
    #[serde(skip_serializing)]
    pub rejection: Rejection,
    /// The reply as it came.
    #[serde(skip_serializing)]
    pub reply: String,
}

/// An attempt ended without a proposal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failed {
    /// Whose attempt it was.
    pub by: Author,
    /// Why.
    pub code: FailureCode,
    /// Whether the invocation ends with it.
    #[serde(rename = "final", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
    /// Tokens that the attempt's next call would have needed, where it ended for lack of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<u64>,
    /// For people.
    #[serde(skip_serializing)]
    pub message: String,
}

/// A proposal that was refused before the pipeline: nobody waits for it any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Late {
    /// The worker it came from.
    pub worker: WorkerName,
    /// The invocation it was for; none for a direct proposal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<InvocationId>,
    /// The attempt it was for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The token of a direct proposal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// `invocation_closed`, `wrong_worker`, `token_conflict` or `board_not_running`.
    pub code: Code,
    /// What the call cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The reply as it came.
    #[serde(skip_serializing)]
    pub reply: String,
}

/// Places are kept for an invocation whose proposal was refused because others had been faster (SPEC section 5). Ends
/// with the invocation, or when the board has made that many decisions, or at that time, whichever is first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reserved {
    /// The invocation.
    pub invocation: InvocationId,
    /// Its worker.
    pub worker: WorkerName,
    /// The number of the board's decisions with which it ends.
    pub decisions: u64,
    /// When it ends.
    pub until: Timestamp,
    /// JSON Pointers of the places.
    #[serde(skip_serializing)]
    pub places: Vec<String>,
}

/// A rule's condition had no truth value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// The rule; none for the board's `done` condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleName>,
    /// Why.
    #[serde(skip_serializing)]
    pub message: String,
}

/// A proposal has passed every stage and waits for a person (SPEC section 3), or a worker asks a person something.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// Where the proposal came from.
    pub by: Author,
    /// The `human` worker who is asked.
    pub approver: WorkerName,
    /// When the question is over.
    pub expires: Timestamp,
    /// The fingerprint of patch, intent and `expand`, or of the question: what an answer is about.
    pub digest: Digest,
    /// The patch (RFC 6902).
    #[serde(skip_serializing)]
    pub patch: Value,
    /// What its author said it is for.
    #[serde(default, skip_serializing)]
    pub intent: Option<String>,
    /// JSON Pointers of the places that its author asked to be shown.
    #[serde(default, skip_serializing)]
    pub expand: Vec<String>,
    /// The reply as it came, where the patch was made of it ([`crate::mode::Interface`]); replays make it again.
    #[serde(default, skip_serializing)]
    pub written: Option<String>,
    /// What the person is asked to say, where nothing is proposed.
    #[serde(default, skip_serializing)]
    pub clarify: Option<Clarify>,
}

/// A person answered. What becomes of the proposal follows in the same step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Seq of the `approval` record.
    pub of: Seq,
    /// Who answered.
    pub by: WorkerName,
    /// The fingerprint that the answer is about.
    pub digest: Digest,
    /// Whether the person agrees.
    pub agrees: bool,
    /// Why, in the person's words.
    #[serde(default, skip_serializing)]
    pub reason: Option<String>,
    /// What was asked for, where that was more than whether the person agrees.
    #[serde(default, skip_serializing)]
    pub text: Option<String>,
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
    /// The invocation that ends with it, if it was scheduled already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<InvocationId>,
    /// What ran out.
    pub resource: Resource,
    /// How much the call would have needed.
    pub needed: u64,
    /// How much was left.
    pub left: u64,
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
            | Cause::Crashes
            | Cause::Budget
            | Cause::Commits
            | Cause::Edits
            | Cause::Wall
            | Cause::Meltdown
            | Cause::Cancelled => true,
        }
    }
}

impl Body {
    /// The kind of this body.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Created(_) => Kind::Created,
            Self::Epoch(_) => Kind::Epoch,
            Self::Scheduled(_) => Kind::Scheduled,
            Self::Invoked(_) => Kind::Invoked,
            Self::Continued(_) => Kind::Continued,
            Self::Committed(_) => Kind::Committed,
            Self::NoOp(_) => Kind::NoOp,
            Self::Expanded(_) => Kind::Expanded,
            Self::Rejected(_) => Kind::Rejected,
            Self::Failed(_) => Kind::Failed,
            Self::Late(_) => Kind::Late,
            Self::Reserved(_) => Kind::Reserved,
            Self::Skipped(_) => Kind::Skipped,
            Self::Approval(_) => Kind::Approval,
            Self::Answer(_) => Kind::Answer,
            Self::Breaker(_) => Kind::Breaker,
            Self::Budget(_) => Kind::Budget,
            Self::Paused(_) => Kind::Paused,
            Self::Resumed(_) => Kind::Resumed,
            Self::Tick(_) => Kind::Tick,
            Self::Signal(_) => Kind::Signal,
            Self::Snapshot(_) => Kind::Snapshot,
            Self::Redacted(_) => Kind::Redacted,
            Self::Ended(_) => Kind::Ended,
        }
    }

    /// The values, by the names of their fields, in the order of these.
    pub(super) fn values(&self) -> Vec<(&'static str, Cow<'_, Value>)> {
        fn json(value: impl Serialize) -> Cow<'static, Value> {
            Cow::Owned(serde_json::to_value(value).expect("values have string keys and finite numbers"))
        }
        let borrowed = |value| Cow::Borrowed(value);
        let places = |expand: &[String]| (!expand.is_empty()).then(|| ("expand", json(expand)));
        let proposed = |patch, intent: &Option<String>, expand: &[String], written: &Option<String>| {
            let intent = intent.iter().map(|intent| ("intent", json(intent)));
            let written = written.iter().map(|written| ("written", json(written)));
            let values =
                places(expand).into_iter().chain(intent).chain([("patch", Cow::Borrowed(patch))]).chain(written);
            values.collect::<Vec<_>>()
        };
        match self {
            Self::Created(it) => {
                vec![
                    ("blueprint", borrowed(&it.blueprint)),
                    ("request", borrowed(&it.request)),
                    ("salt", json(it.salt)),
                ]
            }
            Self::Scheduled(it) => places(&it.expand).into_iter().chain([("trigger", json(&it.trigger))]).collect(),
            Self::Invoked(it) => {
                let members = (!it.members.is_empty()).then(|| ("members", json(&it.members)));
                members.into_iter().chain([("reads", json(&it.reads))]).collect()
            }
            Self::Committed(it) => proposed(&it.patch, &it.intent, &it.expand, &it.written),
            Self::NoOp(it) => proposed(&it.patch, &it.intent, &[], &it.written),
            Self::Expanded(it) => proposed(&it.patch, &it.intent, &it.expand, &None),
            Self::Approval(it) => {
                let clarify = it.clarify.iter().map(|clarify| ("clarify", json(clarify)));
                clarify.chain(proposed(&it.patch, &it.intent, &it.expand, &it.written)).collect()
            }
            Self::Answer(it) => {
                let reason = it.reason.iter().map(|reason| ("reason", json(reason)));
                reason.chain(it.text.iter().map(|text| ("text", json(text)))).collect()
            }
            Self::Rejected(it) => vec![("rejection", json(&it.rejection)), ("reply", json(&it.reply))],
            Self::Failed(it) => vec![("message", json(&it.message))],
            Self::Late(it) => vec![("reply", json(&it.reply))],
            Self::Reserved(it) => vec![("places", json(&it.places))],
            Self::Skipped(it) => vec![("message", json(&it.message))],
            Self::Signal(it) => vec![("value", borrowed(&it.value))],
            Self::Redacted(it) => vec![("targets", json(&it.targets))],
            Self::Epoch(_)
            | Self::Continued(_)
            | Self::Breaker(_)
            | Self::Budget(_)
            | Self::Paused(_)
            | Self::Resumed(_)
            | Self::Tick(_)
            | Self::Snapshot(_)
            | Self::Ended(_) => Vec::new(),
        }
    }
}
