//! Model configured by the operator: its endpoint and request parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU32;

use patchboard_kernel::blueprint::Duration;
use patchboard_kernel::deferral::PATIENCE_MS;
use patchboard_kernel::money::{Money, Price};
use patchboard_workspace::directory::checked;
use reqwest::Url;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::setting::{Setting, variable};
use super::span;

const TRIES_MAX: u32 = 10;

const STOPS_MAX: usize = 16;

/// Paths of requests, which a base URL does not include.
const PATHS: [&str; 4] = ["/chat/completions", "/responses", "/messages", "/embeddings"];

/// Least context size in tokens; enough for a prompt and a reply.
const CONTEXT_MIN: u32 = 512;

/// Least value of tokens per minute: with fewer, a single call would wait for minutes.
const TOKENS_PER_MINUTE_MIN: u32 = 1000;

/// Members of a request that `extra_body` may not hold, and the settings that decide about them.
const OWN_MEMBERS: [(&str, &str); 8] = [
    ("model", "model"),
    ("messages", "the blueprint's prompts"),
    ("stream", "stream"),
    ("tools", "what the blueprint grants"),
    // Budgets reserve by these limits.
    ("max_tokens", "limits.reply_tokens of the worker and max_reply_tokens of the model"),
    ("max_completion_tokens", "limits.reply_tokens of the worker and max_reply_tokens of the model"),
    ("max_output_tokens", "limits.reply_tokens of the worker and max_reply_tokens of the model"),
    ("n", "PatchBoard, which takes one choice"),
];

/// Model behind a chat endpoint; see [`Api`] for the protocols.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Base URL of the endpoint, without `/chat/completions`, `/responses` or `/messages`.
    #[serde(deserialize_with = "endpoint")]
    pub url: String,
    /// Provider's name of the model.
    pub model: String,
    /// Protocol of the endpoint.
    #[serde(default)]
    pub api: Api,
    /// Environment variable that holds the API key; if absent, the key of `api_key_command` is sent, or none.
    #[serde(default, deserialize_with = "variable")]
    pub api_key_env: Option<String>,
    /// Program and arguments that print the API key. Runs at first use, and once more when the key is rejected with
    /// 401.
    #[serde(default, deserialize_with = "program")]
    pub api_key_command: Vec<String>,
    /// Sampling temperature, 0 to 2.
    #[serde(default, deserialize_with = "temperature")]
    pub temperature: f64,
    /// Nucleus sampling: probability mass that tokens are sampled from, above 0 and up to 1.
    #[serde(default, deserialize_with = "top_p")]
    pub top_p: Option<f64>,
    /// Texts that end a reply, at most 16.
    #[serde(default, deserialize_with = "stop")]
    pub stop: Vec<String>,
    /// Reasoning effort, in the provider's terms.
    #[serde(default, deserialize_with = "effort")]
    pub reasoning_effort: Option<String>,
    /// Sampling seed, for providers that support one.
    pub seed: Option<i64>,
    /// Members added to the body of a request. They replace optional members that PatchBoard writes.
    #[serde(default, deserialize_with = "extra_body")]
    pub extra_body: Map<String, Value>,
    /// Structured output: how strictly the form of replies is enforced.
    #[serde(default)]
    pub structured: Structured,
    /// Streaming of replies.
    #[serde(default)]
    pub stream: Streaming,
    /// Attempts of one call without a board, including the first, 1 to 10. Boards retry their own calls.
    #[serde(default = "default_tries", deserialize_with = "tries")]
    pub max_tries: u32,
    /// Context size in tokens, at least 512, for the prompt, tool results and the reply. Earlier tool results are
    /// shortened to fit.
    #[serde(default = "default_context", deserialize_with = "context")]
    pub context: u32,
    /// Greatest number of tokens of a reply; if absent, the worker's limit is not capped.
    #[serde(default, deserialize_with = "limit")]
    pub max_reply_tokens: Option<NonZeroU32>,
    /// Additional request headers.
    #[serde(default)]
    pub headers: BTreeMap<String, Setting>,
    /// Query parameters of every request.
    #[serde(default)]
    pub query: BTreeMap<String, Setting>,
    /// Greatest number of calls in flight, over all boards of the process.
    #[serde(default, deserialize_with = "limit")]
    pub concurrency: Option<NonZeroU32>,
    /// Requests per minute, over all boards of the process.
    #[serde(default, deserialize_with = "limit")]
    pub requests_per_minute: Option<NonZeroU32>,
    /// Price of its tokens. If absent, its calls are not counted in money, and boards with `limits.money` are rejected.
    #[serde(default, deserialize_with = "price")]
    pub price: Option<Price>,
    /// Tokens per minute as estimated before a call, over all boards of the process; at least 1,000.
    #[serde(default, deserialize_with = "tokens_limit")]
    pub tokens_per_minute: Option<NonZeroU32>,
    /// Time that a board waits for this model before it pauses.
    #[serde(default = "default_patience", deserialize_with = "span")]
    pub patience: Duration,
    /// Operator's names of the models to use, in this order, while this one is unavailable, or for a request that it
    /// rejected.
    #[serde(default)]
    pub fallback: Vec<String>,
    /// Length of this model's outage after which a request uses the next one of `fallback`.
    #[serde(default = "default_fallback_after", deserialize_with = "span")]
    pub fallback_after: Duration,
}

