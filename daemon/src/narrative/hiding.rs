//! Tells, once for each worker, what its views had no room for.

use std::collections::BTreeMap;

use patchboard_kernel::id::WorkerName;
use patchboard_kernel::record::Body;
use patchboard_kernel::view::Shortage;
use serde::Serialize;
use utoipa::ToSchema;

use super::name;
use crate::blueprint_file::plural;
use crate::output::one_line;

/// Calls whose views had no room for all that their workers may read.
#[derive(Debug, Default)]
pub(crate) struct Hiding {
    /// The first of each worker.
    pub(crate) first: BTreeMap<WorkerName, Shortage>,
    later: BTreeMap<WorkerName, Later>,
}

/// Such calls of a worker after its first.
#[derive(Debug)]
struct Later {
    calls: usize,
    /// Shortage of the call with the largest place.
    worst: Shortage,
}

impl Hiding {
    /// Notes a record. Returns sentences if it is the first of its worker that shows too little.
    pub(crate) fn note(&mut self, body: &Body) -> Vec<String> {
        let Body::Invoked(invoked) = body else { return Vec::new() };
        let Some(shortage) = Shortage::of(invoked) else { return Vec::new() };
        if self.first.contains_key(&invoked.worker) {
            match self.later.get_mut(&invoked.worker) {
                Some(later) => {
                    later.calls += 1;
                    if most(&shortage) > most(&later.worst) {
                        later.worst = shortage;
                    }
                }
                None => drop(self.later.insert(invoked.worker.clone(), Later { calls: 1, worst: shortage })),
            }
            return Vec::new();
        }
        let worker = name(invoked.worker.as_str());
        let sentences = shortage.sentences(&worker).map(|sentence| one_line(&sentence)).collect();
        self.first.insert(invoked.worker.clone(), shortage);
        sentences
    }

    /// Returns a sentence about each worker of which more than one call showed too little.
    pub(crate) fn later(&self) -> Vec<String> {
        let told = self.later.iter().map(|(worker, later)| {
            let worker = name(worker.as_str());
            let worst = later.worst.sentences(&worker).next().unwrap_or_default();
            format!(
                "{} of {worker} showed too little; the largest: {}",
                plural(later.calls, "more call"),
                one_line(&worst)
            )
        });
        told.collect()
    }
}

/// Bytes of the largest place that was not shown wholly.
fn most(shortage: &Shortage) -> u64 {
    shortage.places.iter().map(|place| place.bytes).max().unwrap_or_default()
}

/// A readable collection or text that a view did not show wholly.
#[derive(Serialize, ToSchema)]
pub(crate) struct UnshownInfo {
    /// The worker.
    worker: String,
    /// JSON Pointer; of a pattern with wildcards, its text.
    at: String,
    /// Number of parts that were shown wholly.
    shown: usize,
    /// Number of parts there were, 1 for a text.
    of: usize,
    /// Bytes of it all, as JSON.
    bytes: u64,
    /// True if there may be more than was counted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    at_least: bool,
    /// The budget of the view, in `unit`.
    budget: u32,
    /// Unit of the budget: `chars` or `tokens`.
    unit: &'static str,
}

impl UnshownInfo {
    /// Returns that of the workers, in their order.
    pub(crate) fn of(shortages: &BTreeMap<WorkerName, Shortage>) -> Vec<Self> {
        let each = shortages.iter().flat_map(|(worker, shortage)| {
            shortage.places.iter().map(|place| Self {
                worker: worker.to_string(),
                at: place.at.clone(),
                shown: place.shown,
                of: place.of,
                bytes: place.bytes,
                at_least: place.is_least,
                budget: shortage.budget,
                unit: shortage.unit.as_str(),
            })
        });
        each.collect()
    }
}
