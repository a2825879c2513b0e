//! Counts what a board spends: reserved before a call, settled after it (SPEC section 8).
//!
//! A call that is never answered stays charged at its reservation, so that a crash or a retry neither hides a cost nor
//! counts one twice.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::board::LimitsOfCall;
use crate::breaker::Branch;
use crate::id::WorkerName;
use crate::money::Price;
use crate::planted::{self, Bug};
use crate::record::{Architect, Resource};

/// The largest integer that canonical JSON (RFC 8785) keeps exact, as all below it.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// As many tokens, but no more than a record can hold exactly (2^53 − 1).
pub(crate) fn bounded(tokens: u64) -> u64 {
    tokens.min(EXACT_MAX)
}

/// Tokens of one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub prompt: u64,
    /// Tokens of the reply.
    pub completion: u64,
    /// Tokens of the prompt that the provider had cached.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
    /// Whether the figures are our estimate, because the provider gave none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// Money of an inner board's calls, in 10⁻⁹ of the currency; 0 for a model's call, which is settled by its price.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub money: u64,
}

impl Usage {
    /// The same figures, none beyond what a record can hold exactly (2^53 − 1): a provider may say anything.
    #[must_use]
    pub fn bounded(self) -> Self {
        Self {
            prompt: bounded(self.prompt),
            completion: bounded(self.completion),
            cached: bounded(self.cached),
            estimated: self.estimated,
            money: bounded(self.money),
        }
    }

    /// Adds what another call cost. The sum counts as estimated if anything in it is.
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

    /// Prompt and reply.
    pub const fn total(self) -> u64 {
        self.prompt.saturating_add(self.completion)
    }
}

/// What one worker, one branch or a whole board has spent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// Calls made.
    pub calls: u64,
    /// Tokens of calls that are over.
    pub spent: u64,
    /// Tokens set aside for calls under way.
    pub reserved: u64,
    /// Of the spent: tokens of prompts.
    pub prompt: u64,
    /// Of the spent: tokens of replies.
    pub completion: u64,
    /// Of the prompts: tokens the provider had cached.
    pub cached: u64,
    /// Recorded time between calls and their outcomes, in milliseconds.
    pub running_ms: u64,
    /// Money of calls that are over, in 10⁻⁹ of the currency, as far as their models have a price.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub money: u64,
    /// Money set aside for calls under way.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub money_reserved: u64,
}

/// Reservation of a call, and the price by which it is settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold<'a> {
    /// Tokens of prompt and reply.
    pub tokens: u64,
    /// Of these: tokens of the reply.
    pub reply: u64,
    /// Price of the model; none: the call counts as free.
    pub price: Option<&'a Price>,
}

impl Hold<'_> {
    /// The money of all of it.
    pub fn money(&self) -> u64 {
        let completion = self.reply.min(self.tokens);
        self.money_of(Usage { prompt: self.tokens - completion, completion, ..Usage::default() })
    }

    fn money_of(&self, usage: Usage) -> u64 {
        self.price.map_or(0, |price| price.of(usage)).saturating_add(usage.money)
    }
}

impl Account {
    /// What the calls that are over have cost. What no call reported is not told apart into prompt and reply.
    pub const fn usage(&self) -> Usage {
        let prompt = self.spent.saturating_sub(self.completion);
        Usage { prompt, completion: self.completion, cached: self.cached, estimated: false, money: self.money }
    }

    /// Tokens that count against a budget.
    pub const fn committed(&self) -> u64 {
        self.spent.saturating_add(self.reserved)
    }

    /// Money that counts against a budget.
    pub const fn committed_money(&self) -> u64 {
        self.money.saturating_add(self.money_reserved)
    }
}

/// The accounts of one board.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    board: Account,
    workers: BTreeMap<WorkerName, Account>,
    #[serde(with = "crate::snapshot::pairs")]
    branches: BTreeMap<Branch, Account>,
    /// What the blueprint cost; part of the board's account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    architect: Option<Account>,
}

/// A budget that does not suffice for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortfall {
    /// Which budget.
    pub resource: Resource,
    /// What the call would need.
    pub needed: u64,
    /// What is left.
    pub left: u64,
    /// Whether calls under way hold so much that it may suffice once they are settled.
    pub may_be_freed: bool,
}

impl Ledger {
    /// The account of the board.
    pub const fn board(&self) -> &Account {
        &self.board
    }

