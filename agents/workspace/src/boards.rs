//! Registry of the workspace directories of the boards that run here, and of the agents that use them.
//!
//! A board's directory is opened when the board is activated (created or resumed) and closed with it; callers wait
//! until it is open. A directory serves one board at a time. Each activation has a slot of its own, so events of an
//! earlier one cannot affect it. If `.patchboard` is removed, the next caller triggers a reopen.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use patchboard_kernel::blueprint::{Blueprint, FileAccess, Isolation};
use patchboard_kernel::id::BoardId;
use patchboard_kernel::record::Ended;
use patchboard_runtime::handle::BoardHandle;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::disk::watch::{ChangeNotice, Watch, watch};
use super::disk::{Disk, DiskError, DiskOptions};
use super::edit_author::EditAuthor;
use super::git::repository::Repository;
use super::program::GIT;
use super::service::{ExternalChanges, OpenedWorkspace, Workspace, WorkspaceError};
use super::session::{SessionAnswer, SessionRequest};
use super::sessions::Sessions;
use crate::directory::Directory;

/// Longest wait for a board's directory to be open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest wait for the previous holder of a directory's lock, and the polling interval.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Interval of full rescans for a directory that the operating system does not watch.
const RESCAN_INTERVAL: Duration = Duration::from_secs(10);

/// Open directories of the boards that run here.
pub struct Workspaces {
    directories: BTreeMap<String, Directory>,
    boards: Mutex<BTreeMap<BoardId, Slot>>,
    pending_activations: watch::Sender<usize>,
    next_activation: AtomicU64,
    /// Serialises reopening.
    reopening: AsyncMutex<()>,
}

/// Guard of a board that is about to be activated. Until it is used or dropped, callers wait for a directory that is
/// not registered yet.
#[must_use = "whoever wants to work at a directory that is not there waits until this is used or dropped"]
pub struct ActivationGuard(Arc<Workspaces>);

/// One activation of a board.
struct Slot {
    board: BoardHandle,
    /// Number that distinguishes the activations of a board.
    activation: u64,
    state: watch::Sender<State>,
    sessions: Sessions,
    /// Task that follows changes of the directory, aborted on drop.
    watch_task: JoinSet<()>,
}

#[derive(Clone)]
enum State {
    Opening,
    Open(Arc<Workspace>),
    Failed(String),
}

impl Workspaces {
    /// Creates the registry of the operator's directories.
    pub fn new(directories: BTreeMap<String, Directory>) -> Self {
        Self {
            directories,
            boards: Mutex::default(),
            pending_activations: watch::Sender::new(0),
            next_activation: AtomicU64::new(0),
            reopening: AsyncMutex::default(),
        }
    }

    /// Returns why a worker with this file access cannot use the blueprint's workspace, or `None` if it can.
    pub fn unusable_reason(&self, blueprint: &Blueprint, access: &FileAccess) -> Option<String> {
        let Some(workspace) = &blueprint.workspace else {
            return Some("it uses files, and its blueprint has no workspace".to_owned());
        };
        let name = &workspace.dir;
        let Some(directory) = self.directories.get(name) else { return Some(not_configured(name)) };
        let dir = directory.dir.display();
        if !directory.dir.is_dir() {
            return Some(format!("the directory {name} is {dir}, and there is none"));
        }
        let needs_git = access.run.iter().any(|run| run == GIT) || workspace.isolation == Isolation::Worktree;
        let lacks_git = needs_git && !Repository::is_at(&directory.dir);
        lacks_git.then(|| {
            format!("it uses git, and the directory {name} is no working tree of git: run `git init` in {dir}")
        })
    }

    /// Announces that a board is about to be created or resumed.
    pub fn begin_activation(self: &Arc<Self>) -> ActivationGuard {
        self.pending_activations.send_modify(|count| *count += 1);
        ActivationGuard(Arc::clone(self))
    }

    /// Registers a slot for the board and drops that of an earlier activation.
    fn begin(&self, board: &BoardHandle) -> u64 {
        let taking = self.next_activation.fetch_add(1, Ordering::Relaxed);
        let (state, sessions) = (watch::Sender::new(State::Opening), Sessions::default());
        let slot = Slot { board: board.clone(), activation: taking, state, sessions, watch_task: JoinSet::new() };
        let before = self.boards.lock().insert(board.id().clone(), slot);
        drop(before);
        taking
    }

    /// Opens the directory of a board; `None` if the board has ended or its slot is gone or replaced.
    async fn attach(&self, board: &BoardHandle, activation: u64) -> Result<Option<Arc<Workspace>>, WorkspaceError> {
        let (state, watched, opened) = match self.open(board, activation).await {
            Ok((workspace, watched)) => (State::Open(Arc::clone(&workspace)), watched, Ok(workspace)),
            Err(error) => (State::Failed(error.to_string()), None, Err(error)),
        };
        {
            let mut boards = self.boards.lock();
            let Some(slot) = boards.get_mut(board.id()).filter(|slot| slot.activation == activation) else {
                return Ok(None);
            };
            if let Ok(workspace) = &opened {
                slot.watch_task.spawn(follow_changes(Arc::downgrade(workspace), watched));
            }
            slot.state.send_replace(state);
        }
        if is_over(board) {
            // The end was already announced, so `ended` is not called again.
            self.detach(board.id(), activation);
            return Ok(None);
        }
        opened.map(Some)
    }

