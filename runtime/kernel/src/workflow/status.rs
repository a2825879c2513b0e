//! How far a node is, and what it can become: one table.

use super::WorkflowCode;
use super::engine::Refusal;
use crate::rejection::coded;

coded! {
    /// How far a node is (W60).
    Status {
        /// It waits for its dependencies.
        Pending = "PENDING",
        /// Its dependencies are completed; it waits for its trigger.
        Ready = "READY",
        /// Its worker has it.
        Running = "RUNNING",
        /// Its worker came to an output.
        Completed = "COMPLETED",
        /// Its worker gave up, or its condition could not be evaluated.
        Failed = "FAILED",
        /// Its condition did not hold, or something that it depends on was skipped.
        Skipped = "SKIPPED",
    }
}

impl Status {
    /// What a node in this status can become in one commit.
    pub const fn successors(self) -> &'static [Self] {
        match self {
            Self::Pending => &[Self::Ready, Self::Failed, Self::Skipped],
            // Back, if something that it depends on is resumed.
            Self::Ready => &[Self::Pending, Self::Running],
            Self::Running => &[Self::Completed, Self::Failed],
            // Only when the workflow is resumed from it, or from something that it depends on.
            Self::Completed | Self::Failed | Self::Skipped => &[Self::Pending],
        }
    }

    /// Whether nothing more happens to the node unless it is resumed.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Skipped)
    }

    /// The status of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|status| status.as_str() == name)
    }

    /// The move of a node to another status.
    ///
    /// # Errors
    /// `workflow_illegal_move`.
    pub fn to(self, next: Self, node: &str) -> Result<Self, Refusal> {
        if self.successors().contains(&next) {
            return Ok(next);
        }
        let message = format!("`{node}` is {self} and cannot become {next}");
        Err(Refusal { code: WorkflowCode::IllegalMove, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All 36 pairs, written out: a row is what a node is, a column what it is to become.
    #[test]
    fn a_node_becomes_only_what_it_can() {
        use Status::{Completed, Failed, Pending, Ready, Running, Skipped};
        let columns = [Pending, Ready, Running, Completed, Failed, Skipped];
        let table = [
            (Pending, [false, true, false, false, true, true]),
            (Ready, [true, false, true, false, false, false]),
            (Running, [false, false, false, true, true, false]),
            (Completed, [true, false, false, false, false, false]),
            (Failed, [true, false, false, false, false, false]),
            (Skipped, [true, false, false, false, false, false]),
        ];
        assert_eq!(columns.as_slice(), Status::ALL);
        let mut pairs = 0;
        for (from, row) in table {
            for (next, is_legal) in columns.into_iter().zip(row) {
                let moved = from.to(next, "n");
                pairs += 1;
                match is_legal {
                    true => assert_eq!(moved, Ok(next)),
                    false => {
                        assert_eq!(moved.expect_err("it is refused").code, WorkflowCode::IllegalMove, "{from} {next}")
                    }
                }
            }
            // What is over moves only when it is resumed.
            assert_eq!(from.is_terminal(), from.successors() == [Pending], "{from}");
            assert_eq!(Status::named(from.as_str()), Some(from));
        }
        assert_eq!(pairs, 36);
        assert_eq!(Status::named("pending"), None);
    }
}
