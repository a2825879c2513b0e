//! Operator configuration: the models, programs and directories available to the seats of blueprints.
//!
//! Owns the format of `patchboard.toml`, and how flags and the common variables (`OPENAI_BASE_URL`, `OPENAI_API_KEY`,
//! `OPENAI_MODEL`) replace it. [`Environment::from_process`] is the only place in this crate that reads the process's
//! environment. Blueprints refer to the names defined here and define none themselves (SPEC section 11). No key is
//! ever in the file: it names the variable that holds one.
//!
//! ```toml
//! [models.local]
//! url = "http://127.0.0.1:18080/v1"
//! model = "qwen2.5-coder-1.5b-instruct"
//! seed = 7
//!
//! [models.default]
//! url = "https://api.openai.com/v1"
//! model = "gpt-4.1-mini"
//! api_key_env = "OPENAI_API_KEY"
//! requests_per_minute = 500
//! fallback = ["local"]
//!
//! [embeddings]               # what words mean that departments do not find by their letters
//! url = "http://127.0.0.1:18081/v1"
//! model = "nomic-embed-text-v1.5"
//! likeness = 0.6
//! timeout = "5s"
//!
//! [architect]
//! repairs = 3
//! tokens = 200000
//! wall = "30m"
//!
//! [workspaces.code]
//! dir = "../project"
//! exclude = ["dist/"]
//!
//! [workspace]                # of agents at the directory of the file itself
//! exclude = ["secrets/"]
//! annotate = false
//!
//! [commands.counter]
//! program = ["./count.py", "--strict"]
//! env = { PYTHONUNBUFFERED = "1" }
//! cwd = "tools"
//! ```

mod directory;
mod embeddings;
mod model;
mod setting;
mod toml_error;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::path::Path;

use patchboard_kernel::blueprint::{Blueprint, Duration, Worker};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

pub use directory::WorkspaceConfig;
pub use embeddings::Embeddings;
pub use model::{Api, Model, Streaming, Structured};
use model::{check_temperature, check_url};
pub use patchboard_workspace::directory::Directory;
pub use patchboard_workspace::environment::Environment;
pub use patchboard_workspace::program::Program;
pub use setting::{Setting, Variable, check_name, redacted};
pub use toml_error::toml_error;

use patchboard_workspace::directory::positive;

use crate::architect::{Caps, DesignLimits, REPAIRS_MAX};

/// Name of the architect's model in `models`, if the operator configured one.
pub const ARCHITECT_MODEL: &str = "architect";

/// Name of the model for seats that name none.
pub const DEFAULT_MODEL: &str = "default";

/// Upper bound of a time in milliseconds: 366 days.
const SPAN_MAX_MS: u64 = 366 * 24 * 60 * 60 * 1000;

/// Address of calls when `OPENAI_API_KEY` is set and `OPENAI_BASE_URL` is not.
const OPENAI_URL: &str = "https://api.openai.com/v1";

/// Operator configuration.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Models by their operator's name.
    #[serde(default)]
    pub models: BTreeMap<String, Model>,
    /// Embeddings endpoint for the semantic search of departments; without it they compare letters only.
    #[serde(default)]
    pub embeddings: Option<Embeddings>,
    /// Programs by their operator's name.
    #[serde(default)]
    pub commands: BTreeMap<String, Program>,
    /// Directories by their operator's name, for boards with workers that share files.
    #[serde(default)]
    pub workspaces: BTreeMap<String, Directory>,
    /// Settings for agents that share the directory of the file itself, without a daemon.
    #[serde(default)]
    pub workspace: WorkspaceConfig,
    /// Limits of an architect and of its boards.
    #[serde(default)]
    pub architect: Architect,
    /// Section of the daemon, which parses it.
    #[serde(default)]
    pub serve: toml::Table,
    /// Retention of ended boards; the daemon parses it.
    #[serde(default)]
    pub retention: toml::Table,
    /// Notices to operators; the daemon parses it.
    #[serde(default)]
    pub notify: toml::Table,
    /// Model named by flags; it serves every name that `models` does not define.
    #[serde(skip)]
    pub any_model: Option<Model>,
}

