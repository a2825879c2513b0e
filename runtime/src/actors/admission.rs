//! Calls of a board that wait for admission: when the gate is asked for one, and when again.
//!
//! The gate chooses among the models that the money left for a call can pay. It is asked again when more money is left,
//! and when a model that it admitted has become too dear meanwhile. An admitted call for which the budgets do not suffice
//! yet waits until another call of the board is settled: until then it takes no permission, and nothing of a rate limit.

use std::collections::BTreeMap;

use patchboard_kernel::admission::Waiting;
use patchboard_kernel::board::{Board, Effect};

use super::CallKey;
use crate::agent::{Admitted, Agent, Permit};

/// Calls that wait for admission.
#[derive(Default)]
pub(super) struct WaitingCalls(BTreeMap<CallKey, WaitsFor>);

/// Obstacle of a call.
enum WaitsFor {
    /// The gate, asked when this much money was left; none if no limit of money holds.
    Gate(Option<u64>),
    /// Budgets that other calls of the board hold reserved, with what the board had reserved and spent.
    Budget { reserved: u64, spent: u64 },
}

impl WaitingCalls {
    /// Asks the gate for a call; none if the answer would be the same as before.
    pub(super) fn ask(&mut self, agent: &dyn Agent, board: &Board, call: &Waiting) -> Option<Admitted> {
        let key = key(call);
        let account = board.ledger().board();
        match self.0.get(&key) {
            Some(WaitsFor::Gate(asked)) if board.unreserved_money(call) <= *asked => return None,
            Some(WaitsFor::Budget { reserved, spent }) if account.reserved >= *reserved && account.spent <= *spent => {
                return None;
            }
            _ => {}
        }
        let call = board.with_money(call);
        let admitted = agent.admit(board.id(), &call);
        match &admitted {
            Admitted::Now(_) => drop(self.0.remove(&key)),
            Admitted::Later(_) => drop(self.0.insert(key, WaitsFor::Gate(call.money.map(|money| money.left)))),
        }
        Some(admitted)
    }

    /// Takes out a call that the gate has admitted after a while. Returns the call if it is to be asked for again: the
    /// model that it was admitted to costs more than is left by now.
    pub(super) fn take(&mut self, board: &Board, admitted: CallKey, permit: &Permit) -> Option<Waiting> {
        let Some(WaitsFor::Gate(Some(_))) = self.0.remove(&admitted) else { return None };
        let call = board.awaiting_admission().into_iter().find(|call| key(call) == admitted)?;
        (!board.with_money(&call).affords(permit.admission.price.as_ref())).then_some(call)
    }

    /// Removes a call.
    pub(super) fn remove(&mut self, call: CallKey) {
        self.0.remove(&call);
    }

    /// Removes the calls that a step does not name any more. Of its admitted calls, those that are named and not made wait
    /// for a budget, and give their permissions back.
    pub(super) fn retain_named(&mut self, board: &Board, effects: &[Effect], permits: &mut BTreeMap<CallKey, Permit>) {
        let named = effects.iter().rev().find_map(|effect| match effect {
            Effect::Await(named) => Some(named),
            _ => None,
        });
        let Some(named) = named else { return };
        self.0.retain(|waiting, _| named.iter().any(|call| key(call) == *waiting));
        let account = board.ledger().board();
        for call in named {
            if permits.remove(&key(call)).is_some() {
                self.0.insert(key(call), WaitsFor::Budget { reserved: account.reserved, spent: account.spent });
            }
        }
    }
}

/// Returns the attempt that a waiting call is.
pub(super) const fn key(call: &Waiting) -> CallKey {
    (call.invocation, call.attempt)
}
