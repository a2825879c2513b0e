//! Removal of ended boards from the live journal: into an archive file that can be restored, or for good.
//!
//! An archive is JSON lines. A head with the board's last record is followed by every record, as `patchboard export`
//! prints it, with the columns that the journal has beside its header. Then every text that they name follows, and at
//! last the SHA-256 of all lines before. It is written, synced, read back and checked before a row of the live journal
//! is deleted. A tombstone remains: id, last record, time.

use std::collections::BTreeSet;
use std::io::{self, BufRead};
use std::sync::Arc;

use patchboard_kernel::digest::{Hasher, Salt, sha256};
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_kernel::plan::{PlanSource, UncachedPlans};
use patchboard_kernel::record::{Body, Record};

use crate::board_file::{BoardFile, BoardFileError, FORMAT, Line};
use crate::{audit, recovery};
use patchboard_kernel::driver::Head;
use patchboard_storage::archives::Archives;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::rules::named_texts;
use patchboard_storage::journal::{BoardSummary, Journal, JournalError, Tombstone};

/// Records read at once.
const PAGE: usize = 1024;

/// Result of archiving.
pub type Result<T, E = ArchiveError> = std::result::Result<T, E>;

/// Error of archiving, deleting or restoring a board.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The board has not ended.
    #[error("board {0} has not ended: cancel it, or wait")]
    NotEnded(BoardId),
    /// The archive is damaged.
    #[error("{path} is no archive that can be used: {what}")]
    Damaged {
        /// Path of the file.
        path: String,
        /// Description of the damage.
        what: String,
    },
    /// The board id of the archive is invalid.
    #[error("{path} is no archive that can be used: {what}")]
    BadId {
        /// Path of the file.
        path: String,
        /// Description of the error.
        what: String,
    },
    /// The journal already has the board.
    #[error("the journal has board {0}: there is nothing to bring back")]
    Exists(BoardId),
    /// The board had more records when it was removed than the archive has.
    #[error("the archive of board {board} is older than the board was: record {} is not in it", head.seq)]
    Outdated {
        /// Board of the archive.
        board: BoardId,
        /// Last record of the board.
        head: Head,
    },
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file.
        path: String,
        /// Cause.
        source: io::Error,
    },
    /// Journal error.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl ArchiveError {
    /// Returns the stable code; messages may change, codes may not.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotEnded(_) => "board_not_ended",
            Self::Damaged { .. } => "bad_archive",
            Self::BadId { .. } => "bad_board_id",
            Self::Exists(_) => "board_exists",
            Self::Outdated { .. } => "older_archive",
            Self::Io { .. } => "archive_io",
            Self::Journal(error) => error.code(),
        }
    }
}

fn io_error(archives: &dyn Archives, board: &BoardId, source: io::Error) -> ArchiveError {
    ArchiveError::Io { path: archives.place(board), source }
}

/// Moves an ended board from the journal into an archive; returns the place of it. The caller holds the claim on the
/// board. Blocks. Leaves the board unchanged if it fails.
pub fn archive(
    journal: &dyn Journal,
    archives: &dyn Archives,
    board: &BoardId,
    now: Timestamp,
    plans: &dyn PlanSource,
) -> Result<String> {
    let summary = ended(journal, board)?;
    store(journal, archives, &summary, plans)?;
    let place = archives.place(board);
    wait(journal.remove(board, summary.head, Some(&place), now))?;
    Ok(place)
}

/// Writes a board's archive and keeps the board in the journal. Unlike [`archive`], also works for a board that has
/// not ended. Blocks.
pub fn save(journal: &dyn Journal, archives: &dyn Archives, board: &BoardId, plans: &dyn PlanSource) -> Result<()> {
    store(journal, archives, &load_summary(journal, board)?, plans)
}

