//! A negotiation as data: as it stands, who takes part, what has happened, and what is to be added.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Diff, Event, Example, Policy, Preferences, Profile, Refused, Report, Version};
use crate::id::Timestamp;

/// A negotiation as it stands. All of it but `setup` and `policy` only grows.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// What it goes by.
    pub setup: Setup,
    /// What was said, as it came and in the order in which it came (W2, W12).
    pub events: Vec<Value>,
    /// By what it is decided (W16).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Effective>,
    /// The rounds that have begun.
    pub rounds: Vec<Begun>,
    /// The drafts that count, one a round.
    pub versions: Vec<Version>,
    /// The events that do not.
    pub refused: Vec<Refused>,
    /// What is different between versions.
    pub diffs: Vec<Diff>,
    /// What came of the rounds.
    pub reports: Vec<Report>,
}

/// What a negotiation goes by, before anybody has said anything.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Setup {
    /// The policy if no profile is asked for.
    pub policy: Policy,
    /// How far wishes can make that stricter.
    pub strictest: Preferences,
    /// Other policies, by their names (W15).
    pub profiles: BTreeMap<String, Profile>,
    /// What those who take part would like, by their names (W14).
    pub preferences: BTreeMap<String, Preferences>,
    /// The JSON Schema of drafts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// What else has to be so of them.
    pub examples: Vec<Example>,
    /// How many invalid drafts a party may make in one round.
    pub invalid_drafts: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            strictest: Preferences::default(),
            profiles: BTreeMap::new(),
            preferences: BTreeMap::new(),
            schema: None,
            examples: Vec::new(),
            invalid_drafts: 5,
        }
    }
}

/// The policy that holds, as it was made when the negotiation was opened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Effective {
    /// Which negotiation.
    pub negotiation_id: String,
    /// The profile it was made from, if one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// What holds.
    pub policy: Policy,
}

/// A round that has begun.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Begun {
    /// Its number, from 1.
    pub n: usize,
    /// Whose draft it waits for.
    pub turn: String,
    /// How many events there were: those from this index on belong to it.
    pub since: usize,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it may take, in milliseconds.
    pub timeout_ms: u64,
}

/// Who takes part.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Seats {
    /// Who decides, as `by` says.
    pub by: String,
    /// Whose drafts are waited for, in turn.
    pub parties: Vec<String>,
    /// Whose evaluations are, of each draft; of none if they are nobody's.
    pub evaluators: Vec<String>,
}

/// What a negotiation is opened with, if nobody else opens it.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// What about; absent: somebody else says `open`.
    pub topic: Option<String>,
    /// The correlation id.
    pub corr: Option<String>,
    /// The profile.
    pub profile: Option<String>,
    /// What those who take part would like, beside what [`Setup`] has.
    pub preferences: BTreeMap<String, Preferences>,
}

/// What has made it look.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Woken {
    /// When.
    pub now: Timestamp,
    /// The round whose time is over, if that is why, whatever the clock says.
    pub timed_out: Option<usize>,
    /// A rule reports the end of a round's time. The clock is not consulted then, because waits for providers do not count.
    pub has_timer: bool,
    /// What a person has answered.
    pub answers: Vec<Answer>,
    /// A person was asked and does not answer.
    pub is_unanswered: bool,
}

/// What a person has answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// To what.
    pub question: String,
    /// Who.
    pub by: String,
    /// What.
    pub text: String,
}

/// What a person is to be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// It names its round, so no other question of the negotiation has these words.
    pub text: String,
    /// What can be said.
    pub choices: Vec<String>,
}

/// What follows: what is added to the negotiation, or else what is to be asked.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Step {
    /// In this order.
    pub added: Vec<Added>,
    /// Only if nothing is added.
    pub ask: Option<Question>,
}

/// One thing that is added.
#[derive(Clone, PartialEq, Debug)]
pub enum Added {
    /// To the events.
    Event(Box<Event>),
    /// The policy.
    Policy(Box<Effective>),
    /// To the rounds.
    Round(Begun),
    /// To the versions.
    Version(Version),
    /// To the refused events.
    Refused(Refused),
    /// To the differences.
    Diff(Diff),
    /// To the reports.
    Report(Report),
}

impl Added {
    /// The operation that adds it to the negotiation at a place.
    pub fn op(&self, at: &str) -> Value {
        let (place, value) = match self {
            Self::Event(event) => ("events/-", json!(event)),
            Self::Policy(policy) => ("policy", json!(policy)),
            Self::Round(round) => ("rounds/-", json!(round)),
            Self::Version(version) => ("versions/-", json!(version)),
            Self::Refused(refused) => ("refused/-", json!(refused)),
            Self::Diff(diff) => ("diffs/-", json!(diff)),
            Self::Report(report) => ("reports/-", json!(report)),
        };
        json!({"op": "add", "path": format!("{at}/{place}"), "value": value})
    }
}
