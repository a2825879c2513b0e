//! What became of which lines: from two texts to hunks, and from a text and hunks to the other text.
//!
//! Whole lines only, with their ends. Equal lines at both ends are never part of a hunk.

use std::borrow::Cow;

use patchboard_kernel::files::{Hunk, Lines, Move, carry, count};
use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Lines between the equal beginnings and the equal ends of two texts, both counted, up to which they are compared line
/// by line. Texts that differ in more become one hunk: it is as true, and costs nothing to find.
pub const COMPARED_LINES_MAX: usize = 20_000;

/// The lines of a text, with their ends.
pub(super) fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// A number of lines, as the kernel counts them.
pub(super) fn number(lines: usize) -> u32 {
    u32::try_from(lines).unwrap_or(u32::MAX)
}

/// What turns one text into the other, in one hunk at most: all from the first line that differs to the last.
pub fn span(old: &str, new: &str) -> Option<Hunk> {
    let (old, new) = (lines(old), lines(new));
    let (start, old, new) = trim(&old, &new);
    (!old.is_empty() || !new.is_empty()).then(|| Hunk {
        at: number(start).saturating_add(1),
        was: old.concat(),
        now: new.concat(),
    })
}

/// What turns one text into the other, line by line. The same texts give the same hunks on every machine: there is a
/// limit on lines ([`COMPARED_LINES_MAX`]) and none on time.
pub fn hunks(old: &str, new: &str) -> Vec<Hunk> {
    let (old_lines, new_lines) = (lines(old), lines(new));
    let (start, old_part, new_part) = trim(&old_lines, &new_lines);
    if old_part.is_empty() || new_part.is_empty() || old_part.len() + new_part.len() > COMPARED_LINES_MAX {
        return span(old, new).into_iter().collect();
    }
    let mut found: Vec<(Lines, Hunk)> = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, old_part, new_part) {
        if matches!(op, DiffOp::Equal { .. }) {
            continue;
        }
        let (from, to) = (op.old_range(), op.new_range());
        let (was, now) = (old_part[from.clone()].concat(), new_part[to].concat());
        let (at, end) = (number(start + from.start + 1), number(start + from.end + 1));
        match found.last_mut() {
            // Nothing between them: one piece became another.
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

/// Without the lines that both begin with and those that both end with; first how many the former are.
fn trim<'a, 'b, 'c>(old: &'a [&'c str], new: &'b [&'c str]) -> (usize, &'a [&'c str], &'b [&'c str]) {
    let same = |(a, b): &(&&str, &&str)| a == b;
    let start = old.iter().zip(new).take_while(same).count();
    let (old, new) = (&old[start..], &new[start..]);
    let end = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
    (start, &old[..old.len() - end], &new[..new.len() - end])
}

/// Why hunks do not apply to a text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HunkError {
    /// A hunk lies before the one that precedes it, reaches into it, or lies outside the text.
    #[error("the hunk at line {0} is out of order or outside the text")]
    Place(u32),
    /// The text has other lines there than the hunk says.
    #[error("the lines at line {0} are not those that the hunk says")]
    Other(u32),
    /// What it puts there are no whole lines.
    #[error("the hunk at line {0} would join two lines")]
    Joined(u32),
}

/// The text after the hunks.
///
/// # Errors
/// If they are not hunks of this text.
pub fn apply_hunks(text: &str, hunks: &[Hunk]) -> Result<String, HunkError> {
    let lines = lines(text);
    let mut after = String::with_capacity(text.len());
    let mut done = 0;
    for hunk in hunks {
        let place = || HunkError::Place(hunk.at);
        let start = usize::try_from(hunk.at).ok().and_then(|at| at.checked_sub(1)).ok_or_else(place)?;
        if start < done || start > lines.len() {
            return Err(place());
        }
        let end = start + count(&hunk.was) as usize;
        if lines.get(start..end).is_none_or(|there| there.concat() != hunk.was) {
            return Err(HunkError::Other(hunk.at));
        }
        after.extend(lines[done..start].iter().copied());
        join(&mut after, &hunk.now, hunk.at)?;
        done = end;
    }
    join(&mut after, &lines[done..].concat(), number(done).saturating_add(1))?;
    Ok(after)
}

fn join(before: &mut String, lines: &str, at: u32) -> Result<(), HunkError> {
    if !lines.is_empty() && !before.is_empty() && !before.ends_with('\n') {
        return Err(HunkError::Joined(at));
    }
    before.push_str(lines);
    Ok(())
}

/// What takes the hunks back: hunks of the text after them that give the one before.
pub fn reverse_hunks(hunks: &[Hunk]) -> Vec<Hunk> {
    let blocks = places(hunks);
    hunks.iter().zip(blocks).map(|(hunk, (at, _))| Hunk { at, was: hunk.now.clone(), now: hunk.was.clone() }).collect()
}

/// Where what the hunks put there is, in the text after them; hunks that only take away are not among it.
pub fn blocks(hunks: &[Hunk]) -> Vec<Lines> {
    places(hunks).into_iter().filter(|(_, added)| *added > 0).map(|(at, added)| (at, at + added - 1)).collect()
}

/// For each hunk its place in the text after, and how many lines it has there.
pub(super) fn places(hunks: &[Hunk]) -> Vec<(u32, u32)> {
    let mut shift = 0_i64;
    let place = |hunk: &Hunk| {
        let Move { at, removed, added } = hunk.into();
        let place = u32::try_from(i64::from(at) + shift).unwrap_or(u32::MAX);
        shift += i64::from(added) - i64::from(removed);
        (place, added)
    };
    hunks.iter().map(place).collect()
}

/// Where the line is, after which something was to be put in an older version of a text, after the edits since; 0, the
/// beginning, stays where it is. None if one of them touched the line: then nobody knows what "after it" means now.
pub fn carry_insertion<'a>(line: u32, edits: impl IntoIterator<Item = &'a [Move]>) -> Option<u32> {
    if line == 0 {
        return Some(0);
    }
    edits.into_iter().try_fold(line, |line, edit| carry((line, line), edit).map(|(line, _)| line))
}

/// The text with the line ends that most lines of `model` have; as it is, where that has no lines to go by.
pub(super) fn with_ends_of<'a>(text: &'a str, model: &str) -> Cow<'a, str> {
    let plain = || text.replace("\r\n", "\n");
    if text.contains('\n') && has_crlf(model) {
        return Cow::Owned(plain().replace('\n', "\r\n"));
    }
    match text.contains("\r\n") && model.contains('\n') {
        true => Cow::Owned(plain()),
        false => Cow::Borrowed(text),
    }
}

/// Whether most of its lines end in `\r\n`.
pub fn has_crlf(text: &str) -> bool {
    let both = text.matches("\r\n").count();
    both > 0 && both * 2 >= text.bytes().filter(|byte| *byte == b'\n').count()
}