    /// Opens the directory. The watch starts before the first scan, so every change is seen by one of the two.
    async fn open(
        &self,
        board: &BoardHandle,
        activation: u64,
    ) -> Result<(Arc<Workspace>, Option<Watch>), WorkspaceError> {
        let status = board.status();
        let spec = status.blueprint.workspace.as_ref().ok_or(WorkspaceError::None)?;
        let Some(directory) = self.directories.get(&spec.dir).cloned() else {
            return Err(WorkspaceError::NotConfigured(not_configured(&spec.dir)));
        };
        let exclude = directory.exclude.iter().chain(&spec.exclude).cloned().collect();
        let options = DiskOptions { exclude, max_bytes: directory.max_bytes, ..DiskOptions::default() };
        let deadline = Instant::now() + LOCK_TIMEOUT;
        let disk = loop {
            let (dir, options) = (directory.dir.clone(), options.clone());
            let disk = tokio::task::spawn_blocking(move || Disk::open(dir, options)).await;
            match disk.map_err(WorkspaceError::broken)? {
                // Work in progress of the previous holder finishes first.
                Err(DiskError::Locked { .. })
                    if Instant::now() < deadline && self.is_current(board.id(), activation) =>
                {
                    sleep(LOCK_POLL_INTERVAL).await;
                }
                disk => break disk?,
            }
        };
        let disk = Arc::new(disk);
        let watched = {
            let disk = Arc::clone(&disk);
            tokio::task::spawn_blocking(move || watch(&disk)).await
        };
        let watched = watched.map_err(WorkspaceError::broken)?;
        if let Err(error) = &watched {
            tracing::warn!(%error, "the directory is looked through from time to time instead of being watched");
        }
        let OpenedWorkspace { workspace, recovery, found } = Workspace::open(board.clone(), disk).await?;
        for said in found.messages() {
            tracing::warn!(board = %board.id(), "{said}");
        }
        let (undone, found) = (recovery.changes.len(), found.found);
        tracing::info!(board = %board.id(), dir = %workspace.disk().path().display(), found, undone, "the workspace is open");
        Ok((workspace, watched.ok()))
    }

    fn is_usable(&self, workspace: &Workspace) -> bool {
        let directory = self.directories.get(&workspace.spec().dir);
        directory.is_some_and(|directory| directory.ends_with_own) || workspace.disk().is_there()
    }

    /// Reopens a directory after `.patchboard` was removed. Sessions lose their read sets.
    async fn reopen(&self, board: &BoardId, previous: &Arc<Workspace>) -> Result<(), WorkspaceError> {
        let _one = self.reopening.lock().await;
        let is_it = |slot: &&Slot| matches!(&*slot.state.borrow(), State::Open(open) if Arc::ptr_eq(open, previous));
        let slot = self.boards.lock().get(board).filter(is_it).map(|slot| (slot.board.clone(), slot.activation));
        // Another caller has already reopened it.
        let Some((handle, activation)) = slot else { return Ok(()) };
        let dir = previous.disk().path().display().to_string();
        tracing::warn!(%board, dir, "the directory's .patchboard was removed: it is opened again, and its authors have to read again");
        // Stop following the old directory and free its watches.
        let looking = self.boards.lock().get_mut(board).map(|slot| std::mem::take(&mut slot.watch_task));
        drop(looking);
        let (workspace, watched) = self.open(&handle, activation).await?;
        if let Some(slot) = self.boards.lock().get_mut(board).filter(|slot| slot.activation == activation) {
            slot.sessions.evict_all();
            slot.watch_task = JoinSet::new();
            slot.watch_task.spawn(follow_changes(Arc::downgrade(&workspace), watched));
            slot.state.send_replace(State::Open(workspace));
        }
        Ok(())
    }

    fn is_current(&self, board: &BoardId, activation: u64) -> bool {
        self.boards.lock().get(board).is_some_and(|slot| slot.activation == activation)
    }

    /// Returns the directory of a board once it is open. Returns immediately when no activation is in progress.
    /// Fails if the board is not active in this process.
    pub async fn get(&self, board: &BoardId) -> Result<Arc<Workspace>, WorkspaceError> {
        let deadline = Instant::now() + OPEN_TIMEOUT;
        let mut coming = self.pending_activations.subscribe();
        loop {
            let is_coming = *coming.borrow_and_update() > 0;
            let state = self.boards.lock().get(board).map(|slot| slot.state.subscribe());
            match state {
                Some(mut state) => {
                    let decided = timeout_at(deadline, state.wait_for(|state| !matches!(state, State::Opening))).await;
                    let decided = decided.map_err(|_| not_open())?.map(|state| state.clone());
                    match decided {
                        Ok(State::Open(workspace)) if self.is_usable(&workspace) => return Ok(workspace),
                        Ok(State::Open(workspace)) => {
                            timeout_at(deadline, self.reopen(board, &workspace)).await.map_err(|_| not_open())??;
                        }
                        Ok(State::Failed(why)) => return Err(WorkspaceError::NotConfigured(why)),
                        // The slot was removed; the board may be active again.
                        Ok(State::Opening) | Err(_) => {}
                    }
                }
                None if is_coming => {
                    timeout_at(deadline, coming.changed()).await.map_err(|_| not_open())?.map_err(|_| not_open())?;
                }
                None => return Err(not_open()),
            }
        }
    }

