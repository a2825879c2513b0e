//! Connection of one agent to the host of its directory: a leased call of the board's worker, held while the agent is
//! present.
//!
//! A host may exit at any time. Then another one is started, and the agent's request is sent to it again. No edit is
//! applied twice: the journal is first searched for the edit. If it is absent, the retried edit is rejected, because
//! the new lease does not know the agent's read set. The same holds if `.patchboard` is deleted.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use patchboard_agents::config::Shared;
use patchboard_agents::workspace::editor::is_edit;
use patchboard_agents::workspace::session::Told;
use patchboard_agents::workspace::text::author::{NAMED_SO, is_author_name};
use patchboard_agents::workspace::text::command::PATH_ARGUMENTS;
use patchboard_agents::workspace::text::intent::author_name;
use serde_json::{Value, json};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::changes::changes;
use super::launch::launch;
use super::place::{Address, Place};
use super::sitting::{Asked, Missed, Sitting, gone, new_key, once};
use super::turns::Turn;
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::output::short;
use crate::serve::mcp::editor::USUAL_ROOM;

/// Worker that agents act as, and the signal that creates a call of it.
const WORKER: &str = "editor";
const JOIN: &str = "join";

/// Duration of a lease, and the interval of its renewal.
const LEASE_SECONDS: u64 = 60;
const RENEWED_EVERY: Duration = Duration::from_secs(10);

/// Wait for a requested call, in seconds, and the maximum number of requests.
const WAIT_SECONDS: u64 = 3;
const ASKED_FOR_MAX: u32 = 4;

/// Code for a path outside the directory.
const OUTSIDE: &str = "bad_arguments";

/// Maximum time without a host, and the bounds of the polling interval.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_millis(500);

/// Timeout for the last request of a leaving agent.
const LEAVE: Duration = Duration::from_secs(1);

/// Maximum characters of a client's name, and bytes of a given name; a number may be appended.
const NAME_CHARS_MAX: usize = 48;
const NAME_BYTES_MAX: usize = 60;

/// Maximum characters of a path that an error quotes.
const PATH_CHARS_MAX: usize = 200;

/// Name of an agent without a client name.
const NAMELESS: &str = "agent";

/// Connection of one agent to its directory.
pub(crate) struct Desk {
    here: Mutex<Here>,
    /// Requested name.
    wanted: Option<String>,
    /// Idempotency key of its leases, for a retry after a lost response.
    key: String,
    /// Maximum characters of a result.
    room: usize,
    /// True once the agent has read or changed a file.
    has_worked: AtomicBool,
    sitting: AsyncMutex<Option<Arc<Sitting>>>,
    /// Command under way.
    under_way: Mutex<Option<AbortHandle>>,
}

/// Open directory, and the agent's name in it.
struct Here {
    place: Arc<Place>,
    /// Name of the agent, once known, and the lock that reserves it.
    name: Option<(String, File)>,
}

impl Desk {
    /// Creates the connection of an agent. `name` overrides the client's name; `room` limits the characters of a
    /// result.
    pub(crate) fn new(place: Place, name: Option<&str>, room: Option<u32>) -> Result<Self, Failure> {
        if let Some(name) = name.filter(|name| !is_author_name(name) || name.len() > NAME_BYTES_MAX) {
            return Err(Failure::refused("bad_name", format!("{name} is no name for an agent"))
                .help(format!("{NAMED_SO}, and is at most {NAME_BYTES_MAX} bytes long")));
        }
        Ok(Self {
            here: Mutex::new(Here { place: Arc::new(place), name: None }),
            wanted: name.map(str::to_owned),
            key: new_key()?,
            room: room.and_then(|room| usize::try_from(room).ok()).unwrap_or(USUAL_ROOM),
            has_worked: AtomicBool::new(false),
            sitting: AsyncMutex::default(),
            under_way: Mutex::default(),
        })
    }

    /// Sets the client's name, and returns the agent's name. Only the first call has an effect.
    pub(crate) fn meet(&self, client: Option<&str>) -> Result<String, Failure> {
        let mut here = self.here()?;
        if let Some((name, _)) = &here.name {
            return Ok(name.clone());
        }
        let client: String = author_name(client.unwrap_or_default()).chars().take(NAME_CHARS_MAX).collect();
        let client = if client.is_empty() { NAMELESS } else { &client };
        let base = self.wanted.as_deref().unwrap_or(client);
        let name = here.place.name(base, self.wanted.is_some())?;
        Ok(here.name.insert(name).0.clone())
    }

