//! Execution of programs in a workspace. Programs declare the files that they may change and run one at a time where
//! these sets overlap. Their changes are reported to the board.
//!
//! The operator configures each program by name. It runs without a shell, in a process group of its own. Only the end
//! of its output is kept, because errors are usually printed there.

use std::collections::VecDeque;
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::code_enum;
use patchboard_kernel::files::{FilePath, INTENT_MAX};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::{Instant, timeout};

use super::active_programs::ObservedChanges;
use super::disk::locks::{LockError, PathSet, WAITS_MAX};
use super::service::{Workspace, WorkspaceError};
use crate::environment::{Environment, INHERITED};
use crate::process_group::Group;
use crate::program::Program;
use patchboard_kernel::text::{counted, is_or_are, one_line};

const OUTPUT_BYTES_MAX: usize = 32 * 1024;

/// Maximum number of arguments per run, and maximum bytes of each.
const ARGUMENTS_MAX: usize = 64;
const ARGUMENT_BYTES_MAX: usize = 4096;

/// Characters of an intent reserved for the program's exit status.
const END_MAX: usize = 40;

/// Maximum and default run time of a program.
const RUNS_MAX: Duration = Duration::from_secs(600);

const _: () = assert!(RUNS_MAX.as_secs() < WAITS_MAX.as_secs(), "who waits for a program comes to its turn");

/// Time limit for reading output after the program has ended, because a process that it left running may hold the pipe.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);

code_enum! {
    /// Reasons why a program did not run to completion.
    ProgramCode {
        /// The worker has no grant for it, or the operator has not configured such a program.
        NoSuchProgram = "no_such_program",
        /// The program accepts no arguments from workers, or the arguments exceed the limits.
        BadArguments = "bad_program_arguments",
        /// The program cannot be started.
        CannotStart = "cannot_start",
        /// The program exceeded its time limit and was killed.
        Timeout = "took_too_long",
    }
}

/// Errors of a run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// Program not run to completion.
    #[error("{1}")]
    Program(ProgramCode, String),
    /// Lock on the files that it may change not acquired.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Error of the workspace.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

impl ProgramError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Program(code, _) => code.as_str(),
            Self::Lock(error) => error.code().as_str(),
            Self::Workspace(error) => error.code(),
        }
    }
}

/// Result of a program run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProgramResult {
    /// Exit code; `None` if a signal ended it.
    pub exit: Option<i32>,
    /// End of its standard output.
    pub stdout: String,
    /// End of its standard error.
    pub stderr: String,
    /// Files of its declared set that changed while it ran.
    pub changed: Vec<FilePath>,
    /// Other files that changed while it ran.
    pub others: Vec<FilePath>,
    /// Changes that the board rejected or was not informed of, with reasons.
    pub unreported: Vec<String>,
}

/// Runs a program in the workspace's directory, with `arguments` after its configured ones. If the caller is dropped,
/// the whole process group is killed. The lock is held until the end, and changes are reported in the caller's name.
/// Changes made until an error are still reported to the board.
pub async fn run(
    workspace: &Arc<Workspace>,
    name: &str,
    program: &Program,
    arguments: &[String],
    caller: &str,
) -> Result<ProgramResult, ProgramError> {
    let place = program.cwd.as_deref().unwrap_or(workspace.disk().path());
    let (command, limit) = prepare(place, name, program, arguments)?;
    let set = PathSet::parse(program.changes.iter().map(String::as_str))?;
    let by = format!("{caller}, running {name},");
    // A program that changes nothing needs no lock.
    let turn = match program.changes.is_empty() {
        true => None,
        false => Some(workspace.locks.acquire(set.clone(), &by, Instant::now() + WAITS_MAX).await?),
    };
    let (own, label, intent) = (Arc::clone(workspace), caller.to_owned(), intent(name, arguments));
    let name = name.to_owned();
    run_to_completion(|unwanted| async move {
        let _turn = turn;
        // Record earlier external changes first, so that they are not attributed to the program.
        own.rescan().await?;
        let running = own.runs(set, &label, &intent);
        let done = run_process(&name, command, limit, unwanted).await;
        running.set_intent(format!("{intent}: {}", end(&done)));
        // The run counts even if its changes cannot be reported.
        let unreported = match own.rescan().await {
            Ok(found) => found.messages(),
            Err(error) => vec![format!("what it changed was not told to the board: {error}")],
        };
        let ObservedChanges { own, others } = running.effects();
        Ok(ProgramResult {
            changed: own.into_iter().collect(),
            others: others.into_iter().collect(),
            unreported,
            ..done?
        })
    })
    .await
}

