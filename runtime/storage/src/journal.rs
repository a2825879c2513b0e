//! Storage interface: an append-only journal per board, and the texts that its records name by hash.
//!
//! Also stores snapshots: parts under their hashes, and the snapshots that records name.
//!
//! Owns the rules for every driver. A batch is appended wholly or not at all, and only if the board's last record and
//! epoch match the writer's expectation. So a process that has lost a board can no longer write to it. Taking a board
//! over is itself an append. The SQLite driver is [`crate::sqlite`].

pub mod error;
pub mod rules;
mod summary;

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use patchboard_kernel::digest::Digest;
use patchboard_kernel::driver::{Batch, Head};
use patchboard_kernel::id::{BoardId, Seq, Timestamp};
use patchboard_kernel::record::Record;
use patchboard_kernel::snapshot::SnapshotPart;

pub use self::error::{JournalError, RecordLoss, Result};
pub use self::summary::{BoardSummary, DECIDES_END};

/// Entries of a list read at once.
const LIST_PAGE: usize = 4096;

/// Boxed future that may borrow.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Answer of a storage operation.
pub type Answer<'a, T> = BoxFuture<'a, Result<T>>;

/// Place in a list that is read in pages: time and board of the last entry read.
pub type ListCursor = (Timestamp, BoardId);

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

/// Redaction to apply: the erased content of a board, with its record. Headers and hashes stay as they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Erasure {
    /// The `redacted` record.
    pub batch: Batch,
    /// New payloads of records before it.
    pub payloads: Vec<NewPayload>,
    /// Hashes of the views and prompts to erase.
    pub texts: Vec<Digest>,
}

