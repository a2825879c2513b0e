//! One agent at a workspace: what it asks for, what it is shown, and what it has read.
//!
//! Everything that is shown is noted, so that the next edit is checked against it; so what is told fits into the room that
//! the agent has for it, and nobody cuts it afterwards. How it looks at files is in `looks`, how it edits them in `edits`, what
//! a refused edit brings back in `refusals`, what a command makes of a file in `maker`.

mod asked;
mod edits;
mod looks;
mod maker;
mod refusals;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use patchboard_kernel::blueprint::{Isolation, WorkspaceSpec};
use patchboard_kernel::coded;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::{Access, EditAttempt, FilePath, Lines};
use patchboard_kernel::id::Token;
use patchboard_kernel::record::Principal;
use patchboard_kernel::rejection::Code;
use patchboard_kernel::state::State;
use serde_json::{Value, json};

pub use asked::{Asked, Bases, Basis, Order};

use super::disk::{DiskCode, DiskError};
use super::git::GIT;
use super::reads::Reads;
use super::service::{Made, Standing, Workspace, WorkspaceError};
use super::text::command::Command;
use super::text::edit::EditError;
use crate::tools::{ROOM_MAX, cut};

/// Edits whose answers are kept for whoever has not heard them.
const ANSWERS_MAX: usize = 16;

/// What somebody is told who has had a session here that is gone.
const BEGUN_ANEW: &str = "What you have read before is not known here any more, so your edits would not be checked against it: \
                          read again what they depend on.";

coded! {
    /// What is wrong with what was asked for, beside what editors and the kernel say.
    SessionCode {
        /// There is no file of this name.
        NoSuchFile = "no_such_file",
        /// The worker may not read the file.
        NotReadable = "not_readable",
        /// The edit would take away or change what another author says of a block, and leave the block.
        AnnotationLost = "annotation_lost",
        /// What the author has read before is not known any more; nothing was written.
        ReadsLost = "reads_lost",
    }
}

/// What an agent is told.
#[derive(Clone, PartialEq, Debug)]
pub struct Told {
    /// For the model.
    pub text: String,
    /// For programs.
    pub data: Value,
    /// What is wrong; none: it was done.
    pub code: Option<String>,
}

impl Told {
    /// Whether it was not done.
    pub const fn is_error(&self) -> bool {
        self.code.is_some()
    }

    pub(super) const fn done(text: String, data: Value) -> Self {
        Self { text, data, code: None }
    }

    pub(super) fn wrong(code: &str, text: impl Into<String>) -> Self {
        let text = text.into();
        let data = json!({"code": code, "message": text});
        Self { text, data, code: Some(code.to_owned()) }
    }

    /// What came of it, for who has not heard it: what it showed was not read, and is not shown again as it was then.
    fn without_what_was_shown(self) -> Self {
        // It is recorded, and shows nothing but where it is.
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

    /// In the room that there is. What counts as read fits already.
    pub(super) fn within(self, room: usize) -> Self {
        Self { text: cut(self.text, room), ..self }
    }
}

/// What a call under a key comes to.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// It was done, or not, and this is told.
    Told(Told),
    /// It was done, or not, before, and this was told then.
    Before(Told),
    /// The key was that of another edit.
    KeyTaken,
}

/// An edit that was answered under a key.
struct Answered {
    key: String,
    arguments: Digest,
    told: Told,
    /// Which answer it was.
    number: u64,
    /// That nothing of what it showed counts as read any more.
    is_taken_back: bool,
}

/// Why nothing comes of a command.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error("{1}")]
    Session(SessionCode, String),
    #[error("{1}")]
    Refused(Code, String),
    /// What another says of a block, in this line, would go.
    #[error("{0}")]
    Lost(String, u32),
    #[error("{}", .0.trouble)]
    Shown(Box<Shown>),
}

/// Trouble that shows lines of a file.
#[derive(Debug)]
struct Shown {
    trouble: Trouble,
    path: FilePath,
    lines: Vec<Lines>,
    standing: Standing,
}

impl From<Trouble> for Told {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Workspace(error) => Self::wrong(error.code(), error.to_string()),
            Trouble::Edit(error) => Self::wrong(error.code.as_str(), error.message),
            Trouble::Session(code, message) => Self::wrong(code.as_str(), message),
            Trouble::Refused(code, message) => Self::wrong(code.as_str(), message),
            Trouble::Lost(message, _) => Self::wrong(SessionCode::AnnotationLost.as_str(), message),
            Trouble::Shown(shown) => Self::from(shown.trouble),
        }
    }
}

/// Who works at a workspace.
#[derive(Clone, Debug)]
pub struct Author {
    /// The attempt that it is.
    pub of: EditAttempt,
    /// What it may do.
    pub access: Access,
    /// Its worker.
    pub worker: String,
    /// What it is called, where several share a seat.
    pub name: Option<String>,
}

