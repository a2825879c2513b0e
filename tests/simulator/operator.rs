//! The operator of a simulated board: resumes it when its provider is back, and retries what it gave up.

use patchboard_faults::random::Random;
use patchboard_kernel::board::Board;
use patchboard_kernel::id::{IdempotencyKey, InvocationId};
use patchboard_kernel::record::{Cause, Ended, LimitOverrides, Retried, WorkerLimitOverrides};

pub(super) struct Operator {
    /// Separate generator, so that the operator does not affect the other draws of a seed.
    pub(super) random: Random,
    /// Retries that are left; zero on most boards.
    left: u64,
}

impl Operator {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x09e7_a70e);
        let left = if random.percent(25) { 1 + random.below(3) } else { 0 };
        Self { random, left }
    }

    /// Draws if the operator waits for the end of an outage before resuming the board.
    pub(super) fn waits(&mut self) -> bool {
        self.random.percent(80)
    }

    /// Decides if an ended board is retried, and draws the retry.
    pub(super) fn retry_of(&mut self, board: &Board) -> Option<Retried> {
        let Ended { cause, .. } = board.ended()?;
        if self.left == 0 || !self.random.percent(85) {
            return None;
        }
        self.left -= 1;
        Some(self.retry(board, matches!(cause, Cause::Commits | Cause::Wall | Cause::Exhausted)))
    }

    /// Draws a retry of the whole board, a worker or an invocation. After a reached limit it mostly raises limits.
    pub(super) fn retry(&mut self, board: &Board, is_limited: bool) -> Retried {
        let random = &mut self.random;
        let (mut worker, mut invocation) = (None, None);
        match random.below(10) {
            0..4 => {}
            4..7 => worker = Some((*random.pick(&["planner", "doer", "checker", "nobody"])).into()),
            _ => {
                let given_up: Vec<_> = board.given_up().iter().map(|queued| queued.invocation).collect();
                let other = InvocationId(random.below(40));
                invocation = Some(if given_up.is_empty() { other } else { *random.pick(&given_up) });
            }
        }
        let mut limits = LimitOverrides::default();
        if random.percent(if is_limited { 90 } else { 25 }) {
            let now = board.limits();
            limits.commits = random.percent(80).then(|| now.commits.saturating_sub(2) + random.below(12));
            limits.tokens = random.percent(80).then(|| now.tokens.saturating_add(random.below(40_000)));
            limits.wall_ms = random.percent(80).then(|| now.wall_ms + random.below(120_000));
        }
        let token = random.percent(40).then(|| IdempotencyKey::from(format!("t{}", random.below(4))));
        let mut worker_limits = WorkerLimitOverrides::default();
        if random.percent(if is_limited { 60 } else { 15 }) {
            worker_limits.tokens = Some(random.below(80_000));
        }
        Retried { worker, invocation, limits, worker_limits, token }
    }
}
