//! Effects of a step, grouped by the part of the shell that executes them.

use std::sync::Arc;

use crate::admission::{Admission, WaitingCall};
use crate::blueprint::Worker;
use crate::call_context::CallContext;
use crate::digest::Digest;
use crate::id::{BoardId, IdempotencyKey, InvocationId, Seq, Timestamp, WorkerName};
use crate::record::{Ended, Parent};
use crate::scheduler::AttemptHistory;
use crate::view::Prompt;

/// Actions to run once a step is durable.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Effects {
    /// Calls to make, in this order.
    pub calls: Vec<Call>,
    /// Calls to cancel, after the calls of this step are made.
    pub cancellations: Vec<Cancellation>,
    /// All calls that the gate is to admit; calls named earlier and missing here are no longer wanted. `None`: those
    /// named earlier.
    pub awaiting_admission: Option<Vec<WaitingCall>>,
    /// Time for [`Input::Tick`](super::Input::Tick), instead of any time requested earlier.
    pub wake_at: Option<Timestamp>,
    /// End of the board, which voids times requested earlier; a signal may restart a quiescent board.
    pub ended: Option<Ended>,
}

/// One attempt of one invocation: a call of the worker's agent.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// Board of the call.
    pub board: BoardId,
    /// Invocation of the outer board that this board serves, if it is nested.
    pub parent: Option<Parent>,
    /// The invocation.
    pub invocation: InvocationId,
    /// Number of the `scheduled` record, which names a retried invocation.
    pub cause: Seq,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Idempotency token of the attempt.
    pub idempotency_key: IdempotencyKey,
    /// The worker.
    pub worker: WorkerName,
    /// Operator's name of the model, for `llm`: the admitted one, or the blueprint's `models` entry that the seat names.
    pub model: Option<String>,
    /// Hash of the view; key of cassettes.
    pub view_hash: Digest,
    /// Prompt: the view as text.
    pub prompt: Arc<Prompt>,
    /// The view as values.
    pub context: Arc<CallContext>,
    /// Number of the worker's earlier attempts on this board, except those lost with a process or never delivered.
    /// Selects a script's reply, and shows if a program can have state to lose.
    pub occurrence: u32,
    /// Earlier attempts of the invocation.
    pub earlier_attempts: AttemptHistory,
    /// Timeout of the call in milliseconds.
    pub timeout_ms: u64,
    /// Result of the admission, if the call needed one.
    pub admitted: Option<Admission>,
}

impl Call {
    /// Returns the worker's seat in the blueprint.
    pub fn worker_config(&self) -> &Worker {
        &self.context.worker_plan().worker
    }
}

/// Call that the board no longer needs; its answer will be rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cancellation {
    /// The invocation.
    pub invocation: InvocationId,
    /// Number of the attempt.
    pub attempt: u32,
    /// The worker.
    pub worker: WorkerName,
}

impl Effects {
    /// Adds the effects of a step that follows immediately.
    pub(super) fn add(&mut self, next: Self) {
        let Self { calls, cancellations, awaiting_admission, wake_at, ended } = next;
        self.calls.extend(calls);
        self.cancellations.extend(cancellations);
        self.awaiting_admission = awaiting_admission.or(self.awaiting_admission.take());
        self.wake_at = if ended.is_some() { wake_at } else { wake_at.or(self.wake_at) };
        self.ended = ended.or(self.ended);
    }
}
