//! Commands of the project: `cargo xtask check` is the definition of done.
//!
//! Depends on the standard library only, so that it builds in a second and works even when the crates under test do not
//! compile. The steps of the quick tier are in [`check`], those of the full tier in [`full`]; [`tally`] counts the
//! tests.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

mod cassettes;
mod check;
mod evidence;
mod full;
mod fuzz;
mod hostile;
mod step;
mod tally;

const HELP: &str = "\
Usage: cargo xtask COMMAND

Commands:
  cassettes      Record the cassettes of the shipped blueprints again from a model: [NAME…] --model-url URL --model NAME, or other
                 options of `patchboard run`; a recording takes the place of the old one once it plays the same
  check          Format, lints, tests and documentation; stops at the first that fails
  check --full   All of that and the long runs, also after a failure: [STEP…] for these alone, --list for their names,
                 --record keeps their results in docs/full-check.md
  codes          Rewrite docs/codes.md from the enums of the kernel
  differential   Compare trees with values, validation of changes with that of the whole: --cases N (1000000), --seed S (1)
  evidence       Show in full what docs/workspace-evidence.md has the figures of, which takes long: [PART…] of decisions, sessions,
                 histories and libraries, --short as the suite plays them
  golden         Play boards of the present journal format and write them to tests/golden/format-N, once and for ever; before a
                 change of the format
  fuzz           Fuzz what is read from outside, instrumented: [TARGET…], --seconds N for each (60)
  hostile        Run inputs, callers and disks that mean harm: [SECTION…] of access, description, bombs, memory, crashes, flips,
                 erasure and callers
  help           Print this
";

/// Environment variable that makes the test of `docs/codes.md` write the file instead of comparing it.
const WRITE_DOCS: &str = "PATCHBOARD_WRITE_DOCS";

/// Environment variable that makes the test of the golden journals keep the journals it plays.
const WRITE_GOLDEN: &str = "PATCHBOARD_WRITE_GOLDEN";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["cassettes", arguments @ ..] => cassettes::cassettes(arguments, HELP),
        ["check"] => check::check(),
        ["check", "--full", options @ ..] => full::full(options, HELP),
        ["codes"] => codes(),
        ["differential", options @ ..] => differential(options),
        ["evidence", options @ ..] => evidence::evidence(options, HELP),
        ["golden"] => golden(),
        ["fuzz", options @ ..] => fuzz::fuzz(options, HELP),
        ["hostile", options @ ..] => hostile::hostile(options, HELP),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("error: no such command: {}\n\n{HELP}", arguments.join(" "));
            ExitCode::from(2)
        }
    }
}

fn codes() -> ExitCode {
    let mut command = cargo();
    command.args(["test", "--quiet", "--package", "patchboard-tests", "--test", "it", "codes::"]);
    command.env(WRITE_DOCS, "1");
    if !succeeds(&mut command) {
        return ExitCode::FAILURE;
    }
    println!("docs/codes.md is up to date");
    ExitCode::SUCCESS
}

/// Writes the golden journals of the current format. The test refuses to overwrite existing ones.
fn golden() -> ExitCode {
    let mut command = cargo();
    let test = "golden::boards_of_the_present_format_can_be_kept_and_are_what_was_played";
    command.args(["test", "--package", "patchboard-tests", "--test", "it", "--", "--exact", test]);
    command.env(WRITE_GOLDEN, "1");
    if !succeeds(&mut command) {
        return ExitCode::FAILURE;
    }
    println!("the journals of the present format are in tests/golden");
    ExitCode::SUCCESS
}

/// Runs the random differential tests, optimised, for the given numbers of verdicts and edits.
fn differential(options: &[&str]) -> ExitCode {
    let (mut cases, mut seed) = ("1000000", "1");
    for option in options.chunks(2) {
        match option {
            ["--cases", number] if number.parse::<u32>().is_ok() => cases = number,
            ["--seed", number] if number.parse::<u32>().is_ok() => seed = number,
            _ => {
                eprintln!("error: not understood: {}\n\n{HELP}", option.join(" "));
                return ExitCode::from(2);
            }
        }
    }
    let tests = [
        ["--package", "patchboard-kernel", "--lib", "tree::tests::a_tree_is_the_value_whatever_is_done_to_it"],
        ["--package", "patchboard-tests", "--test=it", "differential::random"],
    ];
    eprintln!("{cases} random edits of trees, then {cases} random verdicts, both from seed {seed}");
    for test in tests {
        let mut command = cargo();
        command.args(["test", "--release"]).args(test).args(["--", "--nocapture"]);
        command.env("DIFFERENTIAL_CASES", cases).env("DIFFERENTIAL_SEED", seed);
        if !succeeds(&mut command) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Returns the command for this cargo, in the workspace's root, with the path of the conformance data for tests.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(workspace_root()).env("PATCHBOARD_SHARED", shared());
    command
}

/// Runs a command of cargo; reports if it cannot be run.
fn succeeds(command: &mut Command) -> bool {
    let status = command.status().inspect_err(|error| eprintln!("error: cargo cannot be run: {error}"));
    status.is_ok_and(|status| status.success())
}

/// Returns the directory of the conformance data.
fn shared() -> PathBuf {
    let named = std::env::var_os("PATCHBOARD_SHARED");
    named.map_or_else(|| workspace_root().join("../shared"), PathBuf::from)
}

fn target_directory() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    workspace_root().join(target)
}

fn workspace_root() -> PathBuf {
    // The runtime value has priority: a copied target directory has the path of another workspace compiled in.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().expect("xtask is a folder of the workspace").to_owned()
}

fn seconds(elapsed: Duration) -> String {
    format!("{:.1} s", elapsed.as_secs_f64())
}
