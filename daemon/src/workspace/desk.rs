//! One agent's way to the host of the directory, whoever that is: a call of the board's worker that it has leased for as long
//! as it is there.
//!
//! A host may go at any time. Then another process becomes it, perhaps this one, and what the agent asked for is asked again
//! there. Nothing is done twice by that: it is looked first whether the journal has the edit. If not, it is refused, as under
//! the lease that comes then it is not known what was read.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use patchboard_agents::workspace::session::Told;
use patchboard_agents::workspace::text::intent::author_name;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep, timeout};

use super::place::{Address, Place};
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::serve::host::Host;
use crate::serve::tokens;

/// The worker whose calls the agents lease, and what has one made.
const WORKER: &str = "editor";
const JOIN: &str = "join";

/// How long a lease lasts, and how often it is renewed.
const LEASE_SECONDS: u64 = 60;
const RENEWED_EVERY: Duration = Duration::from_secs(10);

/// How long a call is waited for that was asked for, and how often it is asked for.
const WAIT_SECONDS: u64 = 3;
const ASKED_FOR_MAX: u32 = 4;

/// How long there may be no host, and how often it is looked for one.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_millis(500);

/// How long an answer may take, and a good-bye.
const ANSWER: Duration = Duration::from_secs(60);
const LEAVE: Duration = Duration::from_secs(1);

/// Characters of a client's name; a number comes behind it.
const NAME_CHARS_MAX: usize = 48;

/// What an agent is called whose client does not say.
const NAMELESS: &str = "agent";

/// Records that are looked at for what has changed, and changes that are told.
const LOOKED_AT: u64 = 200;

/// Records that are looked at for an edit that was made a moment ago, before all agents came to another host.
const LOOKED_FOR: u64 = 1000;
const CHANGES_MAX: usize = 20;

/// Names of files of one change that are told.
const PATHS_MAX: usize = 8;

/// What is told of an edit whose answer was lost.
const MADE: &str = "The edit was made. What it made of the file was not heard: view the file before you go on.";

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
    "interrupted",
];

/// One agent at the directory.
pub(crate) struct Desk {
    place: Arc<Place>,
    /// What it is called, once that is known, and what keeps others from being called so.
    name: Mutex<Option<(String, Option<File>)>>,
    /// What its leases are found by when an answer was lost.
    key: String,
    /// Characters that it is shown of a result, if it says so.
    room: Option<u32>,
    /// This process, if it is the host.
    host: Arc<AsyncMutex<Option<Host>>>,
    /// Whether it has read or changed something so far.
    has_worked: AtomicBool,
    sitting: AsyncMutex<Option<Arc<Sitting>>>,
}

/// A lease, and where it was given.
struct Sitting {
    client: Client,
    board: String,
    lease: String,
    /// Whether it has worked before under another lease.
    is_anew: bool,
}

/// What is asked of the host.
enum Asked {
    /// To do what an editor is told.
    Command(Value),
    /// What was committed last.
    LastCommits,
}

/// Why there is no answer.
enum Missed {
    /// There is another host, board or lease by now, or will be.
    Gone(Failure),
    /// That is the answer.
    Refused(Value),
    /// There can be no host here before something is mended.
    Never(Failure),
}

impl Desk {
    /// An agent that is called `name`, or as its client says, and is shown so many characters of a result.
    pub(crate) fn new(place: Place, name: Option<&str>, room: Option<u32>) -> Result<Self, Failure> {
        if let Some(name) = name.filter(|name| name.is_empty() || author_name(name) != **name || *name == "external") {
            return Err(Failure::refused("bad_name", format!("{name} is no name for an agent"))
                .help("a name has letters, digits, `.`, `_` and `-`, at most 64"));
        }
        Ok(Self {
            place: Arc::new(place),
            name: Mutex::new(name.map(|name| (name.to_owned(), None))),
            key: new_key()?,
            room,
            host: Arc::default(),
            has_worked: AtomicBool::new(false),
            sitting: AsyncMutex::default(),
        })
    }

