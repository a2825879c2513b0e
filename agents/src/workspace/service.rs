//! A directory and the board that knows of it: one after the other for those who change files, side by side for those who
//! look.
//!
//! The order of an edit: what is in the directory is compared with what the board knows, of the file and of everything its
//! author has read, and what others changed around the workspace is told to the board first; the new content is made
//! durable beside the file; the board decides; what is committed is put in place. After a crash in between, what the board
//! knows of is put in place when the workspace is opened again, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use patchboard_kernel::blueprint::WorkspaceSpec;
use patchboard_kernel::board::{Outcome, Verdict};
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::{EXTERNAL, Edit, Entry, FILES, FileChange, FilePath, FileRead, Hunk, Lines, count};
use patchboard_kernel::id::Token;
use patchboard_kernel::rejection::{Rejection, Violation};
use patchboard_kernel::state::State;
use patchboard_runtime::runtime::{BoardHandle, RuntimeError};
use tokio::sync::RwLock;
use tokio::time::Instant;
use uuid::Uuid;

use super::disk::locks::{LockError, Locks, PathSet};
use super::disk::{Contents, Disk, DiskError, Put, Recovery, Staged};
use super::running::{Running, RunningPrograms, Teller};
use super::text::hunks::hunks;
use super::text::intent::author_name;

/// Files in one report of what was found when the workspace was opened.
const FOUND_AT_ONCE: usize = 2000;

/// How long an edit waits for a program that may change the same files.
const WAITS_MAX: Duration = Duration::from_secs(120);

/// Names of authors that are known in files.
const AUTHORS_MAX: usize = 10_000;

/// Bytes of texts that are kept to tell what changed around the workspace.
const TEXT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The first and the longest wait before an edit is put to a board again that was interrupted.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How often what others write into a file that is being replaced is put back before it is left to the next who looks.
const DISPLACED_MAX: usize = 3;

/// A directory of files that the workers of a board share.
pub struct Workspace {
    board: BoardHandle,
    spec: WorkspaceSpec,
    disk: Arc<Disk>,
    /// Held together by those who look, alone by those who change.
    turn: Arc<RwLock<Turn>>,
    /// Who is known to have edited here, or may.
    authors: Mutex<BTreeSet<String>>,
    locks: Locks,
    running: RunningPrograms,
    /// Held by who uses git: what it does in several steps is one thing.
    git: tokio::sync::Mutex<()>,
}

/// All that a rejection says, as one text.
pub(super) fn told(rejection: &Rejection) -> String {
    let each: Vec<_> = rejection.violations.iter().map(|violation| violation.told().into_owned()).collect();
    each.join("; ")
}

/// What only one at a time may know.
#[derive(Default)]
struct Turn {
    texts: Texts,
    /// Whether something is staged of which nobody knows whether it was committed.
    is_unsettled: bool,
}

/// What is wrong with a workspace, or with the board that knows of it.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The directory.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The board.
    #[error(transparent)]
    Board(#[from] RuntimeError),
    /// The board does not take what has happened.
    #[error("files were changed in a way that the board does not allow, and nothing can be edited until that is mended: {}", told(.0))]
    Refused(Box<Rejection>),
    /// It has none.
    #[error("the board has no workspace")]
    None,
    /// The operator has not set it up, or it cannot be opened.
    #[error("{0}")]
    NotConfigured(String),
    /// Others are at work on the same files.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A part of the process is gone.
    #[error("the work was broken off: {0}")]
    Broken(String),
}

impl WorkspaceError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Disk(error) => error.code().as_str(),
            Self::Lock(error) => error.code().as_str(),
            Self::Board(error) => error.code(),
            Self::Refused(_) => "workspace_refused",
            Self::None | Self::NotConfigured(_) => "not_configured",
            Self::Broken(_) => "internal",
        }
    }
}

/// A file as it stands: what the board knows, and what is in it. Both are of the same content.
#[derive(Clone, Debug)]
pub struct Standing {
    /// What the board knows; none if it never had a file of this name.
    pub entry: Option<Entry>,
    /// What is in it; none: there is no file.
    pub text: Option<Arc<str>>,
}

impl Standing {
    /// Its version; 0 if there never was one.
    pub fn version(&self) -> u64 {
        self.entry.as_ref().map_or(0, |entry| entry.version)
    }

