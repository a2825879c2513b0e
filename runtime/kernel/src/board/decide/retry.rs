//! Retries by an operator: invocations that were given up, and raised limits.

use super::{Draft, Move};
use crate::board::Outcome;
use crate::breaker::{Change, Reason};
use crate::record::{Body, Retried, Scheduled};
use crate::rejection::{Rejection, Stage};
use crate::scheduler::Queued;

impl Draft<'_> {
    /// Queues given-up invocations again, with their triggers, unless the board is done or cancelled.
    pub(super) fn retry(&mut self, retried: Retried) {
        let body = Body::Retried(retried.clone());
        if self.is_repeated(&body) {
            return;
        }
        let chosen = self.board.chosen_by(&retried);
        if let Some(why) = self.board.retry_refusal(&retried, &chosen) {
            self.step.outcome = Some(Outcome::Refused(Rejection::new(Stage::Application, vec![why])));
            return;
        }
        self.push(body);
        for branch in self.board.half_opened_by(&retried) {
            self.trip(&branch, Move { reason: Reason::Retried, action: None, change: Change::HalfOpened });
        }
        for queued in chosen {
            let Queued { invocation, branch, trigger, expansion, .. } = queued;
            self.awaited.extend(self.board.plan.waiting_for(&branch));
            self.push(Body::Scheduled(Scheduled {
                invocation: self.board.scheduler.next_id(),
                rule: branch.rule,
                worker: branch.worker,
                follows: None,
                retries: Some(invocation),
                trigger,
                due: None,
                expand: expansion.places,
            }));
        }
        self.go_on();
    }
}
