//! The directories of the boards that run here, and the agents at them.
//!
//! A board's directory is opened when the board is taken up and let go with it; until it is open, whoever wants to work
//! there waits. One directory serves one board at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::files::EditAttempt;
use patchboard_kernel::id::{BoardId, InvocationId};
use patchboard_runtime::runtime::BoardHandle;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::disk::watch::{Noticed, watch};
use super::disk::{Disk, DiskOptions};
use super::service::{Opened, Workspace, WorkspaceError};
use super::session::{Answer, Author, Session};
use crate::config::Directory;

/// How long it is waited for a board's directory to be open.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a directory is looked through that the operating system does not watch.
const LOOKED_THROUGH_EVERY: Duration = Duration::from_secs(10);

/// Agents at the directory of one board that are remembered; of more, who did nothing for the longest time has to begin
/// anew.
const SESSIONS_MAX: usize = 256;

/// The directories of the boards that run here.
pub struct Workspaces {
    directories: BTreeMap<String, Directory>,
    boards: Mutex<BTreeMap<BoardId, Slot>>,
}

struct Slot {
    state: watch::Sender<State>,
    sessions: BTreeMap<Who, Seated>,
}

/// An invocation, and who it is where several share it.
type Who = (InvocationId, Option<String>);

#[derive(Clone)]
enum State {
    Opening,
    Open(Arc<Workspace>),
    Failed(String),
}

struct Seated {
    session: Arc<tokio::sync::Mutex<Session>>,
    of: EditAttempt,
    used: Instant,
}

impl Default for Slot {
    fn default() -> Self {
        Self { state: watch::Sender::new(State::Opening), sessions: BTreeMap::new() }
    }
}

impl Workspaces {
    /// The operator's directories.
    pub const fn new(directories: BTreeMap<String, Directory>) -> Self {
        Self { directories, boards: Mutex::new(BTreeMap::new()) }
    }

    /// What keeps boards of a blueprint from the files that its workers are to use, if anything does.
    pub fn problem(&self, blueprint: &Blueprint) -> Option<String> {
        let Some(workspace) = &blueprint.workspace else {
            return Some("it uses files, and its blueprint has no workspace".to_owned());
        };
        let name = &workspace.dir;
        let Some(directory) = self.directories.get(name) else {
            return Some(format!(
                "no directory {name} is configured: add [workspaces.{name}] with dir to patchboard.toml, or give \
                 --workspace {name}=DIR"
            ));
        };
        let is_there = directory.dir.is_dir();
        (!is_there).then(|| format!("the directory {name} is {}, and there is none", directory.dir.display()))
    }

    /// Opens the directory of a board that was taken up, if it has one.
    ///
    /// # Errors
    /// [`WorkspaceError`]; whoever wants to work there is told as well.
    pub async fn attach(self: &Arc<Self>, board: &BoardHandle) -> Result<Option<Arc<Workspace>>, WorkspaceError> {
        if board.snapshot().blueprint.workspace.is_none() {
            return Ok(None);
        }
        let opened = self.open(board).await;
        let state = match &opened {
            Ok(workspace) => State::Open(Arc::clone(workspace)),
            Err(error) => State::Failed(error.to_string()),
        };
        self.lock().entry(board.id().clone()).or_default().state.send_replace(state);
        opened.map(Some)
    }

    async fn open(&self, board: &BoardHandle) -> Result<Arc<Workspace>, WorkspaceError> {
        let snapshot = board.snapshot();
        let spec = snapshot.blueprint.workspace.as_ref().ok_or(WorkspaceError::None)?;
        let Some(directory) = self.directories.get(&spec.dir).cloned() else {
            return Err(WorkspaceError::NotConfigured(self.problem(&snapshot.blueprint).unwrap_or_default()));
        };
        let exclude = directory.exclude.iter().chain(&spec.exclude).cloned().collect();
        let options = DiskOptions { exclude, max_bytes: directory.max_bytes, ..DiskOptions::default() };
        let disk = tokio::task::spawn_blocking(move || Disk::open(&directory.dir, options)).await;
        let disk = disk.map_err(|error| WorkspaceError::Broken(error.to_string()))??;
        let Opened { workspace, recovery, found } = Workspace::open(board.clone(), disk).await?;
        let undone = recovery.changes.len();
        tracing::info!(board = %board.id(), dir = %workspace.disk().path().display(), found, undone, "the workspace is open");
        tokio::spawn(look_after(Arc::downgrade(&workspace)));
        Ok(workspace)
    }

