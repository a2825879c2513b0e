//! Agents for the seats of workers: language models, programs, scripts and recordings.
//!
//! Owns the implementations of [`patchboard_runtime::agent::Agent`] and the operator's configuration they are made
//! from. Does not judge replies (the kernel does) and does not schedule calls (the runtime dispatches what the kernel
//! decides). Does not know files: [`patchboard_workspace`] does.
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
mod workflow;
