//! Applies a command to a file while it is locked against other changes. Builds the new content and its signature.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use patchboard_kernel::blueprint::Granularity;
use patchboard_kernel::files::{
    self, FileEntry, FilePath, FileRead, Hunk, LineRange, LineShift, ReadState, check_read, count, union,
};

use super::super::service::{CurrentFile, ProposedChange};
use super::super::text::command::EditBasis;
use super::super::text::edit::{self, EditCommand, EditError};
use super::super::text::hunks::carry_insertion;
use super::super::text::intent::{Signature, apply_signed, broken_annotations};
use super::super::text::language::Language;
use super::{CommandError, ErrorWithLines, Session, SessionCode};

/// Data needed to apply a command while the files are locked.
pub(super) struct EditTransform {
    reads: Vec<FileRead>,
    texts: BTreeMap<(FilePath, u64), Arc<str>>,
    label: String,
    intent: String,
    authors: BTreeSet<String>,
    annotate: bool,
    is_checked: bool,
    granularity: Granularity,
    /// True if the command claims that the file does not exist.
    expects_none: bool,
}

impl EditTransform {
    pub(super) fn new(session: &Session, basis: &EditBasis) -> Self {
        let spec = session.workspace.spec();
        let reads = session.basis.all();
        let text = |read: &FileRead| {
            Some(((read.path.clone(), read.version), Arc::clone(session.basis.text(&read.path, read.version)?)))
        };
        Self {
            texts: reads.iter().filter_map(text).collect(),
            reads,
            label: session.author.label().to_owned(),
            intent: basis.intent.clone().unwrap_or_default(),
            authors: session.workspace.authors(),
            annotate: spec.annotate,
            is_checked: session.is_checked(),
            granularity: spec.granularity,
            expects_none: basis.version == Some(0),
        }
    }

    /// Applies a command to the current content of a file.
    pub(super) fn change(
        &self,
        path: FilePath,
        command: &EditCommand,
        standing: &CurrentFile,
    ) -> Result<ProposedChange, CommandError> {
        self.propose(path.clone(), command, standing).map_err(|trouble| {
            let lines = match &trouble {
                CommandError::Edit(error) => error.shown.clone(),
                CommandError::Lost(_, line) => vec![(*line, *line)],
                _ => Vec::new(),
            };
            match lines.is_empty() {
                true => trouble,
                false => CommandError::Shown(Box::new(ErrorWithLines {
                    error: trouble,
                    path,
                    lines,
                    current: standing.clone(),
                })),
            }
        })
    }

    fn propose(
        &self,
        path: FilePath,
        command: &EditCommand,
        standing: &CurrentFile,
    ) -> Result<ProposedChange, CommandError> {
        let own: Vec<&FileRead> = self.reads.iter().filter(|read| read.path == path).collect();
        let entry = standing.entry.as_ref();
        let is_stale = |read: &&&FileRead| check_read(entry, read, self.granularity) == ReadState::Stale;
        let is_make = matches!(command, EditCommand::Create { .. });
        // A create without a read expects no file. The claim that there is no file does not keep other commands from
        // changing a file that the agent itself wrote last.
        let is_own = entry.is_some_and(|entry| entry.writer == self.label);
        let expects_none = is_make && own.is_empty() || self.expects_none && (is_make || !is_own);
        let is_faster = expects_none && standing.text.is_some();
        if self.is_checked && (own.iter().any(|read| is_stale(&read)) || is_faster) {
            return Ok(self.stale_change(path, command, &own, is_faster));
        }
        let Some(text) = &standing.text else {
            let EditCommand::Create { .. } = command else {
                return Err(CommandError::Session(SessionCode::NoSuchFile, format!("There is no file {path}.")));
            };
            let Applied { text: after, hunks, .. } = self.apply(&path, command, "")?;
            return Ok(ProposedChange {
                path,
                before: None,
                after: Some(after),
                hunks: Some(hunks),
                signed: Vec::new(),
            });
        };
        if matches!(command, EditCommand::Delete) {
            let hunks = edit::apply(command, text)?.hunks;
            let before = Some(Arc::clone(text));
            return Ok(ProposedChange { path, before, after: None, hunks: Some(hunks), signed: Vec::new() });
        }
        let command = self.renumbered(&path, command, entry);
        let Applied { text: after, hunks, plain, plain_text, signed } = self.apply(&path, &command, text)?;
        // An edit without effect must not force others to read again.
        if plain.is_empty() {
            return Err(EditError::no_change().into());
        }
        // Lines beside the edit may be signed unread only if the edit itself is covered by reads.
        let plain: Vec<LineShift> = plain.iter().map(LineShift::from).collect();
        let signed = if files::is_covered(entry, &own, Some(&plain), self.granularity) { signed } else { Vec::new() };
        self.keeps_annotations(&path, text, &plain_text)?;
        Ok(ProposedChange { path, before: Some(Arc::clone(text)), after: Some(after), hunks: Some(hunks), signed })
    }

