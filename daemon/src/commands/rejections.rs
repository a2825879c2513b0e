//! `patchboard rejections`: counts the rejections of a board.

use std::path::Path;

use clap::Args;
use serde_json::json;

use crate::arguments::BoardArgument;
use crate::failure::Outcome;
use crate::output::{Output, table};
use crate::queries::rejections::{RejectionCountInfo, RejectionReport};

/// Count the rejections of a board, by worker, stage and code
///
/// The stages are those of validation, in their order: syntax, authorization (the worker's contract), freshness
/// (changes since it read), application, schema, invariant. The code is that of the first violation; `patchboard log
/// --rejected` shows each rejection with its reasons.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard rejections last
  patchboard rejections last --output json | jq 'map(select(.stage == \"authorization\"))'")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
}

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let (reader, summary) = arguments.board.open(data_dir)?;
    let RejectionReport { rejections, .. } = RejectionReport::read(&reader, &summary.id)?;
    if output.is_json() {
        output.json(&json!(rejections))?;
        return reader.exit_after_listing(&summary.id);
    }
    let rows: Vec<_> = rejections.into_iter().map(row).collect();
    if rows.is_empty() {
        output.note("nothing was refused");
        return reader.exit_after_listing(&summary.id);
    }
    output.line(&table(["WORKER", "STAGE", "CODE", "TIMES"], rows))?;
    reader.exit_after_listing(&summary.id)
}

pub(crate) fn row(counted: RejectionCountInfo) -> [String; 4] {
    let RejectionCountInfo { worker, stage, code, count } = counted;
    [worker.to_string(), stage.to_string(), code.to_string(), count.to_string()]
}
