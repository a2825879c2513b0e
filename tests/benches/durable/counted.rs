//! Provides a journal that counts its transactions, so that the baselines can repeat them without a board.

use std::sync::{Mutex, MutexGuard, PoisonError};

use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::Record;
use patchboard_kernel::snapshot::SnapshotPart;
use patchboard_storage::journal::{
    Batch, BoardSummary, BoxFuture, Claim, GarbageCollection, Head, Journal, JournalError, KeptSnapshot, NewParts,
};
use patchboard_storage::sqlite::SqliteJournal;

/// The batches of one transaction: board, first record and number of records of each.
pub(super) type Transaction = Vec<(BoardId, Seq, usize)>;

/// Journal in SQLite that notes the content of each transaction.
pub(super) struct Counted {
    journal: SqliteJournal,
    transactions: Mutex<Vec<Transaction>>,
}

impl Counted {
    pub(super) fn new(journal: SqliteJournal) -> Self {
        Self { journal, transactions: Mutex::default() }
    }

    /// Returns the transactions since the last call.
    pub(super) fn take(&self) -> Vec<Transaction> {
        std::mem::take(&mut *self.lock())
    }

    fn note(&self, batches: &[Batch]) {
        let of = |batch: &Batch| Some((batch.board.clone(), batch.records.first()?.seq, batch.records.len()));
        self.lock().push(batches.iter().filter_map(of).collect());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Transaction>> {
        self.transactions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for Counted {
    fn append_all(&self, batches: Vec<Batch>) -> BoxFuture<'_, Vec<Result<Head, JournalError>>> {
        self.note(&batches);
        self.journal.append_all(batches)
    }

    fn head(&self, board: &BoardId) -> Result<Option<Head>, JournalError> {
        self.journal.head(board)
    }

    fn records(&self, board: &BoardId, after: Option<Seq>, limit: usize) -> Result<Vec<Record>, JournalError> {
        self.journal.records(board, after, limit)
    }

    fn blob(&self, hash: Digest) -> Result<Option<String>, JournalError> {
        self.journal.blob(hash)
    }

    fn snapshots(&self, board: &BoardId) -> Result<Vec<KeptSnapshot>, JournalError> {
        self.journal.snapshots(board)
    }

    fn part(&self, board: &BoardId, hash: Digest) -> Result<Option<String>, JournalError> {
        self.journal.part(board, hash)
    }

    fn store_parts(&self, board: &BoardId, epoch: u64, parts: &[SnapshotPart]) -> Result<NewParts, JournalError> {
        self.journal.store_parts(board, epoch, parts)
    }

    fn collect_garbage(
        &self,
        board: &BoardId,
        epoch: u64,
        keep: usize,
        unusable: &[Seq],
    ) -> Result<GarbageCollection, JournalError> {
        self.journal.collect_garbage(board, epoch, keep, unusable)
    }

    fn summary(&self, board: &BoardId) -> Result<Option<BoardSummary>, JournalError> {
        self.journal.summary(board)
    }

    fn boards(&self) -> Result<Vec<BoardSummary>, JournalError> {
        self.journal.boards()
    }

    fn claim(&self, board: &BoardId, force: bool) -> Result<Claim, JournalError> {
        self.journal.claim(board, force)
    }

    fn check_storage(&self) -> Result<(), JournalError> {
        self.journal.check_storage()
    }
}