/// Rewrites an existing archive of a board, so that redacted content leaves it, too. Returns false if there is none.
/// The caller holds the claim on the board. Blocks. Leaves the archive unchanged if it fails.
pub fn rewrite(
    journal: &dyn Journal,
    archives: &dyn Archives,
    board: &BoardId,
    plans: &dyn PlanSource,
) -> Result<bool> {
    match wait(archives.open(board)) {
        Ok(_) => save(journal, archives, board, plans).map(|()| true),
        // An unfinished archive of a crash has the redacted content, too.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            wait(archives.remove(board)).map_err(|error| io_error(archives, board, error))?;
            Ok(false)
        }
        Err(error) => Err(io_error(archives, board, error)),
    }
}

/// Deletes an ended board from the journal for good, and its archive. The caller holds the claim on it and must have
/// the journal rewritten afterwards. Blocks.
pub fn delete(journal: &dyn Journal, archives: &dyn Archives, board: &BoardId, now: Timestamp) -> Result<Tombstone> {
    let summary = ended(journal, board)?;
    wait(journal.remove(board, summary.head, None, now))?;
    wait(archives.remove(board)).map_err(|error| io_error(archives, board, error))?;
    Ok(Tombstone { board: board.clone(), name: summary.name, head: summary.head, at: now, archive: None })
}

/// Restores a board from its archive, which is kept.
pub async fn restore(
    journal: Arc<dyn Journal>,
    archives: Arc<dyn Archives>,
    board: BoardId,
    plans: UncachedPlans,
) -> Result<BoardId> {
    let beside = Arc::clone(&journal);
    let read = tokio::task::spawn_blocking(move || {
        let source = wait(archives.open(&board)).map_err(|error| io_error(&*archives, &board, error))?;
        read_recoverable(&archives.place(&board), source, Some(&*beside), &plans)
    });
    let carried = read.await.map_err(|error| JournalError::Io(format!("the archive was not read: {error}")))??;
    append_restored(&*journal, carried).await
}

/// Reads an archive as [`read`] does, and recovers its board, so that the board can be read and resumed once restored.
/// Blocks.
pub fn read_recoverable(
    place: &str,
    source: impl BufRead,
    journal: Option<&dyn Journal>,
    plans: &dyn PlanSource,
) -> Result<BoardFile> {
    let carried = read(place, source, journal, plans)?;
    let recovered = recovery::recover(carried.journal(), carried.board(), plans);
    recovered.map_err(|error| damaged(place, error.to_string()))?;
    Ok(carried)
}

/// Appends a board that was read. Fails with [`ArchiveError::Exists`], or with [`ArchiveError::Outdated`] if it would
/// lose records, and with them possibly a redaction.
pub async fn append_restored(journal: &dyn Journal, carried: BoardFile) -> Result<BoardId> {
    if journal.summary(carried.board()).await?.is_some() {
        return Err(ArchiveError::Exists(carried.board().clone()));
    }
    let tombstones = journal.tombstones().await?;
    if let Some(Tombstone { board, head, .. }) = tombstones.into_iter().find(|it| it.board == *carried.board())
        && !carried.has(head)
    {
        return Err(ArchiveError::Outdated { board, head });
    }
    let batch = carried.into_batch()?;
    let board = batch.board.clone();
    journal.append(batch).await?;
    Ok(board)
}

/// Writes the archive of a board, reads it back and compares its end with the journal's.
fn store(journal: &dyn Journal, archives: &dyn Archives, summary: &BoardSummary, plans: &dyn PlanSource) -> Result<()> {
    let (board, failed) = (&summary.id, |error| io_error(archives, &summary.id, error));
    wait(archives.write(board, written(journal, summary)?)).map_err(failed)?;
    let place = archives.place(board);
    let carried = read(&place, wait(archives.open(board)).map_err(failed)?, Some(journal), plans)?;
    if carried.last() != summary.head || carried.board() != board {
        return Err(damaged(&place, "it does not hold the board's last record"));
    }
    Ok(())
}

fn load_summary(journal: &dyn Journal, board: &BoardId) -> Result<BoardSummary> {
    Ok(wait(journal.summary(board))?.ok_or_else(|| JournalError::NotFound(format!("board {board}")))?)
}

