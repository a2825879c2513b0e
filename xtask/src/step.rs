//! Step of a check: runs a command of cargo or a release binary to its end, and counts its tests.

use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

use super::tally::{Runner, Tally};
use super::{cargo, target_directory, workspace_root};

/// Variable that sets how many tests nextest runs at once.
const TEST_THREADS: &str = "NEXTEST_TEST_THREADS";

/// Command of a check: cargo, or a binary of the release build.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// Binary of a release build that runs in place of cargo. `cargo run --package` would build its dependencies again
    /// with the features of that package alone.
    pub(crate) binary: Option<&'static str>,
    /// Arguments of cargo or of the binary, separated by spaces.
    pub(crate) arguments: &'static str,
    pub(crate) environment: &'static [(&'static str, &'static str)],
    /// Test runner of the step, if it runs tests; determines how its output is parsed.
    pub(crate) tests: Option<Runner>,
}

impl Step {
    pub(crate) const fn new(name: &'static str, arguments: &'static str) -> Self {
        Self { name, binary: None, arguments, environment: &[], tests: None }
    }

    /// Creates a step that runs the binary of its name from the release build, made by an earlier step.
    pub(crate) const fn of_release(name: &'static str, arguments: &'static str) -> Self {
        Self { binary: Some(name), ..Self::new(name, arguments) }
    }

    /// Creates a step that runs tests.
    pub(crate) const fn of_tests(name: &'static str, runner: Runner, arguments: &'static str) -> Self {
        Self { tests: Some(runner), ..Self::new(name, arguments) }
    }

    /// Sets the environment variables.
    pub(crate) const fn with(self, environment: &'static [(&'static str, &'static str)]) -> Self {
        Self { environment, ..self }
    }

    pub(crate) fn command(&self) -> String {
        let variables = self.environment.iter().map(|(name, value)| format!("{name}={value} "));
        let program = self.binary.map_or("cargo".to_owned(), |binary| format!("target/release/{binary}"));
        let command = format!("{}{program} {}", variables.collect::<String>(), self.arguments);
        command.trim_end().to_owned()
    }

    /// The program, run from the workspace's root.
    fn program(&self) -> Command {
        match self.binary {
            Some(binary) => {
                let mut command = Command::new(target_directory().join("release").join(binary));
                command.current_dir(workspace_root());
                command
            }
            None => cargo(),
        }
    }
}

/// Runs one step; false if it failed or could not be started.
pub(crate) fn run(step: &Step, tally: &mut Tally) -> bool {
    run_with(step, &[], tally)
}

/// Like [`run`], with further environment variables.
pub(crate) fn run_with(step: &Step, variables: &[(&str, &OsStr)], tally: &mut Tally) -> bool {
    let mut command = step.program();
    command
        .args(step.arguments.split_whitespace())
        .envs(step.environment.iter().copied())
        .envs(variables.iter().copied());
    if step.tests == Some(Runner::Nextest) && env::var_os(TEST_THREADS).is_none() {
        command.env(TEST_THREADS, tests_at_once().to_string());
    }
    let Some(runner) = step.tests else {
        return command.status().inspect_err(|error| report(step, error)).is_ok_and(|status| status.success());
    };
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn().inspect_err(|error| report(step, error)) else { return false };
    let stdout = child.stdout.take().expect("stdout was piped");
    let stderr = child.stderr.take().expect("stderr was piped");
    // nextest reports on stderr, the test harness on stdout. Both are forwarded immediately, and both are counted.
    let (from_stdout, from_stderr) = std::thread::scope(|scope| {
        let other = scope.spawn(|| forward(runner, stderr, io::stderr()));
        (forward(runner, stdout, io::stdout()), other.join().expect("reading lines does not panic"))
    });
    tally.add(from_stdout);
    tally.add(from_stderr);
    child.wait().is_ok_and(|status| status.success())
}

/// Returns the number of tests that run at once: half as many again as there are processors, because tests spend a
/// quarter of their time waiting for clocks, disks and other processes.
fn tests_at_once() -> usize {
    available_parallelism().map_or(1, |processors| processors.get() + processors.get().div_ceil(2))
}

fn report(step: &Step, error: &io::Error) {
    let help = if step.binary.is_some() { "; run the step `release` first" } else { "" };
    eprintln!("error: `{}` cannot be run: {error}{help}", step.command());
}

/// Forwards lines and counts the tests they report.
fn forward(runner: Runner, from: impl Read, mut to: impl Write) -> Tally {
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
        // Write errors are ignored: the step must run to its end even without a reader.
        let _ = to.write_all(&line);
    }
}