    /// Hears what its client calls itself. The first word counts.
    pub(crate) fn meet(&self, client: Option<&str>) -> Result<String, Failure> {
        let mut known = self.name.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((name, _)) = &*known {
            return Ok(name.clone());
        }
        let client: String = author_name(client.unwrap_or_default()).chars().take(NAME_CHARS_MAX).collect();
        let client = if client.is_empty() { NAMELESS } else { &client };
        let (number, lock) = self.place.number()?;
        let name = format!("{client}-{number}");
        *known = Some((name.clone(), Some(lock)));
        Ok(name)
    }

    /// Does what the arguments of an editor say; an error is one that the agent can do nothing about.
    pub(crate) async fn call(&self, arguments: Value) -> Result<Told, Failure> {
        let name = self.meet(None)?;
        // Which files there are is no reading of them.
        let is_work = arguments["command"] != "list";
        let body = json!({"worker": WORKER, "name": name, "room": self.room, "arguments": arguments});
        let asked = Asked::Command(body);
        let answer = self.insist(&asked).await?;
        self.has_worked.fetch_or(is_work, Ordering::Relaxed);
        Ok(match answer {
            Ok(answer) => {
                let text = answer["text"].as_str().unwrap_or_default().to_owned();
                Told { text, data: answer["data"].clone(), code: None }
            }
            Err(problem) => told(problem),
        })
    }

    /// Who changed what lately, the newest first.
    pub(crate) async fn changes(&self) -> Result<Told, Failure> {
        match self.insist(&Asked::LastCommits).await? {
            Ok(page) => Ok(changes(&page, &self.meet(None)?)),
            Err(problem) => Ok(told(problem)),
        }
    }

