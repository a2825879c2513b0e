//! `cargo xtask check`: the quick tier, which CI runs and which every change must pass.

use std::process::{ExitCode, Stdio};
use std::time::Instant;

use super::step::{Step, run};
use super::tally::{Runner, Tally};
use super::{cargo, seconds, succeeds};

/// Steps that build no program, cheapest first. All features are on, as in the tests, so each crate is checked once.
/// The full tier lints the workspace without them. Documentation omits private items.
const STEPS: [Step; 4] = [
    Step::new("format", "fmt --all --check"),
    Step::new("lints", "clippy --workspace --all-targets --all-features -- -D warnings"),
    // This target runs only when named, so the target sets above omit it.
    Step::new("lints of the hostile set", "clippy --workspace --test hostile --all-features -- -D warnings"),
    Step::new("documentation", "doc --workspace --all-features --no-deps").with(&[("RUSTDOCFLAGS", "-D warnings")]),
];

/// Tests with nextest, which does not run documentation examples. All features are on, so everything is built once; the
/// full tier runs the daemon's tests without them.
const NEXTEST: [Step; 2] = [
    Step::of_tests("tests", Runner::Nextest, "nextest run --workspace --all-features --no-fail-fast"),
    Step::of_tests(
        "examples in documentation",
        Runner::Harness,
        "test --workspace --all-features --doc --no-fail-fast",
    ),
];

const PLAIN_TESTS: [Step; 1] =
    [Step::of_tests("tests", Runner::Harness, "test --workspace --all-features --no-fail-fast")];

/// Returns the steps, in the order in which they run.
pub(crate) fn steps() -> impl Iterator<Item = &'static Step> {
    let tests: &[Step] = if has_nextest() { &NEXTEST } else { &PLAIN_TESTS };
    STEPS.iter().chain(tests)
}

/// Runs all steps, up to the first that fails.
pub(crate) fn check() -> ExitCode {
    let mut tally = Tally::default();
    let mut failed = None;
    for step in steps() {
        println!("── {}: {}", step.name, step.command());
        let began = Instant::now();
        let held = run(step, &mut tally);
        println!("── {}: {} in {}", step.name, if held { "ok" } else { "FAILED" }, seconds(began.elapsed()));
        if !held {
            failed = Some(step.name);
            break;
        }
    }
    if let Some(counts) = tally.summary() {
        println!("{counts}");
    }
    match failed {
        Some(name) => {
            println!("check FAILED at: {name}");
            ExitCode::FAILURE
        }
        None => {
            println!("check ok");
            ExitCode::SUCCESS
        }
    }
}

fn has_nextest() -> bool {
    succeeds(cargo().args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()))
}
