//! Edits of an agent, and the answers to completed edits.

use std::fmt::Write as _;

use patchboard_kernel::digest::Digest;
use patchboard_kernel::files::{
    EDITS_MAX, Edit, FileEntry, FilePath, FileRead, Hunk, INTENT_MAX, LineRange, LineShift, ReadState, check_read,
    count,
};
use patchboard_kernel::rejection::Code;
use serde_json::json;

use super::super::reads::OwnEdit;
use super::super::render;
use super::super::service::{CurrentFile, DecidedEdit, EditOutcome, ProposedChange};
use super::super::text::command::EditBasis;
use super::super::text::edit::EditCommand;
use super::super::text::hunks::blocks;
use super::super::text::snippet::{EDIT_AROUND, EDIT_CHARS_MAX, snippet};
use super::transform::EditTransform;
use super::{CommandError, CommandResult, Session, SessionCode};
use patchboard_kernel::text::one_line;

impl Session {
    /// Checks access. Files that the author may not view are not disclosed, and no edit is tried on one that it may not
    /// change.
    fn editable(&self, path: &FilePath) -> Result<(), CommandError> {
        self.readable(path)?;
        if self.author.access.may_edit(path) {
            return Ok(());
        }
        let may = self.author.access.spec().edit.join(", ");
        let what = if may.is_empty() { "nothing".to_owned() } else { may };
        let message = format!("You may not change {path}; you may change {what}.");
        // Same code as the kernel's.
        Err(CommandError::Rejected(Code::PathNotGranted, message))
    }

    pub(super) async fn edit(
        &mut self,
        path: FilePath,
        command: EditCommand,
        basis: EditBasis,
    ) -> Result<CommandResult, CommandError> {
        self.editable(&path)?;
        let targets = vec![path.clone()];
        let edit = self.new_edit(&basis, &targets)?;
        let maker = EditTransform::new(self, &basis);
        let make = move |standing: &[CurrentFile]| Ok(vec![maker.change(path, &command, &standing[0])?]);
        let (digest, principal) = (self.request_digest(), self.principal.clone());
        let decided = self.workspace.edit::<CommandError>(edit, targets, digest, principal, make).await?;
        Ok(self.edit_result(decided).await)
    }

    pub(super) async fn rename(
        &mut self,
        from: FilePath,
        to: FilePath,
        basis: EditBasis,
    ) -> Result<CommandResult, CommandError> {
        self.editable(&from)?;
        self.editable(&to)?;
        let targets = vec![from.clone(), to.clone()];
        let edit = self.new_edit(&basis, &targets)?;
        let maker = EditTransform::new(self, &basis);
        let make = move |standing: &[CurrentFile]| {
            let Some(text) = standing[0].text.clone() else {
                return Err(CommandError::Session(SessionCode::NoSuchFile, format!("There is no file {from}.")));
            };
            let deleted = maker.change(from, &EditCommand::Delete, &standing[0])?;
            let hunks = vec![Hunk { at: 1, was: String::new(), now: text.to_string() }];
            let hunks = Some(hunks).filter(|_| !text.is_empty()).unwrap_or_default();
            let created =
                ProposedChange { path: to, before: None, after: Some(text), hunks: Some(hunks), signed: Vec::new() };
            Ok(vec![deleted, created])
        };
        let (digest, principal) = (self.request_digest(), self.principal.clone());
        let decided = self.workspace.edit::<CommandError>(edit, targets, digest, principal, make).await?;
        Ok(self.edit_result(decided).await)
    }

    fn new_edit(&mut self, basis: &EditBasis, targets: &[FilePath]) -> Result<Edit, CommandError> {
        let state = self.workspace.state();
        let granularity = self.workspace.spec().granularity;
        if let (Some(version), Some(path)) = (basis.version, targets.first())
            && self.is_checked()
        {
            self.declare(path, version, FileEntry::load(&state, path).as_ref());
        }
        let reads = loop {
            match self.basis.declared(targets, |path| FileEntry::load(&state, path), granularity) {
                Ok(reads) => break reads,
                Err(forgotten) => {
                    forgotten.iter().for_each(|path| self.reads.forget(path));
                    // Otherwise edits are not checked against these reads.
                    if self.is_checked() {
                        return Err(too_many(&forgotten));
                    }
                }
            }
        };
        Ok(Edit {
            of: Some(self.author.attempt),
            token: self.key.as_ref().map(|(token, _)| token.clone()),
            name: self.author.name.clone(),
            // The length is checked already; this makes the intent one line.
            intent: basis.intent.as_deref().map(|intent| one_line(intent, INTENT_MAX)),
            reads,
            changes: Vec::new(),
        })
    }

    /// Counts a version that the author claims to have seen as read, unless its reads include that version. Version 0
    /// claims that the file does not exist.
    fn declare(&mut self, path: &FilePath, version: u64, entry: Option<&FileEntry>) {
        let seen = match (version, entry) {
            (0, None) => Some(0),
            (0, Some(entry)) if !entry.exists() => Some(entry.version),
            // The file exists, but the author could know of it. The maker checks the expectation.
            (0, Some(entry)) if self.could_know(path, entry) => None,
            _ => Some(version).filter(|_| !self.has_seen(path, version, entry)),
        };
        seen.into_iter().for_each(|version| self.basis.declare(path, version));
    }

