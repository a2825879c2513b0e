//! Who is told what becomes of boards, so that it can be counted.
//!
//! Told is what has become durable here, once; what is read again when a board is recovered is told to nobody. Counts made
//! of it are for operators: after an append of which nobody knows whether it was stored, they may lack its records. The
//! journal is the truth.

use std::time::Duration;

use patchboard_kernel::id::BoardId;
use patchboard_kernel::record::Record;

use crate::runtime::RuntimeError;

/// Watches the boards of a runtime. What it does is done on the way of a commit: it must be quick, and wait for nothing. If
/// it panics, the board goes on. The default does nothing.
pub trait Observer: Send + Sync + 'static {
    /// A step of a board is durable, and nobody has seen it yet.
    fn durable(&self, _step: &Durable<'_>) {}

    /// A board got a proposal or a request that it had had before, and gave the first answer again.
    fn duplicate(&self, _board: &BoardId) {}

    /// Actors failed, and are made anew.
    fn restarted(&self, _what: Restarted) {}

    /// A board does not go on here, and why; may be told more than once.
    fn gone(&self, _board: &BoardId, _why: &RuntimeError) {}
}

/// A step that is durable.
#[derive(Clone, Copy, Debug)]
pub struct Durable<'a> {
    /// The board.
    pub board: &'a BoardId,
    /// What was appended, in order.
    pub records: &'a [Record],
    /// The time since the kernel took the input up.
    pub took: Duration,
}

/// What was made anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restarted {
    /// All actors of a board, from its journal.
    Board,
    /// The supervisor of a board, and its actors with it.
    Supervisor,
    /// The journal writer.
    JournalWriter,
}

impl Restarted {
    /// Every member.
    pub const ALL: [Self; 3] = [Self::Board, Self::Supervisor, Self::JournalWriter];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Board => "board",
            Self::Supervisor => "supervisor",
            Self::JournalWriter => "journal_writer",
        }
    }
}

/// Watches nothing.
#[derive(Clone, Copy, Debug)]
pub struct Unobserved;

impl Observer for Unobserved {}
