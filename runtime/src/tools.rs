//! Tools that an agent can use within an attempt, with effects outside of the board.
//!
//! Owns the interface between providers of tools (a [`Toolbox`], which knows boards and directories) and their users
//! (models, scripts, recordings). Defines no tool.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;

use crate::agent::{Call, Failure};
use crate::error::RuntimeError;
use crate::handle::BoardHandle;
use patchboard_kernel::blueprint::{Blueprint, Worker};
use patchboard_kernel::board::Outcome;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::rejection::Code;
use patchboard_kernel::text::counted;
use serde_json::Value;

/// Upper limit of a tool result, in characters, even if there is room for more.
pub const ROOM_MAX: usize = 64_000;

/// Boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Tool definition for a model.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolDefinition {
    /// Name.
    pub name: String,
    /// Purpose.
    pub description: String,
    /// JSON Schema of its arguments, which are an object.
    pub parameters: Value,
}

/// Result of a tool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToolOutput {
    /// Text for the model or script.
    pub text: String,
    /// The tool failed.
    pub is_error: bool,
}

impl ToolOutput {
    /// Creates the result of a tool that succeeded.
    pub fn done(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: false }
    }

    /// Creates the result of a tool that failed.
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true }
    }
}

/// Truncates a text to `most` characters, including a note on the missing length.
pub fn cut(mut text: String, most: usize) -> String {
    if text.chars().nth(most).is_none() {
        return text;
    }
    let chars = text.chars().count();
    let said = |missing: usize| format!("\n… ({})", counted(missing, "more character"));
    let kept = most.saturating_sub(said(chars).chars().count());
    let end = text.char_indices().nth(kept).map_or(text.len(), |(end, _)| end);
    text.truncate(end);
    text.extend(said(chars - kept).chars().take(most - kept));
    text
}

/// Tools of one attempt. Their memory of the attempt ends with it.
pub trait Tools: Send {
    /// Returns the definitions, constant for the whole attempt.
    fn definitions(&self) -> Vec<ToolDefinition>;

    /// Begins a batch: uses until the next [`Tools::checkpoint`] are parallel, requested without knowledge of each
    /// other's results.
    fn begin_batch(&mut self) {}

    /// Runs a tool. `arguments` is the model's JSON; a mistake in it is an ordinary error result. The result has at
    /// most `room` characters: it is not truncated later, so that all content that counts as read was shown.
    fn call<'a>(&'a mut self, name: &'a str, arguments: &'a str, room: usize) -> BoxFuture<'a, ToolOutput>;

    /// Asks the board to allow another call of the model, which may take `reserve` tokens; `usage` is that of the
    /// previous call. A failure ends the attempt: the budgets do not suffice, or the call was cancelled.
    fn checkpoint(&mut self, usage: Option<Usage>, reserve: u64) -> BoxFuture<'_, Result<(), Failure>>;

    /// Hands over the memory of the attempt after a deferral, for a later attempt that continues the conversation.
    fn take_memory(&mut self) -> Memory {
        Box::new(())
    }

    /// Restores the memory of an earlier attempt.
    fn restore_memory(&mut self, memory: Memory) {
        drop(memory);
    }
}

/// Memory of an attempt: reads of files, for example.
pub type Memory = Box<dyn Any + Send>;

/// Provider of the tools of all attempts.
pub trait Toolbox: Send + Sync {
    /// Checks the tools of a seat with files. Returns error messages; empty if there are none.
    fn config_errors(&self, _blueprint: &Blueprint, _worker: &Worker) -> Vec<String> {
        Vec::new()
    }

    /// Opens the tools of an attempt; returns none if its seat has none. A failure ends the attempt: the tools of the
    /// seat are not available.
    fn open<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Option<Box<dyn Tools>>, Failure>>;
}

/// Asks the board of an attempt, for [`Tools::checkpoint`].
pub async fn checkpoint(board: &BoardHandle, call: &Call, usage: Option<Usage>, reserve: u64) -> Result<(), Failure> {
    answered(board.continue_attempt(call.invocation, call.attempt, usage, reserve).await, usage)
}

fn answered(answer: Result<Outcome, RuntimeError>, usage: Option<Usage>) -> Result<(), Failure> {
    let rejection = match answer {
        Ok(Outcome::RejectedUnrecorded(rejection)) => rejection,
        Ok(_) => return Ok(()),
        // The board's actors are restarting, which ends the attempt.
        Err(error) => return Err(Failure { usage, ..Failure::new(FailureCode::Crashed, error.to_string()) }),
    };
    let code = match rejection.code {
        Code::BudgetExhausted => FailureCode::BudgetExhausted,
        // The board has closed the attempt.
        _ => FailureCode::Lost,
    };
    let message = rejection.violations.into_iter().next().map(|violation| violation.message);
    Err(Failure { usage, ..Failure::new(code, message.unwrap_or_default()) })
}

#[cfg(test)]
mod tests {
    use patchboard_kernel::id::Seq;
    use patchboard_kernel::rejection::{Rejection, Stage, Violation};

    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_says_how_much_is_missing() {
        assert_eq!(cut("äöü".into(), 3), "äöü");
        let long = "ä".repeat(100);
        assert_eq!(cut(long.clone(), 40), format!("{}\n… (84 more characters)", "ä".repeat(16)));
        for most in 0_usize..100 {
            // Digits are reserved for the largest possible count.
            assert!((most.saturating_sub(1)..=most).contains(&cut(long.clone(), most).chars().count()));
        }
    }

    #[test]
    fn the_answer_of_the_board_continues_or_ends_the_attempt() {
        let usage = Some(Usage { prompt: 3, ..Usage::default() });
        assert_eq!(answered(Ok(Outcome::Continued { seq: Seq(1) }), usage), Ok(()));
        for (code, failure) in
            [(Code::BudgetExhausted, FailureCode::BudgetExhausted), (Code::InvocationClosed, FailureCode::Lost)]
        {
            let rejection = Rejection::new(Stage::Authorization, vec![Violation::new(code, "", "why")]);
            let ended = answered(Ok(Outcome::RejectedUnrecorded(rejection)), usage).expect_err("it ends");
            assert_eq!((ended.code, ended.message.as_str(), ended.usage), (failure, "why", usage));
        }
        let ended = answered(Err(RuntimeError::Interrupted("b".into())), usage).expect_err("it ends");
        assert_eq!(ended.code, FailureCode::Crashed);
    }
}
