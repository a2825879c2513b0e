//! What an agent can use while it works at one attempt: tools that act on things outside of the board.
//!
//! Owns the words between those who have tools (a [`Toolbox`], which knows boards and directories) and those who use them
//! ([`Chat`], [`Script`], recordings). Knows no tool.
//!
//! [`Chat`]: crate::llm::Chat
//! [`Script`]: crate::script::Script

use std::any::Any;
use std::future::Future;
use std::pin::Pin;

use patchboard_kernel::blueprint::{Blueprint, Worker};
use patchboard_kernel::board::Outcome;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::rejection::Code;
use patchboard_runtime::agent::{Call, Failure};
use patchboard_runtime::runtime::{BoardHandle, RuntimeError};
use serde_json::Value;

use crate::{counted, failure};

/// Characters that the result of a tool has at most, where there is room for more.
pub const ROOM_MAX: usize = 64_000;

/// Something that will be there.
pub type Coming<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A tool, as a model is told of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Definition {
    /// What it is called by.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The JSON Schema of its arguments, which are an object.
    pub parameters: Value,
}

/// What came of using a tool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Used {
    /// For who has used it.
    pub text: String,
    /// Whether it did not do what was asked for.
    pub is_error: bool,
}

impl Used {
    /// It did.
    pub fn done(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: false }
    }

    /// It did not, for this reason.
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true }
    }
}

/// The beginning of a text, and how much of it is missing, in so many characters.
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

/// The tools of one attempt. What it remembers of the attempt ends with it.
pub trait Tools: Send {
    /// What there is; the same for the whole attempt.
    fn definitions(&self) -> Vec<Definition>;

    /// What is used from here on until [`Tools::go_on`] was asked for at once: of what came of the first, who asked for the
    /// others did not know.
    fn at_once(&mut self) {}

    /// Uses one. The arguments are JSON, as a model wrote them; what is wrong with them is an error like any other. What it
    /// gives has at most `room` characters: nobody cuts it afterwards, so that what counts as read was shown.
    fn call<'a>(&'a mut self, name: &'a str, arguments: &'a str, room: usize) -> Coming<'a, Used>;

    /// Asks the board whether the attempt may make another call of its model, which may take `reserve` tokens; `usage` is
    /// what the one before cost.
    ///
    /// # Errors
    /// With what the attempt ends: the budgets do not suffice, or nobody waits for it any more.
    fn go_on(&mut self, usage: Option<Usage>, reserve: u64) -> Coming<'_, Result<(), Failure>>;

    /// Gives up what is remembered of the attempt. A provider broke its conversation off, and a later attempt of the
    /// invocation goes on with it.
    fn remembered(&mut self) -> Memory {
        Box::new(())
    }

    /// Goes on with what an earlier attempt gave up.
    fn recall(&mut self, memory: Memory) {
        drop(memory);
    }
}

/// Memory of an attempt: reads of files, for example.
pub type Memory = Box<dyn Any + Send>;

/// Has the tools of all attempts.
pub trait Toolbox: Send + Sync {
    /// What keeps a seat of a blueprint, which has files, from its tools; empty if nothing does.
    fn problems(&self, blueprint: &Blueprint, seat: &Worker) -> Vec<String> {
        let _ = (blueprint, seat);
        Vec::new()
    }

    /// The tools of an attempt; none if its seat has none.
    ///
    /// # Errors
    /// With what the attempt ends: the tools that its seat should have are not there.
    fn open<'a>(&'a self, call: &'a Call) -> Coming<'a, Result<Option<Box<dyn Tools>>, Failure>>;
}

/// Asks the board of an attempt for [`Tools::go_on`].
///
/// # Errors
/// As that.
pub async fn go_on(board: &BoardHandle, call: &Call, usage: Option<Usage>, reserve: u64) -> Result<(), Failure> {
    answered(board.go_on(call.invocation, call.attempt, usage, reserve).await, usage)
}

fn answered(answer: Result<Outcome, RuntimeError>, usage: Option<Usage>) -> Result<(), Failure> {
    let rejection = match answer {
        Ok(Outcome::Refused(rejection)) => rejection,
        Ok(_) => return Ok(()),
        // What ends the attempt for the board is that its actors begin anew.
        Err(error) => return Err(Failure { usage, ..failure(FailureCode::Crashed, error.to_string()) }),
    };
    let code = match rejection.code {
        Code::BudgetExhausted => FailureCode::BudgetExhausted,
        // The board does not listen to it any more.
        _ => FailureCode::Lost,
    };
    let message = rejection.violations.into_iter().next().map(|violation| violation.message);
    Err(Failure { usage, ..failure(code, message.unwrap_or_default()) })
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
            // As many digits are kept free as there may be.
            assert!((most.saturating_sub(1)..=most).contains(&cut(long.clone(), most).chars().count()));
        }
    }

    #[test]
    fn what_the_board_says_is_how_the_attempt_goes_on_or_ends() {
        let usage = Some(Usage { prompt: 3, ..Usage::default() });
        assert_eq!(answered(Ok(Outcome::Continued { seq: Seq(1) }), usage), Ok(()));
        for (code, failure) in
            [(Code::BudgetExhausted, FailureCode::BudgetExhausted), (Code::InvocationClosed, FailureCode::Lost)]
        {
            let rejection = Rejection::new(Stage::Authorization, vec![Violation::new(code, "", "why")]);
            let ended = answered(Ok(Outcome::Refused(rejection)), usage).expect_err("it ends");
            assert_eq!((ended.code, ended.message.as_str(), ended.usage), (failure, "why", usage));
        }
        let ended = answered(Err(RuntimeError::Interrupted("b".into())), usage).expect_err("it ends");
        assert_eq!(ended.code, FailureCode::Crashed);
    }
}
