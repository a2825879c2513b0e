//! Limits of diffs, and of file names in messages.

use patchboard_kernel::text::one_line;

/// Maximum characters of a diff shown at once, and maximum number of file names listed.
pub(super) const DIFF_CHARS_MAX: usize = 32_000;
const NAMES_MAX: usize = 100;

/// Share of the room for file names where a diff does not fit (1/8).
pub(super) const NAMES_PART: usize = 8;

pub(super) const NAMES_CHARS_MAX: usize = DIFF_CHARS_MAX / NAMES_PART;

/// Joins file names into one line of at most `room` characters, with a note after it if there are too many names.
pub(super) fn named<'a>(names: impl ExactSizeIterator<Item = &'a str>, room: usize) -> String {
    let more = if names.len() > NAMES_MAX { " and others" } else { "" };
    let names: Vec<&str> = names.take(NAMES_MAX).collect();
    format!("{}{more}", one_line(&names.join(", "), room))
}
