//! What is kept of a negotiation, round by round (W32).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Check, DeltaSummary, NegotiationCode, Said, StopReason};
use crate::id::Timestamp;

/// A draft that counts: `contract_vN`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Version {
    /// Its number, which is that of its round.
    pub n: usize,
    /// The index of its event, where its bytes are.
    pub event: usize,
    /// Whose it is.
    pub from: String,
    /// Its content type.
    pub ct: String,
    /// When it was judged.
    pub at: Timestamp,
    /// What JSON says, or the text; absent for other bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    /// What was checked.
    pub checks: Vec<Check>,
}

/// An event that does not count, and why.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Refused {
    /// The index of the event.
    pub event: usize,
    /// In which round it came; 0: before the first.
    pub round: usize,
    /// Whose it is; empty where it says nothing of it.
    pub from: String,
    /// Stable.
    pub code: NegotiationCode,
    /// Why, as sentences.
    pub problems: Vec<String>,
    /// Whether it is a draft of the party whose turn it is, who is to make another one.
    pub again: bool,
}

/// What is different between two versions: `diff_v{N-1}_to_vN`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Diff {
    /// From which version.
    pub from: usize,
    /// To which.
    pub to: usize,
    /// How much, and where.
    pub delta: DeltaSummary,
    /// The way from one to the other (RFC 6902), if both are JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Value>,
}

/// What somebody has thought of a version.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Heard {
    /// Who.
    pub from: String,
    /// How good it is, from 0 to 1.
    pub score: f64,
    /// Why.
    pub notes: String,
}

/// A record of a round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Report {
    /// The `EvaluationReport`: what its version is worth.
    Evaluation(Judgement),
    /// What a person said.
    Person(Word),
    /// The `DecisionReport`: what followed from the round. The last one is how it ended.
    Decision(Decision),
}

/// What the version of a round is worth, and what follows of.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Judgement {
    /// Which round.
    pub round: usize,
    /// What was checked.
    pub checks: Vec<Check>,
    /// The share of that which holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deterministic: Option<f64>,
    /// What evaluators think.
    pub evaluations: Vec<Heard>,
    /// The mean of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Both, as the policy weighs them.
    pub score: f64,
    /// How much is different from the version before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub magnitude: Option<f64>,
    /// Tokens that the round took.
    pub tokens: u64,
}

/// What a person said of a round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Word {
    /// Which round.
    pub round: usize,
    /// Who was asked; absent if nobody answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What they said; nobody's answer is `stop`.
    pub said: Said,
}

/// What became of the negotiation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It goes on with another round.
    Continue,
    /// The version of the last round was taken.
    Accepted,
    /// Nothing was.
    Aborted,
}

/// Who decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecidedBy {
    /// Every evaluator on their own thinks that it reaches the threshold.
    Consensus,
    /// A person.
    Hitl,
    /// The policy.
    Policy,
    /// Somebody who takes part, by `abort`.
    Party,
}

/// What followed from a round, and why.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// From which round; 0: it ended before the first.
    pub round: usize,
    /// What became of it.
    pub outcome: Outcome,
    /// Who decided.
    pub decided_by: DecidedBy,
    /// Why it ended; null where it goes on.
    pub stop_reason: Option<StopReason>,
    /// The scores of the rounds so far.
    pub scores: Vec<f64>,
    /// Why, in a sentence.
    pub rationale: String,
}
