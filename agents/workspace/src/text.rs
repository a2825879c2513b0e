//! Text operations of the editor: edits, and the rendering of texts for models.
//!
//! Pure functions of texts. Directories (name resolution), versions (the kernel) and sessions (read sets) are out of
//! scope.
//!
//! * [`command`]: editor commands and their JSON Schema.
//! * [`edit`]: application of one edit.
//! * [`hunks`]: line hunks from two texts, and their application.
//! * [`snippet`], [`diff`], [`search`]: rendered lines, differences and matches, with the lines shown in full.
//! * [`language`], [`intent`]: comments with a block's author and intent; [`author`]: valid author names.
//! * [`rejection_context`]: context of a rejected edit.

pub mod author;
pub mod command;
pub mod diff;
pub mod edit;
pub mod hunks;
pub mod intent;
pub mod language;
mod markup_positions;
pub mod rejection_context;
mod scan;
pub mod search;
pub mod snippet;
#[cfg(test)]
mod tests;
