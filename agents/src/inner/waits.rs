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
    pub(super) fn keep(&self, call: &Call, waits: Waits) {
        let Some(outer) =
            self.runtime.get().and_then(WeakRuntime::upgrade).and_then(|runtime| runtime.board(&call.board))
        else {
            return;
        };
        let (invocation, waits) = (call.invocation, Arc::new(waits));
        let kept = Arc::downgrade(&waits);
        self.deferred().insert((call.board.clone(), invocation), waits);
        let deferred = Arc::clone(&self.deferred);
        tokio::spawn(async move {
            let mut records = outer.subscribe(outer.snapshot().head.seq.into());
            loop {
                let snapshot = outer.snapshot();
                let is_open = snapshot.attempts.iter().any(|(open, _)| *open == invocation);
                let is_over = snapshot.ended.is_some_and(Ended::is_final) || !is_open;
                let Some(kept) = kept.upgrade() else { return };
                if is_over {
                    let mut deferred = deferred.lock().unwrap_or_else(PoisonError::into_inner);
                    deferred.retain(|_, waits| !Arc::ptr_eq(waits, &kept));
                    return;
                }
                drop(kept);
                if !matches!(records.next().await, Some(Ok(_))) {
                    return;
                }
            }
        });
    }

    pub(super) fn waits(&self, id: &BoardId, outer: &BoardId) -> Waits {
        let mut boards = self.waiting.lock();
        boards.entry(id.clone()).or_insert_with(|| Waited { calls: 0, outer: outer.clone() }).calls += 1;
        drop(boards);
        let (waiting, runtime) = (Arc::clone(&self.waiting), self.runtime.get().cloned());
        Waits { waiting, id: id.clone(), runtime, grace: self.grace }
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

/// Call that waits for an inner board. After the last one is dropped, the board is cancelled if it has not ended.
pub(super) struct Waits {
    waiting: Arc<Waiting>,
    pub(super) id: BoardId,
    runtime: Option<WeakRuntime>,
    grace: Duration,
}

impl Waits {
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
        let (waiting, grace) = (Arc::clone(&self.waiting), self.grace);
        tasks.spawn(async move {
            tokio::time::sleep(grace).await;
            if !waiting.lock().contains_key(board.id()) && !is_over(&board) {
                // A board that was closed meanwhile is attached again by its next call.
                if let Err(error) = board.cancel().await {
                    tracing::debug!(board = %board.id(), %error, "a board inside another could not be cancelled");
                }
            }
        });
    }
}
