//! Why the journal could not do what it was asked, in words that say what to do about it.

use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, Seq};

/// Why the journal could not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Somebody else has written to the board in the meantime, or has taken it over.
    #[error(
        "board {board} belongs to another process now ({reason}): this one has stopped working on it; \
         find out which process runs the board before resuming it here"
    )]
    Fenced {
        /// The board.
        board: BoardId,
        /// What differed from the writer's expectation.
        reason: String,
    },
    /// Another process is running the board.
    #[error("board {board} is being run by another process: stop that one first, or force taking the board over")]
    Owned {
        /// The board.
        board: BoardId,
    },
    /// There is no such board or journal.
    #[error("{0} was not found: `patchboard boards` lists what there is")]
    NotFound(String),
    /// What is stored is not what was written.
    #[error("the journal is damaged{}: {what}; restore it from a backup", at_record(*.seq))]
    Corrupt {
        /// The record it concerns, if known.
        seq: Option<Seq>,
        /// What is wrong.
        what: String,
    },
    /// A record of a board is missing, or is not what the chain says.
    #[error("the board's record {seq} cannot be trusted: {why}; restore the board from a backup")]
    BadRecord {
        /// The first one.
        seq: Seq,
        /// What is wrong.
        why: String,
    },
    /// What was acknowledged is not in the file any more.
    #[error(transparent)]
    RecordsLost(Lost),
    /// The file is none of ours.
    #[error("{0} is not a PatchBoard journal: choose another data directory")]
    NotAJournal(String),
    /// A newer version wrote it.
    #[error("the journal has format {found}, this version reads up to {known}: use a newer patchboard")]
    NewerFormat {
        /// The format found.
        found: u64,
        /// The newest this version reads.
        known: u64,
    },
    /// Somebody kept the file locked for too long.
    #[error("the journal is locked by another program: end it, or wait and try again")]
    Locked,
    /// There is no room.
    #[error("the disk of the journal is full: make room and resume the board; nothing acknowledged is lost")]
    DiskFull,
    /// It cannot be written to.
    #[error("the journal cannot be written to: it was opened for reading, or its files are read-only")]
    ReadOnly,
    /// The journal's file was moved, removed or replaced while it was open.
    #[error(
        "{0} is not the file that this process has open: put it back, or end the process; what was not acknowledged is not there"
    )]
    Replaced(String),
    /// A batch that no writer should have made.
    #[error("refused to append to board {board}: {what}; this is a bug")]
    BadBatch {
        /// The board.
        board: BoardId,
        /// What is wrong with it.
        what: String,
    },
    /// A part of a snapshot names one that is not stored.
    #[error("board {board} has no part {hash}, which a part of its next snapshot names; the snapshot is taken anew")]
    MissingPart {
        /// The board.
        board: BoardId,
        /// The part that is missing.
        hash: Digest,
    },
    /// The disk does not give what is on it.
    #[error("the disk could not be read: {0}; check the disk: nothing says that the journal on it is damaged")]
    Unreadable(String),
    /// Anything else that storage does.
    #[error("the journal cannot be used: {0}")]
    Io(String),
}

impl JournalError {
    /// Stable name; messages may change, codes may not.
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

    /// Whether trying again later, with nothing else changed, may help.
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Locked | Self::DiskFull | Self::Unreadable(_) | Self::Io(_) => true,
            Self::Fenced { .. }
            | Self::Owned { .. }
            | Self::NotFound(_)
            | Self::Corrupt { .. }
            | Self::BadRecord { .. }
            | Self::RecordsLost(_)
            | Self::NotAJournal(_)
            | Self::NewerFormat { .. }
            | Self::ReadOnly
            | Self::Replaced(_)
            | Self::BadBatch { .. }
            | Self::MissingPart { .. } => false,
        }
    }
}

/// Records of a board that were acknowledged and are lost.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("records of board {board} are lost: record {known} was acknowledged, and {}", what_is_left(*.found, *.known))]
pub struct Lost {
    /// The board.
    pub board: BoardId,
    /// The last record that is known to have been acknowledged.
    pub known: Seq,
    /// The last one that is there; none: the board is not. At or after `known`, others have taken the place of those lost.
    pub found: Option<Seq>,
}

fn what_is_left(found: Option<Seq>, known: Seq) -> String {
    match found {
        None => "nothing of the board is there".to_owned(),
        Some(found) if found < known => format!("the last one that is there is {found}"),
        Some(found) => format!("another one is there with its number; the last one is {found}"),
    }
}

fn at_record(seq: Option<Seq>) -> String {
    seq.map(|seq| format!(" at record {seq}")).unwrap_or_default()
}
