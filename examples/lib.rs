//! What the examples share: evaluations of boards that a language model plays, and boards whose seats a program fills.

pub mod eval;
pub mod seated;
