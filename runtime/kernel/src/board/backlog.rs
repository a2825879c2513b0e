//! The bound of what waits for workers.

use super::Board;
use super::apply::request_key;
use crate::id::Token;
use crate::record::Ended;
use crate::rejection::{Code, Rejection, Stage, Violation};

/// The most memory of the invocations that wait and the signals that they hold, in bytes.
const WAITING_BYTES_MAX: u64 = 64 << 20;

impl Board {
    /// Judges a signal before it is an input. A repetition, by its token, is judged as an input, and so is one to a board that
    /// has ended for good.
    ///
    /// # Errors
    /// [`Code::BacklogFull`] if invocations wait with as much memory as they may take.
    pub fn judge_signal(&self, token: Option<&Token>) -> Result<(), Rejection> {
        let is_over = self.ended.is_some_and(Ended::is_final);
        if is_over || token.is_some_and(|token| self.tokens.knows(&request_key(token))) {
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
        Err(Rejection::new(Stage::Application, vec![Violation::new(Code::BacklogFull, "", message)]))
    }
}
