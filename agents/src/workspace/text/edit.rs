//! One edit of one text: what a command asks for, done or refused.

use std::fmt;
use std::ops::Range;

use patchboard_kernel::coded;
use patchboard_kernel::files::{Hunk, Lines, count};

use super::excerpt::{self, LINE_CHARS_MAX};
use super::hunks::{hunks, lines, number, span, with_ends_of};
use crate::counted;

/// Bytes of a text that is edited, before and after.
pub const TEXT_BYTES_MAX: usize = 4 << 20;

/// Line numbers that a refusal names.
const NAMED_MAX: usize = 20;

/// Lines that are compared with what was not found.
const CANDIDATES_MAX: usize = 5_000;

/// Lines of what was not found, or of what comes near it, that are looked at and shown.
const NEAREST_LINES_MAX: usize = 12;

coded! {
    /// Why a command of an editor cannot be done, whatever others do.
    EditCode {
        /// The arguments are not those of the command: one is missing, unknown, too long or contradicts another.
        BadArguments = "bad_arguments",
        /// The text to replace is empty.
        EmptyOldStr = "empty_old_str",
        /// The text to replace is not in the file.
        NoMatch = "no_match",
        /// The text to replace is in the file more than once.
        SeveralMatches = "several_matches",
        /// The file has no such line.
        NoSuchLine = "no_such_line",
        /// The edit would leave everything as it is.
        NoChange = "no_change",
        /// The text would be larger than any may be.
        TextTooLarge = "text_too_large",
        /// The intent is longer than one may be.
        IntentTooLong = "intent_too_long",
        /// What to search for is no regular expression, or one that is too large.
        BadPattern = "bad_pattern",
    }
}

/// Why an edit cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct EditError {
    /// For programs.
    pub code: EditCode,
    /// For models and people, in whole sentences; numbered lines of the file may follow.
    pub message: String,
    /// The lines it names: where the matches are, or where the nearest text is.
    pub lines: Vec<u32>,
    /// Lines that are wholly in the message.
    pub shown: Vec<Lines>,
}

impl EditError {
    pub(super) fn new(code: EditCode, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string(), lines: Vec::new(), shown: Vec::new() }
    }

    /// That a file has so many lines, and not this one.
    pub(in crate::workspace) fn no_such_line(line: u32, there: u32) -> Self {
        Self::new(EditCode::NoSuchLine, format!("There is no line {line}: the file has {}.", counted(there, "line")))
    }

    /// That a file would hold what it holds.
    pub(in crate::workspace) fn no_change() -> Self {
        Self::new(EditCode::NoChange, "The edit would leave the file as it is.")
    }
}

/// Looks whether a text has the first of these lines. One without lines may be looked at from its beginning.
pub(in crate::workspace) fn begins_within(range: Option<(u32, Option<u32>)>, text: &str) -> Result<(), EditError> {
    match range {
        Some((first, _)) if first > count(text).max(1) => Err(EditError::no_such_line(first, count(text))),
        _ => Ok(()),
    }
}

/// What to do with a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EditCommand {
    /// This is the whole text now.
    Create {
        /// All of it. Takes the `\r\n` of the text in whose place it comes, if it has none itself.
        file_text: String,
    },
    /// One piece of it becomes another.
    StrReplace {
        /// Must be in the text exactly once. `\n` and `\r\n` match each other.
        old_str: String,
        /// Takes the line ends of the text.
        new_str: String,
    },
    /// Lines are put behind a line.
    Insert {
        /// 0 puts them at the beginning.
        insert_line: u32,
        /// Takes the line ends of the text; a last line without an end gets one.
        insert_text: String,
    },
    /// Nothing is left.
    Delete,
}

/// A text after an edit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edited {
    /// The text.
    pub text: String,
    /// What became of which lines.
    pub hunks: Vec<Hunk>,
}

