//! `patchboard room wait`: waits for the decision on an artefact proposed on a board.

use std::path::Path;
use std::time::Duration as Time;

use clap::Args;
use patchboard_kernel::blueprint::Duration;
use patchboard_kernel::id::Version;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::arguments::BoardArgument;
use crate::client::{Client, DaemonArgument, path};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::queries::rooms::{DecisionError, DecisionStatus, decision_status};
use crate::reader::Reader;

/// Polling interval of a data directory.
const POLL_INTERVAL: Time = Time::from_millis(100);
/// Maximum wait of one request to a daemon, in seconds.
const REQUEST_WAIT_SECONDS: u64 = 30;
const NO_SUCH_ARTIFACT: &str = "no_such_artifact";

/// Wait for the decision on an artefact proposed in a board's negotiation room, and print it
///
/// A daemon (--url) or another process on this machine must run the board; waiting does not resume it. Prints one JSON
/// object. `outcome` is the final result; `decision`, the result of the votes, never changes. `ruling` is a person's
/// answer if the votes do not decide (ESCALATED_TO_HITL), or its timeout. `late_votes` lists critics who voted
/// after the decision.
///
/// Exit code 0: decided, whatever the outcome. 4: undecided at the timeout. 2: not even proposed by then
/// (no_such_artifact).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard room wait last plan-1
  patchboard room wait 0199 plan-1 --timeout 300s --url http://127.0.0.1:7733 | jq -r .outcome
  patchboard room wait last plan-1 --ruled                          (waits for the person, too)")]
pub(crate) struct Wait {
    #[command(flatten)]
    board: BoardArgument,
    /// The artefact's id: its name in /room/proposals
    #[arg(value_name = "ARTIFACT")]
    artifact: String,
    /// Timeout
    #[arg(long, value_name = "TIME", default_value = "300s")]
    timeout: Duration,
    /// If the votes do not decide, wait for the person's ruling
    #[arg(long)]
    ruled: bool,
    #[command(flatten)]
    daemon: DaemonArgument,
}

pub(super) async fn run(arguments: &Wait, data_dir: &Path, output: Output) -> Outcome {
    let until = Instant::now() + Time::from_millis(arguments.timeout.as_ms());
    let decided = match arguments.daemon.client()? {
        Some(daemon) => wait_on_daemon(&daemon, arguments, until).await?,
        None => wait_on_journal(&Reader::open(data_dir)?, arguments, until).await?,
    };
    if let Some(decision) = decided {
        output.json(&decision)?;
        return Ok(Exit::Done);
    }
    let Wait { artifact, timeout, board, .. } = arguments;
    output.error_context(&format!("nothing is decided over {artifact} on board {} within {timeout}", board.board));
    Ok(Exit::Quiescent)
}

async fn wait_on_daemon(daemon: &Client, arguments: &Wait, until: Instant) -> Result<Option<Value>, Failure> {
    let Wait { artifact, ruled, board, .. } = arguments;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up to whole seconds; the last request may exceed the remaining time.
        let wait = (left.as_secs() + u64::from(left.subsec_nanos() > 0)).min(REQUEST_WAIT_SECONDS);
        let place = path(&["v1", "boards", &board.board, "room", "decisions", artifact]);
        let answer = daemon.get(&format!("{place}?wait={wait}&ruled={ruled}")).await;
        let is_over = Instant::now() >= until;
        match answer {
            Ok(decision) if !decision.is_null() => return Ok(Some(decision)),
            Ok(_) if is_over => return Ok(None),
            // The artefact may still be proposed.
            Err(Failure::Error(error)) if !is_over && error.code == NO_SUCH_ARTIFACT => {}
            Err(failure) => return Err(failure),
            Ok(_) => {}
        }
        // The daemon answers at once for an ended board, so requests need a delay.
        sleep(POLL_INTERVAL).await;
    }
}

/// Waits for the decision in a data directory. Reads the document again at each new version.
async fn wait_on_journal(reader: &Reader, arguments: &Wait, until: Instant) -> Result<Option<Value>, Failure> {
    let mut looked_at: Option<Version> = None;
    let mut missing = None;
    loop {
        let summary = reader.find(&arguments.board.board)?;
        if looked_at.replace(summary.version) != Some(summary.version) {
            let board = reader.board(&summary, None)?;
            missing = match decision_status(board.state().root(), &arguments.artifact, arguments.ruled) {
                Ok(DecisionStatus::Decided(decision)) => return Ok(Some(json!(decision))),
                Ok(DecisionStatus::Open) => None,
                // The artefact may still be proposed.
                Err(why @ DecisionError::Artifact(_)) => Some(why),
                Err(why @ DecisionError::Room) => return Err(Failure::invalid_input(why.code(), why)),
            };
        }
        if Instant::now() >= until {
            return missing.map_or(Ok(None), |why| Err(Failure::invalid_input(why.code(), why)));
        }
        sleep(POLL_INTERVAL).await;
    }
}