    fn apply(&self, path: &FilePath, command: &EditCommand, text: &str) -> Result<Applied, CommandError> {
        let plain = edit::apply(command, text)?;
        let language = Language::for_path(path).filter(|_| self.annotate && !self.intent.trim().is_empty());
        let Some(language) = language else {
            let (hunks, text) = (plain.hunks.clone(), Arc::<str>::from(plain.text));
            return Ok(Applied {
                text: Arc::clone(&text),
                hunks,
                plain: plain.hunks,
                plain_text: text,
                signed: Vec::new(),
            });
        };
        let is_author = |name: &str| self.authors.contains(name);
        let signature = Signature { language, author: &self.label, intent: &self.intent, is_author: &is_author };
        let edited = apply_signed(command, text, &signature)?.0;
        let signed = beside(&plain.hunks, &edited.hunks, count(text));
        let plain_text = plain.text.into();
        Ok(Applied { text: edited.text.into(), hunks: edited.hunks, plain: plain.hunks, plain_text, signed })
    }

    /// Builds an edit that the kernel will reject because other agents were faster. It only shows the effect of the
    /// command on the text that its author saw.
    fn stale_change(
        &self,
        path: FilePath,
        command: &EditCommand,
        own: &[&FileRead],
        is_faster: bool,
    ) -> ProposedChange {
        let newest = own.iter().map(|read| read.version).max();
        let seen = newest.and_then(|version| self.texts.get(&(path.clone(), version)).cloned());
        let before: Option<Arc<str>> = if is_faster { None } else { Some(seen.unwrap_or_else(|| "".into())) };
        let text = before.as_deref().unwrap_or_default();
        let edited = edit::apply(command, text).ok();
        let after: Arc<str> = edited.map_or_else(|| text.into(), |edited| edited.text.into());
        ProposedChange { path, before, after: Some(after), hunks: None, signed: Vec::new() }
    }

    /// Maps the line number of an insertion from the version that its author last saw there to the current one.
    fn renumbered(&self, path: &FilePath, command: &EditCommand, entry: Option<&FileEntry>) -> EditCommand {
        let (EditCommand::Insert { insert_line, insert_text }, Some(entry)) = (command, entry) else {
            return command.clone();
        };
        let holds = |read: &&FileRead| {
            read.lines.is_none_or(|(first, last)| first <= insert_line.saturating_add(1) && *insert_line <= last)
        };
        let own: Vec<&FileRead> = self.reads.iter().filter(|read| read.path == *path).filter(holds).collect();
        let seen_at = own.iter().map(|read| read.version).max().unwrap_or(entry.version);
        let since: Option<Vec<Vec<LineShift>>> = (seen_at.saturating_add(1)..=entry.version)
            .map(|version| {
                let moves = entry.edits.get(&version)?.moves.as_ref()?;
                Some(moves.iter().copied().map(LineShift::from).collect())
            })
            .collect();
        // Anchors at the adjacent line that was seen; the other one may have been changed by others.
        let sees =
            |line: u32| move |read: &&FileRead| read.lines.is_none_or(|(first, last)| (first..=last).contains(&line));
        let is_behind = own.is_empty() || own.iter().filter(|read| read.version == seen_at).any(sees(*insert_line));
        let anchor = insert_line.saturating_add(u32::from(*insert_line > 0 && !is_behind));
        let line = since.and_then(|since| carry_insertion(anchor, since.iter().map(Vec::as_slice)));
        let line = line.map(|line| line - (anchor - insert_line));
        EditCommand::Insert { insert_line: line.unwrap_or(*insert_line), insert_text: insert_text.clone() }
    }

    /// Checks that annotations of other authors stay with unchanged blocks, if edits are checked.
    fn keeps_annotations(&self, path: &FilePath, before: &str, after: &str) -> Result<(), CommandError> {
        let Some(language) = Language::for_path(path).filter(|_| self.annotate && self.is_checked) else {
            return Ok(());
        };
        let is_author = |name: &str| self.authors.contains(name);
        let broken = broken_annotations(before, after, language, &self.label, &is_author);
        let Some(lost) = broken.iter().find(|broken| !broken.changes_block) else { return Ok(()) };
        let (line, author, intent) = (lost.annotation.line, &lost.annotation.author, &lost.annotation.intent);
        let message = match lost.is_reworded {
            true => format!(
                "Line {line} is what {author} says of the block below ({intent}), and you would put other words there, and \
                 leave the block. Leave the line as it is, also where a name in it is another by now, or change the block \
                 too if your task demands it."
            ),
            false => format!(
                "Line {line} says what {author} wrote the block below for ({intent}), and you would take that away and \
                 leave the block. Leave the comment where it is, or change the block too if your task demands it."
            ),
        };
        Err(CommandError::Lost(message, line))
    }
}

/// Result of a command applied to a text.
struct Applied {
    text: Arc<str>,
    hunks: Vec<Hunk>,
    /// Hunks without the annotations.
    plain: Vec<Hunk>,
    plain_text: Arc<str>,
    /// See [`ProposedChange::signed`].
    signed: Vec<LineRange>,
}

/// Returns the lines of the previous text that only the signed edit touches: those of an earlier own annotation, and
/// those beside a new one.
fn beside(plain: &[Hunk], signed: &[Hunk], lines: u32) -> Vec<LineRange> {
    let plain: Vec<LineShift> = plain.iter().map(LineShift::from).collect();
    let touched = |line: u32| plain.iter().any(|step| step.at <= line && line < step.at + step.removed);
    let mut beside = Vec::new();
    for step in signed.iter().map(LineShift::from) {
        match step.removed {
            0 if plain.iter().any(|own| own.at == step.at) => {}
            0 => beside.push((step.at.min(lines), step.at.min(lines))),
            removed => {
                let more = (step.at..step.at + removed).filter(|line| !touched(*line));
                beside.extend(more.map(|line| (line, line)));
            }
        }
    }
    union(beside)
}
