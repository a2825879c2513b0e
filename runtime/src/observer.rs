//! Notifications about boards, for metrics.
//!
//! Each durable step is reported once; records that a recovery reads are not reported. Counts made of them are for
//! operators: after an append with an unknown outcome, they may lack its records. The journal is the truth.

use std::time::Duration;

use patchboard_kernel::id::BoardId;
use patchboard_kernel::record::Record;

use crate::runtime::RuntimeError;

/// Observer of the boards of a runtime. Called during commits, so it must be fast and must not block. A panic of it
/// does not affect the board. The default methods do nothing.
pub trait Observer: Send + Sync + 'static {
    /// Reports a durable step, before it is published.
    fn durable(&self, _step: &Durable<'_>) {}

    /// Reports a repeated proposal or request, which got the first answer.
    fn duplicate(&self, _board: &BoardId) {}

    /// Reports that actors failed and are restarted.
    fn restarted(&self, _what: Restarted) {}

    /// Reports that a board stops in this process, with the reason; may be called more than once.
    fn gone(&self, _board: &BoardId, _why: &RuntimeError) {}
}

/// A durable step.
#[derive(Clone, Copy, Debug)]
pub struct Durable<'a> {
    /// The board.
    pub board: &'a BoardId,
    /// Appended records, in order.
    pub records: &'a [Record],
    /// Time since the kernel began with the input.
    pub took: Duration,
}

/// Restarted actors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restarted {
    /// All actors of a board, from its journal.
    Board,
    /// Supervisor of a board, with the board's actors.
    Supervisor,
    /// The journal writer.
    JournalWriter,
}

impl Restarted {
    /// Every member.
    pub const ALL: [Self; 3] = [Self::Board, Self::Supervisor, Self::JournalWriter];

    /// Returns the stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Board => "board",
            Self::Supervisor => "supervisor",
            Self::JournalWriter => "journal_writer",
        }
    }
}

/// Observer that ignores all notifications.
#[derive(Clone, Copy, Debug)]
pub struct Unobserved;

impl Observer for Unobserved {}