    /// SHA-256 of what is in it.
    pub fn hash(&self) -> Option<Digest> {
        self.entry.as_ref().and_then(|entry| entry.hash)
    }
}

/// A file that shall hold something else.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Which.
    pub path: FilePath,
    /// What it holds now, as whoever wants it believes.
    pub before: Option<Arc<str>>,
    /// What it shall hold; none: it shall go.
    pub after: Option<Arc<str>>,
    /// What of it changes.
    pub hunks: Option<Vec<Hunk>>,
    /// Lines of what it holds now that the edit touches though nobody asked for that: where it is signed.
    pub signed: Vec<Lines>,
}

impl Wanted {
    fn change(&self) -> FileChange {
        let hash = |text: &Option<Arc<str>>| text.as_ref().map(|text| sha256(text.as_bytes()));
        FileChange {
            path: self.path.clone(),
            from: hash(&self.before),
            hash: hash(&self.after),
            lines: self.after.as_deref().map_or(0, count),
            bytes: self.after.as_ref().map_or(0, |text| text.len() as u64),
            hunks: self.hunks.clone(),
        }
    }
}

/// What became of an edit.
#[derive(Clone, Debug)]
pub enum Edited {
    /// It is made.
    Done,
    /// It is not.
    Refused(Rejection),
}

/// An edit that was decided.
#[derive(Clone, Debug)]
pub struct Made {
    /// What became of it.
    pub edited: Edited,
    /// Its files before.
    pub standing: Vec<Standing>,
    /// What they were to hold.
    pub wanted: Vec<Wanted>,
}

/// A workspace that was opened, and what was found then.
pub struct Opened {
    /// The workspace.
    pub workspace: Arc<Workspace>,
    /// What a crash had left undone.
    pub recovery: Recovery,
    /// Files that others had changed since the board last looked.
    pub found: usize,
}

impl Workspace {
    /// Takes up a directory for a board that has a workspace: finishes what a crash left undone, and tells the board what
    /// is there.
    ///
    /// # Errors
    /// [`WorkspaceError`].
    pub async fn open(board: BoardHandle, disk: Disk) -> Result<Opened, WorkspaceError> {
        let spec = board.snapshot().blueprint.workspace.clone().ok_or(WorkspaceError::None)?;
        let workspace = Self {
            board,
            spec,
            disk: Arc::new(disk),
            turn: Arc::default(),
            authors: Mutex::default(),
            locks: Locks::default(),
            running: RunningPrograms::default(),
            git: tokio::sync::Mutex::default(),
        };
        let recovery = workspace.recover().await?;
        let found = workspace.rescan().await?;
        for entry in workspace.files().into_values() {
            entry.edits.values().for_each(|edit| workspace.meet(&edit.by));
            workspace.meet(&entry.writer);
        }
        Ok(Opened { workspace: Arc::new(workspace), recovery, found })
    }

