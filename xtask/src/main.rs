//! The project's own commands: `cargo xtask check` is the one definition of done.
//!
//! It depends on nothing but the standard library, so that it builds in a second and still works when the crates it
//! checks do not compile. The steps are in [`STEPS`], what they print is counted in [`tally`].

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

mod evidence;
mod fuzz;
mod tally;

use tally::{Runner, Tally};

const HELP: &str = "\
Usage: cargo xtask COMMAND

Commands:
  check          Format, lints, tests and documentation; stops at the first that fails
  codes          Write docs/codes.md anew from the enums of the kernel
  differential   Compare trees with values, validation of changes with that of the whole: --cases N (1000000), --seed S (1)
  evidence       Show in full what docs/workspace-evidence.md has the figures of, which takes long: [PART…] of decisions, sessions,
                 histories and libraries, --short as the suite plays them
  golden         Play boards of the present journal format and write them to tests/golden/format-N, once and for ever; before a
                 change of the format
  fuzz           Fuzz what is read from outside, instrumented: [TARGET…], --seconds N for each (60)
  help           Print this
";

/// The name of the variable that lets the test of `docs/codes.md` write the file instead of comparing it.
const WRITE_DOCS: &str = "PATCHBOARD_WRITE_DOCS";

/// The name of the variable that lets the test of the golden journals keep what it plays.
const WRITE_GOLDEN: &str = "PATCHBOARD_WRITE_GOLDEN";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["check"] => check(),
        ["codes"] => codes(),
        ["differential", options @ ..] => differential(options),
        ["evidence", options @ ..] => evidence::evidence(options, HELP),
        ["golden"] => golden(),
        ["fuzz", options @ ..] => fuzz::fuzz(options, HELP),
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

/// One thing that must hold before a change is done.
struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// What runs tests in it, if it does: its output is read for their numbers.
    tests: Option<Runner>,
}

impl Step {
    const fn new(name: &'static str, arguments: &'static [&'static str]) -> Self {
        Self { name, arguments, environment: &[], tests: None }
    }
}

/// The steps around the tests, cheapest first.
const STEPS: [Step; 3] = [
    Step::new("format", &["fmt", "--all", "--check"]),
    Step::new("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    Step::new(
        "lints of features",
        &["clippy", "--package", "patchboard-daemon", "--all-targets", "--all-features", "--", "-D", "warnings"],
    ),
];

/// What only binaries with features do. Last of the tests, as it builds the daemon anew.
const FEATURES: [Step; 2] = [
    Step {
        tests: Some(Runner::Harness),
        ..Step::new(
            "tests of TLS",
            &[
                "test",
                "--package",
                "patchboard-daemon",
                "--all-features",
                "--test",
                "serve",
                "--no-fail-fast",
                "with::",
            ],
        )
    },
    Step {
        tests: Some(Runner::Harness),
        ..Step::new(
            "tests of traces",
            &["test", "--package", "patchboard-daemon", "--all-features", "--test", "otlp", "--no-fail-fast"],
        )
    },
];

/// The tests where nextest is installed; it does not run documentation's examples.
const NEXTEST: [Step; 2] = [
    Step { tests: Some(Runner::Nextest), ..Step::new("tests", &["nextest", "run", "--workspace", "--no-fail-fast"]) },
    Step {
        tests: Some(Runner::Harness),
        ..Step::new("examples in documentation", &["test", "--workspace", "--doc", "--no-fail-fast"])
    },
];

/// The tests where it is not.
const PLAIN_TESTS: [Step; 1] =
    [Step { tests: Some(Runner::Harness), ..Step::new("tests", &["test", "--workspace", "--no-fail-fast"]) }];

/// The documentation, private items left out.
const DOCS: [Step; 1] = [Step {
    environment: &[("RUSTDOCFLAGS", "-D warnings")],
    ..Step::new("documentation", &["doc", "--workspace", "--no-deps"])
}];

fn check() -> ExitCode {
    let tests: &[Step] = if has_nextest() { &NEXTEST } else { &PLAIN_TESTS };
    let mut tally = Tally::default();
    let mut failed = None;
    for step in STEPS.iter().chain(tests).chain(&FEATURES).chain(&DOCS) {
        println!("── {}: cargo {}", step.name, step.arguments.join(" "));
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

fn codes() -> ExitCode {
    let mut command = cargo();
    command.args(["test", "--quiet", "--package", "patchboard-tests", "--test", "it", "codes::"]);
    command.env(WRITE_DOCS, "1");
    match command.status() {
        Ok(status) if status.success() => {
            println!("docs/codes.md is up to date");
            ExitCode::SUCCESS
        }
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: cargo cannot be run: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the golden journals of the present format. The test refuses to write over those that are there.
fn golden() -> ExitCode {
    let mut command = cargo();
    let test = "golden::boards_of_the_present_format_can_be_kept_and_are_what_was_played";
    command.args(["test", "--package", "patchboard-tests", "--test", "it", "--", "--exact", test]);
    command.env(WRITE_GOLDEN, "1");
    match command.status() {
        Ok(status) if status.success() => {
            println!("the journals of the present format are in tests/golden");
            ExitCode::SUCCESS
        }
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: cargo cannot be run: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the random differential tests, optimised, for as many verdicts and as many edits as are asked for.
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
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(_) => return ExitCode::FAILURE,
            Err(error) => {
                eprintln!("error: cargo cannot be run: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Runs one step; false if it failed or could not be started.
fn run(step: &Step, tally: &mut Tally) -> bool {
    let mut command = cargo();
    command.args(step.arguments).envs(step.environment.iter().copied());
    let Some(runner) = step.tests else {
        return match command.status() {
            Ok(status) => status.success(),
            Err(error) => {
                eprintln!("error: cargo cannot be run: {error}");
                false
            }
        };
    };
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("error: cargo cannot be run: {error}");
            return false;
        }
    };
    let stdout = child.stdout.take().expect("stdout was piped");
    let stderr = child.stderr.take().expect("stderr was piped");
    // nextest reports on stderr, the test harness on stdout: both are passed on as they come, and both are counted.
    let (from_stdout, from_stderr) = std::thread::scope(|scope| {
        let other = scope.spawn(|| pass_on(runner, stderr, io::stderr()));
        (pass_on(runner, stdout, io::stdout()), other.join().expect("reading lines does not panic"))
    });
    tally.add(from_stdout);
    tally.add(from_stderr);
    child.wait().is_ok_and(|status| status.success())
}

/// Copies lines as they come and counts the tests they report.
fn pass_on(runner: Runner, from: impl Read, mut to: impl Write) -> Tally {
    let mut tally = Tally::default();
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return tally,
            Ok(_) => {}
        }
        tally.read(runner, &String::from_utf8_lossy(&line));
        // Whoever reads our output may have gone away; the step must run to its end all the same.
        let _ = to.write_all(&line);
    }
}

fn has_nextest() -> bool {
    cargo()
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The cargo that runs this command, in the workspace's root.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(workspace_root());
    command
}

fn workspace_root() -> PathBuf {
    // What cargo says when it runs us comes first: a target directory that was copied holds the path of another one.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().expect("xtask is a folder of the workspace").to_owned()
}

fn seconds(elapsed: Duration) -> String {
    format!("{:.1} s", elapsed.as_secs_f64())
}
