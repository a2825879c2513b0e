//! Whether a model's server is there, and takes its key: asks for the list of its models, which costs nothing.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::access::Variables;
use super::transport::{self, Came, Endpoint, HttpFailure};
use crate::config::Model;

/// The most bytes of a list that are read.
const LIST_MAX: usize = 1024 * 1024;

/// What a server was found to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probed {
    /// Nobody could be asked: the key is missing, or the configuration makes no request.
    NotUsable(String),
    /// There was no answer.
    Unreachable(String),
    /// It refused with this status: 401 or 403.
    Denied(u16),
    /// It answered with this status, which says nothing of its models.
    Other(u16),
    /// It is there.
    Answers(Listed),
}

/// What a server says of its models.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listed {
    /// These are all.
    All(Vec<String>),
    /// Its answer could not be read.
    Unknown,
}

/// Asks a server for its models.
pub(crate) async fn probe(model: &Model, variables: &Variables, patience: Duration) -> Probed {
    let deadline = Instant::now() + patience;
    let made = transport::client(&model.url).and_then(|http| Ok((http, Endpoint::new(model, variables)?)));
    let (http, endpoint) = match made {
        Ok(made) => made,
        Err(why) => return Probed::NotUsable(why),
    };
    let response = match endpoint.get(&http, "/models", deadline).await {
        Ok(response) => response,
        Err(HttpFailure::Key(why)) => return Probed::NotUsable(why.to_string()),
        Err(failure) => return Probed::Unreachable(failure.to_string()),
    };
    match response.status().as_u16() {
        status @ (401 | 403) => Probed::Denied(status),
        200..=299 => match tokio::time::timeout_at(deadline, transport::read(response, LIST_MAX)).await {
            Ok(Ok((bytes, true))) => Probed::Answers(listed(&bytes)),
            Ok(Ok((_, false))) => Probed::Answers(Listed::Unknown),
            Ok(Err(error)) => Probed::Unreachable(transport::chain(&error.without_url())),
            Err(_) => Probed::Unreachable(HttpFailure::NoAnswer { came: Came::Nothing }.to_string()),
        },
        status => Probed::Other(status),
    }
}

fn listed(bytes: &[u8]) -> Listed {
    let list: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let Some(models) = list["data"].as_array() else { return Listed::Unknown };
    Listed::All(models.iter().filter_map(|model| model["id"].as_str()).map(str::to_owned).collect())
}
