//! Where the time in the journal comes from.
//!
//! Boards never read a clock: the kernel actor stamps every input with [`Clock::now`]. Timers run on tokio's time, so
//! that under a paused runtime both stand still together.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use patchboard_kernel::id::Timestamp;
use tokio::time::Instant;

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// The present moment. May go backwards; the kernel actor evens that out.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        // A clock before 1970 is a machine whose clock is not set; it reads as the epoch itself.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A clock that starts at a given moment and follows tokio's time; with that paused, it moves only as timers fire or
/// as a test advances it.
#[derive(Clone, Copy, Debug)]
pub struct VirtualClock {
    start: Timestamp,
    origin: Instant,
}

impl VirtualClock {
    /// A clock that shows `start` now.
    pub fn starting_at(start: Timestamp) -> Self {
        Self { start, origin: Instant::now() }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.start.plus_ms(u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}
