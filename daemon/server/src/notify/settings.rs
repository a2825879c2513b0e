//! The table `[notify]` of the operator's configuration. Errors name the line.

use std::path::{Path, PathBuf};
use std::time::Duration as Time;

use patchboard_agents::config::{self, Environment, check_name, redacted, toml_error};
use patchboard_kernel::blueprint::Duration;
use patchboard_llm::transport::is_loopback;
use reqwest::Url;
use serde::Deserialize;
use toml::Spanned;

use super::notice::{TOPICS, Topic};
use super::receiver::{Program, Receiver, Webhook};
use super::sign::Secret;
use crate::failure::Failure;
use crate::trust::config_file;

/// Default of the maximum wait for a provider without a notice.
const PROVIDER_AFTER: Duration = Duration::from_secs(300);

const TIMEOUT: Duration = Duration::from_secs(10);

const TIMEOUT_MAX: Duration = Duration::from_secs(600);

const HEADS_MIN: Duration = Duration::from_secs(1);

/// Configuration file, without the tables of other modules.
#[derive(Deserialize)]
struct File {
    notify: Option<Spanned<Table>>,
}

/// The table `[notify]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    webhook: Option<Spanned<String>>,
    program: Option<Spanned<Vec<String>>>,
    secret_env: Option<Spanned<String>>,
    on: Option<Spanned<Vec<Spanned<String>>>>,
    provider_after: Option<Spanned<Duration>>,
    timeout: Option<Spanned<Duration>>,
    heads: Option<Spanned<Duration>>,
}

/// Settings of notices.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Receivers; each gets every notice.
    pub receivers: Vec<Receiver>,
    pub(crate) topics: Vec<Topic>,
    /// Maximum wait for a provider without a notice.
    pub(crate) provider_after: Duration,
    /// Interval of messages with heads of boards; `None` if heads are not sent.
    pub(crate) heads: Option<Duration>,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Reads the settings of the configuration file in use, if there is one. Blocks.
    pub fn configured(config: Option<&Path>) -> Result<Option<Self>, Failure> {
        let Some(file) = config_file(config)? else { return Ok(None) };
        Self::read(file, &Environment::from_process())
    }

    /// Reads the table of a file; `None` if the file has no such table.
    fn read(file: &Path, env: &Environment) -> Result<Option<Self>, Failure> {
        let name = file.display().to_string();
        let text = config::text(file)
            .map_err(|error| Failure::invalid_input("bad_config", format!("cannot read {name}: {error}")))?;
        let directory = file.parent().unwrap_or(Path::new(""));
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        Self::parse(&text, &directory, env)
            .map_err(|message| Failure::invalid_input("bad_config", format!("{name}: {message}")))
    }

    /// Parses the text of a file in a directory.
    fn parse(text: &str, directory: &Path, env: &Environment) -> Result<Option<Self>, String> {
        let file: File = toml::from_str(text).map_err(|error| toml_error(text, &error))?;
        let Some(table) = file.notify else { return Ok(None) };
        let line = |at: usize| text.get(..at).unwrap_or_default().matches('\n').count() + 1;
        let table_line = line(table.span().start);
        let wrong = |line: usize, why: &str| format!("line {line}: [notify] {why}");
        let table = table.into_inner();

        let timeout = table.timeout.map_or(Ok(TIMEOUT), |timeout| {
            let (at, timeout) = (line(timeout.span().start), timeout.into_inner());
            let is_allowed = timeout.as_ms() > 0 && timeout <= TIMEOUT_MAX;
            is_allowed.then_some(timeout).ok_or_else(|| wrong(at, "timeout lies above zero and within 10 minutes"))
        })?;
        let timeout = Time::from_millis(timeout.as_ms());
        let provider_after = table.provider_after.map_or(PROVIDER_AFTER, Spanned::into_inner);

        let heads = table.heads.map(|every| {
            let (at, every) = (line(every.span().start), every.into_inner());
            (every >= HEADS_MIN).then_some(every).ok_or_else(|| wrong(at, "heads is at least 1s"))
        });
        let heads = heads.transpose()?;

        let secret = table.secret_env.map(|variable| {
            let (at, variable) = (line(variable.span().start), variable.into_inner());
            check_name(&variable).map_err(|why| wrong(at, &format!("secret_env: {why}")))?;
            let (value, variable) = (env.get(&variable), redacted(&variable));
            let value = value.ok_or_else(|| wrong(at, &format!("secret_env: the variable {variable} is not set")))?;
            let secret = Secret::read(value);
            let secret = secret.map_err(|why| wrong(at, &format!("secret_env: the variable {variable} {why}")))?;
            if table.webhook.is_none() {
                return Err(wrong(at, "secret_env signs a webhook, and there is none"));
            }
            Ok(secret)
        });
        let secret = secret.transpose()?;

        let (mut receivers, mut warnings) = (Vec::new(), Vec::new());
        if let Some(webhook) = table.webhook {
            let (at, address) = (line(webhook.span().start), webhook.into_inner());
            let url = address_of(&address).map_err(|why| wrong(at, &format!("webhook: {why}")))?;
            if url.scheme() == "http" && !is_loopback(&url) && secret.is_none() {
                warnings.push(format!(
                    "[notify] webhook: notices go to {} unencrypted and unsigned; use https, or set secret_env",
                    url.host_str().unwrap_or_default()
                ));
            }
            let webhook = Webhook::new(url, secret, timeout).map_err(|why| wrong(at, &format!("webhook: {why}")))?;
            receivers.push(Receiver::Webhook(webhook));
        }
        if let Some(program) = table.program {
            let (at, mut words) = (line(program.span().start), program.into_inner());
            let Some(first) = words.first_mut().filter(|first| !first.is_empty()) else {
                return Err(wrong(at, "program is a list that begins with its name"));
            };
            // Relative to the file, like the programs of [commands].
            if first.contains('/') {
                let path: PathBuf = directory.join(&*first);
                *first = path.to_string_lossy().into_owned();
            }
            receivers.push(Receiver::Program(Program::new(words, env, timeout)));
        }
        if receivers.is_empty() {
            return Err(wrong(table_line, "names neither a webhook nor a program"));
        }
        let on = match table.on {
            None => TOPICS.to_vec(),
            Some(on) => {
                let at = line(on.span().start);
                let topics = on.into_inner().into_iter().map(|name| {
                    let at = line(name.span().start);
                    let known = TOPICS.into_iter().find(|topic| topic.as_str() == name.as_ref());
                    let all = TOPICS.map(Topic::as_str).join(", ");
                    known.ok_or_else(|| wrong(at, &format!("on: {:?} is none of {all}", redacted(name.as_ref()))))
                });
                let topics = topics.collect::<Result<Vec<_>, _>>()?;
                if topics.is_empty() {
                    return Err(wrong(at, "on is empty; leave it out for all notices"));
                }
                topics
            }
        };
        Ok(Some(Self { receivers, topics: on, provider_after, heads, warnings }))
    }
}

fn address_of(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("not an address: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err("an address begins with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("an address holds no credentials".to_owned());
    }
    Ok(url)
}

#[cfg(test)]
mod tests;
