//! Admission of a board's calls ([`crate::admission`]).

use std::collections::BTreeSet;

use super::{Board, Input, Step};
use crate::admission::{self, AdmissionGate, MoneyLeft, WaitingCall};
use crate::blueprint::AgentKind;
use crate::breaker::Branch;
use crate::id::{RuleName, Timestamp, WorkerName};
use crate::ledger::BudgetExceeded;
use crate::mutants::{self, Mutant};
use crate::plan::{Rule, WorkerPlan};
use crate::record::{PauseCause, Resource, SINCE_ADMISSION};
use crate::scheduler::{DispatchConditions, NextAttempt, OpenInvocation, QueuedInvocation, Slots};

impl Board {
    /// Returns true if the worker's calls need admission: those of language models, since the journal format with
    /// admission.
    pub(super) fn is_gated(&self, worker: &WorkerName) -> bool {
        self.format >= SINCE_ADMISSION
            && self.plan.workers.get(worker).is_some_and(|seat| seat.worker.agent == AgentKind::Llm)
    }

    /// Returns true if calls of the board may need admission: those of language models and of nested boards.
    pub(super) fn has_gated_calls(&self) -> bool {
        let may_wait = |seat: &WorkerPlan| matches!(seat.worker.agent, AgentKind::Llm | AgentKind::Board);
        self.format >= SINCE_ADMISSION && self.plan.workers.values().any(|seat| may_wait(seat))
    }

    /// Returns the calls that may be made once a gate admits them, in the order in which to ask.
    pub fn awaiting_admission(&self) -> Vec<WaitingCall> {
        if self.paused || self.ended.is_some() {
            return Vec::new();
        }
        let waiting = |next: NextAttempt| {
            let branch = &next.queued.branch;
            let seat = &self.plan.workers[&branch.worker].worker;
            let before = self.scheduler.open().get(&next.queued.invocation);
            let reserved = before.map(|open| open.reserved).filter(|reserved| *reserved > 0);
            // A complete view is usually no larger than the document plus the fixed parts.
            let fixed = u64::from(self.plan.workers[&branch.worker].fixed.minimum());
            let chars = u64::from(seat.view_chars()).min(self.state.root().bytes() + fixed);
            let estimated = (chars / 4).saturating_add(u64::from(seat.limits.reply_tokens));
            let wait = before.and_then(|open| open.deferrals.as_ref()?.waiting.as_ref());
            WaitingCall {
                invocation: next.queued.invocation,
                attempt: next.attempt,
                worker: branch.worker.clone(),
                agent: seat.agent.clone(),
                model: self.plan.blueprint.model_of(&branch.worker).map(str::to_owned),
                tokens: reserved.unwrap_or(estimated),
                reply_tokens: seat.limits.reply_tokens,
                past: before.map(|open| open.past.clone()).unwrap_or_default(),
                wait: wait.cloned(),
                patience_ms: self.plan.blueprint.limits.patience.map(|patience| patience.as_ms()),
                money: None,
            }
        };
        self.admissible_attempts().into_iter().map(waiting).collect()
    }

    /// Returns an error if no money is left for a nested board, which reserves nothing, to begin.
    pub(super) fn check_nested_budget(&self, next: &NextAttempt) -> Result<(), BudgetExceeded> {
        let worker = &next.queued.branch.worker;
        let left = self.money_of(worker);
        match left.filter(|_| next.attempt == 1 && self.is_nested(worker)) {
            Some((_, 0)) => {
                Err(BudgetExceeded { resource: Resource::BoardMoney, needed: 1, left: 0, may_be_freed: false })
            }
            _ => Ok(()),
        }
    }

    fn is_nested(&self, worker: &WorkerName) -> bool {
        self.plan.workers.get(worker).is_some_and(|seat| seat.worker.agent == AgentKind::Board)
    }

    /// Returns true if no further nested board may begin now. Either those that wait for their providers fill all
    /// places, or all money is reserved.
    fn holds_back_nested(&self, worker: &WorkerName) -> bool {
        if !self.is_nested(worker) {
            return false;
        }
        let open = || self.scheduler.open().values().filter(|open| self.is_nested(&open.queued.branch.worker));
        let of_worker = || open().filter(|open| open.queued.branch.worker == *worker);
        let at_once = self.plan.workers.get(worker).and_then(|seat| seat.worker.limits.max_concurrency());
        let is_full = open().count() >= self.plan.blueprint.concurrency as usize
            || at_once.is_some_and(|limit| of_worker().count() >= limit as usize);
        let is_reserved = || {
            let left = self.money_of(worker);
            left.is_some_and(|(left, unspent)| left == 0 && unspent > 0)
        };
        (is_full && open().any(|open| open.waits_for_provider())) || is_reserved()
    }

    /// Adds the money that is left for the call. Compiles the call's view if money is limited.
    #[must_use]
    pub fn with_money(&self, waiting: &WaitingCall) -> WaitingCall {
        WaitingCall { money: self.money_left(waiting), ..waiting.clone() }
    }

    /// Returns the money left for the call, neither spent nor reserved, in 10⁻⁹ of the currency; `None` without a
    /// limit.
    pub fn unreserved_money(&self, waiting: &WaitingCall) -> Option<u64> {
        self.money_of(&waiting.worker).map(|(left, _)| left)
    }

    /// Returns a worker's money as (neither spent nor reserved, not spent); `None` without a limit.
    pub(super) fn money_of(&self, worker: &WorkerName) -> Option<(u64, u64)> {
        self.ledger.money_left(&self.worker_call_limits(worker), worker)
    }

