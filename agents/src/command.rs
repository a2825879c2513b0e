//! Runs a program as an agent, over its standard input and output.
//!
//! Owns the protocol and the life of the process. Without `restart` in the seat, each call starts a fresh process. It
//! reads one line of JSON on standard input, answers with one line or one JSON value on standard output, and has
//! [`GRACE`] to exit. With `restart` one process serves all calls of the worker on the board, line by line: see
//! [`session`].
//!
//! ```text
//! → {"protocol":1,"board":"…","worker":"…","invocation":3,"attempt":1,"token":"3:1","view":"…",
//!    "shown":{"/question":"…"},"trigger":{"kind":"event","rule":"…","op":"add","path":"/notes/3",
//!    "bound":{"note":"3"},"value":{…},"version":7},"system":"…"}
//! ← [{"op":"add","path":"/claims/-","value":{…}}]      a patch, or an envelope, or {"error":"…"}
//! ```
//!
//! `view` is the text that a language model would get; `shown` has the values that the view shows in full, by JSON
//! Pointer; `trigger` is the cause of the call
//! ([`CallContext::trigger`](patchboard_kernel::call_context::CallContext::trigger)).
//!
//! No shell is involved. The process leads a process group; the rest of the group is killed when the call ends by an
//! answer, its timeout or cancellation. It sees `PATH`, `HOME`, `LANG`, `TMPDIR` and the variables its configuration
//! names, so no secret reaches it by accident. The last lines of its standard error explain a failure; at DEBUG all of
//! it goes to the log, up to a limit.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::BoardId;
use patchboard_runtime::agent::{Call, CallResult, Failure, Reply};
use serde::Serialize;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStdin, Command};

use self::lines::{LINE_MAX, Lines, Output, StderrTail};
use self::session::{Limits, Sessions};
use crate::config::{Environment, Program};
use patchboard_kernel::text::one_line;
use patchboard_workspace::environment::INHERITED;
use patchboard_workspace::process_group::Group;

mod lines;
pub mod session;

/// Protocol version, sent with every request.
pub const PROTOCOL: u32 = 1;

/// Time for a process to exit after its answer, or after closing its standard output.
pub const GRACE: Duration = Duration::from_millis(500);

/// Starts programs and calls them. Dropping it kills those that keep state.
pub struct ProgramRunner {
    env: Vec<(&'static str, String)>,
    sessions: Sessions,
}

#[derive(Serialize)]
struct Request<'a> {
    protocol: u32,
    board: &'a str,
    worker: &'a str,
    invocation: u64,
    attempt: u32,
    token: &'a str,
    view: &'a str,
    shown: BTreeMap<&'a str, Value>,
    trigger: Value,
    system: &'a str,
}

impl ProgramRunner {
    /// Creates a runner; its programs see `PATH`, `HOME`, `LANG` and `TMPDIR` of `env`.
    pub fn new(env: &Environment) -> Self {
        let value = |name: &'static str| env.get(name).map(|value| (name, value.to_owned()));
        Self { env: INHERITED.into_iter().filter_map(value).collect(), sessions: Sessions::default() }
    }

