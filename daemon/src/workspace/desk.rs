//! One agent's way to the host of the directory, whoever that is: a call of the board's worker that it has leased for as long
//! as it is there.
//!
//! A host may go at any time. Then another one is started, and what the agent asked for is asked again there. Nothing is done
//! twice by that: it is looked first whether the journal has the edit. If not, it is refused, as under the lease that comes then
//! it is not known what was read. The same goes if `.patchboard` was taken away, with everything in it.

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

/// The worker whose calls the agents lease, and what has one made.
const WORKER: &str = "editor";
const JOIN: &str = "join";

/// How long a lease lasts, and how often it is renewed.
const LEASE_SECONDS: u64 = 60;
const RENEWED_EVERY: Duration = Duration::from_secs(10);

/// How long a call is waited for that was asked for, and how often it is asked for.
const WAIT_SECONDS: u64 = 3;
const ASKED_FOR_MAX: u32 = 4;

/// The code of a name that leads elsewhere.
const OUTSIDE: &str = "bad_arguments";

/// How long there may be no host, and how often it is looked for one.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_millis(500);

/// How long a good-bye may take.
const LEAVE: Duration = Duration::from_secs(1);

/// Characters of a client's name, and bytes of one that is given; a number may come behind it.
const NAME_CHARS_MAX: usize = 48;
const NAME_BYTES_MAX: usize = 60;

/// Characters of a path that is told back.
const PATH_CHARS_MAX: usize = 200;

/// What an agent is called whose client does not say.
const NAMELESS: &str = "agent";

/// One agent at the directory.
pub(crate) struct Desk {
    here: Mutex<Here>,
    /// What it wants to be called.
    wanted: Option<String>,
    /// What its leases are found by when an answer was lost.
    key: String,
    /// Characters that it is shown of a result.
    room: usize,
    /// Whether it has read or changed something so far.
    has_worked: AtomicBool,
    sitting: AsyncMutex<Option<Arc<Sitting>>>,
    /// The command whose turn it is.
    under_way: Mutex<Option<AbortHandle>>,
}

/// What the agent has of the directory.
struct Here {
    place: Arc<Place>,
    /// What it is called, once that is known, and what keeps others from being called so.
    name: Option<(String, File)>,
}

impl Desk {
    /// An agent that is called `name`, or as its client says, and is shown so many characters of a result.
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

    /// Hears what its client calls itself, and says what it is called here. The first word counts.
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

    /// What is to be said of where it is and what it is called.
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

    /// What the operator says of the directory.
    pub(crate) fn settings(&self) -> Result<Shared, Failure> {
        self.here()?.place.settings()
    }

    /// What it has of the directory, anew if that was taken away.
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

    /// Does what the arguments of an editor say, and to its end, also if nobody waits for it any more: what follows must come
    /// after it. An error is one that the agent can do nothing about.
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
        // Which files there are is no reading of them.
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
            let failure = match once(&sitting, asked, &mut tried).await {
                // What is said by one who is the host of nothing any more does not count, but that an edit is made.
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

    /// The lease that it has, or another one.
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

    /// Leases the oldest call that waits, which may be that of an agent that is gone; if there is none, has one made.
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

/// How the host is reached, which is started if there is none.
async fn host(place: &Arc<Place>) -> Result<Address, Missed> {
    let own = Arc::clone(place);
    // To its end, also if the request that needs it is given up.
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

/// Names in arguments from the directory, where they were given from the root of the file system.
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

/// A problem document as an editor tells it.
fn told(problem: Value) -> Told {
    let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
    let code = Some(text("code"));
    match problem.get("told") {
        Some(data) => Told { text: text("detail"), data: data.clone(), code },
        None => Told { text: format!("{} {}", text("detail"), text("help")).trim().to_owned(), data: problem, code },
    }
}
