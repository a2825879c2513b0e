//! Admission of calls: the waiting calls, and the model to which a call was admitted.
//!
//! A call of a language model is dispatched in two steps. The board names the calls that may be made
//! ([`Effects::awaiting_admission`](crate::board::Effects::awaiting_admission)) and records nothing. When the shell's gate
//! admits one ([`Input::Admit`](crate::board::Input::Admit)), the board compiles the view of its current state and
//! records `invoked`. A waiting call thus occupies no slot, holds no reservation and uses no time of its own. The call
//! of an inner board is made at once; it needs admission only after a deferral, when that board waits for its provider.

use serde::{Deserialize, Serialize};

use crate::blueprint::AgentKind;
use crate::board::Board;
use crate::id::{InvocationId, WorkerName};
use crate::ledger::CallReservation;
use crate::money::Price;
use crate::scheduler::{AttemptHistory, ProviderWait};

/// Model and terms of an admitted call.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admission {
    /// Operator's name of the model; `None` if no gate chose one.
    pub model: Option<String>,
    /// Price of the model's tokens; `None` if the operator sets no price.
    pub price: Option<Price>,
    /// Tokens of the reply; `None` for the seat's limit. Higher after a truncated reply, lower for a model with a lower
    /// limit.
    pub reply_tokens: Option<u64>,
}

/// Call that may be made once the gate admits it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitingCall {
    /// The invocation.
    pub invocation: InvocationId,
    /// Attempt to make, from 1.
    pub attempt: u32,
    /// The worker.
    pub worker: WorkerName,
    /// Agent kind: a language model, or an inner board that waits for one.
    pub agent: AgentKind,
    /// Operator's name of the preferred model; `None` for the default.
    pub model: Option<String>,
    /// Estimated tokens of the call.
    pub tokens: u64,
    /// Reply tokens by the limits of the seat.
    pub reply_tokens: u32,
    /// Attempts before this one.
    pub past: AttemptHistory,
    /// Wait from the deferral of its last request; `None` for a first request.
    pub wait: Option<ProviderWait>,
    /// Maximum wait of the board for the provider, in milliseconds; `None` for the patience of the model.
    pub patience_ms: Option<u64>,
    /// Money left for it ([`Board::with_money`]); `None` if neither the board nor the worker limits money.
    pub money: Option<MoneyLeft>,
}

/// Money left for a call, and its tokens if it is made now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoneyLeft {
    /// Part of the tightest limit that is neither spent nor reserved, in 10⁻⁹ of the currency.
    pub left: u64,
    /// Part of the tightest limit that is not spent: more may be left once other calls are settled.
    pub unspent: u64,
    /// Tokens of the prompt.
    pub prompt: u64,
}

impl WaitingCall {
    /// Returns true if the call is affordable with this admission.
    pub fn affords(&self, admission: &Admission) -> bool {
        self.money.is_none_or(|money| self.needed(money, admission) <= money.left)
    }

    /// Returns true if the call may be affordable with this admission once other calls are settled.
    pub fn may_afford(&self, admission: &Admission) -> bool {
        self.money.is_none_or(|money| self.needed(money, admission) <= money.unspent)
    }

    fn needed(&self, money: MoneyLeft, admission: &Admission) -> u64 {
        let reply = admission.reply_tokens.unwrap_or(u64::from(self.reply_tokens));
        CallReservation { tokens: money.prompt.saturating_add(reply), reply, price: admission.price.as_ref() }.money()
    }
}

/// Function that admits calls of a board and returns the chosen model; `None` keeps the call waiting.
pub type AdmissionGate<'g> = dyn FnMut(&Board, &WaitingCall) -> Option<Admission> + 'g;

/// Gate that admits every call.
pub fn admit_all(_: &Board, _: &WaitingCall) -> Option<Admission> {
    Some(Admission::default())
}
