//! The events of a negotiation, and their permitted order.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Content, NegotiationCode, NegotiationError, Policy};
use patchboard_kernel::rejection::code_enum;

/// Maximum number of events of a negotiation. The last two are reserved for its end.
pub const EVENTS_MAX: usize = 128;

/// An event of a negotiation (W4 to W10). Unknown members are ignored (W3); stored events are kept unchanged.
///
/// `ts` is the sender's time in any format, and has no effect. `corr` is copied from `open` to the replies (W2). A
/// draft or an evaluation with another `corr` is rejected; one without is accepted.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Event {
    /// Opens the negotiation.
    Open {
        /// Sender's time.
        ts: Value,
        /// Subject of the negotiation.
        topic: String,
        /// Correlation id of its messages.
        corr: String,
        /// The policy profile requested by the opener ([`Profile`](super::Profile)).
        profile: Option<String>,
    },
    /// Announces the effective policy.
    Policy {
        /// Sender's time.
        ts: Value,
        /// Id of the negotiation.
        negotiation_id: String,
        /// The profile that it was derived from, if one was requested.
        profile: Option<String>,
        /// The effective policy.
        policy: Policy,
        /// As in `open`.
        corr: Option<String>,
    },
    /// Proposes a draft.
    Propose(Draft),
    /// Proposes a draft in place of the current one.
    Counter(Draft),
    /// Evaluates the current draft.
    Evaluate(Evaluation),
    /// Accepts a draft.
    Decide {
        /// Sender's time.
        ts: Value,
        /// The deciding agent.
        by: String,
        /// The content type of the result.
        ct: String,
        /// The result: the bytes of the draft, in base64.
        result_b64: String,
        /// As in `open`.
        corr: Option<String>,
    },
    /// Ends the negotiation without a result.
    Abort {
        /// Sender's time.
        ts: Value,
        /// Reason: the code of a [`StopReason`](super::StopReason) if the policy ended it.
        reason: String,
        /// The aborting party; absent: the deciding agent.
        from: Option<String>,
        /// As in `open`.
        corr: Option<String>,
    },
}

/// A draft, as sent.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Draft {
    /// Sender's time.
    pub ts: Value,
    /// Author.
    pub from: String,
    /// Content type.
    pub ct: String,
    /// Content in base64.
    pub payload_b64: Option<String>,
    /// The content as a value instead of base64. A text means its own bytes unless `ct` is JSON; any other value means
    /// its canonical JSON.
    pub payload: Option<Value>,
    /// Tokens used for it, as reported by its author.
    pub tokens: Option<u64>,
    /// As in `open`.
    pub corr: Option<String>,
}

/// An evaluation of the current draft.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Evaluation {
    /// Sender's time.
    pub ts: Value,
    /// Evaluator.
    pub from: String,
    /// Score, from 0 to 1.
    pub score: f64,
    /// Reasons for the score.
    #[serde(default)]
    pub notes: String,
    /// Tokens used for it, as reported by its author.
    pub tokens: Option<u64>,
    /// As in `open`.
    pub corr: Option<String>,
}

code_enum! {
    /// Kinds of events of a negotiation.
    EventKind {
        /// Opens the negotiation.
        Open = "open",
        /// Announces the effective policy.
        Policy = "policy",
        /// Proposes a draft.
        Propose = "propose",
        /// Proposes a draft in place of the current one.
        Counter = "counter",
        /// Evaluates the current draft.
        Evaluate = "evaluate",
        /// Accepts a draft.
        Decide = "decide",
        /// Ends the negotiation without a result.
        Abort = "abort",
    }
}

impl Event {
    /// Parses an event. Fails with [`NegotiationCode::BadEvent`].
    pub fn parse(value: &Value) -> Result<Self, NegotiationError> {
        serde_json::from_value(value.clone())
            .map_err(|why| NegotiationError::new(NegotiationCode::BadEvent, format!("this is no event: {why}")))
    }

    /// Returns the event's kind.
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::Open { .. } => EventKind::Open,
            Self::Policy { .. } => EventKind::Policy,
            Self::Propose(_) => EventKind::Propose,
            Self::Counter(_) => EventKind::Counter,
            Self::Evaluate(_) => EventKind::Evaluate,
            Self::Decide { .. } => EventKind::Decide,
            Self::Abort { .. } => EventKind::Abort,
        }
    }
}

/// State of a negotiation with respect to the order of events.
///
/// | | open | policy | propose | counter | evaluate | decide | abort |
/// |---|---|---|---|---|---|---|---|
/// | new | opened | | | | | | |
/// | opened | | agreed | | | | | ended |
/// | agreed | | | drafted | | | | ended |
/// | drafted | | | drafted | drafted | drafted | ended | ended |
/// | ended | | | | | | | |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// No event yet.
    New,
    /// Opened, without a policy.
    Opened,
    /// A policy is in effect.
    Agreed,
    /// A draft was proposed.
    Drafted,
    /// Decided or aborted.
    Ended,
}

impl Phase {
    /// Returns the phase after an event of this kind. Fails with the code of the rejection if the event is not allowed
    /// in this phase.
    pub const fn after(self, kind: EventKind) -> Result<Self, NegotiationCode> {
        match (self, kind) {
            (Self::Ended, _) => Err(NegotiationCode::Ended),
            (Self::New, EventKind::Open) => Ok(Self::Opened),
            (Self::New, _) => Err(NegotiationCode::NotOpen),
            (Self::Opened | Self::Agreed | Self::Drafted, EventKind::Open) => Err(NegotiationCode::AlreadyOpen),
            (Self::Opened | Self::Agreed | Self::Drafted, EventKind::Abort) => Ok(Self::Ended),
            (Self::Opened, EventKind::Policy) => Ok(Self::Agreed),
            (Self::Opened, _) => Err(NegotiationCode::NoPolicy),
            (Self::Agreed | Self::Drafted, EventKind::Policy) => Err(NegotiationCode::PolicyAlreadySet),
            (Self::Agreed | Self::Drafted, EventKind::Propose) => Ok(Self::Drafted),
            (Self::Agreed, EventKind::Counter | EventKind::Evaluate | EventKind::Decide) => {
                Err(NegotiationCode::NoDraft)
            }
            (Self::Drafted, EventKind::Counter | EventKind::Evaluate) => Ok(Self::Drafted),
            (Self::Drafted, EventKind::Decide) => Ok(Self::Ended),
        }
    }
}

/// Returns the content of a draft.
pub(super) fn content_of(event: &Value) -> Option<Content> {
    match Event::parse(event).ok()? {
        Event::Propose(draft) | Event::Counter(draft) => draft.content().ok(),
        _ => None,
    }
}

/// Returns the tokens of an event: the reported number, but at least one per four bytes of its content.
pub(super) fn tokens_of(event: &Value) -> u64 {
    let said = event.get("tokens").and_then(Value::as_u64).unwrap_or(0);
    let text = |name: &str| event.get(name).and_then(Value::as_str).map_or(0, |text| text.len() as u64);
    let payload = event.get("payload").map_or(0, patchboard_kernel::json::size);
    // Base64 encodes three bytes in four characters.
    let bytes = text("payload_b64") / 4 * 3 + payload + text("notes");
    said.max(bytes.div_ceil(4))
}
