//! Accounts of a board's spending: reserved before a call, settled after it (SPEC section 8).
//!
//! A call without an answer stays charged at its reservation, so that a crash or a retry neither hides a cost nor
//! counts one twice.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::breaker::Branch;
use crate::id::WorkerName;
use crate::limits::CallLimits;
use crate::money::Price;
use crate::mutants::{self, Mutant};
use crate::record::{Architect, Resource};
use crate::rejection::getters;

/// Largest integer such that canonical JSON (RFC 8785) represents it and all smaller ones exactly.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// Number of tokens to which a price refers.
const TOKENS_PER_PRICE: u128 = 1_000_000;

/// Caps tokens at the maximum that a record can hold exactly (2^53 − 1).
pub(crate) fn cap_tokens(tokens: u64) -> u64 {
    tokens.min(EXACT_MAX)
}

/// Cost of one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub prompt: u64,
    /// Tokens of the reply.
    pub completion: u64,
    /// Tokens of the prompt that the provider had cached.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub cached: u64,
    /// True if the figures are an estimate of the runtime, because the provider gave none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// Money of an inner board's calls, in 10⁻⁹ of the currency; 0 for a model's call, which is settled by its price.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub money: u64,
}

impl Usage {
    /// Caps the figures at the maximum that a record can hold exactly (2^53 − 1), because a provider may report
    /// anything.
    #[must_use]
    pub fn bounded(self) -> Self {
        Self {
            prompt: cap_tokens(self.prompt),
            completion: cap_tokens(self.completion),
            cached: cap_tokens(self.cached),
            estimated: self.estimated,
            money: cap_tokens(self.money),
        }
    }

    /// Returns the cost of a call at a price, in 10⁻⁹ of the currency, rounded up.
    pub fn cost(self, price: &Price) -> u64 {
        let cached = self.cached.min(self.prompt);
        let part = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let sum = part(self.prompt - cached, price.input)
            .saturating_add(part(cached, price.cached))
            .saturating_add(part(self.completion, price.output));
        cap_tokens(u64::try_from(sum.div_ceil(TOKENS_PER_PRICE)).unwrap_or(u64::MAX))
    }

    /// Adds the cost of another call. The sum counts as estimated if any part of it is.
    pub fn add(&mut self, other: Self) {
        self.prompt = self.prompt.saturating_add(other.prompt);
        self.completion = self.completion.saturating_add(other.completion);
        self.cached = self.cached.saturating_add(other.cached);
        self.estimated |= other.estimated && other.total() > 0;
        self.money = self.money.saturating_add(other.money);
    }

    /// Returns the usage beyond an earlier figure of it.
    #[must_use]
    pub const fn without(self, earlier: Self) -> Self {
        Self {
            prompt: self.prompt.saturating_sub(earlier.prompt),
            completion: self.completion.saturating_sub(earlier.completion),
            cached: self.cached.saturating_sub(earlier.cached),
            estimated: self.estimated,
            money: self.money.saturating_sub(earlier.money),
        }
    }

    /// Returns the tokens of prompt and reply.
    pub const fn total(self) -> u64 {
        self.prompt.saturating_add(self.completion)
    }
}

/// Spending of one worker, one branch or a whole board.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// Calls made.
    pub calls: u64,
    /// Tokens of settled calls.
    pub spent: u64,
    /// Tokens reserved for calls in progress.
    pub reserved: u64,
    /// Prompt tokens, part of `spent`.
    pub prompt: u64,
    /// Reply tokens, part of `spent`.
    pub completion: u64,
    /// Tokens that the provider had cached, part of `prompt`.
    pub cached: u64,
    /// Recorded time between calls and their outcomes, in milliseconds.
    pub running_ms: u64,
    /// Money of settled calls, in 10⁻⁹ of the currency, as far as their models have a price.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub money: u64,
    /// Money reserved for calls in progress.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub money_reserved: u64,
}

/// Reservation of a call, and the price by which it is settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallReservation<'a> {
    /// Tokens of prompt and reply.
    pub tokens: u64,
    /// Tokens of the reply, part of `tokens`.
    pub reply: u64,
    /// Price of the model; `None` for a call that counts as free.
    pub price: Option<&'a Price>,
}

