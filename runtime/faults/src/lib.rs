//! Fault-injection harness: plays boards on a virtual clock with workers that fail in a class of ways. The resulting
//! documents are judged by code that shares nothing with the kernel.
//!
//! * [`simulation`]: a board on a virtual clock.
//! * [`scenario`]: tasks on the shipped blueprints, correct workers, and checks of the documents.
//! * [`class`], [`system`]: fault classes, and systems under test.
//! * [`injection`], [`verdict`]: one fault in one run, and its outcome.
//! * [`campaign`]: many faults, and their totals.
//! * [`corpus`]: texts added to the built-in ones.
//! * [`stats`]: confidence intervals.
//! * [`random`]: a seeded random number generator.

pub mod campaign;
pub mod class;
pub mod corpus;
mod corruption;
pub mod injection;
mod instructions;
pub mod malformed;
pub mod random;
mod reply_format;
pub mod scenario;
pub mod simulation;
pub mod stats;
pub mod system;
pub mod verdict;
