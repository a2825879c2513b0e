//! `patchboard export`: prints a board's journal as JSON lines.

use std::path::Path;

use clap::Args;

use crate::arguments::BoardArgument;
use crate::failure::Outcome;
use crate::output::Output;

/// Print a board's journal as JSON lines: the exact header, the payload and the hash of each record
///
/// `hash` is the SHA-256 of the previous record's 32 hash bytes (zeros before the first) followed by the bytes of
/// `header`, so a few lines of any language can check the chain. The texts of views and prompts are not in it: records
/// name them by their hash.
///
/// Exits with 1 after the last record if the journal ends inside a step, so that records are missing; `verify` rejects
/// such an export.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard export last > board.jsonl")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
}

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let (reader, summary) = arguments.board.open(data_dir)?;
    for record in reader.records(&summary.id)? {
        output.json(&record.to_json())?;
    }
    reader.exit_after_listing(&summary.id)
}