    /// The directory of a board, once it is open.
    ///
    /// # Errors
    /// It cannot be opened, or nobody has taken the board up here.
    pub async fn of(&self, board: &BoardId) -> Result<Arc<Workspace>, WorkspaceError> {
        let mut state = self.lock().entry(board.clone()).or_default().state.subscribe();
        let decided = timeout(PATIENCE, state.wait_for(|state| !matches!(state, State::Opening))).await;
        match decided.ok().and_then(Result::ok).as_deref() {
            Some(State::Open(workspace)) => Ok(Arc::clone(workspace)),
            Some(State::Failed(why)) => Err(WorkspaceError::NotConfigured(why.clone())),
            Some(State::Opening) | None => {
                let mut boards = self.lock();
                if boards.get(board).is_some_and(|slot| matches!(*slot.state.borrow(), State::Opening)) {
                    boards.remove(board);
                }
                Err(WorkspaceError::NotConfigured("the board's directory is not open here".to_owned()))
            }
        }
    }

    /// Does what the arguments of a tool say, for an agent at the directory of a board, and to its end, also if nobody waits
    /// for it any more: what was shown must be known as read, and what was made as made. See [`Session::once`] for `key`.
    ///
    /// # Errors
    /// As [`Workspaces::of`].
    pub async fn call(
        &self,
        board: &BoardId,
        author: Author,
        key: Option<String>,
        arguments: Value,
    ) -> Result<Answer, WorkspaceError> {
        let session = self.session(board, author).await?;
        let called = tokio::spawn(async move { session.lock().await.once(key, arguments).await });
        called.await.map_err(|error| WorkspaceError::Broken(error.to_string()))
    }

    /// An agent at the directory of a board: the one that this attempt has been so far under this name, or one that has read
    /// nothing yet.
    ///
    /// # Errors
    /// As [`Workspaces::of`].
    pub async fn session(
        &self,
        board: &BoardId,
        author: Author,
    ) -> Result<Arc<tokio::sync::Mutex<Session>>, WorkspaceError> {
        let workspace = self.of(board).await?;
        let mut boards = self.lock();
        let sessions = &mut boards.entry(board.clone()).or_default().sessions;
        let of = author.of;
        let who = (of.invocation, author.name.clone());
        if let Some(seated) = sessions.get_mut(&who).filter(|seated| seated.of == of) {
            seated.used = Instant::now();
            return Ok(Arc::clone(&seated.session));
        }
        if sessions.len() >= SESSIONS_MAX
            && let Some(oldest) = sessions.iter().min_by_key(|(_, seated)| seated.used).map(|(who, _)| who.clone())
        {
            sessions.remove(&oldest);
        }
        let session = Arc::new(tokio::sync::Mutex::new(Session::new(workspace, author)));
        sessions.insert(who, Seated { session: Arc::clone(&session), of, used: Instant::now() });
        Ok(session)
    }

    /// Lets the directory of a board go that is not run here any more.
    pub fn detach(&self, board: &BoardId) {
        self.lock().remove(board);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<BoardId, Slot>> {
        // A map is whole whatever thread ended while it held it.
        self.boards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the board early of what others change in its directory. Every edit looks for itself; this is for those who read.
async fn look_after(workspace: Weak<Workspace>) {
    let watched = match workspace.upgrade() {
        Some(workspace) => {
            let disk = Arc::clone(workspace.disk());
            tokio::task::spawn_blocking(move || watch(&disk)).await
        }
        None => return,
    };
    let mut watched = match watched {
        Ok(Ok(watched)) => Some(watched),
        Ok(Err(error)) => {
            tracing::warn!(%error, "the directory is looked through from time to time instead of being watched");
            None
        }
        Err(_) => return,
    };
    loop {
        let noticed = match &mut watched {
            Some(watched) => watched.next().await,
            None => {
                tokio::time::sleep(LOOKED_THROUGH_EVERY).await;
                Some(Noticed::All)
            }
        };
        let Some(workspace) = workspace.upgrade() else { return };
        let told = match noticed {
            Some(Noticed::Files(paths)) => workspace.notice(paths.iter()).await.map(drop),
            Some(Noticed::All) => workspace.rescan().await.map(drop),
            Some(Noticed::TooManyWatches) | None => {
                tracing::warn!("the directory is looked through from time to time from now on, and not watched");
                watched = None;
                Ok(())
            }
        };
        if let Err(error) = told {
            tracing::warn!(board = %workspace.board().id(), %error, "what others changed was not told to the board");
        }
    }
}
