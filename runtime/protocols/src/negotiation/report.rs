//! Records of a negotiation, round by round (W32).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Check, DeltaSummary, HumanChoice, NegotiationCode, StopReason};
use patchboard_kernel::id::Timestamp;

/// A valid draft: `contract_vN`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Version {
    /// Number of the version, equal to that of its round.
    pub n: usize,
    /// Index of its event, which holds its bytes.
    pub event: usize,
    /// Author.
    pub from: String,
    /// Content type.
    pub ct: String,
    /// Time at which the draft was judged.
    pub at: Timestamp,
    /// The JSON value or the text; absent for other bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    /// Results of the checks.
    pub checks: Vec<Check>,
}

/// A rejected event.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RejectedEvent {
    /// Index of the event.
    pub event: usize,
    /// Round in which it was sent; 0: before the first.
    pub round: usize,
    /// Author; empty if the event names none.
    pub from: String,
    /// Stable code of the rejection.
    pub code: NegotiationCode,
    /// Reasons, as sentences.
    pub problems: Vec<String>,
    /// True for a draft of the current party, which must send another one.
    pub again: bool,
}

/// Difference between two versions: `diff_v{N-1}_to_vN`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Diff {
    /// Number of the old version.
    pub from: usize,
    /// Number of the new version.
    pub to: usize,
    /// Magnitude and changed places.
    pub delta: DeltaSummary,
    /// Patch (RFC 6902) from the old to the new version, if both are JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Value>,
}

/// Recorded evaluation of a version.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecordedEvaluation {
    /// Evaluator.
    pub from: String,
    /// Score, from 0 to 1.
    pub score: f64,
    /// Reasons for the score.
    pub notes: String,
}

/// A record of a round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Report {
    /// The `EvaluationReport`: scores of the round's version.
    Evaluation(EvaluationReport),
    /// A person's answer.
    Person(HumanAnswer),
    /// The `DecisionReport`: the outcome of the round. The last one is the outcome of the negotiation.
    Decision(DecisionReport),
}

/// Scores of a round's version.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EvaluationReport {
    /// Number of the round.
    pub round: usize,
    /// Results of the checks.
    pub checks: Vec<Check>,
    /// Weighted share of passed checks; absent if their weights sum to zero.
    pub deterministic: Option<f64>,
    /// Evaluations of the version.
    pub evaluations: Vec<RecordedEvaluation>,
    /// Mean score of the evaluations; absent without evaluations.
    pub confidence: Option<f64>,
    /// Combined score, weighted by the policy.
    pub score: f64,
    /// Difference from the previous version, from 0 to 1; absent for the first.
    pub magnitude: Option<f64>,
    /// Tokens used in the round.
    pub tokens: u64,
}

/// A person's answer about a round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HumanAnswer {
    /// Number of the round.
    pub round: usize,
    /// The person; absent if the question was not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The answer; `stop` if the question was not answered.
    pub said: HumanChoice,
}

/// Outcome of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Another round follows.
    Continue,
    /// The version of the last round was accepted.
    Accepted,
    /// No draft was accepted.
    Aborted,
}

/// Decider of an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecidedBy {
    /// Every evaluator's score reaches the threshold.
    Consensus,
    /// A person.
    Hitl,
    /// The policy.
    Policy,
    /// A participant, by `abort`.
    Party,
}

/// Outcome of a round, with the reason.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DecisionReport {
    /// Number of the round; 0: the negotiation ended before the first.
    pub round: usize,
    /// Outcome of the round.
    pub outcome: Outcome,
    /// Decider of the outcome.
    pub decided_by: DecidedBy,
    /// Reason for the end; null if another round follows.
    pub stop_reason: Option<StopReason>,
    /// Scores of all rounds so far.
    pub scores: Vec<f64>,
    /// One-sentence rationale.
    pub rationale: String,
}
