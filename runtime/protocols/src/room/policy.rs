//! Decision policy for an artefact: thresholds, quorum and voting window.

use serde::de::{DeserializeOwned, Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::quorum::Quorum;
use patchboard_kernel::digest::sha256;

/// Maximum score.
pub(super) const SCORE_MAX: f64 = 10.0;

/// Method of aggregating the scores for comparison with the threshold.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Equal weights.
    Mean,
    /// Weights by confidence; equal weights if all confidences are zero.
    #[default]
    ConfidenceWeighted,
    /// Pass or fail of the votes only.
    Majority,
    /// Weights by rank.
    Borda,
}

/// Type of an artefact (W35).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ArtifactType {
    /// Requirements of the work.
    Requirements,
    /// Plan of the work.
    Plan,
    /// Implementation.
    Code,
    /// Delivery to its users.
    Deployment,
}

/// Voting windows in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "SCREAMING_SNAKE_CASE")]
pub struct Windows {
    /// For unknown types.
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
    /// Returns the voting window for an artefact, in seconds.
    pub fn for_artifact(&self, artifact: Option<ArtifactType>) -> u32 {
        match artifact {
            Some(ArtifactType::Requirements) => self.requirements,
            Some(ArtifactType::Plan) => self.plan,
            Some(ArtifactType::Code) => self.code,
            Some(ArtifactType::Deployment) => self.deployment,
            None => self.other,
        }
    }
}

/// Policy for approval and escalation (W42 to W47). The defaults are the numbers given there.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Version recorded with decisions; if empty, the beginning of the policy's digest.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Method of aggregating the scores.
    pub aggregation: Aggregation,
    /// Minimum aggregated score.
    pub min_score_threshold: f64,
    /// Minimum mean confidence.
    pub min_confidence_threshold: f64,
    /// Minimum share of critics that passed it.
    pub min_pass_ratio: f64,
    /// Maximum standard deviation of the scores.
    pub max_std_dev: f64,
    /// Confidence of a single vote below which a person is asked.
    pub escalate_confidence_below: f64,
    /// Standard deviation above which a person is asked.
    pub escalate_std_dev_above: f64,
    /// Number of requested critics that must vote.
    #[serde(deserialize_with = "object")]
    pub quorum: Quorum,
    /// Voting windows.
    #[serde(deserialize_with = "object")]
    pub window_s: Windows,
}

/// Deserialises an object only. By default, serde also accepts a list of the members.
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
    /// Returns the version recorded with decisions (W48): its name, or 16 hex digits of the policy's digest.
    pub fn version(&self) -> String {
        if !self.version.is_empty() {
            return self.version.clone();
        }
        let said = serde_json::to_value(self).expect("a policy is JSON");
        sha256(patchboard_kernel::canonical::to_string(&said).as_bytes()).to_string()[..16].to_owned()
    }

    /// Returns invalid settings, as sentences.
    pub fn validation_errors(&self) -> Vec<String> {
        let within = |name: &str, value: f64, max: f64| {
            (!(0.0..=max).contains(&value)).then(|| format!("`{name}` is {value}; it goes from 0 to {max}"))
        };
        let score = SCORE_MAX;
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
        problems.extend(self.quorum.validation_error());
        problems
    }
}
