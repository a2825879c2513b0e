//! Calls of an attempt after its first: the agent has used tools, and calls its model again with their results.

use super::{StepBuilder, author};
use crate::board::Outcome;
use crate::failure::FailureCode;
use crate::id::InvocationId;
use crate::ledger::{CallReservation, Usage, cap_tokens};
use crate::record::{Body, Continued, Failed};
use crate::rejection::{Code, Rejection, Stage};

impl StepBuilder<'_> {
    /// Reserves another call for an attempt, if the budgets suffice; else ends the attempt. The agent receives the
    /// rejection and is not stopped: it may have to clean up.
    pub(super) fn continue_attempt(
        &mut self,
        invocation: InvocationId,
        attempt: u32,
        usage: Option<Usage>,
        reserve: u64,
    ) {
        let open = self.board.scheduler.open().get(&invocation);
        let Some(open) = open.filter(|open| open.calling && open.attempt == attempt) else {
            let message = "the task is over; what it was asked for is not wanted any more";
            self.step.outcome = Some(rejected_unrecorded(Code::InvocationClosed, message));
            return;
        };
        let (usage, needed) = (usage.map(Usage::bounded), cap_tokens(reserve));
        let (branch, by) = (open.queued.branch.clone(), author(open, usage));
        let before = self.board.reservation_of(open);
        let next = CallReservation { tokens: needed, ..before };
        let limits = self.board.call_limits(&branch);
        let Err(short) = self.board.ledger.check_budget_after(&limits, &branch, (before, usage), next) else {
            let seq = self.push(Body::Continued(Continued { by, reserved: needed }));
            self.step.outcome = Some(Outcome::Continued { seq });
            return self.advance();
        };
        // An attempt waits for no budget, not even one that calls under way may free.
        let (unit, of) = (short.resource.unit(), short.resource);
        let message = format!("the next call needs {} {unit}, and of {of} {} are left", short.needed, short.left);
        self.step.outcome = Some(rejected_unrecorded(Code::BudgetExhausted, &message));
        let code = FailureCode::BudgetExhausted;
        self.push(Body::Failed(Failed { by, code, is_final: true, needed: Some(needed), message }));
        self.move_breakers(Some(&branch));
        if !short.may_be_freed {
            self.record_budget_exceeded(&branch, (None, None), short);
        }
        self.advance();
    }
}

/// Builds a rejection for the caller, without a record.
pub(super) fn rejected_unrecorded(code: Code, message: &str) -> Outcome {
    Outcome::RejectedUnrecorded(Rejection::single(Stage::Authorization, code, message))
}
