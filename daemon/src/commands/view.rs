//! `patchboard view`: prints a worker's view.

use std::path::Path;

use clap::Args;
use patchboard_kernel::view::PlaceExplanation;
use serde_json::{Value, json};

use crate::arguments::BoardArgument;
use crate::failure::{Exit, Outcome};
use crate::output::{Output, clean, one_line, short, table};
use crate::queries::view::{ViewResponse, binding, preview, reply_schema, worker_with_bindings};

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
    let (reader, summary) = arguments.board.open(data_dir)?;
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
        output.json(&json!(ViewResponse::new(&board, &seat, &view)))?;
    } else if arguments.explain {
        let rows = view.items.iter().map(|item| [words(item.fate.as_str()), place(item), words(item.why.as_str())]);
        output.line(&table(["", "place", "why"], rows))?;
    } else {
        output.line(clean(&view.text).trim_end_matches('\n'))?;
    }
    // Without `at`, building the board has already checked the journal's end.
    if arguments.at.is_some() { reader.exit_after_listing(&summary.id) } else { Ok(Exit::Done) }
}

/// Parses a requested place: a JSON Pointer, or an object as JSON.
fn parse_expansion(text: &str) -> Result<Value, String> {
    if text.starts_with('{') {
        serde_json::from_str(text).map_err(|error| format!("this is no JSON: {error}"))
    } else {
        Ok(text.into())
    }
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
