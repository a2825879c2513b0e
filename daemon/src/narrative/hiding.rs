//! Tells, once for each worker, what its views had no room for.

use std::collections::BTreeMap;

use patchboard_kernel::id::WorkerName;
use patchboard_kernel::record::Body;
use patchboard_kernel::view::Shortage;
use serde::Serialize;
use utoipa::ToSchema;

use super::name;
use crate::output::one_line;

/// First call of each worker whose view had no room for all that the worker may read.
#[derive(Debug, Default)]
pub(crate) struct Hiding(pub(crate) BTreeMap<WorkerName, Shortage>);

impl Hiding {
    /// Notes a record. Returns sentences if it is the first of its worker that shows too little.
    pub(crate) fn note(&mut self, body: &Body) -> Vec<String> {
        let Body::Invoked(invoked) = body else { return Vec::new() };
        let Some(shortage) = Shortage::of(invoked).filter(|_| !self.0.contains_key(&invoked.worker)) else {
            return Vec::new();
        };
        let worker = name(invoked.worker.as_str());
        let sentences = shortage.sentences(&worker).map(|sentence| one_line(&sentence)).collect();
        self.0.insert(invoked.worker.clone(), shortage);
        sentences
    }
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
