//! Builds the answer to a rejected edit, and counts the lines that it shows as read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use patchboard_kernel::blueprint::Granularity;
use patchboard_kernel::files::{
    FileEntry, FilePath, FileRead, Hunk, LineRange, LineShift, PastEdit, ReadState, check_read, count, shift_lines,
    union,
};
use patchboard_kernel::rejection::{Code, Rejection, Stage, Violation};
use serde_json::json;

use super::super::disk::DiskError;
use super::super::reads::shift_own_lines;
use super::super::service::{CurrentFile, DecidedEdit, WorkspaceError};
use super::super::text::rejection_context::{self, ChangedFile, FileEdit, FilePart, RejectedEdit, RejectionContext};
use super::{CommandResult, Session};

/// Authors of changes that a message lists by name.
const NAMED_MAX: usize = 4;

impl Session {
    /// Reports the rejection, even if the current content cannot be shown.
    pub(super) async fn rejected_result(&mut self, rejection: &Rejection, decided: &DecidedEdit) -> CommandResult {
        let message = self.rejection_message(rejection);
        match self.show_rejection(rejection, &message, decided).await {
            Ok(result) => result,
            Err(error) => {
                let then =
                    format!("What has changed cannot be shown ({error}): view what you need, then plan the edit anew");
                let code = rejection.code;
                brief(rejection, format!("The edit was refused ({code}): {message}.\n{then}.\n"))
            }
        }
    }

    async fn show_rejection(
        &mut self,
        rejection: &Rejection,
        message: &str,
        decided: &DecidedEdit,
    ) -> Result<CommandResult, WorkspaceError> {
        let target = &decided.proposed[0].path;
        let brief = |text: String| brief(rejection, text);
        if rejection.stage != Stage::Freshness {
            return Ok(brief(format!("The edit was refused: {message}")));
        }
        if rejection.code == Code::Reserved {
            // The content may differ again by then.
            let then = "Nothing was written. Try again then, and do something else until then if there is something";
            return Ok(brief(format!("The edit was refused (reserved): {message}.\n{then}.\n")));
        }
        if rejection.code == Code::FileExists && decided.proposed.len() > 1 {
            // The content under the other name is of no use here.
            return Ok(brief(format!("The edit was refused (file_exists): {message}.\nNothing was written.\n")));
        }
        if self.room < rejection_context::BUDGET_MIN {
            let then = "There is no room to show what has changed: view what you need, then plan the edit anew";
            return Ok(brief(format!("The edit was refused ({}): {message}.\n{then}.\n", rejection.code)));
        }
        // Shows the current content, which may be newer than the one that the edit met.
        let mut concerned: BTreeSet<FilePath> = self.basis.paths().cloned().collect();
        concerned.remove(target);
        let now = self.current_file(target).await?;
        let state = self.workspace.state();
        let granularity = self.workspace.spec().granularity;
        let mut stale = Vec::new();
        for path in concerned {
            let entry = FileEntry::load(&state, &path);
            let is_stale = |read: &FileRead| check_read(entry.as_ref(), read, granularity) == ReadState::Stale;
            if self.basis.for_file(&path).iter().any(is_stale) {
                let standing = self.current_file(&path).await?;
                stale.push((path, standing));
            }
        }
        let mut all = KnownFile::for_path(self, target, &now, granularity);
        let mut target = all.remove(0);
        let is_known = self.basis.knows(&target.path);
        if rejection.code == Code::UnseenTarget || rejection.code == Code::FileExists && !is_known {
            // Shows the lines of the change that the author had not read.
            let lines = changed(decided.proposed[0].hunks.as_deref().unwrap_or_default());
            let unread = without(&lines, &target.fresh);
            (target.read_at, target.is_partly_read) = (None, is_known && !unread.is_empty());
            target.read = if unread.is_empty() { lines } else { unread };
        }
        let others = stale.iter().flat_map(|(path, standing)| KnownFile::for_path(self, path, standing, granularity));
        let stale: Vec<KnownFile> = all.into_iter().chain(others).collect();
        let spec = self.workspace.spec();
        let moved: Vec<ChangedFile<'_>> = stale.iter().map(KnownFile::changed_file).collect();
        let rejected =
            RejectedEdit { code: rejection.code.as_str(), message, target: target.changed_file(), stale: &moved };
        let budget = usize::try_from(spec.payload).unwrap_or(rejection_context::BUDGET).min(self.room);
        let payload = rejection_context::build_context(&rejected, spec.presentation, budget);
        self.count_as_read(&payload, &target, &stale);
        let data = serde_json::to_value(&payload).unwrap_or_default();
        Ok(CommandResult { text: payload.text, data, code: Some(rejection.code.as_str().to_owned()) })
    }