    /// The accounts of the workers that were called.
    pub const fn workers(&self) -> &BTreeMap<WorkerName, Account> {
        &self.workers
    }

    /// The accounts of the branches that were called.
    pub const fn branches(&self) -> &BTreeMap<Branch, Account> {
        &self.branches
    }

    /// What it cost to have a model write the blueprint, if one did; the board's account includes it.
    pub const fn architect(&self) -> Option<&Account> {
        self.architect.as_ref()
    }

    /// Charges the board with what its blueprint cost.
    pub(crate) fn charge(&mut self, architect: &Architect) {
        let Architect { calls, usage, admitted, .. } = architect;
        let price = admitted.as_ref().and_then(|admitted| admitted.price.as_ref());
        let account = Account {
            calls: u64::from(*calls),
            spent: usage.total(),
            prompt: usage.prompt,
            completion: usage.completion,
            cached: usage.cached,
            money: price.map_or(0, |price| price.of(*usage)),
            ..Account::default()
        };
        self.board = account;
        self.architect = Some(account);
    }

    /// Returns an error if a call of a branch cannot be afforded under these limits.
    ///
    /// # Errors
    /// The first budget that does not suffice.
    pub fn afford(&self, limits: &LimitsOfCall, branch: &Branch, call: Hold<'_>) -> Result<(), Shortfall> {
        let account = self.workers.get(&branch.worker).copied().unwrap_or_default();
        let of_branch = self.branches.get(branch).copied().unwrap_or_default();
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
            let taken = if planted::is(Bug::Overdraft) { spent } else { spent.saturating_add(reserved) };
            let left = limit.saturating_sub(taken);
            if needed > left {
                let may_be_freed = needed <= limit.saturating_sub(spent);
                return Err(Shortfall { resource, needed, left, may_be_freed });
            }
        }
        Ok(())
    }

    /// Returns the money of the tighter limit of the board and a worker that is neither spent nor reserved, and that is not
    /// spent; none if neither has a limit.
    pub fn money_left(&self, limits: &LimitsOfCall, worker: &WorkerName) -> Option<(u64, u64)> {
        let account = self.workers.get(worker).copied().unwrap_or_default();
        let left = |limit: Option<u64>, account: &Account| {
            let limit = limit?;
            Some((limit.saturating_sub(account.committed_money()), limit.saturating_sub(account.money)))
        };
        let both = left(limits.worker_money, &account).into_iter().chain(left(limits.board.money, &self.board));
        both.reduce(|one, other| (one.0.min(other.0), one.1.min(other.1)))
    }

    /// Returns an error if a call cannot be afforded that follows one which held `before` and cost `usage`.
    ///
    /// # Errors
    /// The first budget that does not suffice.
    pub fn afford_after(
        &self,
        limits: &LimitsOfCall,
        branch: &Branch,
        (before, usage): (Hold<'_>, Option<Usage>),
        call: Hold<'_>,
    ) -> Result<(), Shortfall> {
        let mut settled = self.clone();
        settled.settle(branch, before, usage, 0);
        settled.afford(limits, branch, call)
    }

    /// Sets aside what a call that is about to be made may take.
    pub(crate) fn reserve(&mut self, branch: &Branch, call: Hold<'_>) {
        let money = call.money();
        self.each(branch, |account| {
            account.calls = account.calls.saturating_add(1);
            account.reserved = account.reserved.saturating_add(call.tokens);
            account.money_reserved = account.money_reserved.saturating_add(money);
        });
    }

    /// Ends a reservation: by what the call cost, or by the whole of it if nobody will ever know.
    pub(crate) fn settle(&mut self, branch: &Branch, call: Hold<'_>, usage: Option<Usage>, running_ms: u64) {
        let held = call.money();
        let money = usage.map_or(held, |usage| call.money_of(usage));
        self.each(branch, |account| {
            account.reserved = account.reserved.saturating_sub(call.tokens);
            account.money_reserved = account.money_reserved.saturating_sub(held);
            account.money = bounded(account.money.saturating_add(money));
            account.running_ms = account.running_ms.saturating_add(running_ms);
            match usage {
                Some(usage) => {
                    account.spent = account.spent.saturating_add(usage.total());
                    account.prompt = account.prompt.saturating_add(usage.prompt);
                    account.completion = account.completion.saturating_add(usage.completion);
                    account.cached = account.cached.saturating_add(usage.cached);
                }
                None if planted::is(Bug::FreeOfCharge) => {}
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}
