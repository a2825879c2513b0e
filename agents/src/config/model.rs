//! A model of the operator's: where it is served, and how it is asked.

use std::collections::BTreeMap;
use std::fmt;

use reqwest::Url;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::positive;

/// The most tries one call may be given.
const TRIES_MAX: u32 = 10;

/// A model behind an OpenAI-compatible chat endpoint.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Base of the endpoint, up to and without `/chat/completions`.
    #[serde(deserialize_with = "endpoint")]
    pub url: String,
    /// The provider's name of the model.
    pub model: String,
    /// Name of the environment variable that holds the key; absent: no key is sent.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// Sampling temperature, 0 to 2.
    #[serde(default, deserialize_with = "temperature")]
    pub temperature: f64,
    /// Sampling seed, for providers that know one.
    #[serde(default)]
    pub seed: Option<i64>,
    /// How much of the form of the reply is imposed on the model.
    #[serde(default)]
    pub structured: Structured,
    /// Requests one call may make: the first and its repetitions, 1 to 10.
    #[serde(default = "default_tries", deserialize_with = "tries")]
    pub max_tries: u32,
    /// Tokens of its context: the prompt, what tools gave, and the reply. What tools gave before is shortened to fit.
    #[serde(default = "default_context", deserialize_with = "positive")]
    pub context: u32,
    /// Headers to send along.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// How much of the form of the reply is imposed on the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Structured {
    /// By a JSON Schema of what the seat may write now; by less than that, if the server refuses it.
    #[default]
    #[serde(alias = "json_schema")]
    Derived,
    /// By a JSON Schema of patches with the operations that the seat's grants name.
    Generic,
    /// Not at all: the prompt alone asks for it.
    Off,
}

impl Model {
    /// A model with the defaults of the format.
    pub fn new(url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            model: model.into(),
            api_key_env: None,
            temperature: 0.0,
            seed: None,
            structured: Structured::default(),
            max_tries: default_tries(),
            context: default_context(),
            headers: BTreeMap::new(),
        }
    }
}

// By hand, because the values of headers may be secret.
impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("url", &self.url)
            .field("model", &self.model)
            .field("api_key_env", &self.api_key_env)
            .field("temperature", &self.temperature)
            .field("seed", &self.seed)
            .field("structured", &self.structured)
            .field("max_tries", &self.max_tries)
            .field("context", &self.context)
            .field("headers", &self.headers.keys())
            .finish()
    }
}

const fn default_context() -> u32 {
    32_768
}

pub(super) const fn default_tries() -> u32 {
    3
}

pub(super) fn endpoint<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    check_url(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// The address without a trailing slash, if it is one that a path can be appended to.
pub(super) fn check_url(text: &str) -> Result<String, String> {
    // The text itself is not repeated: it may be a key in the wrong place.
    let url = Url::parse(text).map_err(|error| format!("not an address: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("the address must begin with http:// or https://".into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("credentials do not belong into the address; name a variable with api_key_env".into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("the address must end with its path, like http://127.0.0.1:18080/v1".into());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn temperature<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    check_temperature(f64::deserialize(deserializer)?).map_err(D::Error::custom)
}

pub(super) fn check_temperature(value: f64) -> Result<f64, &'static str> {
    if (0.0..=2.0).contains(&value) { Ok(value) } else { Err("a temperature lies between 0 and 2") }
}

pub(super) fn tries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let value = u32::deserialize(deserializer)?;
    if (1..=TRIES_MAX).contains(&value) {
        Ok(value)
    } else {
        Err(D::Error::custom(format!("max_tries lies between 1 and {TRIES_MAX}")))
    }
}
