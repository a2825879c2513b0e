//! Read commands of an agent. Shown lines count as read.

use std::ops::ControlFlow;
use std::sync::Arc;

use patchboard_kernel::files::{FileEntry, FilePath, LineRange};
use serde_json::json;

use super::super::disk::UnservedReason;
use super::super::render;
use super::super::service::WorkspaceError;
use super::super::text::edit::begins_within;
use super::super::text::hunks::has_crlf;
use super::super::text::search::{Pattern, Search};
use super::{CommandError, CommandResult, ErrorWithLines, Session, SessionCode};
use patchboard_kernel::text::counted;

impl Session {
    pub(super) async fn view(
        &mut self,
        path: &FilePath,
        range: Option<(u32, Option<u32>)>,
        columns: Option<(u32, Option<u32>)>,
    ) -> Result<CommandResult, CommandError> {
        self.readable(path)?;
        let standing = match self.workspace.read_current(path).await {
            Err(WorkspaceError::Disk(error)) if error.reason() == Some(UnservedReason::NotRegular) => {
                return Ok(self.list(Some(path)));
            }
            standing => standing?,
        };
        let (Some(entry), Some(text)) = (&standing.entry, &standing.text) else {
            self.reads.note(path, standing.version(), None, None);
            return Err(CommandError::Session(SessionCode::NoSuchFile, format!("There is no file {path}.")));
        };
        begins_within(range, text)?;
        let ends = if has_crlf(text) { ", lines end in CRLF" } else { "" };
        let headline = format!("{}{ends}", headline(path, entry));
        let room = self.room.saturating_sub(headline.chars().count() + 1);
        let shown = render::view(text, range, columns, room);
        if headline.chars().count() + 1 + shown.text.chars().count() <= self.room {
            self.note_shown(path, entry, text, &shown.shown, shown.is_whole);
            if let Some((line, columns, of)) = shown.part {
                self.reads.note_columns(path, entry.version, line, (columns, of), text);
            }
            // Changed places that this view does not show stay stale.
            self.reads.catch_up(path, entry, self.workspace.spec().granularity);
        }
        let data = json!({
            "path": path, "version": entry.version, "hash": entry.hash, "lines": entry.lines, "writer": entry.writer,
            "intent": entry.intent, "shown": shown.shown, "is_whole": shown.is_whole, "content": shown.text,
        });
        Ok(CommandResult::success(format!("{headline}\n{}", shown.text), data))
    }

    /// Counts the lines shown by an edit error as read.
    pub(super) fn note_lines_of(&mut self, shown: &ErrorWithLines) {
        let ErrorWithLines { error: trouble, path, lines, current: standing } = shown;
        if let (Some(entry), Some(text)) = (&standing.entry, &standing.text)
            && trouble.to_string().chars().count() <= self.room
        {
            self.note_shown(path, entry, text, lines, false);
        }
    }

    /// Counts the shown part of a file as read.
    fn note_shown(&mut self, path: &FilePath, entry: &FileEntry, text: &Arc<str>, shown: &[LineRange], is_whole: bool) {
        if is_whole {
            self.reads.note(path, entry.version, None, Some(text));
        } else {
            shown.iter().for_each(|lines| self.reads.note(path, entry.version, Some(*lines), Some(text)));
        }
    }

    /// Lists the files of a directory. A missing directory is an error, since an empty list would hide it.
    pub(super) async fn list_in(&self, path: &FilePath) -> Result<CommandResult, CommandError> {
        let result = self.list(Some(path));
        if result.data["files"] != json!([]) {
            return Ok(result);
        }
        let none =
            |what: &str| CommandError::Session(SessionCode::NoSuchFile, format!("There is no directory {path}{what}."));
        if !self.author.access.may_view(path) {
            return Err(none(" with files that you may read"));
        }
        match self.workspace.read_current(path).await {
            Err(WorkspaceError::Disk(error)) if error.reason() == Some(UnservedReason::NotRegular) => Ok(result),
            Ok(_) => Err(none("")),
            Err(error) => Err(error.into()),
        }
    }

    /// Lists files. A listing does not count as reading them.
    pub(super) fn list(&self, below: Option<&FilePath>) -> CommandResult {
        let is_listed = |path: &FilePath| self.author.access.may_view(path) && render::is_below(path, below);
        let files: Vec<_> = self.workspace.files().into_iter().filter(|(path, _)| is_listed(path)).collect();
        let line = |(path, entry): &(FilePath, FileEntry)| {
            let FileEntry { version, lines, writer, .. } = entry;
            format!("{path}  ({}, version {version}, by {writer})", counted(*lines, "line"))
        };
        let (text, listed) = render::list(&files.iter().map(line).collect::<Vec<_>>(), self.room);
        let more = files.len() - listed;
        let listed = files.iter().take(listed).map(|(path, entry)| {
            json!({"path": path, "version": entry.version, "lines": entry.lines, "bytes": entry.bytes, "writer": entry.writer})
        });
        CommandResult::success(text, json!({"files": listed.collect::<Vec<_>>(), "left_out": more}))
    }

    pub(super) async fn search(
        &mut self,
        below: Option<&FilePath>,
        pattern: &str,
        is_regex: bool,
    ) -> Result<CommandResult, CommandError> {
        let pattern = Pattern::new(pattern, is_regex)?;
        let is_meant = |path: &FilePath| self.author.access.may_view(path) && render::is_below(path, below);
        let paths: Vec<FilePath> = self.workspace.files().into_keys().filter(is_meant).collect();
        let so_far = (Search::new(&pattern, render::search_limits(self.room)), Vec::new());
        let looked = self.workspace.read_each(paths, so_far, |(search, seen), path, entry, text| {
            let shown = search.search_file(path, text);
            if !shown.is_empty() {
                seen.push((path.clone(), entry, Arc::clone(text), shown));
            }
            if search.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let ((mut search, seen), left) = looked.await?;
        for (path, entry, text, shown) in seen {
            self.note_shown(&path, &entry, &text, &shown, false);
        }
        left.busy.iter().for_each(|path| search.leave_out(path, "others are changing it; search again"));
        left.rejected.iter().for_each(|path| search.leave_out(path, "the board does not allow what it holds"));
        let found = search.found(left.rest);
        let data = json!({"matches": found.matches, "files": found.files, "content": found.text});
        Ok(CommandResult::success(found.text, data))
    }
}

fn headline(path: &FilePath, entry: &FileEntry) -> String {
    let FileEntry { version, lines, writer, intent, .. } = entry;
    let what = if intent.is_empty() { String::new() } else { format!(": {intent}") };
    let lines = counted(*lines, "line");
    format!("{path}, version {version}, {lines}, last changed by {writer}{what}")
}
