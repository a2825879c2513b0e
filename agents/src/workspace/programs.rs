//! Programs that run at a workspace: what they may change is declared, one after the other where that overlaps, and what
//! they did change is told to the board.
//!
//! A program is the operator's, named in the configuration, and started without a shell in a group of its own. Its output
//! is kept up to a limit, the end rather than the beginning: that is where programs say what was wrong.

use std::collections::VecDeque;
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::coded;
use patchboard_kernel::files::{FilePath, INTENT_MAX};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::{Instant, timeout};

use super::disk::locks::{LockError, PathSet, WAITS_MAX};
use super::running::Effects;
use super::service::{Workspace, WorkspaceError};
use crate::command::INHERITED;
use crate::command::group::Group;
use crate::config::{Environment, Program};
use crate::{counted, is_or_are, one_line};

/// Bytes of output that are kept of one stream.
const OUTPUT_BYTES_MAX: usize = 32 * 1024;

/// Arguments of one run, and bytes of each.
const ARGUMENTS_MAX: usize = 64;
const ARGUMENT_BYTES_MAX: usize = 4096;

/// Characters that are kept of an intent for how a program ended.
const END_MAX: usize = 40;

/// How long a program may run.
const RUNS_MAX: Duration = Duration::from_secs(600);

const _: () = assert!(RUNS_MAX.as_secs() < WAITS_MAX.as_secs(), "who waits for a program comes to its turn");

/// How long the output of a program is read on after its end: what it left running may hold it for ever.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);

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
#[derive(Clone, PartialEq, Eq, Debug, Default)]
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
    /// What of that the board does not know, and why.
    pub untold: Vec<String>,
}

/// Who runs a program, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Runner<'a> {
    /// What it is called in the state.
    pub label: &'a str,
    /// What is set of the environment beside what programs always see.
    pub env: &'a [(&'a str, &'a str)],
}

/// Runs a program of the operator's in the directory of the workspace, with these arguments behind its own. If nobody
/// waits for it any more, it is ended with all that it started; until then nobody else has its turn, and what it changed
/// is told in the runner's name.
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
    judged(name, program, arguments)?;
    let set = PathSet::parse(program.changes.iter().map(String::as_str))?;
    let by = format!("{}, running {name},", runner.label);
    // Who changes nothing waits for nobody.
    let turn = match program.changes.is_empty() {
        true => None,
        false => Some(workspace.locks().acquire(set.clone(), &by, Instant::now() + WAITS_MAX).await?),
    };
    let limit = limit(program);
    let place = program.cwd.as_deref().unwrap_or(workspace.disk().path());
    let command = command(place, name, program, arguments, runner)?;
    let (own, label, intent) = (Arc::clone(workspace), runner.label.to_owned(), intent(name, arguments));
    let name = name.to_owned();
    to_its_end(|unwanted| async move {
        let _turn = turn;
        // What others did before is not its doing.
        own.rescan().await?;
        let running = own.runs(set, &label, &intent);
        let done = started(&name, command, limit, unwanted).await;
        running.came_to(format!("{intent}: {}", end(&done)));
        // The program has run, whatever is wrong with telling that.
        let untold = match own.rescan().await {
            Ok(found) => found.said(),
            Err(error) => vec![format!("what it changed was not told to the board: {error}")],
        };
        let Effects { own, others } = running.effects();
        Ok(Ran { changed: own.into_iter().collect(), others: others.into_iter().collect(), untold, ..done? })
    })
    .await
}

/// The same in a directory that only one has, of which the board knows nothing: a copy of that of the workspace.
///
/// # Errors
/// [`ProgramError`].
pub async fn run_in(
    copy: &Path,
    workspace: &Workspace,
    name: &str,
    program: &Program,
    arguments: &[String],
    runner: Runner<'_>,
) -> Result<Ran, ProgramError> {
    judged(name, program, arguments)?;
    let place = match program.cwd.as_deref().and_then(|cwd| cwd.canonicalize().ok()) {
        None => copy.to_owned(),
        // What runs below the directory runs at the same place of the copy.
        Some(cwd) => cwd.strip_prefix(workspace.disk().path()).map_or(cwd.clone(), |below| copy.join(below)),
    };
    let limit = limit(program);
    let command = command(&place, name, program, arguments, runner)?;
    let name = name.to_owned();
    to_its_end(|unwanted| async move { started(&name, command, limit, unwanted).await }).await
}

/// Does something that goes on when nobody waits for it any more, and is told so.
async fn to_its_end<F>(work: impl FnOnce(oneshot::Receiver<()>) -> F) -> Result<Ran, ProgramError>
where
    F: Future<Output = Result<Ran, ProgramError>> + Send + 'static,
{
    let (wanted, unwanted) = oneshot::channel();
    let ran = tokio::spawn(work(unwanted)).await;
    // Who stops waiting drops it before.
    drop::<oneshot::Sender<()>>(wanted);
    ran.unwrap_or_else(|error| Err(WorkspaceError::Broken(error.to_string()).into()))
}

