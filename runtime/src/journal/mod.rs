//! The port to storage: an append-only journal per board, and the texts its records name by hash.
//!
//! It also keeps snapshots: parts under their hashes, and which of them the records name.
//!
//! Owns the rules every driver keeps. A batch is appended wholly or not at all, and only if the board's last record
//! and epoch are what the writer believes they are, so that a process that has lost a board can no longer write to it.
//! Taking a board over is itself an append. The SQLite driver is [`sqlite`]; `group` shares one commit among boards.

pub mod error;
pub(crate) mod group;
pub mod sqlite;
mod summary;
#[cfg(test)]
pub(crate) mod testing;

use std::future::Future;
use std::pin::Pin;

use patchboard_kernel::board::Blob;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, Seq, Timestamp};
use patchboard_kernel::owner::Append;
use patchboard_kernel::record::Record;
use patchboard_kernel::snapshot::Part;

pub use self::error::{JournalError, Lost};
pub use self::summary::BoardSummary;
pub(crate) use summary::DECIDES_END;

/// A future that owns nothing but what it borrows.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The last record of a board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Its number.
    pub seq: Seq,
    /// Its hash, which stands for everything before it too.
    pub hash: Digest,
}

/// Records to append together, with the texts they name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The board.
    pub board: BoardId,
    /// The writer's epoch: the board's own, or a higher one that an `epoch` record in this batch claims.
    pub epoch: u64,
    /// The board's last record as the writer knows it; `None`: there must be no such board.
    pub expected: Option<Head>,
    /// What to append, in order; not empty, and numbered from the one after `expected`.
    pub records: Vec<Record>,
    /// Texts the records name by hash. Those already stored are left as they are.
    pub blobs: Vec<Blob>,
}

impl From<Append> for Batch {
    fn from(append: Append) -> Self {
        let Append { board, epoch, expected, records, blobs } = append;
        Self { board, epoch, expected: expected.map(|(seq, hash)| Head { seq, hash }), records, blobs }
    }
}

/// A snapshot that a record of the board names and whose parts are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptSnapshot {
    /// The last record it includes.
    pub of: Seq,
    /// Its digest; the manifest is the part with this hash.
    pub digest: Digest,
    /// The record that names it.
    pub record: Seq,
}

/// Parts that had not been stored before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewParts {
    /// How many.
    pub count: u64,
    /// Bytes of their texts.
    pub bytes: u64,
}

/// What a sweep left and took away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Parts that the snapshots kept are made of.
    pub kept: u64,
    /// Parts removed.
    pub removed: u64,
}

/// What is erased of a board, together with the record that says so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Erasure {
    /// The `redacted` record.
    pub batch: Batch,
    /// Records before it, with what stands in their payloads from now on.
    pub records: Vec<Record>,
    /// Hashes of the views and prompts that go.
    pub texts: Vec<Digest>,
}

/// What is left of a board that was taken out of the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tombstone {
    /// The board.
    pub board: BoardId,
    /// Its blueprint's name.
    pub name: String,
    /// Its last record, whose hash stands for all.
    pub head: Head,
    /// When it was taken out.
    pub at: Timestamp,
    /// The file it is in; none if it was deleted.
    pub archive: Option<String>,
}

/// What the file took before and after it was written anew, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vacuumed {
    /// Before, with its log.
    pub before: u64,
    /// After.
    pub after: u64,
    /// Views and prompts that no record names, and that were removed.
    pub texts: u64,
}

/// The right to run a board in this process; given up when dropped, or when the process dies.
///
/// It only keeps two processes from working against each other by mistake. What protects the data is the epoch.
pub struct Claim {
    _guard: Option<Box<dyn Send + Sync>>,
}

impl Claim {
    /// A claim that lasts as long as `guard` does.
    pub fn held_by(guard: impl Send + Sync + 'static) -> Self {
        Self { _guard: Some(Box::new(guard)) }
    }

    /// A claim that excludes nobody.
    pub const fn free() -> Self {
        Self { _guard: None }
    }
}