    /// Sets the limits of programs that keep state.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.sessions.limits = limits;
        self
    }

    /// Answers a call with a program, within the call's timeout. A seat with `restart` uses a program that lives
    /// across calls, any other seat a fresh one.
    pub async fn answer(&self, program: &Program, call: &Call) -> CallResult {
        let asking = async {
            match call.worker_config().restart {
                None => self.ask(program, call).await,
                Some(restart) => self.sessions.ask(call, restart, || self.start(program)).await,
            }
        };
        tokio::time::timeout(call.timeout, asking).await.unwrap_or_else(|_| {
            let limit = call.timeout.as_secs_f64();
            let message = format!("no answer from the program within {limit} s, waiting for its other calls included");
            Err(Failure::new(FailureCode::Timeout, message))
        })
    }

    /// Kills the programs that keep state for a board.
    pub fn ended(&self, board: &BoardId) {
        self.sessions.end(board);
    }

    async fn ask(&self, program: &Program, call: &Call) -> CallResult {
        let mut child = self.start(program)?;
        let stdin = child.stdin().expect("standard input is a pipe");
        let stdout = child.stdout().expect("standard output is a pipe");
        let stderr = child.stderr().expect("standard error is a pipe");

        let request = request(call);
        let max = answer_max(call);
        let mut lines = Lines::of_values(stdout);
        let last_words = StderrTail::default();
        let mut written = false;
        let (output, status) = {
            let mut write = pin!(write(stdin, &request));
            let mut read = pin!(lines.next(max));
            let mut drain = pin!(last_words.drain(stderr, call.worker.as_str()));
            let mut drained = false;
            let output = loop {
                tokio::select! {
                    output = &mut read => break output,
                    // A program may answer without reading its input.
                    _ = &mut write, if !written => written = true,
                    () = &mut drain, if !drained => drained = true,
                }
            };
            // Standard input is closed by now, so a program that waits for more input exits.
            let mut ended = pin!(tokio::time::timeout(GRACE, child.ended()));
            let status = loop {
                tokio::select! {
                    status = &mut ended => break status.ok(),
                    () = &mut drain, if !drained => drained = true,
                }
            };
            if status.is_some() && !drained {
                // The last words of the program are in the pipe already; other holders of the pipe are not waited for.
                drop(tokio::time::timeout(Duration::from_millis(50), &mut drain).await);
            }
            (output, status)
        };
        let exit = child.end().await;
        match output {
            Ok(Output::Line(line)) => read_reply(line),
            Ok(Output::TooLong) => Err(too_long(max)),
            Ok(Output::Closed) => Err(no_output_failure(status.and(exit.ok()), &last_words.get())),
            Err(error) => Err(unreadable(&error)),
        }
    }

    fn start(&self, program: &Program) -> Result<Group, Failure> {
        let Some((name, args)) = program.program.split_first() else {
            return Err(Failure::new(FailureCode::NotConfigured, "the program's command line is empty"));
        };
        let mut command = Command::new(name);
        command
            .args(args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (*name, value)))
            .envs(&program.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(cwd) = &program.cwd {
            command.current_dir(cwd);
        }
        Group::spawn(command).map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => {
                    FailureCode::NotConfigured
                }
                _ => FailureCode::Crashed,
            };
            let place = program.cwd.as_ref().map(|cwd| format!(" in {}", cwd.display())).unwrap_or_default();
            Failure::new(code, format!("cannot start {name}{place}: {error}"))
        })
    }
}

/// Returns the size limit of an answer in bytes: twice the kernel's, so that the kernel reports a patch that is too
/// long.
fn answer_max(call: &Call) -> u64 {
    u64::from(call.worker_config().patch.max_bytes).saturating_mul(2)
}

fn request(call: &Call) -> Vec<u8> {
    let request = Request {
        protocol: PROTOCOL,
        board: call.board.as_str(),
        worker: call.worker.as_str(),
        invocation: call.invocation.0,
        attempt: call.attempt,
        token: call.idempotency_key.as_str(),
        view: &call.prompt.user,
        shown: call.context.values().map(|(place, value)| (place.as_str(), value.to_value())).collect(),
        trigger: call.context.trigger(),
        system: &call.prompt.system,
    };
    let mut line = serde_json::to_vec(&request).expect("strings and numbers are JSON");
    line.push(b'\n');
    line
}

async fn write(mut stdin: ChildStdin, line: &[u8]) -> io::Result<()> {
    stdin.write_all(line).await?;
    stdin.shutdown().await
}

fn too_long(max: u64) -> Failure {
    let message =
        format!("the program's line is longer than {max} bytes: twice what `patch.max_bytes` of the worker allows");
    Failure::new(FailureCode::Protocol, message)
}

fn unreadable(error: &io::Error) -> Failure {
    Failure::new(FailureCode::Crashed, format!("the program cannot be read: {error}"))
}

fn read_reply(line: Vec<u8>) -> CallResult {
    let Ok(text) = String::from_utf8(line) else {
        return Err(Failure::new(FailureCode::Protocol, "the program's line is not UTF-8"));
    };
    if let Ok(Value::Object(map)) = serde_json::from_str::<Value>(&text)
        && let (1, Some(error)) = (map.len(), map.get("error"))
    {
        let why = error.as_str().map_or_else(|| error.to_string(), str::to_owned);
        return Err(Failure::new(FailureCode::Refused, format!("the program says: {}", one_line(&why, LINE_MAX))));
    }
    // The kernel judges whether it is a patch; the journal keeps its findings for the program's author.
    Ok(Reply::new(text, None))
}

/// Describes the failure of a process without output; `exit` is absent if it had to be killed.
fn no_output_failure(exit: Option<std::process::ExitStatus>, last_words: &str) -> Failure {
    let said = if last_words.is_empty() { String::new() } else { format!(": {last_words}") };
    match exit {
        Some(exit) if exit.success() => Failure::new(FailureCode::Empty, format!("the program wrote nothing{said}")),
        Some(exit) => Failure::new(FailureCode::Crashed, format!("the program ended with {exit}{said}")),
        None => Failure::new(FailureCode::Empty, format!("the program closed its output and did not end{said}")),
    }
}
