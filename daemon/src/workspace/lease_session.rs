//! Lease of the board's worker at the host of a directory, and requests to the host under it.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::host_dir::HostDir;
use crate::client::Client;
use crate::failure::Failure;
use crate::serve::tokens;

/// Timeout of a response, which may have to wait for other agents.
const ANSWER: Duration = Duration::from_secs(60);

/// Time without a response before the host's liveness is probed, and timeout of the probe. The probe needs no board, so
/// a host that fails it is stopped or hung.
const PROBE_DELAY: Duration = Duration::from_secs(2);
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Records searched for recent changes.
const RECENT_RECORDS: u64 = 200;

/// Records searched for an edit made shortly before all agents moved to another host.
const SEARCHED_RECORDS: u64 = 1000;

/// Answer to an edit after its original answer was lost.
const MADE: &str = "The edit was made. What it made of the file was not heard: view the file before you go on.";

/// Code of an interrupted request: the same host does it, or has done it, on a retry.
const INTERRUPTED: &str = "interrupted";

/// Codes after which lease, board or host must be looked up again.
const GONE: &str = "lease_over invocation_closed board_over board_not_running board_closed no_such_board no_workspace \
    unauthorized";

pub(super) struct LeaseSession {
    pub(super) place: Arc<HostDir>,
    pub(super) client: Client,
    pub(super) pid: u32,
    pub(super) board: String,
    pub(super) lease: String,
    /// True if the agent has worked under an earlier lease.
    pub(super) has_worked: bool,
}

pub(super) enum HostRequest {
    /// File command, and true if it is an edit.
    Command(Value, bool),
    LastCommits,
}

pub(super) enum HostError {
    /// Host, board or lease has been replaced, or will be.
    Replaced(Failure),
    /// Interrupted; can be retried at the same host.
    Interrupted(Failure),
    /// Rejected by the host, with this problem document.
    Rejected(Value),
    /// Permanent until the operator fixes the cause.
    Permanent(Failure),
}

impl HostRequest {
    pub(super) const fn is_edit(&self) -> bool {
        matches!(self, Self::Command(_, true))
    }
}

pub(super) fn host_gone(why: &str) -> Failure {
    Failure::failed("host_gone", why).help("try again; the host's errors are in .patchboard/host.log")
}

pub(super) fn new_key() -> Result<String, Failure> {
    tokens::random().map(|text| text.trim_start_matches(tokens::PREFIX).to_owned())
}

/// Sends a request, possibly as a retry. A command `tried` under another lease may have been applied without an answer,
/// so the journal is searched for it. Under the same lease the idempotency key suffices.
pub(super) async fn send_once(
    session: &Arc<LeaseSession>,
    request: &HostRequest,
    last_attempt: &mut Option<(Arc<LeaseSession>, String)>,
) -> Result<Value, HostError> {
    let key = match last_attempt {
        Some((then, key)) if (&then.board, &then.lease) == (&session.board, &session.lease) => key.clone(),
        Some((_, key)) if matches!(request, HostRequest::Command(..)) && session.has_committed(key).await? => {
            return Ok(json!({"text": MADE, "data": null}));
        }
        Some(_) | None => new_key().map_err(HostError::Permanent)?,
    };
    *last_attempt = Some((Arc::clone(session), key.clone()));
    session.answer(request, &key).await
}

impl LeaseSession {
    async fn answer(&self, request: &HostRequest, key: &str) -> Result<Value, HostError> {
        let board = format!("/v1/boards/{}", self.board);
        match request {
            HostRequest::Command(body, _) => {
                let path = format!("{board}/leases/{}/files", self.lease);
                let mut body = body.clone();
                body["has_earlier_reads"] = self.has_worked.into();
                self.ask(&path, Some(&body), Some(key)).await
            }
            HostRequest::LastCommits => self.commits_of_last(RECENT_RECORDS, None).await,
        }
    }

    /// Returns the commits among the last records, or those of one idempotency key.
    async fn commits_of_last(&self, records: u64, key: Option<&str>) -> Result<Value, HostError> {
        let board = format!("/v1/boards/{}", self.board);
        let head = self.ask(&board, None, None).await?["head"]["seq"].as_u64().unwrap_or_default();
        let after = head.saturating_sub(records);
        let key = key.map(|key| format!("&key={key}")).unwrap_or_default();
        self.ask(&format!("{board}/journal?kind=committed&limit={records}&after={after}{key}"), None, None).await
    }

    /// Returns true if an edit with a lost answer is committed. Searches recent records only.
    async fn has_committed(&self, key: &str) -> Result<bool, HostError> {
        let page = self.commits_of_last(SEARCHED_RECORDS, Some(key)).await?;
        Ok(page["records"].as_array().is_some_and(|records| !records.is_empty()))
    }

    /// Sends a request. Returns the host's answer; null if it is empty.
    pub(super) async fn ask(&self, path: &str, body: Option<&Value>, key: Option<&str>) -> Result<Value, HostError> {
        let mut headers = HeaderMap::new();
        if let Some(key) = key.and_then(|key| HeaderValue::from_str(key).ok()) {
            headers.insert(HeaderName::from_static("idempotency-key"), key);
        }
        let exchange = async {
            let response = self.client.send(path, headers, body.map(ToString::to_string), ANSWER).await?;
            let status = response.status();
            let bytes = response.bytes().await.map_err(|error| self.client.unreachable(path, error))?;
            Ok((status, bytes))
        };
        let (status, bytes) = tokio::select! {
            answered = exchange => answered.map_err(|_: Failure| self.no_answer())?,
            missed = self.until_unresponsive() => return Err(missed),
        };
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let code = answer["code"].as_str().unwrap_or_default();
        if status.is_success() {
            return Ok(answer);
        }
        let detail = answer["detail"].as_str().unwrap_or("what answers there is no host");
        match code {
            INTERRUPTED => Err(HostError::Interrupted(Failure::failed(INTERRUPTED, detail))),
            code if GONE.split(' ').any(|gone| gone == code) || code.is_empty() => {
                Err(HostError::Replaced(host_gone(detail)))
            }
            _ => Err(HostError::Rejected(answer)),
        }
    }

    /// Resolves once the host is unresponsive or unreachable.
    async fn until_unresponsive(&self) -> HostError {
        loop {
            sleep(PROBE_DELAY).await;
            match timeout(PROBE_TIMEOUT, self.client.send("/healthz", HeaderMap::new(), None, ANSWER)).await {
                Ok(Ok(_)) => {}
                // A stopped process still accepts connections.
                Ok(Err(_)) => return self.no_answer(),
                Err(_) => return HostError::Permanent(self.host_unresponsive()),
            }
        }
    }

    fn no_answer(&self) -> HostError {
        HostError::Replaced(host_gone(&format!("the host of the directory, process {}, gave no answer", self.pid)))
    }

    fn host_unresponsive(&self) -> Failure {
        let pid = self.pid;
        let what = format!(
            "the host of the directory, process {pid}, does not answer; whether an edit that was under way is made is not \
             known before it does"
        );
        Failure::failed("host_unresponsive", what).help(format!(
            "have somebody continue the process (kill -CONT {pid}) or end it (kill -KILL {pid}), then another comes in its \
             place; view a file again before you go on"
        ))
    }
}
