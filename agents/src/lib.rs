//! Agents for the seats of workers: language models, programs, scripts and recordings.
//!
//! Owns the implementations of [`patchboard_runtime::agent::Agent`] and the operator's configuration they are made
//! from. Does not judge replies (the kernel does) and does not schedule calls (the runtime dispatches what the kernel
//! decides).
//!
//! * [`architect`]: turns a request into a blueprint, before there is a board.
//! * [`registry`]: [`registry::AgentRegistry`], the one agent a run needs; it selects one of those below for each seat.
//! * [`blackboard`]: the roles of a blackboard; turns their words into patches.
//! * `builtin`: the coordination roles of this project.
//! * [`departments`]: the roles of a department that need no model, and its rows.
//! * [`config`]: `patchboard.toml`, flags and environment: the models and programs that the operator offers.
//! * [`gate`]: admission of calls to models, one bulkhead per endpoint and model.
//! * `handoff`: the role that advances handoffs.
//! * [`nested_boards`]: nested boards.
//! * [`lease`]: calls that external processes lease and answer.
//! * [`llm`]: client for OpenAI-compatible chat endpoints, and for the APIs of OpenAI and Anthropic.
//! * [`command`]: programs, called over standard input and output.
//! * [`key_order`]: JSON text with a given order of members.
//! * `room`: the coordinator of a negotiation room.
//! * [`script`]: replies written in the blueprint.
//! * [`cassette`]: recordings of calls, and their playback.
//! * [`workspace`]: a directory of files that several agents edit at once.
//! * [`tools`]: tools that an agent can use within an attempt.

use std::fmt::Display;

use patchboard_kernel::failure::FailureCode;
use patchboard_runtime::agent::Failure;

pub mod architect;
pub mod blackboard;
mod builtin;
pub mod cassette;
pub mod command;
pub mod config;
pub mod departments;
pub mod gate;
mod handoff;
pub mod key_order;
pub mod lease;
pub mod llm;
mod negotiation;
pub mod nested_boards;
pub mod registry;
mod room;
pub mod script;
mod telemetry;
pub mod tools;
mod workflow;
pub mod workspace;

/// Builds a failure without known usage.
fn failure(code: FailureCode, message: impl Into<String>) -> Failure {
    Failure { code, message: message.into(), usage: None, deferral: None }
}

/// Truncates a text to one line of at most `max` characters. Control characters (terminal escapes included) and runs
/// of white space become one space each, because the text is untrusted and people read it.
fn one_line(text: &str, max: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let mut chars = words.flat_map(|word| std::iter::once(' ').chain(word.chars())).skip(1);
    let mut line: String = chars.by_ref().take(max).collect();
    if chars.next().is_some() {
        line.pop();
        line.push('…');
    }
    line
}

/// Formats a count with its noun: `1 line`, `2 lines`.
fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let end = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{end}")
}

/// Returns the verb for a count: `is` or `are`.
fn is_or_are<N: PartialEq + From<u8>>(count: N) -> &'static str {
    if count == N::from(1) { "is" } else { "are" }
}

#[cfg(test)]
mod tests {
    use super::{counted, is_or_are, one_line};

    #[test]
    fn one_of_something_is_no_plural() {
        let told = |count: u32| format!("{} {} there", counted(count, "line"), is_or_are(count));
        assert_eq!([0, 1, 2].map(told), ["0 lines are there", "1 line is there", "2 lines are there"]);
    }

    #[test]
    fn foreign_text_becomes_one_bounded_line_without_control_characters() {
        for (text, max, expected) in [
            ("", 5, ""),
            ("  a \n\t b\u{1b}[31m ", 20, "a b [31m"),
            ("abcdef", 6, "abcdef"),
            ("abcdefg", 6, "abcde…"),
            ("äöüäöü", 3, "äö…"),
        ] {
            assert_eq!(one_line(text, max), expected, "{text:?}");
        }
    }
}
