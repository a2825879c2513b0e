//! `patchboard log`: prints the records of a board's journal.

use std::path::Path;
use std::thread;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use owo_colors::OwoColorize as _;
use patchboard_kernel::record::{self, Kind, Record};

use crate::arguments::BoardArgument;
use crate::describe::{self, ViewShortages};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::colour;
use crate::reader::{format_time, storage};

/// Polling interval of a followed journal.
const FOLLOW_EVERY: Duration = Duration::from_millis(250);

/// Records per read.
const PAGE: usize = 1024;

/// Show a board's journal, one line per record
///
/// Text output has the record's number, its time, its kind and one sentence per line; a rejected reply is shown
/// with it. JSON output has the record itself with all its values.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard log last
  patchboard log last --rejected --output json | jq -r '[.worker, .stage, .code] | @tsv'
  patchboard log 0199 --kind committed --kind ended
  patchboard log last --follow")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
    /// Only rejected proposals; same as --kind rejected
    #[arg(long)]
    rejected: bool,
    /// Only records of this kind; may be repeated
    #[arg(long, value_name = "KIND", value_parser = kinds())]
    kind: Vec<String>,
    /// Follow the log until the board ends
    #[arg(long, short)]
    follow: bool,
}

fn kinds() -> PossibleValuesParser {
    PossibleValuesParser::new(Kind::ALL.iter().map(|kind| kind.as_str()))
}

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let (reader, board) = arguments.board.open(data_dir)?;
    let mut reading = reader.reading(&board.id, None)?;
    let (mut has_ended, mut is_checked) = (false, false);
    let mut hiding = ViewShortages::default();
    loop {
        let records = reading.next(PAGE).map_err(storage)?;
        for record in &records {
            has_ended = match record.kind {
                Kind::Ended => true,
                Kind::Scheduled => false,
                _ => has_ended,
            };
            if is_selected(arguments, record.kind) {
                show(record, output)?;
                show_hidden(record, &mut hiding, output)?;
            }
        }
        if records.is_empty() {
            if !arguments.follow || has_ended {
                for sentence in hiding.later() {
                    output.line(&format!("{:>30} {sentence}", "not shown".yellow()))?;
                }
                return reader.exit_after_listing(&board.id);
            }
            if !is_checked {
                // No process continues a journal that ends inside a step, so there is nothing to follow.
                reader.exit_after_listing(&board.id)?;
                is_checked = true;
            }
            thread::sleep(FOLLOW_EVERY);
        }
    }
}

fn is_selected(arguments: &Arguments, kind: Kind) -> bool {
    let all = !arguments.rejected && arguments.kind.is_empty();
    all || (arguments.rejected && kind == Kind::Rejected) || arguments.kind.iter().any(|name| name == kind.as_str())
}

/// Prints the parts that a call's view had no room for, once per worker.
fn show_hidden(record: &Record, hiding: &mut ViewShortages, output: Output) -> Result<(), Failure> {
    let body = record.body().ok().filter(|_| record.kind == Kind::Invoked && !output.is_json());
    for sentence in body.map(|body| hiding.note(body)).unwrap_or_default() {
        output.line(&format!("{:>30} {sentence}", "not shown".yellow()))?;
    }
    Ok(())
}

fn show(record: &Record, output: Output) -> Result<(), Failure> {
    if output.is_json() {
        let merged = record::merge_fields(record).map_err(|error| {
            Failure::failed("bad_record", format!("record {}: {error}", record.seq)).detail("seq", record.seq.0.into())
        })?;
        return output.json(&merged);
    }
    let padded = format!("{:<9}", record.kind.as_str());
    let padded = match colour(record.kind) {
        Some(colour) => padded.color(colour).to_string(),
        None if matches!(record.kind, Kind::Created | Kind::Ended) => padded.bold().to_string(),
        None => padded,
    };
    let reply = describe::rejected_reply(record).map(|reply| format!("; the reply: {reply}")).unwrap_or_default();
    let caller = describe::caller(record).map(|caller| format!("; caller: {caller}")).unwrap_or_default();
    let sentence = describe::sentence(record);
    output.line(&format!("{:>5} {} {padded} {sentence}{caller}{reply}", record.seq, format_time(record.at)))
}
