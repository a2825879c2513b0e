//! Records cassettes.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use patchboard_kernel::admission::WaitingCall;
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::id::{BoardId, IdempotencyKey};
use patchboard_runtime::agent::{AdmissionDecision, Agent, Call, CallResult, Failure};
use patchboard_runtime::tools::BoxFuture;
use patchboard_storage::private_files;
use serde::Serialize;

use super::{
    CassetteError, Entry, FORMAT, Header, Key, Occurrences, Player, RecordedFailure, RecordedReply, ToolRecorder,
};

/// Agent that forwards calls to another agent and records the answers. Each entry is written whole before its answer is
/// returned.
pub struct Recorder {
    agent: Arc<dyn Agent>,
    path: PathBuf,
    cassette: Mutex<CassetteFile>,
    notes: ToolRecorder,
    /// Order of the first answer.
    order: u64,
}

struct CassetteFile {
    file: File,
    /// Header, while it is the only line.
    header: Option<Header>,
    occurrences: Occurrences,
    entries: u64,
    broken: Option<io::Error>,
}

impl Recorder {
    /// Records the answers of `agent` into a new file.
    pub fn create(path: &Path, blueprint: &str, agent: Arc<dyn Agent>) -> Result<Self, CassetteError> {
        match private_files::options().write(true).create_new(true).open(path) {
            Ok(file) => Self::start(path, file, blueprint, agent),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(CassetteError::Exists { path: path.display().to_string() })
            }
            Err(error) => Err(CassetteError::io(path, error)),
        }
    }

    /// Like [`Self::create`], but overwrites an existing file.
    pub fn replace(path: &Path, blueprint: &str, agent: Arc<dyn Agent>) -> Result<Self, CassetteError> {
        let file = private_files::create(path).map_err(|error| CassetteError::io(path, error))?;
        Self::start(path, file, blueprint, agent)
    }

    /// Continues an existing recording, given in `recorded`, at its end.
    pub fn append(path: &Path, recorded: &Player, agent: Arc<dyn Agent>) -> Result<Self, CassetteError> {
        let (occurrences, order) = recorded.recorded();
        let opened = OpenOptions::new().append(true).open(path).and_then(|mut file| {
            // The last line may lack a newline.
            file.write_all(b"\n")?;
            Ok(file)
        });
        let file = opened.map_err(|error| CassetteError::io(path, error))?;
        let tape = CassetteFile { file, header: None, occurrences, entries: 0, broken: None };
        Ok(Self::on(path, tape, order, agent))
    }

    /// Sets the notes that wrap the agent's tools.
    #[must_use]
    pub fn with_tool_recorder(self, notes: ToolRecorder) -> Self {
        notes.begin_at(self.order);
        Self { notes, ..self }
    }

    /// Returns the number of entries written, once the run is over.
    /// Fails if an entry could not be written: the cassette is not complete.
    pub fn finish(&self) -> Result<u64, CassetteError> {
        let mut tape = self.cassette.lock();
        let synced = tape.file.sync_all();
        match tape.broken.take().map_or(synced, Err) {
            Ok(()) => Ok(tape.entries),
            Err(error) => Err(CassetteError::io(&self.path, error)),
        }
    }

    fn start(path: &Path, file: File, blueprint: &str, agent: Arc<dyn Agent>) -> Result<Self, CassetteError> {
        let header = Header { cassette: FORMAT, blueprint: blueprint.to_owned(), contexts: BTreeMap::new() };
        let mut tape =
            CassetteFile { file, header: None, occurrences: Occurrences::default(), entries: 0, broken: None };
        tape.write(&header);
        tape.header = Some(header);
        match tape.broken.take() {
            None => Ok(Self::on(path, tape, 0, agent)),
            Some(error) => Err(CassetteError::io(path, error)),
        }
    }

    fn on(path: &Path, tape: CassetteFile, order: u64, agent: Arc<dyn Agent>) -> Self {
        let notes = ToolRecorder::default();
        notes.begin_at(order);
        Self { agent, path: path.to_owned(), cassette: Mutex::new(tape), notes, order }
    }
}

