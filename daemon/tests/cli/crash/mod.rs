//! Runs that die at every operation on the journal's files, at a power loss, and on disks that are full, read-only,
//! locked or damaged. Every reported commit survives, the remaining data is valid, and errors name the cause.
//!
//! The binary is the shipped one. A preloaded library (`shim.c`) counts and ends its file operations, so these tests
//! are for Linux.
//!
//! Trying every moment takes minutes. A fixed seed chooses a sample; `PATCHBOARD_CRASHES=all` tries all.

mod disk;
mod kills;
mod lost;
mod power;
mod redactions;
mod shim;
