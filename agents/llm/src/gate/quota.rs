//! Per-minute quota configured by the operator: GCRA driven by the gate's time.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota as Rate, RateLimiter};

const MINUTE: Duration = Duration::from_secs(60);

/// Seconds of the quota that may be used at once; the first minute exceeds the quota by 5 % at most.
const BURST_SECONDS: u32 = 3;

/// Least wait that is returned, so that a timer always lies in the future.
const WAIT_MIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Quota {
    clock: Time,
    limiter: RateLimiter<NotKeyed, InMemoryState, Time, NoOpMiddleware<Nanos>>,
    allowance: NonZeroU32,
    burst: NonZeroU32,
    /// Cells admitted beyond the burst by the last admission, paid off before the next one.
    debt: u32,
}

impl Quota {
    pub(super) fn per_minute(allowance: NonZeroU32, now: Duration) -> Self {
        let clock = Time::default();
        clock.set(now);
        let per_burst = allowance.get().div_ceil(60 / BURST_SECONDS);
        let burst = NonZeroU32::new(per_burst).unwrap_or(NonZeroU32::MIN);
        // A minute divided by at most 2^32 is at least 13 nanoseconds.
        let rate = Rate::with_period(MINUTE / allowance.get()).expect("the period is not zero").allow_burst(burst);
        Self { limiter: RateLimiter::direct_with_clock(rate, clock.clone()), clock, allowance, burst, debt: 0 }
    }

    /// Takes cells, or returns the time of the next attempt. A request larger than the burst is admitted when the
    /// bucket is full; one larger than the quota is charged as the whole quota.
    pub(super) fn take(&mut self, now: Duration, cells: u64) -> Result<(), Duration> {
        self.clock.set(now);
        while let Some(debt) = NonZeroU32::new(self.debt) {
            let part = debt.min(self.burst);
            self.check(now, part)?;
            self.debt -= part.get();
        }
        let cells = u32::try_from(cells).unwrap_or(u32::MAX).min(self.allowance.get());
        let cells = NonZeroU32::new(cells).unwrap_or(NonZeroU32::MIN);
        let part = cells.min(self.burst);
        self.check(now, part)?;
        self.debt = cells.get() - part.get();
        Ok(())
    }

    /// Returns the time at which all `cells` can be taken, given that a part can be taken at `next`.
    pub(super) fn whole_at(&self, next: Duration, cells: u64) -> Duration {
        if self.debt == 0 {
            return next;
        }
        let cells = u32::try_from(cells).unwrap_or(u32::MAX).clamp(1, self.burst.get());
        let behind = self.debt.saturating_sub(self.burst.get()).saturating_add(cells);
        next + (MINUTE / self.allowance.get()).saturating_mul(behind)
    }

    fn check(&self, now: Duration, cells: NonZeroU32) -> Result<(), Duration> {
        let checked = self.limiter.check_n(cells).expect("no part is larger than the burst");
        checked.map_err(|until| now + until.wait_time_from(self.clock.now()).max(WAIT_MIN))
    }
}

/// Clock of the limiter: the time of the event that the gate handles.
#[derive(Clone, Debug, Default)]
struct Time(Arc<AtomicU64>);

impl Time {
    fn set(&self, now: Duration) {
        self.0.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX / 2), Ordering::Relaxed);
    }
}

impl Clock for Time {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::from(self.0.load(Ordering::Relaxed))
    }
}
