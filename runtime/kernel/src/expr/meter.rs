//! Counts the steps of an evaluation, and ends it.

/// Bytes of text that one step processes.
const BYTES_PER_STEP: usize = 32;

/// Result of a step of an evaluation.
pub(super) type Result<T> = std::result::Result<T, EvalAbort>;

/// Reason for an early end of an evaluation.
#[derive(Debug)]
pub(super) enum EvalAbort {
    /// The steps are used up; nothing absorbs this.
    Exhausted,
    /// An error of the expression or of a value.
    Error(String),
}

impl EvalAbort {
    pub(super) fn error(message: &str) -> Self {
        Self::Error(message.to_owned())
    }
}

/// Counts the remaining steps.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    left: usize,
}

impl Meter {
    pub(super) const fn new(steps: usize) -> Self {
        Self { left: steps }
    }

    /// Returns a meter with the remaining steps, but at most `steps`.
    pub(super) fn part(&self, steps: usize) -> Self {
        Self { left: self.left.min(steps) }
    }

    /// Subtracts the steps that a part of this meter has used.
    pub(super) const fn take_off(&mut self, part: &Self, before: usize) {
        self.left = self.left.saturating_sub(before - part.left);
    }

    pub(super) const fn left(&self) -> usize {
        self.left
    }

    pub(super) const fn spend(&mut self, steps: usize) -> Result<()> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(EvalAbort::Exhausted)
            }
        }
    }

    /// Charges the steps for processing this many bytes of text.
    pub(super) fn spend_text(&mut self, bytes: usize) -> Result<()> {
        self.spend(bytes / BYTES_PER_STEP)
    }
}
