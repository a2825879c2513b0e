//! `cargo xtask check --full`: the full tier, which runs before a release and not on every change.
//!
//! Runs the quick tier, then everything that takes long, needs packages from a network, or needs a model. A failure
//! does not stop the run. A step with missing requirements is skipped, and the summary has the reason.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::step::{Step, run};
use super::tally::{Runner, Tally};
use super::{check, evidence, shared, workspace_root};

/// The file that `--record` writes, from the workspace's root.
const RECORD: &str = "docs/full-check.md";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    Program(&'static str),
    Variable(&'static str, &'static str),
    Shared,
}

/// Makes clients and libraries from package registries mandatory.
const REQUIRED: &[(&str, &str)] = &[("PATCHBOARD_REQUIRE_CLIENTS", "1")];

const CC: Need = Need::Program("cc");
const DENY: Need = Need::Program("cargo-deny");
const PYTHON: Need = Need::Program("python3");
const ADVISORIES: Need =
    Need::Variable("PATCHBOARD_ADVISORIES", "any text, where github.com can be reached for the list of advisories");

/// Long steps with their requirements, the shorter ones first.
const LONG: [(Step, &[Need]); 19] = [
    // Tests that are too long for the quick tier, or need packages, are marked `#[ignore = "full tier: …"]`.
    (harness("long tests", "test --workspace --tests --no-fail-fast -- --ignored --skip clients::"), &[Need::Shared]),
    (Step::new("lints of default features", "clippy --workspace --all-targets -- -D warnings"), &[]),
    (Step::new("dependencies", "deny check bans licenses sources"), &[DENY]),
    (Step::new("advisories", "deny check advisories"), &[DENY, ADVISORIES]),
    // The daemon with its default features; `--workspace` does not change the features of its dependencies.
    (harness("default features", "test --workspace --test cli --test serve --no-fail-fast"), &[]),
    (
        harness("clients", "test --package patchboard-daemon --test serve clients:: -- --include-ignored")
            .with(REQUIRED),
        &[Need::Program("npm"), PYTHON, Need::Program("c++")],
    ),
    (
        harness("crashes", "test --package patchboard-daemon --test cli crash:: -- --include-ignored")
            .with(&[("PATCHBOARD_CRASHES", "all")]),
        &[CC],
    ),
    (Step::new("hostile", "run --package xtask -- hostile"), &[CC, PYTHON]),
    (
        harness("simulator", "test --package patchboard-simulator --no-fail-fast -- --nocapture")
            .with(&[("SIMULATOR_BOARDS", "10000")]),
        &[],
    ),
    (
        harness("freshness", "test --package patchboard-tests --test it freshness:: -- --nocapture")
            .with(&[("FRESHNESS_BOARDS", "1000")]),
        &[],
    ),
    (Step::new("differential", "run --package xtask -- differential --cases 1000000"), &[]),
    (Step::new("fuzz", "run --package xtask -- fuzz --seconds 120"), &[CC]),
    // `load` starts the daemon in the same directory. The next three steps run what this one builds.
    (Step::new("release", "build --release --package patchboard-daemon --package patchboard-evals --bins"), &[]),
    (Step::of_release("faults", "--n 200 --seed 1"), &[]),
    (Step::of_release("load", ""), &[]),
    (Step::of_release("soak", "--boards 200 --seconds 600"), &[]),
    (Step::new("benchmarks", "bench --package patchboard-tests -- --quick"), &[]),
    (
        harness("model", "test --package patchboard-agents --test it live:: -- --include-ignored --nocapture"),
        &[Need::Variable("PATCHBOARD_LIVE_URL", "the address of a model")],
    ),
    (
        Step::new("evidence of libraries", "run --package patchboard-evals --bin storm_commit0").with(REQUIRED),
        &[PYTHON],
    ),
];

const fn harness(name: &'static str, arguments: &'static str) -> Step {
    Step::of_tests(name, Runner::Harness, arguments)
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum End {
    Ok,
    Failed,
    Skipped(String),
}

struct Line {
    name: &'static str,
    command: String,
    end: End,
    /// Number of its tests that passed because their data was missing.
    without_data: u64,
    seconds: u64,
}

#[derive(PartialEq, Eq, Debug, Default)]
struct FullOptions<'a> {
    /// Selected steps; empty for all.
    steps: Vec<&'a str>,
    is_recorded: bool,
    is_listed: bool,
}

