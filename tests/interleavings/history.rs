//! What happened to files, line by line: every line that was ever written is one of its own, also where its text is the
//! same as another's, and every version of a file is a sequence of such lines.
//!
//! Written from the rules alone: whether lines still stand is answered by looking for them in every version since.

use std::collections::BTreeMap;

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

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    files: BTreeMap<String, Vec<Version>>,
    last_line: Line,
}

impl History {
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
        self.files.get(path).map_or(0, |versions| versions.len() as u64)
    }

    pub(crate) fn at(&self, path: &str, version: u64) -> Option<&Version> {
        self.files.get(path)?.get(usize::try_from(version).ok()?.checked_sub(1)?)
    }

    pub(crate) fn now(&self, path: &str) -> Option<&Version> {
        self.files.get(path)?.last()
    }

    /// The lines of a file that is there.
    pub(crate) fn lines(&self, path: &str) -> Option<&[Line]> {
        self.now(path)?.lines.as_deref()
    }

    /// Adds a version.
    pub(crate) fn make(&mut self, change: &Change, by: &str) {
        let is_coarse = change.pieces.as_ref().is_none_or(|pieces| pieces.len() > PIECES);
        let version = Version { lines: change.lines.clone(), by: by.to_owned(), is_coarse };
        self.files.entry(change.path.clone()).or_default().push(version);
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
