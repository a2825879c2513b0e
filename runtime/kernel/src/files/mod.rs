//! A directory of files that several agents edit, under the same guarantee as the document: what is written is checked
//! against what its author has read.
//!
//! The files are outside; the state says of each which version it has, what it holds by its hash, who wrote it last, and
//! which lines the last edits moved. So whether an edit may be made is a question to the state, and is answered here.

mod access;
mod author;
mod entry;
mod judge;
mod lines;
mod path;

use jsonptr::Pointer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::Digest;
use crate::id::{InvocationId, Token};
use crate::state::State;

pub use access::{Access, PATTERNS_MAX, patterns};
pub use author::begins_comments;
pub use entry::{EDITS_MAX, Edited, Entry, Seen, seen};
pub use judge::{CHANGES_MAX, EXTERNAL, FILES_MAX, INTENT_MAX, READS_MAX, is_covered};
pub(crate) use judge::{Inputs, Refused, judge};
pub use lines::{Hunk, Lines, Move, carry, count, cover, union};
pub use path::{FilePath, PATH_BYTES_MAX, PathError};

/// What a board knows of its files beside what the state says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Edits that were committed.
    pub edits: u64,
    /// The highest version of a file that is gone and was forgotten. Files that are new begin above it: so whoever has read
    /// one of the same name before is found to have read something else.
    pub floor: u64,
}

impl Tally {
    /// Whether there is nothing to know.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes note of the patch of an edit, which has not been applied to the state yet.
    pub(crate) fn note(&mut self, state: &State, patch: &Value) {
        self.edits = self.edits.saturating_add(1);
        let removed = patch.as_array().into_iter().flatten().filter(|op| op["op"] == "remove");
        let places = removed.filter_map(|op| Pointer::parse(op["path"].as_str()?).ok());
        let versions = places.filter(|place| place.count() == 2).filter_map(|place| {
            let version = state.get(place)?.child("version")?;
            version.to_value().as_u64()
        });
        self.floor = versions.fold(self.floor, u64::max);
    }
}

/// The member of the state that says of each file what is known of it; only the kernel writes it.
pub const FILES: &str = "files";

/// What an agent has seen of a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRead {
    /// Which file.
    pub path: FilePath,
    /// The version it had; 0: there was none of this name yet.
    pub version: u64,
    /// The lines, in that version's numbers; none: all of it, or that it was gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Lines>,
}

/// What an edit does to one file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileChange {
    /// Which file.
    pub path: FilePath,
    /// SHA-256 of the content it replaces; none where there was no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Digest>,
    /// SHA-256 of the new content; none where the file goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<Digest>,
    /// Lines of the new content.
    #[serde(default)]
    pub lines: u32,
    /// Bytes of the new content.
    #[serde(default)]
    pub bytes: u64,
    /// What became of which lines, sorted, none reaching into another; none where that is not known, and then all of them
    /// may have changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hunks: Option<Vec<Hunk>>,
}

/// Somebody wants to change files, or something else has changed them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// The attempt that wants it; none: it has happened, and nobody can refuse it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<EditAttempt>,
    /// For recognising a repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// Who it is, where several share a seat or what has happened has a name; the worker, or `external`, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is for, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// All that its author has read.
    #[serde(default)]
    pub reads: Vec<FileRead>,
    /// What it does; each file once.
    pub changes: Vec<FileChange>,
}

/// The attempt that an edit belongs to. It goes on after the edit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditAttempt {
    /// The invocation.
    pub invocation: InvocationId,
    /// Which attempt of it.
    pub attempt: u32,
}
