//! Records of invocations and their attempts: scheduled, begun, continued, deferred, ended.

use std::sync::Arc;

use super::pointers;
use crate::board::Board;
use crate::breaker::{AttemptOutcome, Branch};
use crate::failure::FailureCode;
use crate::freshness::ReadSet;
use crate::id::{Seq, Timestamp, WorkerName};
use crate::ledger::{CallReservation, Usage};
use crate::money::Price;
use crate::plan::Plan;
use crate::record::{self, Author, Continued, Deferred, Failed, Invoked, Scheduled, Trigger};
use crate::scheduler::{AnsweredQuestion, Expansion, OpenInvocation, ProviderWait, QueuedInvocation};
use crate::view::Shortage;

impl Board {
    /// Queues an invocation: a new one, one that was given up, or the next round of one.
    pub(super) fn apply_schedule(&mut self, seq: Seq, at: Timestamp, scheduled: &Scheduled) -> Result<(), String> {
        if scheduled.invocation != self.scheduler.next_id() {
            return Err(format!("invocation {} is not the next", scheduled.invocation));
        }
        if !self.plan.workers.contains_key(&scheduled.worker) {
            return Err(format!("there is no worker {}", scheduled.worker));
        }
        let value = match &scheduled.trigger {
            Trigger::Signal { .. } => self.signal.clone(),
            _ => None,
        };
        let branch = Branch { rule: scheduled.rule.clone(), worker: scheduled.worker.clone() };
        let trigger = scheduled.trigger.clone();
        self.resolve_undecided(scheduled);
        let is_after = trigger == Trigger::After;
        let invocation = scheduled.invocation;
        // Invocations beyond the limit are given up at once and do not count against it.
        let seat = self.plan.workers.get(&scheduled.worker);
        let is_left =
            seat.is_none_or(|seat| self.scheduler.scheduled_for(&scheduled.worker) < seat.worker.limits.invocations);
        let is_counted = scheduled.retries.is_none() && (is_left || self.format < record::SINCE_FULL_RETRY);
        let taken_up = match scheduled.retries {
            Some(retries) => {
                let place = self.given_up.iter().position(|queued| queued.invocation == retries);
                let before = place.and_then(|place| self.given_up.remove(place));
                Some(before.ok_or_else(|| format!("invocation {retries} was not given up"))?)
            }
            None => None,
        };
        let queued = match (scheduled.follows, taken_up) {
            (Some(follows), _) => {
                let before = self.scheduler.take_continued(follows);
                let before = before.ok_or_else(|| format!("invocation {follows} asked for nothing"))?;
                let expansion = before.expansion.clone().next_round(scheduled.expand.clone(), self.plan.has_ranges());
                QueuedInvocation { invocation, cause: seq, expansion, ..before }
            }
            (None, Some(before)) => {
                QueuedInvocation { invocation, cause: seq, is_beyond_limit: false, is_ineffective: false, ..before }
            }
            (None, None) => QueuedInvocation {
                invocation,
                branch,
                cause: seq,
                trigger,
                value,
                expansion: Expansion::default(),
                is_beyond_limit: false,
                is_ineffective: false,
            },
        };
        self.scheduler.enqueue(&self.plan, queued, is_after, is_counted, at, scheduled.due);
        Ok(())
    }

    /// Begins an attempt and reserves its budget.
    pub(super) fn apply_invocation(&mut self, at: Timestamp, invoked: &Invoked) -> Result<(), String> {
        let (reads, members) = (pointers(&invoked.reads)?, pointers(&invoked.members)?);
        let basis = Arc::new(ReadSet { state: self.state.clone(), reads, members });
        let open = self.scheduler.begin(invoked, self.format, at, basis);
        let branch = open.ok_or("it invokes what was not scheduled")?.queued.branch.clone();
        let admitted = invoked.admitted.as_ref();
        let price = admitted.and_then(|admission| admission.price.as_ref());
        let tokens = (invoked.reserved, admitted.and_then(|admission| admission.reply_tokens));
        self.ledger.reserve(&branch, call_reservation(&self.plan, &branch.worker, tokens, price));
        self.breaker.dispatched(&branch, invoked.invocation);
        if !self.shortages.contains_key(&invoked.worker)
            && let Some(shortage) = Shortage::from_call(invoked)
        {
            Arc::make_mut(&mut self.shortages).insert(invoked.worker.clone(), shortage);
        }
        Ok(())
    }

    pub(super) fn apply_deferral(&mut self, at: Timestamp, deferred: &Deferred) -> Result<(), String> {
        let not_under_way = "it defers an attempt that is not under way";
        let attempt = deferred.by.attempt.as_ref().ok_or(not_under_way)?;
        let open = self.scheduler.open().get(&attempt.invocation);
        let open = open.filter(|open| open.calling && open.attempt == attempt.number).ok_or(not_under_way)?.clone();
        // The provider did not accept the last request, so it cost nothing.
        self.settle(&open, Some(deferred.by.usage.unwrap_or_default()), at);
        // No model time was used, so delays that except this worker are extended. A nested board's work before its wait
        // still counts.
        let worker = &open.queued.branch.worker;
        if self.is_gated(worker) {
            let still = self.excepting(|other| other == worker);
            self.scheduler.postpone(at.ms_since(open.since), at, &still);
        }
        let Deferred { reason, not_before, patience, .. } = *deferred;
        self.scheduler.defer(attempt.invocation, at, ProviderWait { reason, not_before, patience });
        Ok(())
    }

