//! Where names and randomness come from; both reach a board as recorded inputs only.

use patchboard_kernel::digest::Salt;
use patchboard_kernel::id::BoardId;
use uuid::Uuid;

/// Characters of a board's id.
const ID_MAX: usize = 128;

/// The word by which users call the board that was made last.
pub const LAST: &str = "last";

/// The rule of ids, for people.
pub(crate) const RULE: &str = "1 to 128 letters, digits, - and _, begins with no -, and is not `last`";

/// Whether a board can have this id: it is a file's name, and what a user calls the board by.
pub fn is_usable(id: &BoardId) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let text = id.as_str();
    // Commands take what begins with a dash for an option.
    (1..=ID_MAX).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with('-') && text != LAST
}

/// An id that none may have, for people: its beginning, quoted.
pub(crate) fn shown(id: &BoardId) -> String {
    const SHOWN_MAX: usize = 40;
    let shown: String = id.as_str().chars().take(SHOWN_MAX).collect();
    let more = if shown.len() < id.as_str().len() { "…" } else { "" };
    format!("{shown:?}{more}")
}

/// Makes what must not repeat.
pub trait Ids: Send + Sync + 'static {
    /// A new board's id.
    fn board(&self) -> BoardId;
    /// A new board's salt.
    fn salt(&self) -> Salt;
    /// The random name of an owner of a board.
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
