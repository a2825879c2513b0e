//! A directory and the board that tracks it. Changes are serialised; reads run concurrently.
//!
//! An edit has these steps. The new content is staged durably. The file and the author's whole read set are compared
//! with the board's state, and external changes are reported to the board first. The board decides, and committed
//! content is put in place. After a crash, opening the workspace puts staged content in place only if the board has
//! committed it.
//!
//! * `edits`: requests and results.
//! * `exclusive`: commit of an edit and its replacement on disk.
//! * `external`, `external_change`, `rejected_reports`: detection and report of external changes.
//! * `read`: reads; `content_cache`: content cache; `edit_history`: edit history beyond the state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use patchboard_kernel::blueprint::WorkspaceSpec;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::files::{EXTERNAL, Edit, FILES, FileEntry, FilePath, FileRead, LineRange};
use patchboard_kernel::id::IdempotencyKey;
use patchboard_kernel::record::Principal;
use patchboard_kernel::state::State;
use patchboard_runtime::handle::BoardHandle;
use tokio::sync::RwLock;
use tokio::time::Instant;

use super::active_programs::{ProgramGuard, RunningPrograms};
use super::disk::locks::{Locks, PathSet, WAITS_MAX};
use super::disk::{Contents, Disk, DiskError, Recovery};
use super::git::state::GitState;
use super::reads::TextPool;
use super::text::intent::author_name;

mod content_cache;
mod edit_history;
mod edits;
mod exclusive;
mod external;
mod external_change;
mod read;
mod rejected_reports;

pub use edits::{
    CurrentFile, DecidedEdit, EditOutcome, ExternalChanges, ProposedChange, RejectedFiles, WorkspaceError,
};
pub use read::SkippedFiles;

use content_cache::ContentCache;
use edit_history::EditHistory;
use exclusive::{EditState, UnacknowledgedEdit, WriteGuard};

/// Maximum number of author names recognised in files.
const AUTHORS_MAX: usize = 10_000;

/// Directory of files that the workers of a board share.
pub struct Workspace {
    board: BoardHandle,
    spec: WorkspaceSpec,
    disk: Arc<Disk>,
    /// Shared lock for reads, exclusive lock for changes.
    edit_state: Arc<RwLock<EditState>>,
    texts: ContentCache,
    history: Mutex<EditHistory>,
    /// Names of known and potential editors.
    authors: Mutex<BTreeSet<String>>,
    pub(super) locks: Locks,
    running: RunningPrograms,
    /// Lock that makes multi-step git operations atomic for others.
    pub(super) git: Arc<tokio::sync::Mutex<GitState>>,
    /// Counter of texts held by the agents.
    pub(super) text_pool: Arc<TextPool>,
}

/// Result of opening a workspace.
pub struct OpenedWorkspace {
    /// Workspace, ready for use.
    pub workspace: Arc<Workspace>,
    /// Staged changes that were left by a crash.
    pub recovery: Recovery,
    /// External changes since the board's last state.
    pub found: ExternalChanges,
}

impl Workspace {
    /// Opens a directory for a board that has a workspace. Completes or discards staged changes left by a crash, and
    /// reports the directory's content to the board.
    pub async fn open(board: BoardHandle, disk: impl Into<Arc<Disk>>) -> Result<OpenedWorkspace, WorkspaceError> {
        let spec = board.status().blueprint.workspace.clone().ok_or(WorkspaceError::None)?;
        let workspace = Arc::new(Self {
            board,
            spec,
            disk: disk.into(),
            edit_state: Arc::default(),
            texts: ContentCache::default(),
            history: Mutex::default(),
            authors: Mutex::default(),
            locks: Locks::default(),
            running: RunningPrograms::default(),
            git: Arc::default(),
            text_pool: Arc::default(),
        });
        let looked = workspace.exclusively(move |mut alone| async move {
            let recovery = alone.recover().await?;
            Ok::<_, WorkspaceError>((recovery, alone.rescan().await?))
        });
        let (recovery, found) = looked.await?;
        // Includes every worker that may have written a comment, even if its last edit is long ago.
        let blueprint = workspace.board.status().blueprint.clone();
        let workers = blueprint.workers.iter().filter(|(_, seat)| seat.files.is_some());
        workers.for_each(|(name, _)| workspace.register_author(name.as_str()));
        for entry in workspace.files().into_values() {
            entry.edits.values().for_each(|edit| workspace.register_author(&edit.by));
            workspace.register_author(&entry.writer);
        }
        Ok(OpenedWorkspace { workspace, recovery, found })
    }

