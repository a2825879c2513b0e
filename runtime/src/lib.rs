//! The imperative shell of PatchBoard: actors, journal, recovery.
//!
//! Owns time, storage, concurrency and failure handling. Decides nothing about a board: it feeds
//! `patchboard_kernel::board::Board` one input at a time, makes its records durable, and executes its effects. The
//! agents of workers are in `patchboard-agents`.
//!
//! # Layout
//!
//! * [`runtime`]: starts boards and hands out [`runtime::BoardHandle`]s; [`snapshot`] and
//!   [`subscription`] serve readers; `plans` shares the compiled blueprint among boards.
//! * [`journal`]: the storage interface, its SQLite driver and the group commit above it; [`audit`] checks stored
//!   boards.
//! * [`redaction`]: erases values of a board from every file; [`archive`]: removes ended boards from the journal;
//!   [`carried`]: boards in files.
//! * [`reading`]: verified records; [`recovery`]: a board from its journal; [`keeping`]: schedule and storage of
//!   snapshots.
//! * `actors`: the supervision tree. Actors execute; a branch that computes a decision belongs in the kernel.
//! * [`agent`]: the interface of agents.
//! * [`observer`]: notifications about boards, for metrics.
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
