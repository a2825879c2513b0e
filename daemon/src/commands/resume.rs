//! `patchboard resume`: resumes a board from its journal.

use std::path::Path;

use clap::Args;
use patchboard_runtime::status::BoardStatus;
use serde_json::json;

use crate::arguments::BoardArgument;
use crate::client::DaemonArgument;
use crate::failure::Outcome;
use crate::output::Output;
use crate::progress::Totals;
use crate::runner::result::RunResult;
use crate::runner::{self, AcquireMode};
use crate::worker_agents::WorkerAgentArguments;

/// Resume a paused, interrupted or crashed board
///
/// For a board that a daemon runs, use --url and its whole id; the command then returns at once.
///
/// Everything that was acknowledged is preserved. Interrupted calls are repeated; none commits twice. Progress, result
/// and exit codes are those of `patchboard run`; a board that has ended is only reported.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard resume last
  patchboard resume 0199c0de --model-url http://127.0.0.1:8080/v1 --model qwen2.5
  patchboard resume last --force-takeover
  patchboard resume 0199c0de-0000-7000-8000-000000000000 --url http://127.0.0.1:7733")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
    /// Take the board over even if another process seems to run it; that process is fenced and can no longer write
    #[arg(long)]
    force_takeover: bool,
    #[command(flatten)]
    daemon: DaemonArgument,
    #[command(flatten)]
    seats: WorkerAgentArguments,
}

pub(crate) async fn run(arguments: &Arguments, data_dir: &Path, config: Option<&Path>, output: Output) -> Outcome {
    if let Some(daemon) = arguments.daemon.client()? {
        return daemon.control(&arguments.board.board, "resume", &json!({}), output).await;
    }
    let stored = arguments.board.read(data_dir)?;
    if let Some(ended) = stored.board.ended() {
        // An ended board has nothing to resume, so it is not taken over.
        let status = BoardStatus { pause_cause: None, ..BoardStatus::new(&stored.board, stored.records.last()) };
        let (totals, flags) = (Totals::from_records(&stored.records), arguments.seats.resume_flags(data_dir, config));
        return RunResult::new(&status, Some(ended), &totals, &flags).print(output);
    }
    let seating = arguments.seats.assign_to(&stored, data_dir, config)?;
    let how = if arguments.force_takeover { AcquireMode::ForceResume } else { AcquireMode::Resume };
    let (runtime, board) = runner::acquire_board(data_dir, &seating, &stored.summary.id, how).await?;
    if board.status().paused {
        board.resume(None).await?;
    }
    output.note(&format!("board {}", stored.summary.id));
    runner::run_to_completion(runtime, board, Some(stored.summary.head.seq), &seating, output).await
}
