//! Process group of a program and everything it starts, killed together.
//!
//! Owns the order of killing and reaping. The group is killed before its leader is reaped, because until then the
//! system cannot reuse its number. A holder of a [`Leader`] can kill the group at once, without waiting for the task
//! that owns it.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::Instant;

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Time limit for the last members of a killed group to exit. A member left after that executes no more code: it is not
/// reaped, or is stuck in a system call (a write to a dead disk, for example).
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Running process that leads a group. Dropping it kills the group.
pub struct Group {
    child: Child,
    leader: Leader,
}

/// Number of a group, until the group was killed.
#[derive(Clone, Default)]
pub struct Leader(Arc<Mutex<Option<Pid>>>);

impl Leader {
    /// Kills the group, once. The leader is not reaped before that.
    pub fn kill(&self) {
        let leader = self.0.lock().take();
        if let Some(leader) = leader {
            // Fails if the group is empty, which is the desired state.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }

    fn get(&self) -> Option<Pid> {
        *self.0.lock()
    }
}

impl Group {
    /// Starts the process.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        // `kill_on_drop` makes tokio reap the leader after a drop has killed the group.
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { child, leader: Leader(Arc::new(Mutex::new(leader))) })
    }

    /// Returns a handle to kill the group from elsewhere.
    pub fn leader(&self) -> Leader {
        self.leader.clone()
    }

    /// Takes its standard input, once.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Takes its standard output, once.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Takes its standard error, once.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits until the leader has ended by itself or the group was killed, without reaping it.
    pub async fn ended(&self) {
        while !self.has_ended() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns whether the leader has ended by itself or the group was killed.
    pub fn has_ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error means that the child no longer exists.
        self.leader.get().is_none_or(|leader| !matches!(waitid(WaitId::Pid(leader), look), Ok(None)))
    }

    /// Kills the rest of the group and reaps the leader.
    pub async fn end(mut self) -> io::Result<ExitStatus> {
        self.leader.kill();
        self.child.wait().await
    }

    /// Ends the group and waits until it is empty, for one second at most.
    pub async fn end_wholly(self) -> io::Result<ExitStatus> {
        let (group, until) = (self.leader.get(), Instant::now() + EXIT_TIMEOUT);
        let exit = self.end().await;
        // The number cannot be reused while the group has a member.
        while group.is_some_and(|group| test_kill_process_group(group).is_ok()) && Instant::now() < until {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        exit
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.leader.kill();
    }
}
