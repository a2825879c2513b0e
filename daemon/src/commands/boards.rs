//! `patchboard boards`: lists the boards of the data directory.

use std::path::Path;

use clap::Args;
use patchboard_agents::config::DEFAULT_MODEL;
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::admission::WaitingCall;
use patchboard_kernel::record::{Body, PauseCause, Record};
use patchboard_kernel::scheduler::ProviderWait;
use patchboard_protocols::PLANS;
use patchboard_runtime::clock::{Clock as _, SystemClock};
use patchboard_runtime::{audit, recovery};
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::{BoardSummary, Journal, JournalError};
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Outcome};
use crate::outages::awaited_model;
use crate::output::{Output, short, table};
use crate::reader::{format_time, storage};
use patchboard_kernel::text::counted;

/// List the boards of the data directory, oldest first
///
/// The status of a board is how it ended, or one of: paused, running (held by a living process), interrupted (its
/// process died or was killed), damaged (it has lost records, or differs from the list of boards: see `patchboard
/// verify` and `doctor`). `patchboard resume` resumes paused and interrupted boards. A board may wait for answers of
/// persons, for a provider that accepts no requests now, or, after its patience, for `resume`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard boards
  patchboard boards --output json | jq -r 'select(.status == \"interrupted\").board'")]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let (mut boards, mut gone) = (Vec::new(), Ok(()));
    match patchboard_storage::open_read_only(data_dir) {
        Ok(journal) => {
            for board in wait(journal.boards()).map_err(storage)? {
                let waits =
                    if board.ended.is_none() { WaitState::read(&*journal, &board) } else { WaitState::default() };
                let is_damaged = is_damaged(&*journal, &board);
                let status = if is_damaged { DAMAGED } else { status(&*journal, &board, &waits) };
                let mode = if is_damaged { Mode::default() } else { mode(&*journal, &board)? };
                boards.push((board, status, mode, waits));
            }
            gone = check_none_lost(&*journal);
        }
        Err(JournalError::NotFound(_)) => {}
        Err(error) => return Err(storage(error)),
    }
    if output.is_json() {
        for (board, status, mode, waits) in &boards {
            output.json(&summary_json(board, status, mode, waits))?;
        }
        return gone.map(|()| Exit::Done);
    }
    if boards.is_empty() {
        gone?;
        output.note(&format!("there are no boards in {}; `patchboard run` makes one", data_dir.display()));
        return Ok(Exit::Done);
    }
    let rows = boards.iter().map(|(board, status, mode, waits)| {
        [
            board.id.to_string(),
            match &board.parent {
                None => short(&board.name, 40),
                Some(parent) => format!("{} in {parent}", short(&board.name, 40)),
            },
            (*status).to_owned(),
            waits.text(),
            mode.to_string(),
            board.version.to_string(),
            (board.head.seq.0 + 1).to_string(),
            format_time(board.created_at),
            format_time(board.updated_at),
        ]
    });
    let header = ["BOARD", "BLUEPRINT", "STATUS", "WAITS FOR", "MODE", "VERSION", "RECORDS", "CREATED", "UPDATED"];
    output.line(&table(header, rows))?;
    gone.map(|()| Exit::Done)
}

#[derive(Default)]
struct WaitState {
    is_paused: bool,
    /// Set if the kernel paused the board because no model could be reached.
    is_provider_away: bool,
    /// Number of questions to persons.
    questions: usize,
    providers: Vec<ProviderWait>,
    /// Model of the first provider wait; `None` if a nested board waits.
    model: Option<String>,
    /// Calls waiting for admission while no call is in progress: model of the first, and their number.
    admission: Option<(String, usize)>,
}

impl WaitState {
    /// Recovers a board to find what it waits for. Empty for a board that cannot be recovered; `verify` reports the
    /// reason.
    fn read(journal: &dyn Journal, board: &BoardSummary) -> Self {
        let Ok(recovered) = recovery::recover(journal, &board.id, &PLANS) else { return Self::default() };
        let board = recovered.board;
        let waiting = if board.scheduler().is_calling() { Vec::new() } else { board.awaiting_admission() };
        let model = |call: &WaitingCall| call.model.clone().unwrap_or_else(|| DEFAULT_MODEL.to_owned());
        let first = board.scheduler().provider_waits().min_by_key(|(_, wait)| wait.not_before);
        Self {
            is_paused: board.is_paused(),
            is_provider_away: board.pause_cause() == Some(PauseCause::ProviderUnavailable),
            questions: board.pending().len(),
            providers: board.scheduler().provider_waits().map(|(_, wait)| wait.clone()).collect(),
            model: first.and_then(|(worker, _)| awaited_model(board.blueprint(), worker)),
            admission: waiting.first().map(|call| (model(call), waiting.len())),
        }
    }

