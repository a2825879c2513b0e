//! A directory of files that the workers of a board share.
//!
//! * [`service`]: a directory and the board that knows of it; [`boards`]: those of all boards that run here.
//! * [`session`]: one agent there: what it asks for, what it is shown, what it has read ([`reads`]).
//!   [`look`]: what a look shows; [`sessions`]: those that go on from call to call.
//! * [`programs`]: programs that run there, and what they changed ([`running`]); [`git`]: commits.
//! * [`tools`]: what can be done there, for language models and for processes outside.
//! * [`metrics`]: what the records of a board say of its edits.
//! * [`disk`]: the directory.
//! * [`text`]: everything about the contents of files that is a function of texts.

pub mod boards;
pub mod disk;
pub mod editor;
pub mod git;
pub mod look;
pub mod metrics;
pub mod programs;
pub mod reads;
pub mod running;
pub mod service;
pub mod session;
pub mod sessions;
pub mod text;
pub mod tools;
pub mod worktree;
