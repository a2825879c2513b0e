//! `patchboard archive`, `restore` and `delete`: move ended boards out of the live journal and back, or delete them.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use clap::Args;
use patchboard_kernel::id::BoardId;
use patchboard_protocols::PLANS;
use patchboard_runtime::archive::{self, ArchiveError};
use patchboard_runtime::clock::{Clock as _, SystemClock};
use patchboard_storage::archives::Source;
use patchboard_storage::blocking::wait;
use patchboard_storage::board_id;
use patchboard_storage::journal::JournalError;
use serde_json::json;

use crate::arguments::BoardArgument;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, one_line, table};
use crate::queries::storage::{ArchiveReport, RestoreReport, TombstoneInfo, failure};
use crate::reader::{Reader, format_time, storage};
use crate::serve::instance_lock::{open_exclusive, open_or_create_exclusive};
use crate::serve::tokens::{Action, AuditedAction, TokenStore};
use crate::user;

/// Archive boards that have ended, each to a file that `patchboard restore` reads; without BOARD, list archived and
/// deleted boards
///
/// The file is DATA_DIR/archive/BOARD.jsonl: all records and the texts they name. It is read back and verified before
/// anything is removed from the journal. `patchboard vacuum` then reclaims the space.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard archive last
  patchboard archive --output json | jq .board")]
pub(crate) struct Archive {
    /// The boards: ids, prefixes of ids, or `last`
    #[arg(value_name = "BOARD")]
    boards: Vec<String>,
}

/// Restore a board from its archive
///
/// Verifies the file before anything is written: the board's id, the chain, every value and text against its hash,
/// and that the records make a board. A missing data directory is created.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard restore 0199c0de-7ad4-7000-8000-1ce8a0b1c2d3
  patchboard restore /backup/0199c0de-7ad4-7000-8000-1ce8a0b1c2d3.jsonl")]
pub(crate) struct Restore {
    /// The whole id of an archived board, or a file
    #[arg(value_name = "BOARD|FILE")]
    wanted: String,
}

/// Delete a board that has ended, permanently
///
/// Only a line of `patchboard archive` remains: its id, its last record, and the time. The database file is rewritten,
/// so that nothing of the board can be found in it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard delete 0199c0de-7ad4-7000-8000-1ce8a0b1c2d3 --yes")]
pub(crate) struct Delete {
    #[command(flatten)]
    board: BoardArgument,
    /// Confirm the permanent deletion
    #[arg(long)]
    yes: bool,
}

impl Archive {
    pub(crate) fn run(&self, data_dir: &Path, output: Output) -> Outcome {
        let reading = Reader::open(data_dir)?;
        if self.boards.is_empty() {
            let tombstones = wait(reading.journal.tombstones()).map_err(storage)?;
            if output.is_json() {
                tombstones.iter().try_for_each(|tombstone| output.json(&json!(TombstoneInfo::from(tombstone))))?;
                return Ok(Exit::Done);
            }
            let rows = tombstones.iter().map(|tombstone| {
                let file = tombstone.archive.as_deref().map_or_else(|| "deleted".to_owned(), one_line);
                [tombstone.board.to_string(), one_line(&tombstone.name), format_time(tombstone.at), file]
            });
            output.line(&table(["BOARD", "BLUEPRINT", "TAKEN OUT", "ARCHIVE"], rows))?;
            return Ok(Exit::Done);
        }
        let found: Result<Vec<_>, Failure> = self.boards.iter().map(|wanted| reading.find(wanted)).collect();
        let (journal, _alone) = open_exclusive(data_dir, "POST /v1/boards/{board}/archive")?;
        let tokens = TokenStore::open(data_dir)?;
        for board in found? {
            let _claim = wait(journal.claim(&board.id, false)).map_err(storage)?;
            let archives = patchboard_storage::archives(data_dir);
            let (now, by) = (SystemClock.now(), user::principal());
            let intended =
                AuditedAction { action: Action::BoardArchived, subject: Some(board.id.as_str()), by: Some(&by) };
            let path = tokens.audited(&intended, now, || {
                archive::archive(&*journal, &*archives, &board.id, now, &PLANS).map_err(failure)
            })?;
            let text = format!("board {} is in {}", board.id, one_line(&path));
            output.json_or_line(&json!(ArchiveReport { board: board.id, archive: path }), || text)?;
        }
        Ok(Exit::Done)
    }
}

impl Restore {
    pub(crate) async fn run(&self, data_dir: &Path, output: Output) -> Outcome {
        // An id names an archive of the data directory, anything else a file.
        let (archives, id) = (patchboard_storage::archives(data_dir), BoardId::from(self.wanted.as_str()));
        let (place, source): (String, Source) = match board_id::is_usable(&id).then(|| wait(archives.open(&id))) {
            Some(Ok(source)) => (archives.place(&id), source),
            _ => {
                let opened = File::open(&self.wanted);
                let failed = |source| failure(ArchiveError::Io { path: self.wanted.clone(), source });
                (self.wanted.clone(), Box::new(BufReader::new(opened.map_err(failed)?)))
            }
        };
        let beside = match patchboard_storage::open_read_only(data_dir) {
            // Boards can be restored even if the database is gone.
            Err(JournalError::NotFound(_) | JournalError::RecordsLost(_)) => None,
            opened => Some(opened.map_err(storage)?),
        };
        let carried = archive::read_recoverable(&place, source, beside.as_deref(), &PLANS).map_err(failure)?;
        // Nothing is created or opened for writing before this.
        let (journal, _alone) = open_or_create_exclusive(data_dir, "POST /v1/boards/{board}/restore")?;
        let (tokens, by, id) = (TokenStore::open(data_dir)?, user::principal(), carried.board().clone());
        let intended = AuditedAction { action: Action::BoardRestored, subject: Some(id.as_str()), by: Some(&by) };
        let begun = tokens.begin(&intended, SystemClock.now()).await?;
        let board = archive::append_restored(&*journal, carried).await.map_err(failure)?;
        tokens.finish(begun).await;
        let text = format!("board {board} is back");
        output.json_or_line(&json!(RestoreReport { board }), || text)?;
        Ok(Exit::Done)
    }
}

impl Delete {
    pub(crate) fn run(&self, data_dir: &Path, output: Output) -> Outcome {
        let board = Reader::open(data_dir)?.find(&self.board.board)?;
        if !self.yes {
            let message = format!("this deletes board {} permanently", board.id);
            return Err(Failure::invalid_input("not_confirmed", message)
                .help("pass --yes to confirm; `patchboard archive` moves it to a file instead"));
        }
        let (journal, _alone) = open_exclusive(data_dir, "DELETE /v1/boards/{board}")?;
        let _claim = wait(journal.claim(&board.id, false)).map_err(storage)?;
        let archives = patchboard_storage::archives(data_dir);
        let (now, by) = (SystemClock.now(), user::principal());
        let intended = AuditedAction { action: Action::BoardDeleted, subject: Some(board.id.as_str()), by: Some(&by) };
        let tombstone = TokenStore::open(data_dir)?
            .audited(&intended, now, || archive::delete(&*journal, &*archives, &board.id, now).map_err(failure))?;
        wait(journal.vacuum()).map_err(storage)?;
        let text = || format!("board {} is gone; its last record was {}", board.id, tombstone.head.hash);
        output.json_or_line(&json!(TombstoneInfo::from(&tombstone)), text)?;
        Ok(Exit::Done)
    }
}