    /// Returns the provider wait that ends first.
    fn provider(&self) -> Option<&ProviderWait> {
        self.providers.iter().min_by_key(|wait| wait.not_before)
    }

    fn awaited(&self) -> String {
        self.model.as_ref().map_or_else(|| "provider".to_owned(), |model| format!("model {model}"))
    }

    fn text(&self) -> String {
        let questions = match self.questions {
            0 => None,
            count => Some(counted(count, "question")),
        };
        let provider = match (self.is_provider_away, self.provider()) {
            (true, Some(wait)) => Some(format!("resume ({}: {})", self.awaited(), wait.reason)),
            (true, None) => Some("resume (provider)".to_owned()),
            (false, Some(wait)) if wait.not_before <= SystemClock.now() => {
                Some(format!("{} ({})", self.awaited(), wait.reason))
            }
            (false, Some(wait)) => {
                Some(format!("{} until {} ({})", self.awaited(), format_time(wait.not_before), wait.reason))
            }
            (false, None) => self.admission.as_ref().map(|(model, _)| format!("model {model}")),
        };
        questions.into_iter().chain(provider).collect::<Vec<_>>().join(", ")
    }

    fn json(&self) -> Value {
        json!({
            "questions": self.questions,
            "provider": self.provider().map(|wait| json!({
                "reason": wait.reason,
                "model": self.model,
                "not_before": wait.not_before,
                "patience": wait.patience,
                "waiting": self.providers.len(),
            })),
            "admission": self.admission.as_ref().map(|(model, calls)| json!({"model": model, "calls": calls})),
        })
    }
}

/// Status of a board that has lost records, or that differs from its entry in the list of boards.
pub(crate) const DAMAGED: &str = "damaged";

/// Returns true if a board has lost records, or the list of boards differs from them.
fn is_damaged(journal: &dyn Journal, board: &BoardSummary) -> bool {
    matches!(wait(journal.records(&board.id, None, 1)), Err(JournalError::RecordsLost(_)))
        || audit::check_listed(journal, &board.id).is_err()
}

/// Returns an error that names a board which the journal has lost as a whole, if there is one.
pub(crate) fn check_none_lost(journal: &dyn Journal) -> Result<(), Failure> {
    let lost = wait(journal.record_losses()).map_err(storage)?;
    match lost.into_iter().find(|lost| lost.found.is_none()) {
        Some(lost) => Err(storage(JournalError::RecordsLost(lost))),
        None => Ok(()),
    }
}

/// Returns the status of a board, from its records.
pub(crate) fn status_of(journal: &dyn Journal, board: &BoardSummary) -> &'static str {
    if is_damaged(journal, board) {
        return DAMAGED;
    }
    let waits = if board.ended.is_none() { WaitState::read(journal, board) } else { WaitState::default() };
    status(journal, board, &waits)
}

/// Returns how the board ended; else `paused`; `running`, if a process has claimed it; or `interrupted`, if its process
/// died.
fn status(journal: &dyn Journal, board: &BoardSummary, waits: &WaitState) -> &'static str {
    match board.ended {
        Some(end) => end.as_str(),
        None if waits.is_paused => "paused",
        None if wait(journal.is_claimed(&board.id)) => "running",
        None => "interrupted",
    }
}

/// Returns the board's mode from its first record; the default mode if that cannot be read.
fn mode(journal: &dyn Journal, board: &BoardSummary) -> Result<Mode, Failure> {
    let records = wait(journal.records(&board.id, None, 1)).map_err(storage)?;
    match records.first().map(Record::body) {
        Some(Ok(Body::Created(created))) => Ok(created.mode.clone()),
        _ => Ok(Mode::default()),
    }
}

fn summary_json(board: &BoardSummary, status: &str, mode: &Mode, waits: &WaitState) -> Value {
    json!({
        "status": status,
        "waits": waits.json(),
        "board": board.id,
        "name": board.name,
        "parent": board.parent,
        "mode": mode,
        "end": board.ended,
        "version": board.version,
        "head": {"seq": board.head.seq, "hash": board.head.hash},
        "epoch": board.epoch,
        "created_at": board.created_at,
        "updated_at": board.updated_at,
    })
}
