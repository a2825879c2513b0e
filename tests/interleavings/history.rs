//! What happened to files, line by line: every line that was ever written is one of its own, also where its text is the
//! same as another's, and every version of a file is a sequence of such lines.
//!
//! Written from the rules alone: whether lines still stand is answered by looking for them in every version since.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::digest::{Digest, sha256};

/// Edits of a file that a board remembers (docs/workspace.md).
pub(crate) const REMEMBERED: u64 = 32;
/// Pieces of one edit that it remembers.
pub(crate) const PIECES: usize = 64;

/// A line, told from all others.
pub(crate) type Line = u64;

/// What a line holds. Many share a text, so that nothing can be told by texts.
pub(crate) fn text_of(lines: &[Line]) -> String {
    lines.iter().map(|line| format!("{}\n", line % 61)).collect()
}

/// One version of a file.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// None: the file is gone.
    pub(crate) lines: Option<Vec<Line>>,
    pub(crate) by: String,
    /// Of the edit that made it no pieces are remembered.
    is_coarse: bool,
}

impl Version {
    pub(crate) fn hash(&self) -> Option<Digest> {
        self.lines.as_ref().map(|lines| sha256(text_of(lines).as_bytes()))
    }
}

/// From this line on (counted from 0) so many lines went, and these came.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) at: usize,
    pub(crate) gone: usize,
    pub(crate) new: Vec<Line>,
}

/// What an edit makes of one file.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) path: String,
    /// The content that its author means to replace.
    pub(crate) from: Option<Digest>,
    /// None: the file goes.
    pub(crate) lines: Option<Vec<Line>>,
    /// None: nobody knows.
    pub(crate) pieces: Option<Vec<Piece>>,
}

/// Lines that somebody was shown.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) path: String,
    /// 0: there had never been such a file.
    pub(crate) version: u64,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// All of the file, or that there is none.
    Whole,
    /// These lines, the first of which was this one (counted from 1).
    Part { first: u32, lines: Vec<Line> },
}

/// What has become of something that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stands {
    /// It is as it was.
    Yes,
    /// It is not, or was not meanwhile.
    No,
    /// It is, but the edits since are more than a board remembers.
    BeyondMemory,
    /// It is, but one of the edits since had more pieces than a board remembers, or unknown ones.
    BehindCoarse,
}

/// A file of which something is known.
#[derive(Clone, Debug, Default)]
struct File {
    /// The versions before the first of these are those of others that had the name and were forgotten.
    before: u64,
    versions: Vec<Version>,
    /// The edit that made the last version, by its number.
    changed: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct History {
    files: BTreeMap<String, File>,
    last_line: Line,
    /// So many files are known at most.
    most: usize,
    /// What a line holds tells it from all others. Else many share a text ([`text_of`]).
    pub(crate) tells_lines: bool,
    edits: u64,
    /// The highest version of all that was forgotten.
    floor: u64,
    /// Forgotten files by name and last version, which was that they were gone.
    graves: BTreeSet<(String, u64)>,
}

/// Of those that are gone so many are forgotten at once: one of sixteen.
const AT_ONCE: usize = 16;

impl History {
    pub(crate) fn new(most: usize) -> Self {
        let (files, graves) = (BTreeMap::new(), BTreeSet::new());
        Self { files, last_line: 0, most, tells_lines: false, edits: 0, floor: 0, graves }
    }

    /// Files that were forgotten.
    pub(crate) fn forgotten(&self) -> usize {
        self.graves.len()
    }

    /// What is to be forgotten so that these changes have room; none if that does not suffice.
    pub(crate) fn to_forget(&self, changes: &[Change]) -> Option<Vec<String>> {
        let new = changes.iter().filter(|change| !self.files.contains_key(&change.path)).count();
        let excess = (self.files.len() + new).saturating_sub(self.most);
        if new == 0 || excess == 0 {
            return Some(Vec::new());
        }
        let is_gone = |file: &File| file.versions.last().is_some_and(|version| version.lines.is_none());
        let is_meant = |path: &str| changes.iter().any(|change| change.path == path);
        let mut gone: Vec<(u64, &String)> = self
            .files
            .iter()
            .filter(|(path, file)| is_gone(file) && !is_meant(path))
            .map(|(path, file)| (file.changed, path))
            .collect();
        gone.sort_unstable();
        let count = excess.max(gone.len() / AT_ONCE);
        (gone.len() >= excess).then(|| gone.into_iter().take(count).map(|(_, path)| path.clone()).collect())
    }

