//! Applies records to a board: the only code that changes one, live and in recovery.
//!
//! `apply` names what each kind of record does: to invocations (`calls`), as a decision on a proposal (`proposals`), or
//! by control of the board (`control`). `keys` recognises retries.

mod calls;
mod control;
mod keys;
mod proposals;

use std::sync::Arc;

use jsonptr::PointerBuf;

use super::{Board, PendingQuestion};
use crate::breaker::Branch;
use crate::digest::Digest;
use crate::freshness::Reservation;
use crate::id::{InvocationId, Seq, Timestamp};
use crate::pipeline::AppliedPatch;
use crate::record::{self, Body, Principal};
use crate::signal_payload::SignalPayload;

pub(super) use calls::call_reservation;
pub(crate) use keys::reply_digest;
pub(super) use keys::{dedup_key_of_request, edit_dedup_key, external_dedup_key, request_dedup_key, request_digest};

/// Maximum number of given-up invocations that a board keeps; the oldest are evicted first.
pub(super) const GIVEN_UP_MAX: usize = 1024;

/// Maximum bytes of a signal's value with which a board keeps an invocation that did not fail.
pub(super) const KEPT_VALUE_MAX: u64 = 16 << 10;

/// Data available when a record is applied but not stored in it.
#[derive(Default)]
pub(super) struct ApplyContext {
    /// Result of a commit, if the pipeline has just computed it.
    pub(super) applied: Option<AppliedPatch>,
    /// See [`Erasure::reply`](crate::record::RedactionMarker::reply).
    pub(super) reply: Option<Digest>,
    /// See [`Erasure::region`](crate::record::RedactionMarker::region).
    pub(super) region: Option<Digest>,
    /// External caller behind the record.
    pub(super) principal: Option<Principal>,
}

impl Board {
    /// Applies the body of the record `seq`. The error is the reason for which the record does not fit the ones before;
    /// only stored records can fail.
    pub(super) fn apply(&mut self, seq: Seq, at: Timestamp, body: &Body, beside: ApplyContext) -> Result<(), String> {
        self.advance_time(at, body);
        if let Some((token, outcome)) = keys::remembered(seq, body)
            && let Some(digest) = beside.reply.or_else(|| reply_digest(&self.hasher, self.format, body))
        {
            self.dedup.remember(token, digest, outcome, at, &self.pending);
        }
        match body {
            Body::Created(_) => return Err("a board is created once".to_owned()),
            Body::Epoch(epoch) => {
                if epoch.epoch <= self.epoch {
                    return Err(format!("epoch {} does not follow {}", epoch.epoch, self.epoch));
                }
                self.epoch = epoch.epoch;
                self.format = epoch.format.unwrap_or(self.format);
            }
            Body::Scheduled(scheduled) => self.apply_schedule(seq, at, scheduled)?,
            Body::Invoked(invoked) => self.apply_invocation(at, invoked)?,
            Body::Deferred(deferred) => self.apply_deferral(at, deferred)?,
            Body::Continued(continued) => self.apply_continuation(at, continued)?,
            Body::Committed(committed) => self.apply_commit(seq, at, committed, beside)?,
            Body::NoOp(no_op) => self.apply_no_op(at, no_op)?,
            Body::Expanded(expanded) => self.apply_expansion(at, expanded)?,
            Body::Rejected(rejected) => self.apply_rejection(seq, at, rejected)?,
            Body::Failed(failed) => self.apply_failure(at, failed)?,
            Body::Approval(approval) => self.apply_question(seq, at, approval, beside.principal)?,
            Body::Answer(answer) => self.apply_answer(at, answer)?,
            Body::Reserved(reserved) => {
                let places = pointers(&reserved.places)?;
                let (worker, decisions, until) = (reserved.worker.clone(), reserved.decisions, reserved.until);
                let reservation = Reservation { worker, places, decisions, until };
                self.reservations.insert(reserved.invocation, reservation);
            }
            Body::Tick(_) if !self.paused => {
                let still = self.suspended_rules();
                self.scheduler.enqueue_elapsed(&self.plan, at, &still);
                self.scheduler.advance_schedules(&self.plan, at);
            }
            Body::Skipped(skipped) => {
                if let Some(invocation) = skipped.invocation.filter(|it| !self.scheduler.withdraw(&self.plan, *it)) {
                    return Err(format!("it takes back invocation {invocation}, which does not wait"));
                }
                self.keep_undecided(skipped);
            }
            Body::Jumped(jumped) => {
                self.scheduler.jump(jumped.ms);
                self.reservations.jump(jumped.ms);
            }
            Body::Breaker(moved) => self.apply_breaker(at, moved),
            Body::Budget(budget) if budget.is_tried_again => {}
            Body::Budget(budget) => self.apply_budget(at, budget),
            Body::Paused(steered) => {
                self.paused = true;
                self.pause_cause = steered.cause;
            }
            Body::Resumed(_) => {
                (self.paused, self.pause_cause) = (false, None);
                self.scheduler.end_provider_waits();
            }
            Body::Retried(retried) => self.apply_retry(retried),
            Body::Signal(signal) => {
                self.reopen();
                self.signal = Some(SignalPayload::new(signal.value.clone()));
            }
            Body::Snapshot(snapshot) => {
                if snapshot.of >= seq {
                    return Err(format!("a snapshot cannot include record {}, which is not before it", snapshot.of));
                }
            }
            // Redacted values are absent from the records applied before this one.
            Body::Redacted(_) | Body::Late(_) | Body::Tick(_) => {}
            Body::Ended(ended) => self.apply_end(at, *ended),
        }
        let open = self.scheduler.open();
        let is_open = |question: &PendingQuestion| match &question.by.attempt {
            Some(attempt) => open.contains_key(&attempt.invocation),
            None => self.ended.is_none(),
        };
        if !self.pending.values().all(is_open) {
            Arc::make_mut(&mut self.pending).retain(|_, question| is_open(question));
        }
        self.reservations.expire(self.last_at, self.breaker.decisions(), |invocation| open.contains_key(&invocation));
        Ok(())
    }

    pub(super) fn open_of(&self, branch: &Branch) -> Vec<InvocationId> {
        let open = self.scheduler.open().iter().filter(|(_, open)| open.queued.branch == *branch);
        open.map(|(invocation, _)| *invocation).collect()
    }

    /// Advances recorded running time. It excludes pauses, the time after the end, waits for only persons or schedules,
    /// and the time without an owner.
    fn advance_time(&mut self, at: Timestamp, body: &Body) {
        let is_spent = match self.format >= record::SINCE_ADMISSION {
            true => self.ended.is_none() && self.is_running(),
            false => {
                let waits = self.waits_for_persons() || self.scheduler.waits_only_for_time();
                !self.paused && self.ended.is_none() && !waits
            }
        };
        let jumped = if let Body::Jumped(jumped) = body { jumped.ms } else { 0 };
        if is_spent && !matches!(body, Body::Epoch(_)) {
            self.running_ms = self.running_ms.saturating_add(at.ms_since(self.last_at).saturating_sub(jumped));
        }
        let still = self.suspended_rules();
        if !still.is_empty() {
            self.scheduler.postpone(at.ms_since(self.last_at), at, &still);
        }
        self.last_at = self.last_at.max(at);
    }
}

/// Parses the JSON Pointers of a record.
fn pointers(texts: &[String]) -> Result<Vec<PointerBuf>, String> {
    let parse = |text: &String| PointerBuf::parse(text.clone()).map_err(|error| error.to_string());
    texts.iter().map(parse).collect()
}