    fn money_left(&self, waiting: &WaitingCall) -> Option<MoneyLeft> {
        let WaitingCall { worker, invocation, .. } = waiting;
        let (left, unspent) = self.money_of(worker)?;
        let is_it = |queued: &&QueuedInvocation| queued.invocation == *invocation;
        let open = self.scheduler.open().get(invocation).map(|open| &open.queued);
        let queued = open.or_else(|| self.scheduler.queue().iter().find(is_it))?;
        let prompt = self.compile_call(queued).prompt.estimated_tokens();
        Some(MoneyLeft { left, unspent, prompt })
    }

    /// Asks a gate once for each call that a step names, and adds the results to the step. An admission is an input
    /// like any other. If its call is no longer wanted by then, the step does not make it.
    pub fn admit(&mut self, at: Timestamp, step: &mut Step, gate: &mut AdmissionGate<'_>) {
        let mut asked = BTreeSet::new();
        loop {
            let admitted = step.effects.awaiting_admission.iter().flatten().find_map(|waiting| {
                let is_new = asked.insert((waiting.invocation, waiting.attempt));
                let admission = is_new.then(|| gate(self, waiting)).flatten()?;
                Some(Input::Admit { invocation: waiting.invocation, attempt: waiting.attempt, admission })
            });
            let Some(admitted) = admitted else { return };
            step.add(self.step(at, admitted));
        }
    }

    /// Runs a step and makes every possible call at once, for boards without a gate.
    pub fn step_ungated(&mut self, at: Timestamp, input: Input) -> Step {
        let mut step = self.step(at, input);
        self.admit(at, &mut step, &mut admission::admit_all);
        step
    }

    /// Returns the queue entries behind [`Board::awaiting_admission`].
    pub(super) fn admissible_attempts(&self) -> Vec<NextAttempt> {
        if !self.has_gated_calls() {
            return Vec::new();
        }
        self.with_eligible(|places, eligible| self.scheduler.awaiting_admission(places, eligible))
    }

    /// Returns the next invocation to dispatch without admission.
    pub(super) fn next(&self) -> Option<NextAttempt> {
        self.with_eligible(|places, eligible| self.scheduler.next(places, eligible))
    }

    fn with_eligible<T>(&self, choose: impl FnOnce(&Slots<'_>, &DispatchConditions<'_>) -> T) -> T {
        let is_full = |worker: &WorkerName, used: usize| {
            let limit = self.plan.workers.get(worker).and_then(|seat| seat.worker.limits.max_concurrency());
            limit.is_some_and(|limit| used >= limit as usize)
        };
        let is_held_up =
            |open: &OpenInvocation| self.reservations.until(&open.awaits, open.queued.invocation).is_some();
        let waits = |open: &OpenInvocation| {
            let worker = &open.queued.branch.worker;
            (is_held_up(open) && !mutants::is_active(Mutant::IgnoreReservations))
                || is_full(worker, self.scheduler.calling(worker))
        };
        let admits = |branch: &Branch| {
            self.breaker.admits(branch)
                && !is_full(&branch.worker, self.scheduler.occupied_slots(&branch.worker))
                && !self.holds_back_nested(&branch.worker)
        };
        choose(
            &Slots::new(self.plan.blueprint.concurrency, &self.plan.unmetered),
            &DispatchConditions {
                waits: &waits,
                admits: &admits,
                is_gated: &|worker| self.is_gated(worker),
                model: &|worker| self.plan.blueprint.model_of(worker),
            },
        )
    }

    /// Returns true while the board's running time passes. Since the format with admission, that is while a call is
    /// under way; before, while any open invocation did not wait for an approver.
    pub(super) fn is_running(&self) -> bool {
        match self.format >= SINCE_ADMISSION {
            true => !self.paused && self.scheduler.is_calling(),
            false => !self.paused && self.scheduler.open().values().any(|open| open.question.is_none()),
        }
    }

    /// Returns the rules with suspended delays, because an excepted worker waits for its model's provider.
    pub(super) fn suspended_rules(&self) -> BTreeSet<RuleName> {
        let excepting = self.excepting(|_| true);
        if excepting.is_empty() {
            return BTreeSet::new();
        }
        let open = self.scheduler.open().values().filter(|open| open.waits_for_provider());
        let mut waiting: BTreeSet<WorkerName> = open.map(|open| open.queued.branch.worker.clone()).collect();
        // While an operator pauses the board, no call is offered to the gate.
        if !self.paused || self.pause_cause == Some(PauseCause::ProviderUnavailable) {
            waiting.extend(self.admissible_attempts().into_iter().map(|next| next.queued.branch.worker));
        }
        self.excepting(|worker| waiting.contains(worker))
    }

    /// Returns the rules with delayed invocations that except a worker for which `is_such` holds.
    pub(super) fn excepting(&self, is_such: impl Fn(&WorkerName) -> bool) -> BTreeSet<RuleName> {
        let delayed = self.scheduler.delayed();
        let is_delayed =
            |rule: &Rule| delayed.iter().any(|delayed| delayed.queued.branch.rule.as_ref() == Some(&rule.name));
        let excepts = |rule: &&Rule| {
            rule.delay.as_ref().is_some_and(|delay| delay.except_waits_of.iter().any(&is_such)) && is_delayed(rule)
        };
        if delayed.is_empty() {
            return BTreeSet::new();
        }
        self.plan.rules.iter().filter(excepts).map(|rule| rule.name.clone()).collect()
    }

    /// Returns the time at which the board is paused because a provider accepts no request.
    pub(super) fn patience(&self) -> Option<Timestamp> {
        self.scheduler.patience().filter(|_| !self.paused)
    }
}
