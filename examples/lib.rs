//! What the examples share: evaluations of boards that a language model plays.

pub mod eval;
