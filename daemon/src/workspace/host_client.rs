//! Connection of one agent to the host of its directory: a leased call of the board's worker, held while the agent is
//! present.
//!
//! A host may exit at any time. Then another one is started, and the agent's request is sent to it again. No edit is
//! applied twice: the journal is first searched for the edit. If it is absent, the retried edit is rejected, because
//! the new lease does not know the agent's read set. The same holds if `.patchboard` is deleted.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use patchboard_agents::config::WorkspaceConfig;
use patchboard_workspace::editor::is_edit;
use patchboard_workspace::session::CommandResult;
use patchboard_workspace::text::author::{NAME_RULE, is_author_name};
use patchboard_workspace::text::command::PATH_ARGUMENTS;
use patchboard_workspace::text::intent::author_name;
use serde_json::{Value, json};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::changes::changes;
use super::command_queue::RunningCommand;
use super::host_dir::{Address, HostDir};
use super::lease_session::{HostError, HostRequest, LeaseSession, host_gone, new_key, send_once};
use super::spawn_host::launch;
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::output::short;
use crate::serve::mcp::editor::DEFAULT_CHARS;

/// Worker that agents act as, and the signal that creates a call of it.
const WORKER: &str = "editor";
const JOIN: &str = "join";

/// Duration of a lease, and the interval of its renewal.
const LEASE_SECONDS: u64 = 60;
const RENEWED_EVERY: Duration = Duration::from_secs(10);

/// Wait for a requested call, in seconds, and the maximum number of requests.
const WAIT_SECONDS: u64 = 3;
const LEASE_REQUESTS_MAX: u32 = 4;

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

const NAMELESS: &str = "agent";

/// Connection of one agent to its directory.
pub(crate) struct HostClient {
    open_dir: Mutex<OpenDir>,
    requested_name: Option<String>,
    /// Idempotency key of its leases, for a retry after a lost response.
    key: String,
    /// Maximum characters of a result.
    room: usize,
    /// True once the agent has read or changed a file.
    has_worked: AtomicBool,
    session: AsyncMutex<Option<Arc<LeaseSession>>>,
    under_way: Mutex<Option<AbortHandle>>,
}

/// Open directory, and the agent's name in it.
struct OpenDir {
    place: Arc<HostDir>,
    /// Name of the agent, once known, and the lock that reserves it.
    name: Option<(String, File)>,
}

impl HostClient {
    /// Creates the connection of an agent. `name` overrides the client's name; `room` limits the characters of a
    /// result.
    pub(crate) fn new(place: HostDir, name: Option<&str>, room: Option<u32>) -> Result<Self, Failure> {
        if let Some(name) = name.filter(|name| !is_author_name(name) || name.len() > NAME_BYTES_MAX) {
            return Err(Failure::invalid_input("bad_name", format!("{name} is no name for an agent"))
                .help(format!("{NAME_RULE}, and is at most {NAME_BYTES_MAX} bytes long")));
        }
        Ok(Self {
            open_dir: Mutex::new(OpenDir { place: Arc::new(place), name: None }),
            requested_name: name.map(str::to_owned),
            key: new_key()?,
            room: room.and_then(|room| usize::try_from(room).ok()).unwrap_or(DEFAULT_CHARS),
            has_worked: AtomicBool::new(false),
            session: AsyncMutex::default(),
            under_way: Mutex::default(),
        })
    }

    /// Sets the client's name, and returns the agent's name. Only the first call has an effect.
    pub(crate) fn resolve_name(&self, client: Option<&str>) -> Result<String, Failure> {
        let mut dir = self.open_dir()?;
        if let Some((name, _)) = &dir.name {
            return Ok(name.clone());
        }
        let client: String = author_name(client.unwrap_or_default()).chars().take(NAME_CHARS_MAX).collect();
        let client = if client.is_empty() { NAMELESS } else { &client };
        let base = self.requested_name.as_deref().unwrap_or(client);
        let name = dir.place.name(base, self.requested_name.is_some())?;
        Ok(dir.name.insert(name).0.clone())
    }

    /// Describes the directory and the agent's name, for the instructions.
    pub(crate) fn introduction(&self) -> String {
        let name = self.resolve_name(None).unwrap_or_default();
        let root = self.open_dir().map(|dir| dir.place.directory().display().to_string()).unwrap_or_default();
        let taken = self.requested_name.as_ref().filter(|wanted| **wanted != name);
        let taken = taken.map_or(String::new(), |wanted| format!(", as another agent is called {wanted} now"));
        format!(
            "The directory is {root}: files are named from there, like src/main.py, and {root}/src/main.py is understood as \
             well. Here you are called {name}{taken}."
        )
    }

