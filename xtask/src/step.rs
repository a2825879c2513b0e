//! One step of a check: a command of cargo, run to its end, with its tests counted.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::Stdio;

use super::cargo;
use super::tally::{Runner, Tally};

/// A command of a check.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// Arguments of cargo.
    pub(crate) arguments: &'static [&'static str],
    pub(crate) environment: &'static [(&'static str, &'static str)],
    /// The runner of its tests, if it runs some: its output is read for their numbers.
    pub(crate) tests: Option<Runner>,
}

impl Step {
    pub(crate) const fn new(name: &'static str, arguments: &'static [&'static str]) -> Self {
        Self { name, arguments, environment: &[], tests: None }
    }

    /// A step that runs tests.
    pub(crate) const fn of_tests(name: &'static str, runner: Runner, arguments: &'static [&'static str]) -> Self {
        Self { tests: Some(runner), ..Self::new(name, arguments) }
    }

    /// The command as it can be typed again.
    pub(crate) fn command(&self) -> String {
        let variables = self.environment.iter().map(|(name, value)| format!("{name}={value} "));
        format!("{}cargo {}", variables.collect::<String>(), self.arguments.join(" "))
    }
}

/// Runs one step; false if it failed or could not be started.
pub(crate) fn run(step: &Step, tally: &mut Tally) -> bool {
    run_with(step, &[], tally)
}

/// Like [`run`], with further variables in its environment.
pub(crate) fn run_with(step: &Step, variables: &[(&str, &OsStr)], tally: &mut Tally) -> bool {
    let mut command = cargo();
    command.args(step.arguments).envs(step.environment.iter().copied()).envs(variables.iter().copied());
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
