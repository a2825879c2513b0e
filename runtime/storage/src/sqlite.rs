//! Journal in one SQLite file.
//!
//! Owns one connection that writes and one that reads; in write-ahead mode neither waits for the other. The file
//! format is in `format.rs`, checks and writes of an append in `append.rs`, snapshots in `parts.rs`. Erasure of values
//! from all files is in `erase.rs`, detection of commits lost with the log in `marks.rs`.
//!
//! An append runs on the awaiting thread. It is one transaction and one sync of the write-ahead log. On a busy
//! two-core machine that took 0.2 ms at best and 4 ms in the middle; passing it to another thread and back added 0.1
//! to 0.6 ms. So the thread blocks for that long; where that would delay other boards, the group commit of the runtime appends on a blocking
//! thread. Only when another process holds the file, for an unknown time, is the append moved from here to a blocking
//! thread.

mod append;
mod documents;
mod erase;
mod error_mapping;
mod file_identity;
mod format;
mod marks;
mod parts;
mod rows;
#[cfg(test)]
mod tests;

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use patchboard_kernel::digest::Digest;
use patchboard_kernel::driver::{Batch, Head};
use patchboard_kernel::id::{BoardId, Seq, Timestamp};
use patchboard_kernel::record::Record;
use patchboard_kernel::snapshot::SnapshotPart;
use rusqlite::Connection;
use tokio::sync::watch;

pub use self::documents::SqliteDocuments;
use self::error_mapping::{integrity_error, io_error, recheck_corrupt, sql_error};
use self::file_identity::WatchedFiles;
use self::marks::{Heads, Marks};
use self::rows::{has, is_whole, last_listed, load_records, load_summaries, load_summary, load_text, lost};
use crate::blocking;
use crate::journal::{
    Answer, BoardSummary, BoxFuture, Claim, Erasure, GarbageCollection, Journal, JournalError, KeptSnapshot,
    ListCursor, NewParts, RecordLoss, Result, Tombstone, VacuumStats,
};
use crate::{board_id, private_files};

/// Name of the file in the data directory.
pub const FILE: &str = "patchboard.db";

/// Default data directory.
pub const DATA_DIR: &str = ".patchboard";

/// Timeout for another process that holds the file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause before looking again for records of other processes.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// A journal in one SQLite file. Cheap to clone.
#[derive(Clone)]
pub struct SqliteJournal {
    files: Arc<Files>,
}

struct Files {
    data_dir: PathBuf,
    /// Dropped before the writer: the last connection folds the log into the file, which a reader may not do.
    reader: Mutex<Connection>,
    place: WatchedFiles,
    marks: Marks,
    /// Heads acknowledged before the file was opened, of boards not checked yet.
    acknowledged: Mutex<Heads>,
    /// `None` if opened for reading.
    writer: Option<Mutex<Connection>>,
    /// Opened at first use.
    parts: Mutex<Option<parts::Writer>>,
    /// True while the file is being rewritten, which may take long.
    is_rewriting: AtomicBool,
    /// Notified of every append of this process.
    appends: watch::Sender<()>,
}

impl SqliteJournal {
    /// Opens the journal of a data directory, creating both if they are missing. Fails with
    /// [`JournalError::NotAJournal`] or [`JournalError::NewerFormat`] for a file of another kind or version.
    pub fn open(data_dir: &Path) -> Result<Self> {
        private_files::make_directory(data_dir).map_err(|error| io_error(data_dir, &error))?;
        let path = data_dir.join(FILE);
        // Two processes that create the file at once would see incomplete tables.
        let gate = lock_file(&data_dir.join("patchboard.lock"))?;
        gate.lock().map_err(|error| io_error(&path, &error))?;
        // SQLite does not report why it could not create a file; the file system does.
        let because = |error| match error {
            JournalError::Io(_) => error_mapping::file_creation_error(data_dir).unwrap_or(error),
            other => other,
        };
        let marks = Marks::new(data_dir);
        let acknowledged = marks.read()?;
        let writer =
            format::open_for_writing(&path, LOCK_TIMEOUT).map_err(|error| recheck_corrupt(&path, because(error)))?;
        let reader = format::open_for_reading(&path, LOCK_TIMEOUT).map_err(|error| recheck_corrupt(&path, error))?;
        marks.prepare()?;
        // Creating the file ends with removing another one. If that came back after a loss of power, it would undo the
        // creation, and with it all later writes.
        sync_dir(data_dir)?;
        drop(gate);
        let files = Files::new(data_dir, reader, Some(writer), marks, acknowledged);
        // Left over by a process that died during a redaction. Boards run even without the space for it.
        if let Err(error) = files.scrub() {
            tracing::warn!(%error, "what was erased may still be found in the file; `patchboard vacuum` mends it");
        }
        let journal = Self { files: Arc::new(files) };
        for lost in journal.files.record_losses()? {
            tracing::error!(board = %lost.board, "{lost}; the board cannot go on: `patchboard doctor` says what to do");
        }
        Ok(journal)
    }

