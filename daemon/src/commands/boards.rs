//! `patchboard boards`: what is in the data directory.

use std::fs::{File, TryLockError};
use std::path::Path;

use clap::Args;
use patchboard_kernel::mode::Mode;
use patchboard_kernel::record::{Body, Kind, Record};
use patchboard_runtime::journal::sqlite::SqliteJournal;
use patchboard_runtime::journal::{BoardSummary, Journal as _, JournalError};
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, short, table};
use crate::reader::{moment, storage};

/// How many records are read at once.
const PAGE: usize = 1024;

/// List the boards of the data directory, the oldest first
///
/// The status of a board is how it ended, or one of: running (a living process has it), paused, interrupted (its process
/// died or was killed). `patchboard resume` goes on with paused and interrupted ones.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard boards
  patchboard boards --output json | jq -r 'select(.status == \"interrupted\").board'")]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let mut boards = Vec::new();
    match SqliteJournal::open_read_only(data_dir) {
        Ok(journal) => {
            for board in journal.boards().map_err(storage)? {
                let status = status(&journal, data_dir, &board)?;
                let mode = mode(&journal, &board)?;
                boards.push((board, status, mode));
            }
        }
        Err(JournalError::NotFound(_)) => {}
        Err(error) => return Err(storage(error)),
    }
    if output.is_json() {
        for (board, status, mode) in &boards {
            output.json(&summary_json(board, status, mode))?;
        }
        return Ok(Exit::Done);
    }
    if boards.is_empty() {
        output.note(&format!("there are no boards in {}; `patchboard run` makes one", data_dir.display()));
        return Ok(Exit::Done);
    }
    let rows = boards.iter().map(|(board, status, mode)| {
        [
            board.id.to_string(),
            match &board.parent {
                None => short(&board.name, 40),
                Some(parent) => format!("{} in {parent}", short(&board.name, 40)),
            },
            (*status).to_owned(),
            mode.to_string(),
            board.version.to_string(),
            (board.head.seq.0 + 1).to_string(),
            moment(board.created_at),
            moment(board.updated_at),
        ]
    });
    output.line(&table(["BOARD", "BLUEPRINT", "STATUS", "MODE", "VERSION", "RECORDS", "CREATED", "UPDATED"], rows))?;
    Ok(Exit::Done)
}

/// How the board ended; `running`, if a process has claimed it; `paused`; or `interrupted`, if its process died.
fn status(journal: &SqliteJournal, data_dir: &Path, board: &BoardSummary) -> Result<&'static str, Failure> {
    if let Some(end) = board.ended {
        return Ok(end.as_str());
    }
    if is_claimed(data_dir, board) {
        return Ok("running");
    }
    let mut is_paused = false;
    let mut after = None;
    loop {
        let records = journal.records(&board.id, after, PAGE).map_err(storage)?;
        let Some(last) = records.last() else { break };
        after = Some(last.seq);
        for record in &records {
            match record.kind {
                Kind::Paused => is_paused = true,
                Kind::Resumed | Kind::Retried => is_paused = false,
                _ => {}
            }
        }
    }
    Ok(if is_paused { "paused" } else { "interrupted" })
}

/// Whether a living process holds the board's lock file (see `Journal::claim`). Looks without claiming: a shared lock,
/// given back at once. What cannot be looked at is held by nobody.
pub(crate) fn is_claimed(data_dir: &Path, board: &BoardSummary) -> bool {
    let Ok(file) = File::open(data_dir.join("locks").join(board.id.as_str())) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Which system it runs as, by its first record; the usual one where that cannot be read.
fn mode(journal: &SqliteJournal, board: &BoardSummary) -> Result<Mode, Failure> {
    let records = journal.records(&board.id, None, 1).map_err(storage)?;
    match records.first().map(Record::body) {
        Some(Ok(Body::Created(created))) => Ok(created.mode),
        _ => Ok(Mode::default()),
    }
}

fn summary_json(board: &BoardSummary, status: &str, mode: &Mode) -> Value {
    json!({
        "status": status,
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
