//! The memory bound of waiting invocations.

use super::Board;
use super::apply::request_dedup_key;
use crate::id::IdempotencyKey;
use crate::record::Ended;
use crate::rejection::{Code, Rejection, Stage};

/// Maximum memory of waiting invocations and their signals, in bytes.
const WAITING_BYTES_MAX: u64 = 64 << 20;

impl Board {
    /// Checks the backlog before a signal becomes an input. A retry, recognised by its token, passes, and so does a
    /// signal to a board with a final end: the step itself decides both. Fails with [`Code::BacklogFull`] if waiting
    /// invocations use all the memory they may take.
    pub fn judge_signal(&self, token: Option<&IdempotencyKey>) -> Result<(), Rejection> {
        let is_over = self.ended.is_some_and(Ended::is_final);
        if is_over || token.is_some_and(|token| self.dedup.contains(&request_dedup_key(token))) {
            return Ok(());
        }
        let bytes = self.scheduler.memory(self.given_up.iter());
        if bytes < WAITING_BYTES_MAX {
            return Ok(());
        }
        let waiting = self.scheduler.queue().len() + self.scheduler.delayed().len() + self.scheduler.open().len();
        let message = format!(
            "{waiting} invocations wait with signals that take {bytes} bytes of memory, of at most {WAITING_BYTES_MAX}"
        );
        Err(Rejection::single(Stage::Application, Code::BacklogFull, message))
    }
}
