//! One agent at a workspace: what it asks for, what it is shown, and what it has read.
//!
//! Everything that is shown is noted, so that the next edit is checked against it. A refused edit brings back what is
//! different now; that counts as read, and the agent can try again at once. What a command makes of a file is in `maker`.

mod maker;

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use patchboard_kernel::blueprint::{Granularity, Presentation};
use patchboard_kernel::coded;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::{
    Access, Edit, EditAttempt, Entry, FilePath, FileRead, Hunk, Lines, Move, Seen, count, seen, union,
};
use patchboard_kernel::id::Token;
use patchboard_kernel::rejection::{Code, Rejection, Stage};
use serde_json::{Value, json};

use super::disk::{DiskError, Reason};
use super::reads::Reads;
use super::service::{Edited, Made, Standing, Wanted, Workspace, WorkspaceError, told};
use super::text::command::{Command, EditBasis};
use super::text::edit::{EditCommand, EditError};
use super::text::excerpt::{self, excerpt};
use super::text::hunks::blocks;
use super::text::payload::{self, Moved, Mover, Payload, Refusal};
use super::text::search::{Pattern, Search, SearchLimits};
use maker::Maker;

/// Characters of a file that are shown at once.
const VIEW_CHARS_MAX: usize = 64_000;

/// Lines that are shown on either side of what an edit wrote.
const AROUND: u32 = 4;

/// Characters of what is shown of an edit that is made.
const SNIPPET_CHARS_MAX: usize = 8_000;

/// Names in one list.
const LISTED_MAX: usize = 2_000;

/// Edits whose answers are kept for whoever has not heard them.
const ANSWERS_MAX: usize = 16;

