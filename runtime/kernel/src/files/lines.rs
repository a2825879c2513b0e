//! Lines of texts, and their moves by edits.
//!
//! A text is split after each `\n`; lines keep their ends, and a rest behind the last `\n` is a line too. Line numbers
//! start at 1.

use serde::{Deserialize, Serialize};

use crate::mutants::{self, Mutant};

/// Returns the number of lines of a text; the empty text has none.
pub fn count(text: &str) -> u32 {
    let ends = text.bytes().filter(|byte| *byte == b'\n').count();
    let rest = usize::from(!text.is_empty() && !text.ends_with('\n'));
    u32::try_from(ends + rest).unwrap_or(u32::MAX)
}

/// A replaced piece of a text: the lines `was`, beginning at line `at`, became the lines `now`.
///
/// An empty `was` inserts before line `at`; one more than the number of lines appends at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hunk {
    /// Line number in the old text.
    pub at: u32,
    /// Whole lines, with their ends.
    pub was: String,
    /// Whole lines, with their ends.
    pub now: String,
}

/// Effect of a hunk on line numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineShift {
    /// First affected line in the old text.
    pub at: u32,
    /// Number of removed lines.
    pub removed: u32,
    /// Number of added lines.
    pub added: u32,
}

impl From<&Hunk> for LineShift {
    fn from(hunk: &Hunk) -> Self {
        Self { at: hunk.at, removed: count(&hunk.was), added: count(&hunk.now) }
    }
}

/// Lines `first` to `last`, both included.
pub type LineRange = (u32, u32);

/// Returns the position of lines after one edit; `None` if the edit touched them.
///
/// The moves are sorted and use the line numbers before the edit. Insertions right before the first or right after the
/// last line do not touch the range.
pub fn shift_lines(lines: LineRange, edit: &[LineShift]) -> Option<LineRange> {
    let (first, last) = lines;
    let mut shift = 0_i64;
    for step in edit {
        if step.at > last {
            break;
        }
        let is_before = match step.removed {
            0 => step.at < first || (step.at == first && !mutants::is_active(Mutant::TouchInsertionEdges)),
            removed => step.at.saturating_add(removed) <= first,
        };
        if !is_before {
            return None;
        }
        if step.removed > 0 || !mutants::is_active(Mutant::IgnoreInsertions) {
            shift += i64::from(step.added) - i64::from(step.removed);
        }
    }
    let moved = |line: u32| u32::try_from(i64::from(line) + shift).ok();
    Some((moved(first)?, moved(last)?))
}

/// Returns the union of line ranges, sorted, with adjacent ranges joined.
pub fn union(ranges: impl IntoIterator<Item = LineRange>) -> Vec<LineRange> {
    let mut sorted: Vec<_> = ranges.into_iter().filter(|(first, last)| first <= last).collect();
    sorted.sort_unstable();
    let mut joined: Vec<LineRange> = Vec::with_capacity(sorted.len());
    for (first, last) in sorted {
        match joined.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

/// Returns true if one range of a [`union`] contains all these lines.
pub fn cover(ranges: &[LineRange], lines: LineRange) -> bool {
    lines.0 > lines.1 || ranges.iter().any(|range| range.0 <= lines.0 && lines.1 <= range.1)
}

#[cfg(test)]
mod tests;
