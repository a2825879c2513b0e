//! Documents of boards.

use patchboard_kernel::board::Board;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, Version};
use patchboard_kernel::state::State;
use patchboard_kernel::tree::Node;
use serde::Serialize;
use utoipa::ToSchema;

/// Document of a board at a version.
#[derive(Serialize, ToSchema)]
pub struct StateResponse {
    /// Board id.
    #[schema(value_type = String)]
    board: BoardId,
    /// Version: 0 is the initial state, each commit makes the next.
    #[schema(value_type = u64)]
    version: Version,
    /// Digest of the document; null after a redaction, because it then differs from the recorded one.
    #[schema(required, value_type = Option<String>)]
    state_hash: Option<Digest>,
    /// True if values of the document are redacted.
    erased: bool,
    /// Document.
    #[schema(value_type = Value)]
    state: Node,
}

impl StateResponse {
    /// Returns the document of a board. `is_exact` is false after a redaction.
    pub(crate) fn new(board: &BoardId, version: Version, state: &State, is_exact: bool) -> Self {
        Self {
            board: board.clone(),
            version,
            state_hash: is_exact.then(|| state.digest()),
            erased: !is_exact,
            state: state.root().clone(),
        }
    }

    /// Returns the document of a recovered board.
    pub fn from_board(board: &Board) -> Self {
        Self::new(board.id(), board.version(), board.state(), board.is_exact())
    }
}
