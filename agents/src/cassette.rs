//! Recordings of agents' answers, for runs without a model.
//!
//! A cassette is a file of JSON lines. The first names the format and the blueprint; each further one is a call that was
//! answered, failed, or was given up:
//!
//! ```text
//! {"cassette":1,"blueprint":"evidence-review"}
//! {"worker":"extractor","view":"9f…","occurrence":0,"order":0,"shown":"…","reply":{"text":"[…]"},"usage":{…}}
//! {"worker":"verifier","view":"04…","occurrence":0,"order":1,"shown":"…","failure":{"code":"timeout","message":"…"}}
//! ```
//!
//! An answer is found by worker, hash of the view, and `occurrence`: how many calls of this worker with this view came
//! before it. `order` counts the answers in the order in which they were complete. `shown` is the text of the view, so
//! that a miss can say what has changed. The recording of one board at a time makes one cassette.
//!
//! Where an agent has used tools, its entry says so in `tools`: in their order, what was used and with which arguments,
//! and that another call of the model was made and what the one before had cost. Each step has its place in the order of
//! answers. Playback takes them again, on what is there then, before it answers; of results only the hash is recorded.
//! That one differs is no miss, but a miss that follows names the first that did: if nothing that anybody is shown
//! depends on it, the run is still the one that was recorded.
//!
//! * [`Recorder`] passes calls on to another agent and writes down what comes back.
//! * [`Notes`] take note of what is done with tools, for a recorder.
//! * [`Player`] answers from a file, in the recorded order.
//! * [`erase()`] takes out what was erased of the board: an entry then has `"erased":true` in place of its answer.

use std::collections::BTreeMap;
use std::path::Path;

use patchboard_kernel::digest::Digest;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::ledger::Usage;
use patchboard_runtime::agent::Call;
use serde::{Deserialize, Serialize};

use crate::tools::ROOM_MAX;

mod erase;
mod gate;
mod notes;
mod player;
mod recorder;

pub use self::erase::{Erased, erase};
pub use self::notes::Notes;
pub use self::player::Player;
pub use self::recorder::Recorder;

/// The cassette format that this version writes and reads.
pub const FORMAT: u32 = 1;

/// Why a cassette cannot be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CassetteError {
    /// A recording would overwrite a file.
    #[error("{path} exists; record over it only if you mean to")]
    Exists {
        /// The file.
        path: String,
    },
    /// The file cannot be read or written.
    #[error("cassette {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a cassette of this format.
    #[error("{path}, line {line}: {message}")]
    Form {
        /// The file.
        path: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
}

impl CassetteError {
    fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }
}

/// The first line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    cassette: u32,
    blueprint: String,
    /// Contexts, in tokens, by the operator's name of a model, which view budgets follow from; the default model's under the empty
    /// name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    contexts: BTreeMap<String, u32>,
}

/// A further line. Exactly one of `reply`, `failure`, `cancelled` and `erased` is there.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    worker: WorkerName,
    view: Digest,
    occurrence: u32,
    order: u64,
    shown: String,
    /// What was done with tools before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Step>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply: Option<RecordedReply>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<RecordedFailure>,
    /// Nobody waited for the answer any more: the run had stopped the branch, or itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cancelled: bool,
    /// The answer was erased; nobody can have it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    erased: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

/// Something that an attempt did before its answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// Counted together with answers.
    order: u64,
    did: Did,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Did {
    /// It used a tool.
    Used {
        name: String,
        arguments: String,
        /// Characters that it could be given.
        #[serde(default = "room_max", skip_serializing_if = "is_room_max")]
        room: usize,
        /// Hash of the text that it gave.
        result: Digest,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// What it used from here on, until it went on, it asked for at once.
    AtOnce,
    /// It made another call of its model, or would have.
    WentOn {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        reserve: u64,
    },
}

const fn room_max() -> usize {
    ROOM_MAX
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_room_max(room: &usize) -> bool {
    *room == ROOM_MAX
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedReply {
    text: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedFailure {
    code: FailureCode,
    message: String,
}

/// What an answer is found by.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    worker: WorkerName,
    view: Digest,
    occurrence: u32,
}

/// Numbers the calls of each worker with each view.
#[derive(Debug, Default)]
struct Occurrences(BTreeMap<(WorkerName, Digest), u32>);

impl Occurrences {
    /// The key of a call, which is counted.
    fn of(&mut self, call: &Call) -> Key {
        let key = self.coming(&call.worker, call.view_hash);
        self.count(&key);
        key
    }

    /// The key that the next call of a worker with a view has.
    fn coming(&self, worker: &WorkerName, view: Digest) -> Key {
        let occurrence = self.0.get(&(worker.clone(), view)).copied().unwrap_or_default();
        Key { worker: worker.clone(), view, occurrence }
    }

    /// Takes back a call, if it is the newest of its worker with its view.
    fn take_back(&mut self, key: &Key) {
        if self.coming(&key.worker, key.view).occurrence == key.occurrence.saturating_add(1) {
            self.0.insert((key.worker.clone(), key.view), key.occurrence);
        }
    }

    /// Counts a call.
    fn count(&mut self, key: &Key) {
        self.0.insert((key.worker.clone(), key.view), key.occurrence.saturating_add(1));
    }
}
