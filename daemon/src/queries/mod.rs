//! Answers about boards, shared by commands and routes: from journals and boards to typed values.
//!
//! Commands print the values, as JSON with `--output json`; routes return them, and describe them by their types.

pub(crate) mod cost;
pub(crate) mod handoffs;
pub(crate) mod leases;
pub(crate) mod negotiation;
pub(crate) mod parts;
pub(crate) mod questions;
pub(crate) mod redaction;
pub(crate) mod rejections;
pub(crate) mod rooms;
pub(crate) mod signals;
pub(crate) mod state;
pub(crate) mod storage;
pub(crate) mod view;
pub(crate) mod why;
pub(crate) mod workflow;