    /// Asks the host, and the next one if that is gone.
    async fn insist(&self, asked: &Asked) -> Result<Result<Value, Value>, Failure> {
        let until = Instant::now() + PATIENCE;
        let (mut tried, mut pause) = (None, LOOK_MIN);
        loop {
            let sitting = self.sit(until).await?;
            match once(&sitting, asked, &mut tried).await {
                Ok(answer) => return Ok(Ok(answer)),
                Err(Missed::Refused(problem)) => return Ok(Err(problem)),
                Err(Missed::Never(failure)) => return Err(failure),
                Err(Missed::Gone(failure)) => {
                    self.rise(&sitting).await;
                    if Instant::now() > until {
                        return Err(failure);
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(LOOK_MAX);
                }
            }
        }
    }

    /// The lease that it has, or another one.
    async fn sit(&self, until: Instant) -> Result<Arc<Sitting>, Failure> {
        let mut kept = self.sitting.lock().await;
        if let Some(sitting) = &*kept {
            return Ok(Arc::clone(sitting));
        }
        let mut pause = LOOK_MIN;
        loop {
            let failure = match self.lease().await {
                Ok(sitting) => return Ok(Arc::clone(kept.insert(Arc::new(sitting)))),
                Err(Missed::Gone(failure)) => failure,
                Err(Missed::Never(failure)) => return Err(failure),
                Err(Missed::Refused(problem)) => {
                    let detail = problem["detail"].as_str().unwrap_or("the host does not say why").to_owned();
                    return Err(Failure::failed("host_refused", detail));
                }
            };
            if Instant::now() > until {
                return Err(failure);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LOOK_MAX);
        }
    }

    async fn rise(&self, sitting: &Arc<Sitting>) {
        let mut kept = self.sitting.lock().await;
        if kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, sitting)) {
            *kept = None;
        }
    }

    /// Leases the oldest call that waits, which may be that of an agent that is gone; if there is none, has one made.
    async fn lease(&self) -> Result<Sitting, Missed> {
        let Address { port, token, board, .. } = self.host().await?;
        let client = Client::at(&format!("http://127.0.0.1:{port}"), token).map_err(Missed::Gone)?;
        let is_anew = self.has_worked.load(Ordering::Relaxed);
        let mut sitting = Sitting { client, board, lease: String::new(), is_anew };
        let path = format!("/v1/boards/{}/leases", sitting.board);
        for asked in 0..=ASKED_FOR_MAX {
            let wait = if asked == 0 { 0 } else { WAIT_SECONDS };
            let wanted = json!({"worker": WORKER, "seconds": LEASE_SECONDS, "wait": wait});
            let leased = sitting.ask(&path, Some(&wanted), Some(&self.key)).await?;
            if let Some(lease) = leased["lease"].as_str() {
                sitting.lease = lease.to_owned();
                return Ok(sitting);
            }
            let signals = format!("/v1/boards/{}/signals", sitting.board);
            sitting.ask(&signals, Some(&json!({"name": JOIN})), None).await?;
        }
        Err(Missed::Gone(Failure::failed("no_seat", "there are as many agents at the directory as can be")))
    }

    /// How the host is reached. If there is none, this process becomes it.
    async fn host(&self) -> Result<Address, Missed> {
        let (own, place) = (Arc::clone(&self.host), Arc::clone(&self.place));
        // To its end, also if the request that needs it is given up.
        let started = tokio::spawn(async move {
            let mut own = own.lock().await;
            if own.is_none() {
                *own = Host::start(&place).await?;
            }
            Ok(())
        });
        let started = started.await.unwrap_or_else(|error| Err(Failure::failed("internal", error)));
        started.map_err(|failure| match failure {
            Failure::Told(told) if told.exit == Exit::Refused => Missed::Never(Failure::Told(told)),
            failure => Missed::Gone(failure),
        })?;
        let missing =
            || Missed::Gone(Failure::failed("no_host", "the host of the directory does not say how it is reached"));
        self.place.address().ok_or_else(missing)
    }

    /// Keeps the lease for as long as it is polled.
    pub(crate) async fn keep(&self) {
        loop {
            sleep(RENEWED_EVERY).await;
            let Some(sitting) = self.sitting.lock().await.clone() else { continue };
            let path = format!("/v1/boards/{}/leases/{}/renew", sitting.board, sitting.lease);
            let wanted = json!({"worker": WORKER, "seconds": LEASE_SECONDS});
            if let Err(Missed::Gone(_)) = sitting.ask(&path, Some(&wanted), None).await {
                self.rise(&sitting).await;
                if let Err(Failure::Told(told)) = self.sit(Instant::now() + PATIENCE).await {
                    tracing::warn!(code = told.code, "nobody is the host of the directory: {}", told.message);
                }
            }
        }
    }

    /// Says that it goes, and goes.
    pub(crate) async fn leave(&self) {
        if let Some(sitting) = self.sitting.lock().await.take() {
            let path = format!("/v1/boards/{}/leases/{}/answer", sitting.board, sitting.lease);
            let answer = json!({"worker": WORKER, "patch": []});
            drop(timeout(LEAVE, sitting.ask(&path, Some(&answer), None)).await);
        }
        if let Some(host) = self.host.lock().await.take() {
            host.stop().await;
        }
    }
}

/// Asks once more, or for the first time. What was `tried` before under another lease may have been done without an answer;
/// under the same one the key is enough to have it done once.
async fn once(
    sitting: &Arc<Sitting>,
    asked: &Asked,
    tried: &mut Option<(Arc<Sitting>, String)>,
) -> Result<Value, Missed> {
    let key = match tried {
        Some((then, key)) if (&then.board, &then.lease) == (&sitting.board, &sitting.lease) => key.clone(),
        Some((_, key)) if matches!(asked, Asked::Command(_)) && sitting.has_made(key).await? => {
            return Ok(json!({"text": MADE, "data": null}));
        }
        Some(_) | None => new_key().map_err(Missed::Never)?,
    };
    *tried = Some((Arc::clone(sitting), key.clone()));
    sitting.answer(asked, &key).await
}

/// What nobody has used to make repetitions known.
fn new_key() -> Result<String, Failure> {
    tokens::random().map(|text| text.trim_start_matches(tokens::PREFIX).to_owned())
}

