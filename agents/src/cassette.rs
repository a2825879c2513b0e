//! Recordings of agents' answers, for runs without a model.
//!
//! A cassette is a file of JSON lines. The first names the format and the blueprint. Each further line is a call that
//! was answered, failed or cancelled:
//!
//! ```text
//! {"cassette":1,"blueprint":"evidence-review"}
//! {"worker":"extractor","view":"9f…","occurrence":0,"order":0,"shown":"…","reply":{"text":"[…]"},"usage":{…}}
//! {"worker":"verifier","view":"04…","occurrence":0,"order":1,"shown":"…","failure":{"code":"timeout","message":"…"}}
//! ```
//!
//! The key of an answer is worker, hash of the view, and `occurrence`: the number of earlier calls of this worker with
//! this view. `order` counts the answers in the order of their completion. `shown` is the text of the view; the report
//! of a miss compares with it. A cassette holds the recordings of one board at a time.
//!
//! If an agent used tools, its entry lists the steps in `tools`. A step is a use with its arguments, or a further call
//! of the model with the usage of the one before. Each step has its place in the order of answers. Playback repeats
//! the steps on the current files before it answers; only the hash of a result is recorded. A different result is no
//! miss by itself, but a later miss names the first one. As long as no view depends on it, the run is still the
//! recorded one.
//!
//! * [`Recorder`] passes calls on to another agent and records the answers.
//! * [`ToolRecorder`] record tool use, for a recorder.
//! * [`Player`] answers from a file, in the recorded order.
//! * [`erase()`] removes redacted content: an entry then has `"erased":true` in place of its answer.

use std::collections::BTreeMap;
use std::path::Path;

use patchboard_kernel::digest::Digest;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::ledger::Usage;
use patchboard_runtime::agent::Call;
use serde::{Deserialize, Serialize};

use patchboard_runtime::tools::ROOM_MAX;

mod erase;
mod player;
mod recorder;
mod sequencer;
mod tool_recorder;

pub use self::erase::{ErasedCounts, erase};
pub use self::player::Player;
pub use self::recorder::Recorder;
pub use self::tool_recorder::ToolRecorder;

/// The cassette format that this version writes and reads.
pub const FORMAT: u32 = 1;

/// Error of creating or reading a cassette.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CassetteError {
    /// A recording would overwrite an existing file.
    #[error("{path} exists; record over it only if you mean to")]
    Exists {
        /// Path of the file.
        path: String,
    },
    /// The file cannot be read or written.
    #[error("cassette {path}: {source}")]
    Io {
        /// Path of the file.
        path: String,
        /// Cause.
        source: std::io::Error,
    },
    /// The file is not a cassette of this format.
    #[error("{path}, line {line}: {message}")]
    Malformed {
        /// Path of the file.
        path: String,
        /// Line number, from 1.
        line: usize,
        /// Description of the error.
        message: String,
    },
}

impl CassetteError {
    fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }
}

/// First line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    cassette: u32,
    blueprint: String,
    /// Context sizes in tokens, by the operator's name of a model; view budgets depend on them. The default model has
    /// the empty name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    contexts: BTreeMap<String, u32>,
}

/// Further line. Exactly one of `reply`, `failure`, `cancelled` and `erased` is present.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    worker: WorkerName,
    view: Digest,
    occurrence: u32,
    order: u64,
    shown: String,
    /// Tool steps before the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Step>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply: Option<RecordedReply>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<RecordedFailure>,
    /// The call was cancelled before its answer: the run stopped the branch, or itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cancelled: bool,
    /// The answer was erased and cannot be played back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    erased: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

/// A step of an attempt before its answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// Place in the order of all answers and steps.
    order: u64,
    did: StepKind,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum StepKind {
    /// Used a tool.
    #[serde(rename = "used")]
    ToolUse {
        name: String,
        arguments: String,
        /// Characters available for the result.
        #[serde(default = "room_max", skip_serializing_if = "is_room_max")]
        room: usize,
        /// Hash of the result text.
        result: Digest,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// Began a batch: the uses up to the next `Checkpoint` were requested in parallel.
    #[serde(rename = "at_once")]
    BatchStart,
    /// Made another call of the model, or asked to.
    #[serde(rename = "went_on")]
    Checkpoint {
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

/// Key of an answer.
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
    /// Returns the key of a call and counts the call.
    fn next_key(&mut self, call: &Call) -> Key {
        let key = self.peek_key(&call.worker, call.view_hash);
        self.count(&key);
        key
    }

    /// Returns the key of the next call of a worker with a view.
    fn peek_key(&self, worker: &WorkerName, view: Digest) -> Key {
        let occurrence = self.0.get(&(worker.clone(), view)).copied().unwrap_or_default();
        Key { worker: worker.clone(), view, occurrence }
    }

    /// Uncounts a call, if it is the newest of its worker with its view.
    fn take_back(&mut self, key: &Key) {
        if self.peek_key(&key.worker, key.view).occurrence == key.occurrence.saturating_add(1) {
            self.0.insert((key.worker.clone(), key.view), key.occurrence);
        }
    }

    fn count(&mut self, key: &Key) {
        self.0.insert((key.worker.clone(), key.view), key.occurrence.saturating_add(1));
    }
}
