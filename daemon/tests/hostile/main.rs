//! The hostile set: inputs, callers and disks that mean harm, as `cargo xtask hostile` runs them.
//!
//! These tests take minutes, and some measure the machine, so `cargo test` leaves this target out unless it is named. Each
//! prints one line of its result. `PATCHBOARD_BINARY` names a build that ships; without it the daemon is the one that the tests
//! were built with.

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

/// Returns the blueprint of steps with a walker outside of the daemon, so that what it is given waits.
fn remote() -> String {
    let remote =
        daemon::STEPS.replace("agent: script\n    script: [[{op: add, path: /steps/-, value: 1}]]", "agent: remote");
    assert_ne!(remote, daemon::STEPS);
    remote
}
