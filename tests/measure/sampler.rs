//! Takes samples of several sides in turns, and provides clocks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Target duration of a side's turn: long enough to work with warm caches, and short enough that all sides see equal
/// machine load.
const TURN: Duration = Duration::from_millis(2);
/// Maximum samples of one turn.
const TURN_MAX: u32 = 64;
/// Samples before the first that counts. The first ones pay for memory that was freed when documents were made.
const WARM_UP: u32 = 32;
/// Duration above which a side is slow even with warm caches.
const SLOW: Duration = Duration::from_millis(100);

/// Returns the processor time of this thread. Other processes lengthen it only through the caches.
pub fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Returns the result of `work`, and its processor time.
pub fn on_cpu<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = cpu_time();
    let done = work();
    (done, cpu_time().saturating_sub(began))
}

/// Returns the result of `work`, and its wall-clock time.
pub fn on_wall<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed())
}

/// Samples of one side, by the name of the timed work.
#[derive(Clone, Debug, Default)]
pub struct Laps {
    taken: BTreeMap<&'static str, Vec<Duration>>,
}

impl Laps {
    /// Records a sample.
    pub fn note(&mut self, what: &'static str, time: Duration) {
        self.taken.entry(what).or_default().push(time);
    }

    /// Returns the statistics of the named samples; `None` without samples.
    pub fn stats(&self, what: &str) -> Option<Stats> {
        Stats::of(self.taken.get(what)?)
    }
}

/// One side of a comparison: does its work once, and times the part that counts.
pub type Side<'a> = Box<dyn FnMut(&mut Laps) + 'a>;

/// Runs the sides in turns for about `time`, and at least `least` turns; each turn begins with another side. A slow
/// side works once per turn, a quick one often; all get about equal time.
pub fn interleave(time: Duration, least: u32, sides: &mut [Side<'_>]) -> Vec<Laps> {
    let mut counts = Vec::with_capacity(sides.len());
    for side in sides.iter_mut() {
        let mut unseen = Laps::default();
        let mut quickest = Duration::MAX;
        for run in 0..WARM_UP {
            let ((), once) = on_wall(|| side(&mut unseen));
            quickest = quickest.min(once);
            // Two runs are enough for a slow side. The first run initialises data that the later ones reuse.
            if run > 0 && quickest > SLOW {
                break;
            }
        }
        let count = TURN.as_nanos() / quickest.as_nanos().max(1);
        counts.push(u32::try_from(count).unwrap_or(TURN_MAX).clamp(1, TURN_MAX));
    }
    let mut laps = vec![Laps::default(); sides.len()];
    let began = Instant::now();
    for turn in 0_usize.. {
        if began.elapsed() >= time && turn >= least as usize {
            break;
        }
        for place in 0..sides.len() {
            let side = (turn + place) % sides.len();
            for _ in 0..counts[side] {
                sides[side](&mut laps[side]);
            }
        }
    }
    laps
}

/// Statistics of samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stats {
    /// Number of samples.
    pub count: usize,
    /// Median.
    pub median: Duration,
    /// 99th percentile; the longest sample if there are fewer than a hundred.
    pub p99: Duration,
    /// Arithmetic mean.
    pub mean: Duration,
}

impl Stats {
    /// Returns the statistics of samples; `None` if there are none.
    pub fn of(samples: &[Duration]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        let total: Duration = sorted.iter().sum();
        Some(Self {
            count: sorted.len(),
            median: sorted[last / 2],
            p99: sorted[(sorted.len() * 99).div_ceil(100).saturating_sub(1).min(last)],
            mean: total / u32::try_from(sorted.len()).unwrap_or(u32::MAX),
        })
    }

    /// Returns the median of `other` divided by the median of this.
    pub fn times_as_long(&self, other: &Self) -> f64 {
        other.median.as_secs_f64() / self.median.as_secs_f64().max(1e-12)
    }
}
