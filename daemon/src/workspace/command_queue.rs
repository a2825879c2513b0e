//! Command queue of one agent: runs its commands in request order, and tracks the answers it had received at each
//! request.
//!
//! An answer is received once it is written out. An answer is lost if its command was cancelled or timed out. Lost
//! answers are reported to the host with the next command, so that nothing in them counts as read.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, MaybeDone, maybe_done};
use parking_lot::Mutex;
use patchboard_workspace::session::Order;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::task::unconstrained;

/// Maximum number of lost answers not yet reported to the host; the oldest are dropped.
const LOST_ANSWERS_MAX: usize = 64;

pub(crate) struct CommandQueue {
    /// Number of the last command requested.
    last_requested: AtomicU64,
    /// Number of the last command with a received answer.
    last_received: AtomicU64,
    /// Commands with lost answers, not yet reported to the host.
    lost_answers: Mutex<BTreeSet<u64>>,
    queue: Arc<AsyncMutex<()>>,
}

pub(crate) struct QueuedCommand {
    turns: Arc<CommandQueue>,
    number: u64,
    last_received: u64,
    coming: MaybeDone<BoxFuture<'static, OwnedMutexGuard<()>>>,
}

/// Command that is running, until this is dropped.
pub(crate) struct RunningCommand {
    turns: Arc<CommandQueue>,
    number: u64,
    last_received: u64,
    is_answered: AtomicBool,
    is_received: AtomicBool,
    _held: OwnedMutexGuard<()>,
}

impl CommandQueue {
    pub(crate) fn new() -> Self {
        // Starts at the current time, above the numbers of an earlier process with the same lease.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let begin = u64::try_from(since.as_millis()).unwrap_or_default();
        let (last_requested, last_received) = (AtomicU64::new(begin), AtomicU64::new(begin));
        Self { last_requested, last_received, lost_answers: Mutex::default(), queue: Arc::default() }
    }

    /// Queues a command behind all earlier ones, and records the answers received so far.
    pub(crate) fn queue(self: &Arc<Self>) -> QueuedCommand {
        let number = self.last_requested.fetch_add(1, Ordering::Relaxed) + 1;
        let last_received = self.last_received.load(Ordering::SeqCst);
        let mut coming = maybe_done(unconstrained(Arc::clone(&self.queue).lock_owned()).boxed());
        // Polled once, so that the lock is granted in request order.
        let _ = (&mut coming).now_or_never();
        QueuedCommand { turns: Arc::clone(self), number, last_received, coming }
    }
}

impl QueuedCommand {
    /// Waits until earlier commands are done.
    pub(crate) async fn turn(mut self) -> Option<Arc<RunningCommand>> {
        (&mut self.coming).await;
        let held = Pin::new(&mut self.coming).take_output()?;
        let Self { turns, number, last_received, .. } = self;
        let (is_answered, is_received) = (AtomicBool::new(false), AtomicBool::new(false));
        Some(Arc::new(RunningCommand { turns, number, last_received, is_answered, is_received, _held: held }))
    }
}

impl RunningCommand {
    pub(crate) fn order(&self) -> Order {
        Order {
            number: self.number,
            heard: self.last_received,
            unheard: self.turns.lost_answers.lock().iter().copied().collect(),
        }
    }

    /// Marks the command as answered by the host.
    pub(crate) fn mark_answered(&self) {
        self.is_answered.store(true, Ordering::SeqCst);
    }

    /// Marks the answer as received, just before it is written out.
    pub(crate) fn mark_received(&self) {
        self.is_received.store(true, Ordering::SeqCst);
        if self.is_answered.load(Ordering::SeqCst) {
            self.turns.last_received.store(self.number, Ordering::SeqCst);
        }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let (is_answered, is_received) = (*self.is_answered.get_mut(), *self.is_received.get_mut());
        let mut lost_answers = self.turns.lost_answers.lock();
        if is_answered {
            // The host's answer acknowledges the lost answers reported with the command.
            lost_answers.clear();
        }
        if !(is_answered && is_received) {
            lost_answers.insert(self.number);
            if lost_answers.len() > LOST_ANSWERS_MAX {
                lost_answers.pop_first();
            }
        }
    }
}

#[cfg(test)]
mod tests;
