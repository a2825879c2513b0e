//! Costs of calls: reserved before the call, settled after it, and never beyond the budget.

use std::collections::BTreeMap;

use patchboard_kernel::board::{self, Board, Input, Proposal, ProposalSource, ReplyBody, Step};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::InvocationId;
use patchboard_kernel::ledger;
use patchboard_kernel::record::{Author, Budget, Continued, Invoked, Resource};
use serde_json::Value;

use super::Branch;

/// Upper bound, in tokens, on a prompt of a simulated board plus the longest reply to it.
const CALL_MAX: u64 = 4_500;

pub(super) struct Ledger {
    seed: u64,
    is_usual: bool,
    /// Tokens of the longest reply, by worker; only language models.
    reply_tokens: BTreeMap<String, u64>,
    limits: BTreeMap<Owner, u64>,
    accounts: BTreeMap<Owner, Account>,
    calls: BTreeMap<InvocationId, Call>,
    /// Reported tokens of the call that the present input answers.
    answered: Option<(InvocationId, u64)>,
    /// Reservation for another call that the present input requests.
    wanted: Option<u64>,
    /// Budget that cannot cover it even if the calls under way cost nothing; must be reported.
    short: Option<Resource>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Owner {
    Branch(Branch),
    Worker(String),
    Board,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Account {
    calls: u64,
    spent: u64,
    reserved: u64,
}

/// A call under way.
struct Call {
    branch: Branch,
    attempt: u32,
    /// Tokens of the prompt.
    prompt: u64,
    /// Tokens of the longest reply.
    reply: u64,
    reserved: u64,
}

impl Ledger {
    pub(super) fn new(seed: u64, is_usual: bool, blueprint: &Value) -> Self {
        let (mut reply_tokens, mut limits) = (BTreeMap::new(), BTreeMap::new());
        for (name, worker) in blueprint["workers"].as_object().into_iter().flatten() {
            let tokens = |of: &str| worker["limits"][of].as_u64();
            if worker["agent"] == "llm" {
                reply_tokens.insert(name.clone(), tokens("reply_tokens").expect("it is spelled out"));
            }
            limits.extend(tokens("tokens").map(|limit| (Owner::Worker(name.clone()), limit)));
        }
        for rule in blueprint["rules"].as_array().into_iter().flatten() {
            let text = |of: &str| rule[of].as_str().unwrap_or_default().to_owned();
            let branch = Owner::Branch((Some(text("name")), text("run")));
            limits.extend(rule["limits"]["tokens"].as_u64().map(|limit| (branch, limit)));
        }
        limits.extend(blueprint["limits"]["tokens"].as_u64().map(|limit| (Owner::Board, limit)));
        let (accounts, calls) = (BTreeMap::new(), BTreeMap::new());
        Self { seed, is_usual, reply_tokens, limits, accounts, calls, answered: None, wanted: None, short: None }
    }

    /// Raises the board's limit of tokens, and those of a worker and of the rules that run it.
    pub(super) fn raise(&mut self, tokens: Option<u64>, of_worker: Option<(&str, u64)>) {
        if self.is_raised(tokens) {
            self.limits.extend(tokens.map(|tokens| (Owner::Board, tokens)));
        }
        for (owner, limit) in &mut self.limits {
            *limit = (*limit).max(raised(owner, None, of_worker));
        }
    }

    /// Returns true if higher limits cover a call of a branch. `None` if the length of its prompt decides.
    pub(super) fn affords(&self, branch: &Branch, tokens: Option<u64>, of_worker: Option<(&str, u64)>) -> Option<bool> {
        let Some(reply) = self.reply_tokens.get(&branch.1) else { return Some(true) };
        let (mut is_short, mut is_ample, mut is_reserved) = (false, true, false);
        for owner in of(branch) {
            let account = self.accounts.get(&owner).copied().unwrap_or_default();
            let Some(limit) = self.limits.get(&owner).map(|limit| (*limit).max(raised(&owner, tokens, of_worker)))
            else {
                continue;
            };
            is_reserved |= account.reserved > 0;
            is_short |= limit.saturating_sub(account.spent) < *reply;
            is_ample &= limit.saturating_sub(account.spent + account.reserved) >= self.call_max();
        }
        match (is_short && !is_reserved, is_ample) {
            (true, _) => Some(false),
            (false, true) => Some(true),
            (false, false) => None,
        }
    }

    /// Returns true if the board's limit of tokens would be higher.
    pub(super) fn is_raised(&self, tokens: Option<u64>) -> bool {
        tokens > self.limits.get(&Owner::Board).copied()
    }

    /// Returns true if the board's tokens would still be spent.
    pub(super) fn is_spent(&self, tokens: Option<u64>) -> bool {
        let account = self.accounts.get(&Owner::Board).copied().unwrap_or_default();
        let limit = tokens.max(self.limits.get(&Owner::Board).copied());
        limit.is_some_and(|limit| account.spent + account.reserved >= limit)
    }

    /// Records an input before the board handles it.
    pub(super) fn hears(&mut self, input: Option<&Input>) {
        let answer = match input {
            Some(Input::Propose(Proposal {
                from: ProposalSource::Attempt { invocation, .. }, usage, reply, ..
            })) => Some((*invocation, *usage, Some(reply))),
            Some(Input::AgentFailed { invocation, usage, .. } | Input::Continue { invocation, usage, .. }) => {
                Some((*invocation, *usage, None))
            }
            _ => None,
        };
        self.wanted = match input {
            Some(Input::Continue { reserve, .. }) => Some(*reserve),
            _ => None,
        };
        self.answered = answer.and_then(|(invocation, usage, reply)| {
            let counted = usage.map(|usage| usage.prompt + usage.completion);
            Some((invocation, counted.or_else(|| self.estimate(invocation, reply?))?))
        });
    }

    /// Returns the reported tokens of an invocation's call.
    fn reported_tokens(&self, invocation: InvocationId) -> Option<u64> {
        self.answered.filter(|(of, _)| *of == invocation).map(|(_, tokens)| tokens)
    }

    /// Estimates the tokens of an uncounted call: the prompt, and the reply at four characters a token.
    fn estimate(&self, invocation: InvocationId, reply: &ReplyBody) -> Option<u64> {
        let call = self.calls.get(&invocation)?;
        self.reply_tokens.get(&call.branch.1)?;
        let text = match reply {
            ReplyBody::Text(text)
            | ReplyBody::Derived { source: text, .. }
            | ReplyBody::Elided { excerpt: text, .. } => text.clone(),
            ReplyBody::Json(value) => value.to_string(),
        };
        Some(call.prompt + (text.chars().count() as u64).div_ceil(4))
    }

    /// Checks that the budget covers a call, and reserves its tokens.
    pub(super) fn called(&mut self, invoked: &Invoked, branch: &Branch, step: &Step) {
        let seed = self.seed;
        let is_it = |call: &&board::Call| (call.invocation, call.attempt) == (invoked.invocation, invoked.attempt);
        let call = step.effects.calls.iter().find(is_it);
        let prompt = &call.unwrap_or_else(|| panic!("SEED={seed}: a call that is recorded, and not made")).prompt;
        let prompt = (prompt.system.chars().count() as u64 + prompt.user.chars().count() as u64).div_ceil(4);
        let needed = self.reply_tokens.get(&branch.1).map_or(0, |reply| prompt + reply);
        let is_due = if self.is_usual { invoked.reserved == needed } else { invoked.reserved >= needed };
        assert!(is_due, "SEED={seed}: {} tokens are reserved for a call that needs {needed}", invoked.reserved);
        let needed = invoked.reserved;
        assert!(needed <= self.call_max(), "SEED={seed}: a call of {needed} tokens");
        for owner in of(branch) {
            let left = self.left(&owner);
            assert!(left.is_none_or(|left| needed <= left), "SEED={seed}: a call beyond its budget, of {owner:?}");
            let account = self.accounts.entry(owner).or_default();
            account.calls += 1;
            account.reserved += needed;
        }
        let call = Call {
            branch: branch.clone(),
            attempt: invoked.attempt,
            prompt,
            reply: needed - prompt.min(needed),
            reserved: needed,
        };
        let before = self.calls.insert(invoked.invocation, call);
        assert!(before.is_none(), "SEED={seed}: a call is made while another one is under way");
    }

    /// Returns the maximum tokens of a call. Workers that show or write whole documents have no maximum.
    const fn call_max(&self) -> u64 {
        if self.is_usual { CALL_MAX } else { u64::MAX }
    }

    /// Returns the rest of a budget, if there is one, after the reservations of calls under way.
    fn left(&self, owner: &Owner) -> Option<u64> {
        let account = self.accounts.get(owner).copied().unwrap_or_default();
        self.limits.get(owner).map(|limit| limit.saturating_sub(account.spent + account.reserved))
    }

    /// Settles a call of an attempt, and reserves the tokens of the next one.
    pub(super) fn continued(&mut self, continued: &Continued) {
        let seed = self.seed;
        let attempt = continued.by.attempt.as_ref().unwrap_or_else(|| panic!("SEED={seed}: nobody goes on"));
        let cost = self.reported_tokens(attempt.invocation);
        let Some(Call { branch, attempt: number, reply, .. }) = self.settle(attempt.invocation, cost) else {
            panic!("SEED={seed}: an attempt goes on without a call")
        };
        assert_eq!(number, attempt.number, "SEED={seed}: another attempt goes on");
        let reserved = continued.reserved;
        assert_eq!(Some(reserved), self.wanted, "SEED={seed}: so much was wanted for the next call");
        for owner in of(&branch) {
            let left = self.left(&owner);
            assert!(
                left.is_none_or(|left| reserved <= left),
                "SEED={seed}: it goes on beyond its budget, of {owner:?}"
            );
            let account = self.accounts.entry(owner).or_default();
            account.calls += 1;
            account.reserved += reserved;
        }
        // The next prompt is unknown: assume all that is not the reply.
        let call = Call { branch, attempt: number, prompt: reserved.saturating_sub(reply), reply, reserved };
        self.calls.insert(attempt.invocation, call);
    }

    /// Settles the call of an attempt, unless a person has answered: then it was settled before.
    pub(super) fn answered(&mut self, by: &Author) {
        let Some(attempt) = &by.attempt else { return };
        let cost = self.reported_tokens(attempt.invocation);
        if self.calls.get(&attempt.invocation).is_some_and(|call| call.attempt == attempt.number) {
            assert_eq!(by.approval, None, "SEED={}: a person answers for a call under way", self.seed);
            drop(self.settle(attempt.invocation, cost));
        }
    }

    /// Settles a failed call. An unreachable or declined call cost nothing; the cost of other failures is unknown.
    pub(super) fn failed(&mut self, by: &Author, code: FailureCode) {
        let Some(attempt) = &by.attempt else { return };
        let is_free = match code {
            FailureCode::Unreachable
            | FailureCode::NotConfigured
            | FailureCode::CassetteMiss
            | FailureCode::Refused
            | FailureCode::RateLimited => true,
            FailureCode::Timeout
            | FailureCode::Truncated
            | FailureCode::Empty
            | FailureCode::Protocol
            | FailureCode::Crashed
            | FailureCode::LeaseExpired
            | FailureCode::BudgetExhausted
            | FailureCode::Lost => false,
        };
        let cost = self.reported_tokens(attempt.invocation).or(is_free.then_some(0));
        let call = self.settle(attempt.invocation, cost);
        if let (FailureCode::BudgetExhausted, Some(call), Some(wanted)) = (code, call, self.wanted) {
            let resources = [Resource::BranchTokens, Resource::WorkerTokens, Resource::BoardTokens];
            let mut budgets = of(&call.branch).into_iter().zip(resources);
            let short = budgets.find(|(owner, _)| self.left(owner).is_some_and(|left| left < wanted));
            let (owner, resource) = short.unwrap_or_else(|| panic!("SEED={}: {wanted} tokens are left", self.seed));
            let spent = self.accounts.get(&owner).copied().unwrap_or_default().spent;
            self.short = (self.limits[&owner].saturating_sub(spent) < wanted).then_some(resource);
        }
    }

    /// Settles calls of closed invocations, at unknown cost.
    pub(super) fn closed(&mut self, is_open: impl Fn(InvocationId) -> bool) {
        let closed: Vec<_> = self.calls.keys().copied().filter(|invocation| !is_open(*invocation)).collect();
        closed.into_iter().for_each(|invocation| drop(self.settle(invocation, None)));
    }

    /// Settles a call; an unknown cost counts as the whole reservation.
    fn settle(&mut self, invocation: InvocationId, cost: Option<u64>) -> Option<Call> {
        let call = self.calls.remove(&invocation)?;
        for owner in of(&call.branch) {
            let account = self.accounts.entry(owner).or_default();
            account.reserved -= call.reserved;
            account.spent += cost.unwrap_or(call.reserved);
        }
        Some(call)
    }

    /// Checks that a reported budget would be short even if all calls under way cost nothing.
    pub(super) fn ran_short(&mut self, budget: &Budget, branch: &Branch) {
        let seed = self.seed;
        let is_of_attempt = self.short.take_if(|short| *short == budget.resource).is_some();
        let owner = match budget.resource {
            Resource::BranchTokens => Owner::Branch(branch.clone()),
            Resource::WorkerTokens => Owner::Worker(branch.1.clone()),
            Resource::BoardTokens => Owner::Board,
            // No model of the simulator has a price.
            Resource::Invocations | Resource::WorkerMoney | Resource::BoardMoney => return,
        };
        let account = self.accounts.get(&owner).copied().unwrap_or_default();
        let left = self.left(&owner);
        assert_eq!(left, Some(budget.left), "SEED={seed}: so much is left of the tokens of {owner:?}");
        let is_due = if is_of_attempt { self.wanted == Some(budget.needed) } else { budget.needed <= self.call_max() };
        assert!(is_due, "SEED={seed}: a call of {} tokens", budget.needed);
        let may_be_left = self.limits[&owner].saturating_sub(account.spent);
        assert!(budget.needed > may_be_left, "SEED={seed}: a budget is short that may yet suffice, of {owner:?}");
    }

    /// Returns true if a call of the branch may have to wait for reservations of calls under way.
    pub(super) fn may_wait(&self, branch: &Branch) -> bool {
        let is_held_up = |owner: Owner| {
            let is_reserved = self.accounts.get(&owner).is_some_and(|account| account.reserved > 0);
            is_reserved && self.left(&owner).is_some_and(|left| left < self.call_max())
        };
        self.reply_tokens.contains_key(&branch.1) && of(branch).into_iter().any(is_held_up)
    }

    /// Compares the board's accounts with the model's.
    pub(super) fn compare(&self, board: &Board) {
        let seed = self.seed;
        assert_eq!(self.short, None, "SEED={seed}: a budget is short, and nothing is said of it");
        let account = |account: &ledger::Account| Account {
            calls: account.calls,
            spent: account.spent,
            reserved: account.reserved,
        };
        let ledger = board.ledger();
        let workers = ledger.workers().iter();
        let branches = ledger.branches().iter();
        let named = |branch: &patchboard_kernel::breaker::Branch| {
            Owner::Branch((branch.rule.as_ref().map(ToString::to_string), branch.worker.to_string()))
        };
        let mut found: BTreeMap<_, _> = branches.map(|(branch, of)| (named(branch), account(of))).collect();
        found.extend(workers.map(|(worker, of)| (Owner::Worker(worker.to_string()), account(of))));
        if !self.accounts.is_empty() {
            found.insert(Owner::Board, account(ledger.board()));
        }
        assert_eq!(found, self.accounts, "SEED={seed}: other accounts");
    }
}

/// Returns the raised limit of this account; 0 if the operator did not raise it.
fn raised(owner: &Owner, of_board: Option<u64>, of_worker: Option<(&str, u64)>) -> u64 {
    match owner {
        Owner::Board => of_board.unwrap_or(0),
        Owner::Worker(worker) | Owner::Branch((_, worker)) => {
            of_worker.filter(|(named, _)| named == worker).map_or(0, |(_, tokens)| tokens)
        }
    }
}

/// Returns the accounts that a call of a branch is charged to.
fn of(branch: &Branch) -> [Owner; 3] {
    [Owner::Branch(branch.clone()), Owner::Worker(branch.1.clone()), Owner::Board]
}
