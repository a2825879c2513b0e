//! Rendering of read results within the caller's room: file views, lists and matches.
//!
//! Used for shared directories and for working trees alike. Every result fits the room, ends with a newline, and notes
//! what is omitted and how to see it. The lines shown in full are reported exactly.

use std::fmt::Write as _;

use patchboard_kernel::files::{FilePath, LineRange, count};

use super::text::search::SearchLimits;
use super::text::snippet::{LINE_CHARS_MAX, LinePart, Snippet, line_part, snippet};
use patchboard_kernel::text::{counted, is_or_are};

/// Maximum number of names in a list.
const LISTED_MAX: usize = 2_000;

/// Maximum number of files named in a sentence.
const NAMED_MAX: usize = 20;

/// Characters reserved for the note at the end of a view or list.
const NOTE_CHARS: usize = 250;

/// Rendered view of a file or of some of its lines.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileView {
    /// Text to show.
    pub text: String,
    /// Lines contained in full.
    pub shown: Vec<LineRange>,
    /// For a part of a long line: its number, the columns shown, and its length in characters.
    pub part: Option<(u32, LineRange, u32)>,
    /// True if the view contains all lines of the file.
    pub is_whole: bool,
}

/// First and last item of a range; without a last one it extends to the end.
type Range = (u32, Option<u32>);

const fn closed((first, last): Range) -> LineRange {
    match last {
        Some(last) => (first, last),
        None => (first, u32::MAX),
    }
}

/// Renders a text, some of its lines, or some columns of one line. A line viewed alone is cut only at the end of the
/// room.
pub fn view(text: &str, range: Option<Range>, columns: Option<Range>, room: usize) -> FileView {
    if let Some((line, Some(last))) = range
        && line == last
        && let Some(part) =
            line_part(text, line, columns.map_or((1, u32::MAX), closed), room.saturating_sub(NOTE_CHARS))
        && (columns.is_some() || part.line_chars as usize > LINE_CHARS_MAX)
    {
        return of_line(line, part, count(text));
    }
    let lines = range.map_or((1, u32::MAX), closed);
    let Snippet { text: mut shown_text, shown, is_whole, cut, next } =
        snippet(text, &[lines], 0, room.saturating_sub(NOTE_CHARS));
    let total = count(text);
    if let Some(first) = cut.first() {
        let also = if cut.len() > 1 { format!(" and {}", counted(cut.len() - 1, "more line")) } else { String::new() };
        let were = if cut.len() > 1 { "were" } else { "was" };
        writeln!(
            shown_text,
            "[line {first}{also} {were} cut: `view_range` [{first}, {first}] shows the line alone, and whole]"
        )
        .expect("a string takes everything");
    }
    if let Some(next) = next {
        let last = lines.1.min(total);
        let rest = match next == lines.0 {
            true => format!("[there is no room for line {next}: view it alone, with `view_range` [{next}, {next}]]"),
            false => format!(
                "[shown: lines {}-{} of {total}; `view_range` [{next}, {last}] shows what follows]",
                lines.0,
                next - 1
            ),
        };
        writeln!(shown_text, "{rest}").expect("a string takes everything");
    }
    FileView { text: shown_text, shown, part: None, is_whole }
}

fn of_line(line: u32, part: LinePart, total: u32) -> FileView {
    let LinePart { mut text, columns, line_chars: of } = part;
    let Some(columns) = columns else {
        return FileView {
            text: format!("[line {line} has {}; nothing of that is shown]\n", counted(of, "character")),
            ..FileView::default()
        };
    };
    if columns == (1, of) {
        return FileView { text, shown: vec![(line, line)], part: None, is_whole: total == 1 };
    }
    if columns.1 < of {
        writeln!(
            text,
            "[`view_range` [{line}, {line}] with `view_columns` [{}, -1] shows what follows; the line counts as read once \
             all of it was shown]",
            columns.1 + 1
        )
        .expect("a string takes everything");
    }
    FileView { text, shown: Vec::new(), part: Some((line, columns, of)), is_whole: false }
}

/// Returns whether `path` is `below` or is inside that directory; `true` without a directory.
pub fn is_below(path: &FilePath, below: Option<&FilePath>) -> bool {
    let Some(below) = below else { return true };
    let rest = path.as_str().strip_prefix(below.as_str());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Renders a list with one line per file, and returns how many files fit.
pub fn list(lines: &[String], room: usize) -> (String, usize) {
    let (mut text, mut listed) = (String::new(), 0);
    let mut left = room.saturating_sub(NOTE_CHARS);
    for line in lines.iter().take(LISTED_MAX) {
        let Some(rest) = left.checked_sub(line.chars().count() + 1) else { break };
        left = rest;
        listed += 1;
        text.push_str(line);
        text.push('\n');
    }
    match lines.len() - listed {
        0 if lines.is_empty() => text.push_str("There are no files here.\n"),
        0 => {}
        more => {
            let (files, are) = (counted(more, "more file"), is_or_are(more));
            writeln!(text, "[{files} {are} not listed: name a directory]").expect("a string takes everything");
        }
    }
    (text, listed)
}

/// Lists the first names of these files in a sentence, and counts the rest.
pub(super) fn names(paths: &[FilePath]) -> String {
    let named: Vec<&str> = paths.iter().take(NAMED_MAX).map(FilePath::as_str).collect();
    match paths.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Returns the search limits for this room.
pub fn search_limits(room: usize) -> SearchLimits {
    let usual = SearchLimits::default();
    SearchLimits { chars: usual.chars.min(room), ..usual }
}

#[cfg(test)]
mod tests;
