//! Follows a running board until it ends or the user stops it, and reports the result.

pub(crate) mod result;

use std::path::Path;

use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::{Ended, Principal};
use patchboard_runtime::clock::{Clock as _, SystemClock};
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_runtime::subscription::Subscription;
use patchboard_server::interrupts::{Interrupt, Interrupts};

use self::result::RunResult;
use crate::describe::NestedShortage;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;
use crate::user;
use crate::worker_agents::WorkerAgents;

pub(crate) async fn start(data_dir: &Path, agents: &WorkerAgents) -> Result<Runtime, Failure> {
    let journal = patchboard_storage::open(data_dir).map_err(crate::reader::storage)?;
    let mut options = Options::new(agents.agent.clone());
    // Runs of one recording must produce identical journals, including the positions of snapshot records.
    options.snapshots.waits = agents.is_played();
    options.observer = agents.nested_shortages.clone();
    agents.agent.start(journal, options).await.map_err(Failure::from)
}

/// Starts a runtime and acquires a stored board in it.
pub(crate) async fn acquire_board(
    data_dir: &Path,
    agents: &WorkerAgents,
    board: &BoardId,
    how: AcquireMode,
) -> Result<(Runtime, BoardHandle), Failure> {
    let runtime = start(data_dir, agents).await?;
    let taken = match how {
        AcquireMode::Resume => runtime.resume(board).await,
        AcquireMode::ForceResume => runtime.resume_forced(board).await,
        AcquireMode::Paused => runtime.resume_paused(board, recorded_user(agents)).await,
    };
    let board = or_shutdown(&runtime, taken).await?;
    let board = recorded_user(agents).map_or(board.clone(), |user| board.with_principal(user));
    attach_directory(runtime, board, agents).await
}

/// Shuts the runtime down if a result is an error.
pub(crate) async fn or_shutdown<T, E: Into<Failure>>(runtime: &Runtime, result: Result<T, E>) -> Result<T, Failure> {
    if result.is_err() {
        runtime.shutdown().await;
    }
    result.map_err(E::into)
}

/// Returns the user to record; `None` for a played recording: its records must not depend on the user.
pub(crate) fn recorded_user(agents: &WorkerAgents) -> Option<Principal> {
    (!agents.is_played()).then(user::principal)
}

pub(crate) async fn attach_directory(
    runtime: Runtime,
    board: BoardHandle,
    agents: &WorkerAgents,
) -> Result<(Runtime, BoardHandle), Failure> {
    let attached = agents.attach(&board).await;
    let attached = attached.map_err(|failure| failure.detail("board", board.id().as_str().into()));
    or_shutdown(&runtime, attached).await?;
    Ok((runtime, board))
}

/// Way of acquiring a stored board.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcquireMode {
    Resume,
    /// Resume, even if another process seems to run it.
    ForceResume,
    /// Acquire in a paused state, without calling agents.
    Paused,
}

enum RunEnd {
    Ended(Ended),
    /// Board paused by the user.
    Paused,
    /// Board waits only for persons.
    Waiting,
    /// Provider is unavailable for longer than the board's patience, or needs an operator.
    Unavailable,
}

/// Prints the board's progress until it ends or the user interrupts, then its result on stdout.
///
/// Records up to `print_after` are not printed as progress.
pub(crate) async fn run_to_completion(
    runtime: Runtime,
    board: BoardHandle,
    print_after: Option<Seq>,
    agents: &WorkerAgents,
    output: Output,
) -> Outcome {
    let mut progress = Progress::new(output, print_after);
    let mut records = board.subscribe(None);
    let stop = follow(&board, &mut records, &mut progress, agents).await;
    progress.hidden_inside(&nested_shortages(&board, &agents.nested_shortages.subscribe().borrow()));
    if stop.is_ok() {
        catch_up(&board, &mut records, &mut progress).await;
    }
    progress.finish();
    let status = board.status();
    let again = agents.resume_flags.resume_command(&format!("resume {}", board.id()));
    if matches!(stop, Ok(RunEnd::Ended(_))) {
        cancel_nested_boards(&runtime, board.id()).await;
    }
    runtime.shutdown().await;
    agents.finish(output)?;
    let totals = &progress.totals;
    let last_failure = totals.last_failure.as_ref().map(|(code, message)| (*code, message.as_str()));
    let last_failure = last_failure.or_else(|| Some((FailureCode::Refused, totals.last_provider_error.as_deref()?)));
    if let Some(advice) = last_failure.and_then(|(code, message)| agents.advice(code, message)) {
        output.error_context(&format!("help: {advice}"));
    }
    let run_result = |ended| RunResult::new(&status, ended, totals, &agents.resume_flags);
    match stop {
        Ok(RunEnd::Ended(ended)) => run_result(Some(ended)).print(output),
        Ok(RunEnd::Waiting) => {
            output.note(&format!("answered elsewhere? go on with: {again}"));
            run_result(None).print(output)
        }
        Ok(RunEnd::Unavailable) => {
            let advice = "the model's provider takes no requests: fix what the last `deferred` line names, then resume";
            output.note(&format!("{advice} with: {again}"));
            run_result(None).print(output)
        }
        Ok(RunEnd::Paused) => {
            output.note(&format!("paused; go on with: {again}"));
            run_result(None).print(output)
        }
        Err(failure) => {
            let failure = failure.detail("board", status.board.as_str().into());
            // Another process owns the board: resuming here would fence it.
            let is_fenced = matches!(&failure, Failure::Error(error) if error.code == "journal_fenced");
            Err(if is_fenced { failure } else { failure.help(format!("go on with: {again}")) })
        }
    }
}

