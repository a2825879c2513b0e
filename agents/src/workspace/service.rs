//! A directory and the board that knows of it: one after the other for those who change files, side by side for those who
//! look.
//!
//! The order of an edit: the new content is made durable beside the file; what is in the directory is compared with what the
//! board knows, of the file and of everything its author has read, and what others changed around the workspace is told to
//! the board first; the board decides; what is committed is put in place. After a crash in between, what the board knows of
//! is put in place when the workspace is opened again, and nothing else.
//!
//! * `edits`: what is wanted and what became of it; `alone`: how an edit is accepted and comes to the disk;
//!   `external`: what others change, and how the board is told; `looks`: files as they stand; `texts`: what was in them;
//!   `memory`: what the state does not say of edits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use patchboard_kernel::blueprint::WorkspaceSpec;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::files::{EXTERNAL, Edit, Entry, FILES, FilePath, FileRead, Lines};
use patchboard_kernel::id::Token;
use patchboard_kernel::record::Principal;
use patchboard_kernel::state::State;
use patchboard_runtime::runtime::BoardHandle;
use tokio::sync::RwLock;
use tokio::time::Instant;

use super::disk::locks::{Locks, PathSet, WAITS_MAX};
use super::disk::{Contents, Disk, DiskError, Recovery};
use super::git::GitNotes;
use super::reads::Held;
use super::running::{Running, RunningPrograms};
use super::text::intent::author_name;

mod alone;
mod edits;
mod external;
mod looks;
mod memory;
mod texts;

pub use edits::{ByOthers, Edited, Made, NotTaken, Standing, Wanted, WorkspaceError};
pub use looks::LeftOut;

use alone::{Alone, Notes, Unheard};
use memory::Memory;
use texts::Texts;

/// Names of authors that are known in files.
const AUTHORS_MAX: usize = 10_000;

/// A directory of files that the workers of a board share.
pub struct Workspace {
    board: BoardHandle,
    spec: WorkspaceSpec,
    disk: Arc<Disk>,
    /// Held together by those who look, alone by those who change.
    notes: Arc<RwLock<Notes>>,
    texts: Texts,
    memory: Mutex<Memory>,
    /// Who is known to have edited here, or may.
    authors: Mutex<BTreeSet<String>>,
    locks: Locks,
    running: RunningPrograms,
    /// Held by who uses git: what it does in several steps is one thing.
    git: Arc<tokio::sync::Mutex<GitNotes>>,
    held: Arc<Held>,
}

/// A workspace that was opened, and what was found then.
pub struct Opened {
    /// The workspace.
    pub workspace: Arc<Workspace>,
    /// What a crash had left undone.
    pub recovery: Recovery,
    /// Files that others had changed since the board last looked.
    pub found: ByOthers,
}

impl Workspace {
    /// Takes up a directory for a board that has a workspace: finishes what a crash left undone, and tells the board what
    /// is there.
    ///
    /// # Errors
    /// [`WorkspaceError`].
    pub async fn open(board: BoardHandle, disk: impl Into<Arc<Disk>>) -> Result<Opened, WorkspaceError> {
        let spec = board.snapshot().blueprint.workspace.clone().ok_or(WorkspaceError::None)?;
        let workspace = Arc::new(Self {
            board,
            spec,
            disk: disk.into(),
            notes: Arc::default(),
            texts: Texts::default(),
            memory: Mutex::default(),
            authors: Mutex::default(),
            locks: Locks::default(),
            running: RunningPrograms::default(),
            git: Arc::default(),
            held: Arc::default(),
        });
        let looked = workspace.alone(move |mut alone| async move {
            let recovery = alone.recover().await?;
            Ok::<_, WorkspaceError>((recovery, alone.rescan().await?))
        });
        let (recovery, found) = looked.await?;
        // Whoever may have said something in a file, also where nobody has edited it for long.
        let blueprint = workspace.board.snapshot().blueprint.clone();
        let seats = blueprint.workers.iter().filter(|(_, seat)| seat.files.is_some());
        seats.for_each(|(name, _)| workspace.meet(name.as_str()));
        for entry in workspace.files().into_values() {
            entry.edits.values().for_each(|edit| workspace.meet(&edit.by));
            workspace.meet(&entry.writer);
        }
        Ok(Opened { workspace, recovery, found })
    }

