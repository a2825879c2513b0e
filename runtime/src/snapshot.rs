//! What readers see of a board: an immutable picture of it after a durable step.

use std::collections::BTreeMap;
use std::sync::Arc;

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Board, Pending, Undone};
use patchboard_kernel::breaker::Position;
use patchboard_kernel::id::{BoardId, InvocationId, Seq, Timestamp, Version, WorkerName};
use patchboard_kernel::ledger::Account;
use patchboard_kernel::mode::Mode;
use patchboard_kernel::record::{Ended, PauseCause, Principal, Record};
use patchboard_kernel::scheduler::ProviderWait;
use patchboard_kernel::state::State;
use patchboard_kernel::view::Shortage;

use crate::journal::Head;

/// A board after a durable step. Nothing in it is ever taken back.
#[derive(Clone)]
pub struct Snapshot {
    /// The board.
    pub board: BoardId,
    /// Its blueprint.
    pub blueprint: Arc<Blueprint>,
    /// How much of PatchBoard it has.
    pub mode: Mode,
    /// The caller who started it, or the board around it.
    pub founder: Option<Principal>,
    /// The committed document.
    pub state: State,
    /// Whether it has the digest that the last commit names; not if something of it is erased.
    pub is_exact: bool,
    /// Commits so far.
    pub version: Version,
    /// The last record.
    pub head: Head,
    /// The owner's number.
    pub epoch: u64,
    /// When the step was recorded.
    pub at: Timestamp,
    /// How it ended, if it has.
    pub ended: Option<Ended>,
    /// Whether dispatching is suspended.
    pub paused: bool,
    /// Why the kernel paused it, if it did.
    pub pause_cause: Option<PauseCause>,
    /// Waits of its invocations for providers.
    pub provider_waits: Arc<[WorkerWait]>,
    /// Calls that wait for admission, those included.
    pub awaiting: usize,
    /// When the next tick is due.
    pub wake_at: Option<Timestamp>,
    /// Invocations under way, those that wait for persons included.
    pub open: usize,
    /// Calls under way.
    pub calling: usize,
    /// The attempts of those, by their invocations.
    pub attempts: Arc<[(InvocationId, u32)]>,
    /// Proposals that wait for persons, by the record that put them.
    pub pending: Arc<BTreeMap<Seq, Pending>>,
    /// First views, by worker, that had no room for all that the worker may read.
    pub shortages: Arc<BTreeMap<WorkerName, Shortage>>,
    /// Work that it leaves undone, once it has ended.
    pub undone: Option<Arc<Undone>>,
    /// Whether nothing but persons is waited for.
    pub waits_for_persons: bool,
    /// Invocations waiting.
    pub queued: usize,
    /// What its calls have cost, and hold.
    pub account: Account,
    /// Branches that are stopped.
    pub open_branches: usize,
    /// Branches that get one try.
    pub half_open_branches: usize,
}

/// Wait of a worker's invocation for a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerWait {
    /// The worker.
    pub worker: WorkerName,
    /// The wait.
    pub wait: ProviderWait,
}

impl Snapshot {
    /// The board as it is. `last`: its last record.
    pub(crate) fn of(board: &Board, last: Option<&Record>) -> Self {
        let (seq, hash) = board.head();
        let count =
            |is: fn(Position) -> bool| board.breaker().positions().filter(|(_, position)| is(*position)).count();
        Self {
            board: board.id().clone(),
            blueprint: Arc::clone(board.blueprint()),
            mode: board.plan().mode.clone(),
            founder: board.founder().cloned(),
            state: board.state().clone(),
            is_exact: board.is_exact(),
            version: board.version(),
            head: Head { seq, hash },
            epoch: board.epoch(),
            at: last.map(|record| record.at).unwrap_or_default(),
            ended: board.ended(),
            paused: board.is_paused(),
            pause_cause: board.pause_cause(),
            provider_waits: {
                let waits = board.scheduler().provider_waits();
                waits.map(|(worker, wait)| WorkerWait { worker: worker.clone(), wait: wait.clone() }).collect()
            },
            awaiting: board.awaiting_admission().len(),
            wake_at: board.wake_at(),
            open: board.scheduler().open().len(),
            calling: board.scheduler().open().values().filter(|open| open.calling).count(),
            attempts: board.scheduler().open().iter().map(|(invocation, open)| (*invocation, open.attempt)).collect(),
            pending: Arc::clone(board.pending()),
            shortages: Arc::clone(board.shortages()),
            undone: board.ended().map(|_| Arc::new(board.undone())),
            waits_for_persons: board.waits_for_persons(),
            queued: board.scheduler().queue().len(),
            account: *board.ledger().board(),
            open_branches: count(|position| matches!(position, Position::Open { .. })),
            half_open_branches: count(|position| matches!(position, Position::HalfOpen { .. })),
        }
    }
}
