//! Reports, once for each worker, the places that did not fit into its views.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use patchboard_kernel::id::{BoardId, WorkerName};
use patchboard_kernel::record::{Body, Kind};
use patchboard_kernel::view::Shortage;
use patchboard_runtime::error::RuntimeError;
use patchboard_runtime::observer::{DurableStep, Observer};
use serde::Serialize;
use tokio::sync::watch;
use utoipa::ToSchema;

use super::name;
use crate::text::one_line;
use patchboard_kernel::text::counted;

/// Calls with incomplete views: readable data did not fit.
#[derive(Debug, Default)]
pub struct ViewShortages {
    /// First such call of each worker.
    pub first: BTreeMap<WorkerName, Shortage>,
    later: BTreeMap<WorkerName, LaterShortages>,
}

#[derive(Debug)]
struct LaterShortages {
    calls: usize,
    /// Shortage of the call with the largest place.
    worst: Shortage,
}

impl ViewShortages {
    /// Notes a record. Returns sentences for a worker's first call with an incomplete view.
    pub fn note(&mut self, body: &Body) -> Vec<String> {
        let Body::Invoked(invoked) = body else { return Vec::new() };
        let Some(shortage) = Shortage::from_call(invoked) else { return Vec::new() };
        if self.first.contains_key(&invoked.worker) {
            match self.later.get_mut(&invoked.worker) {
                Some(later) => {
                    later.calls += 1;
                    if largest_bytes(&shortage) > largest_bytes(&later.worst) {
                        later.worst = shortage;
                    }
                }
                None => drop(self.later.insert(invoked.worker.clone(), LaterShortages { calls: 1, worst: shortage })),
            }
            return Vec::new();
        }
        let worker = name(invoked.worker.as_str());
        let sentences = shortage.sentences(&worker).map(|sentence| one_line(&sentence)).collect();
        self.first.insert(invoked.worker.clone(), shortage);
        sentences
    }

    /// Returns a sentence for each worker with further such calls.
    pub fn later(&self) -> Vec<String> {
        let sentences = self.later.iter().map(|(worker, later)| {
            let worker = name(worker.as_str());
            let worst = later.worst.sentences(&worker).next().unwrap_or_default();
            format!(
                "{} of {worker} showed too little; the largest: {}",
                counted(later.calls, "more call"),
                one_line(&worst)
            )
        });
        sentences.collect()
    }
}

const INSIDE_MAX: usize = 64;

/// First call of a nested board's worker with an incomplete view.
#[derive(Clone, Debug)]
pub struct NestedShortage {
    /// The nested board.
    pub board: BoardId,
    /// Name of the board's blueprint; the board's id if the board was created before this run.
    name: String,
    worker: WorkerName,
    shortage: Shortage,
}

impl NestedShortage {
    /// Returns a sentence for each place.
    pub fn sentences(&self) -> Vec<String> {
        let board = name(&self.name);
        let worker = name(self.worker.as_str());
        let sentences = self.shortage.sentences(&worker);
        sentences.map(|sentence| format!("in the board inside, {board}: {}", one_line(&sentence))).collect()
    }
}

/// Observer of nested boards in this process. Boards of one blueprint count as one.
#[derive(Debug, Default)]
pub struct NestedShortages {
    names: Mutex<BTreeMap<BoardId, String>>,
    hidden: watch::Sender<Vec<NestedShortage>>,
}

impl NestedShortages {
    /// Returns a receiver of the findings so far, and of later ones.
    pub fn subscribe(&self) -> watch::Receiver<Vec<NestedShortage>> {
        self.hidden.subscribe()
    }

    fn note(&self, board: &BoardId, body: &Body) {
        let mut names = self.names.lock();
        let invoked = match body {
            Body::Created(created) if created.parent.is_some() => {
                names.insert(board.clone(), created.blueprint["name"].as_str().unwrap_or_default().to_owned());
                return;
            }
            Body::Invoked(invoked) => invoked,
            _ => return,
        };
        let Some(shortage) = Shortage::from_call(invoked) else { return };
        let name = names.get(board).map_or_else(|| board.to_string(), String::clone);
        let found = NestedShortage { board: board.clone(), name, worker: invoked.worker.clone(), shortage };
        self.hidden.send_if_modified(|hidden| {
            let is_same = |one: &NestedShortage| one.name == found.name && one.worker == found.worker;
            let is_new = hidden.len() < INSIDE_MAX && !hidden.iter().any(is_same);
            if is_new {
                hidden.push(found);
            }
            is_new
        });
    }
}

impl Observer for NestedShortages {
    fn on_durable_step(&self, step: &DurableStep<'_>) {
        let kinds = [Kind::Created, Kind::Invoked];
        for record in step.records.iter().filter(|record| kinds.contains(&record.kind)) {
            if let Ok(body) = record.body() {
                self.note(step.board, body);
            }
        }
    }

    fn on_board_closed(&self, board: &BoardId, _: &RuntimeError) {
        self.names.lock().remove(board);
    }
}

fn largest_bytes(shortage: &Shortage) -> u64 {
    shortage.places.iter().map(|place| place.bytes).max().unwrap_or_default()
}

/// Readable collection or text that a view did not show completely.
#[derive(Serialize, ToSchema)]
pub struct UnshownInfo {
    /// Id of the board, if it is a nested one.
    #[serde(skip_serializing_if = "Option::is_none")]
    board: Option<String>,
    /// Name of the worker.
    worker: String,
    /// JSON Pointer, or a pattern with wildcards.
    at: String,
    /// Number of parts that were shown completely.
    shown: usize,
    /// Number of all parts, 1 for a text.
    of: usize,
    /// Size of the whole value, in bytes of JSON.
    bytes: u64,
    /// True if the counts are lower bounds.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    at_least: bool,
    /// View budget, in `unit`.
    budget: u32,
    /// Unit of the budget: `chars` or `tokens`.
    unit: &'static str,
}

impl UnshownInfo {
    /// Lists the shortages of workers, in their order.
    pub fn of(shortages: &BTreeMap<WorkerName, Shortage>) -> Vec<Self> {
        shortages.iter().flat_map(|(worker, shortage)| Self::each(None, worker, shortage)).collect()
    }

    /// Lists the shortages of nested boards' workers.
    pub fn inside(hidden: &[NestedShortage]) -> Vec<Self> {
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
