//! The roles of a department that need no model, and what departments keep (`docs/departments.md`).
//!
//! Each role is an agent of its own, `builtin:NAME`, that sees what its seat is shown and answers with a patch. What it
//! decides is a function of plain values; the clock and the file of rows are in a thin shell.
//!
//! * `found`: what the roles hand on to each other;
//! * `likeness`: how like two texts are;
//! * [`meaning`]: the same by embeddings, for words that are like nothing;
//! * `values`: what somebody said, as a value for a field;
//! * [`resolve`]: which row is meant, or what is to be asked;
//! * [`answers`]: what counts as an answer to that; [`resume`]: goes on with it;
//! * [`waits`]: goes on with words that had to be understood first;
//! * [`storage`]: the rows, with all they ever were, in one SQLite file; `crud` is the only one that writes them;
//! * [`confirm`]: what came of it, in a sentence;
//! * [`turns`]: takes users' messages, one after the other;
//! * [`cases`]: a department's own tests;
//! * `seats`: the roles as agents.

pub mod answers;
pub mod cases;
pub mod confirm;
pub mod crud;
pub mod found;
mod likeness;
pub mod meaning;
pub mod resolve;
pub mod resume;
pub(crate) mod seats;
pub mod storage;
pub mod turns;
mod values;
pub mod waits;