    /// Runs an agent's tool call on the board's directory. The call runs to completion even if the caller is dropped,
    /// so that reads and edits are recorded. `has_earlier_reads` is the agent's own statement, if any, that it worked
    /// in an earlier session.
    pub async fn call(
        &self,
        board: &BoardId,
        author: EditAuthor,
        has_earlier_reads: Option<bool>,
        request: SessionRequest,
    ) -> Result<SessionAnswer, WorkspaceError> {
        let workspace = self.get(board).await?;
        let agent = {
            let mut boards = self.boards.lock();
            let is_open =
                |slot: &Slot| matches!(&*slot.state.borrow(), State::Open(open) if Arc::ptr_eq(open, &workspace));
            let slot = boards.get_mut(board).filter(|slot| is_open(slot));
            slot.ok_or_else(not_open)?.sessions.get_or_create(workspace, author, has_earlier_reads)
        };
        let called = tokio::spawn(agent.execute(request));
        called.await.map_err(WorkspaceError::broken)
    }

    /// Closes the directory of a board that has ended for good or left this process, unless it was activated again.
    pub fn ended(self: &Arc<Self>, board: &BoardId) {
        let Some((handle, activation)) =
            self.boards.lock().get(board).map(|slot| (slot.board.clone(), slot.activation))
        else {
            return;
        };
        let (own, board) = (Arc::clone(self), board.clone());
        tokio::spawn(async move {
            // The end of an earlier activation does not apply to this one.
            if handle.wait_for_end().await.map_or(true, |ended| ended.is_final()) {
                own.detach(&board, activation);
            }
        });
    }

    fn detach(&self, board: &BoardId, activation: u64) {
        let gone = {
            let mut boards = self.boards.lock();
            let is_meant = boards.get(board).is_some_and(|slot| slot.activation == activation);
            if is_meant { boards.remove(board) } else { None }
        };
        drop(gone);
    }
}

impl ActivationGuard {
    /// Opens the directory of the activated board, if it has one and has not ended. The slot is registered before the
    /// returned future is polled, so callers wait from now on.
    /// Callers that wait for the directory receive its error as well.
    pub fn attach(
        self,
        board: &BoardHandle,
    ) -> impl Future<Output = Result<Option<Arc<Workspace>>, WorkspaceError>> + Send + use<> {
        let (workspaces, board) = (Arc::clone(&self.0), board.clone());
        let has_files = board.status().blueprint.workspace.is_some() && !is_over(&board);
        let activation = has_files.then(|| workspaces.begin(&board));
        drop(self);
        async move {
            match activation {
                Some(activation) => workspaces.attach(&board, activation).await,
                None => Ok(None),
            }
        }
    }
}

impl Drop for ActivationGuard {
    fn drop(&mut self) {
        self.0.pending_activations.send_modify(|count| *count = count.saturating_sub(1));
    }
}

fn is_over(board: &BoardHandle) -> bool {
    board.status().ended.is_some_and(Ended::is_final)
}

fn not_open() -> WorkspaceError {
    WorkspaceError::NotConfigured("the board's directory is not open here".to_owned())
}

fn not_configured(directory: &str) -> String {
    format!(
        "no directory {directory} is configured: add [workspaces.{directory}] with dir to patchboard.toml, or give \
         --workspace {directory}=DIR"
    )
}

/// Reports external changes to the board early, for readers. Edits do not rely on it: each one checks its files itself.
async fn follow_changes(workspace: Weak<Workspace>, mut watched: Option<Watch>) {
    loop {
        let noticed = match &mut watched {
            Some(watched) => watched.next().await,
            None => {
                tokio::time::sleep(RESCAN_INTERVAL).await;
                Some(ChangeNotice::All)
            }
        };
        let Some(workspace) = workspace.upgrade() else { return };
        let reported = match noticed {
            Some(ChangeNotice::Files(paths)) => workspace.report_changes(paths.iter()).await.map(drop),
            Some(ChangeNotice::All) => workspace.rescan().await.and_then(ExternalChanges::require_accepted).map(drop),
            Some(ChangeNotice::TooManyWatches) | None => {
                tracing::warn!("the directory is looked through from time to time from now on, and not watched");
                watched = None;
                Ok(())
            }
        };
        if let Err(error) = reported {
            tracing::warn!(board = %workspace.board().id(), %error, "external changes were not reported to the board");
        }
    }
}
