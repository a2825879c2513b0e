//! Inputs of a board, and the results of a step.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ablation::Mode;
use crate::admission::Admission;
use crate::blueprint::Blueprint;
use crate::digest::{Digest, Salt};
use crate::expand_request::ExpandRequest;
use crate::failure::FailureCode;
use crate::files::Edit;
use crate::id::{BoardId, IdempotencyKey, InvocationId, Seq, Timestamp, Version, WorkerName};
use crate::ledger::Usage;
use crate::pipeline::{ClarifyQuestion, ReplyBody};
use crate::record::{Answer, Architect, Author, FORMAT, Parent, Principal, Record, Redacted, Retried};
use crate::rejection::{Code, Rejection, Stage, Violation};

use super::Effects;
pub use super::decide::RequestDeferral;

/// Arguments for creating a board.
#[derive(Clone, Debug)]
pub struct NewBoard {
    /// Id of the board, never used before.
    pub board: BoardId,
    /// Blueprint.
    pub blueprint: Blueprint,
    /// Components that are switched on (ablation).
    pub mode: Mode,
    /// Model usage for writing the blueprint, if a model wrote it; charged to the board.
    pub architect: Option<Architect>,
    /// The invocation of another board that this nested board runs, if any.
    pub parent: Option<Parent>,
    /// The user's request.
    pub request: Value,
    /// Random bytes; zeros if digests must be comparable between boards.
    pub salt: Salt,
    /// Current time.
    pub at: Timestamp,
    /// The external caller, if any.
    pub principal: Option<Principal>,
}

impl NewBoard {
    /// Builds the arguments for a board with all components, without an external caller, and with digests comparable
    /// between boards.
    pub fn new(board: impl Into<BoardId>, blueprint: Blueprint, request: Value, at: Timestamp) -> Self {
        let (mode, salt) = (Mode::default(), Salt::ZERO);
        Self { board: board.into(), blueprint, mode, architect: None, parent: None, request, salt, at, principal: None }
    }
}

/// An input of a board.
#[derive(Clone, Debug)]
pub enum Input {
    /// A worker's reply, or a direct proposal.
    Propose(Proposal),
    /// An attempt ended without a proposal.
    AgentFailed {
        /// The invocation.
        invocation: InvocationId,
        /// Attempt number.
        attempt: u32,
        /// Failure code.
        code: FailureCode,
        /// Message for people.
        message: String,
        /// Usage of the call, if known.
        usage: Option<Usage>,
    },
    /// A call of an attempt is answered, and the attempt makes another one.
    Continue {
        /// The invocation.
        invocation: InvocationId,
        /// Attempt number.
        attempt: u32,
        /// Usage of the answered call, if known.
        usage: Option<Usage>,
        /// Tokens reserved for the next call.
        reserve: u64,
    },
    /// The gate admits a call that waited for admission. A call that is no longer wanted leaves no record.
    Admit {
        /// The invocation.
        invocation: InvocationId,
        /// The attempt to make.
        attempt: u32,
        /// Result of the admission.
        admission: Admission,
    },
    /// The provider did not accept the request of an attempt.
    Defer {
        /// The invocation.
        invocation: InvocationId,
        /// Attempt number.
        attempt: u32,
        /// Usage of the attempt's earlier calls, if known.
        usage: Option<Usage>,
        /// Reason and wait.
        deferral: RequestDeferral,
    },
    /// No waiting call was admitted within its patience.
    Unavailable,
    /// An operator retries given-up invocations, or raises limits.
    Retry(Retried),
    /// Time has passed.
    Tick,
    /// The clock has jumped forward since the last input.
    ClockJump {
        /// Distance in milliseconds.
        ms: u64,
    },
    /// A signal, or a request for a manual rule by its name.
    Signal {
        /// Name of the signal.
        name: String,
        /// Value of the signal.
        value: Value,
        /// Idempotency key.
        key: Option<IdempotencyKey>,
    },
    /// Pause dispatching; calls under way may still answer.
    Pause {
        /// Idempotency key. With one, a pause is recorded even if it changes nothing.
        key: Option<IdempotencyKey>,
    },
    /// Resume dispatching.
    Resume {
        /// Idempotency key, as for a pause.
        key: Option<IdempotencyKey>,
    },
    /// A person answers a question.
    Answer(Answer),
    /// End the board.
    Cancel,
    /// The board's actors kept failing: end it as failed.
    Meltdown,
    /// A snapshot of the board after the record `of` is stored.
    Snapshot {
        /// The last record it includes.
        of: Seq,
        /// Digest of the snapshot.
        digest: Digest,
    },
    /// An administrator replaces a value, independent of the workers' grants; schema and invariants hold. Dispatches no
    /// invocations.
    Amend {
        /// The place, as a JSON Pointer.
        path: String,
        /// The value.
        value: Value,
    },
    /// An edit of workspace files, requested or already made.
    Edit(Edit),
    /// Values of earlier records are redacted ([`crate::redaction`]). The board itself still holds them, so it must be
    /// dropped and rebuilt from the journal.
    Redact(Redacted),
    /// A process takes ownership of the board: calls under way are lost.
    TakeOver {
        /// Epoch of the new owner, greater than any before.
        epoch: u64,
        /// Random name of the new owner.
        writer: String,
        /// Journal format of the new owner; `None`: unchanged.
        format: Option<u32>,
    },
}

