//! The hostile set: malicious inputs, abusive callers and failing disks, as run by `cargo xtask hostile`.
//!
//! These tests take minutes, and some measure the machine, so `cargo test` skips this target unless it is named. Each
//! test prints one line with its result. `PATCHBOARD_BINARY` names a release build; without it, the tests use the
//! daemon of their own build.

#![cfg(target_os = "linux")]

mod bombs;
mod callers;
#[path = "../serve/daemon.rs"]
#[expect(dead_code, reason = "the tests of the daemon use the rest")]
mod daemon;
mod flips;
mod http;
mod memory;
mod process;
