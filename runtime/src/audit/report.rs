//! Report of an audit, and its error.

use patchboard_kernel::digest::Digest;
use patchboard_kernel::driver::Head;
use patchboard_kernel::id::Seq;
use patchboard_storage::journal::JournalError;

/// Result of a verified journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuditReport {
    /// Last record; an operator who keeps its hash elsewhere can detect truncation and rewriting later.
    pub head: Head,
    /// Number of records.
    pub records: u64,
    /// Number of distinct stored texts, all checked.
    pub blobs: u64,
    /// Number of distinct named texts that this source does not carry, and are unchecked.
    pub unchecked_blobs: u64,
    /// Number of kept snapshots that were checked, with every part.
    pub snapshots: u64,
    /// Number of kept snapshots in a layout of another program version, which this one cannot check.
    pub unchecked_snapshots: u64,
    /// Record with the expected hash, if one was given. Before the head if the board has continued since.
    pub expected_at: Option<Seq>,
    /// Redacted content.
    pub erased: ErasureCounts,
}

/// Redacted content of a board: only its replacement can be checked, and the record of the redaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErasureCounts {
    /// Redacted values.
    pub values: u64,
    /// Records with redacted values.
    pub records: u64,
    /// Erased views and prompts.
    pub texts: u64,
    /// The salt was destroyed: the remaining values cannot be checked either, only the chain.
    pub salt: bool,
}

/// Fault of a journal.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AuditError {
    /// First record that cannot be trusted.
    #[error("record {seq} cannot be trusted: {reason}")]
    Record {
        /// Number of the record.
        seq: Seq,
        /// Description of the fault.
        reason: String,
    },
    /// The journal is consistent, but lacks the hash that was kept.
    #[error("no record has the hash {expected}: the journal was cut off or rewritten; it now ends at {} with {}", .head.seq, .head.hash)]
    Head {
        /// Hash that was kept.
        expected: Digest,
        /// Head of the journal.
        head: Head,
    },
    /// A kept snapshot contradicts the records. The records themselves are sound, and sufficient.
    #[error("the snapshot of everything up to record {of} cannot be trusted: {reason}")]
    Snapshot {
        /// Last record that the snapshot includes.
        of: Seq,
        /// Description of the fault.
        reason: String,
    },
    /// The metadata of kept snapshots is wrong. The records themselves are sound, and sufficient.
    #[error("what is noted of snapshots cannot be trusted: {0}")]
    SnapshotList(String),
    /// The board's summary contradicts its records.
    #[error("the list of boards does not agree with the records: {0}")]
    Summary(String),
    /// The journal could not be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl AuditError {
    /// Returns the stable code; messages may change, codes may not.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Record { .. } => "bad_record",
            Self::Head { .. } => "wrong_head",
            Self::Snapshot { .. } => "bad_snapshot",
            Self::SnapshotList(_) => "bad_snapshot_list",
            Self::Summary(_) => "bad_summary",
            Self::Journal(error) => error.code(),
        }
    }
}