/// Limits of an architect and of its boards: the table `[architect]`. Its model is `[models.architect]`, or else the
/// default.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Architect {
    /// Rounds in which findings go back to the model, 0 to 10.
    #[serde(deserialize_with = "repairs")]
    pub repairs: u32,
    /// Token limit of one answer.
    #[serde(deserialize_with = "positive")]
    pub reply_tokens: u32,
    /// Timeout of one answer.
    #[serde(deserialize_with = "span")]
    pub timeout: Duration,
    /// Upper bound for the commits of a board.
    #[serde(deserialize_with = "positive")]
    pub commits: u64,
    /// Upper bound for the tokens of a board, including the architect's own.
    #[serde(deserialize_with = "positive")]
    pub tokens: u64,
    /// Upper bound for the running time of a board.
    #[serde(deserialize_with = "span")]
    pub wall: Duration,
}

impl Default for Architect {
    fn default() -> Self {
        let DesignLimits { repairs, caps } = DesignLimits::default();
        Self {
            repairs,
            // Leaves room for the prompt, the last draft and its findings in a context of 8,192 tokens.
            reply_tokens: 2500,
            timeout: Duration::from_secs(600),
            commits: caps.commits,
            tokens: caps.tokens,
            wall: caps.wall,
        }
    }
}

impl Architect {
    /// Converts the settings to terms.
    pub fn terms(&self) -> DesignLimits {
        let caps = Caps { commits: self.commits, tokens: self.tokens, wall: self.wall, ..Caps::default() };
        DesignLimits { repairs: self.repairs, caps }
    }
}

/// Command-line flags about models.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Flags {
    /// `--model-url`.
    pub model_url: Option<String>,
    /// `--model`.
    pub model: Option<String>,
    /// `--api-key-env`.
    pub api_key_env: Option<String>,
    /// `--temperature`.
    pub temperature: Option<f64>,
}

impl Flags {
    /// Returns true if the flags name neither a model nor an address.
    const fn names_none(&self) -> bool {
        self.model_url.is_none() && self.model.is_none() && self.api_key_env.is_none()
    }
}

/// Error of reading the configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Path of the file.
        path: String,
        /// Cause.
        source: io::Error,
    },
    /// The file is not TOML, or has an unexpected key or value; the message gives line and column.
    #[error("{path}: {message}")]
    Parse {
        /// Path of the file.
        path: String,
        /// Description and place.
        message: String,
    },
    /// Flags and environment do not define a model.
    #[error("{0}")]
    Flags(String),
}

/// Size limit of a configuration in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Reads the text of a configuration, at most 1 MiB.
///
/// # Errors
/// The file cannot be read, is too long or is not UTF-8.
pub fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 > BYTES_MAX {
        true => Err(io::Error::other(format!("it has more than {BYTES_MAX} bytes"))),
        false => Ok(text),
    }
}

