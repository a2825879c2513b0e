//! Limits in force: those of the blueprint, or those to which an operator has raised them.

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

fn higher(limit: Option<u64>, raised: Option<u64>) -> Option<u64> {
    limit.map(|limit| limit.max(raised.unwrap_or(0)))
}
