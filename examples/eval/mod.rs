//! Evaluations: boards played by a language model over many tasks, and what is said of them.

pub mod play;
pub mod report;
pub mod results;
pub mod suite;
