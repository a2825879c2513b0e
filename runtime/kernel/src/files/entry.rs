//! File entries of the state.

use std::collections::BTreeMap;

use jsonptr::PointerBuf;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{FILES, FileChange, FilePath, FileRead, LineRange, LineShift, shift_lines};
use crate::blueprint::Granularity;
use crate::digest::Digest;
use crate::mutants::{self, Mutant};
use crate::state::State;
use crate::tree::Node;

/// Number of remembered edits of one file. A read from before them is stale if any edit followed.
pub const EDITS_MAX: u64 = 32;

/// Maximum number of remembered hunks of one edit. An edit with more counts as a change of the whole file.
const MOVES_MAX: usize = 64;

/// Divisor for evicting entries of deleted files: at least one in sixteen is evicted when room is needed.
const FORGOTTEN_AT_ONCE: usize = 16;

/// State entry of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileEntry {
    /// Number of its latest edit, from 1, or from above all evicted entries ([`Tally::floor`](super::FileCounters)). A
    /// file recreated under the name of a deleted one continues its numbers.
    pub version: u64,
    /// SHA-256 of its content; `None` if the file is deleted.
    pub hash: Option<Digest>,
    /// Number of lines.
    pub lines: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Author of this version.
    pub writer: String,
    /// Intent of the edit that made this version.
    #[serde(default)]
    pub intent: String,
    /// The latest edits, by the versions they made.
    #[serde(default)]
    pub edits: BTreeMap<u64, PastEdit>,
}

/// Line moves of one edit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PastEdit {
    /// Author of the edit.
    pub by: String,
    /// First line, removed lines and added lines of each hunk; `None`: everything may have changed.
    pub moves: Option<Vec<(u32, u32, u32)>>,
}

/// Result of checking an earlier read against the current file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadState {
    /// Unchanged, with its current line range; `None` if there is no file.
    Fresh(Option<LineRange>),
    /// Changed since the read.
    Stale,
}

impl FileEntry {
    /// Reads the entry of a file from the state; `None` if no file of this name is known.
    pub fn load(state: &State, path: &FilePath) -> Option<Self> {
        Self::load_since(state, path, 0)
    }

    /// Like [`FileEntry::load`], with only the edits after `version`: these suffice to check reads at that version.
    pub(super) fn load_since(state: &State, path: &FilePath, version: u64) -> Option<Self> {
        // Only the kernel writes these entries, so they are well-formed.
        let node = node(state, path)?;
        let text = |name| node.child(name)?.as_str().map(str::to_owned);
        let now = number(node.child("version")?)?;
        let oldest = now.saturating_sub(EDITS_MAX).max(version).saturating_add(1);
        let edits = node.child("edits")?;
        let edits = (oldest..=now).filter_map(|made| Some((made, PastEdit::read(edits.child(&made.to_string())?)?)));
        Some(Self {
            version: now,
            hash: match node.child("hash")? {
                Node::Null => None,
                hash => Some(hash.as_str()?.parse().ok()?),
            },
            lines: u32::try_from(number(node.child("lines")?)?).ok()?,
            bytes: number(node.child("bytes")?)?,
            writer: text("writer")?,
            intent: text("intent").unwrap_or_default(),
            edits: edits.collect(),
        })
    }

    /// Returns a file's version from the state; `None` if no file of this name is known.
    pub(super) fn version_of(state: &State, path: &FilePath) -> Option<u64> {
        number(node(state, path)?.child("version")?)
    }

    /// Returns true if the file exists.
    pub const fn exists(&self) -> bool {
        self.hash.is_some()
    }

    /// Checks a read of this file for changes since.
    pub fn check_read(&self, read: &FileRead, granularity: Granularity) -> ReadState {
        let all = self.exists().then_some((1, self.lines));
        if read.version == self.version {
            return ReadState::Fresh(read.lines.or(all));
        }
        if !self.exists() && mutants::is_active(Mutant::IgnoreDeletion) {
            return ReadState::Fresh(None);
        }
        let Some(lines) = read.lines.filter(|_| granularity == Granularity::Lines && self.exists()) else {
            return ReadState::Stale;
        };
        let mut now = Some(lines);
        for version in read.version.saturating_add(1)..=self.version {
            let edit = self.edits.get(&version);
            let unknown = edit.filter(|_| mutants::is_active(Mutant::IgnoreUnknownEdit)).map(|_| [].as_slice());
            let moves = edit.and_then(|edit| edit.moves.as_deref()).or(unknown);
            now = now
                .and_then(|lines| shift_lines(lines, &moves?.iter().copied().map(LineShift::from).collect::<Vec<_>>()));
            if now.is_none() {
                return ReadState::Stale;
            }
        }
        // A version from the future was never read.
        if read.version > self.version { ReadState::Stale } else { ReadState::Fresh(now) }
    }
}

