//! Runs git processes: input, output and time limit.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::error::{GitCode, GitError};
use crate::process_group::Group;
use crate::programs::{ProgramCode, ProgramError};
use patchboard_kernel::text::one_line;

/// Bytes kept of git's error output.
const COMPLAINT_BYTES_MAX: usize = 8 * 1024;

/// Time limit of a git process.
const RUNS_MAX: Duration = Duration::from_secs(600);

pub(super) struct GitOutput {
    pub(super) exit: Option<i32>,
    pub(super) stdout: Vec<u8>,
    /// Bytes of `stdout` that were left out.
    pub(super) left_out: u64,
    stderr: String,
}

/// Runs a process with this input. Keeps the first `max` bytes of its output.
pub(super) async fn run_git(command: Command, input: &[u8], max: usize) -> Result<GitOutput, GitError> {
    let program = |code, message| GitError::Program(ProgramError::Program(code, message));
    let mut group = Group::spawn(command)
        .map_err(|error| program(ProgramCode::CannotStart, format!("git cannot be started: {error}")))?;
    let (stdin, stdout, stderr) = (group.stdin(), group.stdout(), group.stderr());
    let give = async move {
        // A process that stops reading reports the reason itself.
        if let Some(mut stdin) = stdin
            && stdin.write_all(input).await.is_ok()
        {
            stdin.shutdown().await.ok();
        }
    };
    let all =
        async { tokio::join!(give, beginning(stdout, max), beginning(stderr, COMPLAINT_BYTES_MAX), group.ended()) };
    let done = tokio::time::timeout(RUNS_MAX, all).await;
    let exit = group.end().await;
    let Ok(((), (stdout, left_out), (stderr, _), ())) = done else {
        let message = format!("git did not end within {} s, and was ended", RUNS_MAX.as_secs());
        return Err(program(ProgramCode::Timeout, message));
    };
    let exit = exit.ok().and_then(|status| status.code());
    Ok(GitOutput { exit, stdout, left_out, stderr: String::from_utf8_lossy(&stderr).into_owned() })
}

/// Returns the first `max` bytes of a stream, and the number of bytes after them.
async fn beginning(stream: Option<impl AsyncRead + Unpin>, max: usize) -> (Vec<u8>, u64) {
    let (mut kept, mut left_out) = (Vec::new(), 0);
    let Some(mut stream) = stream else { return (kept, left_out) };
    let mut buffer = vec![0; 8192];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let room = read.min(max - kept.len());
        kept.extend_from_slice(&buffer[..room]);
        left_out += (read - room) as u64;
    }
    (kept, left_out)
}

/// Returns the answer if the process exited with 0, otherwise the error that it printed.
pub(super) fn succeeded(answer: GitOutput) -> Result<GitOutput, GitError> {
    if answer.exit == Some(0) { Ok(answer) } else { Err(complaint(&answer)) }
}

/// Builds an error from git's message.
pub(super) fn complaint(answer: &GitOutput) -> GitError {
    let why = one_line(&answer.stderr, 500);
    if why.contains("not a git repository") { GitError::Git(GitCode::NoRepository, why) } else { git_failed(why) }
}

pub(super) fn git_failed(why: String) -> GitError {
    GitError::Git(GitCode::GitRefused, why)
}

/// Converts output to text without trailing newlines.
pub(super) fn text(bytes: Vec<u8>) -> String {
    let mut text =
        String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    text.truncate(text.trim_end_matches('\n').len());
    text
}
