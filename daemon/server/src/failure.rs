//! Exit codes of commands (SPEC section 12), and errors with a stable code and a message.

use std::fmt;
use std::io;
use std::process::ExitCode;

use patchboard_kernel::board::BoardError;
use patchboard_kernel::rejection::Code;
use patchboard_runtime::error::RuntimeError;
use patchboard_storage::journal::JournalError;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::text::one_line;

/// Exit code of a command that ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Success.
    Done = 0,
    /// Failure.
    Failed = 1,
    /// Invalid command line, or rejected blueprint.
    InvalidInput = 2,
    /// Board stopped by a breaker or a limit.
    Stopped = 3,
    /// Board stalled: no work is left, and it is not done.
    Quiescent = 4,
    /// Person required: the board is paused, or waits for an answer.
    Waiting = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Reason that a command did not finish.
#[derive(Debug)]
pub enum Failure {
    /// Error to report to the user.
    Error(Box<CliError>),
    /// Reader of stdout has closed it, so no report is possible.
    StdoutClosed,
}

/// Error as shown to users.
#[derive(Debug)]
pub struct CliError {
    /// Exit code of the process.
    pub exit: Exit,
    /// Stable name.
    pub code: &'static str,
    /// Description of the error.
    pub message: String,
    /// Suggested fix.
    pub help: Option<String>,
    /// Findings or records, for `--output json`.
    pub(crate) details: Map<String, Value>,
}

/// Result of a command.
pub type Outcome = Result<Exit, Failure>;

impl Failure {
    /// Creates an error for a command that could not do its work (exit 1).
    pub fn failed(code: &'static str, message: impl fmt::Display) -> Self {
        Self::with_exit(Exit::Failed, code, message)
    }

    /// Creates an error for an invalid command line, a missing object or a rejected blueprint (exit 2).
    pub fn invalid_input(code: &'static str, message: impl fmt::Display) -> Self {
        Self::with_exit(Exit::InvalidInput, code, message)
    }

    fn with_exit(exit: Exit, code: &'static str, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self::Error(Box::new(CliError { exit, code, message, help: None, details: Map::new() }))
    }

    /// Adds a suggested fix.
    #[must_use]
    pub fn help(mut self, help: impl fmt::Display) -> Self {
        if let Self::Error(error) = &mut self {
            error.help = Some(help.to_string());
        }
        self
    }

    /// Adds a member to the error's JSON form.
    #[must_use]
    pub fn detail(mut self, name: &str, value: Value) -> Self {
        if let Self::Error(error) = &mut self {
            error.details.insert(name.to_owned(), value);
        }
        self
    }

    /// Creates the error for a failed write of results.
    pub fn writing(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::StdoutClosed;
        }
        Self::failed("output_failed", format!("the result cannot be written: {error}"))
    }
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        match &error {
            RuntimeError::Board(BoardError::BadRequest(violations)) => {
                // A state schema with closed properties that omits the request.
                let has_no_room = violations.iter().any(|violation| {
                    violation.pointer.is_empty() && violation.message.contains("`request`")
                });
                let help = match has_no_room {
                    true => "add `request: true` to `properties` of the state schema, or leave --request out",
                    false => "give --request a value that matches `request` and the state schema of the blueprint",
                };
                Self::invalid_input(error.code(), &error).help(help).detail("violations", json!(violations))
            }
            RuntimeError::BadSignal { violations, .. } => Self::invalid_input(error.code(), &error)
                .help("give the signal a value that `signals` of the blueprint allows")
                .detail("violations", json!(violations)),
            RuntimeError::CannotRetry { .. } => Self::invalid_input(error.code(), &error)
                .help(
                    "`patchboard log BOARD` shows what was given up; --tokens, --wall, --commits, --edits, --money and --journal raise limits of \
                     the board, --worker W with --worker-tokens and --worker-money those of a worker",
                ),
            RuntimeError::SignalRejected { code: Code::BacklogFull, .. } => {
                Self::invalid_input(error.code(), &error).help("repeat it when some of the backlog is done")
            }
            RuntimeError::SignalRejected { .. } => Self::invalid_input(error.code(), &error),
            RuntimeError::Board(BoardError::BadBlueprint(_)) => Self::invalid_input(error.code(), &error),
            RuntimeError::Journal(JournalError::Owned { .. }) => Self::failed(error.code(), &error).help(
                "pause its run with Ctrl-C first; if a daemon runs it, name that with --url (`resume`, `retry`, `approve`, \
                 `deny`, `answer`)",
            ),
            RuntimeError::Journal(JournalError::Fenced { .. }) => Self::failed(error.code(), &error)
                .help("nothing acknowledged is lost; `patchboard log BOARD` shows what the other process does"),
            RuntimeError::Journal(JournalError::NotFound(_)) => Self::invalid_input(error.code(), &error),
            _ => Self::failed(error.code(), &error),
        }
    }
}

impl CliError {
    /// Formats `error[code]: message` and `help: …`, one line each.
    pub fn text(&self) -> String {
        let mut text = format!("error[{}]: {}\n", self.code, one_line(&self.message));
        if let Some(help) = &self.help {
            text.push_str(&format!("help: {}\n", one_line(help)));
        }
        text
    }

    /// Returns the error as the result of a check of a board.
    pub fn result(&self, board: &impl Serialize) -> Value {
        let mut result = json!({"board": board, "ok": false, "code": self.code, "seq": null, "message": self.message});
        self.add_details(&mut result);
        result
    }

    /// Returns `{"error": {"code", "message", "help", …}}`.
    pub fn json(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message, "help": self.help});
        self.add_details(&mut error);
        json!({ "error": error })
    }

    fn add_details(&self, to: &mut Value) {
        for (name, detail) in &self.details {
            to[name] = detail.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Failure;

    #[test]
    fn an_error_is_one_line_and_its_help_another_whatever_is_in_them() {
        let failure = Failure::invalid_input("no_board", "no board a\nb\u{1b}[31m").help("see\n`patchboard boards`");
        let Failure::Error(error) = failure else { panic!("it has something to tell") };
        assert_eq!(error.text(), "error[no_board]: no board a b<U+001B>[31m\nhelp: see `patchboard boards`\n");
    }
}
