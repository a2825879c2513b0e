//! Evaluations: boards played by a language model, load, soak, fault injection, and libraries restored by engineers.
//!
//! Owns the measuring programs. Is no part of the shipped binary, and knows the daemon only by its binary and its API.

pub mod eval;
