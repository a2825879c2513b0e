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
mod tests {
    use super::*;

    const fn step(at: u32, removed: u32, added: u32) -> LineShift {
        LineShift { at, removed, added }
    }

    #[test]
    fn lines_are_counted_with_and_without_an_end() {
        let cases = [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n", 1), ("\n\n", 2), ("a\r\nb\r\n", 2)];
        for (text, lines) in cases {
            assert_eq!(count(text), lines, "{text:?}");
        }
    }

    #[test]
    fn an_edit_shifts_what_it_does_not_touch() {
        let cases = [
            // Before, right before, at the first line, inside, at the last line, right after, far after.
            ((10, 20), step(3, 2, 5), Some((13, 23))),
            ((10, 20), step(8, 2, 0), Some((8, 18))),
            ((10, 20), step(9, 2, 2), None),
            ((10, 20), step(12, 1, 1), None),
            ((10, 20), step(20, 1, 0), None),
            ((10, 20), step(21, 4, 9), Some((10, 20))),
            ((10, 20), step(40, 1, 1), Some((10, 20))),
            // Pure insertions: before the first line they shift the range, between two lines they touch it.
            ((10, 20), step(10, 0, 3), Some((13, 23))),
            ((10, 20), step(11, 0, 3), None),
            ((10, 20), step(20, 0, 3), None),
            ((10, 20), step(21, 0, 3), Some((10, 20))),
        ];
        for (lines, edit, expected) in cases {
            assert_eq!(shift_lines(lines, &[edit]), expected, "{edit:?}");
        }
        assert_eq!(shift_lines((10, 20), &[step(1, 1, 2), step(5, 0, 4), step(21, 3, 0)]), Some((15, 25)));
    }

    #[test]
    fn ranges_join_where_nothing_lies_between_them() {
        assert_eq!(union([(5, 6), (1, 2), (3, 3), (9, 12), (10, 11)]), [(1, 3), (5, 6), (9, 12)]);
        assert!(cover(&[(1, 3), (5, 6)], (2, 3)));
        assert!(!cover(&[(1, 3), (5, 6)], (3, 5)));
        assert!(cover(&[], (4, 3)), "no lines");
    }
}
