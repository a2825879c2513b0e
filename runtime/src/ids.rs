//! Source of names and randomness; both reach a board only as recorded inputs.

use patchboard_kernel::digest::Salt;
use patchboard_kernel::id::BoardId;
use uuid::Uuid;

/// Length limit of a board's id, in characters.
const ID_MAX: usize = 128;

/// Alias of the most recently created board.
pub const LAST: &str = "last";

/// Rule of valid ids, for messages.
pub(crate) const RULE: &str = "1 to 128 letters, digits, - and _, begins with no -, and is not `last`";

/// Returns true if a board can have this id, which is also a file name and a command argument.
pub fn is_usable(id: &BoardId) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let text = id.as_str();
    // Commands parse a leading dash as an option.
    (1..=ID_MAX).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with('-') && text != LAST
}

/// Formats an invalid id for messages: its beginning, quoted.
pub(crate) fn shown(id: &BoardId) -> String {
    const SHOWN_MAX: usize = 40;
    let shown: String = id.as_str().chars().take(SHOWN_MAX).collect();
    let more = if shown.len() < id.as_str().len() { "…" } else { "" };
    format!("{shown:?}{more}")
}

/// Generates unique values.
pub trait Ids: Send + Sync + 'static {
    /// Generates the id of a new board.
    fn board(&self) -> BoardId;
    /// Generates the salt of a new board.
    fn salt(&self) -> Salt;
    /// Generates the random name of a board's owner.
    fn writer(&self) -> String;
}

/// Ids from the machine's clock and its source of randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemIds;

impl Ids for SystemIds {
    fn board(&self) -> BoardId {
        Uuid::now_v7().to_string().into()
    }

    fn salt(&self) -> Salt {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the machine has a source of randomness");
        Salt(bytes)
    }

    fn writer(&self) -> String {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the machine has a source of randomness");
        Uuid::from_bytes(bytes).simple().to_string()
    }
}