impl Author {
    /// What it is called in files and in the state.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.worker)
    }

    /// Whether it edits in a working tree of its own, if it is an agent that we run.
    pub fn has_tree(&self, spec: &WorkspaceSpec) -> bool {
        let access = self.access.spec();
        let merges = access.run.iter().any(|name| name == GIT);
        spec.isolation == Isolation::Worktree && !access.edit.is_empty() && !merges
    }
}

/// An agent at a workspace.
pub struct Session {
    workspace: Arc<Workspace>,
    author: Author,
    /// What there was when it began.
    began: State,
    reads: Reads,
    /// What those know who ask for something now.
    bases: Bases,
    /// What was known when several things were asked for that are being done.
    at_once: Option<Basis>,
    /// What the edit that is being made rests on.
    basis: Reads,
    /// Whether it has to be told that what it has read before is not known.
    is_anew: bool,
    /// Characters that it can be told now.
    room: usize,
    /// What the edit that is being made is known by, and what is asked for.
    key: Option<(Token, Digest)>,
    /// The caller from outside in whose name it works now.
    principal: Option<Principal>,
    answers: VecDeque<Answered>,
}

/// Knowledge of a broken-off attempt.
pub struct Memory {
    workspace: Weak<Workspace>,
    began: State,
    reads: Reads,
    bases: Bases,
    answers: VecDeque<Answered>,
}

impl Session {
    /// An agent that has read nothing yet.
    pub fn new(workspace: Arc<Workspace>, author: Author) -> Self {
        workspace.meet(author.label());
        let began = workspace.state();
        let reads = Reads::among(workspace.held());
        let (bases, basis) = (Bases::new(false), Reads::default());
        let (is_anew, room, key, principal, answers) = (false, ROOM_MAX, None, None, VecDeque::new());
        Self { workspace, author, began, reads, bases, at_once: None, basis, is_anew, room, key, principal, answers }
    }

    /// An agent that has been here before, and of which nothing is known any more. It is told so: with what it looks at first,
    /// or by a refusal if it would edit something.
    pub fn anew(workspace: Arc<Workspace>, author: Author) -> Self {
        Self { is_anew: true, bases: Bases::new(true), ..Self::new(workspace, author) }
    }

    /// Gives up what it knows, for a later attempt of the same invocation.
    pub fn remembered(&mut self) -> Memory {
        let fresh = Self::new(Arc::clone(&self.workspace), self.author.clone());
        let Self { workspace, began, reads, bases, answers, .. } = std::mem::replace(self, fresh);
        Memory { workspace: Arc::downgrade(&workspace), began, reads, bases, answers }
    }

    /// Takes over the knowledge of an earlier attempt. In another workspace the session tells its agent that the reads are
    /// lost.
    pub fn recall(&mut self, memory: Memory) {
        let Memory { workspace, began, reads, bases, answers } = memory;
        if workspace.upgrade().is_none_or(|workspace| !Arc::ptr_eq(&workspace, &self.workspace)) {
            *self = Self::anew(Arc::clone(&self.workspace), self.author.clone());
            return;
        }
        (self.began, self.reads, self.bases, self.answers) = (began, reads, bases, answers);
    }

    /// Where it works.
    pub const fn workspace(&self) -> &Arc<Workspace> {
        &self.workspace
    }

    /// Who it is.
    pub const fn author(&self) -> &Author {
        &self.author
    }

    /// What it has read.
    pub const fn reads(&self) -> &Reads {
        &self.reads
    }

    /// What it knows now, for what is asked for from here on.
    pub const fn bases(&self) -> &Bases {
        &self.bases
    }

    /// What is asked for from here on until it goes on, is asked for at once, by who knows what it was told until now.
    pub fn at_once(&mut self) {
        self.at_once = Some(self.bases.now());
    }

    /// What was told so far is known to who asks from here on.
    pub fn go_on(&mut self) {
        self.at_once = None;
    }

    /// Does what is asked for. An edit under a key is made once. A repetition is told what was told then, if that is one of
    /// the last edits, or what became of it, if that was not known then. It is refused otherwise: the journal has the key as
    /// the edit's token. Looking again does no harm, and shows what is there now.
    pub async fn once(&mut self, asked: Asked) -> Answer {
        let Asked { arguments, key, room, order, basis, principal } = asked;
        let digest = sha256(format!("{} {arguments}", self.author.label()).as_bytes());
        if let Some(before) = self.answers.iter().find(|answered| Some(&answered.key) == key.as_ref()) {
            return match before.arguments == digest {
                true if before.is_taken_back => Answer::Before(before.told.clone().without_what_was_shown()),
                true => Answer::Before(before.told.clone()),
                false => Answer::KeyTaken,
            };
        }
        let command = match Command::parse(arguments) {
            Ok(command) => command,
            Err(error) => return Answer::Told(Told::from(Trouble::from(error)).within(room)),
        };
        let is_edit = is_edit(&command);
        self.room = room;
        self.principal = principal;
        self.key = key.as_deref().filter(|_| is_edit).map(|key| (Token::from(key), digest));
        if is_edit {
            let basis = basis.or_else(|| self.at_once.clone());
            self.is_anew |= basis.as_ref().is_some_and(Basis::is_lost);
            self.basis = basis.map_or_else(|| self.reads.clone(), |basis| basis.reads());
        }
        let (told, is_decided) = self.run(command).await;
        self.key = None;
        self.basis = Reads::default();
        let number = self.bases.told(order.map(|order| order.number), &self.reads);
        if let Some(key) = key.filter(|_| is_edit && is_decided) {
            self.answers.truncate(ANSWERS_MAX - 1);
            let answered = Answered { key, arguments: digest, told: told.clone(), number, is_taken_back: false };
            self.answers.push_front(answered);
        }
        Answer::Told(told)
    }

