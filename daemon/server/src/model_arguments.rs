//! Options that select a model, and the agents that result from them.

use std::path::{Path, PathBuf};

use clap::Args;
use patchboard_agents::config::{Config, Directory, Environment, Flags};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};

use crate::config_tables;
use crate::failure::Failure;
use crate::trust::config_file;

/// Options that select a model.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Agents")]
pub struct ModelArguments {
    /// Address of an OpenAI-compatible server, up to /v1; OPENAI_API_KEY is not sent there unless --api-key-env says so
    #[arg(long, value_name = "URL")]
    model_url: Option<String>,
    /// Model name on the server
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Environment variable with the server's key; without it no key is sent to a --model-url, not even OPENAI_API_KEY
    #[arg(long, value_name = "VAR")]
    api_key_env: Option<String>,
    /// Sampling temperature, 0 to 2 [default: as configured, or 0]
    #[arg(long, value_name = "NUMBER")]
    temperature: Option<f64>,
}

impl ModelArguments {
    /// Creates the agents from the operator's configuration, the flags and the environment.
    pub fn build_registry(&self, config: Option<&Path>, inline: InlinePrograms) -> Result<AgentRegistry, Failure> {
        self.build_registry_with(config, inline, &[])
    }

    /// Like [`ModelArguments::build_registry`], with directories of the command line.
    pub fn build_registry_with(
        &self,
        config: Option<&Path>,
        inline: InlinePrograms,
        workspaces: &[(String, PathBuf)],
    ) -> Result<AgentRegistry, Failure> {
        let bad_config = |error: &dyn std::fmt::Display| Failure::invalid_input("bad_config", error);
        let read = match config_file(config)? {
            Some(path) => {
                let read = Config::read(path).map_err(|error| bad_config(&error))?;
                config_tables::check(path)?;
                read
            }
            None => Config::default(),
        };
        let flags = Flags {
            model_url: self.model_url.clone(),
            model: self.model.clone(),
            api_key_env: self.api_key_env.clone(),
            temperature: self.temperature,
        };
        let environment = Environment::from_process();
        let mut config = read.with_flags(&flags, &environment).map_err(|error| bad_config(&error))?;
        config.workspaces.extend(workspaces.iter().map(|(name, dir)| (name.clone(), Directory::new(dir.clone()))));
        Ok(AgentRegistry::new(config, &environment, inline))
    }

    /// Returns the flags that a later command needs for the model; each begins with a space.
    pub fn to_flags(&self) -> String {
        let mut words = String::new();
        flag(&mut words, "--model-url", self.model_url.as_deref());
        flag(&mut words, "--model", self.model.as_deref());
        flag(&mut words, "--api-key-env", self.api_key_env.as_deref());
        flag(&mut words, "--temperature", self.temperature.map(|number| number.to_string()).as_deref());
        words
    }

    /// Returns true if no key is sent to the address of a flag: it gets neither a configured one nor `OPENAI_API_KEY`.
    pub const fn sends_no_key(&self) -> bool {
        self.model_url.is_some() && self.api_key_env.is_none()
    }
}

/// Adds a flag with its value, if there is one.
pub fn flag(words: &mut String, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        words.push_str(&format!(" {name} {}", quoted(value)));
    }
}

/// Quotes a word for a shell, if necessary.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