    pub(super) fn apply_continuation(&mut self, at: Timestamp, continued: &Continued) -> Result<(), String> {
        let not_under_way = "it goes on with an attempt that is not under way";
        let attempt = continued.by.attempt.as_ref().ok_or(not_under_way)?;
        let open = self.scheduler.open().get(&attempt.invocation).ok_or(not_under_way)?.clone();
        // A resumed conversation reserves its next call and has no answer yet.
        let is_answered = self.format < record::SINCE_FULL_RETRY || continued.by.usage != Some(Usage::default());
        let branch =
            self.scheduler.continue_attempt(attempt, at, continued.reserved, is_answered).ok_or(not_under_way)?;
        self.settle(&open, continued.by.usage, at);
        self.ledger.reserve(&branch, CallReservation { tokens: continued.reserved, ..self.reservation_of(&open) });
        Ok(())
    }

    /// Ends an attempt without a reply.
    pub(super) fn apply_failure(&mut self, at: Timestamp, failed: &Failed) -> Result<(), String> {
        let invocation = failed.by.attempt.as_ref().map(|attempt| attempt.invocation);
        match (failed.code, invocation) {
            (FailureCode::Lost, Some(invocation)) => self.scheduler.record_loss(invocation),
            (FailureCode::NotConfigured | FailureCode::Unreachable, Some(invocation)) => {
                self.scheduler.uncount_attempt(invocation);
            }
            _ => {}
        }
        if let Some(invocation) = invocation.filter(|_| self.format >= record::SINCE_ADMISSION) {
            self.scheduler.record_failure(invocation, failed.code);
        }
        let finish = if failed.is_final { AttemptEnd::GivenUp } else { AttemptEnd::AttemptOnly };
        let branch = self.finish(&failed.by, at, finish)?;
        let heard =
            AttemptOutcome::Failure { is_final: failed.is_final, is_crash: failed.code == FailureCode::Crashed };
        self.breaker.record_outcome(&self.plan.blueprint.circuit, branch.as_ref(), heard);
        Ok(())
    }

    /// Ends an attempt, and its invocation if the outcome says so; returns the branch.
    pub(super) fn finish(&mut self, by: &Author, at: Timestamp, finish: AttemptEnd) -> Result<Option<Branch>, String> {
        if let Some(question) = by.approval
            && Arc::make_mut(&mut self.pending).remove(&question).is_none()
        {
            return Err(format!("record {question} asks nothing"));
        }
        let Some(attempt) = &by.attempt else { return Ok(None) };
        let open = self.scheduler.open().get(&attempt.invocation);
        let open = open.filter(|open| {
            (open.calling || (open.question.is_some() && open.question == by.approval))
                && open.attempt == attempt.number
        });
        let open = open.ok_or("it answers an attempt that is not under way")?.clone();
        self.settle(&open, by.usage, at);
        match finish {
            AttemptEnd::AttemptOnly => self.scheduler.end_attempt(attempt.invocation),
            AttemptEnd::GivenUp => {
                self.gave_up = true;
                if let Some(open) = self.scheduler.close(attempt.invocation, false) {
                    self.give_up(open.queued);
                }
            }
            AttemptEnd::Completed => drop(self.scheduler.close(attempt.invocation, true)),
            AttemptEnd::AwaitingPerson(question) => self.scheduler.await_person(attempt.invocation, question),
            AttemptEnd::Continued(answered) => self.scheduler.close_for_follow_up(attempt.invocation, answered),
        }
        Ok(Some(open.queued.branch))
    }

    /// Builds the reservation of a call under way.
    pub(in crate::board) fn reservation_of<'a>(&self, open: &'a OpenInvocation) -> CallReservation<'a> {
        let tokens = (open.reserved, open.reply_tokens);
        call_reservation(&self.plan, &open.queued.branch.worker, tokens, open.price.as_ref())
    }

    pub(super) fn settle(&mut self, open: &OpenInvocation, usage: Option<Usage>, at: Timestamp) {
        // An attempt that has ended was settled then.
        if open.calling {
            let held = self.reservation_of(open);
            self.ledger.settle(&open.queued.branch, held, usage, at.ms_since(open.since));
        }
    }
}

/// Outcome of an attempt for its invocation.
pub(super) enum AttemptEnd {
    /// Another attempt follows.
    AttemptOnly,
    /// The invocation ends without success.
    GivenUp,
    /// The invocation ends with success.
    Completed,
    /// The invocation continues in another, with a person's answer if that is the reason.
    Continued(Option<AnsweredQuestion>),
    /// The proposal waits for a person; the record holds the question.
    AwaitingPerson(Seq),
}

/// Builds the reservation of a worker's call with `tokens` in total. `reply` overrides the seat's reply tokens.
pub(in crate::board) fn call_reservation<'a>(
    plan: &Plan,
    worker: &WorkerName,
    (tokens, reply): (u64, Option<u64>),
    price: Option<&'a Price>,
) -> CallReservation<'a> {
    let of_seat = || plan.workers.get(worker).map_or(0, |seat| u64::from(seat.worker.limits.reply_tokens));
    CallReservation { tokens, reply: reply.unwrap_or_else(of_seat), price }
}
