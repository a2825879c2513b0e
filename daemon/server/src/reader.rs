//! Reads the journal of the data directory: finds boards by user input, and returns their records.

use std::path::Path;
use std::sync::Arc;

use jiff::tz::TimeZone;
use patchboard_kernel::board::Board;
use patchboard_kernel::id::{BoardId, Seq, Timestamp, Version};
use patchboard_kernel::record::Record;
use patchboard_protocols::PLANS;
use patchboard_runtime::error::RuntimeError;
use patchboard_runtime::recovery;
use patchboard_runtime::verified_reader::VerifiedReader;
use patchboard_storage::blocking::wait;
use patchboard_storage::board_id::LAST;
use patchboard_storage::journal::{BoardSummary, Journal, JournalError, RecordLoss};
use serde_json::json;

use crate::failure::{Exit, Failure, Outcome};

/// Help text for a disk that cannot be read.
pub const DISK: &str = "the system's log (`dmesg`) says more of the disk; once it can be read, or was copied to another one, `patchboard doctor` and \
    `patchboard verify BOARD` say whether the journal is whole";

/// Records per read.
const PAGE: usize = 1024;

/// A journal, opened for reading.
pub struct Reader {
    /// The journal, open for reading.
    pub journal: Arc<dyn Journal>,
}

impl Reader {
    /// Opens the journal of a data directory; other processes may write to it concurrently.
    pub fn open(data_dir: &Path) -> Result<Self, Failure> {
        let journal = patchboard_storage::open_read_only(data_dir).map_err(|error| match error {
            JournalError::NotFound(_) => {
                Failure::invalid_input("no_journal", format!("there are no boards in {}", data_dir.display()))
                    .help("make one with `patchboard run`, or name another place with --data-dir")
            }
            other => storage(other),
        })?;
        Ok(Self { journal })
    }

    /// Finds a board by its id, by a unique prefix of its id, or by the word `last`.
    pub fn find(&self, wanted: &str) -> Result<BoardSummary, Failure> {
        find(&*self.journal, wanted)
    }

    /// Returns a board right after the commit of a version, or in its current state. Starts from a snapshot if
    /// possible.
    pub fn board(&self, board: &BoardSummary, version: Option<u64>) -> Result<Board, Failure> {
        // A process that runs the board may have appended more since it was listed.
        let now =
            wait(self.journal.summary(&board.id)).map_err(storage)?.map_or(board.version, |summary| summary.version);
        let recovered = match version {
            None => recovery::recover(&*self.journal, &board.id, &PLANS),
            Some(version) if version > now.0 => return Err(no_such_version(version, now.0)),
            Some(version) => recovery::recover_at(&*self.journal, &board.id, Version(version), &PLANS),
        };
        recovered.map(|recovered| recovered.board).map_err(|error| match error {
            RuntimeError::Journal(error) => storage(error),
            other => bad_board(other),
        })
    }

    /// Returns all records of a board, in order.
    pub fn records(&self, board: &BoardId) -> Result<Vec<Record>, Failure> {
        let mut reading = self.reading(board, None)?;
        let mut records: Vec<Record> = Vec::new();
        loop {
            let page = reading.next(PAGE).map_err(storage)?;
            if page.is_empty() {
                return Ok(records);
            }
            records.extend(page);
        }
    }

    /// Reads the records of a board after a given one; each is verified.
    pub fn reading<'a>(&'a self, board: &'a BoardId, after: Option<Seq>) -> Result<VerifiedReader<'a>, Failure> {
        VerifiedReader::new(&*self.journal, board, after).map_err(storage)
    }

    /// Returns the exit code of a command that printed a board's journal: an error if the journal ends inside a step.
    /// Otherwise a damaged board would pass for an intact one.
    pub fn exit_after_listing(&self, board: &BoardId) -> Outcome {
        recovery::check_end(&*self.journal, board, &PLANS).map(|()| Exit::Done).map_err(storage)
    }

