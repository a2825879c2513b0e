//! Context of a rejected edit: enough to plan it again without reading the files again.
//!
//! Usually this is the difference in the lines read, since the author knows the rest. The text has a budget in
//! characters. Content beyond it is omitted in this order: other files' differences (last first), the target's unread
//! lines, its read lines, its difference. Authors of changes are named for as many files as fit, the target first. For
//! each file the text says which lines it shows and whether the file must be viewed again.

use std::fmt::Write as _;

use patchboard_kernel::blueprint::Presentation;
use patchboard_kernel::files::{FilePath, LineRange, LineShift, count, union};
use serde::Serialize;

use super::diff::{Diff, unified, unified_in};
use super::hunks::hunks;
use super::snippet::{Snippet, snippet};
use patchboard_kernel::text::{counted, is_or_are, one_line};

/// Default budget, in characters.
pub const BUDGET: usize = 16_000;

/// Minimum budget, in characters.
pub const BUDGET_MIN: usize = 2_500;

/// Lines of context around the lines read, in the target's content.
const AROUND: u32 = 3;

/// An edit that changed a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FileEdit {
    /// Version that it created.
    pub version: u64,
    /// Author of the edit.
    pub by: String,
    /// Purpose of the edit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
}

/// A changed file, or the edit's target, changed or not.
#[derive(Clone, Debug)]
pub struct ChangedFile<'a> {
    /// Path of the file.
    pub path: &'a FilePath,
    /// Version read; 0 if the file did not exist; `None` if the relevant lines were not read.
    pub read_at: Option<u64>,
    /// Current version.
    pub version: u64,
    /// Relevant edits since the read, oldest first.
    pub edits: &'a [FileEdit],
    /// Content at the read; `None` if it is no longer known.
    pub before: Option<&'a str>,
    /// Current content; `None` if the file is deleted.
    pub now: Option<&'a str>,
    /// Lines read, numbered as in the version read; without a read, the relevant lines.
    pub read: &'a [LineRange],
    /// True if the relevant lines were not read but others were.
    pub is_partly_read: bool,
}

/// A rejected edit.
#[derive(Clone, Debug)]
pub struct RejectedEdit<'a> {
    /// Rejection code.
    pub code: &'a str,
    /// Reason, in one sentence.
    pub message: &'a str,
    /// Target of the edit.
    pub target: ChangedFile<'a>,
    /// Other stale files; a file occurs once per version read.
    pub stale: &'a [ChangedFile<'a>],
}

/// Context of one file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FilePart {
    /// Path of the file.
    pub path: FilePath,
    /// Version read.
    pub read_at: Option<u64>,
    /// Current version.
    pub version: u64,
    /// True if the file existed and is deleted.
    pub is_deleted: bool,
    /// Edits since the read.
    pub changed_by: Vec<FileEdit>,
    /// Difference since the read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Lines of the current content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Lines of the current version shown in full here.
    pub shown: Vec<LineRange>,
    /// Lines of the current version known now: those shown here and, if the difference is complete, unchanged lines
    /// read before.
    pub known: Vec<LineRange>,
    /// True if these are all lines of the file.
    pub is_whole: bool,
    /// True if lines read before are no longer known.
    pub view_again: bool,
}

/// Context of a rejected edit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RejectionContext {
    /// Rejection code.
    pub code: String,
    /// Reason, in one sentence.
    pub message: String,
    /// Target of the edit.
    pub target: FilePart,
    /// Other stale files, and the target if it was read at several versions.
    pub stale: Vec<FilePart>,
    /// Number of stale files omitted for lack of room.
    pub stale_left_out: usize,
    /// Complete text for a model.
    #[serde(skip)]
    pub text: String,
}

