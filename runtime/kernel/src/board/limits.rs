//! Limits in force of a board and of its calls.

use super::Board;
use crate::blueprint::{EDITS_MAX, JOURNAL_BYTES_MAX};
use crate::breaker::Branch;
use crate::id::WorkerName;
use crate::limits::{CallLimits, EffectiveLimits};
use crate::record::LimitOverrides;

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
