//! Where the time in the journal comes from.
//!
//! Boards never read a clock: the kernel actor stamps every input with [`Clock::now`]. Timers run on tokio's time, so
//! that under a paused runtime both stand still together.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use patchboard_kernel::id::Timestamp;
use tokio::time::Instant;

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// The present moment. May go backwards, and jump: each board evens that out for itself.
    fn now(&self) -> Timestamp;

    /// Milliseconds since some moment. They pass alike whoever sets the clock, and none while the machine sleeps.
    fn steady_ms(&self) -> u64;
}

/// How far a clock must be ahead to have jumped, in milliseconds. What is less is a correction.
const JUMP_MIN_MS: i64 = 2000;

/// The time of one board: it passes steadily and never goes back. A jump of the machine's clock is told, so that the board can
/// record it, and only then part of the time.
pub(crate) struct BoardClock {
    clock: Arc<dyn Clock>,
    /// Milliseconds from the steady time to the board's.
    ahead: AtomicI64,
}

impl BoardClock {
    /// A clock that shows what the machine's does.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let this = Self { clock, ahead: AtomicI64::new(i64::MIN) };
        this.go_on_after(Timestamp(i64::MIN));
        this
    }

    /// Shows what the machine's clock does, unless that is before the last moment of the board.
    pub(crate) fn go_on_after(&self, last: Timestamp) {
        let now = self.clock.now().max(last);
        self.ahead.store(now.0.saturating_sub(self.steady_ms()), Ordering::Relaxed);
    }

    /// The present moment of the board.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.steady_ms().saturating_add(self.ahead.load(Ordering::Relaxed)))
    }

    /// Takes over a jump forward of the machine's clock; returns how far it was, in milliseconds.
    pub(crate) fn jump(&self) -> Option<u64> {
        let jumped = self.clock.now().0.saturating_sub(self.now().0);
        (jumped >= JUMP_MIN_MS).then(|| {
            self.ahead.fetch_add(jumped, Ordering::Relaxed);
            jumped.unsigned_abs()
        })
    }

    fn steady_ms(&self) -> i64 {
        i64::try_from(self.clock.steady_ms()).unwrap_or(i64::MAX)
    }
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

    fn steady_ms(&self) -> u64 {
        static BEGAN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
        u64::try_from(BEGAN.elapsed().as_millis()).unwrap_or(u64::MAX)
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
        self.start.plus_ms(self.steady_ms())
    }

    fn steady_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{BoardClock, Clock};
    use patchboard_kernel::id::Timestamp;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

    #[derive(Default)]
    struct Hands {
        now: AtomicI64,
        steady: AtomicU64,
    }

    impl Clock for Hands {
        fn now(&self) -> Timestamp {
            Timestamp(self.now.load(Relaxed))
        }

        fn steady_ms(&self) -> u64 {
            self.steady.load(Relaxed)
        }
    }

    #[test]
    fn the_time_of_a_board_passes_steadily_whoever_sets_the_clock() {
        let hands = Arc::new(Hands::default());
        let set = |now, steady| {
            hands.now.store(now, Relaxed);
            hands.steady.store(steady, Relaxed);
        };
        set(1_000_000, 500);
        let clock = BoardClock::new(Arc::clone(&hands) as Arc<dyn Clock>);
        assert_eq!((clock.now(), clock.jump()), (Timestamp(1_000_000), None));
        // A correction, a jump forward, a clock that is set back.
        set(1_001_999, 500);
        assert_eq!((clock.jump(), clock.now()), (None, Timestamp(1_000_000)));
        set(9_000_600, 1100);
        assert_eq!(clock.now(), Timestamp(1_000_600));
        assert_eq!((clock.jump(), clock.now()), (Some(8_000_000), Timestamp(9_000_600)));
        set(5, 1200);
        assert_eq!((clock.jump(), clock.now()), (None, Timestamp(9_000_700)));
        // After a restart it goes on behind the last moment of the board.
        set(5, 0);
        let clock = BoardClock::new(Arc::clone(&hands) as Arc<dyn Clock>);
        clock.go_on_after(Timestamp(9_000_700));
        set(6, 10);
        assert_eq!((clock.jump(), clock.now()), (None, Timestamp(9_000_710)));
    }
}
