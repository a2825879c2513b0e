//! A run that dies at every operation on its journal's files, in one that loses power, and on disks that are full, read-only,
//! locked and damaged: what was told is there, what is there is whole, and an error says what is wrong.
//!
//! The binary is the one that ships. What it does to its files is counted, and ended, by a library that is loaded before
//! the system's (`shim.c`), so these tests are for Linux.
//!
//! All moments at which something can happen take minutes. A fixed seed chooses some of them, each time the same; with
//! `PATCHBOARD_CRASHES=all` all are tried.

mod disk;
mod kills;
mod lost;
mod power;
mod redactions;
mod shim;
