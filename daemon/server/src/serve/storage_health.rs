//! State of the storage, as writes have left it.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use patchboard_kernel::id::BoardId;
use patchboard_runtime::error::RuntimeError;
use patchboard_runtime::observer::{DurableStep, Observer};
use patchboard_storage::journal::JournalError;

#[derive(Default)]
pub(crate) struct StorageHealth(Mutex<StorageState>);

/// Error of the last write, and the boards that wait for the storage.
#[derive(Default)]
struct StorageState {
    why: Option<JournalError>,
    boards: BTreeSet<BoardId>,
}

impl StorageHealth {
    /// Returns the error with which writes fail, if they do.
    pub(crate) fn write_error(&self) -> Option<JournalError> {
        self.0.lock().why.clone()
    }

    /// Records a failed write, if the storage is the cause.
    pub(crate) fn failed(&self, why: &JournalError) {
        if is_of_storage(why) {
            self.0.lock().why = Some(why.clone());
        }
    }

    pub(super) fn recovered(&self) {
        self.0.lock().why = None;
    }

    pub(super) fn first(&self) -> Option<BoardId> {
        self.0.lock().boards.first().cloned()
    }

    pub(super) fn forget(&self, board: &BoardId) {
        self.0.lock().boards.remove(board);
    }
}

/// Returns true if the storage accepts no writes from any process.
const fn is_of_storage(why: &JournalError) -> bool {
    why.is_transient() || matches!(why, JournalError::ReadOnly | JournalError::Replaced(_))
}

impl Observer for StorageHealth {
    fn on_durable_step(&self, _: &DurableStep<'_>) {
        let mut state = self.0.lock();
        if state.why.take().is_some() {
            tracing::info!("the journal takes writes again");
        }
    }

    fn on_board_closed(&self, board: &BoardId, why: &RuntimeError) {
        if let RuntimeError::Journal(why) = why
            && is_of_storage(why)
        {
            self.failed(why);
            self.0.lock().boards.insert(board.clone());
        }
    }
}
