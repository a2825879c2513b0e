//! Rendering of numbered lines, with a report of the lines shown in full.
//!
//! Each line follows its number and a tab. Notes have no number, so that file content cannot imitate a note.

use std::fmt::Write as _;

use patchboard_kernel::files::{LineRange, union};

use super::hunks::number;
use patchboard_kernel::text::counted;

/// Maximum characters shown of a line.
pub const LINE_CHARS_MAX: usize = 2_000;

/// Lines of context around an edit's result.
pub const EDIT_AROUND: u32 = 4;

/// Maximum characters of the excerpt around an edit's result.
pub const EDIT_CHARS_MAX: usize = 8_000;

/// Numbered lines of a text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snippet {
    /// Text to show.
    pub text: String,
    /// Lines shown in full, sorted and merged.
    pub shown: Vec<LineRange>,
    /// True if all lines of the text are shown in full.
    pub is_whole: bool,
    /// Truncated lines.
    pub cut: Vec<u32>,
    /// First requested line that did not fit.
    pub next: Option<u32>,
}

/// Renders all lines of a text that fit into `chars_max` characters.
pub fn whole(text: &str, chars_max: usize) -> Snippet {
    snippet(text, &[(1, u32::MAX)], 0, chars_max)
}

/// Renders ranges of a text, with `around` lines of context on each side, within `chars_max` characters. Omitted lines
/// are noted.
pub fn snippet(text: &str, ranges: &[LineRange], around: u32, chars_max: usize) -> Snippet {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let total = number(lines.len());
    if total == 0 {
        let mut note = "(the file is empty)\n".to_owned();
        note.truncate(if chars_max < note.len() { 0 } else { note.len() });
        return Snippet { text: note, is_whole: true, ..Snippet::default() };
    }
    let widen =
        |(first, last): &LineRange| (first.saturating_sub(around).max(1), last.saturating_add(around).min(total));
    let wanted = union(ranges.iter().map(widen));
    let mut page = Page { text: String::new(), left: chars_max };
    let (mut shown, mut has_cut) = (Vec::<LineRange>::new(), Vec::new());
    let (mut next, mut missing) = (1, None);
    'ranges: for (first, last) in wanted {
        if first > next && !page.put(&format!("[lines {next}-{} are not shown]\n", first - 1), tail(total)) {
            missing = Some(first);
            break;
        }
        next = first;
        for at in first..=last {
            let line = lines[at as usize - 1];
            let bare = line.strip_suffix('\n').map_or(line, |line| line.strip_suffix('\r').unwrap_or(line));
            let (mut entry, cut) = numbered(at, bare);
            if at == total && !line.ends_with('\n') {
                entry.push_str("[no newline at the end of the file]\n");
            }
            if !page.put(&entry, tail(total)) {
                missing = Some(at);
                break 'ranges;
            }
            next = at + 1;
            match cut {
                true => has_cut.push(at),
                false => shown.push((at, at)),
            }
        }
    }
    if next <= total {
        // `tail` reserved room for this note, unless there is none at all.
        page.put(&format!("[lines {next}-{total} are not shown]\n"), 0);
    }
    let shown = union(shown);
    let is_whole = shown == [(1, total)];
    Snippet { text: page.text, shown, is_whole, cut: has_cut, next: missing }
}

/// Rendered part of one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinePart {
    /// Text to show.
    pub text: String,
    /// Columns shown, counted from 1; `None` if none fit.
    pub columns: Option<LineRange>,
    /// Length of the line in characters.
    pub line_chars: u32,
}

/// Renders the columns `first` to `last` of a line, as far as they fit into `chars_max` characters; `None` if there is
/// no such line. A note says which part is shown.
pub fn line_part(text: &str, at: u32, (first, last): LineRange, chars_max: usize) -> Option<LinePart> {
    let index = usize::try_from(at).ok()?.checked_sub(1)?;
    let line = text.split_inclusive('\n').nth(index)?;
    let line = line.strip_suffix('\n').map_or(line, |line| line.strip_suffix('\r').unwrap_or(line));
    let of = number(line.chars().count());
    let (first, last) = (first.max(1), last.min(of));
    let mut entry = format!("{at:>6}\t");
    let room = number(chars_max.saturating_sub(entry.chars().count() + 1));
    if (first, last) == (1, of) && of <= room {
        entry.push_str(line);
        entry.push('\n');
        return Some(LinePart { text: entry, columns: Some((first, last)), line_chars: of });
    }
    let last = last.min((first - 1).saturating_add(room.saturating_sub(PART_NOTE_CHARS)));
    if last < first {
        return Some(LinePart { text: String::new(), columns: None, line_chars: of });
    }
    entry.extend(line.chars().skip(first as usize - 1).take((last - first) as usize + 1));
    writeln!(entry, "\n[characters {first}-{last} of {of} of line {at}]").expect("a string takes everything");
    Some(LinePart { text: entry, columns: Some((first, last)), line_chars: of })
}

/// Characters reserved for the note about a part.
const PART_NOTE_CHARS: u32 = 70;

/// Returns the characters to reserve for the note about omitted lines.
fn tail(total: u32) -> usize {
    "[lines - are not shown]\n".len() + 2 * total.to_string().len()
}

/// Renders one numbered line, and returns whether it was truncated.
fn numbered(at: u32, line: &str) -> (String, bool) {
    let mut entry = format!("{at:>6}\t");
    let cut = push_cut(&mut entry, line);
    entry.push('\n');
    (entry, cut)
}

/// Appends a line, truncated with a note if it is too long. Returns whether it was truncated.
pub(super) fn push_cut(to: &mut String, line: &str) -> bool {
    let Some((end, _)) = line.char_indices().nth(LINE_CHARS_MAX) else {
        to.push_str(line);
        return false;
    };
    to.push_str(&line[..end]);
    write!(to, " [cut: {}]", counted(line[end..].chars().count(), "more character"))
        .expect("a string takes everything");
    true
}

/// Text buffer with a limit in characters.
struct Page {
    text: String,
    left: usize,
}

impl Page {
    /// Appends a piece if that leaves at least `kept` characters.
    fn put(&mut self, piece: &str, kept: usize) -> bool {
        let chars = piece.chars().count();
        let fits = chars + kept <= self.left;
        if fits {
            self.left -= chars;
            self.text.push_str(piece);
        }
        fits
    }
}
