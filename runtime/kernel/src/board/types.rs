//! What can happen to a board, and what comes of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::admission::{Admission, Waiting};
use crate::asked::Asked;
use crate::blueprint::Blueprint;
use crate::digest::{Digest, Salt};
use crate::failure::FailureCode;
use crate::files::Edit;
use crate::id::{BoardId, InvocationId, Seq, Timestamp, Token, Version, WorkerName};
use crate::ledger::Usage;
use crate::mode::Mode;
use crate::pipeline::{Clarify, ReplyBody};
use crate::record::{Answer, Architect, Author, Ended, FORMAT, Parent, Principal, Record, Redacted, Retried};
use crate::rejection::{Code, Rejection, Stage, Violation};
use crate::scheduler::Past;
use crate::shown::Shown;

pub use super::decide::NotTaken;
use crate::view::Prompt;

/// What a new board is made of.
#[derive(Clone, Debug)]
pub struct Genesis {
    /// Its id, never used before.
    pub board: BoardId,
    /// Its contract.
    pub blueprint: Blueprint,
    /// How much of PatchBoard it has.
    pub mode: Mode,
    /// What it cost to have a model write the blueprint, if one did; the board is charged with it.
    pub architect: Option<Architect>,
    /// Whose work it does, if it is a board inside a board.
    pub parent: Option<Parent>,
    /// What the user asks.
    pub request: Value,
    /// Random bytes; zeros where digests should compare between boards.
    pub salt: Salt,
    /// Now.
    pub at: Timestamp,
    /// The caller who starts it, if it is started from outside.
    pub principal: Option<Principal>,
}

impl Genesis {
    /// A whole PatchBoard that nobody from outside starts, whose digests compare between boards.
    pub fn new(board: impl Into<BoardId>, blueprint: Blueprint, request: Value, at: Timestamp) -> Self {
        let (mode, salt) = (Mode::default(), Salt::ZERO);
        Self { board: board.into(), blueprint, mode, architect: None, parent: None, request, salt, at, principal: None }
    }
}

/// Something that happens to a board.
#[derive(Clone, Debug)]
pub enum Input {
    /// A worker's reply, or a direct proposal.
    Propose(Proposal),
    /// An attempt ended without a proposal.
    AgentFailed {
        /// The invocation.
        invocation: InvocationId,
        /// Which attempt of it.
        attempt: u32,
        /// Why.
        code: FailureCode,
        /// For people.
        message: String,
        /// What the call cost, if known.
        usage: Option<Usage>,
    },
    /// A call of an attempt is answered, and the attempt makes another one.
    Continue {
        /// The invocation.
        invocation: InvocationId,
        /// Which attempt of it.
        attempt: u32,
        /// What the call cost that was answered, if known.
        usage: Option<Usage>,
        /// Tokens that the next one may take.
        reserve: u64,
    },
    /// The gate lets a call through that waited for admission. If the call is not wanted any more, nothing is recorded.
    Admit {
        /// The invocation.
        invocation: InvocationId,
        /// The attempt to make.
        attempt: u32,
        /// Where to.
        admission: Admission,
    },
    /// The provider did not take the request of an attempt.
    Defer {
        /// The invocation.
        invocation: InvocationId,
        /// Which attempt of it.
        attempt: u32,
        /// What calls of the attempt cost before, if known.
        usage: Option<Usage>,
        /// Why, and for how long.
        not_taken: NotTaken,
    },
    /// No call that waits could be admitted for as long as patience lasts.
    Unavailable,
    /// An operator takes up again what was given up, or raises limits.
    Retry(Retried),
    /// Time has passed.
    Tick,
    /// The clock has jumped forward since the last input.
    Jump {
        /// How far, in milliseconds.
        ms: u64,
    },
    /// A signal, or somebody asking for a manual rule by its name.
    Signal {
        /// Its name.
        name: String,
        /// What it carries.
        value: Value,
        /// For recognising a repetition.
        token: Option<Token>,
    },
    /// Dispatch no more; calls under way may still answer.
    Pause {
        /// For recognising a repetition. With one a pause is recorded even if it changes nothing.
        token: Option<Token>,
    },
    /// Dispatch again.
    Resume {
        /// As for a pause.
        token: Option<Token>,
    },
    /// A person answers a question.
    Answer(Answer),
    /// End the board.
    Cancel,
    /// The board's actors kept failing: end it as failed.
    Meltdown,
    /// A snapshot of the board as it stood after the record `of` is stored.
    Snapshot {
        /// The last record it includes.
        of: Seq,
        /// Its digest.
        digest: Digest,
    },
    /// An administrator puts another value in place of one, whatever the workers may write; schema and invariants hold.
    /// Nobody is called before the next input.
    Amend {
        /// The place, as a JSON Pointer.
        path: String,
        /// The value.
        value: Value,
    },
    /// Files of the workspace are to be changed, or have been.
    Edit(Edit),
    /// Values of earlier records are erased ([`crate::redaction`]). The board itself still holds them: it has to go, and
    /// another is to be made from the journal.
    Redact(Redacted),
    /// A process takes the board over: what was under way is lost.
    TakeOver {
        /// The new owner's number, greater than any before.
        epoch: u64,
        /// The new owner's random name.
        writer: String,
        /// The journal format that the new owner writes; none: as before.
        format: Option<u32>,
    },
}

