//! Data of a negotiation: its session, its participants, its input, and its additions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Diff, Event, Example, Policy, Preferences, Profile, RejectedEvent, Report, Version};
use patchboard_kernel::id::Timestamp;

/// State of a negotiation. All members but `setup` and `policy` are append-only.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// Settings of the negotiation.
    pub setup: Setup,
    /// Events unchanged, in order of arrival (W2, W12).
    pub events: Vec<Value>,
    /// The effective policy (W16).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<EffectivePolicy>,
    /// Rounds begun so far.
    pub rounds: Vec<RoundStart>,
    /// Valid drafts, at most one per round.
    pub versions: Vec<Version>,
    /// Rejected events.
    pub refused: Vec<RejectedEvent>,
    /// Differences between versions.
    pub diffs: Vec<Diff>,
    /// Reports of the rounds.
    pub reports: Vec<Report>,
}

/// Settings of a negotiation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Setup {
    /// Policy if no profile is requested.
    pub policy: Policy,
    /// Bounds of its tightening by preferences.
    pub strictest: Preferences,
    /// Alternative policies, by name (W15).
    pub profiles: BTreeMap<String, Profile>,
    /// Preferences of the participants, by name (W14).
    pub preferences: BTreeMap<String, Preferences>,
    /// The JSON Schema of drafts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Further conditions on drafts.
    pub examples: Vec<Example>,
    /// Maximum number of invalid drafts of a party in one round.
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

/// The effective policy, derived when the negotiation was opened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EffectivePolicy {
    /// Id of the negotiation.
    pub negotiation_id: String,
    /// The profile that it was derived from, if one was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The policy in effect.
    pub policy: Policy,
}

/// A round that has begun.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RoundStart {
    /// Number of the round, from 1.
    pub n: usize,
    /// The party that must send a draft.
    pub turn: String,
    /// Index of its first event.
    pub since: usize,
    /// Start time.
    pub started_at: Timestamp,
    /// Timeout of the round, in milliseconds.
    pub timeout_ms: u64,
}

/// Participants of a negotiation.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Participants {
    /// The deciding agent, written to `by`.
    pub by: String,
    /// Parties in turn order; each proposes drafts.
    pub parties: Vec<String>,
    /// Evaluators of each draft; empty: drafts are scored by the checks alone.
    pub evaluators: Vec<String>,
}

/// Parameters for opening the negotiation.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
pub struct OpenRequest {
    /// Subject; absent: another agent sends `open`.
    pub topic: Option<String>,
    /// The correlation id.
    pub corr: Option<String>,
    /// Requested profile.
    pub profile: Option<String>,
    /// Preferences of the participants, in addition to those of [`Setup`].
    pub preferences: BTreeMap<String, Preferences>,
}

/// Input that triggered the evaluation.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct AdvanceInput {
    /// Current time.
    pub now: Timestamp,
    /// The round that timed out, if that was the trigger; overrides the clock.
    pub timed_out: Option<usize>,
    /// True if a rule reports the end of a round. The clock is then ignored, because waits for providers do not count.
    pub has_timer: bool,
    /// Answers of persons.
    pub answers: Vec<Answer>,
    /// True if a question expired without an answer.
    pub is_unanswered: bool,
}

/// A person's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Text of the question.
    pub question: String,
    /// The person.
    pub by: String,
    /// Text of the answer.
    pub text: String,
}

/// A question for a person.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Text; it names its round, so it is unique within the negotiation.
    pub text: String,
    /// Possible answers.
    pub choices: Vec<String>,
}

/// Result of a step: additions to the negotiation, or else a question.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Advance {
    /// Additions, in this order.
    pub additions: Vec<Addition>,
    /// Question to ask; only if there are no additions.
    pub ask: Option<Question>,
}

/// One addition to the negotiation.
#[derive(Clone, PartialEq, Debug)]
pub enum Addition {
    /// An event.
    Event(Box<Event>),
    /// The policy.
    Policy(Box<EffectivePolicy>),
    /// A round.
    Round(RoundStart),
    /// A version.
    Version(Version),
    /// A rejected event.
    RejectedEvent(RejectedEvent),
    /// A difference.
    Diff(Diff),
    /// A report.
    Report(Report),
}

impl Addition {
    /// Returns the operation that adds it to the negotiation at `at`.
    pub fn op(&self, at: &str) -> Value {
        let (place, value) = match self {
            Self::Event(event) => ("events/-", json!(event)),
            Self::Policy(policy) => ("policy", json!(policy)),
            Self::Round(round) => ("rounds/-", json!(round)),
            Self::Version(version) => ("versions/-", json!(version)),
            Self::RejectedEvent(refused) => ("refused/-", json!(refused)),
            Self::Diff(diff) => ("diffs/-", json!(diff)),
            Self::Report(report) => ("reports/-", json!(report)),
        };
        json!({"op": "add", "path": format!("{at}/{place}"), "value": value})
    }
}