impl CallReservation<'_> {
    /// Returns the money of the whole reservation.
    pub fn money(&self) -> u64 {
        let completion = self.reply.min(self.tokens);
        self.money_of(Usage { prompt: self.tokens - completion, completion, ..Usage::default() })
    }

    fn money_of(&self, usage: Usage) -> u64 {
        self.price.map_or(0, |price| usage.cost(price)).saturating_add(usage.money)
    }
}

impl Account {
    /// Returns the cost of the settled calls. Charged reservations without reported usage count as prompt.
    pub const fn usage(&self) -> Usage {
        let prompt = self.spent.saturating_sub(self.completion);
        Usage { prompt, completion: self.completion, cached: self.cached, estimated: false, money: self.money }
    }

    /// Returns the tokens that count against a budget.
    pub const fn committed(&self) -> u64 {
        self.spent.saturating_add(self.reserved)
    }

    /// Returns the money that counts against a budget.
    pub const fn committed_money(&self) -> u64 {
        self.money.saturating_add(self.money_reserved)
    }
}

/// Accounts of one board.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    board: Account,
    /// Boxed, as those of the branches, because a map reserves room for several values.
    workers: BTreeMap<WorkerName, Box<Account>>,
    #[serde(with = "crate::snapshot::pairs")]
    branches: BTreeMap<Branch, Box<Account>>,
    /// Cost of generating the blueprint; part of the board's account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    architect: Option<Account>,
}

/// Budget that does not suffice for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetExceeded {
    /// Exceeded budget.
    pub resource: Resource,
    /// Amount that the call would need.
    pub needed: u64,
    /// Amount that is left.
    pub left: u64,
    /// True if the budget may suffice once calls in progress are settled.
    pub may_be_freed: bool,
}

/// Answer to whether a call is affordable.
pub type Affordable = Result<(), BudgetExceeded>;

impl Ledger {
    getters! { self:
        /// Returns the account of the board.
        pub board -> &Account = &self.board;
        /// Returns the accounts of the workers that were called.
        pub workers -> &BTreeMap<WorkerName, Box<Account>> = &self.workers;
        /// Returns the accounts of the branches that were called.
        pub branches -> &BTreeMap<Branch, Box<Account>> = &self.branches;
        /// Returns the cost of a generated blueprint, if a model wrote it; the board's account includes it.
        pub architect -> Option<&Account> = self.architect.as_ref();
    }

    /// Returns the account of a worker; zeros before its first call.
    pub fn worker(&self, worker: &WorkerName) -> Account {
        self.workers.get(worker).map(|account| **account).unwrap_or_default()
    }

    /// Charges the board with the cost of its blueprint.
    pub(crate) fn charge(&mut self, architect: &Architect) {
        let Architect { calls, usage, admitted, .. } = architect;
        let price = admitted.as_ref().and_then(|admitted| admitted.price.as_ref());
        let account = Account {
            calls: u64::from(*calls),
            spent: usage.total(),
            prompt: usage.prompt,
            completion: usage.completion,
            cached: usage.cached,
            money: price.map_or(0, |price| usage.cost(price)),
            ..Account::default()
        };
        self.board = account;
        self.architect = Some(account);
    }

    /// Returns an error if a call of a branch cannot be afforded under these limits. The error is the first budget that
    /// does not suffice.
    pub fn check_budget(&self, limits: &CallLimits, branch: &Branch, call: CallReservation<'_>) -> Affordable {
        let account = self.worker(&branch.worker);
        let of_branch = self.branches.get(branch).map(|account| **account).unwrap_or_default();
        let tokens = |account: &Account| (call.tokens, account.spent, account.reserved);
        let money = |account: &Account| (call.money(), account.money, account.money_reserved);
        let budgets = [
            (Resource::BranchTokens, limits.rule_tokens, tokens(&of_branch)),
            (Resource::WorkerTokens, limits.worker_tokens, tokens(&account)),
            (Resource::BoardTokens, Some(limits.board.tokens), tokens(&self.board)),
            (Resource::WorkerMoney, limits.worker_money, money(&account)),
            (Resource::BoardMoney, limits.board.money, money(&self.board)),
        ];
        for (resource, limit, (needed, spent, reserved)) in budgets {
            let Some(limit) = limit else { continue };
            let taken =
                if mutants::is_active(Mutant::IgnoreReservedBudget) { spent } else { spent.saturating_add(reserved) };
            let left = limit.saturating_sub(taken);
            if needed > left {
                let may_be_freed = needed <= limit.saturating_sub(spent);
                return Err(BudgetExceeded { resource, needed, left, may_be_freed });
            }
        }
        Ok(())
    }

