//! Applies records to a board: the only code that changes one, live and in recovery.

use std::collections::VecDeque;
use std::sync::Arc;

use jsonptr::PointerBuf;
use serde_json::Value;

use super::{Board, FEEDBACK_MAX, FEEDBACK_PER_WORKER_MAX, PendingQuestion, RememberedOutcome, ReplyBody, feedback};
use crate::bindings::Bindings;
use crate::breaker::{self, AttemptOutcome, Branch};
use crate::digest::{Digest, Hasher};
use crate::expand_request::ExpandRequest;
use crate::failure::FailureCode;
use crate::freshness::{ReadSet, Reservation};
use crate::id::{IdempotencyKey, InvocationId, RuleName, Seq, Timestamp, WorkerName};
use crate::json::size;
use crate::ledger::{CallReservation, Usage};
use crate::money::Price;
use crate::mutants::{self, Mutant};
use crate::pipeline::{self, AppliedPatch};
use crate::plan::Plan;
use crate::record::{
    self, Author, Body, Committed, Continued, Deferred, Expanded, NoOp, Principal, Rejected, Resource,
    SINCE_ELEMENT_CYCLES, Trigger,
};
use crate::rejection::{Code, Stage};
use crate::scheduler::{AnsweredQuestion, Expansion, OpenInvocation, ProviderWait, QueuedInvocation};
use crate::signal_payload::SignalPayload;
use crate::view::Shortage;

/// Maximum number of given-up invocations that a board keeps; the oldest are evicted first.
pub(super) const GIVEN_UP_MAX: usize = 1024;

