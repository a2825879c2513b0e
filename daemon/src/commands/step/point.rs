//! Moment of a dry run, reconstructed from the records before it.

use patchboard_kernel::bindings::Bindings;
use patchboard_kernel::board::{self, Board, DryRun};
use patchboard_kernel::id::{IdempotencyKey, InvocationId, Timestamp, WorkerName};
use patchboard_kernel::record::{Author, Body, Invoked, Record};
use patchboard_kernel::scheduler::QueuedInvocation;
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::Call;

use crate::failure::Failure;
use crate::queries::view::no_such_worker;
use crate::reader::bad_board;

/// Reconstructed moment of the run.
pub(super) struct DryRunPoint {
    /// State before the record.
    pub(super) board: Board,
    pub(super) dry_run: DryRun,
    /// Trigger of the call; `None` for a preview.
    pub(super) queued: Option<QueuedInvocation>,
    /// Recorded attempt, if any.
    pub(super) invoked: Option<Invoked>,
    /// Time of the attempt, or of the record if there is no attempt.
    pub(super) time: Timestamp,
    /// Index of the record with the actual outcome.
    pub(super) outcome: Option<usize>,
}

impl DryRunPoint {
    pub(super) fn find(records: &[Record], at: usize, worker: &WorkerName) -> Result<Self, Failure> {
        let body = |index: usize| records[index].body().map_err(bad_board);
        let here = body(at)?;
        let attempt = match here {
            Body::Invoked(invoked) if invoked.worker == *worker => Some((invoked.invocation, invoked.attempt)),
            other => other.author().filter(|by| by.worker == *worker).and_then(attempt),
        };
        // The attempt at the record, or else the worker's latest trigger.
        let (mut shown_at, mut invocation, mut invoked) = (None, None, None);
        for index in (0..=at).rev() {
            match (body(index)?, attempt) {
                (Body::Invoked(found), Some(wanted)) if (found.invocation, found.attempt) == wanted => {
                    (shown_at, invocation, invoked) = (Some(index), Some(found.invocation), Some(found.clone()));
                    break;
                }
                (Body::Scheduled(found), None) if found.worker == *worker && index < at => {
                    invocation = Some(found.invocation);
                    break;
                }
                _ => {}
            }
        }
        let mut board = Board::from_created(&records[0], &PLANS).map_err(bad_board)?;
        if !board.plan().workers.contains_key(worker) {
            return Err(no_such_worker(board.blueprint(), worker.as_str()));
        }
        let (mut queued, mut dry_run) = (None, None);
        for (index, record) in records.iter().enumerate().take(at).skip(1) {
            if shown_at == Some(index) {
                dry_run = board.dry_run(worker, queued.as_ref(), &Bindings::default());
            }
            board.fold(record).map_err(bad_board)?;
            if queued.is_none() {
                queued = invocation.and_then(|invocation| board.invocation(invocation)).cloned();
            }
        }
        // Without an attempt, or at the attempt's own record, the view is of this board.
        let dry_run = dry_run
            .or_else(|| board.dry_run(worker, queued.as_ref(), &Bindings::default()))
            .expect("the worker is there");
        let outcome = outcome(records, at, worker, invocation, attempt)?;
        let time = records[shown_at.unwrap_or(at)].at;
        Ok(Self { board, dry_run, queued, invoked, time, outcome })
    }

    /// Returns the call that the worker's agent would get.
    pub(super) fn call(&self) -> Call {
        let dry_run = &self.dry_run;
        let attempt = self.invoked.as_ref().map_or(1, |invoked| invoked.attempt);
        let invocation = self.queued.as_ref().map(|queued| queued.invocation).unwrap_or_default();
        let decided = board::Call {
            board: self.board.id().clone(),
            parent: self.board.parent().cloned(),
            invocation,
            cause: self.queued.as_ref().map(|queued| queued.cause).unwrap_or_default(),
            attempt,
            idempotency_key: IdempotencyKey::for_attempt(invocation, attempt),
            worker: dry_run.worker.clone(),
            model: self.board.blueprint().model_of(&dry_run.worker).map(str::to_owned),
            view_hash: dry_run.hash,
            prompt: dry_run.prompt.clone(),
            context: dry_run.context.clone(),
            occurrence: dry_run.occurrence,
            earlier_attempts: dry_run.past.clone(),
            timeout_ms: dry_run.timeout_ms,
            admitted: None,
        };
        Call::new(decided, None)
    }
}

/// Returns the attempt of a proposal or failure; `None` for an edit within an attempt.
fn attempt(by: &Author) -> Option<(InvocationId, u32)> {
    let attempt = by.attempt.as_ref().filter(|_| by.edit.is_none())?;
    Some((attempt.invocation, attempt.number))
}

/// Returns the index of the outcome: this record or the first later one of the attempt; for a trigger, its last
/// outcome.
fn outcome(
    records: &[Record],
    at: usize,
    worker: &WorkerName,
    invocation: Option<InvocationId>,
    wanted: Option<(InvocationId, u32)>,
) -> Result<Option<usize>, Failure> {
    let mut last = None;
    for (index, record) in records.iter().enumerate() {
        let body = record.body().map_err(bad_board)?;
        let Some(by) = body.author().filter(|by| by.worker == *worker && by.edit.is_none()) else { continue };
        if index == at || (wanted.is_some() && index > at && attempt(by) == wanted) {
            return Ok(Some(index));
        }
        if wanted.is_none() && attempt(by).map(|(invocation, _)| invocation) == invocation && invocation.is_some() {
            last = Some(index);
        }
    }
    Ok(last)
}