    pub(crate) fn settings(&self) -> Result<WorkspaceConfig, Failure> {
        self.open_dir()?.place.settings()
    }

    /// Returns the open directory; opens it again if its `.patchboard` was deleted.
    fn open_dir(&self) -> Result<MutexGuard<'_, OpenDir>, Failure> {
        let mut dir = self.open_dir.lock();
        let is_called = dir.name.as_ref().is_none_or(|(name, lock)| dir.place.holds_name(name, lock));
        if !is_called || !dir.place.is_current() {
            let place = HostDir::open(dir.place.directory())?;
            let name = dir.name.as_ref().map(|(name, _)| place.name(name, true)).transpose()?;
            *dir = OpenDir { place: Arc::new(place), name };
        }
        Ok(dir)
    }

    /// Runs a file command to completion, even if the caller leaves: later commands must follow it. An error is one
    /// that the agent cannot fix.
    pub(crate) async fn call(
        self: &Arc<Self>,
        running: Arc<RunningCommand>,
        arguments: Value,
    ) -> Result<CommandResult, Failure> {
        let own = Arc::clone(self);
        let called = tokio::spawn(async move { own.command(&running, arguments).await });
        *self.under_way.lock() = Some(called.abort_handle());
        called.await.unwrap_or_else(|error| Err(Failure::failed("internal", error)))
    }

    async fn command(&self, running: &RunningCommand, mut arguments: Value) -> Result<CommandResult, Failure> {
        let name = self.resolve_name(None)?;
        if let Err(result) = relative(&self.open_dir()?.place, &mut arguments) {
            return Ok(result);
        }
        // Listing files does not read them.
        let is_work = arguments["command"] != "list";
        let is_edit = arguments["command"].as_str().is_some_and(is_edit);
        let order = running.order();
        let body = json!({"worker": WORKER, "name": name, "room": self.room, "order": order, "arguments": arguments});
        let answer = self.send_with_retry(&HostRequest::Command(body, is_edit)).await?;
        running.mark_answered();
        self.has_worked.fetch_or(is_work, Ordering::Relaxed);
        Ok(match answer {
            Ok(answer) => {
                let text = answer["text"].as_str().unwrap_or_default().to_owned();
                CommandResult { text, data: answer["data"].clone(), code: None }
            }
            Err(problem) => problem_to_answer(problem),
        })
    }

    /// Returns the recent changes and their authors, the newest first.
    pub(crate) async fn changes(&self) -> Result<CommandResult, Failure> {
        match self.send_with_retry(&HostRequest::LastCommits).await? {
            Ok(page) => Ok(changes(&page, &self.resolve_name(None)?)),
            Err(problem) => Ok(problem_to_answer(problem)),
        }
    }

    /// Sends a request to the host, and to its successor if it is gone.
    async fn send_with_retry(&self, request: &HostRequest) -> Result<Result<Value, Value>, Failure> {
        let until = Instant::now() + PATIENCE;
        let (mut last_attempt, mut pause) = (None, LOOK_MIN);
        loop {
            let session = self.acquire_session(until).await?;
            let failure = match send_once(&session, request, &mut last_attempt).await {
                // The answer of a deposed host is ignored, except that an edit has been made.
                Ok(answer) if request.is_edit() || session.place.is_current() => return Ok(Ok(answer)),
                Err(HostError::Rejected(problem)) if session.place.is_current() => return Ok(Err(problem)),
                Err(HostError::Permanent(failure)) => return Err(failure),
                Err(HostError::Interrupted(failure)) => failure,
                Err(HostError::Replaced(failure)) => {
                    self.drop_session(&session).await;
                    failure
                }
                Ok(_) | Err(HostError::Rejected(_)) => {
                    self.drop_session(&session).await;
                    host_gone("the host's files in the directory were removed")
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
    async fn acquire_session(&self, until: Instant) -> Result<Arc<LeaseSession>, Failure> {
        let mut kept = self.session.lock().await;
        let mut pause = LOOK_MIN;
        loop {
            let place = Arc::clone(&self.open_dir()?.place);
            if let Some(session) = kept.as_ref().filter(|session| Arc::ptr_eq(&session.place, &place)) {
                return Ok(Arc::clone(session));
            }
            let failure = match self.lease(place).await {
                Ok(session) => return Ok(Arc::clone(kept.insert(Arc::new(session)))),
                Err(HostError::Replaced(failure) | HostError::Interrupted(failure)) => failure,
                Err(HostError::Permanent(failure)) => return Err(failure),
                Err(HostError::Rejected(problem)) => {
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

    async fn drop_session(&self, session: &Arc<LeaseSession>) {
        let mut kept = self.session.lock().await;
        if kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, session)) {
            *kept = None;
        }
    }

    /// Leases the oldest waiting call, possibly one left by a departed agent; if there is none, requests one.
    async fn lease(&self, place: Arc<HostDir>) -> Result<LeaseSession, HostError> {
        let Address { port, token, board, pid } = host(&place).await?;
        let client = Client::with_token(&format!("http://127.0.0.1:{port}"), token).map_err(HostError::Replaced)?;
        let has_worked = self.has_worked.load(Ordering::Relaxed);
        let mut session = LeaseSession { place, client, pid, board, lease: String::new(), has_worked };
        let path = format!("/v1/boards/{}/leases", session.board);
        for requests in 0..=LEASE_REQUESTS_MAX {
            let wait = if requests == 0 { 0 } else { WAIT_SECONDS };
            let wanted = json!({"worker": WORKER, "seconds": LEASE_SECONDS, "wait": wait});
            let leased = session.ask(&path, Some(&wanted), Some(&self.key)).await?;
            if let Some(lease) = leased["lease"].as_str() {
                session.lease = lease.to_owned();
                return Ok(session);
            }
            let signals = format!("/v1/boards/{}/signals", session.board);
            session.ask(&signals, Some(&json!({"name": JOIN})), None).await?;
        }
        Err(HostError::Replaced(Failure::failed("no_seat", "there are as many agents at the directory as can be")))
    }

    /// Renews the lease while polled.
    pub(crate) async fn renew_lease(&self) {
        loop {
            sleep(RENEWED_EVERY).await;
            let Some(session) = self.session.lock().await.clone() else { continue };
            let path = format!("/v1/boards/{}/leases/{}/renew", session.board, session.lease);
            let wanted = json!({"worker": WORKER, "seconds": LEASE_SECONDS});
            if let Err(HostError::Replaced(_)) = session.ask(&path, Some(&wanted), None).await {
                self.drop_session(&session).await;
                if let Err(Failure::Error(error)) = self.acquire_session(Instant::now() + PATIENCE).await {
                    tracing::warn!(code = error.code, "the directory has no host: {}", error.message);
                }
            }
        }
    }

    /// Releases the lease, and aborts the command under way.
    pub(crate) async fn leave(&self) {
        if let Some(command) = self.under_way.lock().take() {
            command.abort();
        }
        if let Some(session) = self.session.lock().await.take() {
            let path = format!("/v1/boards/{}/leases/{}/answer", session.board, session.lease);
            let answer = json!({"worker": WORKER, "patch": []});
            drop(timeout(LEAVE, session.ask(&path, Some(&answer), None)).await);
        }
    }
}

/// Returns the address of the host; starts one if there is none.
async fn host(place: &Arc<HostDir>) -> Result<Address, HostError> {
    let own = Arc::clone(place);
    // Runs to completion even if the request is cancelled.
    let launched = tokio::spawn(async move { launch(&own).await }).await;
    match launched.unwrap_or_else(|error| Err(Failure::failed("internal", error))) {
        Err(Failure::Error(error)) if error.exit == Exit::InvalidInput => {
            return Err(HostError::Permanent(Failure::Error(error)));
        }
        Err(failure) => return Err(HostError::Replaced(failure)),
        Ok(()) => {}
    }
    let missing =
        || HostError::Replaced(Failure::failed("no_host", "the host of the directory does not say how it is reached"));
    place.address().ok_or_else(missing)
}

/// Makes absolute paths in the arguments relative to the directory.
fn relative(place: &HostDir, arguments: &mut Value) -> Result<(), CommandResult> {
    for name in PATH_ARGUMENTS {
        let Some(path) = arguments[name].as_str().filter(|path| path.starts_with('/')) else { continue };
        let within = place.within(Path::new(path));
        let Some(within) = within.as_deref().and_then(Path::to_str) else {
            let root = place.directory().display();
            let path = short(path, PATH_CHARS_MAX);
            let text =
                format!("The arguments cannot be used: {path} is not in {root}, which is the directory that you edit.");
            let data = json!({"code": OUTSIDE, "message": text});
            return Err(CommandResult { text, data, code: Some(OUTSIDE.to_owned()) });
        };
        let within = if within.is_empty() { "." } else { within };
        arguments[*name] = within.into();
    }
    Ok(())
}

fn problem_to_answer(problem: Value) -> CommandResult {
    let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
    let code = Some(text("code"));
    match problem.get("data") {
        Some(data) => CommandResult { text: text("detail"), data: data.clone(), code },
        None => CommandResult {
            text: format!("{} {}", text("detail"), text("help")).trim().to_owned(),
            data: problem,
            code,
        },
    }
}
