//! `patchboard signal`: sends a signal to a board, and runs it.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;
use patchboard_kernel::blueprint::{Blueprint, Trigger};
use patchboard_kernel::id::RuleName;
use serde_json::{Value, json};

use super::run::json_argument;
use crate::cli::BoardArgument;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, one_line, short};
use crate::reader::Reader;
use crate::runner::{self, AcquireMode};
use crate::worker_agents::WorkerAgentArguments;

/// Send a signal to a board, or trigger a manual rule by its name, and run the board until it ends again
///
/// The signal triggers the rules with `trigger: {signal: NAME}`, and the rule NAME with `trigger: manual`. A stalled
/// board continues if a rule is triggered; a board that has ended otherwise stays as it is. A paused board resumes,
/// unless --no-run is given. A name that no rule handles is rejected.
///
/// A board that another process runs cannot be reached: pause that run with Ctrl-C, then send the signal.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard signal last new-source '{\"url\": \"https://example.org/paper\"}'
  patchboard signal last recheck --no-run")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
    /// The signal's name
    #[arg(value_name = "NAME")]
    name: String,
    /// The signal's payload: JSON, or @FILE
    #[arg(value_name = "JSON")]
    value: Option<String>,
    /// Only record the signal; `patchboard resume` continues the board
    #[arg(long)]
    no_run: bool,
    #[command(flatten)]
    seats: WorkerAgentArguments,
}

/// Rules that a signal's name matches.
pub(crate) struct SignalTargets {
    rules: Vec<RuleName>,
    /// Names of all signals and manual rules that rules handle.
    names: BTreeSet<String>,
}

impl SignalTargets {
    /// Finds the rules of a blueprint that a name triggers.
    pub(crate) fn find(blueprint: &Blueprint, name: &str) -> Self {
        let waits = blueprint.rules.iter().filter_map(|rule| match &rule.trigger {
            Trigger::Signal(signal) => Some((signal.as_str(), &rule.name)),
            Trigger::Manual => Some((rule.name.as_str(), &rule.name)),
            _ => None,
        });
        let rules = waits.clone().filter(|(waited, _)| *waited == name).map(|(_, rule)| rule.clone()).collect();
        Self { rules, names: waits.map(|(waited, _)| waited.to_owned()).collect() }
    }

    /// Adds `wakes` to an answer: the rules that the name triggers. If there are none, adds `names` with the valid
    /// names.
    pub(crate) fn add_to_json(&self, mut answer: Value) -> Value {
        answer["wakes"] = json!(self.rules);
        if self.rules.is_empty() {
            answer["names"] = json!(self.names);
        }
        answer
    }
}

pub(crate) async fn run(arguments: &Arguments, data_dir: &Path, config: Option<&Path>, output: Output) -> Outcome {
    let value = arguments.value.as_deref().map(json_argument).transpose()?.unwrap_or(Value::Null);
    let reader = Reader::open(data_dir)?;
    let summary = reader.find(&arguments.board.board)?;
    let records = reader.records(&summary.id)?;
    let recovered = reader.board(&summary, None)?;
    if let Some(ended) = recovered.ended().filter(|ended| ended.is_final()) {
        let message = format!("board {} has ended ({}) and hears no signals", summary.id, ended.end);
        return Err(Failure::invalid_input("board_over", message).help("`patchboard run` makes a new board"));
    }
    let blueprint = recovered.blueprint().as_ref().clone();
    drop(reader);
    let waiting = SignalTargets::find(&blueprint, &arguments.name);
    if waiting.rules.is_empty() && !blueprint.signals.contains_key(&arguments.name) {
        let name = short(&arguments.name, 40);
        let names: Vec<String> = waiting.names.iter().map(|name| short(name, 40)).collect();
        let failure = Failure::invalid_input("unknown_signal", format!("no rule handles the signal `{name}`"));
        return Err(match names.is_empty() {
            true => failure.help("the blueprint has no rule with `trigger: {signal: NAME}` or `trigger: manual`"),
            false => failure.help(format!("rules handle {}", names.join(", "))),
        });
    }
    let seating = arguments.seats.assign_agents(&blueprint, data_dir, config)?;
    seating.skip_answered(&records, data_dir, &summary.id)?;
    let how = if arguments.no_run { AcquireMode::Paused } else { AcquireMode::Resume };
    let (runtime, board) = runner::acquire_board(data_dir, &seating, &summary.id, how).await?;
    let sent = async {
        board.signal(&arguments.name, value, None).await?;
        if !arguments.no_run && board.status().paused {
            board.resume(None).await?;
        }
        Ok(())
    };
    if let Err(error) = sent.await {
        runtime.shutdown().await;
        return Err(runner::failure(error));
    }
    if arguments.no_run {
        let head = board.status().head;
        runtime.shutdown().await;
        if output.is_json() {
            let told =
                json!({"board": summary.id, "signal": arguments.name, "head": {"seq": head.seq, "hash": head.hash}});
            output.json(&waiting.add_to_json(told))?;
        } else {
            output.line(&format!("signal {} recorded on board {}", one_line(&arguments.name), summary.id))?;
        }
        return Ok(Exit::Done);
    }
    runner::run_to_completion(runtime, board, Some(summary.head.seq), &seating, output).await
}
