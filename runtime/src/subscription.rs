//! A reader's place in a board's journal: every durable record, in order, without gaps.
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
const PAGE: usize = 256;

/// A reader's place in a board's journal.
pub struct Subscription {
    journal: Arc<dyn Journal>,
    board: BoardId,
    /// The last record delivered.
    last: Option<Seq>,
    /// None once the board is gone.
    live: Option<broadcast::Receiver<Arc<Record>>>,
    /// Read from the journal, to be delivered before anything live.
    backlog: VecDeque<Arc<Record>>,
    /// Whether the journal may hold more that the live stream does not.
    is_behind: bool,
}

impl Subscription {
    pub(crate) const fn new(
        journal: Arc<dyn Journal>,
        board: BoardId,
        last: Option<Seq>,
        live: Option<broadcast::Receiver<Arc<Record>>>,
    ) -> Self {
        Self { journal, board, last, live, backlog: VecDeque::new(), is_behind: true }
    }

    /// The next record; `None` once the board is closed and everything has been delivered. Cancelling the wait loses
    /// nothing.
    ///
    /// # Errors
    /// Storage, if catching up failed; the next call tries again.
    pub async fn next(&mut self) -> Option<Result<Arc<Record>, JournalError>> {
        loop {
            if let Some(record) = self.backlog.pop_front() {
                self.last = Some(record.seq);
                return Some(Ok(record));
            }
            if self.is_behind {
                match self.journal.records(&self.board, self.last, PAGE) {
                    Ok(page) => {
                        // A short page was the end: what became durable since is in the live stream.
                        self.is_behind = page.len() == PAGE;
                        self.backlog.extend(page.into_iter().map(Arc::new));
                    }
                    Err(error) => return Some(Err(error)),
                }
                continue;
            }
            let live = self.live.as_mut()?;
            match live.recv().await {
                Ok(record) if Some(record.seq) <= self.last => {}
                Ok(record) if record.seq == self.last.map(Seq::next).unwrap_or_default() => {
                    self.last = Some(record.seq);
                    return Some(Ok(record));
                }
                Ok(_) | Err(RecvError::Lagged(_)) => self.is_behind = true,
                Err(RecvError::Closed) => {
                    // What became durable as the board went may not have been published.
                    self.live = None;
                    self.is_behind = true;
                }
            }
        }
    }
}
