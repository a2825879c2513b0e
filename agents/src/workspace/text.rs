//! The contents of files: what a command of an editor makes of a text, and how texts are shown to models.
//!
//! Plain functions of plain texts. Does not know directories (what a name stands for), versions (the kernel) or sessions
//! (what an agent has read).
//!
//! * [`command`]: what an editor can ask, and its JSON Schema.
//! * [`edit`]: one edit done.
//! * [`hunks`]: from two texts to what became of which lines, and back.
//! * [`excerpt`], [`diff`], [`search`]: lines, differences and matches, with which lines were really shown.
//! * [`language`], [`intent`]: comments that say who made a block and what for; [`author`]: what that one may be called.
//! * [`payload`]: what a refused edit brings back.

pub mod author;
pub mod command;
pub mod diff;
pub mod edit;
pub mod excerpt;
pub mod hunks;
pub mod intent;
pub mod language;
mod markup;
pub mod payload;
mod scan;
pub mod search;
#[cfg(test)]
mod tests;
