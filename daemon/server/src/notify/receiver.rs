//! Delivery of notices: to a webhook, signed according to Standard Webhooks, and to a program on its standard input.

mod process;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use patchboard_agents::config::Environment;
use patchboard_llm::transport::{client, error_chain};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, StatusCode, Url};

use self::process::ProgramExit;
use super::sign::Secret;

/// Environment variables that a program inherits.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// Receiver of notices.
#[derive(Clone, Debug)]
pub enum Receiver {
    /// HTTP server.
    Webhook(Webhook),
    /// Program.
    Program(Program),
}

/// Reason that a notice was not delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryError {
    /// Message for people, without secrets or the webhook's path.
    pub why: String,
    /// Set if the receiver refuses the notice, so that an operator must act.
    pub(crate) is_rejected: bool,
    /// Minimum wait requested by the receiver.
    pub(crate) wait: Option<Duration>,
}

impl DeliveryError {
    fn failed(why: String) -> Self {
        Self { why, is_rejected: false, wait: None }
    }
}

impl Receiver {
    /// Returns the stable name, used for the cursors' directory too.
    pub const fn kind(&self) -> &'static str {
        if let Self::Webhook(_) = self { "webhook" } else { "program" }
    }

    /// Returns the host or program, without possible secrets.
    pub fn name(&self) -> String {
        match self {
            Self::Webhook(webhook) => webhook.url.host_str().unwrap_or_default().to_owned(),
            Self::Program(program) => program.words.first().cloned().unwrap_or_default(),
        }
    }

    /// Attempts to deliver a message of one line, within the timeout.
    /// After an error the receiver may have got the message nevertheless.
    pub async fn deliver(&self, id: &str, body: &str) -> Result<(), DeliveryError> {
        match self {
            Self::Webhook(webhook) => webhook.deliver(id, body).await,
            Self::Program(program) => program.deliver(body).await,
        }
    }
}

/// HTTP server that receives notices.
#[derive(Clone, Debug)]
pub struct Webhook {
    http: Client,
    url: Url,
    secret: Option<Secret>,
    timeout: Duration,
}

impl Webhook {
    pub(super) fn new(url: Url, secret: Option<Secret>, timeout: Duration) -> Result<Self, String> {
        Ok(Self { http: client(url.as_str())?, url, secret, timeout })
    }

    async fn deliver(&self, id: &str, body: &str) -> Result<(), DeliveryError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let mut request =
            self.http.post(self.url.clone()).timeout(self.timeout).header(CONTENT_TYPE, "application/json");
        request = request.header("webhook-id", id).header("webhook-timestamp", now);
        if let Some(secret) = &self.secret {
            request = request.header("webhook-signature", secret.sign(id, now, body));
        }
        let answer = request.body(body.to_owned()).send().await;
        let answer = answer.map_err(|error| DeliveryError::failed(broken(&error.without_url())))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let wait = answer.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
        let (why, wait) = (format!("the webhook answers {status}"), wait.map(Duration::from_secs));
        Err(DeliveryError { why, is_rejected: refuses(status), wait })
    }
}

/// Returns true for a status after which a retry is pointless.
fn refuses(status: StatusCode) -> bool {
    let may_pass =
        [StatusCode::REQUEST_TIMEOUT, StatusCode::CONFLICT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    status.is_redirection() || (status.is_client_error() && !may_pass.contains(&status))
}

/// Formats a connection error with its causes.
fn broken(error: &reqwest::Error) -> String {
    if error.is_timeout() { "the webhook did not answer in time".to_owned() } else { error_chain(error) }
}

/// Program that receives notices.
#[derive(Clone)]
pub struct Program {
    words: Vec<String>,
    env: Vec<(&'static str, String)>,
    timeout: Duration,
}

// Written by hand, because the environment must not be printed.
impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("words", &self.words).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Program {
    pub(super) fn new(words: Vec<String>, env: &Environment, timeout: Duration) -> Self {
        let value = |name: &'static str| env.get(name).map(|value| (name, value.to_owned()));
        Self { words, env: INHERITED.into_iter().filter_map(value).collect(), timeout }
    }

    async fn deliver(&self, body: &str) -> Result<(), DeliveryError> {
        let line = format!("{body}\n");
        match process::run(&self.words, &self.env, line.as_bytes(), self.timeout).await {
            Ok(ProgramExit { is_success: true, .. }) => Ok(()),
            Ok(ProgramExit { how, stderr_tail: said, .. }) => {
                let said = if said.is_empty() { said } else { format!(": {said}") };
                Err(DeliveryError::failed(format!("the program {how}{said}")))
            }
            Err(error) => Err(DeliveryError::failed(format!("the program cannot be started: {error}"))),
        }
    }
}

pub(super) fn outcome_of(delivered: &Result<(), DeliveryError>) -> &'static str {
    match delivered {
        Ok(()) => "delivered",
        Err(undelivered) if undelivered.is_rejected => "refused",
        Err(_) => "failed",
    }
}

#[cfg(test)]
mod tests;