    /// Remembers that somebody edits here, so that what is written in that name is known as such.
    pub fn meet(&self, author: &str) {
        if author != EXTERNAL {
            let mut authors = self.authors.lock().unwrap_or_else(PoisonError::into_inner);
            if authors.len() < AUTHORS_MAX {
                authors.insert(author_name(author));
            }
        }
    }

    /// The names of those who edit here, as they stand in comments.
    pub fn authors(&self) -> BTreeSet<String> {
        self.authors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The board.
    pub const fn board(&self) -> &BoardHandle {
        &self.board
    }

    /// What the blueprint says of it.
    pub const fn spec(&self) -> &WorkspaceSpec {
        &self.spec
    }

    /// The directory.
    pub const fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Turns for those who change the same files.
    pub const fn locks(&self) -> &Locks {
        &self.locks
    }

    /// The texts that its agents hold.
    pub const fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// Held by who uses git.
    pub const fn git(&self) -> &Arc<tokio::sync::Mutex<GitNotes>> {
        &self.git
    }

    /// What the board knows.
    pub fn state(&self) -> State {
        self.board.snapshot().state.clone()
    }

    /// The files that are there, as the board knows them.
    pub fn files(&self) -> BTreeMap<FilePath, Entry> {
        let state = self.state();
        let members = state.root().child(FILES).and_then(|files| files.as_object()).map(|files| files.iter());
        let paths = members.into_iter().flatten().filter_map(|(name, ..)| FilePath::parse(name).ok());
        let known = paths.filter_map(|path| Some((path.clone(), Entry::of(&state, &path)?)));
        known.filter(|(_, entry)| entry.is_there()).collect()
    }

    /// What the versions of a file were made for, as far as that is known here beyond what the state says.
    pub(super) fn intents(&self, path: &FilePath) -> BTreeMap<u64, String> {
        self.memory().intents(path)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Lists are whole whatever thread ended while it held them.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the board knows a file to hold; none: there is none.
    fn hash(&self, path: &FilePath) -> Option<Digest> {
        Entry::of(&self.state(), path).and_then(|entry| entry.hash)
    }

    /// Says that a program runs from now on that may change the files of this set: what becomes of them meanwhile is told
    /// to the board in somebody's name.
    pub fn runs(&self, set: PathSet, name: &str, intent: &str) -> Running {
        self.running.begin(set, name, intent)
    }

    /// Looks at the whole directory and tells the board what others have changed.
    ///
    /// # Errors
    /// [`WorkspaceError`]. What the board does not take is none.
    pub async fn rescan(self: &Arc<Self>) -> Result<ByOthers, WorkspaceError> {
        self.alone(move |mut alone| async move { alone.rescan().await }).await
    }

    /// The same, and shows each file as it was found.
    ///
    /// # Errors
    /// [`WorkspaceError`].
    pub(super) async fn rescan_with<S: Send + 'static>(
        self: &Arc<Self>,
        seen: S,
        see: fn(&mut S, &FilePath, &Contents),
    ) -> Result<(S, ByOthers), WorkspaceError> {
        self.alone(move |mut alone| async move { alone.rescan_with(seen, see).await }).await
    }

    /// Tells the board what others have changed of these files; how many that were.
    ///
    /// # Errors
    /// [`WorkspaceError`], also if the board does not take all of it.
    pub async fn notice(self: &Arc<Self>, paths: impl IntoIterator<Item = &FilePath>) -> Result<usize, WorkspaceError> {
        let paths: Vec<FilePath> = paths.into_iter().cloned().collect();
        self.alone(move |mut alone| async move { alone.tell_of(paths).await?.all() }).await
    }

    /// Makes an edit, if nothing of what it rests on has changed. `make` is given the files named by `targets` as they
    /// stand, and says what they shall hold, or why that cannot be; it is asked once nobody else can change them. What was
    /// begun is done to its end, also if nobody waits for it any more. `asked`: what is asked for, of whom can ask again under
    /// the same token if it is not told what became of it ([`Workspace::begun`]). The record names the `principal`.
    ///
    /// # Errors
    /// [`WorkspaceError`], and what `make` says.
    pub async fn edit<E: From<WorkspaceError> + Send + 'static>(
        self: &Arc<Self>,
        edit: Edit,
        targets: Vec<FilePath>,
        asked: Option<Digest>,
        principal: Option<Principal>,
        make: impl FnOnce(&[Standing]) -> Result<Vec<Wanted>, E> + Send + 'static,
    ) -> Result<Made, E> {
        // Who runs a program that may change them comes first or last, and not in between.
        let set = PathSet::of(targets.iter().cloned()).map_err(WorkspaceError::from)?;
        let files =
            self.locks.acquire(set, "an edit", Instant::now() + WAITS_MAX).await.map_err(WorkspaceError::from)?;
        self.alone(move |mut alone| async move {
            let _files = files;
            let rests_on = edit.reads.iter().map(|read| &read.path).chain(&targets).cloned().collect();
            let mut standing = Vec::with_capacity(targets.len());
            for path in &targets {
                standing.push(alone.look(path).await?);
            }
            // Texts are compared for it, which may take a while.
            let made = tokio::task::spawn_blocking(move || {
                let wanted = make(&standing)?;
                let changes = wanted.iter().map(Wanted::change).collect();
                Ok::<_, E>((standing, wanted, changes))
            });
            let made = made.await.map_err(|error| WorkspaceError::Broken(error.to_string()))?;
            let (standing, wanted, changes) = made?;
            let mut edit = Edit { changes, ..edit };
            for (wanted, standing) in wanted.iter().zip(&standing) {
                let (path, version) = (&wanted.path, standing.version());
                let read = |lines: &Lines| FileRead { path: path.clone(), version, lines: Some(*lines) };
                edit.reads.extend(wanted.signed.iter().map(read));
            }
            let token = edit.token.clone();
            match (alone.decide(edit, principal, &wanted, rests_on).await, token.zip(asked)) {
                (Ok(edited), _) => Ok(Made { edited, standing, wanted }),
                (Err(error), None) => Err(error.into()),
                (Err(error), Some((token, asked))) => {
                    alone.notes.leave(&token, Unheard { asked, standing, wanted });
                    Err(error.into())
                }
            }
        })
        .await
    }