    /// Returns whether the author could know that a file exists: it wrote it, read of it, or the file existed when it
    /// began.
    fn could_know(&self, path: &FilePath, entry: &FileEntry) -> bool {
        let was_there = FileEntry::load(&self.began, path).is_some_and(|entry| entry.exists());
        entry.writer == self.author.label() || was_there || self.basis.knows(path)
    }

    /// Returns whether the author has seen the version that it claims. It has if only its own edits followed that
    /// version, or if lines that it read of it are unchanged since.
    fn has_seen(&self, path: &FilePath, version: u64, entry: Option<&FileEntry>) -> bool {
        let now = entry.map_or(0, |entry| entry.version);
        let label = self.author.label();
        let is_own = |made: u64| entry.and_then(|entry| entry.edits.get(&made)).is_some_and(|edit| edit.by == label);
        let granularity = self.workspace.spec().granularity;
        let is_fresh =
            |read: &FileRead| read.version == version && check_read(entry, read, granularity) != ReadState::Stale;
        let is_but_own = version <= now && now - version <= EDITS_MAX && (version + 1..=now).all(is_own);
        is_but_own || self.basis.for_file(path).iter().any(is_fresh)
    }

    /// Digest of the request, if it has an idempotency key.
    fn request_digest(&self) -> Option<Digest> {
        self.key.as_ref().map(|(_, asked)| *asked)
    }

    /// Builds the answer to an edit for an author that receives it late, and may already have seen the result or later
    /// changes.
    pub(super) async fn late_result(&mut self, decided: DecidedEdit) -> CommandResult {
        let paths: Vec<FilePath> = decided.proposed.iter().map(|wanted| wanted.path.clone()).collect();
        let result = self.edit_result(decided).await;
        let state = self.workspace.state();
        for path in paths {
            if let Some(entry) = FileEntry::load(&state, &path) {
                self.reads.catch_up(&path, &entry, self.workspace.spec().granularity);
            }
        }
        result
    }

    async fn edit_result(&mut self, decided: DecidedEdit) -> CommandResult {
        match &decided.outcome {
            EditOutcome::Committed(versions) => self.committed_result(&decided, versions),
            EditOutcome::Rejected(rejection) => self.rejected_result(rejection, &decided).await,
        }
    }

    fn note_own_edit(&mut self, edit: OwnEdit<'_>) {
        self.reads.note_own_edit(edit);
        self.read_history.note_own_edit(edit);
    }

    fn committed_result(&mut self, decided: &DecidedEdit, versions: &[Option<u64>]) -> CommandResult {
        let mut text = String::new();
        let mut files = Vec::new();
        let room = self.room.min(EDIT_CHARS_MAX);
        for ((proposed, before), version) in decided.proposed.iter().zip(&decided.current).zip(versions) {
            let path = &proposed.path;
            let Some(version) = *version else {
                let _ = writeln!(text, "{path} was changed as you asked, and by others since: view it again.");
                files.push(json!({"path": path, "view_again": true}));
                continue;
            };
            let Some(after) = &proposed.after else {
                self.note_own_edit(OwnEdit { path, before: before.entry.as_ref(), moves: &[], version, text: None });
                let _ = writeln!(text, "{path} is gone.");
                files.push(json!({"path": path, "version": version, "is_deleted": true}));
                continue;
            };
            let hunks = proposed.hunks.as_deref().unwrap_or_default();
            let moves: Vec<LineShift> = hunks.iter().map(LineShift::from).collect();
            let was = before.entry.as_ref();
            self.note_own_edit(OwnEdit { path, before: was, moves: &moves, version, text: Some(after) });
            let is_new = before.text.is_none();
            let _ = match is_new {
                true => writeln!(text, "{path} was made; it has version {version}."),
                false => writeln!(text, "{path} was changed; it has version {version}."),
            };
            let mut shown = Vec::new();
            if !is_new {
                let snippet = snippet(after, &places_of(hunks), EDIT_AROUND, room.saturating_sub(text.chars().count()));
                text.push_str(&snippet.text);
                for lines in &snippet.shown {
                    self.reads.note(path, version, Some(*lines), Some(after));
                }
                shown = snippet.shown;
            }
            files.push(json!({"path": path, "version": version, "lines": count(after), "shown": shown}));
        }
        CommandResult::success(text, json!({"files": files}))
    }
}

/// Builds the error for reads of more files than an edit can declare.
fn too_many(forgotten: &[FilePath]) -> CommandError {
    let message = format!(
        "You have read more than can be held against an edit, so what you have read longest ago is not known any more: \
         {}. Nothing was written. Read again what of that your edit depends on, and try again.",
        render::names(forgotten)
    );
    CommandError::Session(SessionCode::ReadsLost, message)
}

/// Returns the lines that an edit wrote, in the numbers after it; for a pure deletion, the lines around it.
fn places_of(hunks: &[Hunk]) -> Vec<LineRange> {
    let written = blocks(hunks);
    if !written.is_empty() { written } else { hunks.iter().map(|hunk| (hunk.at.max(2) - 1, hunk.at)).collect() }
}
