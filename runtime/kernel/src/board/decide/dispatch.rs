//! Scheduling and dispatch, budget checks, and the end of a quiescent board.

mod at_rest;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::StepBuilder;
use crate::admission::Admission;
use crate::blueprint::{Action, AgentKind, Freshness, Unit};
use crate::board::apply::{GIVEN_UP_MAX, KEPT_VALUE_MAX, call_reservation};
use crate::board::{Blob, Call};
use crate::breaker::{Branch, BreakerTransition, Reason};
use crate::expand_request::ExpandRequest;
use crate::expr::Allowance;
use crate::id::{IdempotencyKey, InvocationId, RuleName, Timestamp};
use crate::invariant;
use crate::json::size;
use crate::ledger::{BudgetExceeded, cap_tokens};
use crate::mutants::{self, Mutant};
use crate::record::{
    Body, Budget, Cause, End, Ended, Invoked, Resource, SINCE_BOUNDED_STEPS, SINCE_FULL_RETRY, SINCE_JOURNAL_LIMIT,
    Scheduled, Skipped, Trigger,
};
use crate::rules::{self, Activation, TriggerEvent};
use crate::scheduler::{self, DelayedInvocation, NextAttempt};
use crate::tree::{ChangesSince, Revision};
use crate::view;

/// Maximum number of commits, even if the blueprint allows more: revision stamps cover no more.
const COMMITS_MAX: u64 = Revision::MAX as u64 - 1;