    /// An edit is made.
    pub(crate) fn edit(&mut self, changes: &[Change], by: &str) {
        self.edits += 1;
        let forgotten = self.to_forget(changes).unwrap_or_default();
        let made: Vec<&Change> = changes.iter().filter(|change| !self.stays(change)).collect();
        made.into_iter().for_each(|change| self.make(change, by));
        for path in forgotten {
            let version = self.version(&path);
            self.floor = self.floor.max(version);
            self.files.remove(&path);
            self.graves.insert((path, version));
        }
    }

    /// Whether a change leaves its file as it is.
    pub(crate) fn stays(&self, change: &Change) -> bool {
        if self.tells_lines {
            return self.lines(&change.path) == change.lines.as_deref();
        }
        let becomes = change.lines.as_ref().map(|lines| sha256(text_of(lines).as_bytes()));
        self.now(&change.path).and_then(Version::hash) == becomes
    }

    /// The version before the first of a file that is known.
    pub(crate) fn before(&self, path: &str) -> u64 {
        self.files.get(path).map_or(0, |file| file.before)
    }

    /// Lines that never were.
    pub(crate) fn fresh(&mut self, count: usize) -> Vec<Line> {
        let from = self.last_line + 1;
        self.last_line += count as u64;
        (from..=self.last_line).collect()
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &String> {
        self.files.keys()
    }

    pub(crate) fn version(&self, path: &str) -> u64 {
        self.files.get(path).map_or(0, |file| file.before + file.versions.len() as u64)
    }

    pub(crate) fn at(&self, path: &str, version: u64) -> Option<&Version> {
        let file = self.files.get(path)?;
        let index = version.checked_sub(file.before)?.checked_sub(1)?;
        file.versions.get(usize::try_from(index).ok()?)
    }

    pub(crate) fn now(&self, path: &str) -> Option<&Version> {
        self.files.get(path)?.versions.last()
    }

    /// The lines of a file that is there.
    pub(crate) fn lines(&self, path: &str) -> Option<&[Line]> {
        self.now(path)?.lines.as_deref()
    }

    /// Adds a version.
    fn make(&mut self, change: &Change, by: &str) {
        let is_coarse = change.pieces.as_ref().is_none_or(|pieces| pieces.len() > PIECES);
        let version = Version { lines: change.lines.clone(), by: by.to_owned(), is_coarse };
        let (before, edits) = (self.floor, self.edits);
        let file = self.files.entry(change.path.clone()).or_insert_with(|| File { before, ..File::default() });
        file.versions.push(version);
        file.changed = edits;
    }

    /// Whether lines are in a version, each of them, in one piece and in this order.
    fn holds(version: &Version, lines: &[Line]) -> bool {
        let Some(there) = &version.lines else { return false };
        let start = lines.first().and_then(|first| there.iter().position(|line| line == first));
        start.is_some_and(|start| there[start..].starts_with(lines))
    }

    /// Whether what was read has stood ever since.
    pub(crate) fn stands(&self, read: &Read) -> Stands {
        let now = self.version(&read.path);
        if read.version == now {
            return Stands::Yes;
        }
        if now == 0 && self.graves.contains(&(read.path.clone(), read.version)) {
            // That it is gone was read, and it is.
            return Stands::BeyondMemory;
        }
        if now == 0 || read.version <= self.before(&read.path) {
            return Stands::No;
        }
        let What::Part { lines, .. } = &read.what else { return Stands::No };
        let since = (read.version + 1..=now).filter_map(|version| self.at(&read.path, version));
        if !since.clone().all(|version| Self::holds(version, lines)) {
            return Stands::No;
        }
        if now - read.version > REMEMBERED {
            return Stands::BeyondMemory;
        }
        match since.clone().any(|version| version.is_coarse) {
            true => Stands::BehindCoarse,
            false => Stands::Yes,
        }
    }

    /// Whether what was read is there now, whatever was meanwhile.
    pub(crate) fn is_back(&self, read: &Read) -> bool {
        match (&read.what, self.now(&read.path)) {
            (What::Part { lines, .. }, Some(now)) => Self::holds(now, lines),
            _ => false,
        }
    }
}

/// The lines after the pieces.
pub(crate) fn apply(lines: &[Line], pieces: &[Piece]) -> Vec<Line> {
    let mut after = Vec::new();
    let mut done = 0;
    for piece in pieces {
        after.extend_from_slice(&lines[done..piece.at]);
        after.extend_from_slice(&piece.new);
        done = piece.at + piece.gone;
    }
    after.extend_from_slice(&lines[done..]);
    after
}
