//! Clocks, and samples of several sides taken in turns.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// How long the samples that one side takes before another's turn should last together: long enough that a side works
/// with warm caches, as it would alone, and short enough that both meet the same weather.
const TURN: Duration = Duration::from_millis(2);
/// The most samples of one turn.
const TURN_MAX: u32 = 64;
/// Samples before the first that counts. The first ones pay for what was freed when documents were made.
const WARM_UP: u32 = 32;
/// What takes longer is slow with warm caches, too.
const SLOW: Duration = Duration::from_millis(100);

/// The time this thread has spent on a processor. Other processes lengthen it only by what they do to the caches.
pub fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// What something returns, and the processor time it takes.
pub fn on_cpu<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = cpu_time();
    let done = work();
    (done, cpu_time().saturating_sub(began))
}

/// What something returns, and the time it takes on the wall.
pub fn on_wall<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed())
}

/// The samples that one side has taken, by the name of what was timed.
#[derive(Clone, Debug, Default)]
pub struct Laps {
    taken: BTreeMap<&'static str, Vec<Duration>>,
}

impl Laps {
    /// Takes a sample down.
    pub fn note(&mut self, what: &'static str, time: Duration) {
        self.taken.entry(what).or_default().push(time);
    }

    /// What was taken of this; none if nothing was.
    pub fn stats(&self, what: &str) -> Option<Stats> {
        Stats::of(self.taken.get(what)?)
    }
}

/// One of the things that are compared: does its work once, timing as much of it as counts.
pub type Side<'a> = Box<dyn FnMut(&mut Laps) + 'a>;

/// Lets the sides work in turns, each turn beginning with another side, for about `time`, and at least `least` turns.
/// A side that takes long works once in its turn, a quick one often; all get about the same time.
pub fn interleave(time: Duration, least: u32, sides: &mut [Side<'_>]) -> Vec<Laps> {
    let mut counts = Vec::with_capacity(sides.len());
    for side in sides.iter_mut() {
        let mut unseen = Laps::default();
        let mut quickest = Duration::MAX;
        for run in 0..WARM_UP {
            let ((), once) = on_wall(|| side(&mut unseen));
            quickest = quickest.min(once);
            // Twice is enough for what takes long anyway. The first run makes what the others find made.
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

/// What a number of samples comes to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stats {
    /// Samples.
    pub count: usize,
    /// The middle one.
    pub median: Duration,
    /// One in a hundred is longer; the longest, if there are fewer than a hundred.
    pub p99: Duration,
    /// All together, divided by their number.
    pub mean: Duration,
}

impl Stats {
    /// Of samples; none of none.
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

    /// How many times as long as this the other one is, in the middle.
    pub fn times_as_long(&self, other: &Self) -> f64 {
        other.median.as_secs_f64() / self.median.as_secs_f64().max(1e-12)
    }
}