/// Payload that replaces the one of a stored record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPayload {
    /// Record that keeps its header and hash.
    pub of: Head,
    /// Its payload from now on.
    pub payload: String,
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
///
/// A record has an immutable part, its header and hash, and a payload that a redaction may replace; texts may be erased
/// as well. Long lists are read in pages.
pub trait Journal: Send + Sync + 'static {
    /// Appends batches of any boards with one commit to disk. Each succeeds or fails on its own, wholly or not at all;
    /// `Ok` means durable. Returns one result per batch, in the same order: [`JournalError::Fenced`] if the board is
    /// not in the expected state. After any other error the batch may have been stored, so read the head before
    /// anything else.
    fn append_all(&self, batches: Vec<Batch>) -> BoxFuture<'_, Vec<Result<Head>>>;

    /// Returns at most `limit` records after `after` (`None`: from the first), in order. Empty at the end, and for a
    /// board that does not exist. Fails with [`JournalError::Corrupt`] with the record's number if a row is no record.
    fn records<'a>(&'a self, board: &'a BoardId, after: Option<Seq>, limit: usize) -> Answer<'a, Vec<Record>>;

    /// Waits until the board has a record after `after` (`None`: any record), appended by any process.
    fn appended<'a>(&'a self, board: &'a BoardId, after: Option<Seq>) -> Answer<'a, ()>;

    /// Returns a stored text by its hash, without checking the hash. Fails with [`JournalError::Corrupt`] if it is not
    /// text.
    fn blob(&self, hash: Digest) -> Answer<'_, Option<String>>;

    /// Returns true if the store has texts: an export has none.
    fn has_texts(&self) -> bool {
        true
    }

    /// Returns the kept snapshots of a board, the newest first. An append of a `snapshot` record adds one, if its
    /// manifest is stored. Fails with [`JournalError::Corrupt`] if the list cannot be read. The next sweep removes
    /// unreadable entries.
    fn snapshots<'a>(&'a self, board: &'a BoardId) -> Answer<'a, Vec<KeptSnapshot>>;

    /// Returns a part of a board's snapshots by its hash, without checking the hash. Fails with
    /// [`JournalError::Corrupt`] if it is not text.
    fn part<'a>(&'a self, board: &'a BoardId, hash: Digest) -> Answer<'a, Option<String>>;

    /// Returns the cached references of a part of a board's snapshots, in order; `None` if none are cached. Fails with
    /// [`JournalError::Corrupt`] if the cache cannot be read.
    fn cached_refs<'a>(&'a self, _board: &'a BoardId, _hash: Digest) -> Answer<'a, Option<Vec<Digest>>> {
        Box::pin(ready(Ok(None)))
    }

    /// Stores parts, all or none; they are durable with the next append. Stored ones are left unchanged. Returns count
    /// and bytes of the new ones. Delays appends during the write: pass few at a time. Fails with
    /// [`JournalError::Fenced`] if the board is in another epoch, and with [`JournalError::MissingPart`] if a part
    /// references one that is not stored.
    fn store_parts<'a>(&'a self, board: &'a BoardId, epoch: u64, parts: Vec<SnapshotPart>) -> Answer<'a, NewParts>;

    /// Drops all snapshots of a board but the newest `keep`, dropping those in `unusable` first, and removes parts
    /// without references. References are read from the parts; wrong cached ones are repaired. Must not run while
    /// parts of a snapshot are being stored.
    fn collect_garbage<'a>(
        &'a self,
        board: &'a BoardId,
        epoch: u64,
        keep: usize,
        unusable: &'a [Seq],
    ) -> Answer<'a, GarbageCollection>;

    /// Redacts values of a board: its `redacted` record, the payloads, the texts and the board's snapshots in one
    /// transaction. The old bytes may remain in the files until [`Journal::purge_erased_bytes`] is done; that it is
    /// pending is stored. Fails with [`JournalError::BadBatch`] if a record does not exist.
    fn erase(&self, erasure: Erasure) -> Answer<'_, Head>;

    /// Returns the `redacted` record that erased a text, with its board; none if the text was not erased.
    fn erased_text(&self, hash: Digest) -> Answer<'_, Option<(BoardId, Seq)>>;

    /// Rewrites the file if it may still contain erased bytes. Appends wait meanwhile. Fails with
    /// [`JournalError::Locked`] if a reader keeps the log in use. The rewrite is still pending then.
    fn purge_erased_bytes(&self) -> Answer<'_, ()>;

    /// Removes views and prompts that no record names, rewrites the file and frees its unused space. Appends wait
    /// meanwhile.
    fn vacuum(&self) -> Answer<'_, VacuumStats>;

    /// Removes a board from the journal, and leaves a tombstone. The next [`Journal::vacuum`] removes its texts, if no
    /// other board names them, and its bytes. Fails with [`JournalError::Fenced`] if `head` is not its last record.
    fn remove<'a>(&'a self, board: &'a BoardId, head: Head, archive: Option<&'a str>, at: Timestamp) -> Answer<'a, ()>;

    /// Returns at most `limit` boards that were removed and not restored, in order of removal, after `after`.
    fn tombstone_page(&self, after: Option<ListCursor>, limit: usize) -> Answer<'_, Vec<Tombstone>>;

    /// Returns the boards with lost acknowledged records. They cannot be read.
    fn record_losses(&self) -> Answer<'_, Vec<RecordLoss>>;

    /// Accepts the loss of a board's records, so that it can be read and resumed from the remaining ones.
    fn accept_loss<'a>(&'a self, board: &'a BoardId) -> Answer<'a, ()>;

    /// Returns a board's summary without reading its journal; `None` if there is no such board.
    fn summary<'a>(&'a self, board: &'a BoardId) -> Answer<'a, Option<BoardSummary>>;

    /// Returns at most `limit` boards in order of creation, after `after`.
    fn board_page(&self, after: Option<ListCursor>, limit: usize) -> Answer<'_, Vec<BoardSummary>>;

    /// Claims the right to run a board. `force` overrides another holder. Fails with [`JournalError::Owned`] if another
    /// process holds it.
    fn claim<'a>(&'a self, board: &'a BoardId, force: bool) -> Answer<'a, Claim>;

    /// Returns true if a living process has claimed the board.
    fn is_claimed<'a>(&'a self, board: &'a BoardId) -> BoxFuture<'a, bool>;

    /// Tests if the journal accepts writes, by writing a value it already holds.
    fn check_writable(&self) -> Answer<'_, ()>;

    /// Runs the storage's own integrity check.
    fn check_storage(&self) -> Answer<'_, ()>;

    /// Appends one batch.
    fn append(&self, batch: Batch) -> Answer<'_, Head> {
        let appended = self.append_all(vec![batch]);
        let missing = || JournalError::Io("the journal gave no answer".to_owned());
        Box::pin(async move { appended.await.pop().unwrap_or_else(|| Err(missing())) })
    }

    /// Returns the record with this number; `None` if the board has none.
    fn record<'a>(&'a self, board: &'a BoardId, seq: Seq) -> Answer<'a, Option<Record>> {
        let found = self.records(board, seq.0.checked_sub(1).map(Seq), 1);
        Box::pin(async move { Ok(found.await?.pop().filter(|record| record.seq == seq)) })
    }

    /// Returns the board's last record; `None` if there is no such board.
    fn head<'a>(&'a self, board: &'a BoardId) -> Answer<'a, Option<Head>> {
        let summary = self.summary(board);
        Box::pin(async move { Ok(summary.await?.map(|summary| summary.head)) })
    }

    /// Returns all boards, the oldest first.
    fn boards(&self) -> Answer<'_, Vec<BoardSummary>> {
        let place = |board: &BoardSummary| (board.created_at, board.id.clone());
        Box::pin(all(place, |after| self.board_page(after, LIST_PAGE)))
    }

    /// Returns all boards that were removed and not restored, in order of removal.
    fn tombstones(&self) -> Answer<'_, Vec<Tombstone>> {
        let place = |tombstone: &Tombstone| (tombstone.at, tombstone.board.clone());
        Box::pin(all(place, |after| self.tombstone_page(after, LIST_PAGE)))
    }
}

/// Reads a list page by page.
async fn all<'a, T: Send>(
    place: impl Fn(&T) -> ListCursor + Send,
    read: impl Fn(Option<ListCursor>) -> Answer<'a, Vec<T>> + Send,
) -> Result<Vec<T>> {
    let mut entries: Vec<T> = Vec::new();
    loop {
        let page = read(entries.last().map(&place)).await?;
        let is_last = page.len() < LIST_PAGE;
        entries.extend(page);
        if is_last {
            return Ok(entries);
        }
    }
}

/// Reader of a board that waits for further records.
pub struct Follower {
    journal: Arc<dyn Journal>,
    board: BoardId,
    after: Option<Seq>,
}

impl Follower {
    /// Follows a board after the record `after`; `None` starts with the first.
    pub const fn new(journal: Arc<dyn Journal>, board: BoardId, after: Option<Seq>) -> Self {
        Self { journal, board, after }
    }

    /// Returns the next records, at least one and at most `limit`; waits for the first. Cancelling the wait loses
    /// nothing. After an error, the next call retries.
    pub async fn next(&mut self, limit: usize) -> Result<Vec<Record>> {
        loop {
            let page = self.journal.records(&self.board, self.after, limit).await?;
            if let Some(last) = page.last() {
                self.after = Some(last.seq);
                return Ok(page);
            }
            self.journal.appended(&self.board, self.after).await?;
        }
    }
}
