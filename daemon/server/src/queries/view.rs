//! Views of workers, and the read sets of proposals based on them.

use std::borrow::Cow;
use std::sync::Arc;

use jsonptr::PointerBuf;
use patchboard_kernel::bindings::Bindings;
use patchboard_kernel::blueprint::{Blueprint, Freshness};
use patchboard_kernel::board::Board;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::expand_request::ExpandRequest;
use patchboard_kernel::id::{BoardId, Version, WorkerName};
use patchboard_kernel::pipeline::nothing_to_show;
use patchboard_kernel::plan::WorkerPlan;
use patchboard_kernel::view::{PlaceExplanation, View};
use patchboard_llm::schema::{self, SchemaLevel};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::failure::Failure;
use crate::text::one_line;

/// View of a worker, and the read set of a proposal based on it.
#[derive(Serialize, ToSchema)]
pub struct ViewResponse {
    /// Board id.
    #[schema(value_type = String)]
    board: BoardId,
    /// Worker.
    #[schema(value_type = String)]
    worker: WorkerName,
    /// Names bound in the worker's paths, each with its token.
    #[schema(value_type = Object)]
    bound: Value,
    /// Version of the document.
    #[schema(value_type = u64)]
    version: Version,
    /// Hash of the text.
    #[schema(value_type = String)]
    hash: Digest,
    /// Text of the view.
    text: String,
    /// Policy for changes to places that were read: a value of `freshness` in the blueprint.
    #[schema(value_type = String)]
    freshness: Freshness,
    /// JSON Pointers of the places shown completely.
    reads: Vec<String>,
    /// JSON Pointers of the collections with all member names shown.
    members: Vec<String>,
    /// JSON Pointers of the places that did not fit.
    summarised: Vec<String>,
    /// Outcome of each place, in document order.
    items: Vec<ViewItem>,
}

/// Outcome of a place in a view.
#[derive(Serialize, ToSchema)]
pub(crate) struct ViewItem {
    /// JSON Pointer; for a pattern without visible matches, its text.
    place: String,
    /// JSON Pointer of the last element, if the item covers several neighbouring ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<String>,
    /// Outcome: `shown`, `begun`, `summarised` or `left_out`.
    fate: &'static str,
    /// Reason of the outcome, like `everything_fits`.
    why: &'static str,
}

impl ViewItem {
    fn new(item: &PlaceExplanation) -> Self {
        let PlaceExplanation { place, last, fate, why } = item;
        Self { place: place.clone(), last: last.clone(), fate: fate.as_str(), why: why.as_str() }
    }
}

impl ViewResponse {
    /// Returns a view of a worker, and its read set.
    pub fn new(board: &Board, seat: &WorkerPlan, view: &View) -> Self {
        Self {
            board: board.id().clone(),
            worker: seat.name.clone(),
            bound: seat.bound().to_value(),
            version: board.version(),
            hash: board.text_hash(&view.text),
            text: view.text.clone(),
            freshness: seat.worker.freshness,
            reads: view.reads.clone(),
            members: view.members.clone(),
            summarised: view.summarised.pointers(),
            items: view.items.iter().map(ViewItem::new).collect(),
        }
    }
}

/// Parses `NAME=TOKEN`.
pub fn binding(text: &str) -> Result<(String, String), String> {
    let (name, token) = text.split_once('=').ok_or("write NAME=TOKEN, like note=3")?;
    Ok((name.to_owned(), token.to_owned()))
}

/// Returns the failure for a worker that a blueprint does not have.
pub fn no_such_worker(blueprint: &Blueprint, worker: &str) -> Failure {
    let workers: Vec<String> = blueprint.workers.keys().map(|name| one_line(name.as_str())).collect();
    Failure::invalid_input("no_such_worker", format!("the blueprint has no worker {}", one_line(worker)))
        .help(format!("its workers are {}", workers.join(", ")))
        .detail("workers", json!(workers))
}

/// Returns a worker's seat with bound names.
pub fn worker_with_bindings(
    board: &Board,
    worker: &str,
    bind: &[(String, String)],
) -> Result<Arc<WorkerPlan>, Failure> {
    let refuse = |message: String| Failure::invalid_input("bad_binding", message);
    let bindings = Bindings::from_pairs(bind.iter().map(|(name, token)| (name.as_str(), token.clone())));
    if bindings.iter().count() < bind.len() {
        return Err(refuse("a name is bound twice".to_owned()));
    }
    let Some(seat) = board.worker_plan(&worker.into(), &bindings) else {
        return Err(no_such_worker(board.blueprint(), worker));
    };
    if let Some((name, _)) = bind.iter().find(|(name, _)| !seat.names().contains(name)) {
        let known: Vec<String> = seat.names().iter().map(|name| format!("{{{name}}}")).collect();
        let help = match known.is_empty() {
            true => "its paths have no names".to_owned(),
            false => format!("the names in its paths are {}", known.join(", ")),
        };
        let message = format!("{} has no {{{}}} in its paths", one_line(worker), one_line(name));
        return Err(refuse(message).help(help));
    }
    Ok(seat)
}

/// Returns the view that a worker would get of the board's state. `within` has the places that the worker may read now,
/// for a state of an earlier version: conditions of the read grant must hold in both.
pub fn preview(
    board: &Board,
    seat: &WorkerPlan,
    expand: &[Value],
    within: Option<&[PointerBuf]>,
) -> Result<View, Failure> {
    let mut readable = board.readable_by(seat);
    if let Some(places) = within {
        readable = readable.within(places);
    }
    let mut asked_for = Vec::with_capacity(expand.len());
    for place in expand {
        let refuse = |code, message: &str| {
            let place = place.as_str().map_or_else(|| Cow::Owned(place.to_string()), Cow::Borrowed);
            Failure::invalid_input(code, format!("{message}: {}", one_line(&place)))
                .help("name a place as `state` shows it, like /claims/3")
                .detail("pointer", json!(place))
        };
        let asked = ExpandRequest::parse(place).filter(|asked| seat.has_ranges() || asked.start().is_none());
        let Some(mut asked) = asked else {
            let message = match seat.has_ranges() {
                true => "this is no JSON Pointer, and no {\"at\": \"/claims\", \"from\": 3}",
                false => "this is no JSON Pointer, and boards as old as this one show no parts",
            };
            return Err(refuse("bad_pointer", message));
        };
        if let Some(bound) = seat.bound().resolve(asked.pointer()) {
            *asked.pointer_mut() = bound.to_string();
        }
        // Checked before the place is looked up: its existence may be confidential.
        if !asked.place().is_some_and(|place| readable.may_ask_for(&place)) {
            return Err(refuse("path_not_granted", "the requested places must be readable by the worker"));
        }
        if let Some(violation) = nothing_to_show(board.state(), &readable, &asked, board.plan().journal_format) {
            return Err(refuse("path_not_found", &violation.message));
        }
        asked_for.push(asked);
    }
    Ok(board.explained_preview(seat, &asked_for, &readable))
}

/// Returns the JSON Schema for a language model's reply to a view.
pub fn reply_schema(board: &Board, seat: &Arc<WorkerPlan>, view: &View) -> Result<Value, Failure> {
    let shown = board.previewed_values(seat, view);
    let schema = shown.and_then(|shown| schema::reply_schema(&shown, SchemaLevel::Derived)).ok_or_else(|| {
        Failure::invalid_input("no_schema", "its replies are messages, which no schema describes")
            .help("docs/modes.md describes such boards")
    })?;
    Ok(schema.1)
}
