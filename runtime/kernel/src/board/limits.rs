//! Limits in force: those of the blueprint, or those to which an operator has raised them.

use super::Board;
use crate::blueprint::{EDITS_MAX, JOURNAL_BYTES_MAX};
use crate::breaker::Branch;
use crate::id::WorkerName;
use crate::record::{LimitOverrides, WorkerLimitOverrides};

/// Limits of a board in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EffectiveLimits {
    /// Commits, without edits of files.
    pub commits: u64,
    /// Edits of files.
    pub edits: u64,
    /// Tokens.
    pub tokens: u64,
    /// Running time, in milliseconds.
    pub wall_ms: u64,
    /// Bytes of the journal.
    pub journal: u64,
    /// Money in 10⁻⁹ of the currency; `None`: no separate limit.
    pub money: Option<u64>,
}

impl EffectiveLimits {
    /// Raises limits where these are higher.
    #[must_use]
    pub fn raised_by(self, raised: LimitOverrides) -> Self {
        let LimitOverrides { tokens, wall_ms, commits, money, edits, journal } = raised;
        Self {
            commits: self.commits.max(commits.unwrap_or(0)),
            edits: self.edits.max(edits.unwrap_or(0)),
            tokens: self.tokens.max(tokens.unwrap_or(0)),
            wall_ms: self.wall_ms.max(wall_ms.unwrap_or(0)),
            journal: self.journal.max(journal.unwrap_or(0)),
            money: higher(self.money, money),
        }
    }
}

/// Limits in force of a call: those of the board, of its worker, and of the rule that runs the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallLimits {
    /// Limits of the board.
    pub board: EffectiveLimits,
    /// Tokens of the worker.
    pub worker_tokens: Option<u64>,
    /// Money of the worker, in 10⁻⁹ of the currency.
    pub worker_money: Option<u64>,
    /// Tokens of the rule's calls of the worker.
    pub rule_tokens: Option<u64>,
}

impl CallLimits {
    /// Raises limits where these are higher.
    #[must_use]
    pub fn raised_by(self, raised: LimitOverrides, of_worker: WorkerLimitOverrides) -> Self {
        Self {
            board: self.board.raised_by(raised),
            worker_tokens: higher(self.worker_tokens, of_worker.tokens),
            worker_money: higher(self.worker_money, of_worker.money),
            rule_tokens: higher(self.rule_tokens, of_worker.tokens),
        }
    }
}

/// Raises a limit, if there is one.
fn higher(limit: Option<u64>, raised: Option<u64>) -> Option<u64> {
    limit.map(|limit| limit.max(raised.unwrap_or(0)))
}

impl Board {
    /// Returns the limits of the board in force.
    pub fn limits(&self) -> EffectiveLimits {
        let limits = &self.plan.blueprint.limits;
        let of_blueprint = EffectiveLimits {
            commits: limits.commits,
            edits: limits.edits.unwrap_or(EDITS_MAX),
            tokens: limits.tokens,
            wall_ms: limits.wall.as_ms(),
            journal: limits.journal.unwrap_or(JOURNAL_BYTES_MAX),
            money: limits.money.map(|money| money.0),
        };
        of_blueprint.raised_by(self.raised)
    }

    /// Returns the limits in force of the calls of a branch.
    pub fn call_limits(&self, branch: &Branch) -> CallLimits {
        let blueprint = &self.plan.blueprint;
        let of_worker = blueprint.workers.get(&branch.worker).map(|worker| &worker.limits);
        let rule = branch.rule.as_ref().and_then(|name| blueprint.rules.iter().find(|rule| rule.name == *name));
        let of_blueprint = CallLimits {
            board: self.limits(),
            worker_tokens: of_worker.and_then(|limits| limits.tokens),
            worker_money: of_worker.and_then(|limits| limits.money).map(|money| money.0),
            rule_tokens: rule.and_then(|rule| rule.limits.tokens),
        };
        let raised = self.raised_of_workers.get(&branch.worker).copied().unwrap_or_default();
        of_blueprint.raised_by(LimitOverrides::default(), raised)
    }

    /// Returns the limits in force of a worker's calls, independent of the rule.
    pub fn worker_call_limits(&self, worker: &WorkerName) -> CallLimits {
        self.call_limits(&Branch { rule: None, worker: worker.clone() })
    }

    /// Returns the limits in force of a worker's calls, without a rule and by each rule that may run the worker.
    pub(super) fn limits_by_rule<'a>(&'a self, worker: &'a WorkerName) -> impl Iterator<Item = CallLimits> + 'a {
        let rules = self.plan.rules.iter().filter(|rule| rule.workers.contains(worker));
        let rules = rules.map(|rule| Some(rule.name.clone()));
        std::iter::once(None).chain(rules).map(|rule| self.call_limits(&Branch { rule, worker: worker.clone() }))
    }
}
