//! Judges edits: what the stages of the pipeline ([`crate::pipeline`]) check for files.

use std::collections::{BTreeMap, BTreeSet};

use jsonptr::PointerBuf;
use serde_json::{Value, json};

use super::entry::{FileEntry, ReadState, check_read, evictable, operations};
use super::{Edit, FileChange, FilePath, FileRead, Hunk, LineRange, LineShift, count, cover, union};
use crate::blueprint::{Granularity, Intent, Isolation};
use crate::freshness::{CommitLookup, Conflict, Reservation, Reservations};
use crate::id::{InvocationId, Timestamp, Version, WorkerName};
use crate::mutants::{self, Mutant};
use crate::plan::{Plan, WorkerPlan};
use crate::rejection::{Code, ConflictingChange, VIOLATIONS_MAX, Violation};
use crate::state::State;

/// Maximum number of files that one edit changes.
pub const CHANGES_MAX: usize = 64;
/// Maximum number of reads that one edit rests on.
pub const READS_MAX: usize = 4096;
/// Maximum characters of an intent.
pub const INTENT_MAX: usize = 200;
/// Maximum characters of an author's name.
const NAME_MAX: usize = 64;
/// Maximum number of files of a workspace. The oldest deleted ones are evicted when room is needed.
pub const FILES_MAX: usize = 20_000;

/// Author of changes made outside the board.
pub const EXTERNAL: &str = "external";

/// Inputs for judging an edit.
pub(crate) struct EditContext<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) state: &'a State,
    /// Invocation and worker that propose the edit; `None` for an external change that has already happened.
    pub(crate) author: Option<(InvocationId, &'a WorkerPlan)>,
    /// Author name recorded with the edit.
    pub(crate) writer: &'a str,
    /// Places reserved for other invocations.
    pub(crate) reservations: &'a Reservations,
    /// The recorded time.
    pub(crate) at: Timestamp,
    /// Lookup of the commit and author of a version.
    pub(crate) commits: &'a dyn CommitLookup,
    /// The highest version of an evicted file.
    pub(crate) floor: u64,
}

pub(crate) struct EditProposal<'a> {
    edit: &'a Edit,
    inputs: EditContext<'a>,
    /// Entries of the changed files.
    entries: BTreeMap<&'a FilePath, FileEntry>,
}

impl<'a> EditProposal<'a> {
    pub(crate) fn new(edit: &'a Edit, inputs: EditContext<'a>) -> Self {
        let entry = |path| Some((path, FileEntry::load_since(inputs.state, path, oldest(&edit.reads, path))?));
        let entries = edit.changes.iter().filter_map(|change| entry(&change.path)).collect();
        Self { edit, inputs, entries }
    }

    /// Returns the state patch; empty if every file stays as it is.
    pub(crate) fn patch(&self) -> Value {
        let Self { edit, inputs, entries } = self;
        // An unchanged file gets no new version, so that no author must read it again.
        let is_changed = |change: &&FileChange| entries.get(&change.path).and_then(|entry| entry.hash) != change.hash;
        let changes = edit.changes.iter().filter(is_changed);
        let (writer, intent) = (inputs.writer, edit.intent.as_deref());
        let made: Vec<Value> =
            changes.flat_map(|change| operations(inputs.state, inputs.floor, change, writer, intent)).collect();
        if made.is_empty() {
            return Value::Array(made);
        }
        let forgotten = self.entries_to_evict().unwrap_or_default();
        forgotten.iter().map(|place| json!({"op": "remove", "path": place.as_str()})).chain(made).collect()
    }

    /// Returns the conflicts with concurrent edits, and the places to reserve.
    pub(crate) fn conflict(&self) -> Conflict {
        let Some((invocation, _)) = self.inputs.author.filter(|_| isolation(self.inputs.plan) == Isolation::Storm)
        else {
            return Conflict::default();
        };
        let Self { edit, inputs, entries } = self;
        let violations = Conflicts { edit, entries, invocation, inputs, found: Vec::new() }.find();
        // An author that never read the file has lost no race.
        let is_slow = |violation: &Violation| matches!(violation.code, Code::StaleTarget | Code::StaleRead);
        let contested = match violations.iter().any(is_slow) {
            true => edit.changes.iter().map(|change| change.path.place()).collect(),
            false => Vec::new(),
        };
        Conflict { violations, contested }
    }

