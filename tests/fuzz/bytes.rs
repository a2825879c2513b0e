//! Draws choices from bytes, so that a fuzzer that changes bytes changes choices.

/// Bytes that are read once, from the front. After the last one, every choice is the first option.
pub(crate) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) const fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// Returns true if all bytes are used up.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next byte, or 0 at the end.
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Returns a number below `bound`, drawn from one byte if that is enough, otherwise from two; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let drawn = if bound <= 256 {
            usize::from(self.byte())
        } else {
            usize::from(u16::from_be_bytes([self.byte(), self.byte()]))
        };
        drawn % bound.max(1)
    }

    /// Returns one of several options; `of` must not be empty.
    pub(crate) fn pick<'o, T>(&mut self, of: &'o [T]) -> &'o T {
        &of[self.below(of.len())]
    }

    /// Returns one of several words.
    pub(crate) fn word(&mut self, of: &[&'static str]) -> &'static str {
        of[self.below(of.len())]
    }

    /// Returns eight bytes as a number.
    pub(crate) fn number(&mut self) -> u64 {
        u64::from_be_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// Returns at most `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }
}
