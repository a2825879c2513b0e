//! Programs that run at a workspace: what they may change is declared, one after the other where that overlaps, and what
//! they did change is told to the board.
//!
//! A program is the operator's, named in the configuration, and started without a shell in a group of its own. Its output
//! is kept up to a limit, the end rather than the beginning: that is where programs say what was wrong.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::coded;
use patchboard_kernel::files::FilePath;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::Instant;

use super::disk::locks::{LockError, PathSet, WAITS_MAX};
use super::running::Effects;
use super::service::{Workspace, WorkspaceError};
use crate::command::INHERITED;
use crate::command::group::Group;
use crate::config::{Environment, Program};

/// Bytes of output that are kept of one stream.
const OUTPUT_BYTES_MAX: usize = 32 * 1024;

/// Arguments of one run, and bytes of each.
const ARGUMENTS_MAX: usize = 64;
const ARGUMENT_BYTES_MAX: usize = 4096;

/// How long a program may run.
const RUNS_MAX: Duration = Duration::from_secs(600);

const _: () = assert!(RUNS_MAX.as_secs() < WAITS_MAX.as_secs(), "who waits for a program comes to its turn");

coded! {
    /// Why a program was not run, or not to its end.
    ProgramCode {
        /// The worker may not run it, or the operator has no program of the name.
        NoSuchProgram = "no_such_program",
        /// It takes no arguments from workers, or not these.
        BadArguments = "bad_program_arguments",
        /// It cannot be started.
        CannotStart = "cannot_start",
        /// It took too long, and was ended.
        TookTooLong = "took_too_long",
    }
}

/// Why there is no result of a program.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It was not run, or not to its end.
    #[error("{1}")]
    Program(ProgramCode, String),
    /// Others were at work on the files that it may change.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The workspace.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

impl ProgramError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Program(code, _) => code.as_str(),
            Self::Lock(error) => error.code().as_str(),
            Self::Workspace(error) => error.code(),
        }
    }
}

/// What a program did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ran {
    /// Its exit code; none if a signal ended it.
    pub exit: Option<i32>,
    /// The end of what it wrote to standard output.
    pub stdout: String,
    /// The end of what it wrote to standard error.
    pub stderr: String,
    /// Files that it changed, or that were changed while it ran, as it may.
    pub changed: Vec<FilePath>,
    /// Files that were changed around it.
    pub others: Vec<FilePath>,
}

/// Who runs a program, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Runner<'a> {
    /// What it is called in the state.
    pub label: &'a str,
    /// What is set of the environment beside what programs always see.
    pub env: &'a [(&'a str, &'a str)],
}

/// Runs a program of the operator's in the directory of the workspace, with these arguments behind its own.
///
/// # Errors
/// [`ProgramError`]. What the program changed until then is told to the board all the same.
pub async fn run(
    workspace: &Arc<Workspace>,
    name: &str,
    program: &Program,
    arguments: &[String],
    runner: Runner<'_>,
) -> Result<Ran, ProgramError> {
    let bad = |message: String| Err(ProgramError::Program(ProgramCode::BadArguments, message));
    if !arguments.is_empty() && !program.arguments {
        return bad(format!("{name} takes no further arguments"));
    }
    if arguments.len() > ARGUMENTS_MAX || arguments.iter().any(|argument| argument.len() > ARGUMENT_BYTES_MAX) {
        return bad(format!("at most {ARGUMENTS_MAX} arguments of {ARGUMENT_BYTES_MAX} bytes may be given"));
    }
    let set = PathSet::parse(program.changes.iter().map(String::as_str))?;
    let by = format!("{}, running {name},", runner.label);
    // Who changes nothing waits for nobody.
    let _turn = match program.changes.is_empty() {
        true => None,
        false => Some(workspace.locks().acquire(set.clone(), &by, Instant::now() + WAITS_MAX).await?),
    };
    // What others did before is not its doing.
    workspace.rescan().await?;
    let running = workspace.runs(set, runner.label, &format!("ran {name}"));
    let done = started(workspace, name, program, arguments, runner).await;
    workspace.rescan().await?;
    let Effects { own, others } = running.effects();
    Ok(Ran { changed: own.into_iter().collect(), others: others.into_iter().collect(), ..done? })
}

async fn started(
    workspace: &Workspace,
    name: &str,
    program: &Program,
    arguments: &[String],
    runner: Runner<'_>,
) -> Result<Ran, ProgramError> {
    let fail = |code, message: String| ProgramError::Program(code, message);
    let Some((first, own)) = program.program.split_first() else {
        return Err(fail(ProgramCode::CannotStart, format!("{name} has no command line")));
    };
    let environment = Environment::of_process();
    let inherited = INHERITED.into_iter().filter_map(|name| Some((name, environment.get(name)?)));
    let mut command = Command::new(first);
    command
        .args(own)
        .args(arguments)
        .env_clear()
        .envs(inherited)
        .envs(&program.env)
        .envs(runner.env.iter().copied())
        .current_dir(program.cwd.as_deref().unwrap_or(workspace.disk().path()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut group = Group::spawn(command)
        .map_err(|error| fail(ProgramCode::CannotStart, format!("{name} cannot be started: {error}")))?;
    let (stdout, stderr) = (group.stdout(), group.stderr());
    let limit = program.timeout.map_or(RUNS_MAX, |timeout| Duration::from_millis(timeout.as_ms())).min(RUNS_MAX);
    let reading = tokio::time::timeout(limit, async { tokio::join!(tail(stdout), tail(stderr), group.ended()) }).await;
    let exit = group.end().await;
    let Ok((stdout, stderr, ())) = reading else {
        let message = format!("{name} did not end within {} s, and was ended", limit.as_secs());
        return Err(fail(ProgramCode::TookTooLong, message));
    };
    let exit = exit.ok().and_then(|status| status.code());
    Ok(Ran { exit, stdout, stderr, changed: Vec::new(), others: Vec::new() })
}

/// The end of a stream as text, and how much came before it.
async fn tail(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let mut kept: VecDeque<u8> = VecDeque::new();
    let mut left_out = 0_u64;
    let mut buffer = vec![0; 8192];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        kept.extend(&buffer[..read]);
        let over = kept.len().saturating_sub(OUTPUT_BYTES_MAX);
        left_out += over as u64;
        kept.drain(..over);
    }
    let text = String::from_utf8_lossy(kept.make_contiguous()).into_owned();
    match left_out {
        0 => text,
        bytes => format!("[{bytes} bytes before this are not shown]\n{text}"),
    }
}
