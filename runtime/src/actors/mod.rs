//! The supervision tree.
//!
//! ```text
//! root
//! ├── journal_writer      appends what several boards have queued, with one commit
//! └── board               one per board; restarts its children together; a meltdown ends the board, nothing else
//!     ├── kernel          owns the Board; one input at a time; append, publish, hand on, answer
//!     ├── scheduler       delivers calls and cancellations to the workers; arms the alarm that comes back as a tick
//!     ├── breaker         cancels the calls that the board no longer needs
//!     └── worker          one per worker; runs its agent's calls as tasks
//! ```
//!
//! Actors execute the decisions of the kernel crate. They send and never wait for answers of each other, so there are
//! no waiting cycles; only callers outside the tree wait for answers. Actors have no names, because ractor's registry
//! is shared by the whole process.
//!
//! **A worker has one sender.** The kernel hands a step's calls to the scheduler, then its cancellations to the breaker,
//! which passes them to the scheduler. So a call reaches its worker before its cancellation.
//!
//! **All children of a board restart together.** The memory of each, open calls included, is lost with it. The journal
//! is the only durable state, and taking the board over from it settles all open calls. Because each generation gets
//! its addresses when it is created, no actor ever holds a stale one.

mod admission;
pub(crate) mod board;
pub(crate) mod breaker;
pub(crate) mod journal_writer;
pub(crate) mod kernel;
pub(crate) mod messages;
pub(crate) mod root;
pub(crate) mod scheduler;
pub(crate) mod worker;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::id::BoardId;
use ractor::{ActorCell, ActorProcessingErr};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::board_channel::BoardChannel;
use crate::error::RuntimeError;
use crate::group_commit::GroupCommit;
use crate::observer::Observer;
use crate::options::Options;
use crate::plan_cache::PlanCache;

pub(crate) type ActorResult<T = ()> = Result<T, ActorProcessingErr>;

/// Task that is aborted when dropped.
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Shared state of all actors of a runtime.
pub(crate) struct Context {
    pub(crate) journal: GroupCommit,
    pub(crate) options: Options,
    pub(crate) plans: PlanCache,
    /// Permits for storing and collecting snapshots: few, so that many boards at once need bounded memory and disk
    /// bandwidth. Never closed.
    pub(crate) snapshot_permits: Arc<Semaphore>,
}

impl Context {
    /// Marks the board as stopped in this process. Waiters are notified before agents, so a slow agent cannot delay
    /// them.
    pub(crate) fn board_closed(&self, published: &BoardChannel, reason: RuntimeError) {
        published.mark_closed(reason.clone());
        self.observe(|observer| observer.on_board_closed(published.board(), &reason));
        self.notify_board_ended(published.board());
    }

    /// Notifies the observer. Its panic does not affect a board.
    pub(crate) fn observe(&self, tell: impl FnOnce(&dyn Observer)) {
        if let Err(panicked) = catch_unwind(AssertUnwindSafe(|| tell(&*self.options.observer))) {
            tracing::error!(reason = panic_text(&*panicked), "the observer failed");
        }
    }

    /// Notifies the agent of a board's end. Its panic does not affect the board.
    pub(crate) fn notify_board_ended(&self, board: &BoardId) {
        if let Err(panicked) = catch_unwind(AssertUnwindSafe(|| self.options.agent.on_board_ended(board))) {
            tracing::error!(%board, reason = panic_text(&*panicked), "the agent failed when it was told of a board's end");
        }
    }
}

fn panic_text(panicked: &(dyn Any + Send)) -> String {
    let text = panicked.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panicked.downcast_ref::<&str>().copied());
    format!("a panic: {}", text.unwrap_or("without a text"))
}

/// Time for a stopped actor to finish its current message before it is killed.
const STOPPING: Duration = Duration::from_secs(10);

/// Stops an actor and waits until it has ended. Its queue is dropped.
pub(crate) async fn stop(actor: &ActorCell) {
    if actor.stop_and_wait(None, Some(STOPPING)).await.is_err() {
        actor.kill();
    }
}
