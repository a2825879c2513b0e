//! Configuration of an optional embeddings endpoint.

use std::collections::BTreeMap;
use std::fmt;

use patchboard_kernel::blueprint::Duration;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::model::{Model, default_tries, endpoint, program, tries};
use super::setting::Setting;
use super::span;

/// OpenAI-compatible embeddings endpoint: the table `[embeddings]`.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embeddings {
    /// Base URL of the endpoint, without `/embeddings`.
    #[serde(deserialize_with = "endpoint")]
    pub url: String,
    /// Provider's name of the model.
    pub model: String,
    /// Environment variable that holds the API key; if absent, no key is sent.
    pub api_key_env: Option<String>,
    /// Program and arguments that print the API key, as for a model.
    #[serde(default, deserialize_with = "program")]
    pub api_key_command: Vec<String>,
    /// Least similarity in meaning that is worth a question, 0 to 1. The value for unrelated texts depends on the
    /// model.
    #[serde(default = "default_likeness", deserialize_with = "likeness")]
    pub likeness: f64,
    /// Time limit for all requests of one search; never more than half of a worker's own timeout.
    #[serde(default = "default_timeout", deserialize_with = "span")]
    pub timeout: Duration,
    /// Attempts of one request, including the first, 1 to 10.
    #[serde(default = "default_tries", deserialize_with = "tries")]
    pub max_tries: u32,
    /// Additional request headers.
    #[serde(default)]
    pub headers: BTreeMap<String, Setting>,
    /// Query parameters of each request, like Azure's `api-version`.
    #[serde(default)]
    pub query: BTreeMap<String, Setting>,
}

impl Embeddings {
    /// Builds an endpoint with the defaults of the format.
    pub fn new(url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            model: model.into(),
            api_key_env: None,
            api_key_command: Vec::new(),
            likeness: default_likeness(),
            timeout: default_timeout(),
            max_tries: default_tries(),
            headers: BTreeMap::new(),
            query: BTreeMap::new(),
        }
    }

    /// Returns the endpoint as a model, since connection settings do not depend on the kind of request.
    pub fn server(&self) -> Model {
        Model {
            api_key_env: self.api_key_env.clone(),
            api_key_command: self.api_key_command.clone(),
            max_tries: self.max_tries,
            headers: self.headers.clone(),
            query: self.query.clone(),
            ..Model::new(&self.url, &self.model)
        }
    }
}

// Written by hand, because arguments and the values of headers and the query may be secret.
impl fmt::Debug for Embeddings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embeddings")
            .field("url", &self.url)
            .field("model", &self.model)
            .field("api_key_env", &self.api_key_env)
            .field("likeness", &self.likeness)
            .field("timeout", &self.timeout)
            .field("max_tries", &self.max_tries)
            .field("headers", &self.headers.keys())
            .field("query", &self.query.keys())
            .finish()
    }
}

const fn default_likeness() -> f64 {
    0.6
}

const fn default_timeout() -> Duration {
    Duration::from_secs(5)
}

fn likeness<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(deserializer)?;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(D::Error::custom("a likeness lies between 0 and 1")) }
}
