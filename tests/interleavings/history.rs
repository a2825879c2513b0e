//! History of the files, line by line. Every line ever written has an identity of its own, even if its text equals
//! that of another line. Every version of a file is a sequence of such lines.
//!
//! Independent of the kernel: to answer if a read is current, it looks for the lines in every version since.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::digest::{Digest, sha256};

/// Number of edits per file that a board remembers (docs/workspace.md).
pub(crate) const REMEMBERED: u64 = 32;
/// Number of pieces per edit that a board remembers.
pub(crate) const PIECES: usize = 64;

/// Identity of a line.
pub(crate) type Line = u64;

/// Returns the text of lines. Many lines share a text, so that texts cannot identify them.
pub(crate) fn text_of(lines: &[Line]) -> String {
    lines.iter().map(|line| format!("{}\n", line % 61)).collect()
}

/// One version of a file.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// `None` if the file is deleted.
    pub(crate) lines: Option<Vec<Line>>,
    pub(crate) by: String,
    /// True if the board remembers no pieces of the edit that made it.
    is_coarse: bool,
}

impl Version {
    pub(crate) fn hash(&self) -> Option<Digest> {
        self.lines.as_ref().map(|lines| sha256(text_of(lines).as_bytes()))
    }
}

/// Replacement of `gone` lines, from index `at` (counted from 0), by `new`.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) at: usize,
    pub(crate) gone: usize,
    pub(crate) new: Vec<Line>,
}

/// Effect of an edit on one file.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) path: String,
    /// Content that the author expects to replace.
    pub(crate) from: Option<Digest>,
    /// `None` if the change deletes the file.
    pub(crate) lines: Option<Vec<Line>>,
    /// `None` if the pieces are unknown.
    pub(crate) pieces: Option<Vec<Piece>>,
}

/// Read of a file by an agent.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) path: String,
    /// Zero if the file did not exist at any time before.
    pub(crate) version: u64,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// The whole file, or its absence.
    Whole,
    /// Some lines, with the number of the first (counted from 1).
    Part { first: u32, lines: Vec<Line> },
}

/// State of a read relative to the current version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Freshness {
    /// Unchanged.
    Yes,
    /// Changed, now or in a version between.
    No,
    /// Unchanged, but with more edits since than a board remembers.
    BeyondMemory,
    /// Unchanged, but one of the edits since had unknown pieces, or more than a board remembers.
    BehindCoarse,
}

/// A file that the board knows.
#[derive(Clone, Debug, Default)]
struct File {
    /// Last version before this history; earlier versions belong to forgotten files of this name.
    before: u64,
    versions: Vec<Version>,
    /// Number of the edit that made the last version.
    changed: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct History {
    files: BTreeMap<String, File>,
    last_line: Line,
    /// Maximum number of known files.
    most: usize,
    /// True if every line has a unique text. Otherwise many lines share a text ([`text_of`]).
    pub(crate) tells_lines: bool,
    edits: u64,
    /// Highest version of any forgotten file.
    floor: u64,
    /// Forgotten files by name and last version, which was the deletion.
    graves: BTreeSet<(String, u64)>,
}

/// Divisor: one in sixteen deleted files is forgotten at once.
const AT_ONCE: usize = 16;

impl History {
    pub(crate) fn new(most: usize) -> Self {
        let (files, graves) = (BTreeMap::new(), BTreeSet::new());
        Self { files, last_line: 0, most, tells_lines: false, edits: 0, floor: 0, graves }
    }

    /// Returns the number of forgotten files.
    pub(crate) fn forgotten(&self) -> usize {
        self.graves.len()
    }

    /// Returns the files to forget so that the changes have room, or `None` if there are too few deleted ones.
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

    /// Applies an edit.
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

    /// Returns true if a change leaves its file as it is.
    pub(crate) fn stays(&self, change: &Change) -> bool {
        if self.tells_lines {
            return self.lines(&change.path) == change.lines.as_deref();
        }
        let becomes = change.lines.as_ref().map(|lines| sha256(text_of(lines).as_bytes()));
        self.now(&change.path).and_then(Version::hash) == becomes
    }

    /// Returns the version before the first of a known file.
    pub(crate) fn before(&self, path: &str) -> u64 {
        self.files.get(path).map_or(0, |file| file.before)
    }

    /// Returns fresh lines.
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

    /// Returns the lines of an existing file.
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

    /// Returns true if a version holds the lines contiguously and in this order.
    fn holds(version: &Version, lines: &[Line]) -> bool {
        let Some(there) = &version.lines else { return false };
        let start = lines.first().and_then(|first| there.iter().position(|line| line == first));
        start.is_some_and(|start| there[start..].starts_with(lines))
    }

    /// Compares a read with every version since.
    pub(crate) fn freshness(&self, read: &Read) -> Freshness {
        let now = self.version(&read.path);
        if read.version == now {
            return Freshness::Yes;
        }
        if now == 0 && self.graves.contains(&(read.path.clone(), read.version)) {
            // The agent read the deletion, and the file is still deleted.
            return Freshness::BeyondMemory;
        }
        if now == 0 || read.version <= self.before(&read.path) {
            return Freshness::No;
        }
        let What::Part { lines, .. } = &read.what else { return Freshness::No };
        let since = (read.version + 1..=now).filter_map(|version| self.at(&read.path, version));
        if !since.clone().all(|version| Self::holds(version, lines)) {
            return Freshness::No;
        }
        if now - read.version > REMEMBERED {
            return Freshness::BeyondMemory;
        }
        match since.clone().any(|version| version.is_coarse) {
            true => Freshness::BehindCoarse,
            false => Freshness::Yes,
        }
    }

    /// Returns true if the lines that were read are there now, regardless of the versions between.
    pub(crate) fn is_back(&self, read: &Read) -> bool {
        match (&read.what, self.now(&read.path)) {
            (What::Part { lines, .. }, Some(now)) => Self::holds(now, lines),
            _ => false,
        }
    }
}

/// Returns the lines after the pieces are applied.
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
