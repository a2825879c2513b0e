//! Checks that a model's server is reachable and accepts its key. Requests the list of its models, which costs
//! nothing.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::credentials::Variables;
use super::transport::{self, Endpoint, HttpFailure, Received};
use crate::config::Model;

/// Size limit of a list in bytes.
const LIST_MAX: usize = 1024 * 1024;

/// Result of a probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbeResult {
    /// No request was possible: the key is missing, or the configuration is invalid.
    NotUsable(String),
    /// No answer.
    Unreachable(String),
    /// Denied with this status: 401 or 403.
    Denied(u16),
    /// Answered with this status, without a list of models.
    Other(u16),
    /// Reachable.
    Answers(ModelList),
}

/// Models that a server lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ModelList {
    /// All models.
    All(Vec<String>),
    /// The answer could not be parsed.
    Unknown,
}

/// Requests a server's list of models.
pub async fn probe(model: &Model, variables: &Variables, patience: Duration) -> ProbeResult {
    let deadline = Instant::now() + patience;
    let endpoint = match Endpoint::new(model, variables) {
        Ok(endpoint) => endpoint,
        Err(why) => return ProbeResult::NotUsable(why),
    };
    let response = match endpoint.get("/models", deadline).await {
        Ok(response) => response,
        Err(HttpFailure::Key(why)) => return ProbeResult::NotUsable(why.to_string()),
        Err(failure) => return ProbeResult::Unreachable(failure.to_string()),
    };
    match response.status().as_u16() {
        status @ (401 | 403) => ProbeResult::Denied(status),
        200..=299 => match tokio::time::timeout_at(deadline, transport::read(response, LIST_MAX)).await {
            Ok(Ok((bytes, true))) => ProbeResult::Answers(listed(&bytes)),
            Ok(Ok((_, false))) => ProbeResult::Answers(ModelList::Unknown),
            Ok(Err(error)) => ProbeResult::Unreachable(transport::error_chain(&error.without_url())),
            Err(_) => ProbeResult::Unreachable(HttpFailure::NoAnswer { received: Received::Nothing }.to_string()),
        },
        status => ProbeResult::Other(status),
    }
}

fn listed(bytes: &[u8]) -> ModelList {
    let list: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let Some(models) = list["data"].as_array() else { return ModelList::Unknown };
    ModelList::All(models.iter().filter_map(|model| model["id"].as_str()).map(str::to_owned).collect())
}
