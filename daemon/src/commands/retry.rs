//! `patchboard retry`: queues a board's failed invocations again.

use std::path::Path;

use clap::Args;
use patchboard_kernel::blueprint::Duration;
use patchboard_kernel::money::Money;
use patchboard_kernel::record::Ended;
use patchboard_runtime::error::RuntimeError;
use serde_json::json;

use crate::arguments::BoardArgument;
use crate::client::DaemonArgument;
use crate::failure::Outcome;
use crate::output::Output;
use crate::queries::retry::{RaisedLimits, RaisedLimitsOfWorker, RetryRequest};
use crate::runner::{self, AcquireMode};
use crate::worker_agents::WorkerAgentArguments;
use patchboard_server::sizes::parse_size;

/// Queue failed invocations of a board again, and run it to completion
///
/// Invocations with exhausted attempts are queued again with their triggers, stopped branches get one try, and the
/// given limits are raised. Works on boards that stalled or were stopped by a breaker or a limit; a board that is done,
/// cancelled or archived stays as it is. Progress, result and exit codes are those of `patchboard run`.
///
/// For a board that a daemon runs, use --url and its whole id; the command then returns at once.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard retry last
  patchboard retry last --worker mapper
  patchboard retry last --worker mapper --worker-tokens 200000
  patchboard retry 0199c0de --tokens 500000 --wall 2h
  patchboard retry 0199c0de-0000-7000-8000-000000000000 --url http://127.0.0.1:7733")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
    #[command(flatten)]
    what: RetryScope,
    /// Only record the retry; `patchboard resume` continues the board
    #[arg(long)]
    no_run: bool,
    #[command(flatten)]
    daemon: DaemonArgument,
    #[command(flatten)]
    seats: WorkerAgentArguments,
}

/// Invocations to retry, and new limits.
#[derive(Args, Debug)]
struct RetryScope {
    /// Only invocations of this worker
    #[arg(long, value_name = "W", group = "chosen")]
    worker: Option<String>,
    /// Only this invocation: its number, as `patchboard log` shows it after `#`
    #[arg(long, value_name = "N", group = "chosen")]
    invocation: Option<u64>,
    /// Raise the board's token limit to N
    #[arg(long, value_name = "N")]
    tokens: Option<u64>,
    /// Raise the board's limit of running time, like 2h
    #[arg(long, value_name = "TIME")]
    wall: Option<Duration>,
    /// Raise the board's commit limit to N
    #[arg(long, value_name = "N")]
    commits: Option<u64>,
    /// Raise the journal size limit to SIZE, like 2GiB; a number alone is bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    journal: Option<u64>,
    /// Raise the board's limit of file edits to N
    #[arg(long, value_name = "N")]
    edits: Option<u64>,
    /// Raise the board's cost limit to AMOUNT, in the currency of the prices
    #[arg(long, value_name = "AMOUNT", value_parser = money)]
    money: Option<Money>,
    /// Raise the token limit of the worker, and of each rule that runs it, to N
    #[arg(long, value_name = "N", requires = "chosen")]
    worker_tokens: Option<u64>,
    /// Raise the worker's cost limit to AMOUNT
    #[arg(long, value_name = "AMOUNT", value_parser = money, requires = "chosen")]
    worker_money: Option<Money>,
}

fn money(text: &str) -> Result<Money, String> {
    Money::from_amount(text.parse::<f64>().map_err(|error| error.to_string())?)
}

impl RetryScope {
    fn request(&self) -> RetryRequest {
        let Self { tokens, wall, commits, journal, edits, money, .. } = *self;
        RetryRequest {
            worker: self.worker.clone(),
            invocation: self.invocation,
            limits: RaisedLimits { tokens, wall, commits, money, edits, journal },
            worker_limits: RaisedLimitsOfWorker { tokens: self.worker_tokens, money: self.worker_money },
        }
    }
}

pub(crate) async fn run(arguments: &Arguments, data_dir: &Path, config: Option<&Path>, output: Output) -> Outcome {
    if let Some(daemon) = arguments.daemon.client()? {
        return daemon.control(&arguments.board.board, "retry", &json!(arguments.what.request()), output).await;
    }
    let stored = arguments.board.read(data_dir)?;
    let was_over = stored.board.ended().is_some_and(Ended::is_final);
    let retried = arguments.what.request().retried(None);
    // A rejected retry leaves no trace. A running board may change before it is acquired, so it is judged then.
    let refused = if stored.board.ended().is_some() { stored.board.judge_retry(&retried) } else { Ok(()) };
    refused.map_err(|refused| RuntimeError::cannot_retry(&stored.summary.id, refused))?;
    let seating = arguments.seats.assign_to(&stored, data_dir, config)?;
    let how = if arguments.no_run { AcquireMode::Paused } else { AcquireMode::Resume };
    let (runtime, board) = runner::acquire_board(data_dir, &seating, &stored.summary.id, how).await?;
    // With --no-run no agent works, so no directory is needed.
    let needs_directory = was_over && !arguments.no_run;
    if needs_directory {
        seating.expect_directory();
    }
    runner::or_shutdown(&runtime, board.retry(retried).await).await?;
    let (runtime, board) = match needs_directory {
        true => runner::attach_directory(runtime, board, &seating).await?,
        false => (runtime, board),
    };
    if arguments.no_run {
        let paused = board.pause(None).await;
        runtime.shutdown().await;
        paused?;
        let resume = seating.resume_flags.resume_command(&format!("resume {}", stored.summary.id));
        output.line(&format!("retry recorded on board {}; go on with: {resume}", stored.summary.id))?;
        return Ok(crate::failure::Exit::Done);
    }
    output.note(&format!("board {}", stored.summary.id));
    runner::run_to_completion(runtime, board, Some(stored.summary.head.seq), &seating, output).await
}
