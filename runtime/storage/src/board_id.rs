//! Rule of board ids: an id is also a file name and a command argument.

use patchboard_kernel::id::BoardId;

/// Length limit of a board's id, in characters.
const ID_MAX: usize = 128;

/// Alias of the most recently created board.
pub const LAST: &str = "last";

/// Rule of valid ids, for messages.
pub const RULE: &str = "1 to 128 letters, digits, - and _, begins with no -, and is not `last`";

/// Returns true if a board can have this id, which is also a file name and a command argument.
pub fn is_usable(id: &BoardId) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let text = id.as_str();
    // Commands parse a leading dash as an option.
    (1..=ID_MAX).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with('-') && text != LAST
}

/// Formats an invalid id for messages: its beginning, quoted.
pub fn shown(id: &BoardId) -> String {
    const SHOWN_MAX: usize = 40;
    let shown: String = id.as_str().chars().take(SHOWN_MAX).collect();
    let more = if shown.len() < id.as_str().len() { "…" } else { "" };
    format!("{shown:?}{more}")
}
