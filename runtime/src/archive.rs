//! Removal of ended boards from the live journal: into an archive file that can be restored, or for good.
//!
//! An archive is JSON lines. A head with the board's last record is followed by every record, as `patchboard export`
//! prints it, with the columns that the journal has beside its header. Then every text that they name follows, and at
//! last the SHA-256 of all lines before. It is written, synced, read back and checked before a row of the live journal
//! is deleted. A tombstone remains: id, last record, time.

use std::collections::BTreeSet;
use std::io::{self, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use patchboard_kernel::digest::{Hasher, Salt, sha256};
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_kernel::plan::UncachedPlans;
use patchboard_kernel::record::{Body, Record};

use crate::board_file::{BoardFile, BoardFileError, FORMAT, Line, named_texts};
use crate::{audit, recovery};
use patchboard_storage::journal::{BoardSummary, Head, Journal, JournalError, Tombstone};
use patchboard_storage::private_files;

/// Directory of archives in a data directory.
pub const DIRECTORY: &str = "archive";

/// Records read at once.
const PAGE: usize = 1024;

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

/// Extension of an archive that is being written.
const UNFINISHED: &str = "unfinished";

/// Returns the path of a board's archive in a directory.
pub fn path_of(directory: &Path, board: &BoardId) -> PathBuf {
    directory.join(format!("{board}.jsonl"))
}

/// Moves an ended board from the journal into a file. The caller holds the claim on it. Blocks.
///
/// # Errors
/// [`ArchiveError`]; the board is unchanged then.
pub fn archive(
    journal: &dyn Journal,
    directory: &Path,
    board: &BoardId,
    now: Timestamp,
) -> Result<PathBuf, ArchiveError> {
    let summary = ended(journal, board)?;
    let path = stored(journal, directory, &summary)?;
    journal.remove(board, summary.head, Some(&path.display().to_string()), now)?;
    Ok(path)
}

/// Writes a board's archive and keeps the board in the journal. Unlike [`archive`], also works for a board that has
/// not ended. Blocks.
///
/// # Errors
/// [`ArchiveError`].
pub fn save(journal: &dyn Journal, directory: &Path, board: &BoardId) -> Result<PathBuf, ArchiveError> {
    stored(journal, directory, &load_summary(journal, board)?)
}

/// Rewrites an existing archive of a board, so that redacted content leaves it, too. Returns false if there is none.
/// The caller holds the claim on the board. Blocks.
///
/// # Errors
/// [`ArchiveError`]; the archive is unchanged then.
pub fn rewrite(journal: &dyn Journal, directory: &Path, board: &BoardId) -> Result<bool, ArchiveError> {
    let path = path_of(directory, board);
    // An unfinished file of a crash has the same content.
    forget(&path.with_extension(UNFINISHED))?;
    let exists = path.is_file();
    if exists {
        save(journal, directory, board)?;
    }
    Ok(exists)
}

/// Removes a file, if it is there.
fn forget(path: &Path) -> Result<(), ArchiveError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(ArchiveError::Io { path: path.display().to_string(), source })
        }
        _ => Ok(()),
    }
}

/// Deletes an ended board from the journal for good, and its archive from the directory. The caller holds the claim on
/// it and must have the journal file rewritten afterwards. Blocks.
///
/// # Errors
/// [`ArchiveError`].
pub fn delete(
    journal: &dyn Journal,
    directory: &Path,
    board: &BoardId,
    now: Timestamp,
) -> Result<Tombstone, ArchiveError> {
    let summary = ended(journal, board)?;
    journal.remove(board, summary.head, None, now)?;
    let path = path_of(directory, board);
    forget(&path.with_extension(UNFINISHED))?;
    forget(&path)?;
    Ok(Tombstone { board: board.clone(), name: summary.name, head: summary.head, at: now, archive: None })
}

/// Restores a board from its archive, which is kept.
///
/// # Errors
/// As [`read`] and [`append_restored`].
pub async fn restore(journal: Arc<dyn Journal>, path: PathBuf) -> Result<BoardId, ArchiveError> {
    let beside = Arc::clone(&journal);
    let read = tokio::task::spawn_blocking(move || read_recoverable(&path, Some(&*beside))).await;
    let carried = read.map_err(|error| JournalError::Io(format!("the archive was not read: {error}")))??;
    append_restored(&*journal, carried).await
}

/// Reads an archive as [`read`] does, and recovers its board, so that the board can be read and resumed once restored.
/// Blocks.
///
/// # Errors
/// As [`read`].
pub fn read_recoverable(path: &Path, journal: Option<&dyn Journal>) -> Result<BoardFile, ArchiveError> {
    let carried = read(path, journal)?;
    recovery::recover(&carried, carried.board(), &UncachedPlans).map_err(|error| damaged(path, error.to_string()))?;
    Ok(carried)
}

/// Appends a board that was read.
///
/// # Errors
/// Storage; [`ArchiveError::Exists`]; [`ArchiveError::Outdated`] if it would lose records, and with them possibly a
/// redaction.
pub async fn append_restored(journal: &dyn Journal, carried: BoardFile) -> Result<BoardId, ArchiveError> {
    if journal.summary(carried.board())?.is_some() {
        return Err(ArchiveError::Exists(carried.board().clone()));
    }
    let tombstones = journal.tombstones()?;
    if let Some(Tombstone { board, head, .. }) = tombstones.into_iter().find(|it| it.board == *carried.board())
        && !carried.has(head)
    {
        return Err(ArchiveError::Outdated { board, head });
    }
    let batch = carried.into_batch();
    let board = batch.board.clone();
    journal.append(batch).await?;
    Ok(board)
}

