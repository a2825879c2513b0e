//! Rejections counted by worker, stage and code: a measure of the need for contracts, schemas and freshness checks.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::id::WorkerName;
use crate::record::{Body, Kind, Record};
use crate::rejection::{Code, Stage};

/// Counts of rejected proposals.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RejectionCounts(BTreeMap<(WorkerName, Stage, Code), u64>);

/// Number of a worker's proposals rejected at a stage for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RejectionCount {
    /// Author of the proposals.
    pub worker: WorkerName,
    /// Stage that failed.
    pub stage: Stage,
    /// Code of the first violation.
    pub code: Code,
    /// Number of rejections.
    pub count: u64,
}

impl RejectionCounts {
    /// Counts the rejections of a journal.
    pub fn from_records<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut denials = Self::default();
        for record in records {
            denials.count(record);
        }
        denials
    }

    /// Counts a record, if it is a readable rejection.
    pub fn count(&mut self, record: &Record) {
        if record.kind != Kind::Rejected {
            return;
        }
        if let Ok(Body::Rejected(rejected)) = record.body() {
            *self.0.entry((rejected.by.worker.clone(), rejected.stage, rejected.code)).or_default() += 1;
        }
    }

    /// Adds the counts of another board.
    pub fn merge(&mut self, other: Self) {
        for (key, count) in other.0 {
            *self.0.entry(key).or_default() += count;
        }
    }

    /// Returns the number of a worker's proposals rejected at a stage.
    pub fn at_stage(&self, worker: &WorkerName, stage: Stage) -> u64 {
        let is_it = |key: &&(WorkerName, Stage, Code)| key.0 == *worker && key.1 == stage;
        self.0.keys().filter(is_it).filter_map(|key| self.0.get(key)).sum()
    }

    /// Iterates over the counts, by worker, stage and code.
    pub fn iter(&self) -> impl Iterator<Item = RejectionCount> {
        self.0.iter().map(|((worker, stage, code), count)| {
            let (worker, stage, code, count) = (worker.clone(), *stage, *code, *count);
            RejectionCount { worker, stage, code, count }
        })
    }
}
