//! Records of agent calls: the trigger, the view, and attempts that end without a proposal.

use serde::{Deserialize, Serialize};

use super::Author;
use crate::admission::Admission;
use crate::blueprint::{EventOp, Unit};
use crate::breaker;
use crate::deferral::DeferralReason;
use crate::digest::Digest;
use crate::expand_request::ExpandRequest;
use crate::failure::FailureCode;
use crate::id::{InvocationId, RuleName, Seq, Timestamp, Version, WorkerName};
use crate::view::TruncatedPlace;

/// Reason for which an invocation is requested.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Trigger {
    /// The board started.
    Start,
    /// A commit changed a path.
    Event {
        /// The kind of change.
        op: EventOp,
        /// The changed path, as a JSON Pointer.
        path: String,
        /// The commit's version.
        version: Version,
    },
    /// A signal, or a caller that requested the rule by name.
    Signal {
        /// The signal's name.
        name: String,
        /// Seq of the record that brought the signal.
        seq: Seq,
    },
    /// All rules that this rule waited for have completed.
    After,
    /// No run of the rules that this rule waited for is in progress any more.
    Idle,
    /// The rule's schedule was due.
    Every {
        /// Time at which it was due. Several missed ticks are made up for once.
        due: Timestamp,
    },
    /// A circuit breaker triggers the worker.
    Breaker {
        /// The stopped branch's rule.
        rule: Option<RuleName>,
        /// The stopped branch's worker.
        worker: WorkerName,
        /// Reason for which the branch was stopped.
        reason: breaker::Reason,
    },
}

impl Trigger {
    /// Returns the path of an event trigger.
    pub fn place(&self) -> Option<&str> {
        match self {
            Self::Event { path, .. } => Some(path.as_str()),
            _ => None,
        }
    }
}

/// An invocation was queued.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduled {
    /// The invocation's number.
    pub invocation: InvocationId,
    /// The rule that requests it; none if a breaker does.
    pub rule: Option<RuleName>,
    /// The worker to invoke.
    pub worker: WorkerName,
    /// The earlier invocation that requested more context; this one repeats its trigger.
    pub follows: Option<InvocationId>,
    /// The given-up invocation that this one retries, with the same trigger.
    pub retries: Option<InvocationId>,
    /// Reason for the invocation.
    #[serde(skip_serializing)]
    pub trigger: Trigger,
    /// Time at which it is queued, if its rule's condition still holds then. Absent if it is queued at once.
    pub due: Option<Timestamp>,
    /// Paths that the invocations before it requested.
    #[serde(default, skip_serializing)]
    pub expand: Vec<ExpandRequest>,
}

/// An attempt is about to start. Holds every input of its view.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invoked {
    /// The invocation.
    pub invocation: InvocationId,
    /// Attempt number, from 1.
    pub attempt: u32,
    /// The worker.
    pub worker: WorkerName,
    /// Seq of the `scheduled` record.
    pub cause: Seq,
    /// State version of the view; base version of the reply.
    pub base: Version,
    /// The view budget in force.
    pub budget: u32,
    /// Unit of the budget.
    pub unit: Unit,
    /// Token counting method ([`crate::view::TOKENIZER`]); none where the unit is characters.
    pub tokenizer: Option<String>,
    /// The view compiler's number ([`crate::view::COMPILER`]).
    pub compiler: u32,
    /// Seqs of the rejections that the view shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feedback: Vec<Seq>,
    /// Hash of the view's text; the text is a blob. Salted since format 20.
    pub view: Digest,
    /// Hash of the prompt's static part, stored as a blob; the agent receives that part and the view. Before format 10,
    /// the hash of the whole prompt. Salted since format 20.
    pub prompt: Digest,
    /// Bytes of the view's text, which count toward the journal's size limit (since format 20).
    pub view_bytes: Option<u64>,
    /// Tokens reserved for the call.
    pub reserved: u64,
    /// Time at which the attempt times out.
    pub deadline: Timestamp,
    /// Admission of a language-model worker's call (since format 10). A record with an admission begins its step.
    pub admitted: Option<Admission>,
    /// The read set: JSON Pointers to the values that the view showed in full.
    #[serde(skip_serializing)]
    pub reads: Vec<String>,
    /// Collections for which the view showed the set of members, but not their whole values. Recorded only where the
    /// worker's freshness is `members`.
    #[serde(default, skip_serializing)]
    pub members: Vec<String>,
    /// True if the view shows none of the context that the worker last requested. That request is then not counted
    /// (since format 13).
    #[serde(rename = "unspent", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unspent: bool,
    /// Readable collections and texts that did not fit into the view (since format 13).
    #[serde(default, skip_serializing)]
    pub unshown: Vec<TruncatedPlace>,
}

/// The provider did not accept an attempt's request. The invocation waits and is invoked later; the attempt is not
/// counted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deferred {
    /// The attempt, and the cost of its earlier calls.
    pub by: Author,
    /// The model that did not accept the request (since format 11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Reason for the deferral.
    pub reason: DeferralReason,
    /// Earliest time at which the provider may be called again.
    pub not_before: Timestamp,
    /// Time at which the board is paused if the provider accepts no request until then.
    pub patience: Timestamp,
    /// True if another model may accept the request. The board then continues although only an operator can fix this
    /// model.
    #[serde(rename = "elsewhere", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_served_elsewhere: bool,
    /// Message for people.
    #[serde(skip_serializing)]
    pub message: String,
}

/// An attempt's call was answered, and the attempt makes another call: its agent used tools and continues with their
/// results.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Continued {
    /// The attempt, and the cost of the answered call.
    pub by: Author,
    /// Tokens reserved for the next call.
    pub reserved: u64,
}

/// Reference to an attempt, as outcome records hold it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// The invocation.
    pub invocation: InvocationId,
    /// Attempt number, from 1.
    pub number: u32,
    /// Seq of the `scheduled` record, which holds the triggering event.
    pub cause: Seq,
    /// Hash of the view that the attempt was given.
    pub view: Digest,
}

/// An attempt ended without a proposal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failed {
    /// The attempt that failed.
    pub by: Author,
    /// Failure code.
    pub code: FailureCode,
    /// True if the invocation ends with this attempt.
    #[serde(rename = "final", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
    /// Tokens that the attempt's next call would have needed, if it ended for lack of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<u64>,
    /// Message for people.
    #[serde(skip_serializing)]
    pub message: String,
}

/// Paths are reserved for an invocation after its proposal lost to concurrent commits (SPEC section 5). The reservation
/// ends with the invocation, at a decision count or at a time, depending on which is reached first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reserved {
    /// The invocation.
    pub invocation: InvocationId,
    /// Its worker.
    pub worker: WorkerName,
    /// Number of board decisions at which the reservation ends.
    pub decisions: u64,
    /// Time at which the reservation ends.
    pub until: Timestamp,
    /// Reserved paths, as JSON Pointers.
    #[serde(skip_serializing)]
    pub places: Vec<String>,
}

/// A rule's condition could not be evaluated, or no longer holds after the rule's delay.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// The rule; none for the board's `done` condition.
    pub rule: Option<RuleName>,
    /// The delayed invocation that is no longer requested.
    pub invocation: Option<InvocationId>,
    /// Reason, for people.
    #[serde(skip_serializing)]
    pub message: String,
    /// The worker concerned; none if it is any worker that the rule would trigger.
    pub worker: Option<WorkerName>,
    /// Trigger of a rule that could not be evaluated: an event, or the start (since format 16).
    #[serde(default, skip_serializing)]
    pub trigger: Option<Trigger>,
}
