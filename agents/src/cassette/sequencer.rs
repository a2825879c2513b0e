//! Releases answers one at a time: the next one after the outcome of the last is in the journal.
//!
//! Without it, two answers that complete almost together may overtake each other on their way to the kernel. The
//! recording would then have the wrong order. A runtime that never calls [`Agent::on_settled`] only slows answers down.
//!
//! [`Agent::on_settled`]: patchboard_runtime::agent::Agent::on_settled

use std::pin::pin;
use std::time::Duration;

use parking_lot::Mutex;
use patchboard_kernel::id::{BoardId, IdempotencyKey};
use patchboard_runtime::agent::Call;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Time limit for an outcome, once the runtime has reported any.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit for an outcome before the runtime has reported any.
const FIRST_OUTCOME_TIMEOUT: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Sequencer {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Last released answer and its time, while its outcome is unknown.
    released: Option<(BoardId, IdempotencyKey, Instant)>,
    has_outcome: bool,
}

impl Sequencer {
    /// Waits for the outcome of the previous answer, then makes this call the one to wait for.
    pub(super) async fn wait_for_outcome(&self, call: &Call) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let end = {
                let mut state = self.state.lock();
                let patience = if state.has_outcome { OUTCOME_TIMEOUT } else { FIRST_OUTCOME_TIMEOUT };
                match &state.released {
                    Some((_, _, since)) if Instant::now() < *since + patience => *since + patience,
                    Some(_) | None => {
                        state.released = Some((call.board.clone(), call.idempotency_key.clone(), Instant::now()));
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

    /// Like [`Self::wait_for_outcome`], for a step of an attempt that ends when the returned guard is dropped.
    pub(super) async fn passage<'a>(&'a self, call: &'a Call) -> SequenceGuard<'a> {
        self.wait_for_outcome(call).await;
        SequenceGuard { sequencer: self, call }
    }

    /// Records that the outcome of an answer is known.
    pub(super) fn settled(&self, board: &BoardId, token: &IdempotencyKey) {
        self.state.lock().has_outcome = true;
        self.release(board, token);
    }

    fn release(&self, board: &BoardId, token: &IdempotencyKey) {
        let mut state = self.state.lock();
        if state.released.as_ref().is_some_and(|(its_board, its_token, _)| its_board == board && its_token == token) {
            state.released = None;
            drop(state);
            self.changed.notify_waiters();
        }
    }
}

/// Guard that holds back all other answers and steps until it is dropped.
pub(super) struct SequenceGuard<'a> {
    sequencer: &'a Sequencer,
    call: &'a Call,
}

impl Drop for SequenceGuard<'_> {
    fn drop(&mut self) {
        self.sequencer.release(&self.call.board, &self.call.idempotency_key);
    }
}
