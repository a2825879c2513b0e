//! Errors of the journal, with advice in their messages.

use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, Seq};

/// Result of a journal operation.
pub type Result<T, E = JournalError> = std::result::Result<T, E>;

/// Error of a journal operation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another process has written to the board in the meantime, or has taken it over.
    #[error(
        "board {board} belongs to another process now ({reason}): this one has stopped working on it; \
         find out which process runs the board before resuming it here"
    )]
    Fenced {
        /// Board of the append.
        board: BoardId,
        /// Difference from the writer's expectation.
        reason: String,
    },
    /// Another process is running the board.
    #[error("board {board} is being run by another process: stop that one first, or force taking the board over")]
    Owned {
        /// Board of the claim.
        board: BoardId,
    },
    /// No such board or journal.
    #[error("{0} was not found: `patchboard boards` lists what there is")]
    NotFound(String),
    /// Stored data is damaged.
    #[error("the journal is damaged{}: {what}; restore it from a backup", at_record(*.seq))]
    Corrupt {
        /// Number of the affected record, if known.
        seq: Option<Seq>,
        /// Description of the damage.
        what: String,
    },
    /// A record of a board is missing, or does not match the chain.
    #[error("the board's record {seq} cannot be trusted: {why}; restore the board from a backup")]
    BadRecord {
        /// Number of the first such record.
        seq: Seq,
        /// Description of the fault.
        why: String,
    },
    /// Acknowledged records are missing from the file.
    #[error(transparent)]
    RecordsLost(RecordLoss),
    /// The file is not a PatchBoard journal.
    #[error("{0} is not a PatchBoard journal: choose another data directory")]
    NotAJournal(String),
    /// The file has a format of a newer version.
    #[error("the journal has format {found}, this version reads up to {known}: use a newer patchboard")]
    NewerFormat {
        /// Format of the file.
        found: u64,
        /// Newest format that this version reads.
        known: u64,
    },
    /// Another program kept the file locked for too long.
    #[error("the journal is locked by another program: end it, or wait and try again")]
    Locked,
    /// The disk is full.
    #[error("the disk of the journal is full: make room and resume the board; nothing acknowledged is lost")]
    DiskFull,
    /// The journal is not writable.
    #[error("the journal cannot be written to: it was opened for reading, or its files are read-only")]
    ReadOnly,
    /// The journal's file was moved, removed or replaced while it was open.
    #[error(
        "{0} is not the file that this process has open: put it back, or end the process; what was not acknowledged is not there"
    )]
    Replaced(String),
    /// Invalid batch, which is a bug of the writer.
    #[error("refused to append to board {board}: {what}; this is a bug")]
    BadBatch {
        /// Board of the batch.
        board: BoardId,
        /// Description of the fault.
        what: String,
    },
    /// A part of a snapshot references one that is not stored.
    #[error("board {board} has no part {hash}, which a part of its next snapshot names; all parts are stored again")]
    MissingPart {
        /// Board of the snapshot.
        board: BoardId,
        /// Hash of the missing part.
        hash: Digest,
    },
    /// The disk returned a read error.
    #[error("the disk could not be read: {0}; check the disk: nothing says that the journal on it is damaged")]
    Unreadable(String),
    /// Any other storage error.
    #[error("the journal cannot be used: {0}")]
    Io(String),
}

impl JournalError {
    /// Returns the stable code; messages may change, codes may not.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Fenced { .. } => "journal_fenced",
            Self::Owned { .. } => "board_owned",
            Self::NotFound(_) => "not_found",
            Self::Corrupt { .. } => "journal_corrupt",
            Self::BadRecord { .. } => "bad_record",
            Self::RecordsLost(_) => "records_lost",
            Self::NotAJournal(_) => "not_a_journal",
            Self::NewerFormat { .. } => "journal_newer",
            Self::Locked => "journal_locked",
            Self::DiskFull => "disk_full",
            Self::ReadOnly => "journal_read_only",
            Self::Replaced(_) => "journal_replaced",
            Self::BadBatch { .. } => "bad_batch",
            Self::MissingPart { .. } => "missing_part",
            Self::Unreadable(_) => "disk_unreadable",
            Self::Io(_) => "journal_io",
        }
    }

    /// Returns true if a retry may succeed with nothing else changed.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Locked | Self::DiskFull | Self::Unreadable(_) | Self::Io(_))
    }
}

/// Acknowledged records of a board that are lost.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("records of board {board} are lost: record {known} was acknowledged, and {}", remaining_records(*.found, *.known))]
pub struct RecordLoss {
    /// Board with the loss.
    pub board: BoardId,
    /// Last record known to be acknowledged.
    pub known: Seq,
    /// Last present record; none if the board is missing. At or after `known`, other records have replaced the lost
    /// ones.
    pub found: Option<Seq>,
}

fn remaining_records(found: Option<Seq>, known: Seq) -> String {
    match found {
        None => "nothing of the board is there".to_owned(),
        Some(found) if found < known => format!("the last one that is there is {found}"),
        Some(found) => format!("another one is there with its number; the last one is {found}"),
    }
}

fn at_record(seq: Option<Seq>) -> String {
    seq.map(|seq| format!(" at record {seq}")).unwrap_or_default()
}