    /// Joins the messages of a rejection. For a changed file it names all authors that changed lines which were read,
    /// latest first.
    fn rejection_message(&self, rejection: &Rejection) -> String {
        let (state, granularity) = (self.workspace.state(), self.workspace.spec().granularity);
        let paths: BTreeMap<String, &FilePath> =
            self.basis.paths().map(|path| (path.place().as_str().to_owned(), path)).collect();
        let why = |violation: &Violation| {
            let is_stale = matches!(violation.code, Code::StaleTarget | Code::StaleRead);
            let path = paths.get(&violation.pointer).filter(|_| is_stale);
            let entry = path.and_then(|path| FileEntry::load(&state, path));
            let newest = violation.found.as_ref().and_then(|found| found["writer"].as_str());
            let (Some(path), Some(entry), Some(newest)) = (path, entry, newest) else {
                return violation.message_with_author().into_owned();
            };
            let versions = changing_versions(&entry, self.basis.for_file(path).iter(), granularity);
            match named(versions.iter().rev().filter_map(|version| Some(entry.edits.get(version)?.by.as_str()))) {
                by if by.is_empty() => violation.message_with_author().into_owned(),
                by => {
                    let said = violation.message.strip_prefix(path.as_str()).unwrap_or(&violation.message);
                    format!("{path}{}", said.replacen(&format!(" by {newest}"), &format!(" by {by}"), 1))
                }
            }
        };
        rejection.violations.iter().map(why).collect::<Vec<_>>().join("; ")
    }

    /// Returns the current state of a file. A file no longer served counts as deleted here.
    async fn current_file(&self, path: &FilePath) -> Result<CurrentFile, WorkspaceError> {
        match self.workspace.read_current(path).await {
            Err(WorkspaceError::Disk(DiskError::NotServed(_))) => {
                Ok(CurrentFile { entry: FileEntry::load(&self.workspace.state(), path), text: None })
            }
            standing => standing,
        }
    }

    /// Counts the lines shown by a rejection as read. If it does not show everything relevant of a file, the other
    /// reads of that file stay stale.
    fn count_as_read(&mut self, payload: &RejectionContext, target: &KnownFile, stale: &[KnownFile]) {
        let shown = stale.iter().enumerate().map(|(at, known)| (known, payload.stale.get(at)));
        let files: Vec<(&KnownFile, Option<&FilePart>)> =
            std::iter::once((target, Some(&payload.target))).chain(shown).collect();
        let paths: BTreeSet<&FilePath> = files.iter().map(|(known, _)| &known.path).collect();
        for path in paths {
            let of_file = || files.iter().filter(|(known, _)| known.path == *path);
            let Some((KnownFile { current: standing, fresh, .. }, _)) = of_file().next() else { continue };
            let (version, text) = (standing.version(), standing.text.as_ref());
            let parts = || of_file().filter_map(|(_, part)| *part);
            let shown: Vec<LineRange> = parts().flat_map(|part| part.known.iter().copied()).collect();
            if of_file().count() > parts().count() || parts().any(|part| part.view_again) {
                shown.iter().for_each(|lines| self.reads.note(path, version, Some(*lines), text));
                if let Some(entry) = standing.entry.as_ref().filter(|_| !shown.is_empty()) {
                    self.reads.catch_up(path, entry, self.workspace.spec().granularity);
                }
                continue;
            }
            let total = text.map_or(0, |text| count(text));
            let lines = union(shown.into_iter().chain(fresh.iter().copied()));
            let is_whole = text.is_none() || total == 0 || lines == [(1, total)];
            let lines = if is_whole { vec![None] } else { lines.into_iter().map(Some).collect() };
            // Reads made after the request are not replaced.
            self.reads.replace(path, &self.basis.for_file(path), version, &lines, text);
        }
    }
}

