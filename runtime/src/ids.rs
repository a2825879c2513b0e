//! Where names and randomness come from; both reach a board as recorded inputs only.

use patchboard_kernel::digest::Salt;
use patchboard_kernel::id::BoardId;
use uuid::Uuid;

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
