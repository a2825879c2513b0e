//! Agents for the seats of workers: language models, programs, scripts and recordings.
//!
//! Owns the implementations of [`patchboard_runtime::agent::Agent`] and the operator's configuration they are made
//! from. Does not judge replies (the kernel does) and does not schedule calls (the runtime dispatches what the kernel
//! decides). Does not know files ([`patchboard_workspace`]), requests to providers ([`patchboard_llm`]) or builtin
//! roles ([`patchboard_roles`]).
//!
//! * [`architect`]: turns a request into a blueprint, before there is a board.
//! * [`registry`]: [`registry::AgentRegistry`], the one agent a run needs; it selects one of those below for each seat.
//! * [`config`]: `patchboard.toml`, flags and environment: the models and programs that the operator offers.
//! * [`nested_boards`]: nested boards.
//! * [`lease`]: calls that external processes lease and answer.
//! * [`command`]: programs, called over standard input and output.
//! * [`script`]: replies written in the blueprint.
//! * [`cassette`]: recordings of calls, and their playback.

pub mod architect;
pub mod cassette;
pub mod command;
pub mod config;
pub mod lease;
pub mod nested_boards;
pub mod registry;
pub mod script;
