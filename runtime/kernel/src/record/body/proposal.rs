//! Records of proposals and file edits: author, content and verdict.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Attempt;
use crate::digest::Digest;
use crate::expand_request::ExpandRequest;
use crate::id::{IdempotencyKey, InvocationId, Seq, Timestamp, Version, WorkerName};
use crate::ledger::Usage;
use crate::pipeline::ClarifyQuestion;
use crate::rejection::{Code, Rejection, Stage};

/// Author name for an administrator's own commits; no worker of a blueprint can have it.
pub const ADMINISTRATOR: &str = "$administrator";

/// Origin of a proposal, part of every proposal record.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Author {
    /// The worker that is recorded as its author.
    pub worker: WorkerName,
    /// The attempt that made it; none for a direct proposal.
    pub attempt: Option<Attempt>,
    /// The idempotency key of a direct proposal.
    pub token: Option<IdempotencyKey>,
    /// The version that it was written against.
    pub base: Version,
    /// Cost of the call.
    pub usage: Option<Usage>,
    /// Seq of the `approval` record that put it to a person; that record has the cost.
    pub approval: Option<Seq>,
    /// Origin of a file edit; absent for other proposals.
    pub edit: Option<EditOrigin>,
}

impl Author {
    /// Builds an author without an attempt, a token or a cost.
    pub(crate) const fn new(worker: WorkerName, base: Version) -> Self {
        Self { worker, attempt: None, token: None, base, usage: None, approval: None, edit: None }
    }
}

/// Origin of a file edit. The edit itself is in the reply field of the record: `written` or `reply`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditOrigin {
    /// The attempt that continues after it; absent for changes of the workspace made outside the board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
}

/// A proposal was committed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Committed {
    /// Origin of the proposal.
    pub by: Author,
    /// The version that it produced.
    pub version: Version,
    /// Digest of the resulting state.
    pub state: Digest,
    /// The patch (RFC 6902).
    #[serde(skip_serializing)]
    pub patch: Value,
    /// Purpose, in the author's words.
    #[serde(default, skip_serializing)]
    pub intent: Option<String>,
    /// Paths that the author requested; the work continues in a follow-up invocation.
    #[serde(default, skip_serializing)]
    pub expand: Vec<ExpandRequest>,
    /// The original reply, if the patch was derived from it. Either the kernel derived it
    /// ([`crate::ablation::Interface`],
    /// [`crate::bindings::Bindings`]) and replays derive it too, or the agent's seat did
    /// ([`crate::blueprint::Worker::format`]).
    #[serde(default, skip_serializing)]
    pub written: Option<String>,
    /// The reply as the model sent it, if wrapping was removed before it was judged.
    #[serde(default, skip_serializing)]
    pub raw: Option<String>,
}

/// A proposal, or an edit of files, changed nothing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoOp {
    /// Origin of the proposal.
    pub by: Author,
    /// The patch (RFC 6902).
    #[serde(skip_serializing)]
    pub patch: Value,
    /// Purpose, in the author's words.
    #[serde(default, skip_serializing)]
    pub intent: Option<String>,
    /// The original reply, if the patch was derived from it ([`Committed::written`]).
    #[serde(default, skip_serializing)]
    pub written: Option<String>,
    /// Reason for the pass, in the author's words.
    #[serde(default, skip_serializing)]
    pub pass: Option<String>,
    /// The reply as the model sent it, if wrapping was removed before it was judged.
    #[serde(default, skip_serializing)]
    pub raw: Option<String>,
}

/// Size and fingerprint of a reply that is recorded only as an excerpt: beginning and end. The rest did not matter to
/// its verdict (since format 20).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ElidedReply {
    /// Bytes of the whole reply.
    pub bytes: u64,
    /// Fingerprint of the whole reply, by which a duplicate is recognised.
    pub fingerprint: Digest,
}