    /// Puts in place what is staged and committed, and throws away the rest.
    async fn recover(&self) -> Result<Recovery, WorkspaceError> {
        let state = self.state();
        self.on_disk(move |disk| disk.recover(|path| Entry::of(&state, path).and_then(|entry| entry.hash))).await
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

    /// Held by who uses git.
    pub const fn git(&self) -> &tokio::sync::Mutex<()> {
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

    /// Looks at the whole directory and tells the board what others have changed; how many files that were.
    ///
    /// # Errors
    /// [`WorkspaceError`].
    pub async fn rescan(&self) -> Result<usize, WorkspaceError> {
        let mut turn = self.turn.write().await;
        self.settle(&mut turn).await?;
        let changed = self.changed().await?;
        let mut found = 0;
        for some in changed.chunks(FOUND_AT_ONCE) {
            found += self.tell_of(&mut turn, some.iter()).await?;
        }
        Ok(found)
    }

    /// Says that a program runs from now on that may change the files of this set: what becomes of them meanwhile is told
    /// to the board in somebody's name.
    pub fn runs(&self, set: PathSet, name: &str, intent: &str) -> Running {
        self.running.begin(set, name, intent)
    }

    /// The files that hold something else than the board knows.
    async fn changed(&self) -> Result<Vec<FilePath>, WorkspaceError> {
        let scan = self.on_disk(Disk::scan).await?;
        let known = self.files();
        let of = |entry: &Entry| entry.hash;
        let changed = scan.files.iter().filter(|(path, found)| known.get(*path).and_then(of) != Some(found.hash));
        let gone = known.keys().filter(|path| !scan.files.contains_key(*path));
        Ok(changed.map(|(path, _)| path.clone()).chain(gone.cloned()).collect())
    }

    /// Tells the board what others have changed of these files; how many that were.
    ///
    /// # Errors
    /// [`WorkspaceError`].
    pub async fn notice(&self, paths: impl IntoIterator<Item = &FilePath>) -> Result<usize, WorkspaceError> {
        let mut turn = self.turn.write().await;
        self.catch_up(&mut turn, paths).await
    }

    /// A file as it stands, once the board knows of it.
    ///
    /// # Errors
    /// [`WorkspaceError`]; the file is not served.
    pub async fn look(&self, path: &FilePath) -> Result<Standing, WorkspaceError> {
        {
            let _shared = self.turn.read().await;
            if let Some(standing) = self.standing(path).await? {
                return Ok(standing);
            }
        }
        let mut turn = self.turn.write().await;
        self.look_alone(&mut turn, path).await
    }

    async fn look_alone(&self, turn: &mut Turn, path: &FilePath) -> Result<Standing, WorkspaceError> {
        self.catch_up(turn, [path]).await?;
        match self.standing(path).await? {
            Some(standing) => {
                turn.texts.keep(path, standing.text.as_ref());
                Ok(standing)
            }
            None => Err(DiskError::Busy { path: path.to_string() }.into()),
        }
    }

    /// What is in a file, if that is what the board knows of it.
    async fn standing(&self, path: &FilePath) -> Result<Option<Standing>, WorkspaceError> {
        let there = self.read(path).await?;
        let entry = Entry::of(&self.state(), path);
        let is_known = entry.as_ref().and_then(|entry| entry.hash) == there.as_ref().map(|there| there.hash);
        Ok(is_known.then(|| Standing { entry, text: there.map(|there| there.text.into()) }))
    }

    /// Makes an edit, if nothing of what it rests on has changed. `make` is given the files named by `targets` as they
    /// stand, and says what they shall hold, or why that cannot be; it is asked once nobody else can change them. What was
    /// begun is done to its end, also if nobody waits for it any more.
    ///
    /// # Errors
    /// [`WorkspaceError`], and what `make` says.
    pub async fn edit<E: From<WorkspaceError> + Send + 'static>(
        self: &Arc<Self>,
        edit: Edit,
        targets: Vec<FilePath>,
        make: impl FnOnce(&[Standing]) -> Result<Vec<Wanted>, E> + Send + 'static,
    ) -> Result<Made, E> {
        let own = Arc::clone(self);
        let work = tokio::spawn(async move {
            // Who runs a program that may change them comes first or last, and not in between.
            let set = PathSet::of(targets.iter().cloned()).map_err(WorkspaceError::from)?;
            let _files = own.locks.acquire(set, Instant::now() + WAITS_MAX).await.map_err(WorkspaceError::from)?;
            let mut turn = Arc::clone(&own.turn).write_owned().await;
            let read: BTreeSet<&FilePath> = edit.reads.iter().map(|read| &read.path).chain(&targets).collect();
            own.catch_up(&mut turn, read).await?;
            let mut standing = Vec::with_capacity(targets.len());
            for path in &targets {
                standing.push(own.look_alone(&mut turn, path).await?);
            }
            let wanted = make(&standing)?;
            let mut edit = Edit { changes: wanted.iter().map(Wanted::change).collect(), ..edit };
            for (wanted, standing) in wanted.iter().zip(&standing) {
                let (path, version) = (&wanted.path, standing.version());
                let read = |lines: &Lines| FileRead { path: path.clone(), version, lines: Some(*lines) };
                edit.reads.extend(wanted.signed.iter().map(read));
            }
            let edited = own.decide(&mut turn, edit, &wanted).await?;
            Ok(Made { edited, standing, wanted })
        });
        work.await.unwrap_or_else(|error| Err(WorkspaceError::Broken(error.to_string()).into()))
    }

    async fn decide(&self, turn: &mut Turn, edit: Edit, wanted: &[Wanted]) -> Result<Edited, WorkspaceError> {
        let mut staged = Vec::with_capacity(wanted.len());
        for (wanted, change) in wanted.iter().zip(&edit.changes) {
            let (path, from, text) = (wanted.path.clone(), change.from, wanted.after.clone());
            match self.on_disk(move |disk| disk.stage(&path, from, text.as_deref())).await {
                Ok(one) => staged.push(one),
                Err(error) => {
                    self.discard(staged).await;
                    return Err(error);
                }
            }
        }
        turn.is_unsettled = true;
        let decided = self.ask(edit).await?;
        if let Edited::Refused(_) = decided {
            self.discard(staged).await;
        } else {
            for (one, wanted) in staged.into_iter().zip(wanted) {
                self.put(turn, one, wanted.after.as_ref()).await?;
            }
        }
        turn.is_unsettled = false;
        Ok(decided)
    }

    /// Puts an edit to the board, again while it is not known whether it was recorded.
    async fn ask(&self, edit: Edit) -> Result<Edited, WorkspaceError> {
        let token = edit.token.clone().unwrap_or_else(|| Token::from(Uuid::now_v7().to_string()));
        let edit = Edit { token: Some(token), ..edit };
        let mut pause = PAUSE_MIN;
        loop {
            let outcome = match self.board.edit(edit.clone()).await {
                Err(RuntimeError::Interrupted(_) | RuntimeError::Journal(_)) if pause <= PAUSE_MAX => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                    continue;
                }
                outcome => outcome?,
            };
            return match outcome {
                Outcome::Committed { .. } | Outcome::Duplicate(Verdict::Committed { .. }) => Ok(Edited::Done),
                Outcome::Rejected { rejection, .. } | Outcome::Refused(rejection) => Ok(Edited::Refused(rejection)),
                Outcome::Duplicate(Verdict::Rejected { stage, code, .. }) => {
                    let violation = Violation::new(code, "", "it was refused; read again what it rests on");
                    Ok(Edited::Refused(Rejection::new(stage, vec![violation])))
                }
                other => Err(WorkspaceError::Broken(format!("the board answered {other:?}"))),
            };
        }
    }