    /// Returns the money left under the tighter limit of board and worker: the part neither spent nor reserved, and the
    /// part not spent. `None` if neither has a limit.
    pub fn money_left(&self, limits: &CallLimits, worker: &WorkerName) -> Option<(u64, u64)> {
        let account = self.worker(worker);
        let left = |limit: Option<u64>, account: &Account| {
            let limit = limit?;
            Some((limit.saturating_sub(account.committed_money()), limit.saturating_sub(account.money)))
        };
        let both = left(limits.worker_money, &account).into_iter().chain(left(limits.board.money, &self.board));
        both.reduce(|one, other| (one.0.min(other.0), one.1.min(other.1)))
    }

    /// Returns an error if a call is not affordable after one that held `before` and cost `usage`.
    pub fn check_budget_after(
        &self,
        limits: &CallLimits,
        branch: &Branch,
        (before, usage): (CallReservation<'_>, Option<Usage>),
        call: CallReservation<'_>,
    ) -> Affordable {
        let mut settled = self.clone();
        settled.settle(branch, before, usage, 0);
        settled.check_budget(limits, branch, call)
    }

    /// Reserves the maximum cost of a call that is about to be made.
    pub(crate) fn reserve(&mut self, branch: &Branch, call: CallReservation<'_>) {
        let money = call.money();
        self.each(branch, |account| {
            account.calls = account.calls.saturating_add(1);
            account.reserved = account.reserved.saturating_add(call.tokens);
            account.money_reserved = account.money_reserved.saturating_add(money);
        });
    }

    /// Ends a reservation: charges the reported usage, or the whole reservation if the usage is unknown.
    pub(crate) fn settle(&mut self, branch: &Branch, call: CallReservation<'_>, usage: Option<Usage>, running_ms: u64) {
        let held = call.money();
        let money = usage.map_or(held, |usage| call.money_of(usage));
        self.each(branch, |account| {
            account.reserved = account.reserved.saturating_sub(call.tokens);
            account.money_reserved = account.money_reserved.saturating_sub(held);
            account.money = cap_tokens(account.money.saturating_add(money));
            account.running_ms = account.running_ms.saturating_add(running_ms);
            match usage {
                Some(usage) => {
                    account.spent = account.spent.saturating_add(usage.total());
                    account.prompt = account.prompt.saturating_add(usage.prompt);
                    account.completion = account.completion.saturating_add(usage.completion);
                    account.cached = account.cached.saturating_add(usage.cached);
                }
                None if mutants::is_active(Mutant::UnchargedCall) => {}
                None => account.spent = account.spent.saturating_add(call.tokens),
            }
        });
    }

    fn each(&mut self, branch: &Branch, mut change: impl FnMut(&mut Account)) {
        change(&mut self.board);
        change(self.workers.entry(branch.worker.clone()).or_default());
        change(self.branches.entry(branch.clone()).or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_costs_what_its_tokens_do_rounded_up() {
        let price = Price { input: 150_000_000, cached: 75_000_000, output: 600_000_000, currency: "USD".into() };
        let usage = |prompt, cached, completion| Usage { prompt, cached, completion, estimated: false, money: 0 };
        assert_eq!(usage(1000, 0, 100).cost(&price), 210_000);
        assert_eq!(usage(1000, 400, 100).cost(&price), 180_000);
        assert_eq!(usage(10, 20, 0).cost(&price), 750, "no more is cached than was sent");
        assert_eq!(usage(0, 0, 0).cost(&price), 0);
        let odd = Price { input: 1, cached: 1, output: 1, currency: "USD".into() };
        assert_eq!(usage(1, 0, 0).cost(&odd), 1);
        assert_eq!(usage(0, 0, u64::MAX).cost(&Price { output: u64::MAX, ..odd }), (1 << 53) - 1);
    }
}
