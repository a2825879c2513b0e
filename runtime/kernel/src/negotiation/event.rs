//! The events of a negotiation, and in what order they may come.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{NegotiationCode, Policy, Refusal};
use crate::rejection::coded;

/// How many events a negotiation may have. The last two places are kept for its end.
pub const EVENTS_MAX: usize = 128;

/// What is said in a negotiation (W4 to W10). Members that are not known are left out of account (W3); where the event is
/// kept, it is kept as it came.
///
/// `ts` is the sender's time in whatever form it has; nothing follows from it. `corr` is copied from `open` to whatever
/// answers it (W2); a draft or an evaluation with another one does not count, one without is of this negotiation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Event {
    /// The negotiation begins.
    Open {
        /// When.
        ts: Value,
        /// What about.
        topic: String,
        /// Under what its messages are known to belong together.
        corr: String,
        /// The policy that whoever opens it would like ([`Profile`](super::Profile)).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        profile: Option<String>,
    },
    /// By what it is decided, for all to see.
    Policy {
        /// When.
        ts: Value,
        /// Which negotiation.
        negotiation_id: String,
        /// The profile it was made from, if one was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        profile: Option<String>,
        /// The effective policy.
        policy: Policy,
        /// As in `open`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        corr: Option<String>,
    },
    /// A draft.
    Propose(Draft),
    /// Another draft instead of the one that lies there.
    Counter(Draft),
    /// What somebody thinks of the draft that lies there.
    Evaluate(Evaluation),
    /// A draft is taken.
    Decide {
        /// When.
        ts: Value,
        /// By whom.
        by: String,
        /// The content type of the result.
        ct: String,
        /// The result: the bytes of the draft, in base64.
        result_b64: String,
        /// As in `open`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        corr: Option<String>,
    },
    /// It is over without a result.
    Abort {
        /// When.
        ts: Value,
        /// Why: the code of a [`StopReason`](super::StopReason) where the policy ended it.
        reason: String,
        /// Who says so; absent: who decides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// As in `open`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        corr: Option<String>,
    },
}

/// A draft, as it came.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Draft {
    /// When.
    pub ts: Value,
    /// Whose.
    pub from: String,
    /// Its content type.
    pub ct: String,
    /// Its bytes in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_b64: Option<String>,
    /// Instead of them a value, for those who cannot write base64: a text stands for its own bytes unless `ct` is JSON,
    /// anything else for its canonical JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Tokens that its author says it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// As in `open`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corr: Option<String>,
}

/// What somebody thinks of the draft that lies there.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Evaluation {
    /// When.
    pub ts: Value,
    /// Who.
    pub from: String,
    /// How good it is, from 0 to 1.
    pub score: f64,
    /// Why.
    #[serde(default)]
    pub notes: String,
    /// Tokens that its author says it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// As in `open`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corr: Option<String>,
}

coded! {
    /// The kinds of events.
    Kind {
        /// The negotiation begins.
        Open = "open",
        /// By what it is decided.
        Policy = "policy",
        /// A draft.
        Propose = "propose",
        /// Another draft instead of the one that lies there.
        Counter = "counter",
        /// What somebody thinks of a draft.
        Evaluate = "evaluate",
        /// A draft is taken.
        Decide = "decide",
        /// It is over without a result.
        Abort = "abort",
    }
}

impl Event {
    /// Reads an event.
    ///
    /// # Errors
    /// [`NegotiationCode::BadEvent`].
    pub fn read(value: &Value) -> Result<Self, Refusal> {
        serde_json::from_value(value.clone())
            .map_err(|why| Refusal::new(NegotiationCode::BadEvent, format!("this is no event: {why}")))
    }

    /// Its kind.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Open { .. } => Kind::Open,
            Self::Policy { .. } => Kind::Policy,
            Self::Propose(_) => Kind::Propose,
            Self::Counter(_) => Kind::Counter,
            Self::Evaluate(_) => Kind::Evaluate,
            Self::Decide { .. } => Kind::Decide,
            Self::Abort { .. } => Kind::Abort,
        }
    }
}

/// How far a negotiation is, as far as the order of events goes.
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
    /// Nothing was said.
    New,
    /// It was opened.
    Opened,
    /// There is a policy.
    Agreed,
    /// A draft was made.
    Drafted,
    /// It was decided or aborted.
    Ended,
}

impl Phase {
    /// How far it is after an event of this kind.
    ///
    /// # Errors
    /// Why that may not come now.
    pub const fn after(self, kind: Kind) -> Result<Self, NegotiationCode> {
        match (self, kind) {
            (Self::Ended, _) => Err(NegotiationCode::Ended),
            (Self::New, Kind::Open) => Ok(Self::Opened),
            (Self::New, _) => Err(NegotiationCode::NotOpen),
            (Self::Opened | Self::Agreed | Self::Drafted, Kind::Open) => Err(NegotiationCode::OpenAlready),
            (Self::Opened | Self::Agreed | Self::Drafted, Kind::Abort) => Ok(Self::Ended),
            (Self::Opened, Kind::Policy) => Ok(Self::Agreed),
            (Self::Opened, _) => Err(NegotiationCode::NoPolicy),
            (Self::Agreed | Self::Drafted, Kind::Policy) => Err(NegotiationCode::PolicyAlready),
            (Self::Agreed | Self::Drafted, Kind::Propose) => Ok(Self::Drafted),
            (Self::Agreed, Kind::Counter | Kind::Evaluate | Kind::Decide) => Err(NegotiationCode::NoDraft),
            (Self::Drafted, Kind::Counter | Kind::Evaluate) => Ok(Self::Drafted),
            (Self::Drafted, Kind::Decide) => Ok(Self::Ended),
        }
    }
}