/// Runs a program in `copy`, a private copy of the workspace's directory that the board does not track.
pub async fn run_in(
    copy: &Path,
    workspace: &Workspace,
    name: &str,
    program: &Program,
    arguments: &[String],
) -> Result<ProgramResult, ProgramError> {
    let place = match program.cwd.as_deref().and_then(|cwd| cwd.canonicalize().ok()) {
        None => copy.to_owned(),
        // A working directory inside the workspace is mapped to the copy.
        Some(cwd) => cwd.strip_prefix(workspace.disk().path()).map_or(cwd.clone(), |below| copy.join(below)),
    };
    let (command, limit) = prepare(&place, name, program, arguments)?;
    let name = name.to_owned();
    run_to_completion(|unwanted| async move { run_process(&name, command, limit, unwanted).await }).await
}

/// Runs work on a task that outlives the caller. The receiver closes when the caller is dropped.
async fn run_to_completion<F>(work: impl FnOnce(oneshot::Receiver<()>) -> F) -> Result<ProgramResult, ProgramError>
where
    F: Future<Output = Result<ProgramResult, ProgramError>> + Send + 'static,
{
    let (wanted, unwanted) = oneshot::channel();
    let ran = tokio::spawn(work(unwanted)).await;
    // A dropped caller closes the channel earlier.
    drop::<oneshot::Sender<()>>(wanted);
    ran.unwrap_or_else(|error| Err(WorkspaceError::broken(error).into()))
}

fn check_arguments(name: &str, program: &Program, arguments: &[String]) -> Result<(), ProgramError> {
    let bad = |message: String| Err(ProgramError::Program(ProgramCode::BadArguments, message));
    if !arguments.is_empty() && !program.arguments {
        return bad(format!("{name} takes no further arguments"));
    }
    if arguments.len() > ARGUMENTS_MAX || arguments.iter().any(|argument| argument.len() > ARGUMENT_BYTES_MAX) {
        return bad(format!("at most {ARGUMENTS_MAX} arguments of {ARGUMENT_BYTES_MAX} bytes may be given"));
    }
    Ok(())
}

/// Returns the intent for the program's changes: its command line, cut to leave room for the exit status.
fn intent(name: &str, arguments: &[String]) -> String {
    let command_line = arguments.iter().fold(format!("ran {name}"), |said, argument| said + " " + argument);
    one_line(&command_line, INTENT_MAX - END_MAX)
}

/// Describes how a program ended.
fn end(done: &Result<ProgramResult, ProgramError>) -> String {
    match done {
        Ok(ProgramResult { exit: Some(code), .. }) => format!("exit {code}"),
        Ok(ProgramResult { exit: None, .. }) => "a signal ended it".to_owned(),
        Err(error) => error.code().to_owned(),
    }
}