impl Input {
    /// Builds a take-over by this version, which writes its own journal format from then on.
    pub const fn take_over(epoch: u64, writer: String) -> Self {
        Self::TakeOver { epoch, writer, format: Some(FORMAT) }
    }
}

/// A patch and its source.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// Source of the proposal.
    pub from: ProposalSource,
    /// The worker that the proposal is made for.
    pub worker: WorkerName,
    /// The patch, or an envelope around it.
    pub reply: ReplyBody,
    /// Usage of the call, if it was one and if known.
    pub usage: Option<Usage>,
    /// The raw reply of a model, if wrapping around it was removed. Kept with the proposal, never judged.
    pub raw: Option<String>,
}

/// Source of a proposal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProposalSource {
    /// An attempt of an invocation. Base and read set are those of its `invoked` record.
    Attempt {
        /// The invocation.
        invocation: InvocationId,
        /// Attempt number.
        attempt: u32,
    },
    /// An unsolicited proposal: from an administrator or `patchboard pipe`.
    Direct {
        /// Idempotency key.
        key: Option<IdempotencyKey>,
        /// The version it is based on; the current one if absent.
        base: Option<Version>,
    },
}

/// Outcome of a proposal or request.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The state changed.
    Committed {
        /// Number of the record.
        seq: Seq,
        /// The new version.
        version: Version,
        /// Digest of the new state.
        state: Digest,
    },
    /// The proposal changes nothing.
    NoOp {
        /// Number of the record.
        seq: Seq,
    },
    /// The proposal changes nothing and asks to see more: its author is invoked again.
    Expanded {
        /// Number of the record.
        seq: Seq,
    },
    /// The proposal passed every stage and waits for a person, or asks a person a question.
    AwaitingApproval {
        /// Number of the record.
        seq: Seq,
    },
    /// A person answered a worker's question; the worker is invoked again with the answer.
    Answered {
        /// Number of the record.
        seq: Seq,
    },
    /// The attempt continues with another call.
    Continued {
        /// Number of the record.
        seq: Seq,
    },
    /// Rejected without a record of the request, such as an invalid answer, a token used for another request, or an
    /// unknown signal. Also another call of an attempt that has ended, or that ends now because it cannot afford the
    /// call.
    RejectedUnrecorded(Rejection),
    /// The proposal was rejected.
    Rejected {
        /// Number of the record.
        seq: Seq,
        /// Violations, and the operations allowed instead.
        rejection: Rejection,
    },
    /// A retry with the same token and content: returns the first outcome and records nothing.
    Duplicate(RememberedOutcome),
}

/// Remembered outcome of a token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", deny_unknown_fields)]
pub enum RememberedOutcome {
    /// Committed.
    Committed {
        /// Number of the record.
        seq: Seq,
        /// The new version.
        version: Version,
        /// Digest of the new state.
        state: Digest,
    },
    /// Changed nothing.
    NoOp {
        /// Number of the record.
        seq: Seq,
    },
    /// Changed nothing and asked to see more.
    Expanded {
        /// Number of the record.
        seq: Seq,
    },
    /// Waits for a person.
    AwaitingApproval {
        /// Number of the record.
        seq: Seq,
    },
    /// Rejected; the record has the violations.
    Rejected {
        /// Number of the record.
        seq: Seq,
        /// The stage that failed.
        stage: Stage,
        /// The first violation's code.
        code: Code,
    },
    /// A signal, a pause, its end or an operator's retry was recorded.
    #[serde(rename = "heard")]
    Recorded {
        /// Number of the record.
        seq: Seq,
    },
}

/// A proposal that waits for a person, or a question to a person.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PendingQuestion {
    /// Author.
    pub by: Author,
    /// The `human` worker that decides.
    pub approver: WorkerName,
    /// Deadline of the question; `None`: open until answered.
    pub expires: Option<Timestamp>,
    /// True if neither the caller that started the board nor the one that made the proposal may answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub four_eyes: bool,
    /// Fingerprint of the proposal or question, which an answer must repeat.
    pub digest: Digest,
    /// The patch (RFC 6902).
    pub patch: Value,
    /// Purpose, as stated by the author.
    #[serialize_always]
    pub intent: Option<String>,
    /// Places that the author asked to see.
    pub expand: Vec<ExpandRequest>,
    /// The reply as received, if the patch was derived from it ([`crate::ablation::Interface`]).
    pub written: Option<String>,
    /// The question to the person, if nothing is proposed.
    pub clarify: Option<ClarifyQuestion>,
    /// The external caller that proposed it, if any.
    pub principal: Option<Principal>,
}

impl PendingQuestion {
    /// Returns true if the deadline has passed.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// Everything that one input caused. It must be durable before any of it is visible or acted upon.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Records to append, in this order, all or none. Empty: the input changed nothing.
    pub records: Vec<Record>,
    /// Texts that the records name by hash, stored with them.
    pub blobs: Vec<Blob>,
    /// Effects to run once the records are durable.
    pub effects: Effects,
    /// Outcome of the proposal or request, if the input was one.
    pub outcome: Option<Outcome>,
}

impl Step {
    /// Adds a step that follows immediately, so that both become durable together.
    pub(super) fn add(&mut self, next: Self) {
        let Self { records, blobs, effects, outcome: _ } = next;
        self.effects.add(effects);
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

/// Error of creating or recovering a board.
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
        /// Number of the record.
        seq: Seq,
        /// The reason.
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
