//! The supervision tree.
//!
//! ```text
//! root
//! ├── journal_writer      appends what several boards have queued, with one commit
//! └── kernel              one per board; owns the Board; one input at a time; append, publish, hand on, answer
//!     ├── scheduler       delivers calls and cancellations to the workers; arms the alarm that comes back as a tick
//!     ├── breaker         cancels the calls that the board no longer needs
//!     └── worker          one per worker that was called; runs its agent's calls as tasks
//! ```
//!
//! Actors execute the decisions of the kernel crate. They send and never wait for answers of each other, so there are
//! no waiting cycles; only callers outside the tree wait for answers. Actors have no names, because ractor's registry
//! is shared by the whole process.
//!
//! **A worker has one sender.** The kernel hands a step's calls to the scheduler, then its cancellations to the breaker,
//! which passes them to the scheduler. So a call reaches its worker before its cancellation.
//!
//! **The actors of a board restart together.** A kernel fails with its first child, and its end ends the others. The
//! memory of each, open calls included, is lost with it. The journal is the only durable state, and taking the board
//! over from it settles all open calls. The root restarts the kernel; a board that fails too often ends, and no other.
//! Because the children get their addresses when they are created, no actor ever holds a stale one.

mod admission;
pub(crate) mod breaker;
pub(crate) mod journal_writer;
pub(crate) mod kernel;
pub(crate) mod messages;
mod restarts;
pub(crate) mod root;
pub(crate) mod scheduler;
pub(crate) mod worker;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::FutureExt as _;
use patchboard_kernel::id::BoardId;
use ractor::ActorProcessingErr;
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
    pub(crate) fn observe(&self, report: impl FnOnce(&dyn Observer)) {
        if let Err(panicked) = catch_unwind(AssertUnwindSafe(|| report(&*self.options.observer))) {
            tracing::error!(reason = panic_text(&*panicked), "the observer failed");
        }
    }

    /// Notifies the agent of a board's end. Its panic does not affect the board.
    pub(crate) fn notify_board_ended(&self, board: &BoardId) {
        if let Err(panicked) = catch_unwind(AssertUnwindSafe(|| self.options.agent.on_board_ended(board))) {
            tracing::error!(%board, reason = panic_text(&*panicked), "the agent failed in its handler of a board's end");
        }
    }
}

/// Runs work; returns the text of its panic as an error.
async fn guarded<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let ended = AssertUnwindSafe(work).catch_unwind().await;
    ended.map_err(|panicked| panic_text(&*panicked))
}

fn panic_text(panicked: &(dyn Any + Send)) -> String {
    let text = panicked.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panicked.downcast_ref::<&str>().copied());
    format!("a panic: {}", text.unwrap_or("without a text"))
}