    /// Puts in place what is committed. What others wrote in that moment comes after it.
    async fn put(&self, turn: &mut Turn, staged: Staged, text: Option<&Arc<str>>) -> Result<(), WorkspaceError> {
        let path = staged.path().clone();
        turn.texts.keep(&path, text);
        let mut staged = staged;
        for _ in 0..DISPLACED_MAX {
            let (put, returned) = self.on_disk(move |disk| Ok((disk.put(&staged)?, staged))).await?;
            let found = match put {
                Put::Done | Put::Missing => return Ok(()),
                // It is still there, and is told of as what others wrote after the file had gone.
                Put::Kept(_) => return self.tell_of(turn, [&path]).await.map(drop),
                Put::Displaced(found) => found,
            };
            let Some(foreign) = found.text else { return Ok(()) };
            let from = returned.hash();
            let foreign: Arc<str> = foreign.into();
            let wanted = Wanted {
                path: path.clone(),
                before: turn.texts.get(&path).cloned(),
                hunks: turn.texts.get(&path).map(|before| hunks(before, &foreign)),
                after: Some(Arc::clone(&foreign)),
                signed: Vec::new(),
            };
            let (at, again) = (path.clone(), Arc::clone(&foreign));
            staged = self.on_disk(move |disk| disk.stage(&at, from, Some(&again))).await?;
            self.tell(vec![wanted.change()]).await?;
            turn.texts.keep(&path, Some(&foreign));
        }
        // What they write now is seen by the next who looks.
        self.on_disk(move |disk| disk.put(&staged)).await.map(drop)
    }

    /// Tells the board of files that hold something else than it knows, once nothing is left of what was begun before.
    async fn catch_up(
        &self,
        turn: &mut Turn,
        paths: impl IntoIterator<Item = &FilePath>,
    ) -> Result<usize, WorkspaceError> {
        self.settle(turn).await?;
        self.tell_of(turn, paths).await
    }

