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

mod architect;
mod directory;
mod toml_error;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::path::Path;

use patchboard_kernel::blueprint::{Blueprint, Worker};
use serde::Deserialize;

pub use architect::{Architect, Caps, DesignLimits, REPAIRS_MAX};
pub use directory::WorkspaceConfig;
pub use patchboard_llm::config::{
    Api, Embeddings, Model, Setting, Streaming, Structured, Variable, check_name, redacted,
};
pub use patchboard_workspace::directory::Directory;
pub use patchboard_workspace::environment::Environment;
pub use patchboard_workspace::program::Program;
pub use toml_error::toml_error;

use patchboard_llm::config::{check_temperature, check_url};

/// Name of the architect's model in `models`, if the operator configured one.
pub const ARCHITECT_MODEL: &str = "architect";

/// Name of the model for seats that name none.
pub const DEFAULT_MODEL: &str = "default";

/// Address of calls when `OPENAI_API_KEY` is set and `OPENAI_BASE_URL` is not.
const OPENAI_URL: &str = "https://api.openai.com/v1";

/// Operator configuration.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Models by their operator's name.
    pub models: BTreeMap<String, Model>,
    /// Embeddings endpoint for the semantic search of departments; without it they compare letters only.
    pub embeddings: Option<Embeddings>,
    /// Programs by their operator's name.
    pub commands: BTreeMap<String, Program>,
    /// Directories by their operator's name, for boards with workers that share files.
    pub workspaces: BTreeMap<String, Directory>,
    /// Settings for agents that share the directory of the file itself, without a daemon.
    pub workspace: WorkspaceConfig,
    /// Limits of an architect and of its boards.
    pub architect: Architect,
    /// Section of the daemon, which parses it.
    pub serve: toml::Table,
    /// Retention of ended boards; the daemon parses it.
    pub retention: toml::Table,
    /// Notices to operators; the daemon parses it.
    pub notify: toml::Table,
    /// Model named by flags; it serves every name that `models` does not define.
    #[serde(skip)]
    pub any_model: Option<Model>,
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
                    return Err(format!("models.{name}.fallback: {other} is a fallback of {name} already"));
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
    /// Fails if a flag needs a value that neither the file nor the environment has, or if an address or a
    /// temperature is invalid.
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

        if flags.model_url.is_none() && flags.model.is_none() && flags.api_key_env.is_none() {
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
            check_name(name).map_err(|why| ConfigError::Flags(format!("--api-key-env: {why}")))?;
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

    /// Returns the model of this name and its fallbacks, each with its name; nothing if it is not configured.
    pub fn chain<'a>(&'a self, name: Option<&'a str>) -> Vec<(&'a str, &'a Model)> {
        let name = name.unwrap_or(DEFAULT_MODEL);
        let Some(model) = self.model(Some(name)) else { return Vec::new() };
        let fallbacks = model.fallback.iter().filter_map(|other| Some((other.as_str(), self.models.get(other)?)));
        std::iter::once((name, model)).chain(fallbacks).collect()
    }

    /// Returns the smallest context, in tokens, of the model of this name and its fallbacks.
    pub fn context(&self, name: Option<&str>) -> Option<u32> {
        self.chain(name).iter().map(|(_, model)| model.context).min()
    }
}

/// Returns the operator's names of the models that may serve a seat, before a seed selects one. An empty list means
/// [`DEFAULT_MODEL`].
/// The error is the name that the blueprint's `models` do not define.
pub fn operator_models<'b>(blueprint: &'b Blueprint, worker: &'b Worker) -> Result<&'b [String], &'b str> {
    match blueprint.choice(worker) {
        (_, Some(choice)) => Ok(choice.models()),
        (DEFAULT_MODEL, None) => Ok(&[]),
        (name, None) => Err(name),
    }
}

#[cfg(test)]
mod tests;
