//! What decides over an artefact, as data: thresholds, quorum, how long votes are waited for.

use serde::de::{DeserializeOwned, Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::quorum::Quorum;
use crate::digest::sha256;

/// How the number is made that the threshold is held against.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Each vote counts alike.
    Mean,
    /// Each counts as much as its critic is sure; all alike if nobody is.
    #[default]
    ConfidenceWeighted,
    /// Only whether critics passed it counts.
    Majority,
    /// Each counts by its rank.
    Borda,
}

/// What an artefact is (W35).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ArtifactType {
    /// What is wanted.
    Requirements,
    /// How it is to be done.
    Plan,
    /// What does it.
    Code,
    /// How it gets where it is used.
    Deployment,
}

/// For how many seconds votes are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "SCREAMING_SNAKE_CASE")]
pub struct Windows {
    /// Where the type is not known.
    #[serde(rename = "default")]
    pub other: u32,
    /// For requirements.
    pub requirements: u32,
    /// For plans.
    pub plan: u32,
    /// For code.
    pub code: u32,
    /// For deployments.
    pub deployment: u32,
}

impl Default for Windows {
    fn default() -> Self {
        Self { other: 300, requirements: 600, plan: 600, code: 300, deployment: 180 }
    }
}

impl Windows {
    /// The seconds for an artefact.
    pub fn of(&self, artifact: Option<ArtifactType>) -> u32 {
        match artifact {
            Some(ArtifactType::Requirements) => self.requirements,
            Some(ArtifactType::Plan) => self.plan,
            Some(ArtifactType::Code) => self.code,
            Some(ArtifactType::Deployment) => self.deployment,
            None => self.other,
        }
    }
}

/// When an artefact is approved, and when a person is asked (W42 to W47). The defaults are the numbers there.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// What decisions call it; where it is empty, the beginning of its digest.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// How votes are made one number.
    pub aggregation: Aggregation,
    /// That number, at least.
    pub min_score_threshold: f64,
    /// The mean of the confidences, at least.
    pub min_confidence_threshold: f64,
    /// The share of critics who passed it, at least.
    pub min_pass_ratio: f64,
    /// The standard deviation of the scores, at most.
    pub max_std_dev: f64,
    /// A single vote less sure than this takes it to a person.
    pub escalate_confidence_below: f64,
    /// Scores that deviate by more than this take it to a person.
    pub escalate_std_dev_above: f64,
    /// How many of the critics who were asked have to vote.
    #[serde(deserialize_with = "object")]
    pub quorum: Quorum,
    /// For how long they may take.
    #[serde(deserialize_with = "object")]
    pub window_s: Windows,
}

/// What an object says. By itself, serde takes a list of its members for it as well.
fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(given: D) -> Result<T, D::Error> {
    let members = Map::<String, Value>::deserialize(given)?;
    serde_json::from_value(Value::Object(members)).map_err(D::Error::custom)
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            version: String::new(),
            aggregation: Aggregation::default(),
            min_score_threshold: 7.0,
            min_confidence_threshold: 0.7,
            min_pass_ratio: 0.8,
            max_std_dev: 2.0,
            escalate_confidence_below: 0.3,
            escalate_std_dev_above: 3.0,
            quorum: Quorum::default(),
            window_s: Windows::default(),
        }
    }
}

impl Policy {
    /// What decisions that follow it carry (W48): its name, or 16 hex digits of the digest of what it says.
    pub fn version(&self) -> String {
        if !self.version.is_empty() {
            return self.version.clone();
        }
        let said = serde_json::to_value(self).expect("a policy is JSON");
        sha256(crate::canonical::to_string(&said).as_bytes()).to_string()[..16].to_owned()
    }

    /// What of it cannot be meant, as sentences.
    pub fn problems(&self) -> Vec<String> {
        let within = |name: &str, value: f64, max: f64| {
            (!(0.0..=max).contains(&value)).then(|| format!("`{name}` is {value}; it goes from 0 to {max}"))
        };
        let score = super::votes::SCORE_MAX;
        let mut problems: Vec<String> = [
            within("min_score_threshold", self.min_score_threshold, score),
            within("min_confidence_threshold", self.min_confidence_threshold, 1.0),
            within("min_pass_ratio", self.min_pass_ratio, 1.0),
            within("max_std_dev", self.max_std_dev, score),
            within("escalate_confidence_below", self.escalate_confidence_below, 1.0),
            within("escalate_std_dev_above", self.escalate_std_dev_above, score),
        ]
        .into_iter()
        .flatten()
        .collect();
        problems.extend(self.quorum.problem());
        problems
    }
}
