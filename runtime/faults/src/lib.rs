//! The fault-injection harness: boards on a virtual clock, workers that err in a class of ways, and what becomes of the
//! document, judged by code that shares nothing with the kernel.
//!
//! * [`world`]: a board on a virtual clock.
//! * [`scenario`]: tasks on the shipped blueprints, played well; and what of a document is wrong.
//! * [`class`], [`system`]: what can go wrong, and where.
//! * [`injection`], [`verdict`]: a fault in a run, and what came of it.
//! * [`campaign`]: many of them, and what they came to.
//! * [`corpus`]: given texts beside our own.
//! * [`stats`]: intervals for what was counted.
//! * [`random`]: numbers that follow from a seed.

pub mod campaign;
pub mod class;
pub mod corpus;
mod dialect;
pub mod injection;
mod instructions;
pub mod malformed;
pub mod random;
pub mod scenario;
mod spoil;
pub mod stats;
pub mod system;
pub mod verdict;
pub mod world;
