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
//! Actors deliver what the kernel crate has decided. They send and never ask each other, so none can wait for another
//! in a circle; only edges outside the tree wait for answers. Actors have no names, because ractor's registry is shared
//! by the whole process.
//!
//! **All children of a board restart together.** Whatever one of them knew, calls under way above all, is lost with
//! it; the journal is the only memory, and taking the board over from it settles everything that was under way. Because
//! each generation gets its addresses when it is made, no actor ever holds one that is out of date.

mod admission;
pub(crate) mod board;
pub(crate) mod breaker;
pub(crate) mod journal_writer;
pub(crate) mod kernel;
pub(crate) mod probe;
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
use crate::journal::group::GroupCommit;
use crate::observer::Observer;
use crate::plans::SharedPlans;
use crate::published::Published;
use crate::runtime::{Options, RuntimeError};

/// What all actors of a runtime share.
pub(crate) struct Context {
    pub(crate) journal: GroupCommit,
    pub(crate) options: Options,
    pub(crate) plans: SharedPlans,
    /// Who stores or sweeps a snapshot holds one of few, so that many boards at once take no more memory and disk than
    /// some. Never closed.
    pub(crate) keepers: Arc<Semaphore>,
}

impl Context {
    /// A board does not go on here. Who waits for it hears so first, so that nothing an agent does keeps them waiting.
    pub(crate) fn gone(&self, published: &Published, reason: RuntimeError) {
        published.gone(reason.clone());
        self.observe(|observer| observer.gone(published.board(), &reason));
        self.tell_ended(published.board());
    }

    /// Tells whoever watches. No board fails at being watched.
    pub(crate) fn observe(&self, tell: impl FnOnce(&dyn Observer)) {
        if let Err(panicked) = catch_unwind(AssertUnwindSafe(|| tell(&*self.options.observer))) {
            tracing::error!(reason = panic_text(&*panicked), "the observer failed");
        }
    }

    /// Tells the agent. The end of a board is no moment to fail at what somebody else keeps for it.
    pub(crate) fn tell_ended(&self, board: &BoardId) {
        if let Err(panicked) = catch_unwind(AssertUnwindSafe(|| self.options.agent.ended(board))) {
            tracing::error!(%board, reason = panic_text(&*panicked), "the agent failed when it was told of a board's end");
        }
    }
}

/// What a panic says.
fn panic_text(panicked: &(dyn Any + Send)) -> String {
    let text = panicked.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panicked.downcast_ref::<&str>().copied());
    format!("a panic: {}", text.unwrap_or("without a text"))
}

/// What is to be done now that a step is durable.
pub(crate) struct Durable {
    /// The board's last record.
    pub(crate) seq: Seq,
    pub(crate) effects: Vec<Effect>,
    /// The permissions of its calls.
    pub(crate) permits: BTreeMap<CallKey, Permit>,
}

/// An attempt of an invocation.
pub(crate) type CallKey = (InvocationId, u32);

impl Durable {
    /// The effects, each with its place among all effects of the board.
    pub(crate) fn ordered(&self) -> impl Iterator<Item = (Order, &Effect)> {
        self.effects.iter().enumerate().map(|(index, effect)| (Order { seq: self.seq, index }, effect))
    }
}

/// The place of an effect among all effects of a board. Calls and withdrawals reach a worker from two senders, so
/// their order of arrival means nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Order {
    pub(crate) seq: Seq,
    pub(crate) index: usize,
}

/// How long a stopped actor may take to finish what it is handling, before it is killed.
const STOPPING: Duration = Duration::from_secs(10);

/// Stops an actor and waits until it has ended. What it had queued is dropped.
pub(crate) async fn stop(actor: &ActorCell) {
    if actor.stop_and_wait(None, Some(STOPPING)).await.is_err() {
        actor.kill();
    }
}
