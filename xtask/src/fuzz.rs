//! `cargo xtask fuzz`: runs libFuzzer on the targets of `tests/fuzz` for a limited time, with the stable compiler.
//!
//! Findings go to `fuzz` in the target directory, never into the repository. To keep a failure, name it and add it to
//! `tests/fuzz/corpus`.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use super::{cargo, seconds, target_directory, workspace_root};

/// Directory of the targets and their corpus, relative to the workspace's root.
const PACKAGE: &str = "tests/fuzz";
/// Name of the built program.
const RUNNER: &str = "patchboard-fuzz-runner";
/// Environment variables of the runner: its target, and the file for the current input.
const TARGET: &str = "PATCHBOARD_FUZZ_TARGET";
const LAST: &str = "PATCHBOARD_FUZZ_LAST";

/// Maximum bytes of an input; the targets read no more.
const INPUT_BYTES_MAX: u32 = 8192;
/// Limits per input: time in seconds, and total memory in MiB.
const INPUT_SECONDS_MAX: u32 = 25;
const MEMORY_MIB_MAX: u32 = 2048;
/// Stack of a tokio worker thread in KiB, for `ulimit -s`.
const STACK_KIB: u32 = 2048;

/// Compiler flags that count the edges reached by an input, and report comparisons. libFuzzer needs no more, and all of
/// these are available in a stable compiler.
const INSTRUMENTATION: &str = "\
    -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 \
    --cfg fuzzing";

/// Options: the targets (empty for all), and the seconds for each.
#[derive(PartialEq, Eq, Debug)]
struct FuzzOptions<'a> {
    targets: Vec<&'a str>,
    seconds: u32,
}

/// Statistics of a run, from libFuzzer's output.
#[derive(Default)]
struct RunStats {
    executions: Option<u64>,
    executions_per_second: Option<u64>,
    edges: Option<u64>,
    failed: Option<PathBuf>,
}

/// Builds the runner, and runs each selected target.
pub(crate) fn fuzz(options: &[&str], help: &str) -> ExitCode {
    let Some(wanted) = read(options) else {
        eprintln!("error: not understood: {}\n\n{help}", options.join(" "));
        return ExitCode::from(2);
    };
    let corpus = workspace_root().join(PACKAGE).join("corpus");
    let known = match folders(&corpus) {
        Ok(known) => known,
        Err(error) => return fail(&format!("{} cannot be read: {error}", corpus.display())),
    };
    if let Some(unknown) = wanted.targets.iter().find(|name| !known.iter().any(|known| known == *name)) {
        eprintln!("error: there is no target {unknown}; there are {}", known.join(", "));
        return ExitCode::from(2);
    }
    let scratch = scratch();
    let runner = match build(&scratch) {
        Ok(runner) => runner,
        Err(why) => return fail(&why),
    };
    let targets = known.iter().filter(|name| wanted.targets.is_empty() || wanted.targets.contains(&name.as_str()));
    let mut failures = 0;
    for target in targets {
        match run(target, &runner, &scratch.join("found").join(target), wanted.seconds) {
            Ok(true) => {}
            Ok(false) => failures += 1,
            Err(why) => return fail(&why),
        }
    }
    if failures == 0 { ExitCode::SUCCESS } else { fail(&format!("{failures} of the targets failed")) }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("error: {why}");
    ExitCode::FAILURE
}

/// Parses the options; `None` if they are invalid.
fn read<'a>(options: &[&'a str]) -> Option<FuzzOptions<'a>> {
    let mut wanted = FuzzOptions { targets: Vec::new(), seconds: 60 };
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--seconds" => wanted.seconds = options.next()?.parse().ok().filter(|seconds| *seconds > 0)?,
            name if !name.starts_with('-') => wanted.targets.push(name),
            _ => return None,
        }
    }
    Some(wanted)
}

/// Returns the folder for the instrumented build and the findings, in the target directory.
fn scratch() -> PathBuf {
    target_directory().join("fuzz")
}

fn build(scratch: &Path) -> Result<PathBuf, String> {
    let host = host()?;
    println!("── building the runner for {host}");
    let begun = Instant::now();
    // With `--target`, build scripts and macros are not instrumented.
    let mut command = cargo();
    command.current_dir(workspace_root().join(PACKAGE).join("runner"));
    command.args(["build", "--release", "--locked", "--target", &host]);
    command.env("RUSTFLAGS", INSTRUMENTATION).env_remove("CARGO_ENCODED_RUSTFLAGS").env("CARGO_TARGET_DIR", scratch);
    let status = command.status().map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !status.success() {
        return Err("the runner cannot be built, for what cargo said above; libFuzzer needs a C++ compiler".to_owned());
    }
    println!("── building the runner: ok in {}", seconds(begun.elapsed()));
    Ok(scratch.join(host).join("release").join(RUNNER))
}