impl StepBuilder<'_> {
    /// Returns true until the board ends, and while it is stopped: a retry then finds what is queued.
    fn may_queue(&self) -> bool {
        let is_stopped = |ended: Ended| ended.end == End::Stopped && self.board.format >= SINCE_FULL_RETRY;
        self.ending.is_none_or(is_stopped)
    }

    /// Queues the invocations that an occasion triggers.
    pub(super) fn schedule(&mut self, occasion: &TriggerEvent<'_>) {
        if !self.may_queue() {
            return;
        }
        let board = &*self.board;
        if matches!(occasion, TriggerEvent::Commit { .. }) {
            // Checks joins again that undecided rules, or invocations about removed places, hold up.
            let undecided = board.undecided.iter().map(|undecided| &undecided.rule);
            let gone = board.given_up.iter().filter(|queued| self.is_obsolete(queued));
            let rules: BTreeSet<&RuleName> =
                undecided.chain(gone.filter_map(|queued| queued.branch.rule.as_ref())).collect();
            self.waiting_rules.extend(rules.into_iter().flat_map(|rule| board.plan.joined_on(rule)));
        }
        let wishes = rules::activations(&board.plan, &board.scheduler, board.state.root(), occasion);
        for wish in wishes {
            match wish {
                Activation::Invoke { rule, worker, trigger, delay } => {
                    let (branch, due) =
                        (Branch { rule: Some(rule), worker }, (delay > 0).then(|| self.at.plus_ms(delay)));
                    if trigger != Trigger::Idle || !self.has_queued(&branch) {
                        self.enqueue(branch, trigger, due);
                    }
                }
                Activation::Skip { .. } if mutants::is_active(Mutant::DropSkippedRecord) => {}
                Activation::Skip { rule, worker, trigger, message } => {
                    self.push(Body::Skipped(Skipped { rule: Some(rule), invocation: None, message, worker, trigger }));
                }
            }
        }
    }

    /// Returns true if an invocation of the branch is queued, behind others or for its breaker. An `idle` rule does not
    /// fire for such a branch: while the branch is stopped, it would fire without end within one step.
    fn has_queued(&self, branch: &Branch) -> bool {
        self.board.format >= SINCE_FULL_RETRY
            && self.board.scheduler.queue().iter().any(|queued| queued.branch == *branch)
    }

    /// Evaluates rules with an elapsed delay again, for the invocations just queued.
    pub(super) fn recheck_delayed(&mut self, ripe: Vec<DelayedInvocation>) {
        let mut allowance = Allowance::new();
        for DelayedInvocation { queued, .. } in ripe {
            let board = &*self.board;
            let by = match &queued.trigger {
                Trigger::Event { version, .. } => board.commit_of(*version).map(|(_, worker)| worker),
                _ => None,
            };
            let wants = rules::still_matches(&board.plan, board.state.root(), &queued, by.as_ref(), &mut allowance);
            let (message, is_undecided) = match wants {
                Ok(true) => {
                    self.waiting_rules.extend(self.board.plan.waiting_for(&queued.branch));
                    continue;
                }
                Ok(false) => ("its condition does not hold any more".to_owned(), false),
                Err(message) => (message, true),
            };
            let scheduler::QueuedInvocation { invocation, branch, trigger, .. } = queued;
            let can_be_asked = is_undecided && rules::can_reevaluate(&self.board.plan, &trigger);
            let (worker, trigger) = if can_be_asked { (Some(branch.worker), Some(trigger)) } else { (None, None) };
            let (rule, invocation) = (branch.rule, Some(invocation));
            self.push(Body::Skipped(Skipped { rule, invocation, message, worker, trigger }));
        }
    }

    pub(super) fn enqueue(&mut self, branch: Branch, trigger: Trigger, due: Option<Timestamp>) {
        let seat = self.board.plan.workers.get(&branch.worker);
        let limit = seat.map_or(0, |seat| seat.worker.limits.invocations);
        if self.board.scheduler.scheduled_for(&branch.worker) < limit {
            if due.is_none() {
                self.waiting_rules.extend(self.board.plan.waiting_for(&branch));
            }
            self.push_scheduled(&branch, trigger, due);
            return;
        }
        // Nothing of the rule is under way for this branch, and no other record says so.
        if branch.rule.as_ref().is_some_and(|rule| self.exhausted_rules.insert(rule.clone())) {
            self.waiting_rules.extend(self.board.plan.waiting_for(&branch));
        }
        // Keeps the invocation for a retry. The worker's earlier invocations still run.
        let is_kept = self.board.format >= SINCE_FULL_RETRY
            && match &trigger {
                // A schedule triggers again.
                Trigger::Every { .. } => false,
                // Bounds the memory that external input can take.
                Trigger::Signal { .. } => self.board.signal.as_ref().is_none_or(|value| size(value) <= KEPT_VALUE_MAX),
                _ => true,
            };
        // Beyond the limit, one record per rule reports it, so that a join that waits for the rule does not fire.
        let is_full = self.board.format >= SINCE_BOUNDED_STEPS && self.board.given_up.len() >= GIVEN_UP_MAX;
        let is_forgotten = |rule: &RuleName| self.board.forgotten_rules.contains(rule);
        let is_reported = !is_full || branch.rule.as_ref().is_none_or(is_forgotten);
        let given_up = (is_kept && !is_full).then(|| self.push_scheduled(&branch, trigger, None));
        if given_up.is_some() || !is_reported || !self.board.exhausted.contains(&branch.worker) {
            let resource = Resource::Invocations;
            let short = BudgetExceeded { resource, needed: 1, left: 0, may_be_freed: false };
            self.record_budget_exceeded(&branch, (given_up, None), short);
        }
    }

    fn push_scheduled(&mut self, branch: &Branch, trigger: Trigger, due: Option<Timestamp>) -> InvocationId {
        let invocation = self.board.scheduler.next_id();
        self.push(Body::Scheduled(Scheduled { due, ..self.scheduled(branch.clone(), trigger) }));
        invocation
    }

    /// Returns the record of the next invocation.
    pub(super) fn scheduled(&self, Branch { rule, worker }: Branch, trigger: Trigger) -> Scheduled {
        let invocation = self.board.scheduler.next_id();
        Scheduled { invocation, rule, worker, follows: None, retries: None, trigger, due: None, expand: Vec::new() }
    }

    /// Returns the queue entry of an open invocation, before the record that closes it.
    pub(super) fn open_entry(&self, invocation: Option<InvocationId>) -> Option<scheduler::QueuedInvocation> {
        Some(self.board.scheduler.open().get(&invocation?)?.queued.clone())
    }

    /// Queues the successor of an invocation, with the places that its worker asked to see.
    pub(super) fn enqueue_follow_up(&mut self, asked: Option<scheduler::QueuedInvocation>, expand: &[ExpandRequest]) {
        let Some(asked) = asked.filter(|_| self.may_queue()) else { return };
        let (follows, expand) = (Some(asked.invocation), asked.expansion.merged_with(expand));
        self.push(Body::Scheduled(Scheduled { follows, expand, ..self.scheduled(asked.branch, asked.trigger) }));
    }

    /// Records that a budget does not suffice and applies the circuit's action. Returns true if the invocation is
    /// retried with its branch's smaller view.
    pub(super) fn record_budget_exceeded(
        &mut self,
        branch: &Branch,
        (invocation, admitted): (Option<InvocationId>, Option<Admission>),
        short: BudgetExceeded,
    ) -> bool {
        let BudgetExceeded { resource, needed, left, .. } = short;
        let (rule, worker) = (branch.rule.clone(), branch.worker.clone());
        let is_known = resource == Resource::Invocations && self.board.exhausted.contains(&worker);
        let action = match &self.board.plan.blueprint.circuit.budget.then {
            // A worker with an exhausted budget of its own cannot be triggered about it.
            Action::Wake(woken) if *woken == branch.worker => Action::StopBranch,
            action => action.clone(),
        };
        let due = self.board.breaker.transition_for(branch, Reason::Budget, action.clone());
        let is_tried_again = self.board.plan.has_ranges()
            && due.change == BreakerTransition::Reduced
            && resource != Resource::Invocations
            && admitted.is_some();
        self.push(Body::Budget(Budget { rule, worker, invocation, resource, needed, left, admitted, is_tried_again }));
        let stops_nothing_under_way = matches!(action, Action::StopBranch | Action::ReduceView);
        if is_known || (resource == Resource::Invocations && stops_nothing_under_way) {
            // The limit itself already keeps out further invocations.
            return false;
        }
        self.trip(branch, due);
        is_tried_again
    }

    /// Ends the board if its `done` condition holds. `since` is a version at which it did not hold, if any.
    pub(super) fn check_done(&mut self, since: Option<Revision>) {
        let plan = Arc::clone(&self.board.plan);
        let Some(done) = &plan.done else { return };
        let state = self.board.state.clone();
        let root = state.root();
        let now = since.map_or(ChangesSince::all_changed(root), |since| ChangesSince::new(root, 0, since));
        if !invariant::may_be_done(done, &now) {
            return;
        }
        let request = plan.request_in(root);
        let variables = [("request", request.into()), ("state", root.into())];
        match done.evaluate(&variables.into_iter().collect()) {
            Ok(true) => self.ending = Some(Ended { end: End::Done, cause: Cause::Done }),
            Ok(false) => {}
            Err(error) => {
                let message = error.to_string();
                self.push(Body::Skipped(Skipped { message, ..Skipped::default() }));
            }
        }
    }

    /// Runs what follows every input that changed the board: limits, dispatches, the end, the next alarm.
    pub(super) fn advance(&mut self) {
        // An ended board ends again only if its end was not final and a final one is requested.
        if self.board.ended.is_some() && self.ending.is_none() {
            return;
        }
        let limits = self.board.limits();
        let (version, edits) = (self.board.version().0, self.board.files.edits);
        let causes = [
            (version.saturating_sub(edits) >= limits.commits || version >= COMMITS_MAX, Cause::Commits),
            (edits >= limits.edits, Cause::Edits),
            (self.board.running_ms >= limits.wall_ms, Cause::Wall),
            (self.board.journal_bytes >= limits.journal, Cause::Journal),
        ];
        let cause = causes.into_iter().find_map(|(is_reached, cause)| is_reached.then_some(cause));
        self.ending = self.ending.or(cause.map(|cause| Ended { end: End::Stopped, cause }));
        self.dispatch_all();
        while self.may_queue() && self.schedule_rested() {
            self.dispatch_all();
        }
        if let Some(ended) = self.ending.or_else(|| self.quiescent_end()) {
            let open: Vec<InvocationId> = self.board.scheduler.open().keys().copied().collect();
            open.into_iter().for_each(|invocation| self.cancel(invocation));
            self.push(Body::Ended(ended));
            self.step.effects.ended = Some(ended);
        }
        self.step.effects.wake_at = self.board.wake_at();
        self.request_admissions();
    }

    /// Dispatches invocations until none may start.
    fn dispatch_all(&mut self) {
        while self.ending.is_none() && !self.board.paused {
            let Some(next) = self.board.next() else { break };
            if !self.dispatch(next, None) {
                break;
            }
        }
    }

    /// Returns the end of a board that nothing moves any more. A board without rules is driven from outside and has no
    /// such end. Neither has one with a pending schedule or delay, or with calls that wait for admission.
    pub(super) fn quiescent_end(&self) -> Option<Ended> {
        let board = &*self.board;
        let is_idle = board.scheduler.open().is_empty() && board.pending.is_empty();
        let is_idle = is_idle || (mutants::is_active(Mutant::EndWhileAwaitingPerson) && board.waits_for_persons());
        let idle = board.ended.is_none() && !board.paused && is_idle;
        let waits = !board.scheduler.delayed().is_empty() || board.scheduler.due(&board.plan).next().is_some();
        if !idle || board.plan.rules.is_empty() || waits || !board.admissible_attempts().is_empty() {
            return None;
        }
        // Any queued invocation waits for a breaker, and without outcomes no cooldown passes.
        let stopped = board.breaker.any_open() || !board.scheduler.queue().is_empty();
        Some(if board.budget_exceeded {
            Ended { end: End::Stopped, cause: Cause::Exhausted }
        } else if stopped {
            Ended { end: End::Stopped, cause: Cause::Breaker }
        } else {
            let cause = if board.gave_up || !board.undecided().is_empty() { Cause::GaveUp } else { Cause::NothingToDo };
            Ended { end: End::Quiescent, cause }
        })
    }

    /// Starts an attempt; returns false if it waits for budget that calls under way may free.
    pub(super) fn dispatch(&mut self, next: NextAttempt, admitted: Option<Admission>) -> bool {
        let is_affordable = self.board.check_nested_budget(&next);
        let NextAttempt { queued, attempt } = next;
        let branch = queued.branch.clone();
        let board = &*self.board;
        let mut call = board.compile_call(&queued);
        let worker = Arc::clone(&call.worker_plan.worker);
        let price = admitted.as_ref().and_then(|admission| admission.price.as_ref());
        let afford = |reply: Option<u64>| {
            let tokens = match worker.agent {
                AgentKind::Llm => {
                    let reply = reply.unwrap_or(u64::from(worker.limits.reply_tokens));
                    cap_tokens(call.prompt.estimated_tokens().saturating_add(reply))
                }
                _ => 0,
            };
            let needed = call_reservation(&board.plan, &branch.worker, (tokens, reply), price);
            (tokens, board.ledger.check_budget(&board.call_limits(&branch), &branch, needed))
        };
        let named = admitted.as_ref().and_then(|admission| admission.reply_tokens);
        let (mut reserved, mut afforded) = afford(named);
        let mut is_plain = false;
        let is_larger = named.is_some_and(|reply| reply > u64::from(worker.limits.reply_tokens));
        if is_larger && board.format >= SINCE_FULL_RETRY && afforded.is_err_and(|short| !short.may_be_freed) {
            // A reply with no more room than the previous one is better than none.
            (reserved, afforded) = afford(None);
            is_plain = true;
        }
        let admitted = admitted
            .map(|admission| Admission { reply_tokens: admission.reply_tokens.filter(|_| !is_plain), ..admission });
        match afforded.and(is_affordable) {
            Ok(()) => {}
            // Settled calls may free enough, so nothing is decided yet.
            Err(short) if short.may_be_freed => return false,
            Err(short) => {
                let of = (Some(queued.invocation), admitted.clone());
                return !self.record_budget_exceeded(&branch, of, short)
                    || self.dispatch(NextAttempt { queued, attempt }, admitted);
            }
        }
        let occurrence = board.scheduler.attempts_of(&branch.worker);
        let timeout_ms = worker.limits.timeout.as_ms();
        let (view, stored) = (&call.view, call.prompt.stored(board.format));
        let invoked = Invoked {
            invocation: queued.invocation,
            attempt,
            worker: branch.worker.clone(),
            cause: queued.cause,
            base: board.version(),
            budget: call.budget,
            unit: worker.view.unit,
            tokenizer: (worker.view.unit == Unit::Tokens).then(|| view::TOKENIZER.to_owned()),
            compiler: view::compiler_version(board.plan.journal_format),
            feedback: std::mem::take(&mut call.feedback),
            view: board.text_hash(&view.text),
            prompt: board.text_hash(&stored),
            view_bytes: (board.format >= SINCE_JOURNAL_LIMIT).then_some(view.text.len() as u64),
            reserved,
            deadline: self.at.plus_ms(timeout_ms),
            reads: view.reads.clone(),
            members: match worker.freshness {
                Freshness::Members => view.members.clone(),
                _ => Vec::new(),
            },
            admitted: admitted.clone(),
            is_unspent: !view.finds_room,
            // A breaker's reduced budget leaves out parts on purpose.
            unshown: match board.plan.has_ranges() && call.budget == worker.view_budget() {
                true => view.unshown.clone(),
                false => Vec::new(),
            },
        };
        let hash = view.hash();
        self.step.blobs.push(Blob { hash: invoked.view, text: std::mem::take(&mut call.view.text).into() });
        self.step.blobs.push(Blob { hash: invoked.prompt, text: stored.into() });
        self.push(Body::Invoked(invoked));
        let open = &self.board.scheduler.open()[&queued.invocation];
        let (basis, earlier_attempts) = (Arc::clone(&open.basis), open.past.clone());
        let context = call.context(&self.board.plan, basis, Some(&queued)).expect("a seat was invoked");
        let model = admitted.as_ref().and_then(|admission| admission.model.as_deref());
        let model = model.or_else(|| self.board.plan.blueprint.model_of(&branch.worker));
        self.step.effects.calls.push(Call {
            board: self.board.id.clone(),
            parent: self.board.parent.clone(),
            invocation: queued.invocation,
            cause: queued.cause,
            attempt,
            idempotency_key: IdempotencyKey::for_attempt(queued.invocation, attempt),
            model: model.map(str::to_owned),
            worker: branch.worker,
            view_hash: hash,
            prompt: Arc::new(call.prompt),
            context: Arc::new(context),
            occurrence,
            earlier_attempts,
            timeout_ms,
            admitted,
        });
        true
    }
}
