//! Provides a journal that counts its transactions, so that the baselines can repeat them without a board.

use std::sync::{Mutex, MutexGuard, PoisonError};

use patchboard_kernel::driver::{Batch, Head};
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_storage::journal::{BoxFuture, Journal, JournalError};
use patchboard_storage::sqlite::SqliteJournal;
use patchboard_storage::testing::Around;

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

impl Around for Counted {
    fn inner(&self) -> &dyn Journal {
        &self.journal
    }

    fn append_all(&self, batches: Vec<Batch>) -> BoxFuture<'_, Vec<Result<Head, JournalError>>> {
        self.note(&batches);
        self.journal.append_all(batches)
    }
}