/// Renders the context of a rejected edit in at most `budget` characters, or [`BUDGET_MIN`] if that is more.
pub fn build_context(rejected: &RejectedEdit<'_>, presentation: Presentation, budget: usize) -> RejectionContext {
    let (code, message) = (one_line(rejected.code, 60), one_line(rejected.message, 400));
    let head = format!("The edit was refused ({code}): {message}\nNothing was written.\n");
    let mut left = budget.max(BUDGET_MIN).saturating_sub(chars(&head) + NOTE_CHARS);
    let mut target = FileContextBuilder::new(&rejected.target);
    left = left.saturating_sub(target.entry_chars());
    let mut stale: Vec<FileContextBuilder<'_>> = Vec::new();
    for moved in rejected.stale {
        let draft = FileContextBuilder::new(moved);
        let Some(rest) = left.checked_sub(draft.entry_chars()) else { break };
        left = rest;
        stale.push(draft);
    }
    let stale_left_out = rejected.stale.len() - stale.len();
    if presentation != Presentation::Brief {
        target.add_diff(presentation, &mut left);
        target.add_content(presentation, &mut left);
        for draft in &mut stale {
            draft.add_diff(presentation, &mut left);
        }
    }
    let mut text = head;
    target.write("target", &mut text);
    for draft in &stale {
        draft.write("stale", &mut text);
    }
    if stale_left_out > 0 {
        let (files, are) = (counted(stale_left_out, "more stale file"), is_or_are(stale_left_out));
        writeln!(text, "[{files} {are} not listed; view the files again that you depend on]")
            .expect("a string takes everything");
    }
    text.push_str(match (target.must_be_viewed(), stale.iter().any(FileContextBuilder::must_be_viewed) || stale_left_out > 0) {
        (false, false) => "Nothing has to be viewed again: what you have read and is not shown here is as it was. Plan the edit anew.\n",
        (true, false) => "View the target again, then plan the edit anew.\n",
        (false, true) => "View the stale files again that are said to need it, then plan the edit anew.\n",
        (true, true) => "View the files again that are said to need it, then plan the edit anew.\n",
    });
    RejectionContext {
        code,
        message,
        target: target.part(),
        stale: stale.iter().map(FileContextBuilder::part).collect(),
        stale_left_out,
        text,
    }
}

/// Characters reserved for the final note.
const NOTE_CHARS: usize = 200;

/// Characters reserved for the sentence about the lines shown of a file.
const SHOWN_CHARS: usize = 200;

/// Maximum number of edits and ranges named.
const NAMED_MAX: usize = 5;

fn chars(text: &str) -> usize {
    text.chars().count()
}

/// Context of one file under construction.
struct FileContextBuilder<'a> {
    moved: &'a ChangedFile<'a>,
    /// Changes from the content read to the current one, if both are known.
    moves: Option<Vec<LineShift>>,
    diff: Option<Diff>,
    content: Option<Snippet>,
}

impl<'a> FileContextBuilder<'a> {
    fn new(moved: &'a ChangedFile<'a>) -> Self {
        let texts = moved.before.filter(|_| moved.read_at.is_some()).zip(moved.now);
        let moves = texts.map(|(before, now)| hunks(before, now).iter().map(LineShift::from).collect());
        Self { moved, moves, diff: None, content: None }
    }

    /// Returns whether the file ever existed.
    fn was_there(&self) -> bool {
        self.moved.version > 0 || self.moved.read_at.is_some_and(|version| version > 0)
    }

    /// Returns the characters of the entry without differences and content.
    fn entry_chars(&self) -> usize {
        chars(&self.entry("target")) + SHOWN_CHARS
    }

    fn entry(&self, role: &str) -> String {
        let ChangedFile { path, read_at, version, edits: movers, now, .. } = self.moved;
        let mut entry = format!("\n{role}: {path}, ");
        match (read_at, now) {
            (_, None) if !self.was_there() => write!(entry, "not there"),
            (None, None) => write!(entry, "not there, deleted with version {version}"),
            (Some(read_at), None) if read_at == version => write!(entry, "not there, as read"),
            (None, Some(_)) if self.moved.is_partly_read => {
                write!(entry, "{} not read, now version {version}", named(self.moved.read))
            }
            (None, Some(_)) => write!(entry, "not read, now version {version}"),
            (Some(0), None) => write!(entry, "was not there, deleted with version {version}"),
            (Some(0), Some(_)) => write!(entry, "was not there, now version {version}"),
            (Some(read_at), None) => write!(entry, "version {read_at} read, deleted with version {version}"),
            (Some(read_at), Some(_)) if read_at == version => write!(entry, "version {version}, as read"),
            (Some(read_at), Some(_)) => {
                write!(entry, "version {read_at} read, now {version} (+{})", version.saturating_sub(*read_at))
            }
        }
        .expect("a string takes everything");
        entry.push('\n');
        for FileEdit { version, by, intent } in movers.iter().rev().take(NAMED_MAX) {
            let by = one_line(by, 64);
            let intent = intent.as_ref().map_or_else(String::new, |intent| format!(": {}", one_line(intent, 120)));
            writeln!(entry, "  version {version} by {by}{intent}").expect("a string takes everything");
        }
        match movers.len().saturating_sub(NAMED_MAX) {
            0 => {}
            1 => entry.push_str("  and 1 other\n"),
            more => writeln!(entry, "  and {more} others").expect("a string takes everything"),
        }
        entry
    }

