//! Storage interface: an append-only journal per board, and the texts that its records name by hash.
//!
//! Also stores snapshots: parts under their hashes, and the snapshots that records name.
//!
//! Owns the rules for every driver. A batch is appended wholly or not at all, and only if the board's last record and
//! epoch match the writer's expectation. So a process that has lost a board can no longer write to it. Taking a board
//! over is itself an append. The SQLite driver is [`crate::sqlite`].

pub mod error;
mod summary;

use std::future::Future;
use std::pin::Pin;

use patchboard_kernel::board::Blob;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::driver::Append;
use patchboard_kernel::id::{BoardId, Seq, Timestamp};
use patchboard_kernel::record::Record;
use patchboard_kernel::snapshot::SnapshotPart;

pub use self::error::{JournalError, RecordLoss};
pub use self::summary::{BoardSummary, DECIDES_END};

/// Boxed future that may borrow.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The last record of a board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Number of the record.
    pub seq: Seq,
    /// Hash of the record, which covers all records before it.
    pub hash: Digest,
}

/// Records to append together, with the texts they name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Board to append to.
    pub board: BoardId,
    /// Epoch of the writer: the board's own, or a higher one that an `epoch` record in this batch claims.
    pub epoch: u64,
    /// Last record of the board that the writer knows; `None` requires that the board does not exist.
    pub expected: Option<Head>,
    /// Records to append, in order; not empty, and numbered from the one after `expected`.
    pub records: Vec<Record>,
    /// Texts that the records name by hash. Stored ones are left unchanged.
    pub blobs: Vec<Blob>,
}

impl From<Append> for Batch {
    fn from(append: Append) -> Self {
        let Append { board, epoch, expected, records, blobs } = append;
        Self { board, epoch, expected: expected.map(|(seq, hash)| Head { seq, hash }), records, blobs }
    }
}

/// A stored snapshot that a record of the board names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptSnapshot {
    /// Last record that the snapshot includes.
    pub of: Seq,
    /// Digest of the snapshot; the manifest is the part with this hash.
    pub digest: Digest,
    /// Record that names the snapshot.
    pub record: Seq,
}

/// Parts that were not stored before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewParts {
    /// Number of parts.
    pub count: u64,
    /// Bytes of their texts.
    pub bytes: u64,
}

/// Result of a garbage collection of parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GarbageCollection {
    /// Parts of the kept snapshots.
    pub kept: u64,
    /// Parts removed.
    pub removed: u64,
}

/// Redaction to apply: the erased content of a board, with its record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Erasure {
    /// The `redacted` record.
    pub batch: Batch,
    /// Records before it, with their new payloads.
    pub records: Vec<Record>,
    /// Hashes of the views and prompts to erase.
    pub texts: Vec<Digest>,
}

/// Remains of a board that was removed from the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tombstone {
    /// Board that was removed.
    pub board: BoardId,
    /// Name of its blueprint.
    pub name: String,
    /// Last record of the board; its hash covers all records.
    pub head: Head,
    /// Time of the removal.
    pub at: Timestamp,
    /// Archive file of the board; none if it was deleted.
    pub archive: Option<String>,
}

/// File sizes before and after a vacuum, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VacuumStats {
    /// Size before, including its log.
    pub before: u64,
    /// Size after.
    pub after: u64,
    /// Removed views and prompts that no record names.
    pub texts: u64,
}

/// The right to run a board in this process; released when dropped, or when the process dies.
///
/// Only prevents two processes from conflicting by mistake. The epoch protects the data.
pub struct Claim {
    _guard: Option<Box<dyn Send + Sync>>,
}

impl Claim {
    /// Creates a claim that lasts as long as `guard`.
    pub fn with_guard(guard: impl Send + Sync + 'static) -> Self {
        Self { _guard: Some(Box::new(guard)) }
    }

    /// Creates a claim that excludes no other process.
    pub const fn unguarded() -> Self {
        Self { _guard: None }
    }
}