/// Does the edit. One piece that becomes another, and lines that are put somewhere, are one hunk; a whole text is compared
/// line by line.
///
/// # Errors
/// Why it cannot be done.
pub fn apply(command: &EditCommand, text: &str) -> Result<Edited, EditError> {
    let after = match command {
        EditCommand::Create { file_text } if file_text.contains("\r\n") => file_text.clone(),
        EditCommand::Create { file_text } => with_ends_of(file_text, text).into_owned(),
        EditCommand::StrReplace { old_str, new_str } => replace(text, old_str, new_str)?,
        EditCommand::Insert { insert_line, insert_text } => insert(text, *insert_line, insert_text)?,
        EditCommand::Delete => String::new(),
    };
    if after.len() > TEXT_BYTES_MAX {
        let message = format!("The file would have {} bytes; it may have {TEXT_BYTES_MAX}.", after.len());
        return Err(EditError::new(EditCode::TextTooLarge, message));
    }
    let hunks = match command {
        EditCommand::Create { .. } => hunks(text, &after),
        EditCommand::StrReplace { .. } | EditCommand::Insert { .. } | EditCommand::Delete => {
            span(text, &after).into_iter().collect()
        }
    };
    // An empty file may be made, and one may be deleted: neither changes a line.
    if hunks.is_empty() && matches!(command, EditCommand::StrReplace { .. } | EditCommand::Insert { .. }) {
        return Err(EditError::no_change());
    }
    Ok(Edited { text: after, hunks })
}

fn replace(text: &str, old: &str, new: &str) -> Result<String, EditError> {
    if old.is_empty() {
        let message = "`old_str` is empty; use `insert` to add lines, or `create` to write the whole file.";
        return Err(EditError::new(EditCode::EmptyOldStr, message));
    }
    let found = matches(text, old);
    match found.as_slice() {
        [] => Err(no_match(text, old)),
        [at] => {
            let mut after = String::with_capacity(text.len() + new.len());
            after.push_str(&text[..at.start]);
            after.push_str(&with_ends_of(new, text));
            after.push_str(&text[at.end..]);
            Ok(after)
        }
        [..] => {
            let lines: Vec<u32> = found.iter().map(|at| line_of(text, at.start)).collect();
            let more = if found.len() == NAMED_MAX { " and perhaps further ones" } else { "" };
            let (mut once, word) = (lines.clone(), if lines.first() == lines.last() { "line" } else { "lines" });
            once.dedup();
            let named = once.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let message = format!(
                "`old_str` begins at several places, in {word} {named}{more}. Take more of the lines around it, so that \
                 there is only one."
            );
            Err(EditError { lines, ..EditError::new(EditCode::SeveralMatches, message) })
        }
    }
}

/// Where the piece is, overlapping ones too, as byte ranges; not more than [`NAMED_MAX`].
fn matches(text: &str, piece: &str) -> Vec<Range<usize>> {
    // Nothing may begin or end inside a `\r\n`, so both are compared with plain ends.
    if !(piece.contains('\n') && (text.contains("\r\n") || piece.contains("\r\n"))) {
        return find(text, piece);
    }
    let (plain, piece) = (text.replace("\r\n", "\n"), piece.replace("\r\n", "\n"));
    let found = find(&plain, &piece);
    // In order: each start and each end, from the plain text back to the real one.
    let mut at = (0, 0);
    let mut real = |wanted: usize| {
        // Overlapping matches: their ends may lie behind the next one's start.
        if wanted < at.0 {
            at = (0, 0);
        }
        while at.0 < wanted {
            let crlf = text[at.1..].starts_with("\r\n");
            let step = text[at.1..].chars().next().map_or(1, char::len_utf8);
            at = if crlf { (at.0 + 1, at.1 + 2) } else { (at.0 + step, at.1 + step) };
        }
        at.1
    };
    found.into_iter().map(|at| real(at.start)..real(at.end)).collect()
}

fn find(text: &str, piece: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while found.len() < NAMED_MAX
        && let Some(at) = text[from..].find(piece)
    {
        let start = from + at;
        found.push(start..start + piece.len());
        from = start + text[start..].chars().next().map_or(1, char::len_utf8);
    }
    found
}

