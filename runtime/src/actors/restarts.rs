//! Decides if and when failed actors are restarted.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::RuntimeError;
use crate::options::RestartPolicy;

/// Returns true if a restart from the journal may help.
pub(super) const fn may_pass(cause: &RuntimeError) -> bool {
    match cause {
        RuntimeError::Journal(error) => error.is_transient(),
        other => matches!(other, RuntimeError::Crashed { .. } | RuntimeError::Interrupted(_)),
    }
}

/// History of recent failures.
pub(super) struct Failures {
    policy: RestartPolicy,
    recent: VecDeque<Instant>,
}

impl Failures {
    pub(super) const fn new(policy: RestartPolicy) -> Self {
        Self { policy, recent: VecDeque::new() }
    }

    /// Returns the pause before the restart after a failure now; none if there were too many.
    pub(super) fn next_restart(&mut self, now: Instant) -> Option<Duration> {
        self.recent.push_back(now);
        while self.recent.front().is_some_and(|failure| now.duration_since(*failure) > self.policy.window) {
            self.recent.pop_front();
        }
        let count = u32::try_from(self.recent.len()).unwrap_or(u32::MAX);
        if count > self.policy.max {
            return None;
        }
        let doublings = count.checked_sub(2).map(|doublings| doublings.min(10));
        Some(doublings.map_or(Duration::ZERO, |doublings| self.policy.backoff * 2_u32.pow(doublings)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_counted_within_the_window_and_come_slower_each_time() {
        let policy = RestartPolicy { max: 4, window: Duration::from_secs(60), backoff: Duration::from_millis(20) };
        let mut failures = Failures::new(policy);
        let start = Instant::now();
        let mut after = |seconds| failures.next_restart(start + Duration::from_secs(seconds)).map(|p| p.as_millis());
        assert_eq!([after(0), after(1), after(2), after(3)], [Some(0), Some(20), Some(40), Some(80)]);
        assert_eq!(after(4), None);
        assert_eq!(after(100), Some(0), "the failures of the first seconds are forgotten");
    }
}
