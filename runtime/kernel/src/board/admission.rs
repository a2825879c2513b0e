//! Admission of a board's calls ([`crate::admission`]).

use std::collections::BTreeSet;

use super::{Board, Effect, Input, Step};
use crate::admission::{self, Gate, MoneyLeft, Waiting};
use crate::blueprint::AgentKind;
use crate::breaker::Branch;
use crate::id::{RuleName, Timestamp, WorkerName};
use crate::ledger::Shortfall;
use crate::plan::{Rule, Seat};
use crate::planted::{self, Bug};
use crate::record::{ADMISSION, PauseCause, Resource};
use crate::scheduler::{Eligible, Next, Open, Places, Queued};

impl Board {
    /// Returns true if the worker's calls need admission: those of language models, since the journal format with
    /// admission.
    pub(super) fn is_gated(&self, worker: &WorkerName) -> bool {
        self.format >= ADMISSION && self.plan.seats.get(worker).is_some_and(|seat| seat.worker.agent == AgentKind::Llm)
    }

    /// Returns true if calls of the board may need admission: those of language models and of nested boards.
    pub(super) fn has_gate(&self) -> bool {
        let may_wait = |seat: &Seat| matches!(seat.worker.agent, AgentKind::Llm | AgentKind::Board);
        self.format >= ADMISSION && self.plan.seats.values().any(|seat| may_wait(seat))
    }

