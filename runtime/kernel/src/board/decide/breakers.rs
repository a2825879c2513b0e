//! Moves of circuit breakers, and their actions.

use std::sync::Arc;

use super::StepBuilder;
use crate::blueprint::Action;
use crate::breaker::{Branch, BreakerTransition, DueTransition, Reason};
use crate::record::{Body, Breaker, Cause, End, Ended, Trigger};

impl StepBuilder<'_> {
    /// Moves the breaker of an outcome's branch, and all breakers at the end of their cooldown.
    pub(super) fn move_breakers(&mut self, branch: Option<&Branch>) {
        let plan = Arc::clone(&self.board.plan);
        if let Some(branch) = branch
            && let Some(due) = self.board.breaker.due(&plan.blueprint.circuit, branch)
        {
            self.trip(branch, due);
        }
        for branch in self.board.breaker.cooled_down(&plan.blueprint.circuit) {
            self.trip(&branch, DueTransition::half_opened(Reason::Cooldown));
        }
    }

    pub(super) fn trip(&mut self, branch: &Branch, due: DueTransition) {
        let DueTransition { reason, action, change } = due;
        if change == BreakerTransition::Opened && reason != Reason::Budget {
            for invocation in self.board.open_of(branch) {
                self.cancel(invocation);
            }
        }
        let (rule, worker) = (branch.rule.clone(), branch.worker.clone());
        self.push(Body::Breaker(Breaker { rule: rule.clone(), worker: worker.clone(), change, reason }));
        match action {
            Some(Action::StopBoard) => {
                let cause = match reason {
                    Reason::Rejections => Cause::Rejections,
                    Reason::NoOps => Cause::NoOps,
                    Reason::Passes => Cause::Passes,
                    Reason::Crashes => Cause::Crashes,
                    Reason::Cycles => Cause::Cycles,
                    Reason::Budget => Cause::Budget,
                    Reason::Cooldown | Reason::ProbeCommitted | Reason::ProbeFailed | Reason::Retried => Cause::Breaker,
                };
                self.ending = self.ending.or(Some(Ended { end: End::Stopped, cause }));
            }
            Some(Action::Wake(woken)) => {
                let woken = Branch { rule: None, worker: woken };
                self.enqueue(woken, Trigger::Breaker { rule, worker, reason }, None);
            }
            Some(Action::ReduceView | Action::StopBranch) | None => {}
        }
    }
}