    /// What became of an edit that was begun under this token, if its author could not be told, and asks for the same now. It
    /// is told once.
    ///
    /// # Errors
    /// [`WorkspaceError`]: it is still not known, the edit is not in place, or the token is that of another one.
    pub async fn begun(self: &Arc<Self>, token: Token, asked: Digest) -> Result<Option<Made>, WorkspaceError> {
        if !self.notes.read().await.has_begun(&token) {
            return Ok(None);
        }
        self.alone(move |mut alone| async move { alone.hear(&token, asked).await }).await
    }

    /// Does what only one at a time may do. What has its turn is done to its end, whoever stops waiting for it: half of it
    /// would go on beside the next.
    async fn alone<T, E, F>(self: &Arc<Self>, work: impl FnOnce(Alone) -> F + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<WorkspaceError> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let notes = Arc::clone(&self.notes).write_owned().await;
        let alone = Alone { workspace: Arc::clone(self), notes };
        let done = tokio::spawn(async move { work(alone).await });
        done.await.unwrap_or_else(|error| Err(WorkspaceError::Broken(error.to_string()).into()))
    }

    async fn read(&self, path: &FilePath) -> Result<Option<Contents>, WorkspaceError> {
        let path = path.clone();
        self.on_disk(move |disk| disk.read(&path)).await
    }

    /// Does something with the directory, off the threads that serve others.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Disk) -> Result<T, DiskError> + Send + 'static,
    ) -> Result<T, WorkspaceError> {
        let disk = Arc::clone(&self.disk);
        let done = tokio::task::spawn_blocking(move || work(&disk)).await;
        Ok(done.map_err(|error| WorkspaceError::Broken(error.to_string()))??)
    }
}
