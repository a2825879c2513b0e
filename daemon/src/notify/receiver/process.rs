//! Runs a program once: its own process group, a time limit, bounded output.

use std::io;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::output::short;

/// Pause between two looks for an exit.
const LOOK: Duration = Duration::from_millis(10);

/// Bytes of standard error that are kept.
const KEPT_MAX: usize = 4096;

/// Characters of standard error that are reported.
const SAID_MAX: usize = 300;

/// Exit of a program.
pub(super) struct Ended {
    /// Whether it ended by itself with 0.
    pub(super) is_success: bool,
    /// For people, after "the program".
    pub(super) how: String,
    /// End of its standard error, on one line.
    pub(super) said: String,
}

/// Process that leads a group. Dropping it kills the group, while the leader is not reaped yet.
struct Group {
    child: Child,
    leader: Option<Pid>,
}

impl Group {
    fn spawn(mut command: Command) -> io::Result<Self> {
        // `kill_on_drop` lets tokio reap a leader that was killed by a drop.
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { child, leader })
    }

    fn kill(&mut self) {
        if let Some(leader) = self.leader.take() {
            // Fails if the group is empty.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }

    /// Waits for the leader's exit without reaping it: until then no other process has its number.
    async fn ended(&self) {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while self.leader.is_some_and(|leader| matches!(waitid(WaitId::Pid(leader), look), Ok(None))) {
            sleep(LOOK).await;
        }
    }

    /// Kills the rest of the group and reaps the leader.
    async fn end(mut self) -> io::Result<ExitStatus> {
        self.kill();
        self.child.wait().await
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a program with nothing but these variables, and this text on its standard input.
///
/// # Errors
/// It cannot be started.
pub(super) async fn run(
    words: &[String],
    env: &[(&'static str, String)],
    text: &[u8],
    limit: Duration,
) -> io::Result<Ended> {
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
    let stdin = group.child.stdin.take();
    let stderr = group.child.stderr.take();
    let mut kept = Vec::new();
    let in_time = {
        let mut write = pin!(async {
            if let Some(mut stdin) = stdin {
                // A program need not read.
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
            // The last words are in the pipe already; a child that holds the pipe is not waited for.
            let _ = timeout(LOOK * 5, &mut drain).await;
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
    Ok(Ended { is_success, how, said: short(&String::from_utf8_lossy(&kept), SAID_MAX) })
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
