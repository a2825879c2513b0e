//! Status of a node, and the table of its transitions.

use super::WorkflowCode;
use super::engine::TurnError;
use patchboard_kernel::rejection::code_enum;

code_enum! {
    /// Status of a node (W60).
    Status {
        /// Waiting for its dependencies.
        Pending = "PENDING",
        /// Dependencies completed; waiting for its trigger.
        Ready = "READY",
        /// Given to its worker.
        Running = "RUNNING",
        /// Completed by its worker with an output.
        Completed = "COMPLETED",
        /// Given up by its worker, or its condition could not be evaluated.
        Failed = "FAILED",
        /// Skipped because its condition did not hold, or a dependency was skipped.
        Skipped = "SKIPPED",
    }
}

impl Status {
    /// Returns the statuses that can follow in one commit.
    pub const fn successors(self) -> &'static [Self] {
        match self {
            Self::Pending => &[Self::Ready, Self::Failed, Self::Skipped],
            // Back to pending, if a dependency is resumed.
            Self::Ready => &[Self::Pending, Self::Running],
            Self::Running => &[Self::Completed, Self::Failed],
            // Only by a resumption from the node or from a dependency.
            Self::Completed | Self::Failed | Self::Skipped => &[Self::Pending],
        }
    }

    /// Returns true if the status is final unless the node is resumed.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Skipped)
    }

    /// Returns the new status of a node after a legal transition.
    pub fn transition_to(self, next: Self, node: &str) -> Result<Self, TurnError> {
        if self.successors().contains(&next) {
            return Ok(next);
        }
        let message = format!("`{node}` is {self} and cannot become {next}");
        Err(TurnError { code: WorkflowCode::IllegalTransition, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All 36 pairs: rows are the current status, columns the next one.
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
                let moved = from.transition_to(next, "n");
                pairs += 1;
                match is_legal {
                    true => assert_eq!(moved, Ok(next)),
                    false => {
                        assert_eq!(
                            moved.expect_err("it is refused").code,
                            WorkflowCode::IllegalTransition,
                            "{from} {next}"
                        )
                    }
                }
            }
            // A final status changes only by a resumption.
            assert_eq!(from.is_terminal(), from.successors() == [Pending], "{from}");
            assert_eq!(Status::from_name(from.as_str()), Some(from));
        }
        assert_eq!(pairs, 36);
        assert_eq!(Status::from_name("pending"), None);
    }
}
