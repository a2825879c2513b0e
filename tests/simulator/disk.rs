//! Simulated disk under the journal: fast or slow, with occasional failures.

use std::ops::AddAssign;

use patchboard_faults::random::Random;
use patchboard_faults::simulation::AppendOutcome;

pub(super) struct Disk {
    /// Separate generator, so that the disk does not affect the other draws of a seed.
    random: Random,
    /// Percentage of appends that take time.
    slow_percent: u64,
    /// Failing appends per thousand.
    failing: u64,
    /// Counts of the outcomes so far.
    pub(super) appends: Appends,
}

/// Outcomes of appends, with their counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Appends {
    pub(super) waited_for: u64,
    /// The journal reported a failure, and the records were not written.
    pub(super) refused: u64,
    /// The journal reported a failure, although the records were written.
    pub(super) refused_and_written: u64,
    /// The process died before the journal answered, and the records were not written.
    pub(super) lost: u64,
    /// The process died before the journal answered, and the records were written.
    pub(super) outlived: u64,
}

impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0xd15c);
        let slow_percent = *random.pick(&[0, 0, 30, 100, 100]);
        let failing = *random.pick(&[0, 0, 5, 20]);
        Self { random, slow_percent, failing, appends: Appends::default() }
    }

    /// Draws the outcome of an append.
    pub(super) fn append(&mut self) -> AppendOutcome {
        let after_ms = match self.random.percent(self.slow_percent) {
            true if self.random.percent(5) => self.random.below(15_000),
            true => 1 + self.random.below(600),
            false => 0,
        };
        let is_refused = self.random.below(1_000) < self.failing;
        let is_written = !is_refused || self.random.percent(50);
        self.appends.waited_for += u64::from(after_ms > 0);
        self.appends.refused += u64::from(!is_written);
        self.appends.refused_and_written += u64::from(is_refused && is_written);
        AppendOutcome { after_ms, is_written, is_failed: is_refused }
    }

    /// Draws if an append is durable after the process died during it.
    pub(super) fn outlives(&mut self) -> bool {
        let is_written = self.random.percent(50);
        self.appends.lost += u64::from(!is_written);
        self.appends.outlived += u64::from(is_written);
        is_written
    }
}

impl AddAssign for Appends {
    fn add_assign(&mut self, other: Self) {
        let Self { waited_for, refused, refused_and_written, lost, outlived } = other;
        self.waited_for += waited_for;
        self.refused += refused;
        self.refused_and_written += refused_and_written;
        self.lost += lost;
        self.outlived += outlived;
    }
}
