//! A directory of files that the workers of a board share.
pub mod reads;