/// Runs the selected steps in sequence.
pub(crate) fn full(options: &[&str], help: &str) -> ExitCode {
    let all: Vec<(&Step, &[Need])> = steps();
    let names: Vec<&str> = all.iter().map(|(step, _)| step.name).collect();
    let Some(wanted) = read(options, &names) else {
        eprintln!("error: not understood: {}\n\n{help}", options.join(" "));
        return ExitCode::from(2);
    };
    if wanted.is_listed {
        for (step, _) in &all {
            println!("{:<26} {}", step.name, step.command());
        }
        return ExitCode::SUCCESS;
    }
    let mut lines = Vec::new();
    for (step, needs) in all {
        if !wanted.steps.is_empty() && !wanted.steps.contains(&step.name) {
            continue;
        }
        let line = play(step, needs);
        println!("── {}: {} in {} s", line.name, line.end.as_text(), line.seconds);
        lines.push(line);
    }
    println!("\nfull check:");
    for line in &lines {
        println!("  {:<26} {:>6} s  {}", line.name, line.seconds, line.to_text());
    }
    let path = workspace_root().join(RECORD);
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    if wanted.is_recorded
        && let Err(error) = std::fs::write(path, page(&old, &lines, &names))
    {
        eprintln!("error: {RECORD} cannot be written: {error}");
        return ExitCode::FAILURE;
    }
    let failed: Vec<&str> = lines.iter().filter(|line| line.end == End::Failed).map(|line| line.name).collect();
    if failed.is_empty() {
        println!("full check ok");
        return ExitCode::SUCCESS;
    }
    println!("full check FAILED at: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// Returns the quick tier and the long steps, in the order in which they run.
fn steps() -> Vec<(&'static Step, &'static [Need])> {
    let long = LONG.iter().map(|(step, needs)| (step, *needs));
    // Missing data is a failure in those steps, and the libraries are a separate long step.
    let shown = evidence::LONG.iter().filter(|step| step.tests.is_some()).map(|step| (step, &[Need::Shared][..]));
    check::steps().map(|step| (step, &[][..])).chain(long).chain(shown).collect()
}

fn play(step: &'static Step, needs: &[Need]) -> Line {
    let (began, mut tally) = (Instant::now(), Tally::default());
    println!("── {}: {}", step.name, step.command());
    let end = match needs.iter().find_map(|need| need.missing()) {
        Some(why) => End::Skipped(why),
        None if run(step, &mut tally) => End::Ok,
        None => End::Failed,
    };
    let seconds = began.elapsed().as_secs();
    Line { name: step.name, command: step.command(), end, without_data: tally.skipped(), seconds }
}

/// Parses the options; `None` if they are invalid.
fn read<'a>(options: &[&'a str], names: &[&str]) -> Option<FullOptions<'a>> {
    let mut wanted = FullOptions::default();
    for option in options {
        match *option {
            "--record" => wanted.is_recorded = true,
            "--list" => wanted.is_listed = true,
            name if names.contains(&name) => wanted.steps.push(name),
            _ => return None,
        }
    }
    Some(wanted)
}

impl Need {
    /// Returns the reason for skipping a step, if this requirement is missing.
    fn missing(self) -> Option<String> {
        match self {
            Self::Program(name) => {
                let mut found = Command::new(name);
                let found = found.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
                found.is_err().then(|| format!("there is no {name}"))
            }
            Self::Variable(name, what) => {
                std::env::var_os(name).is_none().then(|| format!("{name} is not set: {what}"))
            }
            Self::Shared => {
                let directory = shared();
                (!directory.is_dir()).then(|| format!("there is no {}: set PATCHBOARD_SHARED", directory.display()))
            }
        }
    }
}

impl End {
    fn as_text(&self) -> String {
        match self {
            Self::Ok => "ok".to_owned(),
            Self::Failed => "FAILED".to_owned(),
            Self::Skipped(why) => format!("skipped: {why}"),
        }
    }
}

