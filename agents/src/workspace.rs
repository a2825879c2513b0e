//! A directory of files that the workers of a board share.
//!
//! * [`disk`]: the directory.
//! * [`reads`]: what an agent has seen.
//! * [`text`]: everything about the contents of files that is a function of texts.

pub mod disk;
pub mod reads;
pub mod text;