/// Maximum number of invocations kept per branch that changed nothing; the oldest are evicted first.
const INEFFECTIVE_MAX: usize = 64;

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
    /// Applies the body of the record `seq`.
    ///
    /// # Errors
    /// The reason for which the record does not fit the ones before; only stored records can fail.
    pub(super) fn apply(&mut self, seq: Seq, at: Timestamp, body: &Body, beside: ApplyContext) -> Result<(), String> {
        self.advance_time(at, body);
        match body {
            Body::Created(_) => return Err("a board is created once".to_owned()),
            Body::Epoch(epoch) => {
                if epoch.epoch <= self.epoch {
                    return Err(format!("epoch {} does not follow {}", epoch.epoch, self.epoch));
                }
                self.epoch = epoch.epoch;
                self.format = epoch.format.unwrap_or(self.format);
            }
            Body::Scheduled(scheduled) => {
                if scheduled.invocation != self.scheduler.next_id() {
                    return Err(format!("invocation {} is not the next", scheduled.invocation));
                }
                if !self.plan.workers.contains_key(&scheduled.worker) {
                    return Err(format!("there is no worker {}", scheduled.worker));
                }
                let value = match &scheduled.trigger {
                    Trigger::Signal { .. } => self.signal.clone(),
                    Trigger::Start
                    | Trigger::Event { .. }
                    | Trigger::After
                    | Trigger::Idle
                    | Trigger::Every { .. }
                    | Trigger::Breaker { .. } => None,
                };
                let branch = Branch { rule: scheduled.rule.clone(), worker: scheduled.worker.clone() };
                let trigger = scheduled.trigger.clone();
                self.resolve_undecided(scheduled);
                let is_after = trigger == Trigger::After;
                let invocation = scheduled.invocation;
                // Invocations beyond the limit are given up at once and do not count against it.
                let seat = self.plan.workers.get(&scheduled.worker);
                let is_left = seat.is_none_or(|seat| {
                    self.scheduler.scheduled_for(&scheduled.worker) < seat.worker.limits.invocations
                });
                let is_counted = scheduled.retries.is_none() && (is_left || self.format < record::SINCE_FULL_RETRY);
                let taken_up = match scheduled.retries {
                    None => None,
                    Some(retries) => {
                        let place = self.given_up.iter().position(|queued| queued.invocation == retries);
                        let before = place.and_then(|place| self.given_up.remove(place));
                        let before = before.ok_or_else(|| format!("invocation {retries} was not given up"))?;
                        Some(QueuedInvocation {
                            invocation,
                            cause: seq,
                            is_beyond_limit: false,
                            is_ineffective: false,
                            ..before
                        })
                    }
                };
                let queued = match scheduled.follows {
                    None if taken_up.is_some() => taken_up.ok_or("it was just looked at")?,
                    None => {
                        let (expansion, is_beyond_limit, is_in_vain) = (Expansion::default(), false, false);
                        QueuedInvocation {
                            invocation,
                            branch,
                            cause: seq,
                            trigger,
                            value,
                            expansion,
                            is_beyond_limit,
                            is_ineffective: is_in_vain,
                        }
                    }
                    Some(follows) => {
                        let before = self.scheduler.take_continued(follows);
                        let before = before.ok_or_else(|| format!("invocation {follows} asked for nothing"))?;
                        let expansion =
                            before.expansion.clone().next_round(scheduled.expand.clone(), self.plan.has_ranges());
                        QueuedInvocation { invocation, cause: seq, expansion, ..before }
                    }
                };
                self.scheduler.enqueue(&self.plan, queued, is_after, is_counted, at, scheduled.due);
            }
            Body::Invoked(invoked) => {
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
            }
            Body::Deferred(deferred) => self.apply_deferral(at, deferred)?,
            Body::Continued(continued) => self.apply_continuation(at, continued)?,
            Body::Committed(committed) => self.apply_commit(seq, at, committed, beside)?,
            Body::NoOp(no_op) => {
                if let Some(token) = dedup_key_of_proposal(&no_op.by) {
                    let reply =
                        beside.reply.unwrap_or_else(|| fingerprint_of_no_op((&self.hasher, self.format), no_op));
                    self.dedup.remember(token, reply, RememberedOutcome::NoOp { seq }, at, &self.pending);
                }
                let of_attempt = no_op.by.attempt.as_ref();
                let queued = of_attempt.and_then(|attempt| self.scheduler.open().get(&attempt.invocation));
                let queued = queued.map(|open| open.queued.clone());
                let bound = self.bindings_of(&no_op.by);
                let branch = self.finish(&no_op.by, at, AttemptEnd::Completed)?;
                let heard = match no_op.pass.is_some() {
                    true => AttemptOutcome::Pass,
                    // Each invocation of a bound worker concerns another element, so in a row they are no streak.
                    false if !bound.is_empty() => AttemptOutcome::Unchanged,
                    false => AttemptOutcome::NoOp,
                };
                let counts = heard != AttemptOutcome::Unchanged && self.format >= record::SINCE_FULL_RETRY;
                if let Some(queued) = queued.filter(|_| counts) {
                    self.keep_ineffective(queued, no_op.pass.is_some());
                }
                self.breaker.record_outcome(&self.plan.blueprint.circuit, branch.as_ref(), heard);
                self.clear_feedback(&no_op.by, &bound);
            }
            Body::Expanded(expanded) => {
                if let Some(token) = dedup_key_of_proposal(&expanded.by) {
                    let Expanded { patch, intent, expand, written, .. } = expanded;
                    let reply = || self.fingerprint(patch, intent.as_deref(), expand, written.as_ref());
                    let reply = beside.reply.unwrap_or_else(reply);
                    self.dedup.remember(token, reply, RememberedOutcome::Expanded { seq }, at, &self.pending);
                }
                let branch = self.finish(&expanded.by, at, AttemptEnd::Continued(None))?;
                self.breaker.record_outcome(&self.plan.blueprint.circuit, branch.as_ref(), AttemptOutcome::Expansion);
            }
            Body::Rejected(rejected) => self.apply_rejection(seq, at, rejected, beside.reply)?,
            Body::Failed(failed) => {
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
                let heard = AttemptOutcome::Failure {
                    is_final: failed.is_final,
                    is_crash: failed.code == FailureCode::Crashed,
                };
                self.breaker.record_outcome(&self.plan.blueprint.circuit, branch.as_ref(), heard);
            }
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
            Body::Late(_) | Body::Tick(_) => {}
            Body::Approval(approval) => {
                let approval = approval.clone();
                let record::Approval { by, approver, expires, four_eyes, digest, patch, intent, expand, .. } = approval;
                let record::Approval { written, clarify, .. } = approval;
                if let Some(token) = dedup_key_of_proposal(&by) {
                    let reply = || match &clarify {
                        // The fingerprint of a question covers only the question.
                        Some(_) => digest,
                        None => self.fingerprint(&patch, intent.as_deref(), &expand, written.as_ref()),
                    };
                    let reply = beside.reply.unwrap_or_else(reply);
                    self.dedup.remember(token, reply, RememberedOutcome::AwaitingApproval { seq }, at, &self.pending);
                }
                let branch = self.finish(&by, at, AttemptEnd::AwaitingPerson(seq))?;
                self.reopen();
                let principal = beside.principal;
                let question = PendingQuestion {
                    by,
                    approver,
                    expires,
                    four_eyes,
                    digest,
                    patch,
                    intent,
                    expand,
                    written,
                    clarify,
                    principal,
                };
                Arc::make_mut(&mut self.pending).insert(seq, question);
                self.breaker.record_outcome(
                    &self.plan.blueprint.circuit,
                    branch.as_ref(),
                    AttemptOutcome::AwaitingPerson,
                );
            }
            Body::Answer(answer) => {
                let question = self.pending.get(&answer.of).cloned();
                let question = question.ok_or_else(|| format!("record {} asks nothing", answer.of))?;
                if let (Some(clarify), Some(text)) = (question.clarify, &answer.text) {
                    let by = Author { usage: None, approval: Some(answer.of), ..question.by };
                    let told =
                        AnsweredQuestion { question: clarify.question, by: answer.by.clone(), answer: text.clone() };
                    let branch = self.finish(&by, at, AttemptEnd::Continued(Some(told)))?;
                    self.breaker.record_outcome(
                        &self.plan.blueprint.circuit,
                        branch.as_ref(),
                        AttemptOutcome::Expansion,
                    );
                }
            }
            Body::Breaker(moved) => {
                let branch = Branch { rule: moved.rule.clone(), worker: moved.worker.clone() };
                self.breaker.apply(&branch, moved.change, moved.reason);
                let in_vain = self.ineffective.remove(&branch).unwrap_or_default();
                let streak = match (moved.change, moved.reason) {
                    (breaker::BreakerTransition::Opened, breaker::Reason::NoOps) => in_vain.no_ops,
                    (breaker::BreakerTransition::Opened, breaker::Reason::Passes) => in_vain.passes,
                    // Only the failed probe itself.
                    (breaker::BreakerTransition::Opened, breaker::Reason::ProbeFailed) => {
                        in_vain.all().cloned().collect()
                    }
                    _ => VecDeque::new(),
                };
                // The streak counts as a failure: an operator can retry it until the branch succeeds again.
                for queued in streak {
                    self.give_up(QueuedInvocation { is_ineffective: true, ..queued });
                }
                if moved.change == breaker::BreakerTransition::Closed {
                    self.given_up.retain(|queued| !queued.is_ineffective || queued.branch != branch);
                }
                // Calls dispatched while there was a budget may still answer.
                if moved.change == breaker::BreakerTransition::Opened && moved.reason != breaker::Reason::Budget {
                    for invocation in self.open_of(&branch) {
                        self.abandon(invocation, at);
                    }
                }
                // Reopens a board with an end that is not final, if an invocation waited for this breaker.
                let may_go = |queued: &QueuedInvocation| self.breaker.admits(&queued.branch);
                let lets_go =
                    matches!(moved.change, breaker::BreakerTransition::HalfOpened | breaker::BreakerTransition::Closed);
                if lets_go
                    && !mutants::is_active(Mutant::StayEndedOnHalfOpen)
                    && self.scheduler.queue().iter().any(may_go)
                {
                    self.reopen();
                }
            }
            Body::Budget(budget) if budget.is_tried_again => {}
            Body::Budget(budget) => {
                self.budget_exceeded = true;
                if budget.resource == Resource::Invocations {
                    self.exhausted.insert(budget.worker.clone());
                    if budget.invocation.is_none() {
                        self.forget(budget.rule.clone());
                    }
                }
                if let Some(invocation) = budget.invocation {
                    match budget.resource {
                        Resource::Invocations => self.abandon_beyond_limit(invocation),
                        _ => self.abandon(invocation, at),
                    }
                }
            }
            Body::Paused(steered) => {
                self.paused = true;
                self.pause_cause = steered.cause;
                self.remember_request(seq, at, body, beside.reply);
            }
            Body::Resumed(_) => {
                (self.paused, self.pause_cause) = (false, None);
                self.scheduler.end_provider_waits();
                self.remember_request(seq, at, body, beside.reply);
            }
            Body::Retried(retried) => {
                self.raised = self.raised.max(retried.limits);
                if let Some(worker) = self.worker_of(retried).filter(|_| !retried.worker_limits.is_none()) {
                    let raised = self.raised_of_workers.entry(worker).or_default();
                    *raised = raised.max(retried.worker_limits);
                }
                let is_failure = |queued: &QueuedInvocation| !queued.is_beyond_limit && !queued.is_ineffective;
                let is_left = |queued: &QueuedInvocation| is_failure(queued) && !retried.selects(queued);
                let gave_up = self.format >= record::SINCE_FULL_RETRY && self.given_up.iter().any(is_left);
                (self.ended, self.budget_exceeded, self.gave_up) = (None, false, gave_up);
                (self.paused, self.pause_cause) = (false, None);
                self.scheduler.end_provider_waits();
                self.remember_request(seq, at, body, beside.reply);
            }
            Body::Signal(signal) => {
                self.reopen();
                self.signal = Some(SignalPayload::new(signal.value.clone()));
                self.remember_request(seq, at, body, beside.reply);
            }
            Body::Snapshot(snapshot) => {
                if snapshot.of >= seq {
                    return Err(format!("a snapshot cannot include record {}, which is not before it", snapshot.of));
                }
            }
            // Redacted values are absent from the records applied before this one.
            Body::Redacted(_) => {}
            Body::Ended(ended) => {
                // After an end that is not final, invocations that wait for a breaker keep waiting.
                if ended.is_final() {
                    let (open, queued) = self.scheduler.clear();
                    for open in open {
                        self.settle(&open, None, at);
                        self.give_up(open.queued);
                    }
                    queued.into_iter().for_each(|queued| self.give_up(queued));
                }
                self.ended = Some(*ended);
            }
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

    /// Remembers the idempotency key of a request, with the digest of its content, to detect a retry.
    fn remember_request(&mut self, seq: Seq, at: Timestamp, body: &Body, request: Option<Digest>) {
        if let Some(token) = dedup_key_of_request(body) {
            let request = request.unwrap_or_else(|| request_digest(&self.hasher, body));
            self.dedup.remember(token, request, RememberedOutcome::Recorded { seq }, at, &self.pending);
        }
    }

    /// Returns the open invocations of a branch.
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

    fn apply_deferral(&mut self, at: Timestamp, deferred: &Deferred) -> Result<(), String> {
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

    fn apply_continuation(&mut self, at: Timestamp, continued: &Continued) -> Result<(), String> {
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

    fn apply_commit(
        &mut self,
        seq: Seq,
        at: Timestamp,
        committed: &Committed,
        beside: ApplyContext,
    ) -> Result<(), String> {
        let is_opaque = seq < self.opaque_until;
        let made = match beside.applied {
            Some(made) => made,
            None => pipeline::reapply(&self.plan, &self.state, &committed.patch, is_opaque)
                .map_err(|violation| format!("its patch does not apply: {}", violation.message))?,
        };
        if committed.version != self.state.version().next() {
            return Err(format!("version {} does not follow {}", committed.version, self.state.version()));
        }
        self.is_exact = committed.state == made.state.digest();
        if !self.is_exact && !is_opaque {
            return Err("its patch does not make the state it names".to_owned());
        }
        self.reopen();
        // A direct proposal belongs to no branch, so it cannot form a cycle.
        let is_of_branch = committed.by.attempt.is_some();
        let bound = self.bindings_of(&committed.by);
        let is_of_element = self.format >= SINCE_ELEMENT_CYCLES && !bound.is_empty();
        let element = is_of_element.then(|| self.bound_element(&committed.by)).flatten();
        let region = || breaker::fingerprint(&self.hasher, &made.changes, &made.state, element.as_deref());
        let written = is_of_branch.then(|| beside.region.unwrap_or_else(region));
        // A plain blackboard message that sets nothing.
        let is_idle = made.changes.is_empty();
        let of_attempt = committed.by.attempt.as_ref().filter(|_| !is_idle);
        if let Some(open) = of_attempt.and_then(|attempt| self.scheduler.open().get(&attempt.invocation)) {
            self.ineffective.remove(&open.queued.branch);
        }
        if committed.by.edit.is_some() {
            self.files.record_edit(&self.state, &committed.patch);
        }
        self.state = made.state;
        self.commits.push(seq, &committed.by.worker);
        if let Some(token) = dedup_key_of_proposal(&committed.by) {
            let Committed { patch, intent, expand, written, .. } = committed;
            let reply = || self.fingerprint(patch, intent.as_deref(), expand, written.as_ref());
            let reply = beside.reply.unwrap_or_else(reply);
            let verdict = RememberedOutcome::Committed { seq, version: committed.version, state: committed.state };
            self.dedup.remember(token, reply, verdict, at, &self.pending);
        }
        let finish = if committed.expand.is_empty() { AttemptEnd::Completed } else { AttemptEnd::Continued(None) };
        let branch = self.finish(&committed.by, at, finish)?;
        let of = is_of_element.then(|| self.hasher.document(&bound.to_value()));
        let heard = match is_idle {
            true if bound.is_empty() => AttemptOutcome::NoOp,
            true => AttemptOutcome::Unchanged,
            false => AttemptOutcome::Commit { written: written.unwrap_or(committed.state), binding: of },
        };
        self.breaker.record_outcome(&self.plan.blueprint.circuit, branch.as_ref(), heard);
        self.clear_feedback(&committed.by, &bound);
        Ok(())
    }

    /// Returns the bindings of the invocation behind a proposal.
    fn bindings_of(&self, by: &Author) -> Bindings {
        let open = by.attempt.as_ref().and_then(|attempt| self.scheduler.open().get(&attempt.invocation));
        open.map(|open| self.plan.bound_of(&open.queued)).unwrap_or_default()
    }

    /// Returns the place that the trigger of a proposal's invocation binds.
    fn bound_element(&self, by: &Author) -> Option<PointerBuf> {
        let open = self.scheduler.open().get(&by.attempt.as_ref()?.invocation)?;
        self.plan.element(&open.queued.branch, &open.queued.trigger)
    }

    /// Drops the feedback and reservations kept for an author, since its proposal succeeded.
    fn clear_feedback(&mut self, by: &Author, bound: &Bindings) {
        if let Some(edit) = &by.edit {
            edit.attempt.iter().for_each(|attempt| self.reservations.release(attempt.invocation));
            return;
        }
        if let Some(recent) = self.feedback.get_mut(&by.worker) {
            recent.retain(|(_, shown)| !feedback::has_bindings(shown, bound));
            if recent.is_empty() {
                self.feedback.remove(&by.worker);
            }
        }
    }

    fn apply_rejection(
        &mut self,
        seq: Seq,
        at: Timestamp,
        rejected: &Rejected,
        reply: Option<Digest>,
    ) -> Result<(), String> {
        if let Some(token) = dedup_key_of_proposal(&rejected.by) {
            let verdict = RememberedOutcome::Rejected { seq, stage: rejected.stage, code: rejected.code };
            let reply = reply.unwrap_or_else(|| digest_of_rejected(&self.hasher, self.format, rejected));
            self.dedup.remember(token, reply, verdict, at, &self.pending);
        }
        if let Some(attempt) = rejected.by.attempt.as_ref().filter(|_| self.format >= record::SINCE_ADMISSION) {
            self.scheduler.record_rejection(attempt.invocation);
        }
        let is_conflict = rejected.stage == Stage::Freshness;
        if let (true, Some(attempt)) = (is_conflict, &rejected.by.attempt) {
            let reserved = rejected.rejection.violations.iter().filter(|violation| violation.code == Code::Reserved);
            let awaits = reserved.filter_map(|violation| PointerBuf::parse(violation.pointer.clone()).ok()).collect();
            self.scheduler.record_conflict(attempt.invocation, awaits);
        }
        let finish = if rejected.is_final { AttemptEnd::GivenUp } else { AttemptEnd::AttemptOnly };
        let bound = self.bindings_of(&rejected.by);
        let branch = self.finish(&rejected.by, at, finish)?;
        let is_final = rejected.is_final;
        // Of bound invocations only those given up count, because each concerns another element.
        let is_tried_again = !bound.is_empty() && !is_final;
        let heard = match is_conflict || is_tried_again {
            true => AttemptOutcome::Conflict { is_final },
            false => AttemptOutcome::Rejection { is_final },
        };
        self.breaker.record_outcome(&self.plan.blueprint.circuit, branch.as_ref(), heard);
        // The author of an edit already received the rejection as a response.
        if rejected.by.edit.is_none() && self.plan.workers.contains_key(&rejected.by.worker) {
            let recent: &mut VecDeque<_> = self.feedback.entry(rejected.by.worker.clone()).or_default();
            recent.push_back((seq, feedback::for_author(rejected, &bound)));
            let of_same = |(_, (_, shown)): &(usize, &(Seq, Value))| feedback::has_bindings(shown, &bound);
            let known: Vec<usize> = recent.iter().enumerate().filter(of_same).map(|(at, _)| at).collect();
            if known.len() > FEEDBACK_MAX {
                recent.remove(known[0]);
            }
            while recent.len() > FEEDBACK_PER_WORKER_MAX {
                recent.pop_front();
            }
        }
        Ok(())
    }

    /// Ends an attempt, and its invocation if the outcome says so; returns the branch.
    fn finish(&mut self, by: &Author, at: Timestamp, finish: AttemptEnd) -> Result<Option<Branch>, String> {
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

    /// Returns the fingerprint that identifies a retried proposal, from its patch or the reply behind the patch.
    fn fingerprint(
        &self,
        patch: &Value,
        intent: Option<&str>,
        expand: &[ExpandRequest],
        written: Option<&String>,
    ) -> Digest {
        fingerprint((&self.hasher, self.format), patch, intent, expand, written)
    }

    /// Closes an invocation without an outcome.
    fn abandon(&mut self, invocation: InvocationId, at: Timestamp) {
        if let Some(queued) = self.scheduler.queue().iter().find(|queued| queued.invocation == invocation) {
            self.give_up(queued.clone());
        }
        if let Some(open) = self.scheduler.close(invocation, false) {
            self.settle(&open, None, at);
            self.give_up(open.queued);
        }
    }

    /// Keeps an invocation that changed nothing, if its breaker counts such invocations.
    fn keep_ineffective(&mut self, queued: QueuedInvocation, is_pass: bool) {
        let circuit = &self.plan.blueprint.circuit;
        let limit = match (is_pass, &circuit.passes) {
            (false, _) => circuit.no_ops.limit,
            (true, Some(passes)) => passes.limit,
            (true, None) => return,
        };
        // Bounds the memory that external input can take.
        if queued.value.as_ref().is_some_and(|value| size(value) > KEPT_VALUE_MAX) {
            return;
        }
        let of_branch = self.ineffective.entry(queued.branch.clone()).or_default();
        let streak = if is_pass { &mut of_branch.passes } else { &mut of_branch.no_ops };
        streak.push_back(queued);
        while streak.len() > (limit as usize).min(INEFFECTIVE_MAX) {
            streak.pop_front();
        }
    }

    fn abandon_beyond_limit(&mut self, invocation: InvocationId) {
        if let Some(queued) = self.scheduler.queue().iter().find(|queued| queued.invocation == invocation).cloned() {
            self.scheduler.close(invocation, false);
            self.give_up(QueuedInvocation { is_beyond_limit: true, ..queued });
        }
    }

    /// Records the rule of a given-up invocation that is not kept.
    fn forget(&mut self, rule: Option<RuleName>) {
        if self.format >= record::SINCE_BINDINGS {
            self.forgotten_rules.extend(rule);
        }
    }

    /// Keeps a given-up invocation for a retry by an operator. At the limit it evicts the oldest beyond its worker's
    /// limit, else the oldest.
    fn give_up(&mut self, queued: QueuedInvocation) {
        if self.given_up.len() >= GIVEN_UP_MAX {
            let oldest = self.given_up.iter().position(|queued| queued.is_beyond_limit).unwrap_or(0);
            let removed = self.given_up.remove(oldest).filter(|queued| !queued.is_ineffective);
            self.forget(removed.and_then(|queued| queued.branch.rule));
        }
        self.given_up.push_back(queued);
    }

    /// Builds the reservation of a call under way.
    pub(super) fn reservation_of<'a>(&self, open: &'a OpenInvocation) -> CallReservation<'a> {
        let tokens = (open.reserved, open.reply_tokens);
        call_reservation(&self.plan, &open.queued.branch.worker, tokens, open.price.as_ref())
    }

    fn settle(&mut self, open: &OpenInvocation, usage: Option<Usage>, at: Timestamp) {
        // An attempt that has ended was settled then.
        if open.calling {
            let held = self.reservation_of(open);
            self.ledger.settle(&open.queued.branch, held, usage, at.ms_since(open.since));
        }
    }

    /// Reopens a board whose end is not final.
    fn reopen(&mut self) {
        if self.ended.is_some_and(|ended| !ended.is_final()) {
            self.ended = None;
        }
    }
}

/// Returns the fingerprint that identifies a retry of a rejected proposal.
fn digest_of_rejected(hasher: &Hasher, format: u32, rejected: &Rejected) -> Digest {
    match &rejected.elided {
        Some(elided) => elided.fingerprint,
        None => {
            let text = rejected.written.as_ref().unwrap_or(&rejected.reply);
            ReplyBody::Text(text.clone()).digest(hasher, format)
        }
    }
}

/// Returns the fingerprint that identifies a retried proposal or request, from its record; `None` for other records.
pub(crate) fn reply_digest(hasher: &Hasher, format: u32, body: &Body) -> Option<Digest> {
    let proposed = |patch, intent: &Option<String>, expand: &[ExpandRequest], written: &Option<String>| {
        fingerprint((hasher, format), patch, intent.as_deref(), expand, written.as_ref())
    };
    match body {
        Body::Committed(it) => Some(proposed(&it.patch, &it.intent, &it.expand, &it.written)),
        Body::NoOp(it) => Some(fingerprint_of_no_op((hasher, format), it)),
        Body::Expanded(it) => Some(proposed(&it.patch, &it.intent, &it.expand, &it.written)),
        Body::Approval(it) if it.clarify.is_some() => Some(it.digest),
        Body::Approval(it) => Some(proposed(&it.patch, &it.intent, &it.expand, &it.written)),
        Body::Rejected(it) => Some(digest_of_rejected(hasher, format, it)),
        Body::Signal(_) | Body::Paused(_) | Body::Resumed(_) | Body::Retried(_) => Some(request_digest(hasher, body)),
        _ => None,
    }
}

fn fingerprint(
    (hasher, format): (&Hasher, u32),
    patch: &Value,
    intent: Option<&str>,
    expand: &[ExpandRequest],
    written: Option<&String>,
) -> Digest {
    match written {
        Some(written) => ReplyBody::Text(written.clone()).digest(hasher, format),
        None => pipeline::fingerprint(hasher, patch, intent, expand),
    }
}

fn fingerprint_of_no_op((hasher, format): (&Hasher, u32), no_op: &NoOp) -> Digest {
    let NoOp { patch, intent, written, pass, .. } = no_op;
    match (written, pass) {
        (None, Some(pass)) => pipeline::pass_fingerprint(hasher, intent.as_deref(), pass),
        (written, _) => fingerprint((hasher, format), patch, intent.as_deref(), &[], written.as_ref()),
    }
}

/// Parses the JSON Pointers of a record.
fn pointers(texts: &[String]) -> Result<Vec<PointerBuf>, String> {
    let parse = |text: &String| PointerBuf::parse(text.clone()).map_err(|error| error.to_string());
    texts.iter().map(parse).collect()
}

/// Returns the token that identifies a retry of a proposal.
fn dedup_key_of_proposal(by: &Author) -> Option<IdempotencyKey> {
    match (&by.attempt, &by.token) {
        (None, Some(token)) if by.edit.is_some() => Some(edit_dedup_key(token)),
        (Some(attempt), _) => Some(IdempotencyKey::for_attempt(attempt.invocation, attempt.number)),
        (None, Some(token)) => Some(external_dedup_key(&by.worker, token)),
        (None, None) => None,
    }
}

/// Returns the token of an external request other than a proposal. No worker's name is empty, so it collides with no
/// worker's token.
pub(super) fn dedup_key_of_request(body: &Body) -> Option<IdempotencyKey> {
    let token = match body {
        Body::Signal(signal) => signal.token.as_ref(),
        Body::Paused(steered) | Body::Resumed(steered) => steered.token.as_ref(),
        Body::Retried(retried) => retried.token.as_ref(),
        _ => None,
    };
    token.map(request_dedup_key)
}

/// Returns the key under which a request's token is remembered, separate from those of workers.
pub(super) fn request_dedup_key(token: &IdempotencyKey) -> IdempotencyKey {
    external_dedup_key(&WorkerName::from(""), token)
}

/// Returns the digest of a request's content.
pub(super) fn request_digest(hasher: &Hasher, body: &Body) -> Digest {
    match body {
        Body::Signal(signal) => hasher.commitment(0, &signal.name, &signal.value),
        Body::Retried(retried) => {
            let asked = record::Retried { token: None, ..retried.clone() };
            let asked = serde_json::to_value(asked).expect("names and numbers are JSON");
            hasher.commitment(2, body.kind().as_str(), &asked)
        }
        // The separate number keeps a signal of that name from matching.
        other => hasher.commitment(1, other.kind().as_str(), &Value::Null),
    }
}

/// Returns the key of an edit's token, separate from those of workers and requests. It omits the author, so that a
/// retry is recognised after the attempt has ended.
pub(super) fn edit_dedup_key(token: &IdempotencyKey) -> IdempotencyKey {
    external_dedup_key(&WorkerName::from("$edit"), token)
}

/// Returns the key of an external token, separate from those of attempts and other workers.
pub(super) fn external_dedup_key(worker: &WorkerName, token: &IdempotencyKey) -> IdempotencyKey {
    IdempotencyKey::from(format!("{worker}/{token}"))
}

/// Outcome of an attempt for its invocation.
enum AttemptEnd {
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
pub(super) fn call_reservation<'a>(
    plan: &Plan,
    worker: &WorkerName,
    (tokens, reply): (u64, Option<u64>),
    price: Option<&'a Price>,
) -> CallReservation<'a> {
    let of_seat = || plan.workers.get(worker).map_or(0, |seat| u64::from(seat.worker.limits.reply_tokens));
    CallReservation { tokens, reply: reply.unwrap_or_else(of_seat), price }
}
