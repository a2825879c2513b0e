//! What others change around the workspace: how it is found, and how the board is told.
//!
//! What is told is bounded: a record holds so many files and so much text of them. What the board does not take is recorded
//! once, and put to it again when it is something else, or when the board has gone on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::{Edit, Entry, FileChange, FilePath, Hunk, count};
use patchboard_kernel::id::Version;
use patchboard_kernel::rejection::Rejection;
use patchboard_kernel::state::State;
use tokio::time::Instant;

use super::super::disk::{Contents, DiskError};
use super::super::running::Teller;
use super::super::text::hunks::hunks;
use super::alone::Alone;
use super::edits::{ByOthers, Edited, NotTaken, Standing, WorkspaceError};
use super::texts::Texts;

/// Files of one record of what others have changed, and bytes of what is held and told of them.
const FILES_AT_ONCE: usize = 2000;
const BYTES_AT_ONCE: usize = 4 * 1024 * 1024;

/// How often what the board did not take is put to it in halves, of all that is told together.
const HALVED_MAX: usize = 32;

/// How many reports that the board did not take are remembered: more than those that come of one look at the directory.
const UNTAKEN_MAX: usize = 256;

/// How long a report that the board did not take is held back at least, though the board has gone on: the first time, and
/// after many times.
const UNTAKEN_MIN: Duration = Duration::from_secs(1);
const UNTAKEN_LONGEST: Duration = Duration::from_secs(60);

/// Changes that are told together.
#[derive(Default)]
struct Batch {
    changes: Vec<FileChange>,
    /// What is in the files now.
    texts: Vec<(FilePath, Option<Arc<str>>)>,
    bytes: usize,
}

impl Alone {
    /// Looks at the whole directory and tells the board what others have changed.
    pub(super) async fn rescan(&mut self) -> Result<ByOthers, WorkspaceError> {
        Ok(self.rescan_with((), |(), _, _| {}).await?.1)
    }

    /// The same, and shows each file as it was found.
    pub(super) async fn rescan_with<S: Send + 'static>(
        &mut self,
        mut seen: S,
        see: fn(&mut S, &FilePath, &Contents),
    ) -> Result<(S, ByOthers), WorkspaceError> {
        self.settle().await?;
        let known = self.workspace.files();
        let workspace = Arc::clone(&self.workspace);
        let (scan, known, seen) = self
            .workspace
            .on_disk(move |disk| {
                let scan = disk.scan_with(&mut |path, contents| {
                    see(&mut seen, path, contents);
                    if known.get(path).is_some_and(|entry| entry.hash == Some(contents.hash)) {
                        workspace.texts.keep_beside(path, &contents.text);
                    }
                });
                Ok((scan?, known, seen))
            })
            .await?;
        let of = |entry: &Entry| entry.hash;
        let changed = scan.files.iter().filter(|(path, found)| known.get(*path).and_then(of) != Some(found.hash));
        let gone = known.keys().filter(|path| !scan.files.contains_key(*path));
        let changed: Vec<FilePath> = changed.map(|(path, _)| path.clone()).chain(gone.cloned()).collect();
        Ok((seen, self.tell_of(changed).await?))
    }

    /// A file as it stands, once the board knows of it.
    pub(super) async fn look(&mut self, path: &FilePath) -> Result<Standing, WorkspaceError> {
        self.tell_of([path.clone()]).await?.all()?;
        match self.workspace.standing(path).await? {
            Some(standing) => Ok(standing),
            None => Err(DiskError::Busy { path: path.to_string() }.into()),
        }
    }

    /// Tells the board of those of these files that hold something else than it knows, once nothing is left of what was
    /// begun before.
    pub(super) async fn tell_of(
        &mut self,
        paths: impl IntoIterator<Item = FilePath, IntoIter: Send> + Send,
    ) -> Result<ByOthers, WorkspaceError> {
        self.settle().await?;
        let state = self.workspace.state();
        let mut batch = Batch::default();
        let mut by_others = ByOthers::default();
        for path in paths {
            let Some((change, text)) = self.changed_by_others(&state, path.clone()).await? else { continue };
            let bytes = bytes_of(change.hunks.as_deref()) + text.as_ref().map_or(0, |text| text.len());
            if batch.changes.len() == FILES_AT_ONCE || (batch.bytes + bytes > BYTES_AT_ONCE && batch.bytes > 0) {
                self.tell(take(&mut batch), &mut by_others).await?;
            }
            batch.bytes += bytes;
            batch.changes.push(change);
            batch.texts.push((path, text));
        }
        self.tell(batch, &mut by_others).await?;
        Ok(by_others)
    }

    /// What others have made of a file of which a state says something else, and what is in it now.
    async fn changed_by_others(
        &self,
        state: &State,
        path: FilePath,
    ) -> Result<Option<(FileChange, Option<Arc<str>>)>, WorkspaceError> {
        let entry = Entry::of(state, &path);
        let workspace = Arc::clone(&self.workspace);
        let changed = self.workspace.on_disk(move |disk| {
            // What is not served any more is gone for those who work here.
            let there = match disk.read(&path) {
                Err(DiskError::NotServed(_)) => None,
                read => read?,
            };
            if entry.as_ref().and_then(|entry| entry.hash) == there.as_ref().map(|there| there.hash) {
                return Ok(None);
            }
            let now = there.as_ref().map(|Contents { hash, text, .. }| (*hash, text.as_str()));
            let change = change_by_others(&path, entry.as_ref(), &workspace.texts, now);
            Ok(Some((change, there.map(|there| Arc::from(there.text)))))
        });
        changed.await
    }

    /// Tells the board what has happened: in the name of whoever runs a program that may have done it, or in nobody's. What
    /// it does not take keeps back nothing else.
    async fn tell(&mut self, batch: Batch, by_others: &mut ByOthers) -> Result<(), WorkspaceError> {
        by_others.found += batch.changes.len();
        let mut told: BTreeMap<Teller, Vec<FileChange>> = BTreeMap::new();
        for change in batch.changes {
            told.entry(self.workspace.running.teller(&change.path)).or_default().push(change);
        }
        let before = by_others.untaken.len();
        for (teller, changes) in told {
            self.tell_as(&teller, changes, by_others).await?;
        }
        let untaken: BTreeSet<&FilePath> = by_others.untaken[before..].iter().flat_map(|it| &it.paths).collect();
        let taken = batch.texts.iter().filter(|(path, _)| !untaken.contains(path));
        taken.for_each(|(path, text)| self.workspace.texts.keep(path, text.as_ref()));
        Ok(())
    }

    /// Tells it all at once, and what is not taken in halves, until it is known which files are in the way or that was asked
    /// often enough. What was not taken before as it is now is not put to the board in parts either.
    async fn tell_as(
        &mut self,
        (name, intent): &Teller,
        changes: Vec<FileChange>,
        by_others: &mut ByOthers,
    ) -> Result<(), WorkspaceError> {
        let mut parts = vec![changes];
        while let Some(mut changes) = parts.pop() {
            let paths = |changes: &[FileChange]| changes.iter().map(|change| change.path.clone()).collect();
            let what = Untaken::key(&changes);
            let version = self.workspace.board().snapshot().version;
            if let Some(rejection) = self.notes.untaken.of(&what, version) {
                by_others.untaken.push(NotTaken { paths: paths(&changes), rejection });
                continue;
            }
            let (name, intent) = (name.clone(), intent.clone());
            let edit = Edit { of: None, token: None, name, intent, reads: Vec::new(), changes: changes.clone() };
            match self.put_to_board(edit, None, VecDeque::new()).await? {
                Edited::Done(_) => self.notes.untaken.taken(&what),
                Edited::Refused(rejection) => {
                    self.notes.untaken.note(what, version, rejection.clone());
                    if changes.len() == 1 || by_others.halved >= HALVED_MAX {
                        by_others.untaken.push(NotTaken { paths: paths(&changes), rejection });
                    } else {
                        by_others.halved += 1;
                        let second = changes.split_off(changes.len() / 2);
                        parts.extend([second, changes]);
                    }
                }
            }
        }
        Ok(())
    }
}

