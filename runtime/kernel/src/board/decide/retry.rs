//! Retries by an operator: invocations that were given up, and raised limits.

use super::StepBuilder;
use crate::breaker::{DueTransition, Reason};
use crate::record::{Body, Retried, Scheduled};
use crate::rejection::Stage;
use crate::scheduler::QueuedInvocation;

impl StepBuilder<'_> {
    /// Queues given-up invocations again, with their triggers, unless the board is done or cancelled.
    pub(super) fn retry(&mut self, retried: Retried) {
        let body = Body::Retried(retried.clone());
        if self.is_duplicate(&body) {
            return;
        }
        let chosen = self.board.selected_by(&retried);
        if let Some(why) = self.board.retry_violation(&retried, &chosen) {
            return self.refuse(Stage::Application, vec![why]);
        }
        self.push(body);
        for branch in self.board.half_opened_by(&retried) {
            self.trip(&branch, DueTransition::half_opened(Reason::Retried));
        }
        for queued in chosen {
            let QueuedInvocation { invocation, branch, trigger, expansion, .. } = queued;
            self.waiting_rules.extend(self.board.plan.waiting_for(&branch));
            let (retries, expand) = (Some(invocation), expansion.places);
            self.push(Body::Scheduled(Scheduled { retries, expand, ..self.scheduled(branch, trigger) }));
        }
        self.advance();
    }
}
