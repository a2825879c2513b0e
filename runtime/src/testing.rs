//! Equipment of tests: a clock that they move.

use patchboard_kernel::id::Timestamp;
use tokio::time::Instant;

use crate::clock::Clock;

/// Clock that starts at a given time and follows tokio's time; with that paused, it moves only as timers fire or as a
/// test advances it.
#[derive(Clone, Copy, Debug)]
pub struct VirtualClock {
    start: Timestamp,
    origin: Instant,
}

impl VirtualClock {
    /// Creates a clock that shows `start` now.
    pub fn starting_at(start: Timestamp) -> Self {
        Self { start, origin: Instant::now() }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.start.plus_ms(self.steady_ms())
    }

    fn steady_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