    async fn settle(&self, turn: &mut Turn) -> Result<(), WorkspaceError> {
        if turn.is_unsettled {
            self.recover().await?;
            turn.is_unsettled = false;
        }
        Ok(())
    }

    async fn tell_of(
        &self,
        turn: &mut Turn,
        paths: impl IntoIterator<Item = &FilePath>,
    ) -> Result<usize, WorkspaceError> {
        let texts = &mut turn.texts;
        let state = self.state();
        let mut changes = Vec::new();
        let mut kept = Vec::new();
        for path in paths {
            // What is not served any more is gone for those who work here.
            let there = match self.read(path).await {
                Err(WorkspaceError::Disk(DiskError::NotServed(_))) => None,
                read => read?,
            };
            let entry = Entry::of(&state, path);
            let known = entry.as_ref().and_then(|entry| entry.hash);
            if known == there.as_ref().map(|there| there.hash) {
                continue;
            }
            let before = texts.get(path).filter(|text| known == Some(sha256(text.as_bytes())));
            let hunks = match (known, before, &there) {
                (None, _, Some(there)) => Some(hunks("", &there.text)),
                (Some(_), Some(before), Some(there)) => Some(hunks(before, &there.text)),
                (_, Some(before), None) => Some(hunks(before, "")),
                (Some(_), None, _) | (None, None, None) => None,
            };
            // Whole files are not put into the journal because they were there before the board.
            let hunks = hunks.filter(|_| entry.is_some());
            changes.push(FileChange {
                path: path.clone(),
                from: known,
                hash: there.as_ref().map(|there| there.hash),
                lines: there.as_ref().map_or(0, |there| count(&there.text)),
                bytes: there.as_ref().map_or(0, |there| there.text.len() as u64),
                hunks,
            });
            kept.push((path.clone(), there.map(|there| Arc::from(there.text))));
        }
        let found = changes.len();
        if found > 0 {
            self.tell(changes).await?;
            kept.iter().for_each(|(path, text)| texts.keep(path, text.as_ref()));
        }
        Ok(found)
    }

    /// Tells the board what has happened: in the name of whoever runs a program that may have done it, or in nobody's.
    async fn tell(&self, changes: Vec<FileChange>) -> Result<(), WorkspaceError> {
        let mut told: BTreeMap<Teller, Vec<FileChange>> = BTreeMap::new();
        for change in changes {
            told.entry(self.running.teller(&change.path)).or_default().push(change);
        }
        for ((name, intent), changes) in told {
            self.tell_as(name, intent, changes).await?;
        }
        Ok(())
    }

    async fn tell_as(
        &self,
        name: Option<String>,
        intent: Option<String>,
        changes: Vec<FileChange>,
    ) -> Result<(), WorkspaceError> {
        let edit = Edit { of: None, token: None, name, intent, reads: Vec::new(), changes };
        match self.ask(edit).await? {
            Edited::Done => Ok(()),
            Edited::Refused(rejection) => Err(WorkspaceError::Refused(Box::new(rejection))),
        }
    }

    async fn read(&self, path: &FilePath) -> Result<Option<Contents>, WorkspaceError> {
        let path = path.clone();
        self.on_disk(move |disk| disk.read(&path)).await
    }

    async fn discard(&self, staged: Vec<Staged>) {
        let thrown = self.on_disk(move |disk| staged.iter().try_for_each(|one| disk.discard(one))).await;
        if let Err(error) = thrown {
            tracing::warn!(%error, "what was staged for an edit is still there; it is thrown away when the workspace is opened");
        }
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

/// What was in files when the board last knew of them, as far as there is room.
#[derive(Default)]
struct Texts {
    texts: BTreeMap<FilePath, Arc<str>>,
    bytes: usize,
}

impl Texts {
    fn get(&self, path: &FilePath) -> Option<&Arc<str>> {
        self.texts.get(path)
    }

    fn keep(&mut self, path: &FilePath, text: Option<&Arc<str>>) {
        if let Some(before) = self.texts.remove(path) {
            self.bytes -= before.len();
        }
        let Some(text) = text.filter(|text| self.bytes + text.len() <= TEXT_BYTES_MAX) else { return };
        self.bytes += text.len();
        self.texts.insert(path.clone(), Arc::clone(text));
    }
}
