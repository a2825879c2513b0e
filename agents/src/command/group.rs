//! A process and everything it starts, ended together.
//!
//! Owns the order of killing and reaping: the group is killed while its leader has not been reaped, because until then
//! the system gives its number to nobody else. Whoever shares a [`Leader`] can kill the group at once, without waiting
//! for the task that owns it.

use std::io;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::Instant;

/// How often an ending is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// How long it is waited for the last of a group that was killed. Whoever is there after that does nothing of its own any
/// more: nobody has reaped it, or the system is still at its last call, like a write to a disk that does not answer.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// A running process that leads a group. Dropping it kills the group.
pub struct Group {
    child: Child,
    leader: Leader,
}

/// The number of a group, as long as the group may be killed: until somebody did.
#[derive(Clone, Default)]
pub struct Leader(Arc<Mutex<Option<Pid>>>);

impl Leader {
    /// Kills the group, once. The leader is not reaped before.
    pub fn kill(&self) {
        let leader = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(leader) = leader {
            // Fails if nobody is left, which is what is wanted.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }

    fn get(&self) -> Option<Pid> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Group {
    /// Starts the process.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        // `kill_on_drop` makes tokio reap a leader whose group was killed by a drop.
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { child, leader: Leader(Arc::new(Mutex::new(leader))) })
    }

    /// To kill the group with from elsewhere.
    pub fn leader(&self) -> Leader {
        self.leader.clone()
    }

    /// Its standard input, once.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its standard output, once.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Its standard error, once.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits until the leader has ended by itself or the group was killed, without reaping it.
    pub async fn ended(&self) {
        while !self.has_ended() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether the leader has ended by itself or the group was killed.
    pub fn has_ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error means that there is no such child any more.
        self.leader.get().is_none_or(|leader| !matches!(waitid(WaitId::Pid(leader), look), Ok(None)))
    }

    /// Kills what is left of the group and reaps the leader.
    pub async fn end(mut self) -> io::Result<ExitStatus> {
        self.leader.kill();
        self.child.wait().await
    }

    /// Ends the group and waits until it is empty, one second at most.
    pub async fn end_wholly(self) -> io::Result<ExitStatus> {
        let (group, until) = (self.leader.get(), Instant::now() + GONE_WITHIN);
        let exit = self.end().await;
        // While anybody is in the group, nobody else gets its number.
        while group.is_some_and(|group| test_kill_process_group(group).is_ok()) && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
        exit
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.leader.kill();
    }
}
