//! Calls of a board that wait for admission: decides when to ask the gate, and when to ask again.
//!
//! The gate chooses among the models that the money left for a call can pay. It is asked again when more money is
//! left, and when the admitted model has become too expensive meanwhile. An admitted call that exceeds the free budget
//! returns its permit and waits until another call of the board is settled.

use std::collections::BTreeMap;

use patchboard_kernel::admission::WaitingCall;
use patchboard_kernel::board::{Board, Effects};
use patchboard_kernel::ledger::Account;
use patchboard_kernel::limits::CallLimits;

use super::messages::CallKey;
use crate::agent::{AdmissionDecision, Agent, Permit};

#[derive(Default)]
pub(super) struct WaitingCalls(BTreeMap<CallKey, WaitReason>);

/// Obstacle to a call.
enum WaitReason {
    /// The gate, with the call as last submitted to it.
    Gate(WaitingCall),
    /// Budgets reserved by other calls of the board.
    Budget(Budgets),
}

/// Budgets of a board and a worker.
#[derive(Clone, Copy)]
struct Budgets {
    limits: CallLimits,
    board: Account,
    worker: Account,
}

impl Budgets {
    fn new(board: &Board, call: &WaitingCall) -> Self {
        let ledger = board.ledger();
        let worker = ledger.worker(&call.worker);
        Self { limits: board.worker_call_limits(&call.worker), board: *ledger.board(), worker }
    }

    /// Returns true if calls were settled since `before`, or limits raised.
    fn are_freer_than(self, before: Self) -> bool {
        let is_settled = |now: Account, before: Account| {
            now.reserved < before.reserved
                || now.spent > before.spent
                || now.money_reserved < before.money_reserved
                || now.money > before.money
        };
        self.limits != before.limits || is_settled(self.board, before.board) || is_settled(self.worker, before.worker)
    }
}

impl WaitingCalls {
    /// Asks the gate for a call; returns none if the answer cannot have changed.
    pub(super) fn ask(&mut self, agent: &dyn Agent, board: &Board, call: &WaitingCall) -> Option<AdmissionDecision> {
        let key = key(call);
        match self.0.get(&key) {
            // No limit leaves more than any limit.
            Some(WaitReason::Gate(waiting))
                if board.unreserved_money(call).unwrap_or(u64::MAX)
                    <= waiting.money.map_or(u64::MAX, |money| money.left) =>
            {
                return None;
            }
            Some(WaitReason::Budget(before)) if !Budgets::new(board, call).are_freer_than(*before) => return None,
            _ => {}
        }
        let call = board.with_money(call);
        let admitted = agent.admit(board.id(), &call);
        match &admitted {
            AdmissionDecision::Now(_) => drop(self.0.remove(&key)),
            AdmissionDecision::Later(_) => drop(self.0.insert(key, WaitReason::Gate(call))),
        }
        Some(admitted)
    }

    /// Removes a call after the gate's delayed admission. Returns the call if it could pay its model when submitted,
    /// but cannot with the money that is left now.
    pub(super) fn take(&mut self, board: &Board, admitted: CallKey, permit: &Permit) -> Option<WaitingCall> {
        let Some(WaitReason::Gate(waiting)) = self.0.remove(&admitted) else { return None };
        waiting.money.filter(|_| waiting.affords(&permit.admission))?;
        let call = board.awaiting_admission().into_iter().find(|call| key(call) == admitted)?;
        (!board.with_money(&call).affords(&permit.admission)).then_some(call)
    }

    pub(super) fn remove(&mut self, call: CallKey) {
        self.0.remove(&call);
    }

    /// Removes the calls that a step no longer names. Admitted calls that the step did not make return their permits;
    /// those that still wait for admission wait for a budget.
    pub(super) fn stepped(&mut self, board: &Board, effects: &Effects, permits: &mut BTreeMap<CallKey, Permit>) {
        if let Some(named) = &effects.awaiting_admission {
            self.0.retain(|waiting, _| named.iter().any(|call| key(call) == *waiting));
        }
        let is_started =
            |admitted: &CallKey| effects.calls.iter().any(|call| (call.invocation, call.attempt) == *admitted);
        let unmade: Vec<CallKey> = permits.keys().filter(|admitted| !is_started(admitted)).copied().collect();
        permits.retain(|admitted, _| !unmade.contains(admitted));
        if !unmade.is_empty() {
            for call in board.awaiting_admission().iter().filter(|call| unmade.contains(&key(call))) {
                self.0.insert(key(call), WaitReason::Budget(Budgets::new(board, call)));
            }
        }
    }
}

pub(super) const fn key(call: &WaitingCall) -> CallKey {
    (call.invocation, call.attempt)
}
