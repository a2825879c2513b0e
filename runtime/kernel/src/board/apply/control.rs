//! Records of control: breakers, budgets, limits, pauses and the end.

use std::collections::VecDeque;

use super::GIVEN_UP_MAX;
use crate::board::Board;
use crate::breaker::{Branch, BreakerTransition, Reason};
use crate::id::{InvocationId, RuleName, Timestamp};
use crate::mutants::{self, Mutant};
use crate::record::{self, Breaker, Budget, Ended, Resource, Retried};
use crate::scheduler::QueuedInvocation;

impl Board {
    pub(super) fn apply_breaker(&mut self, at: Timestamp, moved: &Breaker) {
        let branch = Branch { rule: moved.rule.clone(), worker: moved.worker.clone() };
        self.breaker.apply(&branch, moved.change, moved.reason);
        let in_vain = self.ineffective.remove(&branch).unwrap_or_default();
        let streak = match (moved.change, moved.reason) {
            (BreakerTransition::Opened, Reason::NoOps) => in_vain.no_ops,
            (BreakerTransition::Opened, Reason::Passes) => in_vain.passes,
            // Only the failed probe itself.
            (BreakerTransition::Opened, Reason::ProbeFailed) => in_vain.all().cloned().collect(),
            _ => VecDeque::new(),
        };
        // The streak counts as a failure: an operator can retry it until the branch succeeds again.
        for queued in streak {
            self.give_up(QueuedInvocation { is_ineffective: true, ..queued });
        }
        if moved.change == BreakerTransition::Closed {
            self.given_up.retain(|queued| !queued.is_ineffective || queued.branch != branch);
        }
        // Calls dispatched while there was a budget may still answer.
        if moved.change == BreakerTransition::Opened && moved.reason != Reason::Budget {
            for invocation in self.open_of(&branch) {
                self.abandon(invocation, at);
            }
        }
        // Reopens a board with an end that is not final, if an invocation waited for this breaker.
        let may_go = |queued: &QueuedInvocation| self.breaker.admits(&queued.branch);
        let lets_go = matches!(moved.change, BreakerTransition::HalfOpened | BreakerTransition::Closed);
        if lets_go && !mutants::is_active(Mutant::StayEndedOnHalfOpen) && self.scheduler.queue().iter().any(may_go) {
            self.reopen();
        }
    }

    /// Ends what exceeds a budget.
    pub(super) fn apply_budget(&mut self, at: Timestamp, budget: &Budget) {
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

    /// Raises limits and resumes the board, for a retry by an operator.
    pub(super) fn apply_retry(&mut self, retried: &Retried) {
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
    }

    pub(super) fn apply_end(&mut self, at: Timestamp, ended: Ended) {
        // After an end that is not final, invocations that wait for a breaker keep waiting.
        if ended.is_final() {
            let (open, queued) = self.scheduler.clear();
            for open in open {
                self.settle(&open, None, at);
                self.give_up(open.queued);
            }
            queued.into_iter().for_each(|queued| self.give_up(queued));
        }
        self.ended = Some(ended);
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
    pub(super) fn give_up(&mut self, queued: QueuedInvocation) {
        if self.given_up.len() >= GIVEN_UP_MAX {
            let oldest = self.given_up.iter().position(|queued| queued.is_beyond_limit).unwrap_or(0);
            let removed = self.given_up.remove(oldest).filter(|queued| !queued.is_ineffective);
            self.forget(removed.and_then(|queued| queued.branch.rule));
        }
        self.given_up.push_back(queued);
    }

    /// Reopens a board whose end is not final.
    pub(super) fn reopen(&mut self) {
        if self.ended.is_some_and(|ended| !ended.is_final()) {
            self.ended = None;
        }
    }
}