/// Stores journals. Reading never waits for writing.
pub trait Journal: Send + Sync + 'static {
    /// Appends batches of any boards with one commit to disk. Each succeeds or fails on its own, wholly or not at all;
    /// `Ok` only when it is durable. One answer per batch, in the same order.
    fn append_all(&self, batches: Vec<Batch>) -> BoxFuture<'_, Vec<Result<Head, JournalError>>>;

    /// Appends one batch.
    ///
    /// # Errors
    /// [`JournalError::Fenced`] if the board is not where the batch expects it; after any other error the batch may
    /// nevertheless have been stored, so read the head before anything else.
    fn append(&self, batch: Batch) -> BoxFuture<'_, Result<Head, JournalError>> {
        Box::pin(async move {
            let missing = || JournalError::Io("the journal gave no answer".to_owned());
            self.append_all(vec![batch]).await.pop().unwrap_or_else(|| Err(missing()))
        })
    }

    /// The board's last record; `None` if there is no such board.
    ///
    /// # Errors
    /// Storage.
    fn head(&self, board: &BoardId) -> Result<Option<Head>, JournalError>;

    /// At most `limit` records after `after` (`None`: from the first), in order. Empty at the end, and for a board that
    /// does not exist.
    ///
    /// # Errors
    /// Storage; [`JournalError::Corrupt`] with the record's number if a row is no record.
    fn records(&self, board: &BoardId, after: Option<Seq>, limit: usize) -> Result<Vec<Record>, JournalError>;

    /// A stored text by its hash, which is not checked here.
    ///
    /// # Errors
    /// Storage; [`JournalError::Corrupt`] if it is not text.
    fn blob(&self, hash: Digest) -> Result<Option<String>, JournalError>;

    /// Whether it keeps texts: an export has none.
    fn has_texts(&self) -> bool {
        true
    }

    /// The snapshots of a board that are kept, the newest first. An append that holds a `snapshot` record adds one, if
    /// its manifest is stored.
    ///
    /// # Errors
    /// Storage; [`JournalError::Corrupt`] if the list cannot be read. The next sweep takes out what cannot.
    fn snapshots(&self, board: &BoardId) -> Result<Vec<KeptSnapshot>, JournalError>;

    /// A part of a board's snapshots by its hash, which is not checked here.
    ///
    /// # Errors
    /// Storage; [`JournalError::Corrupt`] if it is not text.
    fn part(&self, board: &BoardId, hash: Digest) -> Result<Option<String>, JournalError>;

    /// Which parts storage has noted that a part of a board's snapshots names, in order, so that it knows without reading
    /// it; `None` if it has noted nothing.
    ///
    /// # Errors
    /// Storage; [`JournalError::Corrupt`] if the note cannot be read.
    fn noted_names(&self, _board: &BoardId, _hash: Digest) -> Result<Option<Vec<Digest>>, JournalError> {
        Ok(None)
    }

    /// Stores parts, all or none; they are durable with the next append. Those already stored are left as they are.
    /// Returns what of it is new. Blocks, and keeps appends waiting while it writes: hand over few at a time.
    ///
    /// # Errors
    /// [`JournalError::Fenced`] if the board is in another epoch; [`JournalError::MissingPart`] if a part names one that
    /// is not stored; storage.
    fn store_parts(&self, board: &BoardId, epoch: u64, parts: &[Part]) -> Result<NewParts, JournalError>;

    /// Gives up all snapshots of a board but the newest `keep` and those in `unusable`, which go first, and removes
    /// parts that no other names; what parts name is read from them, and notes that say otherwise are mended. Must not run
    /// while parts of a snapshot are being stored. Blocks.
    ///
    /// # Errors
    /// [`JournalError::Fenced`]; storage.
    fn sweep(&self, board: &BoardId, epoch: u64, keep: usize, unusable: &[Seq]) -> Result<Swept, JournalError>;

    /// Erases values of a board: its `redacted` record, the payloads, the texts and the board's snapshots in one
    /// transaction. What was there may still be found in the files until [`Journal::scrub`] is done, which is remembered.
    /// Blocks.
    ///
    /// # Errors
    /// As an append; [`JournalError::BadBatch`] if a record is not there.
    fn erase(&self, erasure: &Erasure) -> Result<Head, JournalError> {
        let what = "this journal erases nothing".to_owned();
        Err(JournalError::BadBatch { board: erasure.batch.board.clone(), what })
    }

    /// The `redacted` record that took a text away, with its board; none if none did.
    ///
    /// # Errors
    /// Storage.
    fn erased_text(&self, _hash: Digest) -> Result<Option<(BoardId, Seq)>, JournalError> {
        Ok(None)
    }

    /// Writes the file anew if anything that was erased may still be found in it. Appends wait meanwhile. Blocks.
    ///
    /// # Errors
    /// Storage; [`JournalError::Locked`] if somebody keeps reading the log. It is then still to be done.
    fn scrub(&self) -> Result<(), JournalError> {
        Ok(())
    }

    /// Removes views and prompts that no record names, writes the file anew and gives its space back. Appends wait
    /// meanwhile. Blocks.
    ///
    /// # Errors
    /// As [`Journal::scrub`].
    fn vacuum(&self) -> Result<Vacuumed, JournalError> {
        Ok(Vacuumed::default())
    }

    /// Takes a board out of the journal, and leaves a tombstone. Its texts go with the next [`Journal::vacuum`], if no other
    /// board names them, and so do its bytes. Blocks.
    ///
    /// # Errors
    /// [`JournalError::Fenced`] if `head` is not its last record; storage.
    fn remove(&self, board: &BoardId, _head: Head, _archive: Option<&str>, _at: Timestamp) -> Result<(), JournalError> {
        Err(JournalError::BadBatch { board: board.clone(), what: "this journal removes nothing".to_owned() })
    }

    /// Boards that were taken out and are not back, the first one first.
    ///
    /// # Errors
    /// Storage.
    fn tombstones(&self) -> Result<Vec<Tombstone>, JournalError> {
        Ok(Vec::new())
    }

    /// Boards of which records were acknowledged and are not there any more. They cannot be read.
    ///
    /// # Errors
    /// Storage.
    fn lost(&self) -> Result<Vec<Lost>, JournalError> {
        Ok(Vec::new())
    }

    /// Gives up the records of a board that are lost, and lets it be read and go on from what is there. Blocks.
    ///
    /// # Errors
    /// Storage.
    fn accept_loss(&self, _board: &BoardId) -> Result<(), JournalError> {
        Ok(())
    }

    /// What is known of a board without reading its journal.
    ///
    /// # Errors
    /// Storage.
    fn summary(&self, board: &BoardId) -> Result<Option<BoardSummary>, JournalError>;

    /// All boards, the oldest first.
    ///
    /// # Errors
    /// Storage.
    fn boards(&self) -> Result<Vec<BoardSummary>, JournalError>;

    /// Claims the right to run a board. `force` takes it whoever holds it.
    ///
    /// # Errors
    /// [`JournalError::Owned`] if somebody else holds it; storage.
    fn claim(&self, board: &BoardId, force: bool) -> Result<Claim, JournalError>;

    /// Lets the storage check its own structure.
    ///
    /// # Errors
    /// [`JournalError::Corrupt`]; storage.
    fn check_storage(&self) -> Result<(), JournalError>;
}
