//! `patchboard state`: prints the document at any version.

use std::path::Path;

use clap::Args;
use serde_json::json;

use crate::arguments::BoardArgument;
use crate::failure::{Exit, Outcome};
use crate::output::{Output, json_pretty};
use crate::queries::state::StateResponse;

/// Print the document of a board, as it is now or as it was at a version
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard state last
  patchboard state last --at 0
  patchboard state last --output json | jq .state_hash")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
    /// The version: 0 is the initial state, each commit makes the next
    #[arg(long, value_name = "VERSION")]
    at: Option<u64>,
}

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let (reader, summary) = arguments.board.open(data_dir)?;
    let board = reader.board(&summary, arguments.at)?;
    if output.is_json() {
        output.json(&json!(StateResponse::from_board(&board)))?;
    } else {
        if !board.is_exact() {
            output.note("values of this document are erased and replaced by $redacted");
        }
        output.line(&json_pretty(board.state().root()))?;
    }
    // Without `at`, building the board has already checked the journal's end.
    if arguments.at.is_some() { reader.exit_after_listing(&summary.id) } else { Ok(Exit::Done) }
}