impl PastEdit {
    fn read(node: &Node) -> Option<Self> {
        let by = node.child("by")?.as_str()?.to_owned();
        let Some(moves) = node.child("moves")?.as_array() else { return Some(Self { by, moves: None }) };
        let part = |moved: &Node, part| u32::try_from(number(moved.as_array()?.get(part)?)?).ok();
        let read = |moved: &Node| Some((part(moved, 0)?, part(moved, 1)?, part(moved, 2)?));
        Some(Self { by, moves: Some(moves.iter().map(read).collect::<Option<_>>()?) })
    }
}

fn node<'s>(state: &'s State, path: &FilePath) -> Option<&'s Node> {
    state.root().child(FILES)?.child(path.as_str())
}

fn number(node: &Node) -> Option<u64> {
    match node {
        Node::Number(number) => number.as_u64(),
        _ => None,
    }
}

/// Checks a read of a file against its entry, if there is one.
pub fn check_read(entry: Option<&FileEntry>, read: &FileRead, granularity: Granularity) -> ReadState {
    match entry {
        Some(entry) => entry.check_read(read, granularity),
        None if read.version == 0 => ReadState::Fresh(None),
        None => ReadState::Stale,
    }
}

impl From<(u32, u32, u32)> for LineShift {
    fn from((at, removed, added): (u32, u32, u32)) -> Self {
        Self { at, removed, added }
    }
}

/// Returns the patch operations that apply a change to the file's entry in the state.
pub(super) fn operations(
    state: &State,
    floor: u64,
    change: &FileChange,
    writer: &str,
    intent: Option<&str>,
) -> Vec<Value> {
    let place = change.path.place();
    let intent = intent.unwrap_or_default();
    let FileChange { hash, lines, bytes, .. } = change;
    let Some(node) = node(state, &change.path) else {
        let first = if mutants::is_active(Mutant::IgnoreMinVersion) { 1 } else { floor.saturating_add(1) };
        let value = json!({
            "version": first, "hash": hash, "lines": lines, "bytes": bytes, "writer": writer, "intent": intent, "edits": {},
        });
        return vec![json!({"op": "add", "path": place.as_str(), "value": value})];
    };
    let is_restarted = mutants::is_active(Mutant::RestartVersions)
        && node.child("hash").is_some_and(|hash| matches!(hash, Node::Null));
    let before = node.child("version").and_then(number).unwrap_or_default();
    let version = if is_restarted { 1 } else { before.saturating_add(1) };
    let moves: Option<Vec<(u32, u32, u32)>> =
        change.hunks.as_ref().filter(|hunks| hunks.len() <= MOVES_MAX).map(|hunks| {
            let moves = hunks.iter().map(LineShift::from);
            moves.map(|moved| (moved.at, moved.removed, moved.added)).collect()
        });
    let replace =
        |member: &str, value: Value| json!({"op": "replace", "path": format!("{place}/{member}"), "value": value});
    let mut operations = vec![
        replace("version", json!(version)),
        replace("hash", json!(hash)),
        replace("lines", json!(lines)),
        replace("bytes", json!(bytes)),
        replace("writer", json!(writer)),
        replace("intent", json!(intent)),
        json!({"op": "add", "path": format!("{place}/edits/{version}"), "value": {"by": writer, "moves": moves}}),
    ];
    let most = EDITS_MAX - u64::from(mutants::is_active(Mutant::ForgetOldestEdit));
    // An edit adds one entry, so at most one must be evicted.
    let oldest = version.saturating_sub(most).to_string();
    if node.child("edits").is_some_and(|edits| edits.child(&oldest).is_some()) {
        operations.push(json!({"op": "remove", "path": format!("{place}/edits/{oldest}")}));
    }
    operations
}

/// Returns the deleted files to evict, oldest deletion first, without those in `except`.
///
/// These are at least `excess` files, and more to amortise the search over several new files. Returns `None` if fewer
/// than `excess` files can be evicted.
pub(super) fn evictable(state: &State, excess: usize, except: &[FileChange]) -> Option<Vec<PointerBuf>> {
    let files = state.root().child(FILES).and_then(Node::as_object)?;
    let is_gone = |node: &Node| matches!(node.child("hash"), Some(Node::Null));
    let is_meant = |name: &str| except.iter().any(|change| change.path.as_str() == name);
    let gone = files.iter().filter(|(name, node)| is_gone(node) && !is_meant(name.as_ref()));
    let places = gone.map(|(name, _)| PointerBuf::from_tokens([FILES, name.as_ref()]));
    let mut gone: Vec<_> = places.map(|place| (state.root().last_changed(&place), place)).collect();
    if gone.len() < excess {
        return None;
    }
    gone.sort_unstable();
    gone.truncate(excess.max(gone.len() / FORGOTTEN_AT_ONCE));
    Some(gone.into_iter().map(|(_, place)| place).collect())
}