fn brief(rejection: &Rejection, text: String) -> CommandResult {
    let data = json!({"code": rejection.code, "message": text, "rejection": rejection});
    CommandResult { text, data, code: Some(rejection.code.as_str().to_owned()) }
}

/// File named by a rejection, as read at one version.
struct KnownFile {
    path: FilePath,
    current: CurrentFile,
    /// Version that was read.
    read_at: Option<u64>,
    before: Option<Arc<str>>,
    read: Vec<LineRange>,
    edits: Vec<FileEdit>,
    /// See [`ChangedFile::is_partly_read`].
    is_partly_read: bool,
    /// Current positions of the lines that were read and are unchanged.
    fresh: Vec<LineRange>,
}

impl KnownFile {
    /// Returns one entry for each version with stale reads, oldest first; without any, one for the latest read.
    fn for_path(session: &Session, path: &FilePath, standing: &CurrentFile, granularity: Granularity) -> Vec<Self> {
        let reads = session.basis.for_file(path);
        let entry = standing.entry.as_ref();
        let is_stale = |read: &&FileRead| check_read(entry, read, granularity) == ReadState::Stale;
        let mut versions: Vec<Option<u64>> = reads.iter().filter(is_stale).map(|read| Some(read.version)).collect();
        versions.sort_unstable();
        versions.dedup();
        if versions.is_empty() {
            versions.push(reads.iter().map(|read| read.version).max());
        }
        // Reads compared line by line are valid even if whole files are compared.
        let fresh = union(reads.iter().filter_map(|read| match check_read(entry, read, Granularity::Lines) {
            ReadState::Fresh(lines) => lines,
            ReadState::Stale => None,
        }));
        let of_version = |read_at: Option<u64>| {
            let before = read_at.and_then(|version| session.basis.text(path, version)).cloned();
            let lines_at = before.as_deref().map_or(u32::MAX, count);
            let read = reads.iter().filter(|read| Some(read.version) == read_at);
            Self {
                path: path.clone(),
                current: standing.clone(),
                read_at,
                before,
                read: read.map(|read| read.lines.unwrap_or((1, lines_at))).collect(),
                edits: entry.map_or_else(Vec::new, |entry| {
                    let of_version = reads.iter().filter(|read| Some(read.version) == read_at);
                    let changers = changing_versions(entry, of_version, granularity);
                    let is_meant = |version: u64| match changers.is_empty() {
                        true => version > read_at.unwrap_or(0),
                        false => changers.contains(&version),
                    };
                    file_edits(entry, &session.workspace.intents(path), is_meant)
                }),
                is_partly_read: false,
                fresh: fresh.clone(),
            }
        };
        versions.into_iter().map(of_version).collect()
    }

    fn changed_file(&self) -> ChangedFile<'_> {
        ChangedFile {
            path: &self.path,
            read_at: self.read_at,
            version: self.current.version(),
            edits: &self.edits,
            before: self.before.as_deref(),
            now: self.current.text.as_deref(),
            read: &self.read,
            is_partly_read: self.is_partly_read,
        }
    }
}

