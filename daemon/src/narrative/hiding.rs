//! Says, once for each worker, what its views had no room for.

use std::collections::BTreeMap;

use patchboard_kernel::id::WorkerName;
use patchboard_kernel::record::Body;
use patchboard_kernel::view::Shortage;

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
