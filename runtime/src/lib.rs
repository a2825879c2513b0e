//! The imperative shell of PatchBoard: actors, journal, recovery.
//!
//! Owns time, storage, concurrency and failure. Decides nothing about a board: every decision is made by
//! `patchboard_kernel::board::Board`, which this crate feeds one input at a time, whose records it makes durable, and
//! whose effects it carries out. What fills the workers' seats is in `patchboard-agents`.
//!
//! # Layout
//!
//! * [`runtime`]: starts boards and hands out [`runtime::BoardHandle`]s; what readers see is in [`snapshot`] and
//!   [`subscription`]; `plans` shares what boards of one blueprint have in common.
//! * [`journal`]: the port to storage, its SQLite driver and the group commit above it; [`audit`] checks what is stored.
//! * [`redaction`]: values of a board erased from every file; [`archive`]: boards that have ended, taken out of the journal;
//!   [`carried`]: boards that files carry.
//! * [`reading`]: records that were checked; [`recovery`]: a board from its journal; [`keeping`]: when its snapshots are taken, and storing them.
//! * `actors`: the supervision tree. Actors deliver; a branch that computes something belongs in the kernel.
//! * [`agent`]: the port to whatever fills a seat.
//! * [`observer`]: who is told what becomes of boards.
//! * [`clock`], [`ids`]: time, names and randomness; [`private`]: files that only their owner reads.

mod actors;
pub mod agent;
pub mod archive;
pub mod audit;
pub mod carried;
pub mod clock;
pub mod ids;
pub mod journal;
pub mod keeping;
pub mod observer;
mod plans;
pub mod private;
mod published;
pub mod reading;
pub mod recovery;
pub mod redaction;
pub mod runtime;
pub mod snapshot;
pub mod subscription;
pub mod work;