impl Agent for Recorder {
    fn admit(&self, board: &BoardId, waiting: &WaitingCall) -> AdmissionDecision {
        self.agent.admit(board, waiting)
    }

    fn deferral_reason(&self, board: &BoardId) -> Option<DeferralReason> {
        self.agent.deferral_reason(board)
    }

    fn context_window(&self, model: Option<&str>) -> Option<u32> {
        let context = self.agent.context_window(model)?;
        self.cassette.lock().note_context(model.unwrap_or_default(), context);
        Some(context)
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, CallResult> {
        Box::pin(async move {
            let key = self.cassette.lock().occurrences.next_key(call);
            let mut pending = Pending { recorder: self, call, key: Some(key) };
            let answer = self.agent.call(call).await;
            // A request that the provider rejected is no call of the recording.
            if let Err(Failure { deferral: Some(_), .. }) = &answer
                && call.permit.is_some()
            {
                pending.forget();
                return answer;
            }
            self.notes.sequencer().wait_for_outcome(call).await;
            pending.write(Some(&answer));
            answer
        })
    }

    fn on_settled(&self, board: &BoardId, token: &IdempotencyKey) {
        self.notes.sequencer().settled(board, token);
        self.agent.on_settled(board, token);
    }

    fn on_board_ended(&self, board: &BoardId) {
        self.agent.on_board_ended(board);
    }
}

/// Call in flight. Dropping it before its answer is known records it as cancelled.
struct Pending<'a> {
    recorder: &'a Recorder,
    call: &'a Call,
    key: Option<Key>,
}

impl Pending<'_> {
    /// Withdraws the call, so that the next one with its view gets its number.
    fn forget(&mut self) {
        if let Some(key) = self.key.take() {
            self.recorder.cassette.lock().occurrences.take_back(&key);
        }
    }

    fn write(&mut self, answer: Option<&CallResult>) {
        let Some(Key { worker, view, occurrence }) = self.key.take() else { return };
        let reply = answer.and_then(|answer| answer.as_ref().ok());
        let failure = answer.and_then(|answer| answer.as_ref().err());
        let mut tape = self.recorder.cassette.lock();
        let entry = Entry {
            worker,
            view,
            occurrence,
            order: self.recorder.notes.next_order(),
            shown: self.call.prompt.user.clone(),
            tools: self.recorder.notes.take(self.call),
            // The raw reply is recorded; playback repeats the conversion.
            reply: reply
                .map(|reply| RecordedReply { text: reply.converted_from.as_ref().unwrap_or(&reply.text).clone() }),
            failure: failure.map(|failure| RecordedFailure { code: failure.code, message: failure.message.clone() }),
            cancelled: answer.is_none(),
            erased: false,
            usage: reply.and_then(|reply| reply.usage).or_else(|| failure?.usage),
        };
        tape.entries += 1;
        tape.header = None;
        tape.write(&entry);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.write(None);
    }
}

impl CassetteFile {
    /// Rewrites the header with the context size of a model. Context sizes are requested when a board is created,
    /// before any call.
    fn note_context(&mut self, model: &str, context: u32) {
        let Some(mut header) = self.header.take() else { return };
        if header.contexts.insert(model.to_owned(), context) != Some(context) && self.broken.is_none() {
            match self.file.set_len(0).and_then(|()| self.file.rewind()) {
                Ok(()) => self.write(&header),
                Err(error) => self.broken = Some(error),
            }
        }
        self.header = Some(header);
    }

    /// Writes one line with one call, so that a crash leaves whole lines and at most one torn last line.
    fn write(&mut self, line: &impl Serialize) {
        let mut bytes = serde_json::to_vec(line).expect("entries are made of strings and numbers");
        bytes.push(b'\n');
        if self.broken.is_none()
            && let Err(error) = self.file.write_all(&bytes).and_then(|()| self.file.flush())
        {
            // The run continues, because its answers were paid for; `finish` returns the error.
            tracing::error!(%error, "the cassette cannot be written");
            self.broken = Some(error);
        }
    }
}
