//! `patchboard view`: prints a worker's view.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use jsonptr::PointerBuf;
use patchboard_agents::llm::schema::{self, SchemaLevel};
use patchboard_kernel::bindings::Bindings;
use patchboard_kernel::board::Board;
use patchboard_kernel::expand_request::ExpandRequest;
use patchboard_kernel::pipeline::nothing_to_show;
use patchboard_kernel::plan::WorkerPlan;
use patchboard_kernel::view::{PlaceExplanation, View};
use serde_json::{Value, json};

use crate::cli::BoardArgument;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, clean, one_line, short, table};
use crate::reader::Reader;

/// Print the view that a worker would get now, or at a version: within its budget and its read grant
///
/// The trigger in it is a preview; in a real view that place has the actual trigger.
///
/// JSON output also has the read set of a proposal based on the view. `reads` lists the places shown completely;
/// `members`, the collections with all member names shown; `summarised`, the places that did not fit. `freshness` is
/// the policy for changes to them; `items` is the list of `--explain`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard view last extractor
  patchboard view last extractor --explain
  patchboard view last extractor --expand /sources/3
  patchboard view last extractor --expand '{\"at\": \"/sources\", \"from\": 20}'
  patchboard view last checker --bind note=3
  patchboard view last extractor --schema | jq .
  patchboard view last extractor --at 3 --output json | jq .reads
  patchboard view last extractor --output json | jq '{freshness, reads, members}'")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
    /// The worker, by its name in the blueprint
    #[arg(value_name = "WORKER")]
    worker: String,
    /// The version: 0 is the initial state, each commit makes the next
    #[arg(long, value_name = "VERSION")]
    at: Option<u64>,
    /// List the places that the view shows, summarises and leaves out instead, each with the reason
    #[arg(long)]
    explain: bool,
    /// Print the JSON Schema for a language model's reply to this view instead
    #[arg(long, conflicts_with = "explain")]
    schema: bool,
    /// Bind a name in the worker's paths, as a trigger would; may be given several times. A path with an unbound name
    /// covers nothing
    #[arg(long, value_name = "NAME=TOKEN", value_parser = binding)]
    bind: Vec<(String, String)>,
    /// Show this place (a JSON Pointer), as if the worker had requested it, or part of it ({"at": PLACE, "from": name,
    /// index or number of characters}); may be given several times
    #[arg(long, value_name = "PLACE", value_parser = parse_expansion)]
    expand: Vec<Value>,
}

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let reader = Reader::open(data_dir)?;
    let summary = reader.find(&arguments.board.board)?;
    let board = reader.board(&summary, arguments.at)?;
    let seat = worker_with_bindings(&board, &arguments.worker, &arguments.bind)?;
    let unbound: Vec<String> =
        seat.names().iter().filter(|name| seat.bound().get(name).is_none()).map(|name| format!("{{{name}}}")).collect();
    if !unbound.is_empty() {
        output.note(&format!("{} is bound by triggers; `--bind NAME=TOKEN` shows one element", unbound.join(", ")));
    }
    let view = preview(&board, &seat, &arguments.expand, None)?;
    if arguments.schema {
        output.json(&reply_schema(&board, &seat, &view)?)?;
    } else if output.is_json() {
        output.json(&json(&board, &seat, &view))?;
    } else if arguments.explain {
        let rows = view.items.iter().map(|item| [words(item.fate.as_str()), place(item), words(item.why.as_str())]);
        output.line(&table(["", "place", "why"], rows))?;
    } else {
        output.line(clean(&view.text).trim_end_matches('\n'))?;
    }
    // Without `at`, building the board has already checked the journal's end.
    if arguments.at.is_some() { reader.exit_after_listing(&summary.id) } else { Ok(Exit::Done) }
}

/// Parses `NAME=TOKEN`.
pub(crate) fn binding(text: &str) -> Result<(String, String), String> {
    let (name, token) = text.split_once('=').ok_or("write NAME=TOKEN, like note=3")?;
    Ok((name.to_owned(), token.to_owned()))
}

/// Parses a requested place: a JSON Pointer, or an object as JSON.
pub(crate) fn parse_expansion(text: &str) -> Result<Value, String> {
    if text.starts_with('{') {
        serde_json::from_str(text).map_err(|error| format!("this is no JSON: {error}"))
    } else {
        Ok(text.into())
    }
}

/// Returns a worker's seat with bound names.
pub(crate) fn worker_with_bindings(
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
        let workers: Vec<String> = board.blueprint().workers.keys().map(|name| one_line(name.as_str())).collect();
        return Err(Failure::invalid_input(
            "no_such_worker",
            format!("the blueprint has no worker {}", one_line(worker)),
        )
        .help(format!("its workers are {}", workers.join(", ")))
        .detail("workers", json!(workers)));
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
pub(crate) fn preview(
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
            return Err(refuse("path_not_granted", "what is asked for must be what the worker may read"));
        }
        if let Some(violation) = nothing_to_show(board.state(), &readable, &asked, board.plan().journal_format) {
            return Err(refuse("path_not_found", &violation.message));
        }
        asked_for.push(asked);
    }
    Ok(board.explained_preview(seat, &asked_for, &readable))
}

/// Returns the JSON Schema for a language model's reply to a view.
fn reply_schema(board: &Board, seat: &Arc<WorkerPlan>, view: &View) -> Result<Value, Failure> {
    let shown = board.previewed_values(seat, view);
    let schema = shown.and_then(|shown| schema::reply_schema(&shown, SchemaLevel::Derived)).ok_or_else(|| {
        Failure::invalid_input("no_schema", "its replies are messages, which no schema describes")
            .help("docs/modes.md describes such boards")
    })?;
    Ok(schema.1)
}

/// Returns a view and the read set of a proposal based on it, as JSON.
pub(crate) fn json(board: &Board, seat: &WorkerPlan, view: &View) -> Value {
    json!({
        "board": board.id(),
        "worker": seat.name,
        "bound": seat.bound().to_value(),
        "version": board.version(),
        "hash": board.text_hash(&view.text),
        "text": view.text,
        "freshness": seat.worker.freshness,
        "reads": view.reads,
        "members": view.members,
        "summarised": view.summarised.pointers(),
        "items": view.items,
    })
}

/// Maximum characters of a place in the list.
const PLACE_MAX: usize = 72;

fn words(code: &str) -> String {
    code.replace('_', " ")
}

/// Formats a place, or the first and the last of a range.
fn place(item: &PlaceExplanation) -> String {
    match &item.last {
        Some(last) => {
            let last = last.rsplit('/').next().unwrap_or(last);
            format!("{} to {}", short(&item.place, PLACE_MAX), one_line(last))
        }
        None if item.place.is_empty() => "the whole document".to_owned(),
        None => short(&item.place, PLACE_MAX),
    }
}
