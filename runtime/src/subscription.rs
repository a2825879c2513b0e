//! A reader's place in a board's journal: every record, in order, without gaps.
//!
//! Of a board that goes on, nothing is delivered before it is published, also if it is durable already: whoever looks at
//! the board after a record sees what the record did. Of a board that is gone, everything durable is delivered.
//!
//! The stream is bounded. A reader that falls behind misses nothing: it catches up from the journal at its own speed
//! and delays nobody.

use std::collections::VecDeque;
use std::sync::Arc;

use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::Record;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::journal::{Journal, JournalError};

/// Records read from the journal at once.
pub(crate) const PAGE: usize = 256;

/// The records of a board that goes on, from a moment on.
pub(crate) struct Live {
    /// The last record that had been published then.
    pub(crate) head: Option<Seq>,
    /// Those after it.
    pub(crate) records: broadcast::Receiver<Arc<Record>>,
}

/// A reader's place in a board's journal.
pub struct Subscription {
    journal: Arc<dyn Journal>,
    board: BoardId,
    /// The number of the record to be delivered next.
    next: u64,
    /// Records before this number may be read from the journal.
    readable: u64,
    /// None once the board is gone.
    live: Option<broadcast::Receiver<Arc<Record>>>,
    /// Read from the journal, to be delivered before anything live.
    backlog: VecDeque<Arc<Record>>,
}

impl Subscription {
    /// `live`: none if the board is gone.
    pub(crate) fn new(journal: Arc<dyn Journal>, board: BoardId, last: Option<Seq>, live: Option<Live>) -> Self {
        let (readable, live) = match live {
            Some(Live { head, records }) => (after(head), Some(records)),
            None => (u64::MAX, None),
        };
        Self { journal, board, next: after(last), readable, live, backlog: VecDeque::new() }
    }

    /// The next record; `None` once the board is closed and everything has been delivered. Cancelling the wait loses
    /// nothing.
    ///
    /// # Errors
    /// Storage, if catching up failed; the next call tries again.
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
                match self.journal.records(&self.board, last, limit) {
                    Ok(page) => {
                        if page.len() < limit {
                            // That was the end: more comes only live.
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
                // What is missing was published before it.
                Ok(record) => self.readable = after(Some(record.seq)),
                // The oldest one that is left tells how much is missing.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => {
                    // What became durable as the board went may not have been published.
                    self.live = None;
                    self.readable = u64::MAX;
                }
            }
        }
    }
}

/// The number of the record after this one; without one, of the first.
fn after(last: Option<Seq>) -> u64 {
    last.map(Seq::next).unwrap_or_default().0
}
