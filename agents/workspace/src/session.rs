//! Session of one agent in a workspace: its requests, results and read set.
//!
//! Everything shown joins the read set, against which the next edit is checked. Results therefore fit the agent's room,
//! and must not be truncated afterwards. Submodules: `read` (reads), `edits` (edits), `rejections` (rejection contexts)
//! and `transform` (new contents).

mod edits;
mod read;
mod rejections;
mod request;
mod transform;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use patchboard_kernel::blueprint::Isolation;
use patchboard_kernel::code_enum;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::{FilePath, LineRange};
use patchboard_kernel::id::IdempotencyKey;
use patchboard_kernel::record::Principal;
use patchboard_kernel::rejection::Code;
use patchboard_kernel::state::State;
use serde_json::{Value, json};

pub use request::{Order, ReadHistory, RequestReads, SessionRequest};

use super::disk::{DiskCode, DiskError};
use super::edit_author::EditAuthor;
use super::reads::Reads;
use super::service::{CurrentFile, DecidedEdit, Workspace, WorkspaceError};
use super::text::command::Command;
use super::text::edit::EditError;
use patchboard_runtime::tools::{ROOM_MAX, cut};

/// Maximum number of edits with a stored answer, for callers that retry.
const ANSWERS_MAX: usize = 16;

/// Message for an agent with a lost earlier session.
const READS_LOST: &str = "What you have read before is not known here any more, so your edits would not be checked against it: \
                          read again what they depend on.";

code_enum! {
    /// Session errors, beside those of edits and of the kernel.
    SessionCode {
        /// The file does not exist.
        NoSuchFile = "no_such_file",
        /// The worker may not read the file.
        NotReadable = "not_readable",
        /// The edit would remove or change another author's comment on a block but keep the block.
        AnnotationLost = "annotation_lost",
        /// The author's earlier reads are lost; nothing was written.
        ReadsLost = "reads_lost",
    }
}

/// Result of a request.
#[derive(Clone, PartialEq, Debug)]
pub struct CommandResult {
    /// Text for the model.
    pub text: String,
    /// Structured data for programs.
    pub data: Value,
    /// Error code; `None` on success.
    pub code: Option<String>,
}

impl CommandResult {
    /// Returns whether the request failed.
    pub const fn is_error(&self) -> bool {
        self.code.is_some()
    }

    pub(super) const fn success(text: String, data: Value) -> Self {
        Self { text, data, code: None }
    }

    pub(super) fn error(code: &str, text: impl Into<String>) -> Self {
        let text = text.into();
        let data = json!({"code": code, "message": text});
        Self { text, data, code: Some(code.to_owned()) }
    }

    /// Returns the outcome alone, for a retry after the first answer was lost. Lines shown in that answer do not count
    /// as read.
    fn outcome_only(self) -> Self {
        // The edit is recorded, and the message shows nothing but where its content is kept.
        if self.code.as_deref() == Some(DiskCode::NotInPlace.as_str()) {
            return self;
        }
        let come_of_it = match &self.code {
            None => "The edit was made.".to_owned(),
            Some(code) => format!("The edit was refused ({code}), and nothing was written."),
        };
        let text =
            format!("{come_of_it} What its answer showed is not known here as read: view the file as it is now.");
        let mut data = json!({"message": text});
        if let Some(code) = &self.code {
            data["code"] = code.as_str().into();
        } else if let Some(files) = self.data["files"].as_array() {
            let bare = |file: &Value| json!({"path": file["path"], "version": file["version"]});
            data["files"] = files.iter().map(bare).collect();
        }
        Self { text, data, code: self.code }
    }

    /// Truncates the text to `room`. Lines that count as read fit already.
    pub(super) fn within(self, room: usize) -> Self {
        Self { text: cut(self.text, room), ..self }
    }
}

/// Answer to a request that may carry a key.
#[derive(Clone, PartialEq, Debug)]
pub enum SessionAnswer {
    /// Result of this request.
    New(CommandResult),
    /// Result of an earlier request under the key.
    Replayed(CommandResult),
    /// Key that belongs to another edit.
    KeyConflict,
}

/// An edit answered under a key.
struct StoredAnswer {
    key: String,
    arguments: Digest,
    result: CommandResult,
    number: u64,
    /// True if the lines it showed were removed from the read set.
    is_reverted: bool,
}

#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error("{1}")]
    Session(SessionCode, String),
    #[error("{1}")]
    Rejected(Code, String),
    /// Loss of another author's comment, at this line.
    #[error("{0}")]
    Lost(String, u32),
    #[error("{}", .0.error)]
    Shown(Box<ErrorWithLines>),
}

#[derive(Debug)]
struct ErrorWithLines {
    error: CommandError,
    path: FilePath,
    lines: Vec<LineRange>,
    current: CurrentFile,
}