/// Writes the archive of a board, reads it back from disk and compares its end with the journal's.
fn stored(journal: &dyn Journal, directory: &Path, summary: &BoardSummary) -> Result<PathBuf, ArchiveError> {
    let path = path_of(directory, &summary.id);
    let text = written(journal, summary)?;
    store(&path, &text).map_err(|source| ArchiveError::Io { path: path.display().to_string(), source })?;
    let carried = read(&path, Some(journal))?;
    if carried.last() != summary.head || *carried.board() != summary.id {
        return Err(damaged(&path, "it does not hold the board's last record"));
    }
    Ok(path)
}

fn load_summary(journal: &dyn Journal, board: &BoardId) -> Result<BoardSummary, ArchiveError> {
    Ok(journal.summary(board)?.ok_or_else(|| JournalError::NotFound(format!("board {board}")))?)
}

fn ended(journal: &dyn Journal, board: &BoardId) -> Result<BoardSummary, ArchiveError> {
    let summary = load_summary(journal, board)?;
    // The summary alone must not decide about deletion.
    audit::check_listed(journal, board)?;
    if summary.ended.is_none() { Err(ArchiveError::NotEnded(board.clone())) } else { Ok(summary) }
}

/// Returns the text of an archive.
fn written(journal: &dyn Journal, summary: &BoardSummary) -> Result<String, ArchiveError> {
    let BoardSummary { id, epoch, head: Head { seq, hash }, .. } = summary;
    let mut text = String::new();
    let mut add = |line: &Line| {
        text.push_str(&serde_json::to_string(line).expect("texts and numbers are JSON"));
        text.push('\n');
    };
    add(&Line::Archive { format: FORMAT, board: id.clone(), epoch: *epoch, seq: *seq, hash: *hash });
    let (mut last, mut named) = (None, BTreeSet::new());
    loop {
        let page = journal.records(id, last, PAGE)?;
        let Some(end) = page.last() else { break };
        last = Some(end.seq);
        for record in page {
            match record.body() {
                Ok(body) => named.extend(named_texts(&body)),
                Err(error) => {
                    let what = error.to_string();
                    return Err(JournalError::Corrupt { seq: Some(record.seq), what }.into());
                }
            }
            let Record { seq, kind, at, header, payload, hash } = record;
            add(&Line::Record { seq, kind, at, header, payload, hash });
        }
    }
    for hash in named {
        // An erased text is named but absent.
        if let Some(text) = journal.blob(hash)? {
            add(&Line::Text { hash, text });
        }
    }
    let end = Line::End(sha256(text.as_bytes()));
    text.push_str(&serde_json::to_string(&end).expect("a hash is JSON"));
    text.push('\n');
    Ok(text)
}

/// Writes a file atomically: under its name it is complete or absent.
fn store(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    private_files::make_directory(directory)?;
    let unfinished = path.with_extension(UNFINISHED);
    let mut file = private_files::create(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    if cfg!(unix) {
        std::fs::File::open(directory)?.sync_all()?;
    }
    Ok(())
}

fn damaged(path: &Path, what: impl Into<String>) -> ArchiveError {
    ArchiveError::Damaged { path: path.display().to_string(), what: what.into() }
}

/// Reads an archive, and checks it as [`audit::verify`] checks a board of a journal. Missing texts may have been
/// erased later, which `journal` records. Blocks.
///
/// # Errors
/// [`ArchiveError`].
pub fn read(path: &Path, journal: Option<&dyn Journal>) -> Result<BoardFile, ArchiveError> {
    let name = path.display().to_string();
    let file = std::fs::File::open(path).map_err(|source| ArchiveError::Io { path: name.clone(), source })?;
    let mut carried = BoardFile::read(BufReader::new(file)).map_err(|error| match error {
        BoardFileError::Io(source) => ArchiveError::Io { path: name, source },
        BoardFileError::BadId(_) => ArchiveError::BadId { path: name, what: error.to_string() },
        BoardFileError::Damaged(what) => ArchiveError::Damaged { path: name, what },
    })?;
    if !carried.is_archive() {
        return Err(damaged(path, "it is an export, which has no texts"));
    }
    if let Some(journal) = journal {
        carried.load_erased_texts(journal)?;
    }
    audit::verify(&carried, carried.board(), None).map_err(|fault| damaged(path, fault.to_string()))?;
    Ok(carried)
}

/// Returns the archived boards of a journal, from the heads of their files in a directory; skips unreadable files.
/// Blocks.
///
/// # Errors
/// Storage.
pub fn archived_summaries(journal: &dyn Journal, directory: &Path) -> Result<Vec<BoardSummary>, JournalError> {
    let paths = journal.tombstones()?.into_iter().map(|tombstone| path_of(directory, &tombstone.board));
    let outline = |path: PathBuf| BoardFile::outline(BufReader::new(std::fs::File::open(path).ok()?)).ok();
    Ok(paths.filter_map(outline).collect())
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