impl Config {
    /// Reads a file; relative paths in it are relative to its directory.
    ///
    /// # Errors
    /// [`ConfigError::Read`], [`ConfigError::Parse`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = self::text(path).map_err(|source| ConfigError::Read { path: name.clone(), source })?;
        let mut config = Self::parse(&text, &name)?;
        let dir = path.parent().unwrap_or(Path::new(""));
        for program in config.commands.values_mut() {
            program.resolve(dir);
        }
        for workspace in config.workspaces.values_mut() {
            workspace.dir = dir.join(&workspace.dir);
        }
        Ok(config)
    }

    /// Parses the text of a file called `name`; relative paths stay as they are.
    ///
    /// # Errors
    /// [`ConfigError::Parse`].
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigError> {
        let parse =
            |message: &str| ConfigError::Parse { path: name.to_owned(), message: message.trim_end().to_owned() };
        let config: Self = toml::from_str(text).map_err(|error| parse(&toml_error(text, &error)))?;
        config.check_models().map_err(|why| parse(&why))?;
        Ok(config)
    }

    /// Rejects contradictions within a model, and fallbacks that are not configured or named twice.
    fn check_models(&self) -> Result<(), String> {
        if let Some(embeddings) = &self.embeddings {
            embeddings.server().check().map_err(|why| format!("embeddings: {why}"))?;
        }
        for (name, model) in &self.models {
            model.check().map_err(|why| format!("models.{name}: {why}"))?;
            let mut seen = BTreeSet::from([name]);
            for other in &model.fallback {
                if !self.models.contains_key(other) {
                    return Err(format!(
                        "models.{name}.fallback: no model {other} is configured; add [models.{other}]"
                    ));
                }
                if !seen.insert(other) {
                    return Err(format!("models.{name}.fallback: {other} stands in for {name} already"));
                }
            }
        }
        let priced = |(name, model): (_, &'_ Model)| Some((name, model.price.as_ref()?.currency.clone()));
        let currencies: Vec<(&String, String)> = self.models.iter().filter_map(priced).collect();
        match currencies.iter().find(|(_, currency)| *currency != currencies[0].1) {
            Some((name, currency)) => {
                let (first, other) = &currencies[0];
                Err(format!(
                    "models.{name}.price is in {currency}, models.{first}.price in {other}: money has one currency"
                ))
            }
            None => Ok(()),
        }
    }

    /// Applies flags and environment.
    ///
    /// Flags override single fields of `models.default` (or of the model that the environment defines, if there is
    /// none). The result serves every model name that the file does not define: a model on the command line is meant
    /// for all of them. Without flags, `OPENAI_MODEL` with `OPENAI_BASE_URL` or `OPENAI_API_KEY` serves as
    /// `models.default` unless the file has one. `OPENAI_API_KEY` is never sent to an address from a flag unless
    /// `--api-key-env` names it. A temperature applies to all models.
    ///
    /// # Errors
    /// [`ConfigError::Flags`] if a flag needs a value that neither the file nor the environment has, or if an address
    /// or a temperature is invalid.
    pub fn with_flags(self, flags: &Flags, env: &Environment) -> Result<Self, ConfigError> {
        let mut config = self.with_named(flags, env)?;
        if let Some(temperature) = flags.temperature {
            let temperature =
                check_temperature(temperature).map_err(|why| ConfigError::Flags(format!("--temperature: {why}")))?;
            for model in config.models.values_mut().chain(&mut config.any_model) {
                model.temperature = temperature;
            }
        }
        Ok(config)
    }

    fn with_named(mut self, flags: &Flags, env: &Environment) -> Result<Self, ConfigError> {
        let base_url = env.get("OPENAI_BASE_URL");
        let key = env.get("OPENAI_API_KEY").map(|_| "OPENAI_API_KEY".to_owned());
        let env_url = base_url.or(key.as_ref().map(|_| OPENAI_URL)).map(str::to_owned);
        let env_model = env.get("OPENAI_MODEL").map(str::to_owned);

        if flags.names_none() {
            if let (false, Some(url), Some(model)) = (self.models.contains_key(DEFAULT_MODEL), env_url, env_model) {
                let url = check_url(&url).map_err(|why| ConfigError::Flags(format!("OPENAI_BASE_URL: {why}")))?;
                self.models.insert(DEFAULT_MODEL.into(), Model { api_key_env: key, ..Model::new(url, model) });
            }
            return Ok(self);
        }

        let base = self.models.get(DEFAULT_MODEL);
        let missing = |what: &str, how: &str| ConfigError::Flags(format!("no {what} is named: {how}"));
        let (url, default_key) = match (&flags.model_url, base, env_url) {
            // A key is sent only to the address that it was configured with.
            (Some(url), _, _) => (url.clone(), None),
            (None, Some(base), _) => (base.url.clone(), base.api_key_env.clone()),
            (None, None, Some(url)) => (url, key),
            (None, None, None) => return Err(missing("address of a model", "give --model-url or OPENAI_BASE_URL")),
        };
        let model = flags
            .model
            .clone()
            .or_else(|| base.map(|base| base.model.clone()))
            .or(env_model)
            .ok_or_else(|| missing("model", "give --model or OPENAI_MODEL"))?;
        let url = check_url(&url).map_err(|why| ConfigError::Flags(format!("--model-url: {why}")))?;
        if let Some(name) = &flags.api_key_env {
            setting::check_name(name).map_err(|why| ConfigError::Flags(format!("--api-key-env: {why}")))?;
        }
        let mut chosen = match (base, &flags.model_url) {
            // Headers, the query and the command that prints a key belong to it as well.
            (Some(base), None) => base.clone(),
            (Some(base), Some(_)) => {
                Model { headers: BTreeMap::new(), query: BTreeMap::new(), api_key_command: Vec::new(), ..base.clone() }
            }
            (None, _) => Model::new(url.clone(), model.clone()),
        };
        chosen.url = url;
        chosen.model = model;
        chosen.api_key_env = flags.api_key_env.clone().or(default_key);
        if chosen.api_key_env.is_some() {
            chosen.api_key_command = Vec::new();
        }
        self.models.insert(DEFAULT_MODEL.into(), chosen.clone());
        self.any_model = Some(chosen);
        Ok(self)
    }

    /// Returns the model of this name; `None` as a name means [`DEFAULT_MODEL`].
    pub fn model(&self, name: Option<&str>) -> Option<&Model> {
        self.models.get(name.unwrap_or(DEFAULT_MODEL)).or(self.any_model.as_ref())
    }

    /// Returns the smallest context, in tokens, of the model of this name and its fallbacks.
    pub fn context(&self, name: Option<&str>) -> Option<u32> {
        let model = self.model(name)?;
        let fallbacks = model.fallback.iter().filter_map(|other| self.models.get(other));
        fallbacks.chain([model]).map(|model| model.context).min()
    }
}

