//! Provides a journal that writes and then reports a failure, like a disk that fails in between.

use std::path::Path;

use patchboard_kernel::driver::{Batch, Head};
use patchboard_storage::journal::{BoxFuture, Journal, JournalError};
use patchboard_storage::sqlite::SqliteJournal;
use patchboard_storage::testing::Around;
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

impl Around for Failing {
    fn inner(&self) -> &dyn Journal {
        &self.inner
    }

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
}