    /// Opens an existing journal for reading, even while another process writes to it. Completes a journal if its
    /// creator died. Fails with [`JournalError::NotFound`] if there is none.
    pub fn open_read_only(data_dir: &Path) -> Result<Self> {
        let path = data_dir.join(FILE);
        let marks = Marks::new(data_dir);
        if !path.is_file() {
            // A deleted file differs from one that never existed.
            let lost = Self::losses_without_database(data_dir)?.into_iter().next();
            return Err(match lost {
                Some(lost) => JournalError::RecordsLost(lost),
                None => JournalError::NotFound(format!("the journal {}", path.display())),
            });
        }
        // Read before the database, which then has all records that they name.
        let acknowledged = marks.read()?;
        let reader = match format::open_for_reading(&path, LOCK_TIMEOUT) {
            Err(unfinished @ (JournalError::NotAJournal(_) | JournalError::ReadOnly)) => {
                // A process with write access can see if it is unfinished, and only such a process can complete it.
                drop(Self::open(data_dir).map_err(|_| unfinished)?);
                format::open_for_reading(&path, LOCK_TIMEOUT)?
            }
            opened => opened.map_err(|error| recheck_corrupt(&path, error))?,
        };
        Ok(Self { files: Arc::new(Files::new(data_dir, reader, None, marks, acknowledged)) })
    }

    /// Returns the boards that marks name in a data directory without a database.
    pub fn losses_without_database(data_dir: &Path) -> Result<Vec<RecordLoss>> {
        if data_dir.join(FILE).is_file() {
            return Ok(Vec::new());
        }
        let heads = Marks::new(data_dir).read()?.into_iter();
        Ok(heads.map(|(board, head)| RecordLoss { board, known: head.seq, found: None }).collect())
    }
}

impl Files {
    fn new(data_dir: &Path, reader: Connection, writer: Option<Connection>, marks: Marks, acknowledged: Heads) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            place: WatchedFiles::new(&data_dir.join(FILE)),
            marks,
            acknowledged: Mutex::new(acknowledged),
            writer: writer.map(Mutex::new),
            reader: Mutex::new(reader),
            parts: Mutex::default(),
            is_rewriting: AtomicBool::new(false),
            appends: watch::Sender::new(()),
        }
    }

    fn append(&self, batches: &[Batch], patience: Duration) -> Vec<Result<Head>> {
        let done = match &self.writer {
            Some(writer) => self.append_in_place(&mut writer.lock(), batches, patience),
            None => Err(JournalError::ReadOnly),
        };
        done.unwrap_or_else(|error| vec![Err(error); batches.len()])
    }

    /// Appends to the file with the journal's name: acknowledged data must be where the next start finds it.
    fn append_in_place(&self, writer: &mut Connection, batches: &[Batch], patience: Duration) -> Result<append::Heads> {
        self.place.check()?;
        let appended = append::append_group(writer, batches, patience)?;
        let heads =
            batches.iter().zip(&appended).filter_map(|(batch, head)| Some((&batch.board, *head.as_ref().ok()?)));
        self.marks.note(heads)?;
        self.place.check()?;
        self.appends.send_replace(());
        Ok(appended)
    }

    /// Rejects a board with lost acknowledged records.
    fn check_acknowledged(&self, connection: &Connection, board: &BoardId) -> Result<()> {
        let mut acknowledged = self.acknowledged.lock();
        let Some(head) = acknowledged.get(board) else { return Ok(()) };
        // Meanwhile another process may have removed the board, or an operator accepted the loss.
        if !has(connection, board, *head)?
            && let Some(head) = self.marks.read()?.get(board)
            && let Some(lost) = lost(connection, board, *head)?
        {
            return Err(JournalError::RecordsLost(lost));
        }
        acknowledged.remove(board);
        Ok(())
    }

    /// Runs `write` with the connection for parts; each of its transactions excludes appends of this process.
    fn with_parts<T>(&self, write: impl FnOnce(&mut parts::Writer, &Mutex<Connection>) -> Result<T>) -> Result<T> {
        let Some(turn) = &self.writer else { return Err(JournalError::ReadOnly) };
        let mut parts = self.parts.lock();
        let writer = match parts.take() {
            Some(writer) => writer,
            None => parts::Writer::open(&self.data_dir.join(FILE), LOCK_TIMEOUT)?,
        };
        write(parts.insert(writer), turn)
    }

    fn read(&self) -> MutexGuard<'_, Connection> {
        self.reader.lock()
    }

    fn record_losses(&self) -> Result<Vec<RecordLoss>> {
        let heads = self.marks.read()?;
        let connection = self.read();
        let found = heads.iter().map(|(board, head)| lost(&connection, board, *head));
        found.filter_map(Result::transpose).collect()
    }

    fn lock_path(&self, board: &BoardId) -> PathBuf {
        self.data_dir.join("locks").join(board.as_str())
    }

    fn claim(&self, board: &BoardId, force: bool) -> Result<Claim> {
        if self.writer.is_none() {
            return Err(JournalError::ReadOnly);
        }
        // The id becomes a file name.
        if !board_id::is_usable(board) {
            return Err(JournalError::NotFound(format!("board {board}")));
        }
        let path = self.lock_path(board);
        let dir = path.parent().unwrap_or(&self.data_dir);
        private_files::make_directory(dir).map_err(|error| io_error(dir, &error))?;
        let file = lock_file(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Claim::with_guard(file)),
            Err(TryLockError::WouldBlock) if force => Ok(Claim::unguarded()),
            Err(TryLockError::WouldBlock) => Err(JournalError::Owned { board: board.clone() }),
            Err(TryLockError::Error(error)) => Err(io_error(&path, &error)),
        }
    }

    /// Probes a board's lock with a shared one that is released at once. A lock that cannot be opened counts as free.
    fn is_claimed(&self, board: &BoardId) -> bool {
        let file = board_id::is_usable(board).then(|| File::open(self.lock_path(board)));
        matches!(file, Some(Ok(file)) if matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }
}