/// Structured output: how strictly the form of replies is enforced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Structured {
    /// By a JSON Schema of what the worker may write now; by a weaker one if the server rejects it.
    #[default]
    #[serde(alias = "json_schema")]
    Derived,
    /// By a JSON Schema of patches with the operations that the worker's grants name.
    Generic,
    /// Not enforced: only the prompt describes the form.
    Off,
}

/// Protocol of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// OpenAI Chat Completions, and compatible protocols.
    #[default]
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Anthropic,
}

/// Streaming of replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Streaming {
    /// Streamed if the server demands it, or after a request timed out without a byte.
    #[default]
    Auto,
    /// Always streamed.
    Always,
    /// Never streamed.
    Never,
}

impl<'de> Deserialize<'de> for Streaming {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "stream is \"auto\", true or false")]
        enum Written {
            Switch(bool),
            Word(Word),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Word {
            Auto,
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Switch(true) => Self::Always,
            Written::Switch(false) => Self::Never,
            Written::Word(Word::Auto) => Self::Auto,
        })
    }
}

impl Model {
    /// Builds a model with the defaults of the format.
    pub fn new(url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            model: model.into(),
            api: Api::default(),
            api_key_env: None,
            api_key_command: Vec::new(),
            temperature: 0.0,
            top_p: None,
            stop: Vec::new(),
            reasoning_effort: None,
            seed: None,
            extra_body: Map::new(),
            structured: Structured::default(),
            stream: Streaming::default(),
            max_tries: default_tries(),
            context: default_context(),
            max_reply_tokens: None,
            headers: BTreeMap::new(),
            query: BTreeMap::new(),
            concurrency: None,
            requests_per_minute: None,
            tokens_per_minute: None,
            price: None,
            patience: default_patience(),
            fallback: Vec::new(),
            fallback_after: default_fallback_after(),
        }
    }

    /// Checks that no members contradict each other.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.model.trim().is_empty() {
            return Err("model is the provider's name of the model, and no empty text");
        }
        if self.seed.is_some() && self.api != Api::Chat {
            return Err("seed is known to api = \"chat\" only: leave it out");
        }
        if !self.stop.is_empty() && self.api == Api::Responses {
            return Err("stop is not known to api = \"responses\": leave it out");
        }
        let lower: BTreeSet<String> = self.headers.keys().map(|name| name.to_ascii_lowercase()).collect();
        if lower.len() < self.headers.len() {
            return Err("headers holds one name twice: upper and lower case are the same");
        }
        let has = |name: &str| self.extra_body.contains_key(name);
        if self.api == Api::Responses && (has("input") || has("instructions"))
            || self.api == Api::Anthropic && has("system")
        {
            return Err(
                "extra_body cannot hold input, instructions or system: they are decided by the blueprint's prompts",
            );
        }
        if self.api_key_env.is_some() && !self.api_key_command.is_empty() {
            return Err("a key comes from api_key_env or from api_key_command, not from both");
        }
        if self.max_reply_tokens.is_some_and(|most| most.get() > self.context) {
            return Err("max_reply_tokens is larger than context, which holds prompt and reply");
        }
        Ok(())
    }

    /// Names of the environment variables for its key, headers and query.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let settings = self.headers.values().chain(self.query.values());
        self.api_key_env.as_deref().into_iter().chain(settings.filter_map(Setting::variable))
    }
}

// Written by hand, because arguments and the values of headers, queries and bodies may be secret.
impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("url", &self.url)
            .field("model", &self.model)
            .field("api", &self.api)
            .field("api_key_env", &self.api_key_env)
            .field("api_key_command", &self.api_key_command.first())
            .field("temperature", &self.temperature)
            .field("seed", &self.seed)
            .field("extra_body", &self.extra_body.keys())
            .field("structured", &self.structured)
            .field("stream", &self.stream)
            .field("context", &self.context)
            .field("headers", &self.headers.keys())
            .field("query", &self.query.keys())
            .field("fallback", &self.fallback)
            .finish_non_exhaustive()
    }
}

const fn default_context() -> u32 {
    32_768
}

const fn default_patience() -> Duration {
    Duration::from_secs(PATIENCE_MS / 1000)
}

const fn default_fallback_after() -> Duration {
    Duration::from_secs(30)
}

pub(super) const fn default_tries() -> u32 {
    3
}

