//! Source of the time in the journal.
//!
//! Boards never read a clock: the kernel actor stamps every input with [`Clock::now`]. Timers run on tokio's time, so
//! under a paused runtime both pause together.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use patchboard_kernel::id::Timestamp;

/// Source of time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the wall-clock time. May go backwards, and jump: each board compensates for that.
    fn now(&self) -> Timestamp;

    /// Returns milliseconds since a fixed moment. Independent of clock adjustments; does not advance while the machine
    /// sleeps.
    fn steady_ms(&self) -> u64;
}

/// Smallest lead of the wall clock that counts as a jump, in milliseconds. A smaller one is a correction.
const JUMP_MIN_MS: i64 = 2000;

/// Clock of one board: steady, and never goes back. A forward jump of the machine's clock is reported, so that the
/// board records it before its time includes it.
pub(crate) struct BoardClock {
    clock: Arc<dyn Clock>,
    /// Offset of the board's time from the steady time, in milliseconds.
    ahead: AtomicI64,
}

impl BoardClock {
    /// Creates a clock that agrees with the machine's.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let this = Self { clock, ahead: AtomicI64::new(i64::MIN) };
        this.start_after(Timestamp(i64::MIN));
        this
    }

    /// Sets the clock to the machine's, or to the last time of the board if that is later.
    pub(crate) fn start_after(&self, last: Timestamp) {
        let now = self.clock.now().max(last);
        self.ahead.store(now.0.saturating_sub(self.steady_ms()), Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.steady_ms().saturating_add(self.ahead.load(Ordering::Relaxed)))
    }

    /// Applies a forward jump of the machine's clock; returns its size in milliseconds.
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
        // A time before 1970 means that the machine's clock is not set; it reads as the epoch itself.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn steady_ms(&self) -> u64 {
        static BEGAN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
        u64::try_from(BEGAN.elapsed().as_millis()).unwrap_or(u64::MAX)
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
    fn the_time_of_a_board_passes_steadily_despite_clock_changes() {
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
        // After a restart the clock continues after the last time of the board.
        set(5, 0);
        let clock = BoardClock::new(Arc::clone(&hands) as Arc<dyn Clock>);
        clock.start_after(Timestamp(9_000_700));
        set(6, 10);
        assert_eq!((clock.jump(), clock.now()), (None, Timestamp(9_000_710)));
    }
}
