//! Numbers that follow from a seed, so that a run can be had again on any machine.

/// splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Those of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Those of one of many things that share a seed: no two are alike, and none depends on how often another drew.
    pub fn of(seed: u64, parts: &[u64]) -> Self {
        let mut mixed = Self(seed);
        for part in parts {
            mixed = Self(mixed.draw() ^ part.wrapping_mul(0xff51_afd7_ed55_8ccd));
        }
        Self(mixed.draw())
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let scaled = u128::from(self.draw()) * u128::from(end);
        u64::try_from(scaled >> 64).expect("it is below an end of 64 bits")
    }

    /// An index into something of this length, which is not 0.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("it is below a length")
    }

    /// Whether something of this many percent happens.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }
}
