//! A directory of files edited by several agents, with the same guarantee as the document: writes are checked against
//! their author's reads.
//!
//! The files are outside of the kernel. For each file, the state holds its version, its content hash, its last author,
//! and the lines moved by the latest edits. So edits can be judged by the state alone, in this module.

mod access;
mod entry;
mod judge;
mod lines;
mod path;
mod reserved_names;

use jsonptr::Pointer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::Digest;
use crate::id::{IdempotencyKey, InvocationId};
use crate::state::State;

pub use access::{Access, PATTERNS_MAX, patterns};
pub use entry::{EDITS_MAX, FileEntry, PastEdit, ReadState, check_read};
pub use judge::{CHANGES_MAX, EXTERNAL, FILES_MAX, INTENT_MAX, READS_MAX, is_covered};
pub(crate) use judge::{EditContext, EditProposal};
pub use lines::{Hunk, LineRange, LineShift, count, cover, shift_lines, union};
pub use path::{FilePath, PATH_BYTES_MAX, PathError};
pub use reserved_names::is_comment_prefix;

/// File counters of a board, kept outside the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileCounters {
    /// Number of committed edits.
    pub edits: u64,
    /// The highest version of an evicted entry. New files begin above it, so a read of an evicted file with the same
    /// name is found stale.
    #[serde(rename = "floor")]
    pub version_floor: u64,
}

impl FileCounters {
    /// Records the patch of an edit before it is applied to the state.
    pub(crate) fn record_edit(&mut self, state: &State, patch: &Value) {
        self.edits = self.edits.saturating_add(1);
        let removed = patch.as_array().into_iter().flatten().filter(|op| op["op"] == "remove");
        let places = removed.filter_map(|op| Pointer::parse(op["path"].as_str()?).ok());
        let versions = places.filter(|place| place.count() == 2).filter_map(|place| {
            let version = state.get(place)?.child("version")?;
            version.to_value().as_u64()
        });
        self.version_floor = versions.fold(self.version_floor, u64::max);
    }
}

/// The member of the state that holds the file entries; only the kernel writes it.
pub const FILES: &str = "files";

/// An agent's read of a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRead {
    /// Path of the file.
    pub path: FilePath,
    /// Version that was read; 0: there was no file of this name yet.
    pub version: u64,
    /// Lines that were read, in that version's numbers; `None`: the whole file, or its absence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<LineRange>,
}

/// Change of one file by an edit.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileChange {
    /// Path of the file.
    pub path: FilePath,
    /// SHA-256 of the content it replaces; `None` for a new file.
    pub from: Option<Digest>,
    /// SHA-256 of the new content; `None` for a deletion.
    pub hash: Option<Digest>,
    /// Lines of the new content.
    #[serde(default)]
    pub lines: u32,
    /// Bytes of the new content.
    #[serde(default)]
    pub bytes: u64,
    /// Changed lines, sorted and without overlap; `None` if unknown, in which case any line may have changed.
    pub hunks: Option<Vec<Hunk>>,
}

/// A proposed edit of files, or an external change.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Attempt that proposes the edit; `None` for an external change, which cannot be rejected.
    pub of: Option<EditAttempt>,
    /// Idempotency key.
    pub token: Option<IdempotencyKey>,
    /// Author name, if several agents share a worker or an external change has one; the worker or `external` if absent.
    pub name: Option<String>,
    /// One-line statement of intent.
    pub intent: Option<String>,
    /// The author's read set.
    #[serde(default)]
    pub reads: Vec<FileRead>,
    /// Changes; each file at most once.
    pub changes: Vec<FileChange>,
}

/// The attempt that an edit belongs to. It continues after the edit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditAttempt {
    /// The invocation.
    pub invocation: InvocationId,
    /// Number of the attempt.
    pub attempt: u32,
}
