//! Request to retry the work that a board gave up: sent by the command `retry`, or given to the board itself; taken by
//! the route.

use patchboard_kernel::blueprint::Duration;
use patchboard_kernel::id::{IdempotencyKey, InvocationId, WorkerName};
use patchboard_kernel::money::Money;
use patchboard_kernel::record::{LimitOverrides, Retried, WorkerLimitOverrides};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Work to retry, and raised limits.
#[derive(Serialize, Deserialize, ToSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct RetryRequest {
    /// Only invocations of this worker.
    pub worker: Option<String>,
    /// Only this invocation.
    pub invocation: Option<u64>,
    /// Raised limits of the board.
    pub limits: RaisedLimits,
    /// Raised limits of `worker`, or of the worker of `invocation`.
    pub worker_limits: RaisedLimitsOfWorker,
}

/// Raised limits of a board. Each must be higher than the current one; else `bad_limit`.
#[derive(Serialize, Deserialize, ToSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct RaisedLimits {
    /// Tokens.
    pub tokens: Option<u64>,
    /// Running time, like `2h`.
    #[schema(value_type = Option<String>)]
    pub wall: Option<Duration>,
    /// Commits.
    pub commits: Option<u64>,
    /// Money, in the currency of the prices.
    #[schema(value_type = Option<f64>)]
    pub money: Option<Money>,
    /// Edits of files.
    pub edits: Option<u64>,
    /// Bytes of the journal.
    pub journal: Option<u64>,
}

/// Raised limits of a worker. Each must be higher than the current one; else `bad_limit`.
#[derive(Serialize, Deserialize, ToSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct RaisedLimitsOfWorker {
    /// Tokens of the worker, and of each rule that triggers it.
    pub tokens: Option<u64>,
    /// Money, in the currency of the prices.
    #[schema(value_type = Option<f64>)]
    pub money: Option<Money>,
}

impl RetryRequest {
    /// Returns the request as a board takes it.
    pub fn retried(self, token: Option<IdempotencyKey>) -> Retried {
        let Self { worker, invocation, limits, worker_limits } = self;
        let RaisedLimits { tokens, wall, commits, money, edits, journal } = limits;
        let money = money.map(|money| money.0);
        Retried {
            worker: worker.map(WorkerName::from),
            invocation: invocation.map(InvocationId),
            limits: LimitOverrides { tokens, wall_ms: wall.map(Duration::as_ms), commits, money, edits, journal },
            worker_limits: WorkerLimitOverrides {
                tokens: worker_limits.tokens,
                money: worker_limits.money.map(|money| money.0),
            },
            token,
        }
    }
}