    fn add_diff(&mut self, presentation: Presentation, left: &mut usize) {
        let ChangedFile { path, read_at: Some(read_at), before: Some(before), now: Some(now), version, read, .. } =
            self.moved
        else {
            return;
        };
        if read_at == version {
            return;
        }
        let names = (format!("{path} (version {read_at})"), format!("{path} (version {version})"));
        let names = (names.0.as_str(), names.1.as_str());
        let diff = match presentation {
            Presentation::Full => unified(before, now, names, *left),
            Presentation::Diff | Presentation::Brief => unified_in(before, now, names, read, *left),
        };
        if diff.is_whole || !diff.text.is_empty() {
            *left -= chars(&diff.text);
            self.diff = Some(diff);
        }
    }

    /// Adds the lines read, and all other lines only if they fit too.
    fn add_content(&mut self, presentation: Presentation, left: &mut usize) {
        let Some(now) = self.moved.now else { return };
        let everything = [(1, u32::MAX)];
        let ChangedFile { read_at, version, read, .. } = self.moved;
        let is_known = *read_at == Some(*version) || self.diff.as_ref().is_some_and(|diff| diff.is_whole);
        if presentation == Presentation::Diff && is_known {
            return;
        }
        // Without the content at the read, the current positions of the lines read are unknown.
        let is_lost = read_at.is_some() && self.moves.is_none();
        let is_full = presentation == Presentation::Full || read.is_empty() || is_lost;
        let ranges = match &self.moves {
            _ if self.moved.read.is_empty() => everything.to_vec(),
            Some(moves) => carried(moves, self.moved, count(now)),
            // Approximately where they were.
            None => self.moved.read.to_vec(),
        };
        let chars_max = left.saturating_sub(CONTENT_HEAD.len());
        let mut content = snippet(now, &ranges, AROUND, chars_max);
        if is_full {
            let all = snippet(now, &everything, 0, chars_max);
            if all.is_whole || chars(&content.text) < chars_max / 2 {
                content = all;
            }
        }
        if content.shown.is_empty() && count(now) > 0 {
            return;
        }
        *left = left.saturating_sub(chars(&content.text) + CONTENT_HEAD.len());
        self.content = Some(content);
    }

    /// Returns the lines of the current version shown in full.
    fn shown(&self) -> Vec<LineRange> {
        let of_diff = self.diff.iter().flat_map(|diff| diff.shown.iter().copied());
        union(of_diff.chain(self.content.iter().flat_map(|content| content.shown.iter().copied())))
    }

    fn known(&self) -> Vec<LineRange> {
        let mut known = self.shown();
        let ChangedFile { read_at, version, now: Some(now), read, .. } = self.moved else { return known };
        if *read_at == Some(*version) {
            let last = count(now);
            known.extend(read.iter().map(|(from, to)| (*from, (*to).min(last))));
        } else if self.diff.as_ref().is_some_and(|diff| diff.is_whole)
            && let Some(moves) = &self.moves
        {
            known.extend(unchanged(moves, self.moved));
        }
        union(known)
    }

    fn must_be_viewed(&self) -> bool {
        let ChangedFile { read_at, version, now, .. } = self.moved;
        let Some(now) = now else {
            // For a deleted file there is nothing to view; the text reports the deletion.
            return false;
        };
        if *read_at == Some(*version) {
            return false;
        }
        let known = self.known();
        let is_known = |(first, last): &LineRange| known.iter().any(|(from, to)| from <= first && last <= to);
        match &self.moves {
            _ if count(now) == 0 => self.content.is_none() && !self.diff.as_ref().is_some_and(|diff| diff.is_whole),
            Some(moves) => !carried(moves, self.moved, count(now)).iter().all(is_known),
            // The relevant lines were not read before, and are shown now.
            None if read_at.is_none() && !self.moved.read.is_empty() => {
                !self.read_lines(count(now)).iter().all(is_known)
            }
            None => !is_known(&(1, count(now))),
        }
    }

