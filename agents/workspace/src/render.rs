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

/// Returns the search limits for this room.
pub fn search_limits(room: usize) -> SearchLimits {
    let usual = SearchLimits::default();
    SearchLimits { chars: usual.chars.min(room), ..usual }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize) -> String {
        (1..=count).map(|at| format!("line {at}\n")).collect()
    }

    #[test]
    fn a_view_ends_with_a_line_and_says_how_to_see_the_rest() {
        let text = lines(400);
        let whole = view(&text, None, None, 64_000);
        assert!(whole.is_whole && !whole.text.contains('['), "{}", whole.text);
        let mut next = 1;
        for _ in 0..20 {
            let part = view(&text, Some((next, None)), None, 1_000);
            assert!(part.text.chars().count() <= 1_000, "{}", part.text);
            let [(first, last)] = part.shown[..] else { panic!("{part:?}") };
            assert_eq!(first, next);
            assert!(
                part.text.contains(&format!("\tline {last}\n")) && !part.text.contains(&format!("line {}\n", last + 1))
            );
            if last == 400 {
                return;
            }
            next = last + 1;
            assert!(
                part.text.contains(&format!("of 400; `view_range` [{next}, 400] shows what follows]")),
                "{}",
                part.text
            );
        }
        panic!("it does not end");
    }

    #[test]
    fn a_long_line_is_shown_alone_and_in_parts() {
        let long = "0123456789".repeat(1_000);
        let text = format!("a\n{long}\nb\n");
        let all = view(&text, None, None, 64_000);
        assert_eq!(all.shown, [(1, 1), (3, 3)]);
        assert!(all.text.contains("`view_range` [2, 2]"), "{}", all.text);
        let alone = view(&text, Some((2, Some(2))), None, 64_000);
        assert_eq!((alone.shown.as_slice(), alone.text.as_str()), (&[(2, 2)][..], &*format!("     2\t{long}\n")));
        let (mut from, mut seen) = (1, String::new());
        while from <= 10_000 {
            let FileView { text, part, shown, .. } = view(&text, Some((2, Some(2))), Some((from, None)), 3_000);
            assert!(text.chars().count() <= 3_000 && shown.is_empty(), "{text}");
            let (2, (first, last), 10_000) = part.expect("a part") else { panic!("{text}") };
            assert_eq!(first, from);
            seen.extend(text.lines().next().and_then(|line| line.split_once('\t')).map(|(_, line)| line));
            from = last + 1;
        }
        assert_eq!(seen, long);
        let nothing = view(&text, Some((2, Some(2))), Some((20_000, None)), 3_000);
        assert!(nothing.part.is_none() && nothing.shown.is_empty(), "{nothing:?}");
        assert!(view(&text, Some((9, Some(9))), None, 3_000).shown.is_empty());
    }

    #[test]
    fn a_list_fits_and_counts_what_does_not() {
        let names: Vec<String> = (0..100).map(|at| format!("file {at}")).collect();
        let (text, listed) = list(&names, 600);
        assert!(text.chars().count() <= 600 && (1..100).contains(&listed), "{text}");
        assert!(text.contains(&format!("[{} more files", 100 - listed)), "{text}");
        assert_eq!(list(&names, 64_000).1, 100);
        let path = |name: &str| FilePath::parse(name).expect("a name");
        assert!(is_below(&path("src/a"), Some(&path("src"))) && !is_below(&path("srcs/a"), Some(&path("src"))));
    }
}
