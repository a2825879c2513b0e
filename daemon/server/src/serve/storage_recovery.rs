//! Recovery of boards that a storage failure has interrupted: they resume once the storage accepts writes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use patchboard_kernel::id::BoardId;
use patchboard_runtime::observer::{DurableStep, Observer};
use patchboard_runtime::runtime::RuntimeError;
use patchboard_storage::journal::JournalError;

use super::service::Daemon;

/// Minimum and maximum delay between two attempts.
const TRY_MIN: Duration = Duration::from_secs(2);
const TRY_MAX: Duration = Duration::from_secs(60);

/// Storage state of a daemon.
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
        self.locked().why.clone()
    }

    /// Records a failed write, if the storage is the cause.
    pub(crate) fn failed(&self, why: &JournalError) {
        if is_of_storage(why) {
            self.locked().why = Some(why.clone());
        }
    }

    fn first(&self) -> Option<BoardId> {
        self.locked().boards.first().cloned()
    }

    fn forget(&self, board: &BoardId) {
        self.locked().boards.remove(board);
    }

    fn locked(&self) -> MutexGuard<'_, StorageState> {
        // Every update is atomic, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if the storage accepts no writes from any process.
const fn is_of_storage(why: &JournalError) -> bool {
    why.is_transient() || matches!(why, JournalError::ReadOnly | JournalError::Replaced(_))
}

impl Observer for StorageHealth {
    fn on_durable_step(&self, _: &DurableStep<'_>) {
        let mut state = self.locked();
        if state.why.take().is_some() {
            tracing::info!("the journal takes writes again");
        }
    }

    fn on_board_closed(&self, board: &BoardId, why: &RuntimeError) {
        if let RuntimeError::Journal(why) = why
            && is_of_storage(why)
        {
            self.failed(why);
            self.locked().boards.insert(board.clone());
        }
    }
}

impl Daemon {
    /// Resumes interrupted boards one at a time, as soon as the storage accepts writes.
    pub(crate) async fn resume_interrupted_boards(self: &Arc<Self>) {
        let mut pause = TRY_MIN;
        loop {
            tokio::time::sleep(pause).await;
            pause = match self.disk.first() {
                Some(board) => match self.open(&board).await {
                    Err(_) if self.disk.write_error().is_some() => (pause * 2).min(TRY_MAX),
                    Err(problem) => {
                        tracing::warn!(%board, code = problem.code, "the board was not taken up again");
                        self.disk.forget(&board);
                        Duration::ZERO
                    }
                    Ok(_) => {
                        tracing::info!(%board, "the board goes on");
                        self.disk.forget(&board);
                        Duration::ZERO
                    }
                },
                // With no board waiting, only a probe write can detect the recovery.
                None if self.disk.write_error().is_some() => match self.try_to_write().await {
                    Ok(()) => {
                        self.disk.locked().why = None;
                        TRY_MIN
                    }
                    Err(_) => (pause * 2).min(TRY_MAX),
                },
                None => TRY_MIN,
            };
        }
    }
}