coded! {
    /// What is wrong with what was asked for, beside what editors and the kernel say.
    SessionCode {
        /// There is no file of this name.
        NoSuchFile = "no_such_file",
        /// The worker may not read the file.
        NotReadable = "not_readable",
        /// The edit would take away or change what another author says of a block, and leave the block.
        AnnotationLost = "annotation_lost",
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
}

impl From<Trouble> for Told {
    fn from(trouble: Trouble) -> Self {
        match &trouble {
            Trouble::Workspace(error) => Self::wrong(error.code(), error.to_string()),
            Trouble::Edit(error) => Self::wrong(error.code.as_str(), error.message.clone()),
            Trouble::Session(code, message) => Self::wrong(code.as_str(), message.clone()),
            Trouble::Refused(code, message) => Self::wrong(code.as_str(), message.clone()),
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
}

/// An agent at a workspace.
pub struct Session {
    workspace: Arc<Workspace>,
    author: Author,
    reads: Reads,
    /// What the edit that is being made is known by.
    token: Option<Token>,
    answers: VecDeque<Answered>,
}

impl Session {
    /// An agent that has read nothing yet.
    pub fn new(workspace: Arc<Workspace>, author: Author) -> Self {
        workspace.meet(author.label());
        Self { workspace, author, reads: Reads::default(), token: None, answers: VecDeque::new() }
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

    /// Does what the arguments of a tool say.
    pub async fn call(&mut self, arguments: Value) -> Told {
        match Command::parse(arguments) {
            Ok(command) => self.run(command).await,
            Err(error) => Trouble::from(error).into(),
        }
    }

    /// The same; an edit under a `key` is made once. A repetition is told what was told then, if that is one of the last
    /// edits, and is refused otherwise: the journal has the key as the edit's token. Looking again does no harm, and shows
    /// what is there now.
    pub async fn once(&mut self, key: Option<String>, arguments: Value) -> Answer {
        let digest = sha256(arguments.to_string().as_bytes());
        if let Some(before) = self.answers.iter().find(|answered| Some(&answered.key) == key.as_ref()) {
            return match before.arguments == digest {
                true => Answer::Before(before.told.clone()),
                false => Answer::KeyTaken,
            };
        }
        let command = match Command::parse(arguments) {
            Ok(command) => command,
            Err(error) => return Answer::Told(Trouble::from(error).into()),
        };
        let is_edit = matches!(command, Command::Edit { .. } | Command::Rename { .. });
        self.token = key.as_deref().map(Token::from);
        let told = self.run(command).await;
        self.token = None;
        if let Some(key) = key.filter(|_| is_edit) {
            self.answers.truncate(ANSWERS_MAX - 1);
            self.answers.push_front(Answered { key, arguments: digest, told: told.clone() });
        }
        Answer::Told(told)
    }

    /// Does what a command says.
    pub async fn run(&mut self, command: Command) -> Told {
        let done = match command {
            Command::View { path, range } => self.view(&path, range).await,
            Command::List { path } => Ok(self.list(path.as_ref())),
            Command::Search { path, pattern, is_regex } => self.search(path.as_ref(), &pattern, is_regex).await,
            Command::Edit { path, edit, basis } => self.edit(path, edit, basis).await,
            Command::Rename { path, to, basis } => self.rename(path, to, basis).await,
        };
        done.unwrap_or_else(Told::from)
    }

    fn readable(&self, path: &FilePath) -> Result<(), Trouble> {
        if self.author.access.may_view(path) {
            return Ok(());
        }
        let may = self.author.access.spec().view.join(", ");
        Err(Trouble::Session(SessionCode::NotReadable, format!("You may not read {path}; you may read {may}.")))
    }

    async fn view(&mut self, path: &FilePath, range: Option<(u32, Option<u32>)>) -> Result<Told, Trouble> {
        self.readable(path)?;
        let standing = match self.workspace.look(path).await {
            Err(WorkspaceError::Disk(error)) if error.reason() == Some(Reason::NotRegular) => {
                return Ok(self.list(Some(path)));
            }
            standing => standing?,
        };
        let (Some(entry), Some(text)) = (&standing.entry, &standing.text) else {
            self.reads.renew(path, standing.version(), &[None], None);
            return Err(Trouble::Session(SessionCode::NoSuchFile, format!("There is no file {path}.")));
        };
        let shown = match range {
            None => excerpt::whole(text, VIEW_CHARS_MAX),
            Some((first, last)) => excerpt(text, &[(first, last.unwrap_or(u32::MAX))], 0, VIEW_CHARS_MAX),
        };
        self.forget_stale(path, entry);
        self.note_shown(path, entry, text, &shown.shown, shown.is_whole);
        let text = format!("{}\n{}", headline(path, entry), shown.text);
        let data = json!({
            "path": path, "version": entry.version, "hash": entry.hash, "lines": entry.lines, "writer": entry.writer,
            "intent": entry.intent, "shown": shown.shown, "is_whole": shown.is_whole, "content": shown.text,
        });
        Ok(Told::done(text, data))
    }

    /// Who views a file again, wholly or in part, knows that what it read before may be out of date; what of that still holds
    /// stays.
    fn forget_stale(&mut self, path: &FilePath, entry: &Entry) {
        let granularity = self.workspace.spec().granularity;
        let kept: Vec<FileRead> =
            self.reads.of(path).into_iter().filter(|read| entry.seen(read, granularity) != Seen::Stale).collect();
        self.reads.retain(path, &kept);
    }

    /// What of a file was shown counts as read.
    fn note_shown(&mut self, path: &FilePath, entry: &Entry, text: &Arc<str>, shown: &[Lines], is_whole: bool) {
        if is_whole {
            self.reads.note(path, entry.version, None, Some(text));
        } else {
            shown.iter().for_each(|lines| self.reads.note(path, entry.version, Some(*lines), Some(text)));
        }
    }

    /// Which files there are is no reading of them.
    fn list(&self, below: Option<&FilePath>) -> Told {
        let prefix = below.map(|path| format!("{path}/"));
        let is_listed = |path: &FilePath| {
            self.author.access.may_view(path)
                && prefix.as_ref().is_none_or(|prefix| path.as_str().starts_with(prefix) || Some(path) == below)
        };
        let files: Vec<_> = self.workspace.files().into_iter().filter(|(path, _)| is_listed(path)).collect();
        let mut text = String::new();
        for (path, entry) in files.iter().take(LISTED_MAX) {
            let Entry { version, lines, writer, .. } = entry;
            let _ = writeln!(text, "{path}  ({lines} lines, version {version}, by {writer})");
        }
        if files.is_empty() {
            text.push_str("There are no files here.\n");
        }
        let more = files.len().saturating_sub(LISTED_MAX);
        if more > 0 {
            let _ = writeln!(text, "[{more} more files are not listed: name a directory]");
        }
        let listed = files.iter().take(LISTED_MAX).map(|(path, entry)| {
            json!({"path": path, "version": entry.version, "lines": entry.lines, "bytes": entry.bytes, "writer": entry.writer})
        });
        Told::done(text, json!({"files": listed.collect::<Vec<_>>(), "left_out": more}))
    }

    async fn search(&mut self, below: Option<&FilePath>, pattern: &str, is_regex: bool) -> Result<Told, Trouble> {
        let pattern = Pattern::new(pattern, is_regex)?;
        let prefix = below.map(|path| format!("{path}/"));
        let is_meant = |path: &FilePath| {
            self.author.access.may_view(path)
                && prefix.as_ref().is_none_or(|prefix| path.as_str().starts_with(prefix) || Some(path) == below)
        };
        let paths: Vec<FilePath> = self.workspace.files().into_keys().filter(is_meant).collect();
        let mut search = Search::new(&pattern, SearchLimits::default());
        let mut paths = paths.into_iter();
        while !search.is_over()
            && let Some(path) = paths.next()
        {
            match self.workspace.look(&path).await {
                Ok(Standing { entry: Some(entry), text: Some(text) }) => {
                    let shown = search.look(&path, &text);
                    self.note_shown(&path, &entry, &text, &shown, false);
                }
                Ok(_) | Err(WorkspaceError::Disk(DiskError::NotServed(_))) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let found = search.found(paths.len());
        let data = json!({"matches": found.matches, "files": found.files, "content": found.text});
        Ok(Told::done(found.text, data))
    }

    /// Nothing is said of files that may not be seen, and nothing is tried on those that may not be changed.
    fn editable(&self, path: &FilePath) -> Result<(), Trouble> {
        self.readable(path)?;
        if self.author.access.may_edit(path) {
            return Ok(());
        }
        let may = self.author.access.spec().edit.join(", ");
        let what = if may.is_empty() { "nothing".to_owned() } else { may };
        let message = format!("You may not change {path}; you may change {what}.");
        // As the kernel would say.
        Err(Trouble::Refused(Code::PathNotGranted, message))
    }

    async fn edit(&mut self, path: FilePath, command: EditCommand, basis: EditBasis) -> Result<Told, Trouble> {
        self.editable(&path)?;
        let made = {
            let maker = Maker::new(self, &basis);
            let path = path.clone();
            let targets = vec![path.clone()];
            let edit = self.begun(&basis);
            let make = move |standing: &[Standing]| Ok(vec![maker.change(path, &command, &standing[0])?]);
            self.workspace.edit::<Trouble>(edit, targets, make).await?
        };
        self.told(made).await
    }

    async fn rename(&mut self, from: FilePath, to: FilePath, basis: EditBasis) -> Result<Told, Trouble> {
        self.editable(&from)?;
        self.editable(&to)?;
        let maker = Maker::new(self, &basis);
        let targets = vec![from.clone(), to.clone()];
        let edit = self.begun(&basis);
        let make = move |standing: &[Standing]| {
            let Some(text) = standing[0].text.clone() else {
                return Err(Trouble::Session(SessionCode::NoSuchFile, format!("There is no file {from}.")));
            };
            let gone = maker.change(from, &EditCommand::Delete, &standing[0])?;
            let hunks = vec![Hunk { at: 1, was: String::new(), now: text.to_string() }];
            let hunks = Some(hunks).filter(|_| !text.is_empty()).unwrap_or_default();
            let made = Wanted { path: to, before: None, after: Some(text), hunks: Some(hunks), signed: Vec::new() };
            Ok(vec![gone, made])
        };
        let made = self.workspace.edit::<Trouble>(edit, targets, make).await?;
        self.told(made).await
    }

    fn begun(&self, basis: &EditBasis) -> Edit {
        Edit {
            of: Some(self.author.of),
            token: self.token.clone(),
            name: self.author.name.clone(),
            intent: basis.intent.as_deref().map(|intent| crate::one_line(intent, patchboard_kernel::files::INTENT_MAX)),
            reads: self.reads.all(),
            changes: Vec::new(),
        }
    }

    async fn told(&mut self, made: Made) -> Result<Told, Trouble> {
        match made.edited {
            Edited::Done => Ok(self.tell_done(&made)),
            Edited::Refused(ref rejection) => self.tell_refused(rejection, &made).await,
        }
    }

    fn tell_done(&mut self, made: &Made) -> Told {
        let mut text = String::new();
        let mut files = Vec::new();
        for (wanted, before) in made.wanted.iter().zip(&made.standing) {
            let path = &wanted.path;
            let version = before.version().saturating_add(1);
            let Some(after) = &wanted.after else {
                self.reads.removed(path, version);
                let _ = writeln!(text, "{path} is gone.");
                files.push(json!({"path": path, "version": version, "is_deleted": true}));
                continue;
            };
            let hunks = wanted.hunks.as_deref().unwrap_or_default();
            let moves: Vec<Move> = hunks.iter().map(Move::from).collect();
            self.reads.wrote(path, before.entry.as_ref(), &moves, version, after);
            let is_new = before.text.is_none();
            let _ = match is_new {
                true => writeln!(text, "{path} was made; it has version {version}."),
                false => writeln!(text, "{path} was changed; it has version {version}."),
            };
            let mut shown = Vec::new();
            if !is_new {
                let snippet = excerpt(after, &places_of(hunks), AROUND, SNIPPET_CHARS_MAX);
                text.push_str(&snippet.text);
                for lines in &snippet.shown {
                    self.reads.note(path, version, Some(*lines), Some(after));
                }
                shown = snippet.shown;
            }
            files.push(json!({"path": path, "version": version, "lines": count(after), "shown": shown}));
        }
        Told::done(text, json!({"files": files}))
    }

    async fn tell_refused(&mut self, rejection: &Rejection, made: &Made) -> Result<Told, Trouble> {
        let message = told(rejection);
        let target = &made.wanted[0].path;
        if rejection.stage != Stage::Freshness {
            let mut told = Told::wrong(rejection.code.as_str(), format!("The edit was refused: {message}"));
            told.data = json!({"code": rejection.code, "message": told.text, "rejection": rejection});
            return Ok(told);
        }
        // What stands now, which may be more than what the edit met.
        let mut concerned: BTreeSet<FilePath> = self.reads.paths().cloned().collect();
        concerned.remove(target);
        let now = self.looked(target).await?;
        let state = self.workspace.state();
        let granularity = self.workspace.spec().granularity;
        let mut stale = Vec::new();
        for path in concerned {
            let entry = Entry::of(&state, &path);
            let is_stale = |read: &FileRead| seen(entry.as_ref(), read, granularity) == Seen::Stale;
            if self.reads.of(&path).iter().any(is_stale) {
                let standing = self.looked(&path).await?;
                stale.push((path, standing));
            }
        }
        let mut target = Known::of(self, target.clone(), now, granularity);
        if rejection.code == Code::UnseenTarget {
            // Of what it would change there was something that it had not read: it is shown as if it had read nothing.
            (target.read_at, target.read) = (None, Vec::new());
        }
        let stale: Vec<Known> =
            stale.into_iter().map(|(path, standing)| Known::of(self, path, standing, granularity)).collect();
        let spec = self.workspace.spec();
        let presentation = match spec.presentation {
            Presentation::Full => payload::Presentation::Full,
            Presentation::Diff => payload::Presentation::Diff,
            Presentation::Brief => payload::Presentation::Brief,
        };
        let moved: Vec<Moved<'_>> = stale.iter().map(Known::moved).collect();
        let refusal =
            Refusal { code: rejection.code.as_str(), message: &message, target: target.moved(), stale: &moved };
        let budget = usize::try_from(spec.payload).unwrap_or(payload::BUDGET);
        let payload = payload::payload(&refusal, presentation, budget);
        self.count_as_read(&payload, &target, &stale);
        let data = serde_json::to_value(&payload).unwrap_or_default();
        Ok(Told { text: payload.text, data, code: Some(rejection.code.as_str().to_owned()) })
    }

    /// A file as it stands; one that is not served any more is gone, for those who work here.
    async fn looked(&self, path: &FilePath) -> Result<Standing, WorkspaceError> {
        match self.workspace.look(path).await {
            Err(WorkspaceError::Disk(DiskError::NotServed(_))) => {
                Ok(Standing { entry: Entry::of(&self.workspace.state(), path), text: None })
            }
            standing => standing,
        }
    }

    /// What a refusal shows is read with it. What it does not show of a file that changed stays as it was read, and has to
    /// be read again.
    fn count_as_read(&mut self, payload: &Payload, target: &Known, stale: &[Known]) {
        let must_be_viewed: BTreeSet<&FilePath> = std::iter::once(&payload.target)
            .chain(&payload.stale)
            .filter(|part| part.view_again)
            .map(|part| &part.path)
            .collect();
        for (path, version, lines) in payload.reads() {
            let Some(known) = std::iter::once(target).chain(stale).find(|known| known.path == *path) else { continue };
            let text = known.standing.text.as_ref();
            if must_be_viewed.contains(path) {
                lines.iter().for_each(|lines| self.reads.note(path, version, Some(*lines), text));
                continue;
            }
            let total = text.map_or(0, |text| count(text));
            let lines = union(lines.iter().copied().chain(known.fresh.iter().copied()));
            let is_whole = text.is_none() || total == 0 || lines == [(1, total)];
            match is_whole {
                true => self.reads.renew(path, version, &[None], text),
                false => self.reads.renew(path, version, &lines.into_iter().map(Some).collect::<Vec<_>>(), text),
            }
        }
    }
}

/// A file that a refusal tells of.
struct Known {
    path: FilePath,
    standing: Standing,
    /// The version that was read, of those whose lines have changed the oldest.
    read_at: Option<u64>,
    before: Option<Arc<str>>,
    read: Vec<Lines>,
    movers: Vec<Mover>,
    /// Where the lines are now that were read and have not changed.
    fresh: Vec<Lines>,
}

impl Known {
    fn of(session: &Session, path: FilePath, standing: Standing, granularity: Granularity) -> Self {
        let reads = session.reads.of(&path);
        let entry = standing.entry.as_ref();
        let judged: Vec<_> = reads.iter().map(|read| (read, seen(entry, read, granularity))).collect();
        let stale = judged.iter().filter(|(_, seen)| *seen == Seen::Stale).map(|(read, _)| read.version).min();
        let read_at = stale.or_else(|| reads.iter().map(|read| read.version).max());
        let before = read_at.and_then(|version| session.reads.text(&path, version)).cloned();
        let lines_at = before.as_deref().map_or(u32::MAX, count);
        let of_that = reads.iter().filter(|read| Some(read.version) == read_at);
        let read = of_that.map(|read| read.lines.unwrap_or((1, lines_at))).collect();
        // What is known line by line holds whatever the whole files are compared by.
        let fresh = reads.iter().filter_map(|read| match seen(entry, read, Granularity::Lines) {
            Seen::Fresh(lines) => lines,
            Seen::Stale => None,
        });
        let fresh = union(fresh);
        let movers = entry.map_or_else(Vec::new, |entry| movers(entry, read_at.unwrap_or(0)));
        Self { path, standing, read_at, before, read, movers, fresh }
    }

    fn moved(&self) -> Moved<'_> {
        Moved {
            path: &self.path,
            read_at: self.read_at,
            version: self.standing.version(),
            movers: &self.movers,
            before: self.before.as_deref(),
            now: self.standing.text.as_deref(),
            read: &self.read,
        }
    }
}

/// The edits of a file after a version.
fn movers(entry: &Entry, after: u64) -> Vec<Mover> {
    let intent = |version: u64| (version == entry.version && !entry.intent.is_empty()).then(|| entry.intent.clone());
    let since = entry.edits.range(after.saturating_add(1)..);
    since.map(|(version, edit)| Mover { version: *version, by: edit.by.clone(), intent: intent(*version) }).collect()
}

/// Where what an edit did is, in the numbers after it; what is gone has the lines around its place.
fn places_of(hunks: &[Hunk]) -> Vec<Lines> {
    let written = blocks(hunks);
    if !written.is_empty() {
        return written;
    }
    hunks.iter().map(|hunk| (hunk.at.max(2) - 1, hunk.at)).collect()
}

fn headline(path: &FilePath, entry: &Entry) -> String {
    let Entry { version, lines, writer, intent, .. } = entry;
    let what = if intent.is_empty() { String::new() } else { format!(": {intent}") };
    format!("{path}, version {version}, {lines} lines, last changed by {writer}{what}")
}