    /// Returns violations of the edit's form.
    pub(crate) fn malformed(&self) -> Vec<Violation> {
        let Self { edit, inputs, entries } = self;
        let wrong = |code, place: &str, message: String| Violation::new(code, place, message);
        let mut found = Vec::new();
        if edit.changes.is_empty() {
            found.push(wrong(Code::NotAPatch, "", "an edit changes at least one file".to_owned()));
        }
        let Some(spec) = &inputs.plan.blueprint.workspace else {
            return vec![wrong(Code::UnknownLocation, "", "the board has no workspace".to_owned())];
        };
        if inputs.author.is_some() {
            let intent = edit.intent.as_deref().unwrap_or_default().trim();
            if intent.is_empty() && spec.intent == Intent::Required {
                let message =
                    "say in `intent` what the edit is for, in one short line: others read it above your change";
                found.push(wrong(Code::IntentMissing, "", message.to_owned()));
            }
            let (files, reads) = (edit.changes.len(), edit.reads.len());
            if files > CHANGES_MAX {
                let message = format!("{files} files are changed at once, at most {CHANGES_MAX} may be");
                found.push(wrong(Code::TooLarge, "", message));
            }
            if reads > READS_MAX {
                let message = format!(
                    "it rests on {reads} reads, at most {READS_MAX} may be: begin anew, and read what you need"
                );
                found.push(wrong(Code::TooLarge, "", message));
            }
            if intent.chars().count() > INTENT_MAX || intent.chars().any(char::is_control) {
                let message = format!("an intent is one line of at most {INTENT_MAX} characters");
                found.push(wrong(Code::TooLarge, "", message));
            }
        }
        if edit.name.as_deref().is_some_and(|name| !is_name(name)) {
            let message = format!("a name is made of letters, digits, `.`, `_` and `-`, at most {NAME_MAX}");
            found.push(wrong(Code::NotAPatch, "", message));
        }
        let mut named = BTreeSet::new();
        for change in &edit.changes {
            let place = change.path.place();
            let mut is_wrong = |message: String| found.push(wrong(Code::NotAPatch, place.as_str(), message));
            if !named.insert(&change.path) {
                is_wrong(format!("{} is changed twice in one edit", change.path));
            }
            if change.from.is_none() && change.hash.is_none() {
                is_wrong(format!("{} neither was there nor will be", change.path));
            }
            let lines = entries.get(&change.path).filter(|entry| entry.exists()).map_or(0, |entry| entry.lines);
            let is_meant = entries.get(&change.path).and_then(|entry| entry.hash) == change.from;
            if is_meant
                && let Some(trouble) = change.hunks.as_deref().and_then(|hunks| hunk_error(hunks, lines, change))
            {
                is_wrong(format!("{}: {trouble}", change.path));
            }
        }
        if self.entries_to_evict().is_none() {
            let message = format!("this workspace has at most {} files", files_max(inputs.plan));
            found.push(wrong(Code::ResultTooLarge, "", message));
        }
        found.truncate(VIOLATIONS_MAX);
        found
    }

    /// Returns violations of the author's access to files.
    pub(crate) fn unauthorized(&self) -> Vec<Violation> {
        let Self { edit, inputs: EditContext { plan, author: Some((_, seat)), .. }, .. } = self else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for change in &edit.changes {
            let place = change.path.place();
            let Some(access) = &seat.files else {
                let message = "you may not change files";
                found.push(Violation::new(Code::PathNotGranted, place.as_str(), message));
                continue;
            };
            if !access.may_edit(&change.path) {
                let message = format!("you may not change {}", change.path);
                let violation = Violation::new(Code::PathNotGranted, place.as_str(), message);
                found.push(violation.with_expected(json!({"edit": access.spec().edit})));
            }
        }
        let is_anothers = |name: &String| {
            *name == EXTERNAL || plan.workers.keys().any(|worker| worker.as_str() == name && seat.name != *worker)
        };
        if let Some(name) = edit.name.as_ref().filter(|name| is_anothers(name)) {
            let message = format!("{name} is somebody else's name");
            found.push(Violation::new(Code::WrongWorker, "", message));
        }
        found.truncate(VIOLATIONS_MAX);
        found
    }

    /// Returns violations by changes that do not apply to the current files.
    pub(crate) fn inapplicable(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let judged = self.edit.changes.iter().filter(|_| self.inputs.author.is_some());
        for change in judged {
            let entry = self.entries.get(&change.path).filter(|entry| entry.exists());
            let place = change.path.place();
            match (entry, change.from) {
                (None, Some(_)) => {
                    let message = format!("there is no file {}", change.path);
                    found.push(Violation::new(Code::PathNotFound, place.as_str(), message));
                }
                (entry, from) if entry.and_then(|entry| entry.hash) != from => {
                    let message = format!("{} holds something else than what the edit was made for", change.path);
                    let violation = Violation::new(Code::TestFailed, place.as_str(), message);
                    found.push(violation.with_found(entry.map(brief)));
                }
                _ => {}
            }
        }
        found
    }