pub(super) fn endpoint<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    check_url(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// Returns the address without a trailing slash, if a path can be appended to it.
pub fn check_url(text: &str) -> Result<String, String> {
    // Errors do not repeat the text: it may be a key in the wrong place.
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
    let path = url.path().trim_end_matches('/');
    if let Some(suffix) = PATHS.into_iter().find(|suffix| path.ends_with(suffix)) {
        return Err(format!("leave out {suffix} at the end: each request adds its path itself"));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn temperature<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    check_temperature(f64::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// Returns the temperature, if it lies between 0 and 2.
pub fn check_temperature(value: f64) -> Result<f64, &'static str> {
    if (0.0..=2.0).contains(&value) { Ok(value) } else { Err("a temperature lies between 0 and 2") }
}

pub(super) fn tries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let message = format_args!("max_tries lies between 1 and {TRIES_MAX}");
    checked(deserializer, |tries| (1..=TRIES_MAX).contains(tries), message)
}

fn top_p<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    checked(deserializer, |value| *value > 0.0 && *value <= 1.0, "top_p lies above 0 and is at most 1").map(Some)
}

fn stop<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let is_valid = |texts: &Vec<String>| texts.len() <= STOPS_MAX && !texts.iter().any(String::is_empty);
    checked(deserializer, is_valid, format_args!("stop holds at most {STOPS_MAX} texts, none of them empty"))
}

fn effort<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let message = "reasoning_effort is a word of the provider, like \"low\"";
    checked(deserializer, |word: &String| !word.is_empty(), message).map(Some)
}

fn extra_body<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    let table = toml::Table::deserialize(deserializer)?;
    let members = table.into_iter().map(|(name, value)| Ok((name, to_json(value)?)));
    let body = members.collect::<Result<Map<String, Value>, &str>>().map_err(D::Error::custom)?;
    match OWN_MEMBERS.into_iter().find(|(name, _)| body.contains_key(*name)) {
        Some((name, by)) => Err(D::Error::custom(format!("extra_body cannot hold {name}: it is decided by {by}"))),
        None => Ok(body),
    }
}

/// Converts a TOML value to JSON. Dates, `inf` and `nan` have no JSON form.
fn to_json(value: toml::Value) -> Result<Value, &'static str> {
    Ok(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => {
            let number = serde_json::Number::from_f64(number);
            number.ok_or("extra_body is sent as JSON, which has neither inf nor nan")?.into()
        }
        toml::Value::Boolean(truth) => truth.into(),
        toml::Value::Datetime(_) => return Err("extra_body is sent as JSON, which has no dates: write it as a text"),
        toml::Value::Array(list) => list.into_iter().map(to_json).collect::<Result<Vec<_>, _>>()?.into(),
        toml::Value::Table(table) => {
            let members = table.into_iter().map(|(name, value)| Ok((name, to_json(value)?)));
            members.collect::<Result<Map<_, _>, &str>>()?.into()
        }
    })
}

fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NonZeroU32>, D::Error> {
    let value = i64::deserialize(deserializer)?;
    let limit = u32::try_from(value).ok().and_then(NonZeroU32::new);
    limit.map(Some).ok_or_else(|| D::Error::custom(format!("a limit lies between 1 and {}", u32::MAX)))
}

fn tokens_limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NonZeroU32>, D::Error> {
    let limit = limit(deserializer)?;
    match limit.is_none_or(|limit| limit.get() >= TOKENS_PER_MINUTE_MIN) {
        true => Ok(limit),
        false => Err(D::Error::custom(format!("tokens_per_minute is at least {TOKENS_PER_MINUTE_MIN}"))),
    }
}

fn context<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let message = format_args!("context is the model's number of tokens, at least {CONTEXT_MIN}");
    checked(deserializer, |tokens| *tokens >= CONTEXT_MIN, message)
}

pub(super) fn program<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let has_program = |words: &Vec<String>| words.first().is_some_and(|program| !program.is_empty());
    let message = "api_key_command names a program and its arguments, like [\"pass\", \"openai\"]";
    checked(deserializer, has_program, message)
}

/// Reads `price = { input = 0.15, cached = 0.075, output = 0.6, currency = "USD" }`, per million tokens.
fn price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Price>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Written {
        input: Money,
        cached: Option<Money>,
        output: Money,
        #[serde(default = "currency")]
        currency: String,
    }
    fn currency() -> String {
        "USD".to_owned()
    }
    let Written { input, cached, output, currency } = Written::deserialize(deserializer)?;
    if currency.is_empty() || currency.len() > 16 || !currency.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Err(D::Error::custom("a currency is a short name like USD"));
    }
    let cached = cached.unwrap_or(input);
    if cached > input {
        return Err(D::Error::custom("cached tokens cost no more than input"));
    }
    Ok(Some(Price { input: input.0, cached: cached.0, output: output.0, currency }))
}
