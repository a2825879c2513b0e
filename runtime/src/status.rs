//! Immutable view of a board after a durable step, for readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Board, PendingQuestion, UnfinishedWork};
use patchboard_kernel::breaker::BreakerState;
use patchboard_kernel::id::{BoardId, InvocationId, Seq, Timestamp, Version, WorkerName};
use patchboard_kernel::ledger::Account;
use patchboard_kernel::record::{Ended, PauseCause, Principal, Record};
use patchboard_kernel::scheduler::ProviderWait;
use patchboard_kernel::state::State;
use patchboard_kernel::view::Shortage;

use patchboard_kernel::driver::Head;

/// A board after a durable step. Never rolled back.
#[derive(Clone)]
pub struct BoardStatus {
    /// Board id.
    pub board: BoardId,
    /// Its blueprint.
    pub blueprint: Arc<Blueprint>,
    /// Ablation: the enabled parts of PatchBoard.
    pub mode: Mode,
    /// Principal that started it, or the outer board's.
    pub started_by: Option<Principal>,
    /// Committed document.
    pub state: State,
    /// True if the document matches the digest of the last commit; false once it has redacted values.
    pub is_exact: bool,
    /// Commits so far.
    pub version: Version,
    /// Last record.
    pub head: Head,
    /// Epoch of the owner.
    pub epoch: u64,
    /// Time of the step.
    pub at: Timestamp,
    /// End of the board, if it has ended.
    pub ended: Option<Ended>,
    /// Dispatch is paused.
    pub paused: bool,
    /// Cause of a pause by the kernel.
    pub pause_cause: Option<PauseCause>,
    /// Waits of its invocations for providers.
    pub provider_waits: Arc<[WorkerWait]>,
    /// Calls that wait for admission, waits for providers included.
    pub awaiting: usize,
    /// Time of the next tick.
    pub wake_at: Option<Timestamp>,
    /// Open invocations, those that wait for persons included.
    pub open: usize,
    /// Calls in progress.
    pub calling: usize,
    /// Attempts of the calls in progress, by invocation.
    pub attempts: Arc<[(InvocationId, u32)]>,
    /// Proposals that wait for persons, by their record.
    pub pending: Arc<BTreeMap<Seq, PendingQuestion>>,
    /// First views, by worker, that could not include all that the worker may read.
    pub shortages: Arc<BTreeMap<WorkerName, Shortage>>,
    /// Unfinished work, once the board has ended.
    pub unfinished: Option<Arc<UnfinishedWork>>,
    /// The board waits only for persons.
    pub waits_for_persons: bool,
    /// Queued invocations.
    pub queued: usize,
    /// Usage of its calls, spent and reserved.
    pub account: Account,
    /// Stopped branches: open circuit breakers.
    pub open_branches: usize,
    /// Branches with one trial: half-open circuit breakers.
    pub half_open_branches: usize,
}

/// Wait of a worker's invocation for a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerWait {
    /// The worker.
    pub worker: WorkerName,
    /// Wait for the provider.
    pub wait: ProviderWait,
}

impl BoardStatus {
    /// Takes a snapshot of a board. `last` is its last record.
    pub fn new(board: &Board, last: Option<&Record>) -> Self {
        let (seq, hash) = board.head();
        let count =
            |is: fn(BreakerState) -> bool| board.breaker().states().filter(|(_, position)| is(*position)).count();
        Self {
            board: board.id().clone(),
            blueprint: Arc::clone(board.blueprint()),
            mode: board.plan().mode.clone(),
            started_by: board.creator().cloned(),
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
            unfinished: board.ended().map(|_| Arc::new(board.unfinished_work())),
            waits_for_persons: board.waits_for_persons(),
            queued: board.scheduler().queue().len(),
            account: *board.ledger().board(),
            open_branches: count(|position| matches!(position, BreakerState::Open { .. })),
            half_open_branches: count(|position| matches!(position, BreakerState::HalfOpen { .. })),
        }
    }
}