/// Store of journals. Reads never wait for writes.
pub trait Journal: Send + Sync + 'static {
    /// Appends batches of any boards with one commit to disk. Each succeeds or fails on its own, wholly or not at all;
    /// `Ok` means durable. Returns one result per batch, in the same order.
    fn append_all(&self, batches: Vec<Batch>) -> BoxFuture<'_, Vec<Result<Head, JournalError>>>;

    /// Appends one batch.
    ///
    /// # Errors
    /// [`JournalError::Fenced`] if the board is not in the expected state. After any other error the batch may have
    /// been stored, so read the head before anything else.
    fn append(&self, batch: Batch) -> BoxFuture<'_, Result<Head, JournalError>> {
        Box::pin(async move {
            let missing = || JournalError::Io("the journal gave no answer".to_owned());
            self.append_all(vec![batch]).await.pop().unwrap_or_else(|| Err(missing()))
        })
    }

    /// Returns the board's last record; `None` if there is no such board.
    ///
    /// # Errors
    /// Storage.
    fn head(&self, board: &BoardId) -> Result<Option<Head>, JournalError>;

    /// Returns at most `limit` records after `after` (`None`: from the first), in order. Empty at the end, and for a
    /// board that does not exist.
    ///
    /// # Errors
    /// Storage; [`JournalError::Corrupt`] with the record's number if a row is no record.
    fn records(&self, board: &BoardId, after: Option<Seq>, limit: usize) -> Result<Vec<Record>, JournalError>;

    /// Returns a stored text by its hash, without checking the hash.
    ///
    /// # Errors
    /// Storage; [`JournalError::Corrupt`] if it is not text.
    fn blob(&self, hash: Digest) -> Result<Option<String>, JournalError>;

    /// Returns true if the store has texts: an export has none.
    fn has_texts(&self) -> bool {
        true
    }

    /// Returns the kept snapshots of a board, the newest first. An append of a `snapshot` record adds one, if its
    /// manifest is stored.
    ///
    /// # Errors
    /// Storage; [`JournalError::Corrupt`] if the list cannot be read. The next sweep removes unreadable entries.
    fn snapshots(&self, board: &BoardId) -> Result<Vec<KeptSnapshot>, JournalError>;

    /// Returns a part of a board's snapshots by its hash, without checking the hash.
    ///
    /// # Errors
    /// Storage; [`JournalError::Corrupt`] if it is not text.
    fn part(&self, board: &BoardId, hash: Digest) -> Result<Option<String>, JournalError>;

    /// Returns the cached references of a part of a board's snapshots, in order; `None` if none are cached.
    ///
    /// # Errors
    /// Storage; [`JournalError::Corrupt`] if the cache cannot be read.
    fn cached_refs(&self, _board: &BoardId, _hash: Digest) -> Result<Option<Vec<Digest>>, JournalError> {
        Ok(None)
    }

    /// Stores parts, all or none; they are durable with the next append. Stored ones are left unchanged. Returns count
    /// and bytes of the new ones. Blocks, and delays appends during the write: pass few at a time.
    ///
    /// # Errors
    /// [`JournalError::Fenced`] if the board is in another epoch; [`JournalError::MissingPart`] if a part references
    /// one that is not stored; storage.
    fn store_parts(&self, board: &BoardId, epoch: u64, parts: &[SnapshotPart]) -> Result<NewParts, JournalError>;

    /// Drops all snapshots of a board but the newest `keep`, dropping those in `unusable` first, and removes parts
    /// without references. References are read from the parts; wrong cached ones are repaired. Must not run while
    /// parts of a snapshot are being stored. Blocks.
    ///
    /// # Errors
    /// [`JournalError::Fenced`]; storage.
    fn collect_garbage(
        &self,
        board: &BoardId,
        epoch: u64,
        keep: usize,
        unusable: &[Seq],
    ) -> Result<GarbageCollection, JournalError>;

    /// Redacts values of a board: its `redacted` record, the payloads, the texts and the board's snapshots in one
    /// transaction. The old bytes may remain in the files until [`Journal::purge_erased_bytes`] is done; that it is
    /// pending is stored. Blocks.
    ///
    /// # Errors
    /// As an append; [`JournalError::BadBatch`] if a record does not exist.
    fn erase(&self, erasure: &Erasure) -> Result<Head, JournalError> {
        let what = "this journal erases nothing".to_owned();
        Err(JournalError::BadBatch { board: erasure.batch.board.clone(), what })
    }

    /// Returns the `redacted` record that erased a text, with its board; none if the text was not erased.
    ///
    /// # Errors
    /// Storage.
    fn erased_text(&self, _hash: Digest) -> Result<Option<(BoardId, Seq)>, JournalError> {
        Ok(None)
    }

    /// Rewrites the file if it may still contain erased bytes. Appends wait meanwhile. Blocks.
    ///
    /// # Errors
    /// Storage; [`JournalError::Locked`] if a reader keeps the log in use. The rewrite is still pending then.
    fn purge_erased_bytes(&self) -> Result<(), JournalError> {
        Ok(())
    }

    /// Removes views and prompts that no record names, rewrites the file and frees its unused space. Appends wait
    /// meanwhile. Blocks.
    ///
    /// # Errors
    /// As [`Journal::purge_erased_bytes`].
    fn vacuum(&self) -> Result<VacuumStats, JournalError> {
        Ok(VacuumStats::default())
    }

    /// Removes a board from the journal, and leaves a tombstone. The next [`Journal::vacuum`] removes its texts, if no
    /// other board names them, and its bytes. Blocks.
    ///
    /// # Errors
    /// [`JournalError::Fenced`] if `head` is not its last record; storage.
    fn remove(&self, board: &BoardId, _head: Head, _archive: Option<&str>, _at: Timestamp) -> Result<(), JournalError> {
        Err(JournalError::BadBatch { board: board.clone(), what: "this journal removes nothing".to_owned() })
    }

    /// Returns the boards that were removed and not restored, in order of removal.
    ///
    /// # Errors
    /// Storage.
    fn tombstones(&self) -> Result<Vec<Tombstone>, JournalError> {
        Ok(Vec::new())
    }

    /// Returns the boards with lost acknowledged records. They cannot be read.
    ///
    /// # Errors
    /// Storage.
    fn record_losses(&self) -> Result<Vec<RecordLoss>, JournalError> {
        Ok(Vec::new())
    }

    /// Accepts the loss of a board's records, so that it can be read and resumed from the remaining ones. Blocks.
    ///
    /// # Errors
    /// Storage.
    fn accept_loss(&self, _board: &BoardId) -> Result<(), JournalError> {
        Ok(())
    }

    /// Returns a board's summary without reading its journal.
    ///
    /// # Errors
    /// Storage.
    fn summary(&self, board: &BoardId) -> Result<Option<BoardSummary>, JournalError>;

    /// Returns all boards, the oldest first.
    ///
    /// # Errors
    /// Storage.
    fn boards(&self) -> Result<Vec<BoardSummary>, JournalError>;

    /// Claims the right to run a board. `force` overrides another holder.
    ///
    /// # Errors
    /// [`JournalError::Owned`] if another process holds it; storage.
    fn claim(&self, board: &BoardId, force: bool) -> Result<Claim, JournalError>;

    /// Runs the storage's own integrity check.
    ///
    /// # Errors
    /// [`JournalError::Corrupt`]; storage.
    fn check_storage(&self) -> Result<(), JournalError>;
}
