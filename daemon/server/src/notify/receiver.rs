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
        match self {
            Self::Webhook(_) => "webhook",
            Self::Program(_) => "program",
        }
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
    if error.is_timeout() {
        return "the webhook did not answer in time".to_owned();
    }
    error_chain(error)
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
mod tests {
    use patchboard_kernel::id::Timestamp;

    use super::super::notice::Notice;
    use super::*;

    #[test]
    fn only_a_status_that_may_pass_is_no_refusal() {
        for (status, expected) in
            [(301, true), (400, true), (401, true), (404, true), (410, true), (413, true), (422, true)]
        {
            assert_eq!(refuses(StatusCode::from_u16(status).expect("a status")), expected, "{status}");
        }
        for status in [408, 409, 425, 429, 500, 502, 503, 504] {
            assert!(!refuses(StatusCode::from_u16(status).expect("a status")), "{status}");
        }
    }

    async fn deliver(script: &str, timeout: Duration) -> Result<(), DeliveryError> {
        let words = ["sh", "-c", script].map(str::to_owned).to_vec();
        let env = [("PATH", "/usr/bin:/bin"), ("HOME", "/"), ("HIDDEN", "x")].into_iter().collect();
        Program::new(words, &env, timeout).deliver(&Notice::test(Timestamp(0), 7).body()).await
    }

    #[tokio::test]
    async fn a_program_reads_the_notice_and_its_exit_code_counts() {
        let long = Duration::from_secs(60);
        let reads = r#"read -r line; case "$line" in *'"id":"test:7:test"'*) exit 0;; esac; exit 9"#;
        assert_eq!(deliver(reads, long).await, Ok(()));
        assert_eq!(deliver("exit 0", long).await, Ok(()), "without reading");
        assert_eq!(deliver(r#"test -z "$HIDDEN" && test "$HOME" = /"#, long).await, Ok(()));
        let failed = deliver("echo wrong pager >&2; exit 3", long).await.expect_err("it failed");
        assert!(failed.why.contains('3') && failed.why.contains("wrong pager") && !failed.is_rejected, "{failed:?}");
        let flood = "yes | head -c 3000000; yes | head -c 3000000 >&2; exit 4";
        let failed = deliver(flood, long).await.expect_err("it failed");
        assert!(failed.why.len() < 1000 && failed.why.contains('4'), "{failed:?}");
    }

    #[tokio::test]
    async fn a_program_that_takes_too_long_is_killed_with_its_children() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("children");
        let script = format!("sleep 1000 & echo $! > {0}; echo $$ >> {0}; wait", file.display());
        let failed = deliver(&script, Duration::from_millis(700)).await.expect_err("it hangs");
        assert!(failed.why.contains("time"), "{failed:?}");
        let children = std::fs::read_to_string(file).expect("it has begun");
        for child in children.lines() {
            let state = || std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            let is_gone = |state: &str| state.is_empty() || state.contains(") Z");
            // A killed process ends when it is scheduled next.
            for _ in 0..500 {
                if is_gone(&state()) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(is_gone(&state()), "{}", state());
        }
        // A background child keeps the streams open after the program ends.
        assert_eq!(deliver("sleep 1000 & exit 0", Duration::from_secs(60)).await, Ok(()));
    }
}