    /// Registers an editor's name, so that comments under it are recognised.
    pub fn register_author(&self, author: &str) {
        if author != EXTERNAL {
            let mut authors = self.authors.lock();
            if authors.len() < AUTHORS_MAX {
                authors.insert(author_name(author));
            }
        }
    }

    /// Returns the editors' names as they appear in comments.
    pub fn authors(&self) -> BTreeSet<String> {
        self.authors.lock().clone()
    }

    /// Returns the board.
    pub const fn board(&self) -> &BoardHandle {
        &self.board
    }

    /// Returns the blueprint's settings of the workspace.
    pub const fn spec(&self) -> &WorkspaceSpec {
        &self.spec
    }

    /// Returns the directory.
    pub const fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Returns the board's current state.
    pub fn state(&self) -> State {
        self.board.status().state.clone()
    }

    /// Returns the existing files as recorded by the board.
    pub fn files(&self) -> BTreeMap<FilePath, FileEntry> {
        let state = self.state();
        let members = state.root().child(FILES).and_then(|files| files.as_object()).map(|files| files.iter());
        let paths = members.into_iter().flatten().filter_map(|(name, ..)| FilePath::parse(name).ok());
        let known = paths.filter_map(|path| Some((path.clone(), FileEntry::load(&state, &path)?)));
        known.filter(|(_, entry)| entry.exists()).collect()
    }

    /// Returns the known intents of a file's versions, beyond those in the state.
    pub(super) fn intents(&self, path: &FilePath) -> BTreeMap<u64, String> {
        self.history.lock().intents(path)
    }

    /// Returns the hash that the board records for a file; `None` if it does not exist.
    fn hash(&self, path: &FilePath) -> Option<Digest> {
        FileEntry::load(&self.state(), path).and_then(|entry| entry.hash)
    }

    /// Registers a running program that may change the files of this set. Changes of these files are reported to the
    /// board under `name` meanwhile.
    pub fn runs(&self, set: PathSet, name: &str, intent: &str) -> ProgramGuard {
        self.running.begin(set, name, intent)
    }

    /// Scans the directory and reports external changes to the board.
    /// A change that the board rejects is not an error.
    pub async fn rescan(self: &Arc<Self>) -> Result<ExternalChanges, WorkspaceError> {
        self.exclusively(move |mut alone| async move { alone.rescan().await }).await
    }

