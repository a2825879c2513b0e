//! Calls that wait for a provider: admission, deferral, and the end of patience.

use super::{StepBuilder, author};
use crate::admission::Admission;
use crate::deferral::DeferralReason;
use crate::id::InvocationId;
use crate::ledger::Usage;
use crate::record::{Body, Deferred, PauseCause, PauseRequest};
use crate::scheduler::NextAttempt;

/// Maximum wait that is recorded, in milliseconds: 366 days.
const WAIT_MAX_MS: u64 = 366 * 24 * 60 * 60 * 1000;

/// A request that a provider did not accept, as the shell reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestDeferral {
    /// The reason.
    pub reason: DeferralReason,
    /// Milliseconds to wait before the next request to the provider.
    pub wait_ms: u64,
    /// Milliseconds after the first of an unbroken series of deferrals at which the board is paused.
    pub patience_ms: u64,
    /// Another model may take the request.
    pub is_served_elsewhere: bool,
    /// For people.
    pub message: String,
}

impl StepBuilder<'_> {
    /// Makes a call that the gate admits if it is still wanted; otherwise records nothing.
    pub(super) fn admit(&mut self, invocation: InvocationId, attempt: u32, admission: Admission) {
        if self.board.ended.is_some() || self.board.paused {
            return;
        }
        let is_meant = |next: &NextAttempt| next.queued.invocation == invocation && next.attempt == attempt;
        let next = self.board.admissible_attempts().into_iter().find(is_meant);
        let before = self.step.records.len();
        if let Some(next) = next {
            self.dispatch(next, Some(admission));
        }
        if self.step.records.len() > before {
            self.advance();
        }
    }

    pub(super) fn defer(
        &mut self,
        invocation: InvocationId,
        attempt: u32,
        usage: Option<Usage>,
        not_taken: RequestDeferral,
    ) {
        let open = self.board.scheduler.open().get(&invocation);
        let Some(open) = open.filter(|open| open.calling && open.attempt == attempt) else { return };
        let RequestDeferral { reason, wait_ms, patience_ms, is_served_elsewhere, message } = not_taken;
        let since = open.deferrals.as_ref().and_then(|deferrals| deferrals.since).unwrap_or(self.at);
        let mut not_before = self.at.plus_ms(wait_ms.min(WAIT_MAX_MS));
        let mut patience = since.plus_ms(patience_ms.min(WAIT_MAX_MS));
        if let Some(limit) = self.board.plan.blueprint.limits.patience {
            patience = patience.min(since.plus_ms(limit.as_ms()));
            // The board is paused exactly when its patience ends, even if the provider asks for a longer wait.
            not_before = not_before.min(patience);
        }
        let (by, model) = (author(open, usage.map(Usage::bounded)), open.model.clone());
        let message = self.bounded(message);
        self.push(Body::Deferred(Deferred { by, model, reason, not_before, patience, is_served_elsewhere, message }));
        if (reason.needs_operator() && !is_served_elsewhere) || not_before > patience {
            self.pause_for_provider();
        }
        self.advance();
    }

    /// Pauses the board, because no call was admitted within its patience or its model needs an operator.
    pub(super) fn unavailable(&mut self) {
        if self.board.ended.is_none() && !self.board.paused && !self.board.admissible_attempts().is_empty() {
            self.pause_for_provider();
            self.advance();
        }
    }

    /// Pauses the board until an operator resumes it.
    pub(super) fn pause_for_provider(&mut self) {
        if !self.board.paused {
            self.push(Body::Paused(PauseRequest { token: None, cause: Some(PauseCause::ProviderUnavailable) }));
        }
    }

    /// Publishes the calls that wait for admission; replaces the previous list.
    pub(super) fn request_admissions(&mut self) {
        if self.board.has_gated_calls() {
            self.step.effects.awaiting_admission = Some(self.board.awaiting_admission());
        }
    }
}
