//! One file per command: its arguments, and how it shows what the crates below found out.

pub(crate) mod answer;
pub(crate) mod architect;
pub(crate) mod boards;
pub(crate) mod check;
pub(crate) mod cost;
pub(crate) mod denials;
pub(crate) mod doctor;
pub(crate) mod edits;
pub(crate) mod export;
pub(crate) mod faults;
pub(crate) mod inbox;
pub(crate) mod kernel;
pub(crate) mod log;
pub(crate) mod mcp;
pub(crate) mod redact;
pub(crate) mod replay;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod signal;
pub(crate) mod state;
pub(crate) mod storage;
pub(crate) mod token;
pub(crate) mod vacuum;
pub(crate) mod verify;
pub(crate) mod view;
pub(crate) mod why;
