//! Subscription to a board's journal: every record, in order, without gaps.
//!
//! For a running board, a record is delivered only after it is published, even if it is durable before. So the
//! snapshot read after a record includes its effect. For a board that is gone, all durable records are delivered.
//!
//! The stream is bounded. A slow reader misses nothing: it catches up from the journal at its own speed, without
//! delaying others.

use std::collections::VecDeque;
use std::sync::Arc;

use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::Record;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use patchboard_storage::journal::{Journal, JournalError};

/// Records read from the journal at once.
pub(crate) const PAGE: usize = 256;

/// Live records of a running board.
pub(crate) struct Live {
    /// Last record published before the subscription.
    pub(crate) head: Option<Seq>,
    pub(crate) records: broadcast::Receiver<Arc<Record>>,
}

/// Subscription to a board's journal.
pub struct Subscription {
    journal: Arc<dyn Journal>,
    board: BoardId,
    /// Number of the next record to deliver.
    next: u64,
    /// Records before this number may be read from the journal.
    readable: u64,
    /// None once the board is gone.
    live: Option<broadcast::Receiver<Arc<Record>>>,
    /// Records read from the journal, to deliver before live ones.
    backlog: VecDeque<Arc<Record>>,
}

impl Subscription {
    /// Creates a subscription after the record `last`. `live` is none if the board is gone.
    pub(crate) fn new(journal: Arc<dyn Journal>, board: BoardId, last: Option<Seq>, live: Option<Live>) -> Self {
        let (readable, live) = match live {
            Some(Live { head, records }) => (after(head), Some(records)),
            None => (u64::MAX, None),
        };
        Self { journal, board, next: after(last), readable, live, backlog: VecDeque::new() }
    }

    /// Returns the next record; `None` once the board is closed and all records are delivered. Cancelling the wait
    /// loses nothing. After an error, the next call retries.
    pub async fn next(&mut self) -> Option<Result<Arc<Record>, JournalError>> {
        loop {
            if let Some(record) = self.backlog.pop_front() {
                self.next = after(Some(record.seq));
                return Some(Ok(record));
            }
            let unread = self.readable.saturating_sub(self.next);
            if unread > 0 {
                let limit = usize::try_from(unread).map_or(PAGE, |unread| unread.min(PAGE));
                let last = self.next.checked_sub(1).map(Seq);
                match self.journal.records(&self.board, last, limit).await {
                    Ok(page) => {
                        if page.len() < limit {
                            // End of the journal: further records arrive live.
                            self.readable = 0;
                        }
                        self.backlog.extend(page.into_iter().map(Arc::new));
                    }
                    Err(error) => return Some(Err(error)),
                }
                continue;
            }
            match self.live.as_mut()?.recv().await {
                Ok(record) if record.seq.0 < self.next => {}
                Ok(record) if record.seq.0 == self.next => {
                    self.next = after(Some(record.seq));
                    return Some(Ok(record));
                }
                // Missing records were published before it.
                Ok(record) => self.readable = after(Some(record.seq)),
                // The oldest remaining record shows how many are missing.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => {
                    // Records of the board's last moments may be durable but not published.
                    self.live = None;
                    self.readable = u64::MAX;
                }
            }
        }
    }
}

/// Returns the number of the record after this one, or of the first.
fn after(last: Option<Seq>) -> u64 {
    last.map(Seq::next).unwrap_or_default().0
}