    /// Returns the calls that may be made once a gate admits them, in the order in which to ask.
    pub fn awaiting_admission(&self) -> Vec<Waiting> {
        if self.paused || self.ended.is_some() {
            return Vec::new();
        }
        let waiting = |next: Next| {
            let branch = &next.queued.branch;
            let seat = &self.plan.seats[&branch.worker].worker;
            let before = self.scheduler.open().get(&next.queued.invocation);
            let reserved = before.map(|open| open.reserved).filter(|reserved| *reserved > 0);
            // A complete view is usually no larger than the document plus the fixed parts.
            let fixed = u64::from(self.plan.seats[&branch.worker].fixed.minimum());
            let chars = u64::from(seat.view_chars()).min(self.state.root().bytes() + fixed);
            let estimated = (chars / 4).saturating_add(u64::from(seat.limits.reply_tokens));
            let wait = before.and_then(|open| open.deferrals.as_ref()?.waiting.as_ref());
            Waiting {
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
        self.awaiting().into_iter().map(waiting).collect()
    }

    /// Returns an error if no money is left for a nested board, which reserves nothing, to begin.
    pub(super) fn afford_inside(&self, next: &Next) -> Result<(), Shortfall> {
        let worker = &next.queued.branch.worker;
        let left = self.money_of(worker);
        match left.filter(|_| next.attempt == 1 && self.is_inside(worker)) {
            Some((_, 0)) => Err(Shortfall { resource: Resource::BoardMoney, needed: 1, left: 0, may_be_freed: false }),
            _ => Ok(()),
        }
    }

    fn is_inside(&self, worker: &WorkerName) -> bool {
        self.plan.seats.get(worker).is_some_and(|seat| seat.worker.agent == AgentKind::Board)
    }

    /// Returns true if no further nested board may begin now. Either those that wait for their providers fill all
    /// places, or all money is reserved.
    fn holds_back_inside(&self, worker: &WorkerName) -> bool {
        if !self.is_inside(worker) {
            return false;
        }
        let open = || self.scheduler.open().values().filter(|open| self.is_inside(&open.queued.branch.worker));
        let of_worker = || open().filter(|open| open.queued.branch.worker == *worker);
        let at_once = self.plan.seats.get(worker).and_then(|seat| seat.worker.limits.at_once());
        let is_full = open().count() >= self.plan.blueprint.concurrency as usize
            || at_once.is_some_and(|limit| of_worker().count() >= limit as usize);
        let is_reserved = || {
            let left = self.money_of(worker);
            left.is_some_and(|(left, unspent)| left == 0 && unspent > 0)
        };
        (is_full && open().any(Open::waits_for_provider)) || is_reserved()
    }

    /// Adds the money that is left for the call. Compiles the call's view if money is limited.
    #[must_use]
    pub fn with_money(&self, waiting: &Waiting) -> Waiting {
        Waiting { money: self.money_left(waiting), ..waiting.clone() }
    }

    /// Returns the money left for the call, neither spent nor reserved, in 10⁻⁹ of the currency; `None` without a
    /// limit.
    pub fn unreserved_money(&self, waiting: &Waiting) -> Option<u64> {
        self.money_of(&waiting.worker).map(|(left, _)| left)
    }

    /// Returns a worker's money as (neither spent nor reserved, not spent); `None` without a limit.
    pub(super) fn money_of(&self, worker: &WorkerName) -> Option<(u64, u64)> {
        self.ledger.money_left(&self.limits_of_worker(worker), worker)
    }

    fn money_left(&self, waiting: &Waiting) -> Option<MoneyLeft> {
        let Waiting { worker, invocation, .. } = waiting;
        let (left, unspent) = self.money_of(worker)?;
        let is_it = |queued: &&Queued| queued.invocation == *invocation;
        let open = self.scheduler.open().get(invocation).map(|open| &open.queued);
        let queued = open.or_else(|| self.scheduler.queue().iter().find(is_it))?;
        let prompt = self.compiled(queued).prompt.estimated_tokens();
        Some(MoneyLeft { left, unspent, prompt })
    }

    /// Asks a gate once for each call that a step names, and adds the results to the step. An admission is an input
    /// like any other. If its call is no longer wanted by then, the step has no [`Effect::Call`] for it.
    pub fn admit(&mut self, at: Timestamp, step: &mut Step, gate: &mut Gate<'_>) {
        let mut asked = BTreeSet::new();
        loop {
            let named = step.effects.iter().rev().find_map(|effect| match effect {
                Effect::Await(waiting) => Some(waiting),
                _ => None,
            });
            let admitted = named.into_iter().flatten().find_map(|waiting| {
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
        self.admit(at, &mut step, &mut admission::open);
        step
    }

    /// Returns the queue entries behind [`Board::awaiting_admission`].
    pub(super) fn awaiting(&self) -> Vec<Next> {
        if !self.has_gate() {
            return Vec::new();
        }
        self.with_eligible(|places, eligible| self.scheduler.awaiting_admission(places, eligible))
    }

    /// Returns the next invocation to dispatch without admission.
    pub(super) fn next(&self) -> Option<Next> {
        self.with_eligible(|places, eligible| self.scheduler.next(places, eligible))
    }

    fn with_eligible<T>(&self, choose: impl FnOnce(&Places<'_>, &Eligible<'_>) -> T) -> T {
        let is_full = |worker: &WorkerName, used: usize| {
            let limit = self.plan.seats.get(worker).and_then(|seat| seat.worker.limits.at_once());
            limit.is_some_and(|limit| used >= limit as usize)
        };
        let is_held_up = |open: &Open| self.reservations.until(&open.awaits, open.queued.invocation).is_some();
        let waits = |open: &Open| {
            let worker = &open.queued.branch.worker;
            (is_held_up(open) && !planted::is(Bug::Haste)) || is_full(worker, self.scheduler.calling(worker))
        };
        let admits = |branch: &Branch| {
            self.breaker.admits(branch)
                && !is_full(&branch.worker, self.scheduler.under_way(&branch.worker))
                && !self.holds_back_inside(&branch.worker)
        };
        choose(
            &Places::new(self.plan.blueprint.concurrency, &self.plan.exempt),
            &Eligible {
                waits: &waits,
                admits: &admits,
                is_gated: &|worker| self.is_gated(worker),
                model: &|worker| self.plan.blueprint.model_of(worker),
            },
        )
    }

    /// Returns true while the board's running time passes. Since the format with admission, that is while a call is
    /// under way; before, while any open invocation did not wait for an approver.
    pub(super) fn is_at_work(&self) -> bool {
        match self.format >= ADMISSION {
            true => !self.paused && self.scheduler.is_calling(),
            false => !self.paused && self.scheduler.open().values().any(|open| open.asked.is_none()),
        }
    }

    /// Returns the rules with suspended delays, because an excepted worker waits for its model's provider.
    pub(super) fn standing_still(&self) -> BTreeSet<RuleName> {
        let excepting = self.excepting(|_| true);
        if excepting.is_empty() {
            return BTreeSet::new();
        }
        let open = self.scheduler.open().values().filter(|open| open.waits_for_provider());
        let mut waiting: BTreeSet<WorkerName> = open.map(|open| open.queued.branch.worker.clone()).collect();
        // While an operator pauses the board, no call is offered to the gate.
        if !self.paused || self.pause_cause == Some(PauseCause::ProviderUnavailable) {
            waiting.extend(self.awaiting().into_iter().map(|next| next.queued.branch.worker));
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
