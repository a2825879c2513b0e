//! Provides a journal that writes and then reports a failure, like a disk that fails in between.

use std::path::Path;

use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::Record;
use patchboard_kernel::snapshot::SnapshotPart;
use patchboard_storage::journal::{
    Batch, BoardSummary, BoxFuture, Claim, GarbageCollection, Head, Journal, JournalError, KeptSnapshot, NewParts,
};
use patchboard_storage::sqlite::SqliteJournal;
use tokio::sync::watch;

use super::PATIENCE;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Every append succeeds.
    Whole,
    /// The next append is stored but reported as failed; all later ones fail.
    LosesOne,
    /// Every append fails.
    Fails,
}

/// Journal that can be made to fail.
pub struct Failing {
    inner: SqliteJournal,
    fault: watch::Sender<Fault>,
}

impl Failing {
    pub(crate) fn open(data: &Path) -> Self {
        Self { inner: SqliteJournal::open(data).expect("a journal"), fault: watch::Sender::new(Fault::Whole) }
    }

    /// Makes the next append be stored but reported as failed. All later ones fail.
    pub fn loses_one(&self) {
        self.fault.send_replace(Fault::LosesOne);
    }

    /// Waits until an append was stored but reported as failed.
    ///
    /// # Panics
    /// If no append is made in time.
    pub async fn has_lost_one(&self) {
        let mut fault = self.fault.subscribe();
        let lost = tokio::time::timeout(PATIENCE, fault.wait_for(|fault| *fault == Fault::Fails)).await;
        drop(lost.expect("something is recorded").expect("the journal is here"));
    }

    /// Makes the journal work again.
    pub fn mended(&self) {
        self.fault.send_replace(Fault::Whole);
    }
}

impl Journal for Failing {
    fn append_all(&self, batches: Vec<Batch>) -> BoxFuture<'_, Vec<Result<Head, JournalError>>> {
        Box::pin(async move {
            let fault = *self.fault.borrow();
            let lost = vec![Err(JournalError::Io("pulled out".to_owned())); batches.len()];
            if fault == Fault::Whole {
                return self.inner.append_all(batches).await;
            }
            if fault == Fault::LosesOne {
                drop(self.inner.append_all(batches).await);
                self.fault.send_replace(Fault::Fails);
            }
            lost
        })
    }
    fn head(&self, board: &BoardId) -> Result<Option<Head>, JournalError> {
        self.inner.head(board)
    }
    fn records(&self, board: &BoardId, after: Option<Seq>, limit: usize) -> Result<Vec<Record>, JournalError> {
        self.inner.records(board, after, limit)
    }
    fn blob(&self, hash: Digest) -> Result<Option<String>, JournalError> {
        self.inner.blob(hash)
    }
    fn snapshots(&self, board: &BoardId) -> Result<Vec<KeptSnapshot>, JournalError> {
        self.inner.snapshots(board)
    }
    fn part(&self, board: &BoardId, hash: Digest) -> Result<Option<String>, JournalError> {
        self.inner.part(board, hash)
    }
    fn cached_refs(&self, board: &BoardId, hash: Digest) -> Result<Option<Vec<Digest>>, JournalError> {
        self.inner.cached_refs(board, hash)
    }
    fn store_parts(&self, board: &BoardId, epoch: u64, parts: &[SnapshotPart]) -> Result<NewParts, JournalError> {
        self.inner.store_parts(board, epoch, parts)
    }
    fn collect_garbage(
        &self,
        board: &BoardId,
        epoch: u64,
        keep: usize,
        unusable: &[Seq],
    ) -> Result<GarbageCollection, JournalError> {
        self.inner.collect_garbage(board, epoch, keep, unusable)
    }
    fn summary(&self, board: &BoardId) -> Result<Option<BoardSummary>, JournalError> {
        self.inner.summary(board)
    }
    fn boards(&self) -> Result<Vec<BoardSummary>, JournalError> {
        self.inner.boards()
    }
    fn claim(&self, board: &BoardId, force: bool) -> Result<Claim, JournalError> {
        self.inner.claim(board, force)
    }
    fn check_storage(&self) -> Result<(), JournalError> {
        self.inner.check_storage()
    }
}