fn ended(journal: &dyn Journal, board: &BoardId) -> Result<BoardSummary> {
    let summary = load_summary(journal, board)?;
    // The summary alone must not decide about deletion.
    audit::check_listed(journal, board)?;
    if summary.ended.is_none() { Err(ArchiveError::NotEnded(board.clone())) } else { Ok(summary) }
}

fn written(journal: &dyn Journal, summary: &BoardSummary) -> Result<String> {
    let BoardSummary { id, epoch, head: Head { seq, hash }, .. } = summary;
    let mut text = String::new();
    let mut add = |line: &Line| {
        text.push_str(&serde_json::to_string(line).expect("texts and numbers are JSON"));
        text.push('\n');
    };
    add(&Line::Archive { format: FORMAT, board: id.clone(), epoch: *epoch, seq: *seq, hash: *hash });
    let (mut last, mut named) = (None, BTreeSet::new());
    loop {
        let page = wait(journal.records(id, last, PAGE))?;
        let Some(end) = page.last() else { break };
        last = Some(end.seq);
        for record in page {
            match record.body() {
                Ok(body) => named.extend(named_texts(body)),
                Err(error) => {
                    let what = error.to_string();
                    return Err(JournalError::Corrupt { seq: Some(record.seq), what }.into());
                }
            }
            let Record { seq, kind, at, header, payload, hash, .. } = record;
            add(&Line::Record { seq, kind, at, header, payload, hash });
        }
    }
    for hash in named {
        // An erased text is named but absent.
        if let Some(text) = wait(journal.blob(hash))? {
            add(&Line::Text { hash, text });
        }
    }
    let end = Line::End(sha256(text.as_bytes()));
    text.push_str(&serde_json::to_string(&end).expect("a hash is JSON"));
    text.push('\n');
    Ok(text)
}

fn damaged(place: &str, what: impl Into<String>) -> ArchiveError {
    ArchiveError::Damaged { path: place.to_owned(), what: what.into() }
}

/// Reads an archive from `source`, and checks it as [`audit::verify`] checks a board of a journal. Missing texts may
/// have been erased later, which `journal` records. `place` names the archive in errors. Blocks.
pub fn read(
    place: &str,
    source: impl BufRead,
    journal: Option<&dyn Journal>,
    plans: &dyn PlanSource,
) -> Result<BoardFile> {
    let path = || place.to_owned();
    let carried = BoardFile::read(source).map_err(|error| match error {
        BoardFileError::Io(source) => ArchiveError::Io { path: path(), source },
        BoardFileError::BadId(_) => ArchiveError::BadId { path: path(), what: error.to_string() },
        BoardFileError::Damaged(what) => ArchiveError::Damaged { path: path(), what },
    })?;
    if !carried.journal().has_texts() {
        return Err(damaged(place, "it is an export, which has no texts"));
    }
    if let Some(journal) = journal {
        carried.load_erased_texts(journal)?;
    }
    audit::verify(carried.journal(), carried.board(), None, plans)
        .map_err(|fault| damaged(place, fault.to_string()))?;
    Ok(carried)
}

/// Returns the archived boards of a journal, from the beginnings of their archives; skips unreadable ones. Blocks.
pub fn archived_summaries(journal: &dyn Journal, archives: &dyn Archives) -> Result<Vec<BoardSummary>, JournalError> {
    let boards = wait(journal.tombstones())?.into_iter().map(|tombstone| tombstone.board);
    let outline = |board: BoardId| BoardFile::outline(wait(archives.open(&board)).ok()?).ok();
    Ok(boards.filter_map(outline).collect())
}

/// Returns the hasher that names the texts of a journal with this first record; none if its salt is gone.
pub fn hasher_of(first: &Record) -> Option<Hasher> {
    match first.body() {
        Ok(Body::Created(created)) if !(first.is_redacted() && created.salt == Salt::ZERO) => {
            Some(Hasher::new(&created.salt))
        }
        _ => None,
    }
}
