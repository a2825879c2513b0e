//! Whether a model's server is there, and takes its key: asks for the list of its models, which costs nothing.

use std::time::Duration;

use reqwest::header::AUTHORIZATION;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::transport;
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

/// Asks a server for its models, with the key, if there is one.
pub(crate) async fn probe(model: &Model, key: Option<&SecretString>, patience: Duration) -> Probed {
    let client = match transport::client(&model.url) {
        Ok(client) => client,
        Err(why) => return Probed::NotUsable(why),
    };
    let mut request = client.get(format!("{}/models", model.url)).timeout(patience);
    if let Some(key) = key {
        request = request.header(AUTHORIZATION, format!("Bearer {}", key.expose_secret()));
    }
    for (name, value) in &model.headers {
        request = request.header(name, value);
    }
    let request = match request.build() {
        Ok(request) => request,
        Err(_) => return Probed::NotUsable("its key or a header holds characters that no header may hold".to_owned()),
    };
    let response = match client.execute(request).await {
        Ok(response) => response,
        Err(error) => return Probed::Unreachable(transport::chain(&error.without_url())),
    };
    match response.status().as_u16() {
        status @ (401 | 403) => Probed::Denied(status),
        200..=299 => match transport::read(response, LIST_MAX).await {
            Ok((bytes, true)) => Probed::Answers(listed(&bytes)),
            Ok((_, false)) => Probed::Answers(Listed::Unknown),
            Err(error) => Probed::Unreachable(transport::chain(&error.without_url())),
        },
        status => Probed::Other(status),
    }
}

fn listed(bytes: &[u8]) -> Listed {
    let list: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let Some(models) = list["data"].as_array() else { return Listed::Unknown };
    Listed::All(models.iter().filter_map(|model| model["id"].as_str()).map(str::to_owned).collect())
}
