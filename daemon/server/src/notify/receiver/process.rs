//! Runs a program once, in its own process group, with a timeout and bounded output.

use std::io;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use patchboard_workspace::process_group::Group;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::timeout;

use crate::text::short;

/// Time to read the remaining output of a program that has ended.
const OUTPUT_DRAIN_TIME: Duration = Duration::from_millis(50);

/// Maximum bytes of standard error that are kept.
const KEPT_MAX: usize = 4096;

/// Maximum characters of standard error that are reported.
const SAID_MAX: usize = 300;

pub(super) struct ProgramExit {
    /// Set if the program exited by itself with 0.
    pub(super) is_success: bool,
    /// Description for people, to follow "the program".
    pub(super) how: String,
    /// End of its standard error, on one line.
    pub(super) stderr_tail: String,
}

/// Runs a program with only these environment variables, and this text on its standard input.
pub(super) async fn run(
    words: &[String],
    env: &[(&'static str, String)],
    text: &[u8],
    limit: Duration,
) -> io::Result<ProgramExit> {
    let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(name);
    command
        .args(arguments)
        .env_clear()
        .envs(env.iter().map(|(name, value)| (*name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut group = Group::spawn(command)?;
    let stdin = group.stdin();
    let stderr = group.stderr();
    let mut kept = Vec::new();
    let in_time = {
        let mut write = pin!(async {
            if let Some(mut stdin) = stdin {
                // A program need not read its input.
                let _ = stdin.write_all(text).await;
                let _ = stdin.shutdown().await;
            }
        });
        let mut drain = pin!(async {
            if let Some(stderr) = stderr {
                drain(stderr, &mut kept).await;
            }
        });
        let mut ended = pin!(timeout(limit, group.ended()));
        let (mut is_written, mut is_drained) = (false, false);
        let in_time = loop {
            tokio::select! {
                ended = &mut ended => break ended.is_ok(),
                () = &mut write, if !is_written => is_written = true,
                () = &mut drain, if !is_drained => is_drained = true,
            }
        };
        if in_time && !is_drained {
            // The remaining output is in the pipe already; a child that holds the pipe open is not waited for.
            let _ = timeout(OUTPUT_DRAIN_TIME, &mut drain).await;
        }
        in_time
    };
    let status = group.end().await;
    let how = match (&status, in_time) {
        (_, false) => format!("did not end within its time of {} s", limit.as_secs_f64()),
        (Ok(status), true) => format!("ended with {status}"),
        (Err(error), true) => format!("was lost: {error}"),
    };
    let is_success = in_time && status.is_ok_and(|status| status.success());
    Ok(ProgramExit { is_success, how, stderr_tail: short(&String::from_utf8_lossy(&kept), SAID_MAX) })
}

/// Reads to the end and keeps the last bytes.
async fn drain(mut from: impl AsyncRead + Unpin, kept: &mut Vec<u8>) {
    let mut piece = [0; KEPT_MAX];
    while let Ok(read @ 1..) = from.read(&mut piece).await {
        kept.extend_from_slice(&piece[..read]);
        let surplus = kept.len().saturating_sub(KEPT_MAX);
        kept.drain(..surplus);
    }
}