    /// Returns the relevant lines of a file that was not read.
    fn read_lines(&self, total: u32) -> Vec<LineRange> {
        union(self.moved.read.iter().map(|(first, last)| ((*first).max(1), (*last).min(total))))
    }

    fn is_whole(&self) -> bool {
        let lines = self.moved.now.map(count);
        lines.is_some_and(|lines| lines == 0 && self.content.is_some() || lines > 0 && self.known() == [(1, lines)])
    }

    fn write(&self, role: &str, text: &mut String) {
        text.push_str(&self.entry(role));
        text.push_str("  ");
        let shown = self.shown();
        match shown.as_slice() {
            _ if self.moved.now.is_none() => text.push_str("there is nothing to show"),
            [] => text.push_str("no line of it is shown here"),
            ranges => {
                write!(text, "shown here: {}", named(ranges)).expect("a string takes everything");
            }
        }
        text.push_str(if self.must_be_viewed() { "; view it again\n" } else { "\n" });
        if let Some(diff) = &self.diff {
            text.push_str(&diff.text);
        }
        if let Some(content) = &self.content {
            text.push_str(CONTENT_HEAD);
            text.push_str(&content.text);
        }
    }

    fn part(&self) -> FilePart {
        FilePart {
            path: self.moved.path.clone(),
            read_at: self.moved.read_at,
            version: self.moved.version,
            is_deleted: self.moved.now.is_none() && self.was_there(),
            changed_by: self.moved.edits.to_vec(),
            diff: self.diff.as_ref().map(|diff| diff.text.clone()),
            content: self.content.as_ref().map(|content| content.text.clone()),
            shown: self.shown(),
            known: self.known(),
            is_whole: self.is_whole(),
            view_again: self.must_be_viewed(),
        }
    }
}

const CONTENT_HEAD: &str = "content now:\n";

/// Names the first ranges and the number of the others.
fn named(ranges: &[LineRange]) -> String {
    let each = ranges.iter().take(NAMED_MAX).map(|(first, last)| format!("{first}-{last}"));
    let each: Vec<String> = each.collect();
    match ranges.len().saturating_sub(NAMED_MAX) {
        0 => format!("lines {}", each.join(", ")),
        more => format!("lines {} and {}", each.join(", "), counted(more, "more range")),
    }
}

/// Maps the lines read to the current version, including replacements of changed lines.
fn carried(moves: &[LineShift], moved: &ChangedFile<'_>, total: u32) -> Vec<LineRange> {
    let place = |line: u32, is_last: bool| {
        let mut shift = 0_i64;
        for step in moves {
            if step.at > line {
                break;
            }
            if line < step.at + step.removed {
                // Inside a changed range the whole replacement counts.
                let to = if is_last { i64::from(step.added) - 1 } else { 0 };
                return i64::from(step.at) + shift + to;
            }
            shift += i64::from(step.added) - i64::from(step.removed);
        }
        i64::from(line) + shift
    };
    let line = |number: i64| u32::try_from(number).unwrap_or(0);
    let last_read = moved.before.map_or(0, count);
    let ranges = moved.read.iter().map(|(first, last)| (*first, (*last).min(last_read)));
    let there = |(first, last)| match (line(place(first, false).max(1)), line(place(last, true)).min(total)) {
        // Nothing is left of the lines, or there was nothing; the adjacent lines show that.
        (first, last) if first > last => (last.max(1), first.min(total)),
        lines => lines,
    };
    union(ranges.map(there))
}

/// Maps the unchanged lines among those read to the current version.
fn unchanged(moves: &[LineShift], moved: &ChangedFile<'_>) -> Vec<LineRange> {
    let mut kept = Vec::new();
    let (mut from, mut shift) = (1_u32, 0_i64);
    let mut keep = |from: u32, to: u32, shift: i64| {
        for (first, last) in moved.read {
            let (first, last) = ((*first).max(from), (*last).min(to));
            let there = |line: u32| u32::try_from(i64::from(line) + shift).unwrap_or(0);
            if first <= last {
                kept.push((there(first), there(last)));
            }
        }
    };
    for step in moves {
        keep(from, step.at - 1, shift);
        from = step.at + step.removed;
        shift += i64::from(step.added) - i64::from(step.removed);
    }
    keep(from, moved.before.map_or(0, count), shift);
    kept
}
