//! What an operator takes up again: invocations that were given up, and limits that were reached.

use super::{Draft, Move};
use crate::board::admission::not_given_up;
use crate::board::{LimitsInForce, Outcome};
use crate::breaker::{Change, Reason};
use crate::money::Money;
use crate::planted::{self, Bug};
use crate::record::{Body, Cause, Ended, Retried, Scheduled};
use crate::rejection::{Code, Rejection, Stage, Violation};
use crate::scheduler::Queued;

impl Draft<'_> {
    /// Queues what was given up again, with its trigger, on a board that has not come to a good end.
    pub(super) fn retry(&mut self, retried: Retried) {
        let body = Body::Retried(retried.clone());
        if self.is_repeated(&body) {
            return;
        }
        let chosen: Vec<Queued> =
            self.board.given_up.iter().filter(|queued| retried.chooses(queued)).cloned().collect();
        if let Some(why) = self.retry_refusal(&retried, chosen.len()) {
            self.step.outcome = Some(Outcome::Refused(Rejection::new(Stage::Application, vec![why])));
            return;
        }
        self.push(body);
        let open = self.board.scheduler.open();
        let stopped = self.board.breaker.stopped(|invocation| open.contains_key(&invocation));
        let stopped: Vec<_> =
            stopped.filter(|branch| retried.covers(branch) && !planted::is(Bug::RetryStaysStopped)).cloned().collect();
        for branch in stopped {
            self.trip(&branch, Move { reason: Reason::Retried, action: None, change: Change::HalfOpened });
        }
        for queued in chosen {
            let Queued { invocation, branch, trigger, expansion, .. } = queued;
            self.awaited.extend(branch.rule.iter().flat_map(|rule| self.board.plan.waiting_for(rule)));
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

    fn retry_refusal(&self, retried: &Retried, chosen: usize) -> Option<Violation> {
        let board = &*self.board;
        let refused = |code, message: String| Some(Violation::new(code, "", message));
        match board.ended {
            Some(Ended { cause: Cause::Done, .. }) => {
                return refused(Code::BoardNotRunning, "the board is done".into());
            }
            Some(Ended { cause: Cause::Cancelled, .. }) => {
                return refused(Code::BoardNotRunning, "the board was cancelled".into());
            }
            _ => {}
        }
        let limits = board.limits();
        let raised = limits.raised_by(retried.limits);
        let LimitsInForce { commits, tokens, wall_ms, money } = raised;
        let made = board.version().0.saturating_sub(board.files.edits);
        if made >= commits {
            return refused(
                Code::LimitReached,
                format!("{made} of {commits} commits are made: raise the limit of commits"),
            );
        }
        if board.running_ms >= wall_ms {
            let (ran, wall) = (board.running_ms.div_ceil(1000), wall_ms / 1000);
            return refused(
                Code::LimitReached,
                format!("the board ran {ran} of {wall} s: raise the limit of running time"),
            );
        }
        let spent = board.ledger.board().committed();
        if spent >= tokens {
            return refused(
                Code::LimitReached,
                format!("{spent} of {tokens} tokens are spent: raise the limit of tokens"),
            );
        }
        let spent = board.ledger.board().committed_money();
        if let Some(money) = money.filter(|money| spent >= *money) {
            let (spent, money) = (Money(spent), Money(money));
            return refused(Code::LimitReached, format!("{spent} of {money} are spent: raise the limit of money"));
        }
        if chosen == 0 && raised == limits {
            let nothing = || "no invocation was given up, and no limit is raised".to_owned();
            let message = not_given_up(retried).unwrap_or_else(nothing);
            return refused(Code::NothingGivenUp, message);
        }
        None
    }
}
