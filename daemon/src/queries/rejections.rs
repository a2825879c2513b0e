//! Counts of the rejections on boards.

use patchboard_kernel::id::{BoardId, WorkerName};
use patchboard_kernel::rejection_counts::{RejectionCount, RejectionCounts};
use serde::Serialize;
use utoipa::ToSchema;

use crate::failure::Failure;
use crate::reader::Reader;

/// Rejections on a board, counted.
#[derive(Serialize, ToSchema)]
pub(crate) struct RejectionReport {
    /// Board id.
    #[schema(value_type = String)]
    pub(crate) board: BoardId,
    /// Counts, by worker, stage and code.
    pub(crate) denials: Vec<RejectionCountInfo>,
}

/// Number of a worker's proposals rejected at a stage for one reason.
#[derive(Serialize, ToSchema)]
#[schema(as = RejectionCount)]
pub(crate) struct RejectionCountInfo {
    /// Author of the proposals.
    #[schema(value_type = String)]
    pub(crate) worker: WorkerName,
    /// Stage that failed.
    pub(crate) stage: &'static str,
    /// Code of the first violation.
    pub(crate) code: &'static str,
    /// Number of rejections.
    pub(crate) count: u64,
}

impl From<RejectionCount> for RejectionCountInfo {
    fn from(counted: RejectionCount) -> Self {
        let RejectionCount { worker, stage, code, count } = counted;
        Self { worker, stage: stage.as_str(), code: code.as_str(), count }
    }
}

impl RejectionReport {
    /// Counts the rejections in the journal of a board.
    pub(crate) fn read(reader: &Reader, board: &BoardId) -> Result<Self, Failure> {
        let counts = RejectionCounts::from_records(&reader.records(board)?);
        Ok(Self { board: board.clone(), denials: counts.iter().map(RejectionCountInfo::from).collect() })
    }
}
