//! Records the shipped cassettes again, from a language model.
//!
//! Each recording is made beside the shipped one and replayed without the model before it replaces the shipped one. An
//! unavailable model, or a conversation with another end, changes nothing.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use super::{cargo, workspace_root};

/// Shipped cassette, with the parameters of its board.
struct Shipped {
    /// Name of the blueprint, and of the folder with its request and its cassette.
    name: &'static str,
    options: &'static [&'static str],
    /// Options for the recording only.
    recording: &'static [&'static str],
    /// Messages after the request, each as a signal `say`.
    messages: &'static [&'static str],
    /// Expected exit code of the board.
    exit: i32,
}

const SHIPPED: [Shipped; 3] = [
    Shipped { name: "evidence-review", options: &[], recording: &[], messages: &[], exit: 0 },
    Shipped {
        name: "blackboard",
        options: &["--seed", "1"],
        // Agents with the same prompt would otherwise give the same answers at the vote.
        recording: &["--temperature", "0.7"],
        messages: &[],
        exit: 0,
    },
    Shipped {
        name: "clipboard",
        options: &[],
        recording: &[],
        messages: &[
            "\"Put bananas on the office list.\"",
            "\"Throw the bananas off the list.\"",
            "\"the household one\"",
        ],
        // The board stalls until the next message.
        exit: 4,
    },
];

/// Records all cassettes, or the named ones. The other options go to `patchboard run` and select the model.
pub(crate) fn cassettes(arguments: &[&str], help: &str) -> ExitCode {
    let (names, model): (Vec<&str>, Vec<&str>) = split(arguments);
    let known = |name: &&str| SHIPPED.iter().any(|shipped| shipped.name == *name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        let all: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.name).collect();
        eprintln!("error: no cassette of {name} is shipped; there are {}\n\n{help}", all.join(", "));
        return ExitCode::from(2);
    }
    if model.is_empty() {
        eprintln!("error: name the model: --model-url URL --model NAME, or --config FILE\n\n{help}");
        return ExitCode::from(2);
    }
    let program = match build_program() {
        Ok(program) => program,
        Err(why) => return failed(&why),
    };
    let wanted = |shipped: &&Shipped| names.is_empty() || names.contains(&shipped.name);
    for shipped in SHIPPED.iter().filter(wanted) {
        println!("── {}", shipped.name);
        match record(shipped, &program, &model) {
            Ok(cassette) => println!("── {}: {} is recorded again, and plays", shipped.name, cassette.display()),
            Err(why) => return failed(&format!("{}: {why}; the shipped cassette is as it was", shipped.name)),
        }
    }
    println!(
        "now run the tests, which play the recordings, and look at the figures of the pages in docs that tell of them"
    );
    ExitCode::SUCCESS
}

/// Splits the arguments into names of cassettes and options of the model.
fn split<'a>(arguments: &[&'a str]) -> (Vec<&'a str>, Vec<&'a str>) {
    let at = arguments.iter().position(|argument| argument.starts_with('-')).unwrap_or(arguments.len());
    (arguments[..at].to_vec(), arguments[at..].to_vec())
}

fn failed(why: &str) -> ExitCode {
    eprintln!("error: {why}");
    ExitCode::FAILURE
}

fn build_program() -> Result<PathBuf, String> {
    let mut build = cargo();
    build.args(["build", "--package", "patchboard-daemon", "--bin", "patchboard"]);
    match build.status() {
        Ok(status) if status.success() => {
            Ok(target().join("debug").join("patchboard").with_extension(std::env::consts::EXE_EXTENSION))
        }
        Ok(_) => Err("the program could not be built".to_owned()),
        Err(error) => Err(format!("cargo cannot be run: {error}")),
    }
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace_root().join("target"), PathBuf::from)
}

/// Records one board, replays the recording, and replaces the shipped one.
fn record(shipped: &Shipped, program: &Path, model: &[&str]) -> Result<PathBuf, String> {
    let room = target().join("cassettes").join(shipped.name);
    let failed = |error: io::Error| format!("{}: {error}", room.display());
    if room.exists() {
        fs::remove_dir_all(&room).map_err(failed)?;
    }
    fs::create_dir_all(&room).map_err(failed)?;
    let made = room.join("cassette.jsonl");
    let live = [shipped.recording, model].concat();
    let recorded = converse(shipped, program, &room.join("recorded"), &live, |is_first| {
        let append = (!is_first).then_some("--append".as_ref());
        ["--record".as_ref(), made.as_os_str()].into_iter().chain(append).collect()
    })?;
    let played =
        converse(shipped, program, &room.join("played"), &[], |_| vec!["--cassette".as_ref(), made.as_os_str()])?;
    if recorded != played {
        return Err(format!("it was recorded as\n{}\nand plays as\n{}", recorded.join("\n"), played.join("\n")));
    }
    let cassette = workspace_root().join("blueprints").join(shipped.name).join("cassette.jsonl");
    fs::copy(&made, &cassette).map_err(|error| format!("{}: {error}", cassette.display()))?;
    Ok(cassette)
}

/// Creates the board and sends all messages. Returns the board's document after each command.
fn converse<'a>(
    shipped: &Shipped,
    program: &Path,
    data: &Path,
    options: &[&str],
    seats: impl Fn(bool) -> Vec<&'a OsStr>,
) -> Result<Vec<String>, String> {
    let patchboard = |arguments: &[&str], is_first| {
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(data).args(arguments).args(options).args(seats(is_first));
        run_for_output(&mut command, shipped.exit)?;
        run_for_output(Command::new(program).arg("--data-dir").arg(data).args(["state", "last"]), 0)
    };
    let (blueprint, request) =
        (format!("blueprints/{}.yaml", shipped.name), format!("@blueprints/{}/request.json", shipped.name));
    let run = [&["run", &blueprint, "--request", &request], shipped.options].concat();
    let first = patchboard(&run, true)?;
    let others = shipped.messages.iter().map(|message| patchboard(&["signal", "last", "say", message], false));
    std::iter::once(Ok(first)).chain(others).collect()
}

/// Runs a command with visible progress and checks its exit code. Returns its output.
fn run_for_output(command: &mut Command, exit: i32) -> Result<String, String> {
    let output = command
        .current_dir(workspace_root())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("it cannot be run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.code() != Some(exit) {
        return Err(format!("the program ended with {}, not {exit}:\n{text}", output.status));
    }
    Ok(text.into_owned())
}
