//! Lines of texts, and how edits move them.
//!
//! A text's lines keep their ends: it is cut behind each `\n`, and what is left behind the last one is a line too. Lines
//! are counted from 1.

use serde::{Deserialize, Serialize};

use crate::planted::{self, Bug};

/// How many lines a text has; the empty text has none.
pub fn count(text: &str) -> u32 {
    let ends = text.bytes().filter(|byte| *byte == b'\n').count();
    let rest = usize::from(!text.is_empty() && !text.ends_with('\n'));
    u32::try_from(ends + rest).unwrap_or(u32::MAX)
}

/// A piece of a text that became another: the lines `was`, of which the first is line `at`, became the lines `now`.
///
/// Where `was` is empty, lines were put before line `at`; one more than there are lines puts them at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hunk {
    /// Line number, in the text before.
    pub at: u32,
    /// Whole lines, with their ends.
    pub was: String,
    /// Whole lines, with their ends.
    pub now: String,
}

/// What a hunk does to line numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// The first line it concerns, in the text before.
    pub at: u32,
    /// How many lines it takes away.
    pub removed: u32,
    /// How many lines it puts there.
    pub added: u32,
}

impl From<&Hunk> for Move {
    fn from(hunk: &Hunk) -> Self {
        Self { at: hunk.at, removed: count(&hunk.was), added: count(&hunk.now) }
    }
}

/// Lines `first` to `last`, both included.
pub type Lines = (u32, u32);

/// Where lines are after one edit, of which the moves are in order and in the numbers before it; none if the edit touched
/// them. What is put right before the first or right behind the last of them does not touch them.
pub fn carry(lines: Lines, edit: &[Move]) -> Option<Lines> {
    let (first, last) = lines;
    let mut shift = 0_i64;
    for step in edit {
        if step.at > last {
            break;
        }
        let is_before = match step.removed {
            0 => step.at < first || (step.at == first && !planted::is(Bug::EdgesTouched)),
            removed => step.at.saturating_add(removed) <= first,
        };
        if !is_before {
            return None;
        }
        if step.removed > 0 || !planted::is(Bug::InsertionsOverlooked) {
            shift += i64::from(step.added) - i64::from(step.removed);
        }
    }
    let moved = |line: u32| u32::try_from(i64::from(line) + shift).ok();
    Some((moved(first)?, moved(last)?))
}

/// The lines of several ranges, each once: sorted, and joined where nothing lies between them.
pub fn union(ranges: impl IntoIterator<Item = Lines>) -> Vec<Lines> {
    let mut sorted: Vec<_> = ranges.into_iter().filter(|(first, last)| first <= last).collect();
    sorted.sort_unstable();
    let mut joined: Vec<Lines> = Vec::with_capacity(sorted.len());
    for (first, last) in sorted {
        match joined.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

/// Whether all these lines lie in the ranges, which are as [`union`] makes them.
pub fn cover(ranges: &[Lines], lines: Lines) -> bool {
    lines.0 > lines.1 || ranges.iter().any(|range| range.0 <= lines.0 && lines.1 <= range.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn step(at: u32, removed: u32, added: u32) -> Move {
        Move { at, removed, added }
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
            // Before, right before, at the first line, inside, at the last line, right behind, far behind.
            ((10, 20), step(3, 2, 5), Some((13, 23))),
            ((10, 20), step(8, 2, 0), Some((8, 18))),
            ((10, 20), step(9, 2, 2), None),
            ((10, 20), step(12, 1, 1), None),
            ((10, 20), step(20, 1, 0), None),
            ((10, 20), step(21, 4, 9), Some((10, 20))),
            ((10, 20), step(40, 1, 1), Some((10, 20))),
            // Nothing taken away: what is put before the first line shifts, what is put between two lines touches.
            ((10, 20), step(10, 0, 3), Some((13, 23))),
            ((10, 20), step(11, 0, 3), None),
            ((10, 20), step(20, 0, 3), None),
            ((10, 20), step(21, 0, 3), Some((10, 20))),
        ];
        for (lines, edit, expected) in cases {
            assert_eq!(carry(lines, &[edit]), expected, "{edit:?}");
        }
        assert_eq!(carry((10, 20), &[step(1, 1, 2), step(5, 0, 4), step(21, 3, 0)]), Some((15, 25)));
    }

    #[test]
    fn ranges_join_where_nothing_lies_between_them() {
        assert_eq!(union([(5, 6), (1, 2), (3, 3), (9, 12), (10, 11)]), [(1, 3), (5, 6), (9, 12)]);
        assert!(cover(&[(1, 3), (5, 6)], (2, 3)));
        assert!(!cover(&[(1, 3), (5, 6)], (3, 5)));
        assert!(cover(&[], (4, 3)), "no lines");
    }
}