impl Sitting {
    async fn answer(&self, asked: &Asked, key: &str) -> Result<Value, Missed> {
        let board = format!("/v1/boards/{}", self.board);
        match asked {
            Asked::Command(body) => {
                let path = format!("{board}/leases/{}/files", self.lease);
                let mut body = body.clone();
                body["anew"] = self.is_anew.into();
                self.ask(&path, Some(&body), Some(key)).await
            }
            Asked::LastCommits => self.commits_of_last(LOOKED_AT).await,
        }
    }

    /// The commits among so many last records.
    async fn commits_of_last(&self, records: u64) -> Result<Value, Missed> {
        let board = format!("/v1/boards/{}", self.board);
        let head = self.ask(&board, None, None).await?["head"]["seq"].as_u64().unwrap_or_default();
        let after = head.saturating_sub(records);
        self.ask(&format!("{board}/journal?kind=committed&limit={records}&after={after}"), None, None).await
    }

    /// Whether an edit was made whose answer was lost. That was a moment ago.
    async fn has_made(&self, key: &str) -> Result<bool, Missed> {
        let page = self.commits_of_last(LOOKED_FOR).await?;
        let mut tokens = page["records"].as_array().into_iter().flatten().filter_map(|it| it["by"]["token"].as_str());
        Ok(tokens.any(|token| token.rsplit('/').next() == Some(key)))
    }

    /// What the host answers; null if that is nothing.
    async fn ask(&self, path: &str, body: Option<&Value>, key: Option<&str>) -> Result<Value, Missed> {
        let mut headers = HeaderMap::new();
        if let Some(key) = key.and_then(|key| HeaderValue::from_str(key).ok()) {
            headers.insert(HeaderName::from_static("idempotency-key"), key);
        }
        let response = match body {
            Some(body) => self.client.send(path, headers, body.to_string(), ANSWER).await,
            None => self.client.fetch(path, ANSWER).await,
        };
        let response = response.map_err(Missed::Gone)?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(|error| Missed::Gone(self.client.unreachable(path, error)))?;
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let code = answer["code"].as_str().unwrap_or_default();
        if status.is_success() {
            return Ok(answer);
        }
        if GONE.contains(&code) || code.is_empty() {
            let detail = answer["detail"].as_str().unwrap_or("what answers there is no host").to_owned();
            return Err(Missed::Gone(Failure::failed("host_gone", detail)));
        }
        Err(Missed::Refused(answer))
    }
}

/// A problem document as an editor tells it.
fn told(problem: Value) -> Told {
    let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
    let code = Some(text("code"));
    match problem.get("told") {
        Some(data) => Told { text: text("detail"), data: data.clone(), code },
        None => Told { text: format!("{} {}", text("detail"), text("help")).trim().to_owned(), data: problem, code },
    }
}

/// The last edits of a page of the journal, in words.
fn changes(page: &Value, own: &str) -> Told {
    let records = page["records"].as_array().map(Vec::as_slice).unwrap_or_default();
    let edits = records.iter().rev().filter_map(|record| {
        let written: Value = serde_json::from_str(record["written"].as_str()?).ok()?;
        let by = written["name"].as_str().or(record["by"]["worker"].as_str())?;
        let whose = if by == own { " (you)" } else { "" };
        let changes = written["changes"].as_array()?;
        let named = changes.iter().take(PATHS_MAX).filter_map(|change| change["path"].as_str());
        let mut paths = named.collect::<Vec<_>>().join(", ");
        if changes.len() > PATHS_MAX {
            paths.push_str(&format!(" and {} more", changes.len() - PATHS_MAX));
        }
        let intent = written["intent"].as_str().map_or(String::new(), |intent| format!(": {intent}"));
        Some(format!("{by}{whose} changed {paths}{intent}"))
    });
    let lines: Vec<String> = edits.take(CHANGES_MAX).collect();
    let text = match lines.is_empty() {
        true => "Nobody has changed anything lately.".to_owned(),
        false => lines.join("\n"),
    };
    Told { text, data: Value::Null, code: None }
}