/// What others have made of a file of which the board knows this: its hash and its text now, or none if it is gone.
pub(super) fn change_by_others(
    path: &FilePath,
    entry: Option<&Entry>,
    texts: &Texts,
    now: Option<(Digest, &str)>,
) -> FileChange {
    let from = entry.and_then(|entry| entry.hash);
    let before = from.and_then(|hash| texts.known(path, hash));
    let after = now.map_or("", |(_, text)| text);
    let hunks = match (from, before) {
        // Whole files are not put into the journal because they were there before the board.
        (None, _) => entry.is_some().then(|| hunks("", after)),
        (Some(_), Some(before)) => Some(hunks(&before, after)),
        (Some(_), None) => None,
    };
    FileChange {
        path: path.clone(),
        from,
        hash: now.map(|(hash, _)| hash),
        lines: count(after),
        bytes: after.len() as u64,
        // Without them all of it may have changed, which is more than is so and never less.
        hunks: hunks.filter(|hunks| bytes_of(Some(hunks)) <= BYTES_AT_ONCE),
    }
}

fn bytes_of(hunks: Option<&[Hunk]>) -> usize {
    hunks.unwrap_or_default().iter().map(|hunk| hunk.was.len() + hunk.now.len()).sum()
}

/// What the board did not take of what has happened, by what that was: each try is a record.
#[derive(Default)]
pub(super) struct Untaken(BTreeMap<Digest, Refusal>);

struct Refusal {
    rejection: Rejection,
    /// The board's version then: what was wrong with it may have gone with a later one.
    version: Version,
    pause: Duration,
    again: Instant,
}

impl Untaken {
    /// What tells reports apart: which files they are of, and what is in them now.
    fn key(changes: &[FileChange]) -> Digest {
        let what: Vec<_> = changes.iter().map(|change| (&change.path, change.hash)).collect();
        sha256(&serde_json::to_vec(&what).expect("names and hashes can be written"))
    }

    /// Why the board would not take it, as far as is known without asking.
    fn of(&self, what: &Digest, version: Version) -> Option<Rejection> {
        let refusal = self.0.get(what)?;
        (refusal.version == version || Instant::now() < refusal.again).then(|| refusal.rejection.clone())
    }

    fn note(&mut self, what: Digest, version: Version, rejection: Rejection) {
        let pause = self.0.get(&what).map_or(UNTAKEN_MIN, |before| (before.pause * 2).min(UNTAKEN_LONGEST));
        if self.0.len() >= UNTAKEN_MAX
            && let Some(first) = self.0.iter().min_by_key(|(_, refusal)| refusal.again).map(|(what, _)| *what)
        {
            self.0.remove(&first);
        }
        self.0.insert(what, Refusal { rejection, version, pause, again: Instant::now() + pause });
    }

    fn taken(&mut self, what: &Digest) {
        self.0.remove(what);
    }
}