impl From<CommandError> for CommandResult {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Workspace(error) => Self::error(error.code(), error.to_string()),
            CommandError::Edit(error) => Self::error(error.code.as_str(), error.message),
            CommandError::Session(code, message) => Self::error(code.as_str(), message),
            CommandError::Rejected(code, message) => Self::error(code.as_str(), message),
            CommandError::Lost(message, _) => Self::error(SessionCode::AnnotationLost.as_str(), message),
            CommandError::Shown(shown) => Self::from(shown.error),
        }
    }
}

/// Session of an agent in a workspace.
pub struct Session {
    workspace: Arc<Workspace>,
    author: EditAuthor,
    /// State at the beginning of the session.
    began: State,
    reads: Reads,
    /// Read sets that requests are based on.
    pub(super) read_history: ReadHistory,
    /// Read set shared by the requests of the current batch.
    batch_reads: Option<RequestReads>,
    /// Read set of the current edit.
    basis: Reads,
    /// True until the agent is informed that its earlier reads are lost.
    has_lost_reads: bool,
    /// Maximum characters of the current result.
    room: usize,
    /// Token and request digest of the current edit.
    key: Option<(IdempotencyKey, Digest)>,
    /// External caller that the agent acts for.
    principal: Option<Principal>,
    answers: VecDeque<StoredAnswer>,
}

/// Read set and answers of an interrupted attempt.
pub struct SessionMemory {
    workspace: Weak<Workspace>,
    began: State,
    reads: Reads,
    read_history: ReadHistory,
    answers: VecDeque<StoredAnswer>,
}

impl Session {
    /// Starts a session with an empty read set.
    pub fn new(workspace: Arc<Workspace>, author: EditAuthor) -> Self {
        workspace.register_author(author.label());
        Self {
            began: workspace.state(),
            reads: Reads::with_pool(&workspace.text_pool),
            read_history: ReadHistory::new(false),
            batch_reads: None,
            basis: Reads::default(),
            has_lost_reads: false,
            room: ROOM_MAX,
            key: None,
            principal: None,
            answers: VecDeque::new(),
            workspace,
            author,
        }
    }

    /// Starts a session for an agent that has lost its earlier reads. The next read reports the loss; an edit before it
    /// is rejected.
    pub fn with_lost_reads(workspace: Arc<Workspace>, author: EditAuthor) -> Self {
        Self { has_lost_reads: true, read_history: ReadHistory::new(true), ..Self::new(workspace, author) }
    }

    /// Hands over read set and answers to a later attempt of the invocation.
    pub fn take_memory(&mut self) -> SessionMemory {
        let fresh = Self::new(Arc::clone(&self.workspace), self.author.clone());
        let Self { workspace, began, reads, read_history: bases, answers, .. } = std::mem::replace(self, fresh);
        SessionMemory { workspace: Arc::downgrade(&workspace), began, reads, read_history: bases, answers }
    }

    /// Restores the read set and answers of an earlier attempt. In another workspace the session reports lost reads
    /// instead.
    pub fn recall(&mut self, memory: SessionMemory) {
        let SessionMemory { workspace, began, reads, read_history: bases, answers } = memory;
        if workspace.upgrade().is_none_or(|workspace| !Arc::ptr_eq(&workspace, &self.workspace)) {
            *self = Self::with_lost_reads(Arc::clone(&self.workspace), self.author.clone());
            return;
        }
        (self.began, self.reads, self.read_history, self.answers) = (began, reads, bases, answers);
    }

    /// Returns the workspace.
    pub const fn workspace(&self) -> &Arc<Workspace> {
        &self.workspace
    }

    /// Returns the agent.
    pub const fn author(&self) -> &EditAuthor {
        &self.author
    }

    /// Returns the read set.
    pub const fn reads(&self) -> &Reads {
        &self.reads
    }

    /// Starts a batch: requests until the next [`Session::end_batch`] are parallel and share the current read set.
    pub fn begin_batch(&mut self) {
        self.batch_reads = Some(self.read_history.now());
    }

    /// Ends the batch; results so far are known to later requests.
    pub fn end_batch(&mut self) {
        self.batch_reads = None;
    }

    /// Executes a request. An edit under a key is made once. A retry gets the stored answer of a recent edit, or the
    /// outcome that was unknown at first. Other retries are rejected, because the journal holds the key as the edit's
    /// token. Reads are simply repeated.
    pub async fn execute(&mut self, request: SessionRequest) -> SessionAnswer {
        let SessionRequest { arguments, key, room, order, basis, principal } = request;
        let digest = sha256(format!("{} {arguments}", self.author.label()).as_bytes());
        if let Some(before) = self.answers.iter().find(|answered| Some(&answered.key) == key.as_ref()) {
            return match before.arguments == digest {
                true if before.is_reverted => SessionAnswer::Replayed(before.result.clone().outcome_only()),
                true => SessionAnswer::Replayed(before.result.clone()),
                false => SessionAnswer::KeyConflict,
            };
        }
        let command = match Command::parse(arguments) {
            Ok(command) => command,
            Err(error) => return SessionAnswer::New(CommandResult::from(CommandError::from(error)).within(room)),
        };
        let is_edit = is_edit(&command);
        self.room = room;
        self.principal = principal;
        self.key = key.as_deref().filter(|_| is_edit).map(|key| (IdempotencyKey::from(key), digest));
        if is_edit {
            let basis = basis.or_else(|| self.batch_reads.clone());
            self.has_lost_reads |= basis.as_ref().is_some_and(|basis| basis.is_lost);
            self.basis = basis.map_or_else(|| self.reads.clone(), |basis| basis.reads());
        }
        let (result, is_decided) = self.run(command).await;
        self.key = None;
        self.basis = Reads::default();
        let number = self.read_history.record_answer(order.map(|order| order.number), &self.reads);
        if let Some(key) = key.filter(|_| is_edit && is_decided) {
            self.answers.truncate(ANSWERS_MAX - 1);
            let answered = StoredAnswer { key, arguments: digest, result: result.clone(), number, is_reverted: false };
            self.answers.push_front(answered);
        }
        SessionAnswer::New(result)
    }