impl Line {
    fn to_text(&self) -> String {
        match self.without_data {
            0 => self.end.as_text(),
            count => format!("{}, {count} tests without their data", self.end.as_text()),
        }
    }
}

/// Merges these results into the page. Rows of steps that no longer exist are removed.
fn page(old: &str, lines: &[Line], names: &[&str]) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let today = date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400));
    let commit = commit();
    let row = |name: &&str| {
        let Some(line) = lines.iter().find(|line| line.name == *name) else {
            return old.lines().find(|row| row.starts_with(&format!("| {name} |"))).map(|row| format!("{row}\n"));
        };
        let (result, seconds, command) = (line.to_text(), line.seconds, &line.command);
        Some(format!("| {name} | {result} | {today} | {commit} | {cores} | {seconds} | `{command}` |\n"))
    };
    let rows: String = names.iter().filter_map(row).collect();
    format!(
        "# Full check\n\nWritten by `cargo xtask check --full --record`, step by step: each row is the latest run of its step. The \
         tiers are described in [testing.md](testing.md).\n\n\
         | step | result | date | commit | cores | seconds | command |\n|---|---|---|---|---|---|---|\n{rows}"
    )
}

/// Returns the commit under test, and whether files differ from it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(workspace_root()).args(arguments).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let hash = git(&["rev-parse", "--short", "HEAD"]).filter(|hash| !hash.is_empty());
    let hash = hash.unwrap_or_else(|| "unknown".to_owned());
    // Excludes the record, which is written after each step.
    let record = format!(":(exclude){RECORD}");
    match git(&["status", "--porcelain", "--untracked-files=no", "--", ".", &record]) {
        Some(changes) if !changes.is_empty() => format!("{hash} with changes"),
        _ => hash,
    }
}

fn date(day: u64) -> String {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut left) = (1970, day);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_name_steps() {
        let names = ["soak", "fuzz"];
        assert_eq!(read(&[], &names), Some(FullOptions::default()));
        let some = FullOptions { steps: vec!["fuzz"], is_recorded: true, ..FullOptions::default() };
        assert_eq!(read(&["--record", "fuzz"], &names), Some(some));
        assert_eq!(read(&["walk"], &names), None);
    }

    #[test]
    fn every_step_has_a_name_of_its_own() {
        let mut names: Vec<&str> = steps().iter().map(|(step, _)| step.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
    }

    #[test]
    fn days_have_the_dates_of_the_calendar() {
        for (day, expected) in [(0, "1970-01-01"), (59, "1970-03-01"), (11_016, "2000-02-29"), (20_820, "2027-01-02")] {
            assert_eq!(date(day), expected);
        }
    }

    #[test]
    fn a_page_says_what_was_skipped_and_why() {
        let line =
            |name, end, without_data| Line { name, command: format!("cargo {name}"), end, without_data, seconds: 7 };
        let why = End::Skipped("there is no npm".to_owned());
        let old =
            "| soak | ok | 2026-01-02 | abc | 2 | 9 | `cargo soak` |\n| gone | ok | 2026-01-02 | abc | 2 | 9 | `x` |\n";
        let lines = [line("lints", End::Ok, 0), line("clients", why, 0), line("tests", End::Failed, 2)];
        let page = page(old, &lines, &["lints", "clients", "tests", "soak"]);
        for (begin, end) in [
            ("| lints | ok |", " 7 | `cargo lints` |"),
            ("| clients | skipped: there is no npm |", " 7 | `cargo clients` |"),
            ("| tests | FAILED, 2 tests without their data |", " 7 | `cargo tests` |"),
            ("| soak | ok | 2026-01-02 | abc |", " 9 | `cargo soak` |"),
        ] {
            assert!(page.lines().any(|row| row.starts_with(begin) && row.ends_with(end)), "{begin} is not in\n{page}");
        }
        assert!(!page.contains("gone"), "{page}");
    }

    #[test]
    fn a_program_that_is_not_there_skips_a_step() {
        assert_eq!(Need::Program("no-such-program").missing().as_deref(), Some("there is no no-such-program"));
        assert!(Need::Variable("PATCHBOARD_NO_SUCH_VARIABLE", "nothing").missing().is_some());
    }
}
