//! A lease of the board's worker at the host of the directory, what is asked of the host under it, and why there may be no
//! answer.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::place::Place;
use crate::client::Client;
use crate::failure::Failure;
use crate::serve::tokens;

/// How long an answer may take, which may have to wait for others.
const ANSWER: Duration = Duration::from_secs(60);

/// How long there may be no answer before the host is asked whether it is alive, and how long it has to say so. That needs
/// nothing of the board, so who does not say it stands still.
const QUIET: Duration = Duration::from_secs(2);
const SIGN_OF_LIFE: Duration = Duration::from_secs(3);

/// Records that are looked at for what has changed.
const LOOKED_AT: u64 = 200;

/// Records that are looked at for an edit that was made a moment ago, before all agents came to another host.
const LOOKED_FOR: u64 = 1000;

/// What is told of an edit whose answer was lost.
const MADE: &str = "The edit was made. What it made of the file was not heard: view the file before you go on.";

/// The code of what was broken off: the same host does it, or has done it, when it is asked once more.
const INTERRUPTED: &str = "interrupted";

/// Codes that say that the lease, the board or the host is another by now.
const GONE: &[&str] = &[
    "lease_over",
    "invocation_closed",
    "board_over",
    "board_not_running",
    "board_closed",
    "no_such_board",
    "no_workspace",
    "unauthorized",
];

/// A lease, and where it was given.
pub(super) struct Sitting {
    pub(super) place: Arc<Place>,
    pub(super) client: Client,
    /// The host's process.
    pub(super) pid: u32,
    pub(super) board: String,
    pub(super) lease: String,
    /// Whether its agent has worked before under another lease.
    pub(super) is_anew: bool,
}

/// What is asked of the host.
pub(super) enum Asked {
    /// To do what an editor is told; whether that is an edit.
    Command(Value, bool),
    /// What was committed last.
    LastCommits,
}

/// Why there is no answer.
pub(super) enum Missed {
    /// There is another host, board or lease by now, or will be.
    Gone(Failure),
    /// It was broken off, and can be asked for again where it was.
    Broken(Failure),
    /// That is the answer.
    Refused(Value),
    /// There can be no answer before something is mended.
    Never(Failure),
}

impl Asked {
    pub(super) const fn is_edit(&self) -> bool {
        matches!(self, Self::Command(_, true))
    }
}

pub(super) fn gone(why: &str) -> Failure {
    Failure::failed("host_gone", why).help("try again; what the host complained of is in .patchboard/host.log")
}

/// What nobody has used to make repetitions known.
pub(super) fn new_key() -> Result<String, Failure> {
    tokens::random().map(|text| text.trim_start_matches(tokens::PREFIX).to_owned())
}

/// Asks once more, or for the first time. What was `tried` before under another lease may have been done without an answer;
/// under the same one the key is enough to have it done once.
pub(super) async fn once(
    sitting: &Arc<Sitting>,
    asked: &Asked,
    tried: &mut Option<(Arc<Sitting>, String)>,
) -> Result<Value, Missed> {
    let key = match tried {
        Some((then, key)) if (&then.board, &then.lease) == (&sitting.board, &sitting.lease) => key.clone(),
        Some((_, key)) if matches!(asked, Asked::Command(..)) && sitting.has_made(key).await? => {
            return Ok(json!({"text": MADE, "data": null}));
        }
        Some(_) | None => new_key().map_err(Missed::Never)?,
    };
    *tried = Some((Arc::clone(sitting), key.clone()));
    sitting.answer(asked, &key).await
}

impl Sitting {
    async fn answer(&self, asked: &Asked, key: &str) -> Result<Value, Missed> {
        let board = format!("/v1/boards/{}", self.board);
        match asked {
            Asked::Command(body, _) => {
                let path = format!("{board}/leases/{}/files", self.lease);
                let mut body = body.clone();
                body["anew"] = self.is_anew.into();
                self.ask(&path, Some(&body), Some(key)).await
            }
            Asked::LastCommits => self.commits_of_last(LOOKED_AT, None).await,
        }
    }

    /// The commits among so many last records, or those of them that were made with a key.
    async fn commits_of_last(&self, records: u64, key: Option<&str>) -> Result<Value, Missed> {
        let board = format!("/v1/boards/{}", self.board);
        let head = self.ask(&board, None, None).await?["head"]["seq"].as_u64().unwrap_or_default();
        let after = head.saturating_sub(records);
        let key = key.map(|key| format!("&key={key}")).unwrap_or_default();
        self.ask(&format!("{board}/journal?kind=committed&limit={records}&after={after}{key}"), None, None).await
    }

    /// Whether an edit was made whose answer was lost. That was a moment ago.
    async fn has_made(&self, key: &str) -> Result<bool, Missed> {
        let page = self.commits_of_last(LOOKED_FOR, Some(key)).await?;
        Ok(page["records"].as_array().is_some_and(|records| !records.is_empty()))
    }

    /// What the host answers; null if that is nothing.
    pub(super) async fn ask(&self, path: &str, body: Option<&Value>, key: Option<&str>) -> Result<Value, Missed> {
        let mut headers = HeaderMap::new();
        if let Some(key) = key.and_then(|key| HeaderValue::from_str(key).ok()) {
            headers.insert(HeaderName::from_static("idempotency-key"), key);
        }
        let asked = async {
            let response = match body {
                Some(body) => self.client.send(path, headers, body.to_string(), ANSWER).await?,
                None => self.client.fetch(path, ANSWER).await?,
            };
            let status = response.status();
            let bytes = response.bytes().await.map_err(|error| self.client.unreachable(path, error))?;
            Ok((status, bytes))
        };
        let (status, bytes) = tokio::select! {
            answered = asked => answered.map_err(|_: Failure| self.gives_none())?,
            missed = self.falls_silent() => return Err(missed),
        };
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let code = answer["code"].as_str().unwrap_or_default();
        if status.is_success() {
            return Ok(answer);
        }
        let detail = answer["detail"].as_str().unwrap_or("what answers there is no host");
        match code {
            INTERRUPTED => Err(Missed::Broken(Failure::failed(INTERRUPTED, detail))),
            code if GONE.contains(&code) || code.is_empty() => Err(Missed::Gone(gone(detail))),
            _ => Err(Missed::Refused(answer)),
        }
    }

    /// Ends once the host says nothing at all, or is not to be reached.
    async fn falls_silent(&self) -> Missed {
        loop {
            sleep(QUIET).await;
            match timeout(SIGN_OF_LIFE, self.client.fetch("/healthz", ANSWER)).await {
                Ok(Ok(_)) => {}
                // Whoever stands still takes connections all the same.
                Ok(Err(_)) => return self.gives_none(),
                Err(_) => return Missed::Never(self.stands_still()),
            }
        }
    }

    fn gives_none(&self) -> Missed {
        Missed::Gone(gone(&format!("the host of the directory, process {}, gave no answer", self.pid)))
    }

    fn stands_still(&self) -> Failure {
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