impl Input {
    /// A take-over by this version, which writes its own journal format from then on.
    pub const fn take_over(epoch: u64, writer: String) -> Self {
        Self::TakeOver { epoch, writer, format: Some(FORMAT) }
    }
}

/// A patch and where it comes from.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// Where it comes from.
    pub from: From,
    /// In whose name.
    pub worker: WorkerName,
    /// The patch, or an envelope around it.
    pub reply: ReplyBody,
    /// What the call cost, if it was one and if that is known.
    pub usage: Option<Usage>,
    /// The reply as a model sent it, where wrapping around it was removed. Kept with the proposal, never judged.
    pub raw: Option<String>,
}

/// Where a proposal comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum From {
    /// An attempt of an invocation. Base and read set are those of its `invoked` record.
    Attempt {
        /// The invocation.
        invocation: InvocationId,
        /// Which attempt of it.
        attempt: u32,
    },
    /// Nobody was asked: an administrator, `patchboard kernel`.
    Direct {
        /// For recognising a repetition.
        token: Option<Token>,
        /// The version it was written against; the current one if absent.
        base: Option<Version>,
    },
}

/// What became of a proposal.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// It changed the state.
    Committed {
        /// Its record.
        seq: Seq,
        /// The version it made.
        version: Version,
        /// The digest of the state it made.
        state: Digest,
    },
    /// It would have changed nothing.
    NoOp {
        /// Its record.
        seq: Seq,
    },
    /// It would have changed nothing, and asked to be shown more: its author is invoked again.
    Expanded {
        /// Its record.
        seq: Seq,
    },
    /// It has passed every stage and waits for a person, or asks one something.
    AwaitingApproval {
        /// Its record.
        seq: Seq,
    },
    /// It was a person's answer to a worker, which is asked again with it.
    Answered {
        /// Its record.
        seq: Seq,
    },
    /// The attempt goes on with another call.
    Continued {
        /// Its record.
        seq: Seq,
    },
    /// It was an answer that does not count, or a request whose token was used for another, and nothing was recorded; or
    /// another call of an attempt that is over, or is with this because the call cannot be afforded.
    Refused(Rejection),
    /// It was refused.
    Rejected {
        /// Its record.
        seq: Seq,
        /// Why, and what is allowed instead.
        rejection: Rejection,
    },
    /// The same token with the same patch or request came before: the first outcome again; nothing was recorded.
    Duplicate(Verdict),
}

/// What is remembered of a decided token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", deny_unknown_fields)]
pub enum Verdict {
    /// It was committed.
    Committed {
        /// Its record.
        seq: Seq,
        /// The version it made.
        version: Version,
        /// The digest of the state it made.
        state: Digest,
    },
    /// It changed nothing.
    NoOp {
        /// Its record.
        seq: Seq,
    },
    /// It changed nothing and asked to be shown more.
    Expanded {
        /// Its record.
        seq: Seq,
    },
    /// It waits for a person.
    AwaitingApproval {
        /// Its record.
        seq: Seq,
    },
    /// It was refused; the record has the violations.
    Rejected {
        /// Its record.
        seq: Seq,
        /// The stage that failed.
        stage: Stage,
        /// The first violation's code.
        code: Code,
    },
    /// It was a signal, a pause or the end of one.
    Heard {
        /// Its record.
        seq: Seq,
    },
}