    /// Executes a tool call without key and order, in the maximum room.
    pub async fn call(&mut self, arguments: Value) -> CommandResult {
        self.call_within(arguments, ROOM_MAX).await
    }

    /// Like [`Session::call`], in `room` characters.
    pub async fn call_within(&mut self, arguments: Value, room: usize) -> CommandResult {
        match self.execute(SessionRequest { room, ..SessionRequest::from(arguments) }).await {
            SessionAnswer::New(result) | SessionAnswer::Replayed(result) => result,
            // The request has no key.
            SessionAnswer::KeyConflict => {
                CommandResult::error(Code::TokenConflict.as_str(), "The key was that of another edit.")
            }
        }
    }

    /// Executes a command. The flag says whether the result is final, so that a retry gets it too; lost reads and
    /// transient errors are not.
    async fn run(&mut self, command: Command) -> (CommandResult, bool) {
        let room = self.room;
        // The outcome of an earlier attempt is returned even if the reads are lost.
        let begun = match self.take_pending_outcome().await {
            Ok(begun) => begun,
            Err(error) => return finish_command(Err(error.into()), room),
        };
        let has_lost_reads = std::mem::take(&mut self.has_lost_reads);
        if has_lost_reads && begun.is_none() && self.is_checked() && is_edit(&command) {
            let message = format!("{READS_LOST} Nothing was written.");
            return finish_command(Err(CommandError::Session(SessionCode::ReadsLost, message)), room);
        }
        if has_lost_reads {
            self.room = room.saturating_sub(READS_LOST.len() + 1);
        }
        let done = match (begun, command) {
            (Some(decided), _) => Ok(self.late_result(decided).await),
            (None, Command::View { path, range, columns }) => self.view(&path, range, columns).await,
            (None, Command::List { path: Some(path) }) => self.list_in(&path).await,
            (None, Command::List { path: None }) => Ok(self.list(None)),
            (None, Command::Search { path, pattern, is_regex }) => self.search(path.as_ref(), &pattern, is_regex).await,
            (None, Command::Edit { path, edit, basis }) => self.edit(path, edit, basis).await,
            (None, Command::Rename { path, to, basis }) => self.rename(path, to, basis).await,
        };
        if let Err(CommandError::Shown(shown)) = &done {
            self.note_lines_of(shown);
        }
        let (mut result, is_decided) = finish_command(done, room);
        if has_lost_reads {
            result.text = format!("{READS_LOST}\n{}", result.text);
            if let Value::Object(data) = &mut result.data {
                data.insert("begun_anew".to_owned(), true.into());
            }
        }
        (result.within(room), is_decided)
    }

    /// Returns the outcome of an identical edit that was still unknown when it was first requested.
    async fn take_pending_outcome(&self) -> Result<Option<DecidedEdit>, WorkspaceError> {
        match &self.key {
            Some((token, asked)) => self.workspace.take_outcome(token.clone(), *asked).await,
            None => Ok(None),
        }
    }

    /// Returns whether edits are checked against the read set.
    fn is_checked(&self) -> bool {
        self.workspace.spec().isolation == Isolation::Storm
    }

    fn readable(&self, path: &FilePath) -> Result<(), CommandError> {
        if self.author.access.may_view(path) {
            return Ok(());
        }
        let may = self.author.access.spec().view.join(", ");
        Err(CommandError::Session(SessionCode::NotReadable, format!("You may not read {path}; you may read {may}.")))
    }
}

/// Builds the result of a command and says whether it is final. Transient errors and lost reads are not; a recorded
/// edit that cannot be in place is.
fn finish_command(done: Result<CommandResult, CommandError>, room: usize) -> (CommandResult, bool) {
    let is_final = match &done {
        Err(CommandError::Workspace(WorkspaceError::Disk(DiskError::NotInPlace { .. }))) => true,
        Err(CommandError::Workspace(_) | CommandError::Session(SessionCode::ReadsLost, _)) => false,
        Ok(_) | Err(_) => true,
    };
    (done.unwrap_or_else(CommandResult::from).within(room), is_final)
}

const fn is_edit(command: &Command) -> bool {
    matches!(command, Command::Edit { .. } | Command::Rename { .. })
}
