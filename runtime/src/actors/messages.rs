//! Messages of all actors but the root, with sender, receiver and answer.
//!
//! A message has no answer unless it holds a channel for one. A receiver that has ended drops its messages: the
//! root restarts the actors of the board from the journal.

use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::admission::WaitingCall;
use patchboard_kernel::board::{Board, Cancellation, Effects, Input, Outcome};
use patchboard_kernel::id::{InvocationId, Timestamp};
use patchboard_kernel::record::{Ended, Principal};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::agent::{Call, CallResult, Permit, PermitFuture};
use crate::error::RuntimeError;
use crate::snapshotter::StoredSnapshot;
use patchboard_storage::journal::{GarbageCollection, JournalError};

pub(crate) type CallKey = (InvocationId, u32);

pub(crate) enum WriterMessage {
    /// From the group commit, and from the root to a new writer: records are queued.
    Flush,
}

/// Origin of the board.
pub(crate) enum StartMode {
    /// Just created and durable, with its first effects.
    Created(Box<Board>, Effects),
    Recover,
    /// Recovered from the journal, only to end it.
    MeltDown,
}

pub(crate) enum KernelMessage {
    /// From callers, workers, and the scheduler's alarm: input for the board. Answers the caller, if there is one.
    Decide {
        /// Boxed, because the actor's future has room for a message as long as the board lives.
        input: Box<Input>,
        /// Principal of an external caller.
        principal: Option<Principal>,
        caller: Option<WaitingCaller>,
    },
    /// From the scheduler: the gate admits a waiting call, or the operator's patience is over.
    Admitted { key: CallKey, permit: Option<Permit> },
    /// From a task of the kernel: this board may store or collect snapshots now.
    SnapshotPermit(OwnedSemaphorePermit),
    /// From a task of the kernel: a snapshot is stored, or storing failed.
    SnapshotStored(Result<StoredSnapshot, JournalError>),
    /// From a task of the kernel: unused parts of earlier snapshots are removed, or removing failed.
    GarbageCollected(Result<GarbageCollection, JournalError>),
}

impl KernelMessage {
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Decide { .. } => "decide",
            Self::Admitted { .. } => "admitted",
            Self::SnapshotPermit(_) => "turn",
            Self::SnapshotStored(_) => "taken",
            Self::GarbageCollected(_) => "swept",
        }
    }
}

/// External caller that waits for the result of an input.
pub(crate) struct WaitingCaller {
    /// Receives the decision, with its processor time.
    pub(crate) answer: oneshot::Sender<(Result<InputResult, RuntimeError>, Duration)>,
    /// True if the processor time is charged to a caller; only then it is measured.
    pub(crate) is_metered: bool,
    /// The request's place in the queue.
    pub(crate) _place: OwnedSemaphorePermit,
}

/// Result of an input, now durable.
pub(crate) struct InputResult {
    pub(crate) outcome: Option<Outcome>,
    pub(crate) recorded: bool,
}

pub(crate) enum SchedulerMessage {
    /// From the kernel: calls that the gate does not admit at once. Each admission is passed to the kernel.
    Wait(Vec<(CallKey, PermitFuture)>),
    /// From the kernel, before the cancellations of the step: a durable step makes calls, names those that wait for
    /// admission, or moves the alarm.
    Durable {
        calls: Vec<Arc<Call>>,
        awaiting_admission: Option<Vec<WaitingCall>>,
        wake_at: Option<Timestamp>,
        ended: Option<Ended>,
    },
    /// From the circuit breaker: cancels calls. They were delivered before.
    Cancel(Vec<Cancellation>),
}

pub(crate) enum BreakerMessage {
    /// From the kernel: a durable step cancels calls.
    Durable(Vec<Cancellation>),
}

pub(crate) enum WorkerMessage {
    /// From the scheduler: call the agent. The answer is passed to the kernel as an input.
    Call(Arc<Call>),
    /// From the scheduler, after the call: cancels it, unless it has ended.
    Cancel(CallKey),
    /// From a task of the worker: a call has ended.
    Answered(Arc<Call>, CallResult),
}

impl WorkerMessage {
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Call(..) => "call",
            Self::Cancel(..) => "withdraw",
            Self::Answered(..) => "answered",
        }
    }
}