/// Returns the command line of a run, and its time limit.
fn prepare(
    place: &Path,
    name: &str,
    program: &Program,
    arguments: &[String],
) -> Result<(Command, Duration), ProgramError> {
    check_arguments(name, program, arguments)?;
    let Some((first, own)) = program.program.split_first() else {
        let message = format!("{name} has no command line");
        return Err(ProgramError::Program(ProgramCode::CannotStart, message));
    };
    let environment = Environment::from_process();
    let inherited = INHERITED.into_iter().filter_map(|name| Some((name, environment.get(name)?)));
    let mut command = Command::new(first);
    command
        .args(own)
        .args(arguments)
        .env_clear()
        .envs(inherited)
        .envs(&program.env)
        .current_dir(place)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let limit = program.timeout.map_or(RUNS_MAX, |timeout| Duration::from_millis(timeout.as_ms())).min(RUNS_MAX);
    Ok((command, limit))
}

enum RunEnd {
    Ended,
    Timeout,
    CallerGone,
}

/// Runs a program until no process of its group is left.
async fn run_process(
    name: &str,
    command: Command,
    limit: Duration,
    mut unwanted: oneshot::Receiver<()>,
) -> Result<ProgramResult, ProgramError> {
    let fail = |code, message: String| ProgramError::Program(code, message);
    // The caller is gone, so this error is never read.
    let unread = || fail(ProgramCode::Timeout, format!("{name} was ended: nobody waits for it"));
    if unwanted.try_recv() == Err(TryRecvError::Closed) {
        return Err(unread());
    }
    let mut group = Group::spawn(command)
        .map_err(|error| fail(ProgramCode::CannotStart, format!("{name} cannot be started: {error}")))?;
    let (mut stdout, mut stderr) = (Tail::new(group.stdout()), Tail::new(group.stderr()));
    let (stop, exit) = {
        let mut reading = pin!(async { tokio::join!(stdout.read(), stderr.read()) });
        let mut is_read = false;
        let stop = {
            let mut over = pin!(async {
                tokio::select! {
                    biased;
                    () = group.ended() => RunEnd::Ended,
                    _ = unwanted => RunEnd::CallerGone,
                    () = tokio::time::sleep(limit) => RunEnd::Timeout,
                }
            });
            loop {
                tokio::select! {
                    biased;
                    stop = &mut over => break stop,
                    _ = &mut reading, if !is_read => is_read = true,
                }
            }
        };
        // A process left running may hold the pipes; they close when the group is killed.
        if !is_read && matches!(stop, RunEnd::Ended) {
            is_read = timeout(OUTPUT_GRACE, &mut reading).await.is_ok();
        }
        let exit = group.end_wholly().await;
        if !is_read {
            timeout(OUTPUT_GRACE, &mut reading).await.ok();
        }
        (stop, exit)
    };
    match stop {
        RunEnd::Ended => {
            let exit = exit.ok().and_then(|status| status.code());
            let (stdout, stderr) = (stdout.text(), stderr.text());
            Ok(ProgramResult { exit, stdout, stderr, ..ProgramResult::default() })
        }
        RunEnd::Timeout => {
            let message = format!("{name} did not end within {} s, and was ended", limit.as_secs());
            Err(fail(ProgramCode::Timeout, message))
        }
        RunEnd::CallerGone => Err(unread()),
    }
}

/// End of a stream, and the number of bytes dropped before it.
struct Tail<S> {
    stream: Option<S>,
    kept: VecDeque<u8>,
    left_out: u64,
}

impl<S: AsyncRead + Unpin> Tail<S> {
    const fn new(stream: Option<S>) -> Self {
        Self { stream, kept: VecDeque::new(), left_out: 0 }
    }

    /// Reads until the stream ends. Cancel-safe.
    async fn read(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let mut buffer = vec![0; 8192];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            self.kept.extend(&buffer[..read]);
            let over = self.kept.len().saturating_sub(OUTPUT_BYTES_MAX);
            self.left_out += over as u64;
            self.kept.drain(..over);
        }
    }

    fn text(mut self) -> String {
        let text = String::from_utf8_lossy(self.kept.make_contiguous()).into_owned();
        match self.left_out {
            0 => text,
            bytes => format!("[{} before this {} not shown]\n{text}", counted(bytes, "byte"), is_or_are(bytes)),
        }
    }
}