/// Returns the compiler's default target, e.g. `aarch64-unknown-linux-gnu`.
fn host() -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let output = Command::new(rustc).arg("-vV").output().map_err(|error| format!("rustc cannot be run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not name its host".to_owned())
}

/// Runs one target for a number of seconds; false if an input failed.
fn run(target: &str, runner: &Path, folder: &Path, seconds: u32) -> Result<bool, String> {
    let unusable = |error: std::io::Error| format!("{} cannot be used: {error}", folder.display());
    let (found, last, log) = (folder.join("corpus"), folder.join("last"), folder.join("log"));
    fs::create_dir_all(&found).map_err(unusable)?;
    let mut command = limited(runner);
    command.env(TARGET, target).env(LAST, &last);
    // New findings go to the first folder, the others are only read.
    command.arg(&found).arg(workspace_root().join(PACKAGE).join("corpus").join(target));
    if target == "blueprint" {
        command.arg(workspace_root().join("blueprints"));
    }
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={INPUT_BYTES_MAX}"));
    command.arg(format!("-timeout={INPUT_SECONDS_MAX}")).arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"));
    command.arg(format!("-artifact_prefix={}/", folder.display())).arg("-print_final_stats=1");
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{} cannot be run: {error}", runner.display()))?;
    let stderr = child.stderr.take().expect("stderr was piped");
    let mut stats = RunStats::default();
    let mut lines = String::new();
    for line in BufReader::new(stderr).split(b'\n') {
        let line = line.map_err(|error| format!("the runner cannot be read: {error}"))?;
        let line = String::from_utf8_lossy(&line);
        stats.read(&line);
        lines.push_str(&line);
        lines.push('\n');
    }
    let status = child.wait().map_err(|error| format!("the runner cannot be waited for: {error}"))?;
    fs::write(&log, lines).map_err(unusable)?;
    println!("── {target}: {} in {seconds} s: {}", if status.success() { "ok" } else { "FAILED" }, stats.summary());
    if !status.success() {
        // A stack overflow ends the process at once, so the runner stores each input before it runs.
        let input = stats.failed.unwrap_or(last);
        println!("   {status}; what was said is in {}", log.display());
        println!("   input: {}", input.display());
        println!("   again: (ulimit -s {STACK_KIB}; {TARGET}={target} {} {})", runner.display(), input.display());
    }
    Ok(status.success())
}

/// Returns the command of the runner with a small stack. Targets run in its main thread, and only a shell can
/// limit that stack.
fn limited(runner: &Path) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -s {STACK_KIB} && exec \"$0\" \"$@\"")).arg(runner);
    command
}

impl RunStats {
    /// Parses one line of libFuzzer's output: final numbers, edges reached so far, or the failed input.
    fn read(&mut self, line: &str) {
        let number = |text: &str| text.trim().parse().ok();
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            self.executions = number(count);
        } else if let Some(rate) = line.strip_prefix("stat::average_exec_per_sec:") {
            self.executions_per_second = number(rate);
        } else if let Some((_, path)) = line.split_once("Test unit written to ") {
            self.failed = Some(PathBuf::from(path.trim()));
        } else if let Some((_, rest)) = line.split_once(" cov: ") {
            self.edges = rest.split_whitespace().next().and_then(number).or(self.edges);
        }
    }

    fn summary(&self) -> String {
        let shown = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
        format!(
            "{} inputs, {} a second, {} edges",
            shown(self.executions),
            shown(self.executions_per_second),
            shown(self.edges)
        )
    }
}

/// Returns the names of the folders in a folder, sorted.
fn folders(of: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(of)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_seconds_are_read_in_any_order() {
        let wanted = |targets: &[&'static str], seconds| Some(FuzzOptions { targets: targets.to_vec(), seconds });
        assert_eq!(read(&[]), wanted(&[], 60));
        assert_eq!(read(&["json", "--seconds", "5", "cel"]), wanted(&["json", "cel"], 5));
        for nonsense in [&["--seconds"][..], &["--seconds", "0"], &["--seconds", "x"], &["--fast"]] {
            assert_eq!(read(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn the_output_of_libfuzzer_is_parsed() {
        let mut stats = RunStats::default();
        for line in [
            "#2\tINITED cov: 120 ft: 121 corp: 1/1b exec/s: 0 rss: 30Mb",
            "#349621\tDONE   cov: 2736 ft: 10274 corp: 1531/424Kb lim: 2691 exec/s: 6855 rss: 51Mb",
            "artifact_prefix='x/'; Test unit written to x/crash-0f",
            "stat::number_of_executed_units: 349621",
            "stat::average_exec_per_sec:     6855",
        ] {
            stats.read(line);
        }
        assert_eq!(stats.summary(), "349621 inputs, 6855 a second, 2736 edges");
        assert_eq!(stats.failed.as_deref(), Some(Path::new("x/crash-0f")));
    }
}
