//! Evaluations: boards played by a language model over many tasks, with reports.

pub mod play;
pub mod report;
pub mod results;
pub mod suite;
