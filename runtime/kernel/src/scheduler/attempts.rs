//! Attempts of open invocations: begun, continued, ended, deferred, counted.

use std::sync::Arc;

use jsonptr::PointerBuf;

use super::{AttemptHistory, Deferrals, OpenInvocation, ProviderWait, Scheduler};
use crate::breaker::Branch;
use crate::failure::FailureCode;
use crate::freshness::ReadSet;
use crate::id::{InvocationId, Seq, Timestamp};
use crate::record::{Attempt, Invoked, SINCE_FULL_RETRY};

impl Scheduler {
    /// Applies an `invoked` record; returns `None` if it names no invocation that can start.
    pub(crate) fn begin(
        &mut self,
        invoked: &Invoked,
        format: u32,
        at: Timestamp,
        basis: Arc<ReadSet>,
    ) -> Option<&OpenInvocation> {
        let (mut queued, lost, conflicts, deferrals, past) = match self.open.get(&invoked.invocation) {
            Some(open) => {
                let deferrals = open.deferrals.clone().map(|deferrals| Deferrals { waiting: None, ..deferrals });
                (open.queued.clone(), open.lost, open.conflicts, deferrals, open.past.clone())
            }
            None => {
                let place = self.queue.iter().position(|queued| queued.invocation == invoked.invocation)?;
                (self.unqueue(place)?, 0, 0, None, AttemptHistory::default())
            }
        };
        if queued.branch.worker != invoked.worker {
            return None;
        }
        queued.expansion.is_unspent = invoked.is_unspent;
        let attempts = self.attempts.entry(invoked.worker.clone()).or_default();
        *attempts = attempts.saturating_add(1);
        let admitted = invoked.admitted.clone().unwrap_or_default();
        let open = OpenInvocation {
            queued,
            attempt: invoked.attempt,
            lost,
            conflicts,
            awaits: Vec::new(),
            basis,
            calling: true,
            question: None,
            base: invoked.base,
            view: invoked.view,
            reserved: invoked.reserved,
            model: admitted.model.filter(|_| format >= SINCE_FULL_RETRY),
            price: admitted.price,
            reply_tokens: admitted.reply_tokens,
            since: at,
            deadline: invoked.deadline,
            deferrals,
            past,
        };
        self.open.insert(invoked.invocation, Box::new(open));
        self.open.get(&invoked.invocation).map(|open| &**open)
    }

    /// Restores the basis that a snapshot stores separately; returns false if there is no such open invocation.
    pub(crate) fn restore_basis(&mut self, invocation: InvocationId, basis: ReadSet) -> bool {
        self.open.get_mut(&invocation).map(|open| open.basis = Arc::new(basis)).is_some()
    }

    /// Records another call of the current attempt, with `reserved` tokens. Returns the branch, or `None` if the
    /// attempt is not in progress. `is_answered` means that the provider has answered the previous call.
    pub(crate) fn continue_attempt(
        &mut self,
        attempt: &Attempt,
        at: Timestamp,
        reserved: u64,
        is_answered: bool,
    ) -> Option<Branch> {
        let open = self.open.get_mut(&attempt.invocation);
        let open = open.filter(|open| open.calling && open.attempt == attempt.number)?;
        (open.since, open.reserved) = (at, reserved);
        if let Some(deferrals) = open.deferrals.as_mut().filter(|_| is_answered) {
            deferrals.since = None;
        }
        Some(open.queued.branch.clone())
    }

    /// Ends the current attempt, so that the next one is due.
    pub(crate) fn end_attempt(&mut self, invocation: InvocationId) {
        if let Some(open) = self.open.get_mut(&invocation) {
            (open.calling, open.question) = (false, None);
            if let Some(deferrals) = &mut open.deferrals {
                deferrals.since = None;
            }
        }
    }

    /// Ends the current attempt as deferred: the invocation waits for its provider.
    pub(crate) fn defer(&mut self, invocation: InvocationId, at: Timestamp, wait: ProviderWait) {
        self.uncount_attempt(invocation);
        if let Some(open) = self.open.get_mut(&invocation) {
            (open.calling, open.question) = (false, None);
            let (count, since) = open.deferrals.as_ref().map_or((0, None), |before| (before.count, before.since));
            let (count, since) = (count.saturating_add(1), since.or(Some(at)));
            open.deferrals = Some(Deferrals { count, since, waiting: Some(wait) });
        }
    }

    /// Ends all waits for providers, so that the next requests are due at once and patience starts over.
    pub(crate) fn end_provider_waits(&mut self) {
        for deferrals in self.open.values_mut().filter_map(|open| open.deferrals.as_mut()) {
            (deferrals.since, deferrals.waiting) = (None, None);
        }
    }

    /// Ends the current attempt's call and marks its proposal as put to a person.
    pub(crate) fn await_person(&mut self, invocation: InvocationId, question: Seq) {
        if let Some(open) = self.open.get_mut(&invocation) {
            (open.calling, open.question) = (false, Some(question));
        }
    }

    /// Counts the current attempt as rejected because of concurrent commits; the next one waits for `awaits`.
    pub(crate) fn record_conflict(&mut self, invocation: InvocationId, awaits: Vec<PointerBuf>) {
        if let Some(open) = self.open.get_mut(&invocation) {
            open.conflicts = open.conflicts.saturating_add(1);
            open.awaits = awaits;
        }
    }

    /// Records the failure of an attempt, for the next one.
    pub(crate) fn record_failure(&mut self, invocation: InvocationId, code: FailureCode) {
        if let Some(open) = self.open.get_mut(&invocation) {
            open.past.failures.push(code);
        }
    }

    /// Records the rejection of an attempt's reply, for the next one.
    pub(crate) fn record_rejection(&mut self, invocation: InvocationId) {
        if let Some(open) = self.open.get_mut(&invocation) {
            open.past.failures.clear();
            open.past.rejected_views.push(open.view);
        }
    }

    /// Counts the current attempt as lost with a process, so that it is not charged to its worker.
    pub(crate) fn record_loss(&mut self, invocation: InvocationId) {
        self.uncount_attempt(invocation);
        if let Some(open) = self.open.get_mut(&invocation) {
            open.lost = open.lost.saturating_add(1);
        }
    }

    /// Uncounts the current attempt, which was never delivered to its worker's agent.
    pub(crate) fn uncount_attempt(&mut self, invocation: InvocationId) {
        let Some(open) = self.open.get(&invocation) else { return };
        if let Some(attempts) = self.attempts.get_mut(&open.queued.branch.worker) {
            *attempts = attempts.saturating_sub(1);
        }
    }
}