    /// Does what the arguments of a tool say, where nothing else is of importance.
    pub async fn call(&mut self, arguments: Value) -> Told {
        self.call_within(arguments, ROOM_MAX).await
    }

    /// The same, in so many characters.
    pub async fn call_within(&mut self, arguments: Value, room: usize) -> Told {
        match self.once(Asked { room, ..Asked::from(arguments) }).await {
            Answer::Told(told) | Answer::Before(told) => told,
            // Nobody gave one.
            Answer::KeyTaken => Told::wrong(Code::TokenConflict.as_str(), "The key was that of another edit."),
        }
    }

    /// What comes of a command, and whether that is so also if it is asked for again: who has to read something first, or
    /// met a fault of the moment, has not been answered.
    async fn run(&mut self, command: Command) -> (Told, bool) {
        let room = self.room;
        // What became of it is known, whatever else is not.
        let begun = match self.begun_before().await {
            Ok(begun) => begun,
            Err(error) => return answered(Err(error.into()), room),
        };
        let is_anew = std::mem::take(&mut self.is_anew);
        if is_anew && begun.is_none() && self.is_checked() && is_edit(&command) {
            let message = format!("{BEGUN_ANEW} Nothing was written.");
            return answered(Err(Trouble::Session(SessionCode::ReadsLost, message)), room);
        }
        if is_anew {
            self.room = room.saturating_sub(BEGUN_ANEW.len() + 1);
        }
        let done = match (begun, command) {
            (Some(made), _) => Ok(self.told_late(made).await),
            (None, Command::View { path, range, columns }) => self.view(&path, range, columns).await,
            (None, Command::List { path: Some(path) }) => self.list_in(&path).await,
            (None, Command::List { path: None }) => Ok(self.list(None)),
            (None, Command::Search { path, pattern, is_regex }) => self.search(path.as_ref(), &pattern, is_regex).await,
            (None, Command::Edit { path, edit, basis }) => self.edit(path, edit, basis).await,
            (None, Command::Rename { path, to, basis }) => self.rename(path, to, basis).await,
        };
        if let Err(Trouble::Shown(shown)) = &done {
            self.note_lines_of(shown);
        }
        let (mut told, is_decided) = answered(done, room);
        if is_anew {
            told.text = format!("{BEGUN_ANEW}\n{}", told.text);
            if let Value::Object(data) = &mut told.data {
                data.insert("begun_anew".to_owned(), true.into());
            }
        }
        (told.within(room), is_decided)
    }

    /// What became of the same edit, if it was asked for before and it was not known then.
    async fn begun_before(&self) -> Result<Option<Made>, WorkspaceError> {
        match &self.key {
            Some((token, asked)) => self.workspace.begun(token.clone(), *asked).await,
            None => Ok(None),
        }
    }

    /// Whether its edits are held against what it has read.
    fn is_checked(&self) -> bool {
        self.workspace.spec().isolation == Isolation::Storm
    }

    fn readable(&self, path: &FilePath) -> Result<(), Trouble> {
        if self.author.access.may_view(path) {
            return Ok(());
        }
        let may = self.author.access.spec().view.join(", ");
        Err(Trouble::Session(SessionCode::NotReadable, format!("You may not read {path}; you may read {may}.")))
    }
}

/// What is told of what was done, and whether that is final: a fault of the moment is not, nor that something has to be read
/// first. What is recorded and cannot be in place is.
fn answered(done: Result<Told, Trouble>, room: usize) -> (Told, bool) {
    let is_final = match &done {
        Err(Trouble::Workspace(WorkspaceError::Disk(DiskError::NotInPlace { .. }))) => true,
        Err(Trouble::Workspace(_) | Trouble::Session(SessionCode::ReadsLost, _)) => false,
        Ok(_) | Err(_) => true,
    };
    (done.unwrap_or_else(Told::from).within(room), is_final)
}

const fn is_edit(command: &Command) -> bool {
    matches!(command, Command::Edit { .. } | Command::Rename { .. })
}
