//! Registry of the calls that wait for inner boards, including deferred calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use patchboard_kernel::id::{BoardId, InvocationId};
use patchboard_kernel::record::Ended;
use patchboard_runtime::agent::Call;
use patchboard_runtime::runtime::{BoardHandle, WeakRuntime};

use super::Inner;

/// Deferred calls, by outer board and invocation.
pub(super) type Deferred = BTreeMap<(BoardId, InvocationId), Arc<Waits>>;

#[derive(Default)]
pub(super) struct Waiting(Mutex<BTreeMap<BoardId, Waited>>);

/// An inner board that calls wait for.
struct Waited {
    /// Number of calls.
    calls: usize,
    outer: BoardId,
}

impl Inner {
    pub(super) fn deferred(&self) -> MutexGuard<'_, Deferred> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the inner board of a deferred call running, until the call is made again or its invocation is closed.
    pub(super) fn keep(&self, waits: Waits) {
        let Some(outer) = waits.outer() else { return };
        let (invocation, waits) = (waits.of.clone(), Arc::new(waits));
        let kept = Arc::downgrade(&waits);
        self.deferred().insert(invocation.clone(), waits);
        let deferred = Arc::clone(&self.deferred);
        tokio::spawn(async move {
            let is_dropped = || kept.strong_count() == 0;
            if is_closed(&outer, invocation.1, is_dropped).await {
                let mut deferred = deferred.lock().unwrap_or_else(PoisonError::into_inner);
                deferred.retain(|_, waits| !std::ptr::eq(Arc::as_ptr(waits), kept.as_ptr()));
            }
        });
    }

    pub(super) fn waits(&self, id: &BoardId, call: &Call) -> Waits {
        let mut boards = self.waiting.lock();
        boards.entry(id.clone()).or_insert_with(|| Waited { calls: 0, outer: call.board.clone() }).calls += 1;
        drop(boards);
        let (waiting, runtime) = (Arc::clone(&self.waiting), self.runtime.get().cloned());
        Waits { waiting, id: id.clone(), of: (call.board.clone(), call.invocation), runtime, grace: self.grace }
    }

    /// Returns the inner boards of calls under way of a board.
    pub(super) fn inside(&self, outer: &BoardId) -> Vec<BoardId> {
        let deferred: BTreeSet<BoardId> = self.deferred().values().map(|waits| waits.id.clone()).collect();
        let waiting = self.waiting.lock();
        let inside = waiting.iter().filter(|(id, waited)| waited.outer == *outer && !deferred.contains(*id));
        inside.map(|(id, _)| id.clone()).collect()
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<BoardId, Waited>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until an invocation is closed. Returns false if the outer board is let go before, or once `is_dropped` holds.
async fn is_closed(outer: &BoardHandle, invocation: InvocationId, is_dropped: impl Fn() -> bool) -> bool {
    let mut records = outer.subscribe(outer.snapshot().head.seq.into());
    while !is_dropped() {
        let snapshot = outer.snapshot();
        if snapshot.ended.is_some_and(Ended::is_final) || snapshot.attempts.iter().all(|(open, _)| *open != invocation)
        {
            return true;
        }
        if !matches!(records.next().await, Some(Ok(_))) {
            return false;
        }
    }
    false
}

/// Call that waits for an inner board. After the last one is dropped, the board is cancelled if it has not ended: at once
/// if the invocation is closed, else after a while in which the next attempt may find it.
pub(super) struct Waits {
    waiting: Arc<Waiting>,
    pub(super) id: BoardId,
    /// The outer board and the invocation.
    of: (BoardId, InvocationId),
    runtime: Option<WeakRuntime>,
    grace: Duration,
}

impl Waits {
    fn outer(&self) -> Option<BoardHandle> {
        self.runtime.as_ref()?.upgrade()?.board(&self.of.0)
    }

    /// Counts the call out. Returns true if it was the last one.
    fn leave(&self) -> bool {
        let mut waiting = self.waiting.lock();
        let Some(waited) = waiting.get_mut(&self.id) else { return true };
        waited.calls = waited.calls.saturating_sub(1);
        if waited.calls == 0 {
            waiting.remove(&self.id);
        }
        !waiting.contains_key(&self.id)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        if !self.leave() {
            return;
        }
        let running = self.runtime.as_ref().and_then(WeakRuntime::upgrade).and_then(|runtime| runtime.board(&self.id));
        let is_over = |board: &BoardHandle| board.snapshot().ended.is_some();
        let (Some(board), Ok(tasks)) = (running.filter(|board| !is_over(board)), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let (waiting, grace, outer, invocation) = (Arc::clone(&self.waiting), self.grace, self.outer(), self.of.1);
        tasks.spawn(async move {
            let closed = async {
                match outer {
                    Some(outer) if is_closed(&outer, invocation, || false).await => {}
                    _ => std::future::pending().await,
                }
            };
            // After the grace the board is cancelled in any case.
            drop(tokio::time::timeout(grace, closed).await);
            if !waiting.lock().contains_key(board.id()) && !is_over(&board) {
                // A board that was closed meanwhile is attached again by its next call.
                if let Err(error) = board.cancel().await {
                    tracing::debug!(board = %board.id(), %error, "a board inside another could not be cancelled");
                }
            }
        });
    }
}
