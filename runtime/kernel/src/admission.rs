//! Which calls wait to be made, and where a call was admitted to.
//!
//! A call of a language model is dispatched in two moves. The board names the calls that may be made
//! ([`Effect::Await`](crate::board::Effect::Await)) and records nothing. When the shell's gate lets one through
//! ([`Input::Admit`](crate::board::Input::Admit)), the board compiles the view of the state as it is then and records
//! `invoked`. So a call that waits for its provider takes no place, no reservation and no time of its own. The call of a
//! board inside is made at once, and needs admission after it was deferred since that board waits for its provider.

use serde::{Deserialize, Serialize};

use crate::blueprint::AgentKind;
use crate::board::Board;
use crate::id::{InvocationId, WorkerName};
use crate::ledger::Hold;
use crate::money::Price;
use crate::scheduler::{Past, ProviderWait};

/// Where a call was admitted to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admission {
    /// The operator's name of the model; none where no gate chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Price of the model's tokens; none where the operator names no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Tokens of the reply; none: as many as the seat has. After a reply that was cut off there are more, and of a model
    /// whose replies have a lower limit fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_tokens: Option<u64>,
}

/// A call that may be made once the gate admits it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The invocation.
    pub invocation: InvocationId,
    /// The attempt to make, from 1.
    pub attempt: u32,
    /// The worker.
    pub worker: WorkerName,
    /// Agent kind: a language model, or an inner board that waits for one.
    pub agent: AgentKind,
    /// The operator's name of the preferred model; none: the default.
    pub model: Option<String>,
    /// Tokens that the call may take, estimated.
    pub tokens: u64,
    /// Tokens of the reply by the limits of the seat.
    pub reply_tokens: u32,
    /// Attempts before this one.
    pub past: Past,
    /// The wait that its last request was deferred to; none for a first request.
    pub wait: Option<ProviderWait>,
    /// Time that the board waits for the provider at most, in milliseconds; none: the patience of the model alone.
    pub patience_ms: Option<u64>,
    /// Money that is left for it ([`Board::with_money`]); none where neither the board nor the worker limits money.
    pub money: Option<MoneyLeft>,
}

/// Money that is left for a call, and the tokens that it takes if it is made now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoneyLeft {
    /// Part of the tightest limit that is neither spent nor reserved, in 10⁻⁹ of the currency.
    pub left: u64,
    /// Part of the tightest limit that is not spent: more may be left once other calls are settled.
    pub unspent: u64,
    /// Tokens of the prompt.
    pub prompt: u64,
}

impl Waiting {
    /// Returns true if the call can be afforded where it is admitted to.
    pub fn affords(&self, admission: &Admission) -> bool {
        self.money.is_none_or(|money| self.needed(money, admission) <= money.left)
    }

    /// Returns true if the call may be afforded there once other calls are settled.
    pub fn may_afford(&self, admission: &Admission) -> bool {
        self.money.is_none_or(|money| self.needed(money, admission) <= money.unspent)
    }

    fn needed(&self, money: MoneyLeft, admission: &Admission) -> u64 {
        let reply = admission.reply_tokens.unwrap_or(u64::from(self.reply_tokens));
        Hold { tokens: money.prompt.saturating_add(reply), reply, price: admission.price.as_ref() }.money()
    }
}

/// Function that admits calls of a board and returns the chosen model; none keeps the call waiting.
pub type Gate<'g> = dyn FnMut(&Board, &Waiting) -> Option<Admission> + 'g;

/// A gate that lets every call through.
pub fn open(_: &Board, _: &Waiting) -> Option<Admission> {
    Some(Admission::default())
}