    /// Returns the entries of deleted files to evict for new ones; `None` if that makes too little room.
    fn entries_to_evict(&self) -> Option<Vec<PointerBuf>> {
        let Self { edit, inputs, entries } = self;
        let new = edit.changes.iter().filter(|change| !entries.contains_key(&change.path)).count();
        let known = inputs.state.root().child(super::FILES).map_or(0, crate::tree::Node::part_count);
        match new.saturating_add(known).saturating_sub(files_max(inputs.plan)) {
            excess if new > 0 && excess > 0 => evictable(inputs.state, excess, &edit.changes),
            _ => Some(Vec::new()),
        }
    }
}

/// Returns the oldest version at which a file was read; `u64::MAX` if it was not, because then its edits are
/// irrelevant.
fn oldest(reads: &[FileRead], path: &FilePath) -> u64 {
    reads.iter().filter(|read| read.path == *path).map(|read| read.version).min().unwrap_or(u64::MAX)
}

fn isolation(plan: &Plan) -> Isolation {
    plan.blueprint.workspace.as_ref().map_or_else(Isolation::default, |spec| spec.isolation)
}

fn granularity(plan: &Plan) -> Granularity {
    plan.blueprint.workspace.as_ref().map_or_else(Granularity::default, |spec| spec.granularity)
}

fn files_max(plan: &Plan) -> usize {
    let most = plan.blueprint.workspace.as_ref().and_then(|spec| spec.max_files);
    most.and_then(|most| usize::try_from(most).ok()).map_or(FILES_MAX, |most| most.min(FILES_MAX))
}

fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.chars().count() <= NAME_MAX && name.chars().all(is_plain)
}

/// Returns the error in the hunks of a change to a file with `lines` lines.
fn hunk_error(hunks: &[Hunk], lines: u32, change: &FileChange) -> Option<&'static str> {
    let mut left = i64::from(lines);
    let mut free_from = 1;
    for moved in hunks.iter().map(LineShift::from) {
        let behind = moved.at.saturating_add(moved.removed);
        if moved.at < free_from || behind > lines.saturating_add(1) {
            return Some("its hunks are not in order, or reach beyond the file");
        }
        if moved.removed == 0 && moved.added == 0 {
            return Some("a hunk changes nothing");
        }
        // Two insertions at one place would have no order.
        free_from = behind.max(moved.at.saturating_add(1));
        left += i64::from(moved.added) - i64::from(moved.removed);
    }
    if left != i64::from(change.lines) {
        return Some("its hunks do not make a file of so many lines");
    }
    let Some((last, before)) = hunks.split_last() else {
        return (change.from.is_some() && change.hash.is_some() && change.from != change.hash)
            .then_some("its content is another, and no hunk says what changes");
    };
    // An unterminated line before others would join the next one, and the line numbers would no longer match the text.
    let is_open = |text: &str| !text.is_empty() && !text.ends_with('\n');
    let reaches_end = last.at.saturating_add(count(&last.was)) > lines;
    if before.iter().any(|hunk| is_open(&hunk.now)) || (is_open(&last.now) && !reaches_end) {
        return Some("only the last line of a file may be without an end");
    }
    None
}

/// Finds conflicts with concurrent edits.
struct Conflicts<'a> {
    edit: &'a Edit,
    entries: &'a BTreeMap<&'a FilePath, FileEntry>,
    invocation: InvocationId,
    inputs: &'a EditContext<'a>,
    found: Vec<Violation>,
}