    /// Like [`Workspace::rescan`], and passes each file found to `see`.
    pub(super) async fn rescan_with<S: Send + 'static>(
        self: &Arc<Self>,
        seen: S,
        see: fn(&mut S, &FilePath, &Contents),
    ) -> Result<(S, ExternalChanges), WorkspaceError> {
        self.exclusively(move |mut alone| async move { alone.rescan_with(seen, see).await }).await
    }

    /// Reports external changes of these files to the board; returns their number.
    /// Fails if the board rejects a change.
    pub async fn report_changes(
        self: &Arc<Self>,
        paths: impl IntoIterator<Item = &FilePath>,
    ) -> Result<usize, WorkspaceError> {
        let paths: Vec<FilePath> = paths.into_iter().cloned().collect();
        self.exclusively(move |mut alone| async move { alone.report_changes(paths).await?.require_accepted() }).await
    }

    /// Makes an edit, unless its read set or targets have changed. `make` receives the current `targets`, which no
    /// other caller can change, and returns the new contents or an error.
    ///
    /// The edit runs to completion even if the caller is dropped. With `asked`, the digest of the request, a caller
    /// that got an error can ask again under the token for the outcome ([`Workspace::take_outcome`]). The record names
    /// the `principal`.
    pub async fn edit<E: From<WorkspaceError> + Send + 'static>(
        self: &Arc<Self>,
        edit: Edit,
        targets: Vec<FilePath>,
        request_digest: Option<Digest>,
        principal: Option<Principal>,
        make: impl FnOnce(&[CurrentFile]) -> Result<Vec<ProposedChange>, E> + Send + 'static,
    ) -> Result<DecidedEdit, E> {
        // Programs that may change these files run before or after the edit, not during it.
        let set = PathSet::from_paths(targets.iter().cloned()).map_err(WorkspaceError::from)?;
        let files =
            self.locks.acquire(set, "an edit", Instant::now() + WAITS_MAX).await.map_err(WorkspaceError::from)?;
        self.exclusively(move |mut alone| async move {
            let _files = files;
            let rests_on = edit.reads.iter().map(|read| &read.path).chain(&targets).cloned().collect();
            let mut standing = Vec::with_capacity(targets.len());
            for path in &targets {
                standing.push(alone.read_current(path).await?);
            }
            // Comparing texts may take long.
            let made = tokio::task::spawn_blocking(move || {
                let wanted = make(&standing)?;
                let changes = wanted.iter().map(ProposedChange::change).collect();
                Ok::<_, E>((standing, wanted, changes))
            });
            let (standing, wanted, changes) = made.await.map_err(WorkspaceError::broken)??;
            let mut edit = Edit { changes, ..edit };
            for (wanted, standing) in wanted.iter().zip(&standing) {
                let (path, version) = (&wanted.path, standing.version());
                let read = |lines: &LineRange| FileRead { path: path.clone(), version, lines: Some(*lines) };
                edit.reads.extend(wanted.signed.iter().map(read));
            }
            let token = edit.token.clone();
            match (alone.decide(edit, principal, &wanted, rests_on).await, token.zip(request_digest)) {
                (Ok(edited), _) => Ok(DecidedEdit { outcome: edited, current: standing, proposed: wanted }),
                (Err(error), None) => Err(error.into()),
                (Err(error), Some((token, asked))) => {
                    alone.state.leave(
                        &token,
                        UnacknowledgedEdit { request_digest: asked, current: standing, proposed: wanted },
                    );
                    Err(error.into())
                }
            }
        })
        .await
    }

    /// Returns the outcome of an edit under this token that its author did not receive, if the request is identical.
    /// Returns it once.
    /// Fails while the outcome is unknown, if the edit is not in place, or if the token belongs to another edit.
    pub async fn take_outcome(
        self: &Arc<Self>,
        key: IdempotencyKey,
        request_digest: Digest,
    ) -> Result<Option<DecidedEdit>, WorkspaceError> {
        if !self.edit_state.read().await.is_pending(&key) {
            return Ok(None);
        }
        self.exclusively(move |mut alone| async move { alone.take_outcome(&key, request_digest).await }).await
    }

    /// Runs `work` under the exclusive lock. The work runs to completion even if the caller is dropped, so that the
    /// next change cannot overlap with it.
    async fn exclusively<T, E, F>(self: &Arc<Self>, work: impl FnOnce(WriteGuard) -> F + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<WorkspaceError> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let notes = Arc::clone(&self.edit_state).write_owned().await;
        let alone = WriteGuard { workspace: Arc::clone(self), state: notes };
        let done = tokio::spawn(async move { work(alone).await });
        done.await.unwrap_or_else(|error| Err(WorkspaceError::broken(error).into()))
    }

    async fn read(&self, path: &FilePath) -> Result<Option<Contents>, WorkspaceError> {
        let path = path.clone();
        self.on_disk(move |disk| disk.read(&path)).await
    }

    /// Runs a blocking operation on the directory, off the async threads.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Disk) -> Result<T, DiskError> + Send + 'static,
    ) -> Result<T, WorkspaceError> {
        let disk = Arc::clone(&self.disk);
        let done = tokio::task::spawn_blocking(move || work(&disk)).await;
        Ok(done.map_err(WorkspaceError::broken)??)
    }
}
