//! Conformance of the storage drivers: each test runs for every driver.

mod archives;
mod documents;
mod drivers;
mod erasure;
mod journal;
mod process;
mod snapshots;
mod writers;
