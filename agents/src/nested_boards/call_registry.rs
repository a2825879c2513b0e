//! Registry of the calls that wait for inner boards, including deferred calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use patchboard_kernel::id::{BoardId, InvocationId};
use patchboard_kernel::record::Ended;
use patchboard_runtime::agent::Call;
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::runtime::WeakRuntime;

use super::NestedBoards;

/// Values by outer board and another key.
type ByOuter<K, V> = BTreeMap<BoardId, BTreeMap<K, V>>;

/// Deferred calls, by outer board and invocation.
#[derive(Clone, Default)]
pub(super) struct DeferredCalls(Arc<Mutex<ByOuter<InvocationId, Arc<CallRegistration>>>>);

/// Number of calls that wait for an inner board, by outer and inner board.
#[derive(Clone, Default)]
pub(super) struct CallCounts(Arc<Mutex<ByOuter<BoardId, usize>>>);

impl NestedBoards {
    /// Keeps the inner board of a deferred call running until the next attempt of the call or the end of its
    /// invocation.
    pub(super) fn keep_deferred(&self, waits: CallRegistration) {
        let Some(outer) = waits.outer.clone() else { return };
        let (invocation, waits) = (waits.invocation, Arc::new(waits));
        let kept = Arc::downgrade(&waits);
        let deferred = self.deferred.clone();
        deferred.0.lock().entry(outer.id().clone()).or_default().insert(invocation, waits);
        tokio::spawn(async move {
            if is_closed(&outer, invocation, || kept.strong_count() == 0).await {
                let mut deferred = deferred.0.lock();
                let of_outer = deferred.get_mut(outer.id());
                let is_it = |waits: &Arc<CallRegistration>| std::ptr::eq(Arc::as_ptr(waits), kept.as_ptr());
                if let Some(of_outer) = of_outer.filter(|of_outer| of_outer.get(&invocation).is_some_and(is_it)) {
                    of_outer.remove(&invocation);
                }
            }
        });
    }

    pub(super) fn register_call(&self, id: &BoardId, call: &Call) -> CallRegistration {
        *self.waiting.0.lock().entry(call.board.clone()).or_default().entry(id.clone()).or_default() += 1;
        let runtime = self.runtime.get().cloned();
        let outer = runtime.as_ref().and_then(WeakRuntime::upgrade).and_then(|runtime| runtime.board(&call.board));
        CallRegistration {
            waiting: self.waiting.clone(),
            id: id.clone(),
            outer_id: call.board.clone(),
            outer,
            invocation: call.invocation,
            runtime,
            grace: self.grace,
        }
    }

    /// Returns the inner boards of a board's open calls, without deferred ones.
    pub(super) fn inner_boards(&self, outer: &BoardId) -> Vec<BoardId> {
        let deferred = self.deferred.boards_of(outer);
        let waiting = self.waiting.0.lock();
        let inside = waiting.get(outer).into_iter().flat_map(BTreeMap::keys);
        inside.filter(|id| !deferred.contains(*id)).cloned().collect()
    }
}

impl DeferredCalls {
    fn boards_of(&self, outer: &BoardId) -> BTreeSet<BoardId> {
        self.0.lock().get(outer).into_iter().flat_map(BTreeMap::values).map(|waits| waits.id.clone()).collect()
    }

    pub(super) fn board(&self, outer: &BoardId, invocation: InvocationId) -> Option<BoardId> {
        Some(self.0.lock().get(outer)?.get(&invocation)?.id.clone())
    }

    pub(super) fn take(&self, outer: &BoardId, invocation: InvocationId) -> Option<Arc<CallRegistration>> {
        self.0.lock().get_mut(outer)?.remove(&invocation)
    }

    pub(super) fn forget(&self, outer: &BoardId) {
        let forgotten = self.0.lock().remove(outer);
        drop(forgotten);
    }
}

impl CallCounts {
    fn has(&self, outer: &BoardId, id: &BoardId) -> bool {
        self.0.lock().get(outer).is_some_and(|inside| inside.contains_key(id))
    }

    /// Counts a call out. Returns true if it was the last one of its inner board.
    fn leave(&self, outer: &BoardId, id: &BoardId) -> bool {
        let mut waiting = self.0.lock();
        let Some(inside) = waiting.get_mut(outer) else { return true };
        let calls = inside.get(id).map_or(0, |calls| calls.saturating_sub(1));
        if calls > 0 {
            inside.insert(id.clone(), calls);
            return false;
        }
        inside.remove(id);
        if inside.is_empty() {
            waiting.remove(outer);
        }
        true
    }
}

/// Waits until an invocation is closed. Returns false if the outer board is closed before, or once `is_dropped` holds.
async fn is_closed(outer: &BoardHandle, invocation: InvocationId, is_dropped: impl Fn() -> bool) -> bool {
    let mut records = outer.subscribe(outer.status().head.seq.into());
    while !is_dropped() {
        let snapshot = outer.status();
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

/// Registration of a call with an inner board. Dropping the last one cancels a board that has not ended: at once if
/// the invocation is closed, otherwise after the grace period. If the outer board is closed, the inner one continues.
pub(super) struct CallRegistration {
    waiting: CallCounts,
    pub(super) id: BoardId,
    outer_id: BoardId,
    outer: Option<BoardHandle>,
    invocation: InvocationId,
    runtime: Option<WeakRuntime>,
    grace: Duration,
}

impl Drop for CallRegistration {
    fn drop(&mut self) {
        if !self.waiting.leave(&self.outer_id, &self.id) {
            return;
        }
        let running = self.runtime.as_ref().and_then(WeakRuntime::upgrade).and_then(|runtime| runtime.board(&self.id));
        let is_over = |board: &BoardHandle| board.status().ended.is_some();
        let (Some(board), Some(outer), Ok(tasks)) =
            (running.filter(|board| !is_over(board)), self.outer.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let (waiting, grace, invocation) = (self.waiting.clone(), self.grace, self.invocation);
        tasks.spawn(async move {
            let is_let_go = tokio::time::timeout(grace, is_closed(&outer, invocation, || false)).await == Ok(false);
            if !is_let_go && !waiting.has(outer.id(), board.id()) && !is_over(&board) {
                // The next call of a board that was closed meanwhile attaches it again.
                if let Err(error) = board.cancel().await {
                    tracing::debug!(board = %board.id(), %error, "a board inside another could not be cancelled");
                }
            }
        });
    }
}
