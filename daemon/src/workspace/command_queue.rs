//! Command queue of one agent: runs its commands in request order, and tracks the answers it had received at each
//! request.
//!
//! An answer is received once it is written out. An answer is lost if its command was cancelled or timed out. Lost
//! answers are reported to the host with the next command, so that nothing in them counts as read.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, MaybeDone, maybe_done};
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

    fn lost_answers(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        // Updates are atomic, so a poisoned lock is safe to use.
        self.lost_answers.lock().unwrap_or_else(PoisonError::into_inner)
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
            unheard: self.turns.lost_answers().iter().copied().collect(),
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
        let mut lost_answers = self.turns.lost_answers();
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
mod tests {
    use std::sync::Arc;

    use futures_util::future::join_all;

    use super::{CommandQueue, Order};

    #[tokio::test]
    async fn who_was_queued_first_is_first_whoever_waits_first() {
        let turns = Arc::new(CommandQueue::new());
        // More commands than a task processes before it yields.
        let queued: Vec<_> = (0..1_000).map(|_| turns.queue()).collect();
        let numbers: Vec<u64> = queued.iter().map(|queued| queued.number).collect();
        let done = Arc::new(std::sync::Mutex::new(Vec::new()));
        join_all(queued.into_iter().rev().map(|queued| async {
            let turn = queued.turn().await.expect("a turn");
            done.lock().expect("whole").push(turn.order().number);
        }))
        .await;
        assert_eq!(*done.lock().expect("whole"), numbers);
    }

    #[tokio::test]
    async fn what_is_not_written_out_is_unheard_until_the_host_knows() {
        let turns = Arc::new(CommandQueue::new());
        let begin = turns.queue().number;
        let order = |number: u64, heard: u64, unheard: &[u64]| Order {
            number: begin + number,
            heard: begin + heard - 1,
            unheard: unheard.iter().map(|number| begin + number).collect(),
        };
        let turn = turns.queue().turn().await.expect("a turn");
        assert_eq!(turn.order(), order(1, 0, &[]));
        turn.mark_answered();
        drop(turn);
        // The host did not answer, so it does not know of the first.
        let turn = turns.queue().turn().await.expect("a turn");
        assert_eq!(turn.order(), order(2, 0, &[1]));
        turn.mark_received();
        drop(turn);
        let queued = turns.queue();
        let turn = turns.queue().turn();
        drop(queued);
        let turn = turn.await.expect("a turn");
        assert_eq!(turn.order(), order(4, 0, &[1, 2]));
        turn.mark_answered();
        turn.mark_received();
        drop(turn);
        assert_eq!(turns.queue().turn().await.expect("a turn").order(), order(5, 5, &[]));
    }
}
