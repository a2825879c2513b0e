//! `cargo xtask evidence`: the long forms of the workspace tests that produce the figures of
//! docs/workspace-evidence.md.
//!
//! The tests and the example print the figures and their progress. A test with missing data or programs prints a
//! message and passes; here that is a failure.

use std::process::ExitCode;
use std::time::Instant;

use super::seconds;
use super::step::{Step, run};
use super::tally::{Runner, Tally};

/// Options: the parts (empty for all), and the form.
#[derive(PartialEq, Eq, Debug)]
struct EvidenceOptions<'a> {
    parts: Vec<&'a str>,
    is_short: bool,
}

/// Separate builds, so that the times of the parts exclude them.
const BUILDS: [Step; 2] = [
    Step::new("build of tests", "test --package patchboard-interleavings --test=interleavings --no-run"),
    Step::new("build of evals", "build --package patchboard-evals --bin storm_commit0"),
];

/// Defines a part that runs a test of the interleavings.
macro_rules! test {
    ($name:literal, $variable:literal, $value:literal, $test:literal) => {
        Step::of_tests(
            $name,
            Runner::Harness,
            concat!("test --package patchboard-interleavings --test=interleavings ", $test, " -- --nocapture"),
        )
        .with(&[($variable, $value)])
    };
}

pub(crate) const LONG: [Step; 4] = [
    test!("decisions", "INTERLEAVINGS", "10000", "every_decision"),
    test!("sessions", "INTERLEAVINGS", "10000", "session_reads"),
    test!("histories", "HISTORIES", "all", "concurrent_edits"),
    Step::new("libraries", "run --package patchboard-evals --bin storm_commit0"),
];

/// Short forms, as in the test suite, to check that everything runs.
const SHORT: [Step; 4] = [
    // With fewer decisions than the suite's 2,000, some assertions fail.
    test!("decisions", "INTERLEAVINGS", "2000", "every_decision"),
    test!("sessions", "INTERLEAVINGS", "480", "session_reads"),
    test!("histories", "HISTORIES", "some", "concurrent_edits"),
    Step::new("libraries", "run --package patchboard-evals --bin storm_commit0 -- --library deprecated --engineers 2"),
];

/// Runs the selected parts in sequence, even if one fails.
pub(crate) fn evidence(options: &[&str], help: &str) -> ExitCode {
    let Some(wanted) = read(options) else {
        eprintln!("error: not understood: {}\n\n{help}", options.join(" "));
        return ExitCode::from(2);
    };
    for build in &BUILDS {
        println!("── {}: {}", build.name, build.command());
        if !run(build, &mut Tally::default()) {
            return ExitCode::FAILURE;
        }
    }
    let parts = if wanted.is_short { &SHORT } else { &LONG };
    let mut ends = Vec::new();
    for part in parts.iter().filter(|part| wanted.parts.is_empty() || wanted.parts.contains(&part.name)) {
        println!("── {}: {}", part.name, part.command());
        let began = Instant::now();
        let mut tally = Tally::default();
        let is_shown = run(part, &mut tally) && (part.tests.is_none() || tally.is_of_all());
        let end = format!("{}: {} in {}", part.name, if is_shown { "ok" } else { "FAILED" }, seconds(began.elapsed()));
        println!("── {end}");
        ends.push((is_shown, end));
    }
    println!("\nevidence:");
    for (_, end) in &ends {
        println!("  {end}");
    }
    if ends.iter().all(|(is_shown, _)| *is_shown) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Parses the options; `None` if they are invalid.
fn read<'a>(options: &[&'a str]) -> Option<EvidenceOptions<'a>> {
    let mut wanted = EvidenceOptions { parts: Vec::new(), is_short: false };
    for option in options {
        match *option {
            "--short" => wanted.is_short = true,
            name if LONG.iter().any(|part| part.name == name) => wanted.parts.push(name),
            _ => return None,
        }
    }
    Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_and_both_forms_have_the_same() {
        assert_eq!(read(&[]), Some(EvidenceOptions { parts: Vec::new(), is_short: false }));
        let some = EvidenceOptions { parts: vec!["histories", "libraries"], is_short: true };
        assert_eq!(read(&["histories", "--short", "libraries"]), Some(some));
        assert_eq!(read(&["history"]), None);
        assert_eq!(LONG.map(|part| part.name), SHORT.map(|part| part.name));
    }
}
