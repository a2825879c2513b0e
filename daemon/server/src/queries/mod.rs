//! Answers about boards, shared by commands and routes: from journals and boards to typed values.
//!
//! Commands print the values, as JSON with `--output json`; routes return them, and describe them by their types.

pub mod cost;
pub(crate) mod handoffs;
pub mod leases;
pub mod negotiation;
pub mod parts;
pub mod questions;
pub mod redaction;
pub mod rejections;
pub mod retry;
pub mod rooms;
pub mod signals;
pub mod state;
pub mod storage;
pub mod view;
pub mod why;
pub mod workflow;