    /// Describes the directory and the agent's name, for the instructions.
    pub(crate) fn introduction(&self) -> String {
        let name = self.meet(None).unwrap_or_default();
        let root = self.here().map(|here| here.place.directory().display().to_string()).unwrap_or_default();
        let taken = self.wanted.as_ref().filter(|wanted| **wanted != name);
        let taken = taken.map_or(String::new(), |wanted| format!(", as another agent is called {wanted} now"));
        format!(
            "The directory is {root}: files are named from there, like src/main.py, and {root}/src/main.py is understood as \
             well. Here you are called {name}{taken}."
        )
    }

    /// Reads the operator's settings for the directory.
    pub(crate) fn settings(&self) -> Result<Shared, Failure> {
        self.here()?.place.settings()
    }

    /// Returns the open directory; opens it again if its `.patchboard` was deleted.
    fn here(&self) -> Result<MutexGuard<'_, Here>, Failure> {
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        let is_called = here.name.as_ref().is_none_or(|(name, lock)| here.place.is_called(name, lock));
        if !is_called || !here.place.is_there() {
            let place = Place::open(here.place.directory())?;
            let name = here.name.as_ref().map(|(name, _)| place.name(name, true)).transpose()?;
            *here = Here { place: Arc::new(place), name };
        }
        Ok(here)
    }

    /// Runs a file command to completion, even if the caller leaves: later commands must follow it. An error is one
    /// that the agent cannot fix.
    pub(crate) async fn call(self: &Arc<Self>, turn: Arc<Turn>, arguments: Value) -> Result<Told, Failure> {
        let own = Arc::clone(self);
        let called = tokio::spawn(async move { own.command(&turn, arguments).await });
        *self.under_way.lock().unwrap_or_else(PoisonError::into_inner) = Some(called.abort_handle());
        called.await.unwrap_or_else(|error| Err(Failure::failed("internal", error)))
    }

    async fn command(&self, turn: &Turn, mut arguments: Value) -> Result<Told, Failure> {
        let name = self.meet(None)?;
        if let Err(told) = relative(&self.here()?.place, &mut arguments) {
            return Ok(told);
        }
        // Listing files does not read them.
        let is_work = arguments["command"] != "list";
        let is_edit = arguments["command"].as_str().is_some_and(is_edit);
        let order = turn.order();
        let body = json!({"worker": WORKER, "name": name, "room": self.room, "order": order, "arguments": arguments});
        let answer = self.insist(&Asked::Command(body, is_edit)).await?;
        turn.answered();
        self.has_worked.fetch_or(is_work, Ordering::Relaxed);
        Ok(match answer {
            Ok(answer) => {
                let text = answer["text"].as_str().unwrap_or_default().to_owned();
                Told { text, data: answer["data"].clone(), code: None }
            }
            Err(problem) => told(problem),
        })
    }

    /// Returns the recent changes and their authors, the newest first.
    pub(crate) async fn changes(&self) -> Result<Told, Failure> {
        match self.insist(&Asked::LastCommits).await? {
            Ok(page) => Ok(changes(&page, &self.meet(None)?)),
            Err(problem) => Ok(told(problem)),
        }
    }

    /// Sends a request to the host, and to its successor if it is gone.
    async fn insist(&self, asked: &Asked) -> Result<Result<Value, Value>, Failure> {
        let until = Instant::now() + PATIENCE;
        let (mut tried, mut pause) = (None, LOOK_MIN);
        loop {
            let sitting = self.sit(until).await?;
            let failure = match once(&sitting, asked, &mut tried).await {
                // The answer of a deposed host is ignored, except that an edit has been made.
                Ok(answer) if asked.is_edit() || sitting.place.is_there() => return Ok(Ok(answer)),
                Err(Missed::Refused(problem)) if sitting.place.is_there() => return Ok(Err(problem)),
                Err(Missed::Never(failure)) => return Err(failure),
                Err(Missed::Broken(failure)) => failure,
                Err(Missed::Gone(failure)) => {
                    self.rise(&sitting).await;
                    failure
                }
                Ok(_) | Err(Missed::Refused(_)) => {
                    self.rise(&sitting).await;
                    gone("what the directory has of the host was taken away")
                }
            };
            if Instant::now() > until {
                return Err(failure);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LOOK_MAX);
        }
    }

    /// Returns the current lease, or takes a new one.
    async fn sit(&self, until: Instant) -> Result<Arc<Sitting>, Failure> {
        let mut kept = self.sitting.lock().await;
        let mut pause = LOOK_MIN;
        loop {
            let place = Arc::clone(&self.here()?.place);
            if let Some(sitting) = kept.as_ref().filter(|sitting| Arc::ptr_eq(&sitting.place, &place)) {
                return Ok(Arc::clone(sitting));
            }
            let failure = match self.lease(place).await {
                Ok(sitting) => return Ok(Arc::clone(kept.insert(Arc::new(sitting)))),
                Err(Missed::Gone(failure) | Missed::Broken(failure)) => failure,
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

    /// Leases the oldest waiting call, possibly one left by a departed agent; if there is none, requests one.
    async fn lease(&self, place: Arc<Place>) -> Result<Sitting, Missed> {
        let Address { port, token, board, pid } = host(&place).await?;
        let client = Client::at(&format!("http://127.0.0.1:{port}"), token).map_err(Missed::Gone)?;
        let is_anew = self.has_worked.load(Ordering::Relaxed);
        let mut sitting = Sitting { place, client, pid, board, lease: String::new(), is_anew };
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

    /// Renews the lease while polled.
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

    /// Releases the lease, and aborts the command under way.
    pub(crate) async fn leave(&self) {
        if let Some(command) = self.under_way.lock().unwrap_or_else(PoisonError::into_inner).take() {
            command.abort();
        }
        if let Some(sitting) = self.sitting.lock().await.take() {
            let path = format!("/v1/boards/{}/leases/{}/answer", sitting.board, sitting.lease);
            let answer = json!({"worker": WORKER, "patch": []});
            drop(timeout(LEAVE, sitting.ask(&path, Some(&answer), None)).await);
        }
    }
}

/// Returns the address of the host; starts one if there is none.
async fn host(place: &Arc<Place>) -> Result<Address, Missed> {
    let own = Arc::clone(place);
    // Runs to completion even if the request is cancelled.
    let launched = tokio::spawn(async move { launch(&own).await }).await;
    match launched.unwrap_or_else(|error| Err(Failure::failed("internal", error))) {
        Err(Failure::Told(told)) if told.exit == Exit::Refused => return Err(Missed::Never(Failure::Told(told))),
        Err(failure) => return Err(Missed::Gone(failure)),
        Ok(()) => {}
    }
    let missing =
        || Missed::Gone(Failure::failed("no_host", "the host of the directory does not say how it is reached"));
    place.address().ok_or_else(missing)
}

/// Makes absolute paths in the arguments relative to the directory.
fn relative(place: &Place, arguments: &mut Value) -> Result<(), Told> {
    for name in PATH_ARGUMENTS {
        let Some(path) = arguments[name].as_str().filter(|path| path.starts_with('/')) else { continue };
        let within = place.within(Path::new(path));
        let Some(within) = within.as_deref().and_then(Path::to_str) else {
            let root = place.directory().display();
            let path = short(path, PATH_CHARS_MAX);
            let text =
                format!("The arguments cannot be used: {path} is not in {root}, which is the directory that you edit.");
            let data = json!({"code": OUTSIDE, "message": text});
            return Err(Told { text, data, code: Some(OUTSIDE.to_owned()) });
        };
        let within = if within.is_empty() { "." } else { within };
        arguments[*name] = within.into();
    }
    Ok(())
}

/// Converts a problem document into an editor's answer.
fn told(problem: Value) -> Told {
    let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
    let code = Some(text("code"));
    match problem.get("told") {
        Some(data) => Told { text: text("detail"), data: data.clone(), code },
        None => Told { text: format!("{} {}", text("detail"), text("help")).trim().to_owned(), data: problem, code },
    }
}