/// Lists the selected edits of a file.
fn file_edits(entry: &FileEntry, intents: &BTreeMap<u64, String>, is_meant: impl Fn(u64) -> bool) -> Vec<FileEdit> {
    let newest = Some(&entry.intent).filter(|intent| !intent.is_empty());
    let mover = |(version, edit): (&u64, &PastEdit)| {
        let intent = intents.get(version).or(newest.filter(|_| *version == entry.version));
        FileEdit { version: *version, by: edit.by.clone(), intent: intent.cloned() }
    };
    entry.edits.iter().filter(|(version, _)| is_meant(**version)).map(mover).collect()
}

/// Returns the edits of a file that changed lines which were read, by the versions that they made.
fn changing_versions<'a>(
    entry: &FileEntry,
    reads: impl Iterator<Item = &'a FileRead>,
    granularity: Granularity,
) -> BTreeSet<u64> {
    let mut changers = BTreeSet::new();
    for read in reads {
        // `None`: any edit changes it, or its position is unknown.
        let mut lines = read.lines.filter(|_| granularity == Granularity::Lines && entry.exists());
        for (version, edit) in entry.edits.range(read.version.saturating_add(1)..) {
            let moves = edit.moves.as_ref().map(|moves| moves.iter().copied().map(LineShift::from).collect::<Vec<_>>());
            let is_same = lines.zip(moves.as_ref()).is_some_and(|(lines, moves)| shift_lines(lines, moves).is_some());
            lines = lines.zip(moves).map(|(lines, moves)| shift_own_lines(lines, &moves));
            if !is_same {
                changers.insert(*version);
            }
        }
    }
    changers
}

/// Lists each name once, up to [`NAMED_MAX`], and counts the rest.
fn named<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut each: Vec<&str> = Vec::new();
    names.for_each(|name| {
        if !each.contains(&name) {
            each.push(name);
        }
    });
    let more = each.len().saturating_sub(NAMED_MAX);
    each.truncate(NAMED_MAX);
    let others = if more == 1 { "1 other".to_owned() } else { format!("{more} others") };
    let last = if more > 0 { Some(others.as_str()) } else { each.pop() };
    match (each.join(", "), last) {
        (first, Some(last)) if !first.is_empty() => format!("{first} and {last}"),
        (first, last) => last.map_or(first, str::to_owned),
    }
}

/// Returns the lines that an edit removes, or between which it inserts.
fn changed(hunks: &[Hunk]) -> Vec<LineRange> {
    let lines = |step: LineShift| match step.removed {
        0 => (step.at.max(2) - 1, step.at),
        removed => (step.at, step.at.saturating_add(removed) - 1),
    };
    hunks.iter().map(|hunk| lines(hunk.into())).collect()
}

/// Removes other line ranges from these.
fn without(lines: &[LineRange], others: &[LineRange]) -> Vec<LineRange> {
    let mut left = union(lines.iter().copied());
    for (from, to) in others {
        let beside = |(first, last): LineRange| {
            let before = (first, last.min(from.saturating_sub(1)));
            let behind = (first.max(to.saturating_add(1)), last);
            [before, behind].into_iter().filter(|(first, last)| first <= last)
        };
        left = left.into_iter().flat_map(beside).collect();
    }
    left
}

#[cfg(test)]
mod tests {
    use super::{named, without};

    #[test]
    fn lines_are_taken_out_of_others() {
        assert_eq!(without(&[(1, 9), (20, 20)], &[]), [(1, 9), (20, 20)]);
        assert_eq!(without(&[(1, 9), (20, 20)], &[(3, 4), (9, 20)]), [(1, 2), (5, 8)]);
        assert_eq!(without(&[(2, 5)], &[(1, 9)]), []);
    }

    #[test]
    fn authors_are_named_once_and_not_all_of_them() {
        let of = |names: &str| named(names.split_whitespace());
        assert_eq!(of(""), "");
        assert_eq!(of("a a"), "a");
        assert_eq!(of("a b a"), "a and b");
        assert_eq!(of("a b c d"), "a, b, c and d");
        assert_eq!(of("a b c d e"), "a, b, c, d and 1 other");
        assert_eq!(of("a b c d e a f"), "a, b, c, d and 2 others");
    }
}