impl SqliteJournal {
    /// Runs a read or write that blocks: here, if the thread may block, else on a thread for it.
    fn run<'a, T: Send + 'static>(&'a self, work: impl FnOnce(&Files) -> Result<T> + Send + 'static) -> Answer<'a, T> {
        let files = Arc::clone(&self.files);
        blocking::run(move || work(&files), |error| Err(JournalError::Io(error)))
    }

    /// Reads from the file, and judges errors.
    fn read<'a, T: Send + 'static>(&'a self, read: impl FnOnce(&Files) -> Result<T> + Send + 'static) -> Answer<'a, T> {
        self.run(|files| read(files).map_err(|error| recheck_corrupt(&files.data_dir.join(FILE), error)))
    }
}

impl Journal for SqliteJournal {
    fn append_all(&self, batches: Vec<Batch>) -> BoxFuture<'_, Vec<Result<Head>>> {
        Box::pin(async move {
            if !self.files.is_rewriting.load(Ordering::Acquire) {
                let at_once = self.files.append(&batches, Duration::ZERO);
                if !at_once.contains(&Err(JournalError::Locked)) {
                    return at_once;
                }
            }
            let files = Arc::clone(&self.files);
            let count = batches.len();
            let failed = move |error| vec![Err(JournalError::Io(error)); count];
            blocking::run(move || files.append(&batches, LOCK_TIMEOUT), failed).await
        })
    }

    fn records<'a>(&'a self, board: &'a BoardId, after: Option<Seq>, limit: usize) -> Answer<'a, Vec<Record>> {
        let board = board.clone();
        self.read(move |files| {
            let connection = files.read();
            // Reads records and head in one transaction.
            let moment = connection.unchecked_transaction().map_err(sql_error)?;
            files.check_acknowledged(&moment, &board)?;
            let records = load_records(&moment, &board, after, limit)?;
            if records.len() < limit {
                is_whole(records.last().map(|record| record.seq).or(after), last_listed(&moment, &board)?)?;
            }
            Ok(records)
        })
    }

    fn appended<'a>(&'a self, board: &'a BoardId, after: Option<Seq>) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut appends = self.files.appends.subscribe();
            while self.head(board).await?.is_none_or(|head| after.is_some_and(|after| head.seq <= after)) {
                // Appends of other processes are noticed by looking again.
                drop(tokio::time::timeout(LOOK_AGAIN, appends.changed()).await);
            }
            Ok(())
        })
    }

    fn blob(&self, hash: Digest) -> Answer<'_, Option<String>> {
        self.read(move |files| load_text(&files.read(), hash))
    }

    fn snapshots<'a>(&'a self, board: &'a BoardId) -> Answer<'a, Vec<KeptSnapshot>> {
        let board = board.clone();
        self.read(move |files| parts::kept(&files.read(), &board))
    }

    fn part<'a>(&'a self, board: &'a BoardId, hash: Digest) -> Answer<'a, Option<String>> {
        let board = board.clone();
        self.read(move |files| parts::text(&files.read(), &board, hash))
    }

    fn cached_refs<'a>(&'a self, board: &'a BoardId, hash: Digest) -> Answer<'a, Option<Vec<Digest>>> {
        let board = board.clone();
        self.read(move |files| parts::noted(&files.read(), &board, hash))
    }

    fn store_parts<'a>(&'a self, board: &'a BoardId, epoch: u64, parts: Vec<SnapshotPart>) -> Answer<'a, NewParts> {
        let board = board.clone();
        self.run(move |files| files.with_parts(|writer, turn| writer.store(turn, &board, epoch, &parts)))
    }

    fn collect_garbage<'a>(
        &'a self,
        board: &'a BoardId,
        epoch: u64,
        keep: usize,
        unusable: &'a [Seq],
    ) -> Answer<'a, GarbageCollection> {
        let (board, unusable) = (board.clone(), unusable.to_vec());
        self.run(move |files| files.with_parts(|writer, turn| writer.sweep(turn, &board, epoch, keep, &unusable)))
    }

    fn erase(&self, erasure: Erasure) -> Answer<'_, Head> {
        self.run(move |files| files.erase(&erasure))
    }

    fn erased_text(&self, hash: Digest) -> Answer<'_, Option<(BoardId, Seq)>> {
        self.read(move |files| erase::erased_text(&files.read(), hash))
    }

    fn purge_erased_bytes(&self) -> Answer<'_, ()> {
        self.run(Files::scrub)
    }

    fn vacuum(&self) -> Answer<'_, VacuumStats> {
        self.run(Files::vacuum)
    }

    fn remove<'a>(&'a self, board: &'a BoardId, head: Head, archive: Option<&'a str>, at: Timestamp) -> Answer<'a, ()> {
        let (board, archive) = (board.clone(), archive.map(str::to_owned));
        self.run(move |files| files.remove(&board, head, archive.as_deref(), at))
    }

    fn tombstone_page(&self, after: Option<ListCursor>, limit: usize) -> Answer<'_, Vec<Tombstone>> {
        self.read(move |files| erase::tombstones(&files.read(), after.as_ref(), limit))
    }

    fn record_losses(&self) -> Answer<'_, Vec<RecordLoss>> {
        self.read(Files::record_losses)
    }

    fn accept_loss<'a>(&'a self, board: &'a BoardId) -> Answer<'a, ()> {
        let board = board.clone();
        self.run(move |files| {
            files.writer.as_ref().ok_or(JournalError::ReadOnly)?;
            files.marks.forget(&board)
        })
    }

    fn summary<'a>(&'a self, board: &'a BoardId) -> Answer<'a, Option<BoardSummary>> {
        let board = board.clone();
        self.read(move |files| load_summary(&files.read(), &board))
    }

    fn board_page(&self, after: Option<ListCursor>, limit: usize) -> Answer<'_, Vec<BoardSummary>> {
        self.read(move |files| load_summaries(&files.read(), after.as_ref(), limit))
    }

    fn claim<'a>(&'a self, board: &'a BoardId, force: bool) -> Answer<'a, Claim> {
        let board = board.clone();
        self.run(move |files| files.claim(&board, force))
    }

    fn is_claimed<'a>(&'a self, board: &'a BoardId) -> BoxFuture<'a, bool> {
        let board = board.clone();
        let files = Arc::clone(&self.files);
        blocking::run(move || files.is_claimed(&board), |_| false)
    }

    fn check_writable(&self) -> Answer<'_, ()> {
        self.run(|files| {
            let Some(writer) = &files.writer else { return Err(JournalError::ReadOnly) };
            files.place.check()?;
            format::write_the_same(&writer.lock())
        })
    }

    fn check_storage(&self) -> Answer<'_, ()> {
        self.read(|files| {
            let connection = files.read();
            let found: String =
                connection.query_row("PRAGMA integrity_check(1)", (), |row| row.get(0)).map_err(sql_error)?;
            if found == "ok" { Ok(()) } else { Err(integrity_error(&found)) }
        })
    }
}

fn to_sql_number(number: u64) -> Result<i64> {
    i64::try_from(number).map_err(|_| JournalError::Corrupt { seq: None, what: format!("{number} is too large") })
}

fn lock_file(path: &Path) -> Result<File> {
    private_files::open(path).map_err(|error| io_error(path, &error))
}

/// Makes the directory entries durable.
fn sync_dir(data_dir: &Path) -> Result<()> {
    if cfg!(unix) {
        File::open(data_dir).and_then(|directory| directory.sync_all()).map_err(|error| io_error(data_dir, &error))?;
    }
    Ok(())
}
