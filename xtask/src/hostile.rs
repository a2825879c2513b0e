//! `cargo xtask hostile`: tests with hostile inputs, callers and disks, in sections with a result line each.
//!
//! Sections are tests of the target `hostile` and of other targets. Figures are measured on a release build of the
//! daemon.

use std::process::{ExitCode, Stdio};
use std::time::Instant;

use super::step::{Step, run_with};
use super::tally::{Runner, Tally};
use super::{cargo, seconds, target_directory};

const fn section(name: &'static str, arguments: &'static str) -> Step {
    Step::of_tests(name, Runner::Harness, arguments)
}

/// Defines a section of the target `hostile`; its tests print their figures.
macro_rules! hostile {
    ($name:literal) => {
        section(
            $name,
            concat!("test --package patchboard-daemon --all-features --test hostile ", $name, ":: -- --nocapture"),
        )
    };
}

/// Sections, in the order in which they run.
const SECTIONS: [Step; 8] = [
    section("access", "test --package patchboard-daemon --all-features --test serve access::"),
    section(
        "description",
        "test --package patchboard-daemon --all-features --test serve clients::openapi -- --include-ignored",
    )
    .with(&[("PATCHBOARD_REQUIRE_CLIENTS", "1")]),
    hostile!("bombs"),
    hostile!("memory"),
    // Kills, full disks, failed syncs, and bit flips in SQLite's log.
    section("crashes", "test --package patchboard-daemon --all-features --test cli crash:: -- --include-ignored")
        .with(&[("PATCHBOARD_CRASHES", "all")]),
    hostile!("flips"),
    section("erasure", "test --package patchboard-daemon --all-features --test cli -- redact reach"),
    hostile!("callers"),
];

/// Runs the selected sections, continuing after a failure.
pub(crate) fn hostile(options: &[&str], help: &str) -> ExitCode {
    let is_known = |option: &&str| SECTIONS.iter().any(|section| section.name == *option);
    if !options.iter().all(is_known) {
        let names: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
        eprintln!("error: not understood: {}; there are {}\n\n{help}", options.join(" "), names.join(", "));
        return ExitCode::from(2);
    }
    if !build_daemon() {
        return ExitCode::FAILURE;
    }
    let binary = target_directory().join("release/patchboard");
    let mut lines = Vec::new();
    for section in SECTIONS.iter().filter(|section| options.is_empty() || options.contains(&section.name)) {
        println!("── {}: {}", section.name, section.command());
        let (began, mut tally) = (Instant::now(), Tally::default());
        let measured = [("PATCHBOARD_BINARY", binary.as_os_str())];
        let is_measured = section.arguments.contains("--test hostile");
        let has_passed = run_with(section, if is_measured { &measured } else { &[] }, &mut tally);
        // A section without tests, or with skipped ones, counts as failed.
        let held = has_passed && tally.is_of_all();
        let (verdict, count) = (if held { "ok" } else { "FAILED" }, tally.summary().unwrap_or_default());
        let line = format!("{:<12} {:>8}  {verdict}: {count}", section.name, seconds(began.elapsed()));
        println!("── {line}");
        lines.push((line, held));
    }
    println!("\nhostile set:");
    for (line, _) in &lines {
        println!("  {line}");
    }
    if lines.iter().all(|(_, held)| *held) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Builds the daemon that is measured, with the features of the full tier's release build, so that it is built once.
fn build_daemon() -> bool {
    let mut command = cargo();
    let packages = ["--package", "patchboard-daemon", "--package", "patchboard-evals"];
    command.args(["build", "--release"]).args(packages).args(["--bin", "patchboard"]).stdin(Stdio::null());
    let built = command.status().is_ok_and(|status| status.success());
    if !built {
        eprintln!("error: the daemon cannot be built");
    }
    built
}

#[cfg(test)]
mod tests {
    use super::SECTIONS;

    #[test]
    fn every_section_has_a_name_of_its_own() {
        for (index, section) in SECTIONS.iter().enumerate() {
            assert!(SECTIONS.iter().skip(index + 1).all(|other| other.name != section.name), "{}", section.name);
        }
    }
}
