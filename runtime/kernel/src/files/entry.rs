//! What the state says of a file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{FileChange, FilePath, FileRead, Lines, Move, carry};
use crate::blueprint::Granularity;
use crate::digest::Digest;
use crate::planted::{self, Bug};
use crate::state::State;

/// Edits of one file that are remembered. A read from before them is stale if there was any.
pub const EDITS_MAX: u64 = 32;

/// Pieces of one edit that are remembered apart; of one with more it is as if all had changed.
const MOVES_MAX: usize = 64;

/// What is known of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Counts its edits, from 1. A file that is made again where one was deleted goes on from there.
    pub version: u64,
    /// SHA-256 of its content; none: it is gone.
    pub hash: Option<Digest>,
    /// Its lines.
    pub lines: u32,
    /// Its bytes.
    pub bytes: u64,
    /// Who made this version.
    pub writer: String,
    /// What for.
    #[serde(default)]
    pub intent: String,
    /// The last edits, by the versions they made.
    #[serde(default)]
    pub edits: BTreeMap<u64, Edited>,
}

/// What an edit moved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Edited {
    /// Who made it.
    pub by: String,
    /// First line, lines that went, lines that came; none: everything may have changed.
    pub moves: Option<Vec<(u32, u32, u32)>>,
}

/// What has become of something that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// It is as it was. The lines it has now, of a file that is there.
    Fresh(Option<Lines>),
    /// It is not.
    Stale,
}

impl Entry {
    /// What a state says of a file; none if it never had one of this name.
    pub fn of(state: &State, path: &FilePath) -> Option<Self> {
        // Only the kernel writes there, so it can be read.
        serde_json::from_value(state.get(&path.place())?.to_value()).ok()
    }

    /// Whether there is a file.
    pub const fn is_there(&self) -> bool {
        self.hash.is_some()
    }

    /// What has become of what somebody has read of it.
    pub fn seen(&self, read: &FileRead, granularity: Granularity) -> Seen {
        let all = self.is_there().then_some((1, self.lines));
        if read.version == self.version {
            return Seen::Fresh(read.lines.or(all));
        }
        if !self.is_there() && planted::is(Bug::DeletionOverlooked) {
            return Seen::Fresh(None);
        }
        let Some(lines) = read.lines.filter(|_| granularity == Granularity::Lines && self.is_there()) else {
            return Seen::Stale;
        };
        let mut now = Some(lines);
        for version in read.version.saturating_add(1)..=self.version {
            let edit = self.edits.get(&version);
            let unknown = edit.filter(|_| planted::is(Bug::UnknownOverlooked)).map(|_| [].as_slice());
            let moves = edit.and_then(|edit| edit.moves.as_deref()).or(unknown);
            now = now.and_then(|lines| carry(lines, &moves?.iter().copied().map(Move::from).collect::<Vec<_>>()));
            if now.is_none() {
                return Seen::Stale;
            }
        }
        // A version to come was never read.
        if read.version > self.version { Seen::Stale } else { Seen::Fresh(now) }
    }
}

/// What has become of what somebody has read of a file, of which the state says this.
pub fn seen(entry: Option<&Entry>, read: &FileRead, granularity: Granularity) -> Seen {
    match entry {
        Some(entry) => entry.seen(read, granularity),
        None if read.version == 0 => Seen::Fresh(None),
        None => Seen::Stale,
    }
}

impl From<(u32, u32, u32)> for Move {
    fn from((at, removed, added): (u32, u32, u32)) -> Self {
        Self { at, removed, added }
    }
}

/// The operations that bring a file's place in the state up to a change.
pub(super) fn operations(entry: Option<&Entry>, change: &FileChange, writer: &str, intent: Option<&str>) -> Vec<Value> {
    let place = change.path.place();
    let intent = intent.unwrap_or_default();
    let FileChange { hash, lines, bytes, .. } = change;
    let Some(entry) = entry else {
        let value = json!({
            "version": 1, "hash": hash, "lines": lines, "bytes": bytes, "writer": writer, "intent": intent, "edits": {},
        });
        return vec![json!({"op": "add", "path": place.as_str(), "value": value})];
    };
    let is_anew = planted::is(Bug::VersionsAnew) && !entry.is_there();
    let version = if is_anew { 1 } else { entry.version.saturating_add(1) };
    let moves: Option<Vec<(u32, u32, u32)>> =
        change.hunks.as_ref().filter(|hunks| hunks.len() <= MOVES_MAX).map(|hunks| {
            let moves = hunks.iter().map(Move::from);
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
    let most = EDITS_MAX - u64::from(planted::is(Bug::OneEditLess));
    let forgotten = entry.edits.keys().filter(|made| version.saturating_sub(**made) >= most);
    operations.extend(forgotten.map(|made| json!({"op": "remove", "path": format!("{place}/edits/{made}")})));
    operations
}
