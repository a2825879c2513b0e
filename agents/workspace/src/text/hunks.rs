//! Line hunks, computed from two texts.
//!
//! Hunks consist of whole lines with their line ends. The common beginning and end of the texts are never part of a
//! hunk.

use std::borrow::Cow;

use patchboard_kernel::files::{Hunk, LineRange, LineShift, shift_lines};
use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Maximum number of lines, old and new together, that are compared line by line after common ends are removed. A
/// larger difference becomes one hunk, which is equally correct and cheap to compute.
pub const COMPARED_LINES_MAX: usize = 20_000;

/// Splits a text into lines with their ends.
pub(super) fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Converts a number of lines to the kernel's type.
pub(super) fn number(lines: usize) -> u32 {
    u32::try_from(lines).unwrap_or(u32::MAX)
}

/// Returns the difference as at most one hunk, from the first differing line to the last.
pub fn span(old: &str, new: &str) -> Option<Hunk> {
    let (old, new) = (lines(old), lines(new));
    let (start, old, new) = trim(&old, &new);
    (!old.is_empty() || !new.is_empty()).then(|| Hunk {
        at: number(start).saturating_add(1),
        was: old.concat(),
        now: new.concat(),
    })
}

/// Returns the difference line by line. Deterministic on every machine, because the work is limited by lines
/// ([`COMPARED_LINES_MAX`]) and not by time.
pub fn hunks(old: &str, new: &str) -> Vec<Hunk> {
    let (old_lines, new_lines) = (lines(old), lines(new));
    let (start, old_part, new_part) = trim(&old_lines, &new_lines);
    if old_part.is_empty() || new_part.is_empty() || old_part.len() + new_part.len() > COMPARED_LINES_MAX {
        return span(old, new).into_iter().collect();
    }
    let mut found: Vec<(LineRange, Hunk)> = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, old_part, new_part) {
        if matches!(op, DiffOp::Equal { .. }) {
            continue;
        }
        let (from, to) = (op.old_range(), op.new_range());
        let (was, now) = (old_part[from.clone()].concat(), new_part[to].concat());
        let (at, end) = (number(start + from.start + 1), number(start + from.end + 1));
        match found.last_mut() {
            // Adjacent operations form one replacement.
            Some(((_, last_end), hunk)) if *last_end == at => {
                hunk.was.push_str(&was);
                hunk.now.push_str(&now);
                *last_end = end;
            }
            _ => found.push(((at, end), Hunk { at, was, now })),
        }
    }
    found.into_iter().map(|(_, hunk)| hunk).collect()
}

/// Removes the common first and last lines; returns the number of the first ones and both remainders.
fn trim<'a, 'b, 'c>(old: &'a [&'c str], new: &'b [&'c str]) -> (usize, &'a [&'c str], &'b [&'c str]) {
    let same = |(a, b): &(&&str, &&str)| a == b;
    let start = old.iter().zip(new).take_while(same).count();
    let (old, new) = (&old[start..], &new[start..]);
    let end = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
    (start, &old[..old.len() - end], &new[..new.len() - end])
}

/// Returns the lines that the hunks insert, numbered as in the new text; pure removals have none.
pub fn blocks(hunks: &[Hunk]) -> Vec<LineRange> {
    places(hunks).into_iter().filter(|(_, added)| *added > 0).map(|(at, added)| (at, at + added - 1)).collect()
}

/// Returns each hunk's line in the new text and its number of lines there.
pub(super) fn places(hunks: &[Hunk]) -> Vec<(u32, u32)> {
    let mut shift = 0_i64;
    let place = |hunk: &Hunk| {
        let LineShift { at, removed, added } = hunk.into();
        let place = u32::try_from(i64::from(at) + shift).unwrap_or(u32::MAX);
        shift += i64::from(added) - i64::from(removed);
        (place, added)
    };
    hunks.iter().map(place).collect()
}

/// Maps an insertion point of an older version (after `line`) through later edits; 0 stays the beginning. `None` if an
/// edit touched the line, because the point is then ambiguous.
pub fn carry_insertion<'a>(line: u32, edits: impl IntoIterator<Item = &'a [LineShift]>) -> Option<u32> {
    if line == 0 {
        return Some(0);
    }
    edits.into_iter().try_fold(line, |line, edit| shift_lines((line, line), edit).map(|(line, _)| line))
}

/// Converts line ends to those of most lines of `model`; unchanged if `model` has no line ends.
pub(super) fn with_ends_of<'a>(text: &'a str, model: &str) -> Cow<'a, str> {
    let plain = || text.replace("\r\n", "\n");
    if text.contains('\n') && has_crlf(model) {
        return Cow::Owned(plain().replace('\n', "\r\n"));
    }
    if text.contains("\r\n") && model.contains('\n') { Cow::Owned(plain()) } else { Cow::Borrowed(text) }
}

/// Returns whether at least half of the lines end in `\r\n`.
pub fn has_crlf(text: &str) -> bool {
    let both = text.matches("\r\n").count();
    both > 0 && both * 2 >= text.bytes().filter(|byte| *byte == b'\n').count()
}