    /// Returns the blueprint name of the outermost board of a nested board, possibly its own; and the records of
    /// related boards up to a moment.
    pub fn related_records(
        &self,
        board: &BoardSummary,
        until: Timestamp,
    ) -> Result<(String, Vec<Vec<Record>>), Failure> {
        let boards = wait(self.journal.boards()).map_err(storage)?;
        let outermost = |of: &BoardSummary| {
            let around = BoardSummary::related(&boards, &of.id);
            boards.iter().find(|other| other.parent.is_none() && around.contains(&&other.id)).unwrap_or(of).clone()
        };
        let outermost = if board.parent.is_some() { outermost(board) } else { board.clone() };
        let mut records = Vec::new();
        let inside = BoardSummary::related(&boards, &outermost.id).into_iter().chain([&outermost.id]);
        for other in inside.filter(|other| **other != board.id) {
            let of_other = self.records(other)?;
            records.push(of_other.into_iter().take_while(|record| record.at <= until).collect());
        }
        Ok((outermost.name, records))
    }
}

pub(crate) fn find(journal: &dyn Journal, wanted: &str) -> Result<BoardSummary, Failure> {
    let boards = wait(journal.boards()).map_err(storage)?;
    let matching: Vec<&BoardSummary> = match wanted {
        // The newest board that is not nested: a nested board is part of its parent's work.
        LAST => boards.iter().rfind(|board| board.parent.is_none()).into_iter().collect(),
        id => match boards.iter().find(|board| board.id.as_str() == id) {
            Some(exact) => vec![exact],
            None => boards.iter().filter(|board| !id.is_empty() && board.id.as_str().starts_with(id)).collect(),
        },
    };
    match matching.as_slice() {
        [board] => Ok((*board).clone()),
        [] => {
            let lost = wait(journal.record_losses()).map_err(storage)?.into_iter();
            let is_wanted =
                |lost: &RecordLoss| wanted == LAST || (!wanted.is_empty() && lost.board.as_str().starts_with(wanted));
            if let Some(lost) = lost.filter(|lost| lost.found.is_none()).find(is_wanted) {
                return Err(storage(JournalError::RecordsLost(lost)));
            }
            let tombstones = wait(journal.tombstones()).map_err(storage)?;
            let tombstone =
                tombstones.iter().find(|gone| !wanted.is_empty() && gone.board.as_str().starts_with(wanted));
            let help = match tombstone {
                Some(tombstone) if tombstone.archive.is_some() => {
                    format!("it was archived; `patchboard restore {}` brings it back", tombstone.board)
                }
                Some(tombstone) => format!("board {} was deleted for good", tombstone.board),
                None => "`patchboard boards` lists what there is".to_owned(),
            };
            Err(Failure::invalid_input("no_such_board", format!("there is no board {wanted}")).help(help))
        }
        several => {
            let ids: Vec<&str> = several.iter().map(|board| board.id.as_str()).collect();
            Err(Failure::invalid_input("ambiguous_board", format!("{} boards begin with {wanted}", several.len()))
                .help(format!("give more of the id: {}", ids[..ids.len().min(8)].join(", ")))
                .detail("boards", json!(ids)))
        }
    }
}

fn no_such_version(version: u64, head: u64) -> Failure {
    Failure::invalid_input("no_such_version", format!("the board is at version {head}, not at {version} yet"))
        .help(format!("versions go from 0, the initial state, to {head}"))
        .detail("version", head.into())
}

/// Converts a storage error to a command-line failure.
pub fn storage(error: JournalError) -> Failure {
    let failure = Failure::failed(error.code(), &error);
    match error {
        JournalError::Corrupt { seq: Some(seq), .. } | JournalError::BadRecord { seq, .. } => {
            failure.help("`patchboard verify BOARD` says what was altered").detail("seq", seq.0.into())
        }
        JournalError::Unreadable(_) => failure.help(DISK),
        JournalError::RecordsLost(RecordLoss { board, known, found }) => failure
            .help(lost_help(&board))
            .detail("board", json!(board))
            .detail("known", known.0.into())
            .detail("found", json!(found)),
        _ => failure,
    }
}

/// Returns the help text for lost records of boards.
pub fn lost_help(boards: impl std::fmt::Display) -> String {
    format!(
        "restore the data directory from a backup, or give the lost records up and go on from what is there: \
         `patchboard doctor --accept-loss {boards}`"
    )
}

/// Builds the failure for a record that cannot be read.
pub fn bad_board(error: impl std::fmt::Display) -> Failure {
    Failure::failed("bad_record", error).help("`patchboard verify BOARD` says which record was altered, if one was")
}

/// Formats a recorded time, in UTC.
pub fn format_time(at: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(at.0) {
        Ok(moment) => moment.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        // The clock that recorded it was beyond the calendar's range.
        Err(_) => format!("{} ms", at.0),
    }
}