/// A proposal changed nothing, and its author requested more context; the work continues in a follow-up invocation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expanded {
    /// Origin of the proposal.
    pub by: Author,
    /// The patch (RFC 6902).
    #[serde(skip_serializing)]
    pub patch: Value,
    /// Purpose, in the author's words.
    #[serde(default, skip_serializing)]
    pub intent: Option<String>,
    /// Requested paths.
    #[serde(skip_serializing)]
    pub expand: Vec<ExpandRequest>,
    /// The original reply, if the patch was derived from it ([`Committed::written`]).
    #[serde(default, skip_serializing)]
    pub written: Option<String>,
    /// The reply as the model sent it, if wrapping was removed before it was judged.
    #[serde(default, skip_serializing)]
    pub raw: Option<String>,
}

/// A proposal was rejected.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rejected {
    /// Origin of the proposal.
    pub by: Author,
    /// The stage that failed.
    pub stage: Stage,
    /// The first violation's code.
    pub code: Code,
    /// True if this was the invocation's last attempt.
    #[serde(rename = "final", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
    /// All violations, and the allowed alternatives.
    #[serde(skip_serializing)]
    pub rejection: Rejection,
    /// Set if `reply` is an excerpt because the reply was too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elided: Option<ElidedReply>,
    /// The reply as it was judged; identical to the original reply unless `written` is set.
    #[serde(skip_serializing)]
    pub reply: String,
    /// The original reply, if the judged text was derived from it ([`crate::blueprint::Worker::format`]).
    #[serde(default, skip_serializing)]
    pub written: Option<String>,
    /// The reply as the model sent it, if wrapping was removed before it was judged.
    #[serde(default, skip_serializing)]
    pub raw: Option<String>,
}

/// A proposal that was rejected before the pipeline: closed invocation, wrong worker, idempotency key conflict, or a
/// board that is not running.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Late {
    /// The worker that sent it.
    pub worker: WorkerName,
    /// The invocation it was for; none for a direct proposal.
    pub invocation: Option<InvocationId>,
    /// The attempt it was for.
    pub attempt: Option<u32>,
    /// The idempotency key of a direct proposal.
    pub token: Option<IdempotencyKey>,
    /// `invocation_closed`, `wrong_worker`, `token_conflict` or `board_not_running`.
    pub code: Code,
    /// Cost of the call.
    pub usage: Option<Usage>,
    /// Set if `reply` is an excerpt.
    pub elided: Option<ElidedReply>,
    /// The original reply.
    #[serde(skip_serializing)]
    pub reply: String,
    /// The reply as the model sent it, if wrapping was removed before it was judged.
    #[serde(default, skip_serializing)]
    pub raw: Option<String>,
}

/// A proposal has passed every stage and waits for a person (SPEC section 3), or a worker asks a person a question.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// Origin of the proposal.
    pub by: Author,
    /// The `human` worker that must answer.
    pub approver: WorkerName,
    /// Expiry of the question; absent if it stays open until it is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// True if answers by the caller that started the board or made the proposal do not count (since format 20).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub four_eyes: bool,
    /// Fingerprint that an answer must name. Covers patch, intent and `expand`, or the question.
    pub digest: Digest,
    /// The patch (RFC 6902).
    #[serde(skip_serializing)]
    pub patch: Value,
    /// Purpose, in the author's words.
    #[serde(default, skip_serializing)]
    pub intent: Option<String>,
    /// Paths that the author requested.
    #[serde(default, skip_serializing)]
    pub expand: Vec<ExpandRequest>,
    /// The original reply, if the patch was derived from it ([`Committed::written`]).
    #[serde(default, skip_serializing)]
    pub written: Option<String>,
    /// The question for the person, if nothing is proposed.
    #[serde(default, skip_serializing)]
    pub clarify: Option<ClarifyQuestion>,
    /// The reply as the model sent it, if wrapping was removed before it was judged.
    #[serde(default, skip_serializing)]
    pub raw: Option<String>,
}

/// A person answered. The proposal's outcome follows in the same step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Seq of the `approval` record.
    pub of: Seq,
    /// The person who answered.
    pub by: WorkerName,
    /// Fingerprint of the question that was answered.
    pub digest: Digest,
    /// True if the person agrees.
    pub agrees: bool,
    /// Reason, in the person's words.
    #[serde(default, skip_serializing)]
    pub reason: Option<String>,
    /// The requested text, if the question asked for more than agreement.
    #[serde(default, skip_serializing)]
    pub text: Option<String>,
}
