//! A process and everything it starts, ended together.
//!
//! Owns the order of killing and reaping: the group is killed while its leader has not been reaped, because until then
//! the system gives its number to nobody else.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// How often an ending is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// A running process that leads a group. Dropping it kills the group.
pub(super) struct Group {
    child: Child,
    /// Absent once the leader has been reaped.
    leader: Option<Pid>,
}

impl Group {
    /// Starts the process.
    pub(super) fn spawn(mut command: Command) -> io::Result<Self> {
        // `kill_on_drop` makes tokio reap a leader whose group was killed by a drop.
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { child, leader })
    }

    /// Its standard input, once.
    pub(super) fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its standard output, once.
    pub(super) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Its standard error, once.
    pub(super) fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits until the leader has ended by itself, without reaping it.
    pub(super) async fn ended(&self) {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while let Some(leader) = self.leader {
            // An error means that there is no such child any more.
            if !matches!(waitid(WaitId::Pid(leader), look), Ok(None)) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Kills what is left of the group and reaps the leader.
    pub(super) async fn end(mut self) -> io::Result<ExitStatus> {
        self.kill();
        let status = self.child.wait().await;
        self.leader = None;
        status
    }

    fn kill(&self) {
        if let Some(leader) = self.leader {
            // Fails if nobody is left, which is what is wanted.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