fn line_of(text: &str, at: usize) -> u32 {
    number(text[..at].bytes().filter(|byte| *byte == b'\n').count()).saturating_add(1)
}

fn no_match(text: &str, old: &str) -> EditError {
    let mut message = "`old_str` is not in the file.".to_owned();
    let Some((at, len, only_space)) = nearest(text, old) else {
        return EditError::new(EditCode::NoMatch, message);
    };
    let last = at + number(len).saturating_sub(1);
    message.push_str(if only_space {
        " The lines that come nearest differ from it in white space only:\n"
    } else {
        " The lines that come nearest:\n"
    });
    let excerpt = excerpt::excerpt(text, &[(at, last)], 0, 4 * LINE_CHARS_MAX);
    message.push_str(&excerpt.text);
    EditError { lines: (at..=last).collect(), shown: excerpt.shown, ..EditError::new(EditCode::NoMatch, message) }
}

/// Which lines are most like the piece: the first, how many, and whether only white space is different.
fn nearest(text: &str, piece: &str) -> Option<(u32, usize, bool)> {
    let wanted: Vec<&str> = piece.lines().map(str::trim).take(NEAREST_LINES_MAX).collect();
    let there: Vec<&str> = text.lines().map(str::trim).collect();
    let equal = |at: usize| wanted.iter().zip(&there[at..]).filter(|(a, b)| !a.is_empty() && a == b).count();
    // The first of those of which most lines are equal.
    let starts = 0..there.len();
    let best = starts.map(|at| (equal(at), at)).max_by_key(|(score, at)| (*score, std::cmp::Reverse(*at)));
    let filled = wanted.iter().filter(|line| !line.is_empty()).count();
    if let Some((score, at)) = best
        && score > 0
    {
        let len = wanted.len().min(there.len() - at);
        return Some((number(at + 1), len, score == filled && piece.lines().count() <= NEAREST_LINES_MAX));
    }
    let clip = |line: &str| line.chars().take(200).collect::<String>();
    let first = clip(wanted.iter().find(|line| !line.is_empty())?);
    let offset = wanted.iter().position(|line| !line.is_empty())?;
    let clipped: Vec<String> = there.iter().take(CANDIDATES_MAX).map(|line| clip(line)).collect();
    let candidates: Vec<&str> = clipped.iter().map(String::as_str).collect();
    let close = *similar::get_close_matches(first.as_str(), &candidates, 1, 0.6).first()?;
    let at = candidates.iter().position(|line| *line == close)?.saturating_sub(offset);
    Some((number(at + 1), wanted.len().min(there.len() - at), false))
}

fn insert(text: &str, after: u32, new: &str) -> Result<String, EditError> {
    let there = count(text);
    if after > there {
        let message =
            format!("There is no line {after}: the file has {}; 0 means its beginning.", counted(there, "line"));
        return Err(EditError::new(EditCode::NoSuchLine, message));
    }
    if new.is_empty() {
        return Err(EditError::new(EditCode::NoChange, "There is nothing to insert: `insert_text` is empty."));
    }
    let all = lines(text);
    let (before, behind) = all.split_at(after as usize);
    let end = if super::hunks::has_crlf(text) { "\r\n" } else { "\n" };
    let new = with_ends_of(new, text);
    let mut result = before.concat();
    // A last line without an end stays the last one without an end only if nothing comes behind it.
    let ended = result.is_empty() || result.ends_with('\n');
    if !ended {
        result.push_str(end);
    }
    result.push_str(&new);
    if !new.ends_with('\n') && (!behind.is_empty() || ended) {
        result.push_str(end);
    } else if !ended && new.ends_with('\n') {
        // The file had no end of line at its end, and keeps that.
        result.truncate(result.len() - if result.ends_with("\r\n") { 2 } else { 1 });
    }
    result.extend(behind.iter().copied());
    Ok(result)
}
