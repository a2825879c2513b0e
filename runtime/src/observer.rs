//! Notifications about boards, for metrics.
//!
//! Each durable step is reported once; records that a recovery reads are not reported. Counts made of them are for
//! operators: after an append with an unknown outcome, they may lack its records. The journal is the truth.

use std::time::Duration;

use patchboard_kernel::id::BoardId;
use patchboard_kernel::record::Record;
use patchboard_kernel::rejection::code_enum;

use crate::error::RuntimeError;

/// Observer of the boards of a runtime. Called during commits, so it must be fast and must not block. A panic of it
/// does not affect the board. The default methods do nothing.
pub trait Observer: Send + Sync + 'static {
    /// Reports a durable step, before it is published.
    fn on_durable_step(&self, _step: &DurableStep<'_>) {}

    /// Reports a repeated proposal or request, which got the first answer.
    fn on_duplicate(&self, _board: &BoardId) {}

    /// Reports that actors failed and are restarted.
    fn on_restart(&self, _what: RestartScope) {}

    /// Reports that a board stops in this process, with the reason; may be called more than once.
    fn on_board_closed(&self, _board: &BoardId, _why: &RuntimeError) {}
}

/// A durable step.
#[derive(Clone, Copy, Debug)]
pub struct DurableStep<'a> {
    /// The board.
    pub board: &'a BoardId,
    /// Appended records, in order.
    pub records: &'a [Record],
    /// Time since the kernel began with the input.
    pub took: Duration,
}

code_enum! {
    /// Restarted actors.
    RestartScope {
        /// All actors of a board, from its journal.
        Board = "board",
        /// The journal writer.
        JournalWriter = "journal_writer",
    }
}

/// Observer that ignores all notifications.
#[derive(Clone, Copy, Debug)]
pub struct NoopObserver;

impl Observer for NoopObserver {}
