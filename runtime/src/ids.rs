//! Source of names and randomness; both reach a board only as recorded inputs.

use patchboard_kernel::digest::Salt;
use patchboard_kernel::id::BoardId;
use uuid::Uuid;

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
