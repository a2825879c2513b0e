//! Unified diff of two texts, for people and models, within a number of characters.

use std::fmt::Write as _;
use std::ops::Range;

use patchboard_kernel::files::{Hunk, LineRange, count, union};

use super::hunks::{hunks, lines, number, places};
use super::snippet::push_cut;
use patchboard_kernel::text::{counted, is_or_are};

/// Lines of context around a difference.
const CONTEXT: u32 = 3;

/// A unified diff.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Diff {
    /// Text to show; empty if the texts are equal.
    pub text: String,
    /// Lines of the newer text shown in full, sorted and merged.
    pub shown: Vec<LineRange>,
    /// True if the difference is complete, so that it can be applied.
    pub is_whole: bool,
}

/// Renders the difference of two texts under these names. Groups of hunks that exceed `chars_max` characters are
/// omitted from the end, with a note in the last line.
pub fn unified(old: &str, new: &str, names: (&str, &str), chars_max: usize) -> Diff {
    unified_in(old, new, names, &[(1, u32::MAX)], chars_max)
}

/// Like [`unified`], limited to changes that touch or adjoin the `read` lines of the older text. Other changes are
/// reduced to their effect on line numbers, which is complete for a reader of these lines.
pub fn unified_in(old: &str, new: &str, names: (&str, &str), read: &[LineRange], chars_max: usize) -> Diff {
    let hunks = hunks(old, new);
    if hunks.is_empty() {
        return Diff { is_whole: true, ..Diff::default() };
    }
    let groups = concerned(groups(&hunks), &hunks, read);
    let (old_lines, new_lines) = (lines(old), lines(new));
    let places = places(&hunks);
    let mut diff = Diff { text: format!("--- {}\n+++ {}\n", names.0, names.1), is_whole: true, ..Diff::default() };
    let mut left = chars_max.saturating_sub(diff.text.chars().count());
    for (done, (group, is_shown)) in groups.iter().enumerate() {
        let part = match is_shown {
            true => render(&hunks[group.clone()], &places[group.clone()], &old_lines, &new_lines),
            false => elsewhere(&hunks[group.clone()], &places[group.clone()]),
        };
        let chars = part.text.chars().count();
        let rest = &hunks[group.start..];
        let note = left_out(rest, groups.len() - done, groups.len());
        // Reserves room for the note about omitted groups; the last group needs none.
        let kept = if done + 1 < groups.len() { note.len() } else { 0 };
        if chars + kept > left {
            diff.text.push_str(&note);
            diff.is_whole = false;
            break;
        }
        left -= chars;
        diff.text.push_str(&part.text);
        diff.shown.extend(part.shown);
        diff.is_whole &= part.is_whole;
    }
    if diff.text.chars().count() > chars_max {
        return Diff::default();
    }
    diff.shown = union(diff.shown);
    diff
}

fn left_out(hunks: &[Hunk], parts: usize, of: usize) -> String {
    let removed: u64 = hunks.iter().map(|hunk| u64::from(count(&hunk.was))).sum();
    let added: u64 = hunks.iter().map(|hunk| u64::from(count(&hunk.now))).sum();
    let (less, more) = (counted(removed, "line"), counted(added, "line"));
    format!("[{parts} of {} {} not shown: {less} less, {more} more]\n", counted(of, "part"), is_or_are(parts))
}

/// Groups hunks with overlapping context.
fn groups(hunks: &[Hunk]) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut end = 0;
    for (index, hunk) in hunks.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if hunk.at - end <= 2 * CONTEXT => group.end = index + 1,
            _ => groups.push(index..index + 1),
        }
        end = hunk.at + count(&hunk.was);
    }
    groups
}

/// Returns each group and whether it is shown. Consecutive groups that are not shown are merged.
fn concerned(groups: Vec<Range<usize>>, hunks: &[Hunk], read: &[LineRange]) -> Vec<(Range<usize>, bool)> {
    let touches = |hunk: &Hunk| {
        let behind = hunk.at + count(&hunk.was);
        // An insertion adjoins the lines on both sides.
        let (first, last) = if behind > hunk.at { (hunk.at, behind - 1) } else { (hunk.at.max(2) - 1, hunk.at) };
        read.iter().any(|(from, to)| *from <= last && first <= *to)
    };
    let mut found: Vec<(Range<usize>, bool)> = Vec::new();
    for group in groups {
        let is_shown = hunks[group.clone()].iter().any(touches);
        match found.last_mut() {
            Some((before, false)) if !is_shown => before.end = group.end,
            _ => found.push((group, is_shown)),
        }
    }
    found
}

/// Renders the positions of changes without their lines.
fn elsewhere(hunks: &[Hunk], places: &[(u32, u32)]) -> Diff {
    let ([first, ..], [.., last]) = (hunks, hunks) else { return Diff::default() };
    let ([new_first, ..], [.., new_last]) = (places, places) else { return Diff::default() };
    let (from, to) = ((first.at, new_first.0), (last.at + count(&last.was), new_last.0 + new_last.1));
    Diff { text: format!("{} changed where you have not read\n", head(from, to)), is_whole: true, ..Diff::default() }
}

/// Renders a hunk header for the lines of both texts; the ends are exclusive.
fn head(from: (u32, u32), to: (u32, u32)) -> String {
    // An empty side begins after the preceding line.
    let side = |from: u32, to: u32| match to - from {
        0 => format!("{},0", from - 1),
        1 => from.to_string(),
        lines => format!("{from},{lines}"),
    };
    format!("@@ -{} +{} @@", side(from.0, to.0), side(from.1, to.1))
}

fn render(hunks: &[Hunk], places: &[(u32, u32)], old: &[&str], new: &[&str]) -> Diff {
    let ([first, ..], [.., last]) = (hunks, hunks) else { return Diff::default() };
    let ([new_first, ..], [.., new_last]) = (places, places) else { return Diff::default() };
    let before = CONTEXT.min(first.at - 1);
    let old_end = last.at + count(&last.was);
    let behind = CONTEXT.min(number(old.len()) + 1 - old_end);
    let from = (first.at - before, new_first.0 - before);
    let to = (old_end + behind, new_last.0 + new_last.1 + behind);
    let mut part = Diff { is_whole: true, ..Diff::default() };
    writeln!(part.text, "{}", head(from, to)).expect("a string takes everything");
    let mut at = from;
    for (hunk, place) in hunks.iter().zip(places) {
        part.equal(&mut at, hunk.at, new);
        for line in &old[at.0 as usize - 1..][..count(&hunk.was) as usize] {
            part.line('-', line, None);
        }
        for line in &new[place.0 as usize - 1..][..place.1 as usize] {
            part.line('+', line, Some(at.1));
            at.1 += 1;
        }
        at.0 += count(&hunk.was);
    }
    part.equal(&mut at, to.0, new);
    part
}

impl Diff {
    fn equal(&mut self, at: &mut (u32, u32), to: u32, new: &[&str]) {
        while at.0 < to {
            self.line(' ', new[at.1 as usize - 1], Some(at.1));
            *at = (at.0 + 1, at.1 + 1);
        }
    }

    fn line(&mut self, sign: char, line: &str, at: Option<u32>) {
        self.text.push(sign);
        let bare = line.strip_suffix('\n').unwrap_or(line);
        if push_cut(&mut self.text, bare) {
            self.is_whole = false;
        } else if let Some(at) = at {
            self.shown.push((at, at));
        }
        self.text.push('\n');
        if bare.len() == line.len() {
            self.text.push_str("\\ No newline at end of file\n");
        }
    }
}
