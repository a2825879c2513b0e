//! The supervision tree.
//!
//! ```text
//! root
//! ├── journal_writer      appends what several boards have queued, with one commit
//! └── board               one per board; restarts its children together; a meltdown ends the board, nothing else
//!     ├── kernel          owns the Board; one input at a time; append, publish, hand on, answer
//!     ├── scheduler       delivers calls to the workers; arms the alarm that comes back as a tick
//!     ├── breaker         withdraws calls of stopped branches
//!     └── worker          one per worker; runs its agent's calls as tasks
//! ```
//!
//! Actors execute the decisions of the kernel crate. They send and never wait for answers of each other, so there are
//! no waiting cycles; only callers outside the tree wait for answers. Actors have no names, because ractor's registry
//! is shared by the whole process.
//!
//! **All children of a board restart together.** The memory of each, open calls included, is lost with it. The journal
//! is the only durable state, and taking the board over from it settles all open calls. Because each generation gets
//! its addresses when it is created, no actor ever holds a stale one.

mod admission;
pub(crate) mod board;
pub(crate) mod breaker;
pub(crate) mod failpoints;
pub(crate) mod journal_writer;
pub(crate) mod kernel;
pub(crate) mod root;
pub(crate) mod scheduler;
pub(crate) mod worker;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::board::Effect;
use patchboard_kernel::id::{BoardId, InvocationId, Seq};
use ractor::ActorCell;
use tokio::sync::Semaphore;

use crate::agent::Permit;
use crate::board_channel::BoardChannel;
use crate::group_commit::GroupCommit;
use crate::observer::Observer;
use crate::plan_cache::PlanCache;
use crate::runtime::{Options, RuntimeError};

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

/// Returns the text of a panic.
fn panic_text(panicked: &(dyn Any + Send)) -> String {
    let text = panicked.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panicked.downcast_ref::<&str>().copied());
    format!("a panic: {}", text.unwrap_or("without a text"))
}

/// Effects of a durable step.
pub(crate) struct StepEffects {
    /// Last record of the board.
    pub(crate) seq: Seq,
    pub(crate) effects: Vec<Effect>,
    /// Permits of its calls.
    pub(crate) permits: BTreeMap<CallKey, Permit>,
}

/// Key of an attempt of an invocation.
pub(crate) type CallKey = (InvocationId, u32);

impl StepEffects {
    /// Returns the effects, each with its position among all effects of the board.
    pub(crate) fn ordered(&self) -> impl Iterator<Item = (EffectOrder, &Effect)> {
        self.effects.iter().enumerate().map(|(index, effect)| (EffectOrder { seq: self.seq, index }, effect))
    }
}

/// Position of an effect among all effects of a board. Calls and cancellations reach a worker from two senders, so
/// their order of arrival means nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EffectOrder {
    pub(crate) seq: Seq,
    pub(crate) index: usize,
}

/// Time for a stopped actor to finish its current message before it is killed.
const STOPPING: Duration = Duration::from_secs(10);

/// Stops an actor and waits until it has ended. Its queue is dropped.
pub(crate) async fn stop(actor: &ActorCell) {
    if actor.stop_and_wait(None, Some(STOPPING)).await.is_err() {
        actor.kill();
    }
}
