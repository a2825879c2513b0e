//! The imperative shell of PatchBoard: actors, journal, recovery.
//!
//! Owns time, storage, concurrency and failure handling. Decides nothing about a board: it feeds
//! `patchboard_kernel::board::Board` one input at a time, makes its records durable, and executes its effects. The
//! agents of workers are in `patchboard-agents`.
//!
//! # Layout
//!
//! * [`runtime`]: starts boards with [`options`] and hands out their [`handle`]s; [`status`] and [`subscription`] serve
//!   readers; `plan_cache` shares the compiled blueprint among boards.
//! * `group_commit`: one commit to disk for many boards; [`audit`] checks stored boards. Storage itself is in
//!   `patchboard-storage`.
//! * [`redaction`]: erases values of a board from every file; [`archive`]: removes ended boards from the journal;
//!   [`board_file`]: boards in files.
//! * [`verified_reader`]: verified records; [`recovery`]: a board from its journal; [`snapshotter`]: schedule and
//!   storage of snapshots.
//! * `actors`: the supervision tree. Actors execute; a branch that computes a decision belongs in the kernel.
//! * [`agent`]: the interface of agents.
//! * [`observer`]: notifications about boards, for metrics.
//! * [`clock`], [`ids`]: time, names and randomness.

mod actors;
pub mod agent;
pub mod archive;
pub mod audit;
mod board_channel;
pub mod board_file;
pub mod clock;
pub mod cpu_time;
pub mod error;
mod failpoints;
mod group_commit;
pub mod handle;
pub mod ids;
pub mod observer;
pub mod options;
mod plan_cache;
pub mod recovery;
pub mod redaction;
pub mod runtime;
pub mod snapshotter;
pub mod status;
pub mod subscription;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tools;
pub mod verified_reader;
