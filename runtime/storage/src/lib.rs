//! Storage of everything durable: one interface, and its drivers.
//!
//! Owns the rules that every driver keeps: fenced and atomic appends, records in pages, erasure of values. A driver
//! knows one kind of storage; nothing outside of it does. Does not know how a board decides, nor actors or HTTP.
//!
//! * [`journal`]: the interface of boards: records, texts, snapshots, tombstones.
//! * [`sqlite`]: the driver for a data directory on local disk.
//! * [`blocking`]: storage for code that runs on a thread of its own.
//! * [`private_files`]: files that only their owner reads; [`board_id`]: the rule of board ids.

pub mod blocking;
pub mod board_id;
pub mod journal;
pub mod private_files;
pub mod sqlite;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
