//! What an agent is called for: why, with which view, and that nothing came of it.

use serde::{Deserialize, Serialize};

use super::Author;
use crate::admission::Admission;
use crate::asked::Asked;
use crate::blueprint::{EventOp, Unit};
use crate::breaker;
use crate::deferral::DeferralReason;
use crate::digest::Digest;
use crate::failure::FailureCode;
use crate::id::{InvocationId, RuleName, Seq, Timestamp, Version, WorkerName};
use crate::view::Unshown;

/// Why an invocation is wanted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Trigger {
    /// The board began.
    Start,
    /// A commit did something to a place.
    Event {
        /// What it did.
        op: EventOp,
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

impl Trigger {
    /// The place of the event, if one it was.
    pub fn place(&self) -> Option<&str> {
        match self {
            Self::Event { path, .. } => Some(path.as_str()),
            _ => None,
        }
    }
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
    /// The invocation that was given up, whose trigger it has once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<InvocationId>,
    /// Why.
    #[serde(skip_serializing)]
    pub trigger: Trigger,
    /// When it goes into the queue, if its rule still wants it then; none: at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// Places that the invocations it follows asked to be shown.
    #[serde(default, skip_serializing)]
    pub expand: Vec<Asked>,
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
    /// Hash of the view's text; the text is a blob. Salted since format 20.
    pub view: Digest,
    /// Hash of the prompt's static part, which is a blob: its agent was sent that and the view. Before format 10: of the
    /// whole prompt. Salted since format 20.
    pub prompt: Digest,
    /// Bytes of the view's text, which the limit of the journal counts (since format 20).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view_bytes: Option<u64>,
    /// Tokens reserved for the call.
    pub reserved: u64,
    /// When the attempt times out.
    pub deadline: Timestamp,
    /// Where the call was admitted to, of a language model's worker since format 10. Such a record begins its step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted: Option<Admission>,
    /// The read set: JSON Pointers whose whole values the view showed.
    #[serde(skip_serializing)]
    pub reads: Vec<String>,
    /// Collections of which the view showed what members they have, but not the whole of them; only where the worker's
    /// freshness is `members`.
    #[serde(default, skip_serializing)]
    pub members: Vec<String>,
    /// True if the view shows nothing of what the worker asked for last, which is then not counted (since format 13).
    #[serde(rename = "unspent", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unspent: bool,
    /// Readable collections and texts that the view had no room for (since format 13).
    #[serde(default, skip_serializing)]
    pub unshown: Vec<Unshown>,
}

/// The provider did not take an attempt's request. The invocation waits, and is invoked again later; the attempt is not
/// counted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deferred {
    /// The attempt, and the cost of its calls before.
    pub by: Author,
    /// The model that did not take the request (since format 11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Why.
    pub reason: DeferralReason,
    /// When the provider may be asked again, at the earliest.
    pub not_before: Timestamp,
    /// When the board is paused if the provider takes no request until then.
    pub patience: Timestamp,
    /// Another model may take the request: the board goes on although only an operator can mend this one.
    #[serde(rename = "elsewhere", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_served_elsewhere: bool,
    /// For people.
    #[serde(skip_serializing)]
    pub message: String,
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

/// A rule's condition had no truth value, or does not hold any more when its delay is over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// The rule; none for the board's `done` condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleName>,
    /// The invocation that was delayed, and is not wanted any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<InvocationId>,
    /// Why.
    #[serde(skip_serializing)]
    pub message: String,
    /// The worker that it is about; none: any whom the rule would wake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerName>,
    /// Trigger of an undecided rule: an event, or the start (since format 16).
    #[serde(default, skip_serializing)]
    pub trigger: Option<Trigger>,
}
