//! Tells, once for each worker, what its views had no room for.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use patchboard_kernel::id::{BoardId, WorkerName};
use patchboard_kernel::record::{Body, Kind};
use patchboard_kernel::view::Shortage;
use patchboard_runtime::observer::{Durable, Observer};
use patchboard_runtime::runtime::RuntimeError;
use serde::Serialize;
use tokio::sync::watch;
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

/// Limit of workers of boards inside that are reported.
const INSIDE_MAX: usize = 64;

/// The first call, of a worker of boards inside, whose view had no room for all that the worker may read.
#[derive(Clone, Debug)]
pub(crate) struct HiddenInside {
    /// Id of the board.
    pub(crate) board: BoardId,
    /// Name of the blueprint of the board; its id where the board was made before.
    name: String,
    worker: WorkerName,
    shortage: Shortage,
}

impl HiddenInside {
    /// Returns a sentence about each place.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let board = name(&self.name);
        let worker = name(self.worker.as_str());
        let told = self.shortage.sentences(&worker);
        told.map(|sentence| format!("in the board inside, {board}: {}", one_line(&sentence))).collect()
    }
}

/// Watches the boards inside of the board that a process runs. Boards of one blueprint count as one.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    /// Names of boards inside that were made here.
    names: Mutex<BTreeMap<BoardId, String>>,
    hidden: watch::Sender<Vec<HiddenInside>>,
}

impl Inside {
    /// Returns what is found from now on, and was found so far.
    pub(crate) fn hidden(&self) -> watch::Receiver<Vec<HiddenInside>> {
        self.hidden.subscribe()
    }

    fn note(&self, board: &BoardId, body: &Body) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let invoked = match body {
            Body::Created(created) if created.parent.is_some() => {
                names.insert(board.clone(), created.blueprint["name"].as_str().unwrap_or_default().to_owned());
                return;
            }
            Body::Invoked(invoked) => invoked,
            _ => return,
        };
        let Some(shortage) = Shortage::of(invoked) else { return };
        let name = names.get(board).map_or_else(|| board.to_string(), String::clone);
        let found = HiddenInside { board: board.clone(), name, worker: invoked.worker.clone(), shortage };
        self.hidden.send_if_modified(|hidden| {
            let is_same = |one: &HiddenInside| one.name == found.name && one.worker == found.worker;
            let is_new = hidden.len() < INSIDE_MAX && !hidden.iter().any(is_same);
            if is_new {
                hidden.push(found);
            }
            is_new
        });
    }
}

impl Observer for Inside {
    fn durable(&self, step: &Durable<'_>) {
        let kinds = [Kind::Created, Kind::Invoked];
        for record in step.records.iter().filter(|record| kinds.contains(&record.kind)) {
            if let Ok(body) = record.body() {
                self.note(step.board, &body);
            }
        }
    }

    fn gone(&self, board: &BoardId, _: &RuntimeError) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).remove(board);
    }
}

/// Bytes of the largest place that was not shown wholly.
fn most(shortage: &Shortage) -> u64 {
    shortage.places.iter().map(|place| place.bytes).max().unwrap_or_default()
}

/// A readable collection or text that a view did not show wholly.
#[derive(Serialize, ToSchema)]
pub(crate) struct UnshownInfo {
    /// The board, if it is one inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    board: Option<String>,
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
        shortages.iter().flat_map(|(worker, shortage)| Self::each(None, worker, shortage)).collect()
    }

    /// Returns that of the workers of boards inside.
    pub(crate) fn inside(hidden: &[HiddenInside]) -> Vec<Self> {
        hidden.iter().flat_map(|one| Self::each(Some(&one.board), &one.worker, &one.shortage)).collect()
    }

    fn each(board: Option<&BoardId>, worker: &WorkerName, shortage: &Shortage) -> impl Iterator<Item = Self> {
        shortage.places.iter().map(move |place| Self {
            board: board.map(ToString::to_string),
            worker: worker.to_string(),
            at: place.at.clone(),
            shown: place.shown,
            of: place.of,
            bytes: place.bytes,
            at_least: place.is_least,
            budget: shortage.budget,
            unit: shortage.unit.as_str(),
        })
    }
}
