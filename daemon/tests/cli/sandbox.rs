//! Test fixture: a directory for each test, and the binary run in it.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A blueprint without a model: one worker writes a note, at first a wrong one, and another checks it.
pub(crate) const NOTES: &str = include_str!("notes.yaml");

/// Returns [`NOTES`] with another agent as the writer, and further lines of its seat.
pub(crate) fn notes_by(agent: &str, seat: &str) -> String {
    let (head, rest) = NOTES.split_once("    script:\n").expect("the writer comes first");
    let (_, rest) = rest.split_once("  checker:\n").expect("the checker comes next");
    let head = head.replacen("agent: script", &format!("agent: {agent}"), 1);
    format!("{head}{seat}  checker:\n{rest}")
}

/// Returns the path of a shipped blueprint file.
pub(crate) fn shipped(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../blueprints").join(name);
    path.to_str().expect("the path is text").to_owned()
}

/// A directory with a blueprint `notes.yaml`.
pub(crate) struct Sandbox {
    directory: TempDir,
}

/// Result of a command.
pub(crate) struct CommandResult {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        let sandbox = Self { directory: tempfile::tempdir().expect("a directory can be made") };
        sandbox.write("notes.yaml", NOTES);
        sandbox
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().expect("it is in the directory")).expect("a directory can be made");
        fs::write(path, text).expect("a file can be written");
    }

    /// Returns a command with these arguments, without the caller's environment variables that would affect it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_patchboard"));
        command.current_dir(self.path()).args(arguments);
        for variable in ["PATCHBOARD_DATA_DIR", "RUST_LOG", "OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL"] {
            command.env_remove(variable);
        }
        // Naming the test's configuration counts as consent.
        command.env("XDG_CONFIG_HOME", self.path().join("home"));
        if self.path().join("patchboard.toml").is_file() {
            command.env("PATCHBOARD_CONFIG", "patchboard.toml");
        }
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> CommandResult {
        self.run_with(arguments, "")
    }

    /// Runs the binary to its end with this standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: impl AsRef<[u8]>) -> CommandResult {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be run");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let input = input.as_ref().to_vec();
        // Written from a thread: a command that answers while it reads could otherwise deadlock with the test.
        let writer = std::thread::spawn(move || {
            // A command may stop reading early.
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().expect("the binary ends");
        writer.join().expect("writing does not panic");
        CommandResult::from(output)
    }
}

impl From<Output> for CommandResult {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("stdout is text"),
            stderr: String::from_utf8(output.stderr).expect("stderr is text"),
        }
    }
}

impl CommandResult {
    /// Checks the exit code; prints all output on failure.
    #[track_caller]
    pub(crate) fn expect_exit(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Returns stdout as one JSON value.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {:?}", self.stdout))
    }

    /// Returns stdout as JSON lines.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        self.stdout.lines().map(read).collect()
    }

    /// Returns the error on stderr as JSON.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let line = self.stderr.lines().last().unwrap_or_default();
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {:?}", self.stderr));
        value["error"].clone()
    }
}