impl Conflicts<'_> {
    fn find(mut self) -> Vec<Violation> {
        let edit = self.edit;
        let mut reads: BTreeMap<&FilePath, Vec<&FileRead>> = BTreeMap::new();
        for read in &edit.reads {
            reads.entry(&read.path).or_default().push(read);
        }
        for change in &edit.changes {
            let place = change.path.place();
            let kept = self.inputs.reservations.other_at(&place, self.invocation);
            if let Some(Reservation { worker, until, .. }) =
                kept.filter(|_| !mutants::is_active(Mutant::IgnoreFileReservation))
            {
                let left = until.0.saturating_sub(self.inputs.at.0);
                let seconds = u64::try_from(left).unwrap_or(0).div_ceil(1000);
                let message =
                    format!("{} is kept for {worker} until its next edit, for {seconds} s at most", change.path);
                let violation = Violation::new(Code::Reserved, place.as_str(), message);
                self.found.push(violation.with_found(json!({"kept_for": worker, "until": until})));
            }
            let own = reads.remove(&change.path).unwrap_or_default();
            self.target(change, &own);
        }
        if mutants::is_active(Mutant::CheckEditedFilesOnly) {
            reads.clear();
        }
        for (path, reads) in reads {
            let state = self.inputs.state;
            let is_at = |version| reads.iter().all(|read| read.version == version);
            if FileEntry::version_of(state, path).is_some_and(is_at) {
                continue;
            }
            let oldest = reads.iter().map(|read| read.version).min().unwrap_or_default();
            let entry = FileEntry::load_since(state, path, oldest);
            self.stale(Code::StaleRead, path, entry.as_ref(), &reads);
        }
        self.found.truncate(VIOLATIONS_MAX);
        self.found
    }

    fn target(&mut self, change: &FileChange, reads: &[&FileRead]) {
        let entry = self.entries.get(&change.path);
        let is_there = entry.is_some_and(FileEntry::exists);
        let is_new = change.from.is_none();
        if self.stale(Code::StaleTarget, &change.path, entry, reads) || (is_new && !is_there) {
            return;
        }
        // A file creation expects no file. If its author did not look, or saw that one exists, it has lost no race.
        if let Some(entry) = entry.filter(|_| is_new && is_there) {
            let message = format!(
                "there is a file {} already, version {} by {}: take another name, or view it and change it",
                change.path, entry.version, entry.writer
            );
            let violation = Violation::new(Code::FileExists, change.path.place().as_str(), message);
            self.found.push(violation.with_found(brief(entry)));
            return;
        }
        let moves: Option<Vec<LineShift>> =
            change.hunks.as_ref().map(|hunks| hunks.iter().map(LineShift::from).collect());
        if !is_covered(entry, reads, moves.as_deref(), granularity(self.inputs.plan)) {
            let message = match reads.is_empty() {
                true => format!("you have not read {}, or not since it was made", change.path),
                false => format!("you have not read all the lines of {} that you would change", change.path),
            };
            let violation = Violation::new(Code::UnseenTarget, change.path.place().as_str(), message);
            self.found.push(violation.with_found(entry.map(brief)));
        }
    }

    /// Records changes to a file since its reads; returns true if there are any.
    fn stale(&mut self, code: Code, path: &FilePath, entry: Option<&FileEntry>, reads: &[&FileRead]) -> bool {
        let granularity = granularity(self.inputs.plan);
        let mut stale = reads.iter().filter(|read| check_read(entry, read, granularity) == ReadState::Stale);
        let Some(first) = stale.next() else { return false };
        // The oldest read gives the most informative message.
        let read_at = stale.fold(first.version, |oldest, read| oldest.min(read.version));
        let now = entry.map_or(0, |entry| entry.version);
        let what = match entry.filter(|entry| entry.exists()) {
            None => "was deleted",
            Some(_) if read_at == 0 => "was made",
            Some(_) => "was changed",
        };
        let by = entry.map_or(EXTERNAL, |entry| &entry.writer);
        let message = match read_at {
            0 => format!("{path} {what} meanwhile by {by}, it has version {now}"),
            _ => format!("{path} {what} by {by} since you read it: version {read_at} was read, it has {now}"),
        };
        let place = path.place();
        let mut violation = Violation::new(code, place.as_str(), message).with_found(entry.map(brief));
        let at = self.inputs.state.root().last_changed(&place).map(|at| Version(at.into()));
        violation.stale = at.and_then(|at| self.inputs.commits.commit_of(at)).map(|(seq, _)| ConflictingChange {
            read_at: Version(read_at),
            now: Version(now),
            changed_by: WorkerName::from(by),
            seq,
        });
        self.found.push(violation);
        true
    }
}

/// Returns true if the reads cover all lines that would change. `moves`: the changes; `None` means the whole file.
pub fn is_covered(
    entry: Option<&FileEntry>,
    reads: &[&FileRead],
    moves: Option<&[LineShift]>,
    granularity: Granularity,
) -> bool {
    if reads.is_empty() || mutants::is_active(Mutant::AllowUnreadLines) {
        return !reads.is_empty();
    }
    let (Granularity::Lines, Some(entry)) = (granularity, entry) else { return true };
    let seen = reads.iter().filter_map(|read| match entry.check_read(read, granularity) {
        ReadState::Fresh(lines) => lines,
        ReadState::Stale => None,
    });
    let seen: Vec<LineRange> = union(seen);
    let everything = [LineShift { at: 1, removed: entry.lines, added: 0 }];
    moves.unwrap_or(&everything).iter().all(|moved| match moved.removed {
        // An insertion between two lines requires one of them; an empty file has no line to read.
        0 => {
            let beside = [moved.at.saturating_sub(1), moved.at];
            entry.lines == 0 || beside.iter().any(|line| *line > 0 && cover(&seen, (*line, *line)))
        }
        removed => cover(&seen, (moved.at, moved.at.saturating_add(removed) - 1)),
    })
}

/// Returns a file's summary for the author of a rejected edit.
fn brief(entry: &FileEntry) -> Value {
    json!({"version": entry.version, "lines": entry.lines, "writer": entry.writer, "intent": entry.intent})
}
