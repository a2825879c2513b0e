//! Releases answers one at a time: the next one after the outcome of the last is in the journal.
//!
//! Without it, two answers that complete almost together may overtake each other on their way to the kernel. The
//! recording would then have the wrong order. A runtime that never calls [`Agent::settled`] only slows answers down.
//!
//! [`Agent::settled`]: patchboard_runtime::agent::Agent::settled

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use patchboard_kernel::id::{BoardId, Token};
use patchboard_runtime::agent::Call;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Time limit for an outcome, once the runtime has reported any.
const TOLD: Duration = Duration::from_secs(2);

/// Time limit for an outcome before the runtime has reported any.
const UNTOLD: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Last released answer and its time, while its outcome is unknown.
    passed: Option<(BoardId, Token, Instant)>,
    /// True once the runtime has reported an outcome.
    told: bool,
}

impl Gate {
    /// Waits for the outcome of the previous answer, then makes this call the one to wait for.
    pub(super) async fn pass(&self, call: &Call) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let end = {
                let mut state = self.state();
                let patience = if state.told { TOLD } else { UNTOLD };
                match &state.passed {
                    Some((_, _, since)) if Instant::now() < *since + patience => *since + patience,
                    Some(_) | None => {
                        state.passed = Some((call.board.clone(), call.token.clone(), Instant::now()));
                        return;
                    }
                }
            };
            tokio::select! {
                () = &mut changed => {}
                () = tokio::time::sleep_until(end) => {}
            }
        }
    }

    /// Like [`Self::pass`], for a step of an attempt that ends when the returned guard is dropped.
    pub(super) async fn passage<'a>(&'a self, call: &'a Call) -> Passage<'a> {
        self.pass(call).await;
        Passage { gate: self, call }
    }

    /// Records that the outcome of an answer is known.
    pub(super) fn settled(&self, board: &BoardId, token: &Token) {
        self.state().told = true;
        self.release(board, token);
    }

    fn release(&self, board: &BoardId, token: &Token) {
        let mut state = self.state();
        if state.passed.as_ref().is_some_and(|(its_board, its_token, _)| its_board == board && its_token == token) {
            state.passed = None;
            drop(state);
            self.changed.notify_waiters();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard that holds back all other answers and steps until it is dropped.
pub(super) struct Passage<'a> {
    gate: &'a Gate,
    call: &'a Call,
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.gate.release(&self.call.board, &self.call.token);
    }
}
