//! A directory of files that the workers of a board share.
//!
//! Owns reads, edits and their checks against what their author has read, commits of git, and the programs that run
//! there. Does not know language models, the configuration file, or HTTP. The kernel judges edits
//! ([`patchboard_kernel::files`]).
//!
//! * [`service`]: a directory and its board; [`boards`]: those of all boards of this process.
//! * [`session`]: one agent there ([`edit_author`]): its requests, results and read set ([`reads`]).
//!   [`render`]: content of a view; [`sessions`]: those that live across calls.
//! * [`programs`]: programs that run there, and their changes ([`active_programs`]); [`git`]: commits.
//! * [`tools`]: its operations, for language models and for external processes.
//! * [`metrics`]: edit statistics from the records of a board.
//! * [`disk`]: the directory; [`directory`], [`program`]: the operator's settings of it, and of a program;
//!   [`environment`] and [`process_group`]: variables that a program inherits, and its end with all it has started.
//! * [`text`]: all pure functions of file contents.

pub mod active_programs;
pub mod boards;
pub mod directory;
pub mod disk;
pub mod edit_author;
pub mod editor;
pub mod environment;
pub mod git;
pub mod metrics;
pub mod process_group;
pub mod program;
pub mod programs;
pub mod reads;
pub mod render;
pub mod service;
pub mod session;
pub mod sessions;
pub mod text;
pub mod tools;
pub mod worktree;
