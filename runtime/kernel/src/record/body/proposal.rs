//! What is proposed, or edited, by whom, and what becomes of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Attempt;
use crate::asked::Asked;
use crate::digest::Digest;
use crate::id::{InvocationId, Seq, Timestamp, Token, Version, WorkerName};
use crate::ledger::Usage;
use crate::pipeline::Clarify;
use crate::rejection::{Code, Rejection, Stage};

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
    /// Places that its author asked to be shown; the invocation goes on in another.
    #[serde(default, skip_serializing)]
    pub expand: Vec<Asked>,
    /// The reply as it came, where the patch was made of it: by the kernel ([`crate::mode::Interface`],
    /// [`crate::bindings::Bindings`]), then replays make it again, or by the agent's seat ([`crate::blueprint::Format`]).
    #[serde(default, skip_serializing)]
    pub written: Option<String>,
    /// The reply as a model sent it, where wrapping around it was removed before it was judged.
    #[serde(default, skip_serializing)]
    pub raw: Option<String>,
}

/// A proposal, or an edit of files, changed nothing.
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
    /// The reply as it came, where the patch was made of it ([`Committed::written`]).
    #[serde(default, skip_serializing)]
    pub written: Option<String>,
    /// Why its author passed, in its words.
    #[serde(default, skip_serializing)]
    pub pass: Option<String>,
    /// The reply as a model sent it, where wrapping around it was removed before it was judged.
    #[serde(default, skip_serializing)]
    pub raw: Option<String>,
}

/// What is known of a reply of which a record keeps the beginning and the end alone, because nothing else of it mattered to its
/// verdict (since format 20).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elided {
    /// Bytes of the whole reply.
    pub bytes: u64,
    /// Fingerprint of the whole reply: a repetition is known by it.
    pub fingerprint: Digest,
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
    /// Places that are asked for.
    #[serde(skip_serializing)]
    pub expand: Vec<Asked>,
    /// The reply as it came, where the patch was made of it ([`Committed::written`]).
    #[serde(default, skip_serializing)]
    pub written: Option<String>,
    /// The reply as a model sent it, where wrapping around it was removed before it was judged.
    #[serde(default, skip_serializing)]
    pub raw: Option<String>,
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
    /// Set if `reply` is an excerpt: it was too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elided: Option<Elided>,
    /// The reply as it was judged, which is as it came unless there is `written`.
    #[serde(skip_serializing)]
    pub reply: String,
    /// The reply as it came, where what was judged was made of it ([`crate::blueprint::Format`]).
    #[serde(default, skip_serializing)]
    pub written: Option<String>,
    /// The reply as a model sent it, where wrapping around it was removed before it was judged.
    #[serde(default, skip_serializing)]
    pub raw: Option<String>,
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
    /// Set if `reply` is an excerpt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elided: Option<Elided>,
    /// The reply as it came.
    #[serde(skip_serializing)]
    pub reply: String,
    /// The reply as a model sent it, where wrapping around it was removed before it was judged.
    #[serde(default, skip_serializing)]
    pub raw: Option<String>,
}

/// A proposal has passed every stage and waits for a person (SPEC section 3), or a worker asks a person something.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// Where the proposal came from.
    pub by: Author,
    /// The `human` worker who is asked.
    pub approver: WorkerName,
    /// End of the question; none: it stays open until it is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// True if the answer of a caller who has started the board or made the proposal does not count (since format 20).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub four_eyes: bool,
    /// The fingerprint of patch, intent and `expand`, or of the question: what an answer is about.
    pub digest: Digest,
    /// The patch (RFC 6902).
    #[serde(skip_serializing)]
    pub patch: Value,
    /// What its author said it is for.
    #[serde(default, skip_serializing)]
    pub intent: Option<String>,
    /// Places that its author asked to be shown.
    #[serde(default, skip_serializing)]
    pub expand: Vec<Asked>,
    /// The reply as it came, where the patch was made of it ([`Committed::written`]).
    #[serde(default, skip_serializing)]
    pub written: Option<String>,
    /// What the person is asked to say, where nothing is proposed.
    #[serde(default, skip_serializing)]
    pub clarify: Option<Clarify>,
    /// The reply as a model sent it, where wrapping around it was removed before it was judged.
    #[serde(default, skip_serializing)]
    pub raw: Option<String>,
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
