//! `patchboard replay`: re-derives a run from its records, without calling agents.

use std::path::Path;

use clap::Args;
use patchboard_kernel::id::Seq;
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use serde_json::json;

use crate::arguments::BoardArgument;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use patchboard_kernel::text::counted;

/// Re-derive a run from its journal, and print the first record that differs
///
/// Takes the inputs from the records (replies, failures, signals, times) and makes every decision again: every state
/// hash, view, schedule and breaker decision must equal the recorded one. No agent is called.
///
/// Exits with 1 if anything differs; as JSON, stdout then has {"ok":false,"code":...,"seq":...,"message":...}.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard replay last
  patchboard replay last --to 40")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
    /// Stop after this record
    #[arg(long, value_name = "SEQ")]
    to: Option<u64>,
}

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let (reader, summary) = arguments.board.open(data_dir)?;
    let records = reader.records(&summary.id).map_err(|error| output.result_of_failure(error, &summary.id))?;
    if let (Some(to), Some(last)) = (arguments.to, records.last().map(|record| record.seq.0))
        && to > last
    {
        let message = format!("the journal ends with record {last}, before {to}");
        return Err(Failure::invalid_input("no_such_record", message).detail("last", last.into()));
    }
    if let Some(why) = records.first().and_then(replay::unsupported_reason) {
        return Err(Failure::invalid_input("replay_underivable", why)
            .help("`patchboard verify BOARD` says whether anything was altered; the board can be read and resumed"));
    }
    let replayed = replay::replay(&records, arguments.to.map(Seq), &PLANS).map_err(|difference| {
        let failure = Failure::failed("replay_differs", &difference)
            .help("`patchboard verify BOARD` says whether the journal was altered")
            .detail("seq", difference.seq.0.into());
        output.result_of_failure(failure, &summary.id)
    })?;
    let (seq, hash) = replayed.board.head();
    // Without `to`, replay has checked the end of the journal as well.
    let shown = || if arguments.to.is_some() { reader.exit_after_listing(&summary.id) } else { Ok(Exit::Done) };
    if output.is_json() {
        output.json(&json!({
            "board": summary.id,
            "ok": true,
            "records": replayed.records,
            "commits": replayed.commits,
            "views": replayed.views,
            "views_skipped": replayed.views_skipped,
            "version": replayed.board.version(),
            "erased": replayed.redacted.map(|(from, to)| json!({"from": from, "to": to})),
            "state_hash": replayed.board.is_exact().then(|| replayed.board.state().digest()),
            "head": {"seq": seq, "hash": hash},
        }))?;
        return shown();
    }
    let count = |number: u64, noun| counted(usize::try_from(number).unwrap_or(usize::MAX), noun);
    output.line(&format!(
        "replay OK: {}, {}, {} match",
        count(replayed.records, "record"),
        count(replayed.commits, "commit"),
        count(replayed.views, "view")
    ))?;
    if replayed.views_skipped > 0 {
        output.line(&format!(
            "not re-derivable by this version: {}, made by another view compiler",
            count(replayed.views_skipped, "view")
        ))?;
    }
    if let Some((from, to)) = replayed.redacted {
        output.line(&format!(
            "erased, not re-derivable: records {from} to {to} hold or follow from values that are erased"
        ))?;
    }
    let state = match replayed.board.is_exact() {
        true => replayed.board.state().digest().to_string(),
        false => "with values that are erased".to_owned(),
    };
    output.line(&format!("version {}, state {state}", replayed.board.version()))?;
    output.line(&format!("head {seq} {hash}"))?;
    shown()
}
