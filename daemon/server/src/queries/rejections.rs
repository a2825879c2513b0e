//! Counts of the rejections on boards.

use patchboard_kernel::id::{BoardId, WorkerName};
use patchboard_kernel::rejection_counts::{RejectionCount, RejectionCounts};
use serde::Serialize;
use utoipa::ToSchema;

use crate::failure::Failure;
use crate::reader::Reader;

/// Rejections on a board, counted.
#[derive(Serialize, ToSchema)]
pub struct RejectionReport {
    /// Board id.
    #[schema(value_type = String)]
    pub(crate) board: BoardId,
    /// Counts, by worker, stage and code.
    pub rejections: Vec<RejectionCountInfo>,
}

/// Number of a worker's proposals rejected at a stage for one reason.
#[derive(Serialize, ToSchema)]
#[schema(as = RejectionCount)]
pub struct RejectionCountInfo {
    /// Author of the proposals.
    #[schema(value_type = String)]
    pub worker: WorkerName,
    /// Stage that failed.
    pub stage: &'static str,
    /// Code of the first violation.
    pub code: &'static str,
    /// Number of rejections.
    pub count: u64,
}

impl From<RejectionCount> for RejectionCountInfo {
    fn from(counted: RejectionCount) -> Self {
        let RejectionCount { worker, stage, code, count } = counted;
        Self { worker, stage: stage.as_str(), code: code.as_str(), count }
    }
}

impl RejectionReport {
    /// Counts the rejections in the journal of a board.
    pub fn read(reader: &Reader, board: &BoardId) -> Result<Self, Failure> {
        let counts = RejectionCounts::from_records(&reader.records(board)?);
        Ok(Self { board: board.clone(), rejections: counts.iter().map(RejectionCountInfo::from).collect() })
    }
}