/// Returns the operator's names of the models that may serve a seat, before a seed selects one. An empty list means
/// [`DEFAULT_MODEL`].
///
/// # Errors
/// The name that the blueprint's `models` do not define.
pub fn operator_models<'b>(blueprint: &'b Blueprint, worker: &'b Worker) -> Result<&'b [String], &'b str> {
    match blueprint.choice(worker) {
        (_, Some(choice)) => Ok(choice.models()),
        (DEFAULT_MODEL, None) => Ok(&[]),
        (name, None) => Err(name),
    }
}

fn repairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let value = u32::deserialize(deserializer)?;
    if value <= REPAIRS_MAX {
        Ok(value)
    } else {
        Err(D::Error::custom(format!("repairs lies between 0 and {REPAIRS_MAX}")))
    }
}

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let value = Duration::deserialize(deserializer)?;
    match (1..=SPAN_MAX_MS).contains(&value.as_ms()) {
        true => Ok(value),
        false => Err(D::Error::custom("a time lies above zero, and within 366 days")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_env() -> Environment {
        Environment::default()
    }

    fn flags(url: Option<&str>, model: Option<&str>, key: Option<&str>) -> Flags {
        Flags {
            model_url: url.map(str::to_owned),
            model: model.map(str::to_owned),
            api_key_env: key.map(str::to_owned),
            temperature: None,
        }
    }

    #[test]
    fn what_operators_say_of_a_model_is_read_and_what_cannot_be_meant_is_refused() {
        let with = |lines: &str| {
            let text = format!("[models.default]\nurl = \"http://h/v1\"\nmodel = \"a\"\n{lines}\n");
            Config::parse(&text, "p")
                .map(|config| config.models[DEFAULT_MODEL].clone())
                .map_err(|error| error.to_string())
        };
        let model = with(
            "api_key_command = [\"pass\", \"x\"]\ntop_p = 0.9\nstop = [\"END\"]\nreasoning_effort = \"low\"\nstream = true\n\
             max_reply_tokens = 900\nconcurrency = 4\nrequests_per_minute = 60\ntokens_per_minute = 90000\n\
             patience = \"2h\"\nfallback_after = \"5s\"\nextra_body = { chat_template_kwargs = { thinking = false } }\n\
             headers = { x-key = { env = \"KEY\" }, x-title = \"t\" }\nquery = { api-version = \"2026-01\" }",
        );
        let model = model.expect("a good table");
        assert_eq!(model.variables().collect::<Vec<_>>(), ["KEY"]);
        assert_eq!((model.stream, model.top_p, model.patience.as_ms()), (Streaming::Always, Some(0.9), 7_200_000));
        assert_eq!(model.extra_body["chat_template_kwargs"]["thinking"], false);
        assert_eq!(model.max_reply_tokens.map(u32::from), Some(900));
        let price = with("price = { input = 0.15, output = 0.6 }").expect("a price").price.expect("a price");
        assert_eq!((price.input, price.cached, price.output), (150_000_000, 150_000_000, 600_000_000));
        for (lines, words) in [
            ("stream = \"no\"", "stream is \"auto\", true or false"),
            ("concurrency = 0", "between 1 and"),
            ("requests_per_minute = -1", "between 1 and"),
            ("top_p = 0", "top_p"),
            ("stop = [\"\"]", "stop"),
            ("patience = \"0s\"", "above zero"),
            ("extra_body = { stream = true }", "decided by stream"),
            ("extra_body = { a = [{ day = 2020-01-01 }] }", "write it as a text"),
            ("extra_body = { a = inf }", "neither inf nor nan"),
            ("api = \"responses\"\nextra_body = { input = [1] }", "blueprint's prompts"),
            ("api = \"anthropic\"\nextra_body = { system = \"x\" }", "blueprint's prompts"),
            ("headers = { a = { var = \"X\" } }", "{ env = \"VARIABLE\" }"),
            ("api_key_command = []", "a program"),
            ("api_key_command = [\"a\"]\napi_key_env = \"K\"", "models.default: a key comes from"),
            ("max_reply_tokens = 40000", "larger than context"),
            ("fallback = [\"b\"]", "add [models.b]"),
            ("fallback = [\"default\"]", "already"),
            ("burst = 3", "unknown field `burst`"),
            ("api = \"gemini\"", "unknown variant"),
            ("context = 10", "at least 512"),
            ("tokens_per_minute = 10", "at least 1000"),
            ("patience = \"99999999d\"", "366 days"),
            ("price = { input = 1 }", "output"),
            ("price = { input = -1, output = 1 }", "amount of money"),
            ("price = { input = 1, cached = 2, output = 1 }", "cached tokens"),
            ("price = { input = 1, output = 1, per = 1000 }", "unknown field `per`"),
            (
                "price = { input = 1, output = 1 }\n[models.b]\nurl = \"http://h/v1\"\nmodel = \"b\"\nprice = { input = 1, output = 1, currency = \"EUR\" }",
                "one currency",
            ),
        ] {
            let error = with(lines).expect_err(lines);
            assert!(error.contains(words), "{lines}: {error}");
        }
    }

    #[test]
    fn the_smallest_context_of_a_model_and_its_fallbacks_bounds_what_it_is_asked() {
        let text = "[models.default]\nurl = \"http://h/v1\"\nmodel = \"a\"\ncontext = 128000\nfallback = [\"b\", \"c\"]\n\
                    [models.b]\nurl = \"http://h/v1\"\nmodel = \"b\"\ncontext = 8192\n\
                    [models.c]\nurl = \"http://h/v1\"\nmodel = \"c\"\n";
        let config = Config::parse(text, "p").expect("a good file");
        let contexts = [None, Some("b"), Some("c"), Some("d")].map(|name| config.context(name));
        assert_eq!(contexts, [Some(8192), Some(8192), Some(32_768), None]);
    }

    #[test]
    fn a_temperature_is_that_of_all_models_and_names_none() {
        let text = "[models.default]\nurl = \"http://h/v1\"\nmodel = \"a\"\n[models.b]\nurl = \"http://h/v1\"\nmodel = \"b\"\n";
        let hot = |temperature| Flags { temperature: Some(temperature), ..Flags::default() };
        let of = |flags: &Flags| Config::parse(text, "p").expect("a good file").with_flags(flags, &no_env());
        let config = of(&hot(0.7)).expect("a temperature");
        assert_eq!(config.models.values().map(|model| model.temperature).collect::<Vec<_>>(), [0.7, 0.7]);
        assert_eq!(config.any_model, None, "no other name means one of them");
        let named = of(&Flags { temperature: Some(1.0), ..flags(None, Some("c"), None) }).expect("a model");
        assert_eq!(named.model(Some("other")).map(|model| (model.model.as_str(), model.temperature)), Some(("c", 1.0)));
        for wrong in [-0.1, 2.1, f64::NAN] {
            let error = of(&hot(wrong)).expect_err("it is none").to_string();
            assert!(error.contains("--temperature") && error.contains("between 0 and 2"), "{error}");
        }
    }

    #[test]
    fn a_file_is_read_and_what_it_leaves_out_has_defaults() {
        let text = "[models.local]\nurl = \"http://localhost:1/v1/\"\nmodel = \"m\"\n\
                    [commands.c]\nprogram = [\"sh\", \"-c\"]\nenv = {A = \"b\"}\n";
        let config = Config::parse(text, "patchboard.toml").expect("a good file");
        assert_eq!(config.models["local"], Model::new("http://localhost:1/v1", "m"));
        assert_eq!(config.models["local"].max_tries, 3);
        assert_eq!(config.models["local"].structured, Structured::Derived);
        assert_eq!(config.commands["c"].env["A"], "b");
    }

    #[test]
    fn what_does_not_belong_in_a_file_is_refused_with_its_position() {
        let model = "[models.a]\nurl = \"http://h\"\nmodel = \"m\"\n";
        for (text, line, word) in [
            (format!("{model}api_key = \"k\""), "line 4", "api_key"),
            ("[model.a]".to_owned(), "line 1", "model"),
            (format!("{model}max_tries = 0"), "line 4", "between 1 and 10"),
            (format!("{model}temperature = -1.0"), "line 4", "temperature"),
            (format!("{model}structured = \"yes\""), "line 4", "derived"),
            ("[models.a]\nurl = \"ftp://h\"\nmodel = \"m\"".to_owned(), "line 2", "http://"),
            ("[models.a]\nurl = \"http://u:p@h\"\nmodel = \"m\"".to_owned(), "line 2", "credentials"),
            ("[commands.a]\nprogram = []".to_owned(), "line 2", "begins with its name"),
            ("[commands.a]\nprogram = \"sh -c\"".to_owned(), "line 2", "sequence"),
            ("[workspaces.a]\ndir = \".\"\nexclude = [\"{a,b\"]".to_owned(), "line 3", "{a,b"),
            ("[workspaces.a]\ndir = \".\"\nmax_bytes = 0".to_owned(), "line 3", "above zero"),
            ("[workspace]\nexclude = [\"{a,b\"]".to_owned(), "line 2", "{a,b"),
            ("[workspace]\nmax_bytes = 0".to_owned(), "line 2", "above zero"),
            ("[workspace]\ngranularity = \"files\"".to_owned(), "line 2", "lines"),
            ("[workspace]\nanotate = false".to_owned(), "line 2", "annotate"),
            ("[workspace]\ndir = \".\"".to_owned(), "line 2", "dir"),
        ] {
            let error = Config::parse(&text, "p.toml").expect_err("must be refused").to_string();
            for part in ["p.toml", line, word] {
                assert!(error.contains(part), "{part:?} is not in {error}");
            }
        }
    }

    #[test]
    fn the_former_name_of_the_derived_form_is_still_read() {
        for (name, expected) in [
            ("json_schema", Structured::Derived),
            ("derived", Structured::Derived),
            ("generic", Structured::Generic),
            ("off", Structured::Off),
        ] {
            let text = format!("[models.a]\nurl = \"http://h\"\nmodel = \"m\"\nstructured = \"{name}\"\n");
            assert_eq!(Config::parse(&text, "p").expect("a good file").models["a"].structured, expected);
        }
    }

    #[test]
    fn the_architects_terms_have_defaults_and_are_finite() {
        let parsed = |text: &str| Config::parse(text, "p").map(|config| config.architect);
        assert_eq!(parsed("").expect("nothing is demanded"), Architect::default());
        let given = parsed("[architect]\nrepairs = 0\ntokens = 5000\nwall = \"5m\"\n").expect("a good table");
        assert_eq!((given.terms().repairs, given.terms().caps.tokens, given.commits), (0, 5000, 1000));
        for bad in ["repairs = 11", "tokens = 0", "wall = \"0s\"", "wall = 5", "reply_tokens = -1", "retries = 1"] {
            assert!(parsed(&format!("[architect]\n{bad}\n")).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_another_setting_decides_or_an_api_does_not_know_is_refused() {
        for (lines, words) in [
            ("extra_body = { max_tokens = 9 }", "cannot hold max_tokens: it is decided by limits.reply_tokens"),
            ("extra_body = { max_completion_tokens = 9 }", "cannot hold max_completion_tokens"),
            ("extra_body = { n = 4 }", "cannot hold n"),
            ("seed = 1\napi = \"anthropic\"", "seed is known to api = \"chat\" only"),
            ("stop = [\"x\"]\napi = \"responses\"", "stop is not known to api = \"responses\""),
            ("headers = { X-A = \"1\", x-a = \"2\" }", "one name twice"),
        ] {
            let text = format!("[models.a]\nurl = \"http://h\"\nmodel = \"m\"\n{lines}\n");
            let error = Config::parse(&text, "p").expect_err(lines).to_string();
            assert!(error.contains(words), "{error}");
        }
        let nameless = "[models.a]\nurl = \"http://h\"\nmodel = \" \"\n";
        assert!(Config::parse(nameless, "p").expect_err("no name").to_string().contains("no empty text"));
    }

    #[test]
    fn relative_paths_are_relative_to_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("patchboard.toml");
        let text = "[commands.a]\nprogram = [\"./a.sh\"]\ncwd = \"w\"\n[commands.b]\nprogram = [\"sh\"]\n";
        std::fs::write(&path, text).expect("written");
        let config = Config::read(&path).expect("a good file");
        assert_eq!(Path::new(&config.commands["a"].program[0]), dir.path().join("./a.sh"));
        assert_eq!(config.commands["a"].cwd, Some(dir.path().join("w")));
        assert_eq!(config.commands["b"].program, ["sh"]);
        let missing = Config::read(&dir.path().join("none.toml")).expect_err("no such file").to_string();
        assert!(missing.contains("none.toml"), "{missing}");
    }

    #[test]
    fn the_usual_variables_serve_as_the_default_model() {
        let env = Environment::from_iter([("OPENAI_API_KEY", "k"), ("OPENAI_MODEL", "m")]);
        let config = Config::default().with_flags(&Flags::default(), &env).expect("complete");
        let model = config.model(None).expect("the default");
        assert_eq!((model.url.as_str(), model.model.as_str()), (OPENAI_URL, "m"));
        assert_eq!(model.api_key_env.as_deref(), Some("OPENAI_API_KEY"));
        assert_eq!(config.model(Some("other")), None, "the environment is not an answer to every name");

        let silent = Config::default().with_flags(&Flags::default(), &no_env()).expect("nothing asked for");
        assert_eq!(silent.model(None), None);
    }

    #[test]
    fn flags_serve_every_name_that_the_file_does_not_define() {
        let text = "[models.default]\nurl = \"http://a\"\nmodel = \"m\"\napi_key_env = \"K\"\nseed = 5\n\
                    [models.fixed]\nurl = \"http://c\"\nmodel = \"f\"\n";
        let file = Config::parse(text, "p").expect("a good file");
        let config = file.with_flags(&flags(None, Some("other"), None), &no_env()).expect("complete");
        for name in [None, Some("default"), Some("unknown")] {
            let model = config.model(name).expect("served");
            assert_eq!((model.url.as_str(), model.model.as_str(), model.seed), ("http://a", "other", Some(5)));
            assert_eq!(model.api_key_env.as_deref(), Some("K"));
        }
        assert_eq!(config.model(Some("fixed")).expect("served").model, "f");
    }

    #[test]
    fn a_key_goes_only_where_it_was_configured_to_go() {
        let env = Environment::from_iter([("OPENAI_API_KEY", "k"), ("OPENAI_MODEL", "m")]);
        let elsewhere = flags(Some("http://elsewhere"), None, None);
        let config = Config::default().with_flags(&elsewhere, &env).expect("complete");
        assert_eq!(config.model(None).expect("served").api_key_env, None);
        let named = flags(Some("http://elsewhere"), None, Some("OPENAI_API_KEY"));
        let config = Config::default().with_flags(&named, &env).expect("complete");
        assert_eq!(config.model(None).expect("served").api_key_env.as_deref(), Some("OPENAI_API_KEY"));
    }

    #[test]
    fn incomplete_flags_say_what_is_missing() {
        for (flags, word) in [
            (flags(Some("http://h"), None, None), "--model "),
            (flags(None, Some("m"), None), "--model-url"),
            (flags(Some("h"), Some("m"), None), "not an address"),
        ] {
            let error = Config::default().with_flags(&flags, &no_env()).expect_err("incomplete").to_string();
            assert!(error.contains(word), "{word:?} is not in {error}");
        }
    }

    #[test]
    fn debug_output_shows_no_values_that_may_be_secret() {
        let mut model = Model::new("http://h", "m");
        model.headers.insert("x-key".into(), "hush-header".into());
        let mut program = Program::new(vec!["p".into()]);
        program.env.insert("KEY".into(), "hush-env".into());
        let env = Environment::from_iter([("K", "hush-process")]);
        let mut embeddings = Embeddings::new("http://h", "m");
        embeddings.headers.insert("y-key".into(), "hush-header".into());
        let shown = format!("{model:?} {program:?} {env:?} {embeddings:?}");
        assert!(
            shown.contains("x-key") && shown.contains("y-key") && shown.contains("KEY") && !shown.contains("hush"),
            "{shown}"
        );
    }
}