/// A proposal that waits for a person, or a question to one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    /// Where it came from.
    pub by: Author,
    /// The `human` worker who is asked.
    pub approver: WorkerName,
    /// End of the question; none: it stays open until it is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// True if the answer of a caller who has started the board or made the proposal does not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub four_eyes: bool,
    /// The fingerprint of what was proposed or asked: what an answer is about.
    pub digest: Digest,
    /// The patch (RFC 6902).
    pub patch: Value,
    /// What its author said it is for.
    pub intent: Option<String>,
    /// Places that its author asked to be shown.
    pub expand: Vec<Asked>,
    /// The reply as it came, where the patch was made of it ([`crate::mode::Interface`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<String>,
    /// What the person is asked to say, where nothing is proposed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clarify: Option<Clarify>,
    /// The caller who proposed it, if that was one from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Principal>,
}

impl Pending {
    /// Tells whether its time has passed.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// Everything one input caused, to be made durable before anything of it is visible or acted upon.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// To append, in this order, all or none. Empty: the input changed nothing.
    pub records: Vec<Record>,
    /// Texts that the records name by hash, to store with them.
    pub blobs: Vec<Blob>,
    /// To do once the records are durable.
    pub effects: Vec<Effect>,
    /// What became of the proposal, if the input was one.
    pub outcome: Option<Outcome>,
}

impl Step {
    /// Adds a step that follows at once, so that both are made durable together.
    pub(super) fn add(&mut self, next: Self) {
        let Self { records, blobs, effects, outcome: _ } = next;
        let replaces = |before: &Effect| match before {
            Effect::Await(_) => effects.iter().any(|effect| matches!(effect, Effect::Await(_))),
            Effect::WakeAt(_) => effects.iter().any(|effect| matches!(effect, Effect::WakeAt(_))),
            Effect::Call { .. } | Effect::Cancel { .. } | Effect::Ended(_) => false,
        };
        self.effects.retain(|effect| !replaces(effect));
        self.effects.extend(effects);
        self.records.extend(records);
        self.blobs.extend(blobs);
    }
}

/// A text stored by its SHA-256.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blob {
    /// SHA-256 of the text.
    pub hash: Digest,
    /// The text.
    pub text: Arc<str>,
}

/// Something to be done once a step is durable.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Call the worker's agent.
    Call {
        /// The invocation.
        invocation: InvocationId,
        /// Its `scheduled` record.
        cause: Seq,
        /// Which attempt of it.
        attempt: u32,
        /// Whom.
        worker: WorkerName,
        /// Hash of what it is shown.
        view: Digest,
        /// What it is shown.
        prompt: Arc<Prompt>,
        /// The same as values.
        shown: Arc<Shown>,
        /// The invocation of another board that its board does, if it is one inside another.
        parent: Option<Parent>,
        /// The time it has, in milliseconds.
        timeout_ms: u64,
        /// How many attempts the worker had before this one on this board, without those that reached nobody.
        occurrence: u32,
        /// Where the call was admitted to, if it needed admission.
        admitted: Option<Admission>,
        /// Attempts of the invocation before this one.
        past: Box<Past>,
    },
    /// Ask the gate to admit these calls, and no others: what was named before and is not named now is not wanted any more.
    Await(Vec<Waiting>),
    /// Stop a call that is under way; its answer will be refused.
    Cancel {
        /// The invocation.
        invocation: InvocationId,
        /// Its worker.
        worker: WorkerName,
    },
    /// Send [`Input::Tick`] at this time, instead of at any time wished earlier.
    WakeAt(Timestamp),
    /// The board has ended; a signal may wake a quiescent one.
    Ended(Ended),
}

/// Why a board cannot be created or recovered.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum BoardError {
    /// The request does not fit its schema, or makes an initial state that breaks the state schema or an invariant.
    #[error("the request does not fit the blueprint: {}", list(.0))]
    BadRequest(Vec<Violation>),
    /// The blueprint cannot be compiled.
    #[error("the blueprint cannot be used: {0}")]
    BadBlueprint(String),
    /// A record cannot be read or does not follow from those before it.
    #[error("record {seq}: {message}")]
    BadRecord {
        /// Which.
        seq: Seq,
        /// Why.
        message: String,
    },
}

impl BoardError {
    pub(super) fn bad(seq: Seq, message: impl Into<String>) -> Self {
        Self::BadRecord { seq, message: message.into() }
    }
}

fn list(violations: &[Violation]) -> String {
    let each: Vec<_> = violations
        .iter()
        .map(|violation| match violation.pointer.as_str() {
            "" => violation.message.clone(),
            pointer => format!("{pointer}: {}", violation.message),
        })
        .collect();
    each.join("; ")
}