/// Cancels the nested boards that run in this process, because their outer board has ended.
async fn cancel_nested_boards(runtime: &Runtime, outer: &BoardId) {
    for inside in runtime.boards().iter().filter(|board| *board != outer) {
        let Some(inside) = runtime.board(inside).filter(|inside| inside.status().ended.is_none()) else { continue };
        if let Err(error) = inside.cancel().await {
            tracing::debug!(board = %inside.id(), %error, "an inner board could not be cancelled");
        }
    }
}

async fn follow(
    board: &BoardHandle,
    records: &mut Subscription,
    progress: &mut Progress,
    agents: &WorkerAgents,
) -> Result<RunEnd, Failure> {
    let mut outages = agents.outages();
    let mut hidden = agents.nested_shortages.subscribe();
    let ended = board.wait_for_end();
    tokio::pin!(ended);
    let mut interrupts = Interrupts::new()?;
    let mut pausing = false;
    loop {
        let status = board.status();
        progress.spent = status.account.spent;
        // An expired question is about to be closed, and its consequences are still to come.
        let now = SystemClock.now();
        let is_over = status.pending.values().any(|question| question.is_over(now));
        if !pausing && status.waits_for_persons && !is_over {
            return Ok(RunEnd::Waiting);
        }
        // A paused board waits only for calls in progress, not for retries, providers or persons.
        let under_way = status.calling;
        if status.pause_cause.is_some() && under_way == 0 {
            return Ok(RunEnd::Unavailable);
        }
        if pausing && status.paused && under_way == 0 && status.ended.is_none() {
            return Ok(RunEnd::Paused);
        }
        tokio::select! {
            biased;
            interrupt = interrupts.next() => {
                if pausing {
                    return Ok(RunEnd::Paused);
                }
                board.pause(None).await?;
                // Without a terminal there can be no second interrupt.
                if interrupt == Interrupt::HangUp {
                    return Ok(RunEnd::Paused);
                }
                pausing = true;
                if under_way > 0 {
                    progress.print(&format!(
                        "pausing, calls running: {under_way}; interrupt again to abandon them"
                    ));
                }
            }
            news = outages.next() => progress.outage(&news),
            Ok(()) = hidden.changed() => progress.hidden_inside(&nested_shortages(board, &hidden.borrow_and_update())),
            record = records.next() => match record {
                Some(Ok(record)) => {
                    progress.record(&record);
                }
                Some(Err(error)) => return Err(crate::reader::storage(error)),
                // The runtime closed the board; `ended` has the reason.
                None => return (&mut ended).await.map(RunEnd::Ended).map_err(Failure::from),
            },
            end = &mut ended => return end.map(RunEnd::Ended).map_err(Failure::from),
        }
    }
}

/// Returns the findings of nested boards, without those of the board itself.
fn nested_shortages(board: &BoardHandle, found: &[NestedShortage]) -> Vec<NestedShortage> {
    found.iter().filter(|hidden| hidden.board != *board.id()).cloned().collect()
}

/// Reads the durable records that have not been seen yet.
async fn catch_up(board: &BoardHandle, records: &mut Subscription, progress: &mut Progress) {
    let head = board.status().head.seq;
    while progress.last.is_none_or(|last| last < head) {
        let Some(Ok(record)) = records.next().await else { return };
        progress.record(&record);
    }
}