/// What is wrong with its arguments, if anything is.
fn judged(name: &str, program: &Program, arguments: &[String]) -> Result<(), ProgramError> {
    let bad = |message: String| Err(ProgramError::Program(ProgramCode::BadArguments, message));
    if !arguments.is_empty() && !program.arguments {
        return bad(format!("{name} takes no further arguments"));
    }
    if arguments.len() > ARGUMENTS_MAX || arguments.iter().any(|argument| argument.len() > ARGUMENT_BYTES_MAX) {
        return bad(format!("at most {ARGUMENTS_MAX} arguments of {ARGUMENT_BYTES_MAX} bytes may be given"));
    }
    Ok(())
}

/// What is said to the board of what a program changes: what was run, cut so that there is room for how it ended.
fn intent(name: &str, arguments: &[String]) -> String {
    let said = arguments.iter().fold(format!("ran {name}"), |said, argument| said + " " + argument);
    one_line(&said, INTENT_MAX - END_MAX)
}

/// How a program ended.
fn end(done: &Result<Ran, ProgramError>) -> String {
    match done {
        Ok(Ran { exit: Some(code), .. }) => format!("exit {code}"),
        Ok(Ran { exit: None, .. }) => "a signal ended it".to_owned(),
        Err(error) => error.code().to_owned(),
    }
}

/// How long it may take.
fn limit(program: &Program) -> Duration {
    program.timeout.map_or(RUNS_MAX, |timeout| Duration::from_millis(timeout.as_ms())).min(RUNS_MAX)
}

fn command(
    place: &Path,
    name: &str,
    program: &Program,
    arguments: &[String],
    runner: Runner<'_>,
) -> Result<Command, ProgramError> {
    let Some((first, own)) = program.program.split_first() else {
        let message = format!("{name} has no command line");
        return Err(ProgramError::Program(ProgramCode::CannotStart, message));
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
        .current_dir(place)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}

/// Why a program is not run any longer.
enum Stop {
    /// It has ended.
    Ended,
    /// It took too long.
    TookTooLong,
    /// Nobody waits for it any more.
    Unwanted,
}

/// Runs a program until nothing is left of its group.
async fn started(
    name: &str,
    command: Command,
    limit: Duration,
    mut unwanted: oneshot::Receiver<()>,
) -> Result<Ran, ProgramError> {
    let fail = |code, message: String| ProgramError::Program(code, message);
    // Nobody reads that.
    let unread = || fail(ProgramCode::TookTooLong, format!("{name} was ended: nobody waits for it"));
    if unwanted.try_recv() == Err(TryRecvError::Closed) {
        return Err(unread());
    }
    let mut group = Group::spawn(command)
        .map_err(|error| fail(ProgramCode::CannotStart, format!("{name} cannot be started: {error}")))?;
    let (mut stdout, mut stderr) = (Tail::of(group.stdout()), Tail::of(group.stderr()));
    let (stop, exit) = {
        let mut reading = pin!(async { tokio::join!(stdout.read(), stderr.read()) });
        let mut is_read = false;
        let stop = {
            let mut over = pin!(async {
                tokio::select! {
                    biased;
                    () = group.ended() => Stop::Ended,
                    _ = unwanted => Stop::Unwanted,
                    () = tokio::time::sleep(limit) => Stop::TookTooLong,
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
        // What it left running may hold its output, which ends with that.
        if !is_read && matches!(stop, Stop::Ended) {
            is_read = timeout(OUTPUT_GRACE, &mut reading).await.is_ok();
        }
        let exit = group.end_wholly().await;
        if !is_read {
            timeout(OUTPUT_GRACE, &mut reading).await.ok();
        }
        (stop, exit)
    };
    match stop {
        Stop::Ended => {
            let exit = exit.ok().and_then(|status| status.code());
            let (stdout, stderr) = (stdout.text(), stderr.text());
            Ok(Ran { exit, stdout, stderr, ..Ran::default() })
        }
        Stop::TookTooLong => {
            let message = format!("{name} did not end within {} s, and was ended", limit.as_secs());
            Err(fail(ProgramCode::TookTooLong, message))
        }
        Stop::Unwanted => Err(unread()),
    }
}

/// The end of a stream, and how much came before it.
struct Tail<S> {
    stream: Option<S>,
    kept: VecDeque<u8>,
    left_out: u64,
}

impl<S: AsyncRead + Unpin> Tail<S> {
    const fn of(stream: Option<S>) -> Self {
        Self { stream, kept: VecDeque::new(), left_out: 0 }
    }

    /// Reads on until it ends. May be broken off.
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
