//! Seeded random numbers, so that a run can be repeated on any machine.

/// splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates one of many generators that share a seed. No two are alike, and none depends on how often another drew.
    pub fn from_parts(seed: u64, parts: &[u64]) -> Self {
        let mut mixed = Self(seed);
        for part in parts {
            mixed = Self(mixed.draw() ^ part.wrapping_mul(0xff51_afd7_ed55_8ccd));
        }
        Self(mixed.draw())
    }

    /// Returns a random number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let scaled = u128::from(self.draw()) * u128::from(end);
        u64::try_from(scaled >> 64).expect("it is below an end of 64 bits")
    }

    /// Returns an index into a list of this length, which must not be 0.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("it is below a length")
    }

    /// Returns true with this probability, in percent.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns a random element.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }
}
