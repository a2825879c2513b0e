//! Application of one edit command to one text.

use std::fmt;
use std::ops::Range;

use patchboard_kernel::code_enum;
use patchboard_kernel::files::{Hunk, LineRange, count};

use super::hunks::{hunks, lines, number, span, with_ends_of};
use super::snippet::{self, LINE_CHARS_MAX};
use patchboard_kernel::text::counted;

/// Maximum bytes of a text, before and after an edit.
pub const TEXT_BYTES_MAX: usize = 4 << 20;

/// Maximum number of line numbers in an error message.
const NAMED_MAX: usize = 20;

/// Maximum number of lines compared with a text that was not found.
const CANDIDATES_MAX: usize = 5_000;

/// Maximum number of lines of a missing text, and of similar lines, that are compared and shown.
const NEAREST_LINES_MAX: usize = 12;

code_enum! {
    /// Reasons why an editor command fails, independent of other authors.
    EditCode {
        /// The arguments are invalid for the command: one is missing, unknown, too long or contradicts another.
        BadArguments = "bad_arguments",
        /// The text to replace is empty.
        EmptyOldStr = "empty_old_str",
        /// The text to replace is not in the file.
        NoMatch = "no_match",
        /// The text to replace occurs more than once in the file.
        SeveralMatches = "several_matches",
        /// The file has no line of this number.
        NoSuchLine = "no_such_line",
        /// The edit would change nothing.
        NoChange = "no_change",
        /// The text would exceed the maximum size.
        TextTooLarge = "text_too_large",
        /// The intent exceeds the maximum length.
        IntentTooLong = "intent_too_long",
        /// The search pattern is not a valid regular expression, or is too large.
        BadPattern = "bad_pattern",
    }
}

/// Error of an editor command.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct EditError {
    /// Code for programs.
    pub code: EditCode,
    /// Message for models and people, in whole sentences. Numbered lines of the file may follow.
    pub message: String,
    /// Lines it refers to: the matches, or the most similar text.
    pub lines: Vec<u32>,
    /// Lines shown in full in the message.
    pub shown: Vec<LineRange>,
}

impl EditError {
    pub(super) fn new(code: EditCode, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string(), lines: Vec::new(), shown: Vec::new() }
    }

    pub(crate) fn no_such_line(line: u32, there: u32) -> Self {
        Self::new(EditCode::NoSuchLine, format!("There is no line {line}: the file has {}.", counted(there, "line")))
    }

    pub(crate) fn no_change() -> Self {
        Self::new(EditCode::NoChange, "The edit would leave the file as it is.")
    }
}

/// Checks that the range begins within the text. An empty text may be viewed from line 1.
pub(crate) fn begins_within(range: Option<(u32, Option<u32>)>, text: &str) -> Result<(), EditError> {
    match range {
        Some((first, _)) if first > count(text).max(1) => Err(EditError::no_such_line(first, count(text))),
        _ => Ok(()),
    }
}

/// Change of one text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EditCommand {
    /// Replacement of the whole text.
    Create {
        /// New text. Without `\r\n` of its own it adopts the line ends of the text it replaces.
        file_text: String,
    },
    /// Replacement of one piece.
    StrReplace {
        /// Text to replace, found exactly once. `\n` and `\r\n` match each other.
        old_str: String,
        /// Replacement. Adopts the line ends of the text.
        new_str: String,
    },
    /// Insertion after a line.
    Insert {
        /// Line to insert after; 0 is the beginning of the text.
        insert_line: u32,
        /// Lines to insert. Adopts the line ends of the text; an unterminated last line gets one.
        insert_text: String,
    },
    /// Removal of the whole text.
    Delete,
}

/// Result of an edit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EditResult {
    /// New text.
    pub text: String,
    /// Changed lines.
    pub hunks: Vec<Hunk>,
}

/// Applies an edit. A replacement or insertion yields one hunk; for `Create` the texts are compared line by line.
pub fn apply(command: &EditCommand, text: &str) -> Result<EditResult, EditError> {
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
    // Creating or deleting an empty file is valid although it changes no line.
    if hunks.is_empty() && matches!(command, EditCommand::StrReplace { .. } | EditCommand::Insert { .. }) {
        return Err(EditError::no_change());
    }
    Ok(EditResult { text: after, hunks })
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

/// Returns the byte ranges of all matches, overlapping ones included, up to [`NAMED_MAX`].
fn matches(text: &str, piece: &str) -> Vec<Range<usize>> {
    // A match must not begin or end inside a `\r\n`, so both are compared with `\n`.
    if !(piece.contains('\n') && (text.contains("\r\n") || piece.contains("\r\n"))) {
        return find(text, piece);
    }
    let (plain, piece) = (text.replace("\r\n", "\n"), piece.replace("\r\n", "\n"));
    let found = find(&plain, &piece);
    // Maps offsets from the normalised text back to the original, in ascending order.
    let mut at = (0, 0);
    let mut real = |wanted: usize| {
        // Overlapping matches: an end may lie after the next start.
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
    let excerpt = snippet::snippet(text, &[(at, last)], 0, 4 * LINE_CHARS_MAX);
    message.push_str(&excerpt.text);
    EditError { lines: (at..=last).collect(), shown: excerpt.shown, ..EditError::new(EditCode::NoMatch, message) }
}

/// Returns the lines most similar to the piece: first line, count, and whether only white space differs.
fn nearest(text: &str, piece: &str) -> Option<(u32, usize, bool)> {
    let wanted: Vec<&str> = piece.lines().map(str::trim).take(NEAREST_LINES_MAX).collect();
    let there: Vec<&str> = text.lines().map(str::trim).collect();
    let equal = |at: usize| wanted.iter().zip(&there[at..]).filter(|(a, b)| !a.is_empty() && a == b).count();
    // The first position with the most equal lines.
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
    // An unterminated last line stays unterminated only if it remains the last.
    let ended = result.is_empty() || result.ends_with('\n');
    if !ended {
        result.push_str(end);
    }
    result.push_str(&new);
    if !new.ends_with('\n') && (!behind.is_empty() || ended) {
        result.push_str(end);
    } else if !ended && new.ends_with('\n') {
        // Keeps the file without a newline at its end.
        result.truncate(result.len() - if result.ends_with("\r\n") { 2 } else { 1 });
    }
    result.extend(behind.iter().copied());
    Ok(result)
}
