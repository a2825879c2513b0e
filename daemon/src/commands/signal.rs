//! `patchboard signal`: sends a signal to a board, and runs it.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use super::run::json_argument;
use patchboard_runtime::error::RuntimeError;

use crate::arguments::BoardArgument;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, one_line, short};
use crate::queries::parts::HeadInfo;
use crate::queries::signals::{SignalReport, SignalTargets};
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

pub(crate) async fn run(arguments: &Arguments, data_dir: &Path, config: Option<&Path>, output: Output) -> Outcome {
    let value = arguments.value.as_deref().map(json_argument).transpose()?.unwrap_or(Value::Null);
    let stored = arguments.board.read(data_dir)?;
    if let Some(ended) = stored.board.ended().filter(|ended| ended.is_final()) {
        let message = format!("board {} has ended ({}) and hears no signals", stored.summary.id, ended.end);
        return Err(Failure::invalid_input("board_over", message).help("`patchboard run` makes a new board"));
    }
    let blueprint = stored.board.blueprint();
    let waiting = SignalTargets::find(blueprint, &arguments.name);
    if waiting.rules.is_empty() && !blueprint.signals.contains_key(&arguments.name) {
        let name = short(&arguments.name, 40);
        let names: Vec<String> = waiting.names.iter().map(|name| short(name, 40)).collect();
        let failure = Failure::invalid_input("unknown_signal", format!("no rule handles the signal `{name}`"));
        return Err(match names.is_empty() {
            true => failure.help("the blueprint has no rule with `trigger: {signal: NAME}` or `trigger: manual`"),
            false => failure.help(format!("rules handle {}", names.join(", "))),
        });
    }
    let seating = arguments.seats.assign_to(&stored, data_dir, config)?;
    let how = if arguments.no_run { AcquireMode::Paused } else { AcquireMode::Resume };
    let (runtime, board) = runner::acquire_board(data_dir, &seating, &stored.summary.id, how).await?;
    let sent = async {
        board.signal(&arguments.name, value, None).await?;
        if !arguments.no_run && board.status().paused {
            board.resume(None).await?;
        }
        Ok::<_, RuntimeError>(())
    };
    runner::or_shutdown(&runtime, sent.await).await?;
    if arguments.no_run {
        let head = board.status().head;
        runtime.shutdown().await;
        let head = HeadInfo::new(head.seq, head.hash);
        let report = json!(SignalReport::new(&stored.summary.id, &arguments.name, head, waiting));
        let text = || format!("signal {} recorded on board {}", one_line(&arguments.name), stored.summary.id);
        output.json_or_line(&report, text)?;
        return Ok(Exit::Done);
    }
    runner::run_to_completion(runtime, board, Some(stored.summary.head.seq), &seating, output).await
}
