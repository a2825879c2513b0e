//! Erases values so that no file of the data directory contains them.
//!
//! The values are first replaced in one transaction. SQLite leaves old bytes behind, in free pages, in the gaps of
//! pages and in its log. So the file is then rewritten from its content, and the log truncated to zero. A table keeps
//! this task until it is done, so the next process that opens the file after a crash completes it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use patchboard_kernel::digest::Digest;
use patchboard_kernel::driver::Head;
use patchboard_kernel::id::{BoardId, Seq, Timestamp};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::append::append_batch;
use super::error_mapping::{execute, sql_error};
use super::rows::page_of;
use super::{FILE, Files, LOCK_TIMEOUT, format, to_sql_number};
use crate::journal::{Erasure, JournalError, ListCursor, NewPayload, Result, Tombstone, VacuumStats};
use crate::private_files;

/// Pause before the next try to truncate the log while a reader uses it.
const AGAIN: Duration = Duration::from_millis(20);

/// Hashes that records name: of views and prompts, and of an architect's prompts.
const NAMED_TEXTS: &str = "
SELECT header ->> '$.view' FROM records WHERE kind = 'invoked'
UNION SELECT header ->> '$.prompt' FROM records WHERE kind = 'invoked'
UNION SELECT prompt.value FROM records, json_each(header, '$.architect.prompts') AS prompt WHERE kind = 'created'
";

impl Files {
    pub(super) fn erase(&self, erasure: &Erasure) -> Result<Head> {
        let board = &erasure.batch.board;
        let missing = |what: String| JournalError::BadBatch { board: board.clone(), what };
        let Some(last) = erasure.batch.records.last() else { return Err(missing("it is empty".to_owned())) };
        let mut connection = self.writing()?;
        connection.busy_timeout(LOCK_TIMEOUT).map_err(sql_error)?;
        // SQLite overwrites freed space with zeros from now on.
        connection.pragma_update(None, "secure_delete", true).map_err(sql_error)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql_error)?;
        let head = append_batch(&transaction, &erasure.batch)?;
        for NewPayload { of, payload } in &erasure.payloads {
            let sql = "UPDATE records SET payload = ?4 WHERE board = ?1 AND seq = ?2 AND hash = ?3";
            let seq = i64::try_from(of.seq.0).unwrap_or(i64::MAX);
            if execute(&transaction, sql, (board.as_str(), seq, of.hash.to_string(), payload))? != 1 {
                return Err(missing(format!("record {} is not the one whose values are erased", of.seq)));
            }
        }
        for hash in &erasure.texts {
            let row = (hash.to_string(), board.as_str(), to_sql_number(last.seq.0)?);
            execute(&transaction, "INSERT OR REPLACE INTO erased (hash, board, seq) VALUES (?1, ?2, ?3)", row)?;
            execute(&transaction, "DELETE FROM blobs WHERE hash = ?1", [hash.to_string()])?;
        }
        for delete in ["DELETE FROM parts WHERE board = ?1", "DELETE FROM snapshots WHERE board = ?1"] {
            execute(&transaction, delete, [board.as_str()])?;
        }
        execute(&transaction, "INSERT OR IGNORE INTO unscrubbed (board) VALUES (?1)", [board.as_str()])?;
        transaction.commit().map_err(sql_error)?;
        self.marks.note([(board, head)])?;
        Ok(head)
    }

    pub(super) fn remove(&self, board: &BoardId, head: Head, archive: Option<&str>, at: Timestamp) -> Result<()> {
        let mut connection = self.writing()?;
        connection.busy_timeout(LOCK_TIMEOUT).map_err(sql_error)?;
        connection.pragma_update(None, "secure_delete", true).map_err(sql_error)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql_error)?;
        let row = (board.as_str(), at.0, archive, to_sql_number(head.seq.0)?, head.hash.to_string());
        let sql = "INSERT OR REPLACE INTO tombstones (board, name, last_seq, last_hash, at, archive) \
                   SELECT board, name, last_seq, last_hash, ?2, ?3 FROM boards \
                   WHERE board = ?1 AND last_seq = ?4 AND last_hash = ?5";
        if transaction.execute(sql, row).map_err(sql_error)? != 1 {
            let reason = format!("its last record is not {}", head.seq);
            return Err(JournalError::Fenced { board: board.clone(), reason });
        }
        for table in ["parts", "snapshots", "records", "boards"] {
            let sql = format!("DELETE FROM {table} WHERE board = ?1");
            transaction.execute(&sql, [board.as_str()]).map_err(sql_error)?;
        }
        transaction.commit().map_err(sql_error)?;
        // Data only in the log can be lost with it, and then the board would be back. If a reader is active, the next
        // checkpoint does it.
        private_files::truncate_wal(&connection).map_err(sql_error)?;
        self.marks.forget(board)
    }

    pub(super) fn scrub(&self) -> Result<()> {
        let connection = self.writing()?;
        let left: i64 =
            connection.query_row("SELECT count(*) FROM unscrubbed", (), |row| row.get(0)).map_err(sql_error)?;
        if left == 0 { Ok(()) } else { self.rewrite(&connection) }
    }

    pub(super) fn vacuum(&self) -> Result<VacuumStats> {
        let connection = self.writing()?;
        let before = self.bytes();
        let sql = format!("DELETE FROM blobs WHERE hash NOT IN ({NAMED_TEXTS})");
        let texts = connection.execute(&sql, ()).map_err(sql_error)?;
        self.rewrite(&connection)?;
        Ok(VacuumStats { before, after: self.bytes(), texts: texts as u64 })
    }

    fn writing(&self) -> Result<MutexGuard<'_, Connection>> {
        self.writer.as_ref().map(Mutex::lock).ok_or(JournalError::ReadOnly)
    }

    /// Rewrites the file. Appends of this process wait for the connection, on blocking threads; those of others find
    /// it busy.
    fn rewrite(&self, connection: &Connection) -> Result<()> {
        self.is_rewriting.store(true, Ordering::Release);
        let written = self.write_all(connection);
        self.is_rewriting.store(false, Ordering::Release);
        written
    }

    fn write_all(&self, connection: &Connection) -> Result<()> {
        connection.busy_timeout(LOCK_TIMEOUT).map_err(sql_error)?;
        connection.execute_batch("VACUUM").map_err(sql_error)?;
        // Excludes readers of this process, which would keep the log in use.
        let _reading = self.read();
        let until = Instant::now() + LOCK_TIMEOUT;
        while !private_files::truncate_wal(connection).map_err(sql_error)? {
            if Instant::now() >= until {
                return Err(JournalError::Locked);
            }
            std::thread::sleep(AGAIN);
        }
        connection.execute("DELETE FROM unscrubbed", ()).map_err(sql_error)?;
        Ok(())
    }

    /// Returns the size of the file and its log.
    fn bytes(&self) -> u64 {
        let of = |name: String| std::fs::metadata(self.data_dir.join(name)).map_or(0, |file| file.len());
        of(FILE.to_owned()) + of(format!("{FILE}-wal"))
    }
}

/// See [`crate::journal::Journal::erased_text`].
pub(super) fn erased_text(connection: &Connection, hash: Digest) -> Result<Option<(BoardId, Seq)>> {
    if !format::has_erasures(connection)? {
        return Ok(None);
    }
    let row = connection
        .prepare_cached("SELECT board, seq FROM erased WHERE hash = ?1")
        .and_then(|mut statement| {
            let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
            statement.query_row([hash.to_string()], read).optional()
        })
        .map_err(sql_error)?;
    Ok(row.map(|(board, seq)| (board.into(), Seq(seq.unsigned_abs()))))
}

/// See [`crate::journal::Journal::tombstone_page`].
pub(super) fn tombstones(connection: &Connection, after: Option<&ListCursor>, limit: usize) -> Result<Vec<Tombstone>> {
    if !format::has_erasures(connection)? {
        return Ok(Vec::new());
    }
    let sql = "SELECT board, name, last_seq, last_hash, at, archive FROM tombstones \
               WHERE board NOT IN (SELECT board FROM boards) AND (?1 IS NULL OR (at, board) > (?1, ?2)) \
               ORDER BY at, board LIMIT ?3";
    let mut statement = connection.prepare_cached(sql).map_err(sql_error)?;
    let mut rows = statement.query(page_of(after, limit)).map_err(sql_error)?;
    let mut tombstones = Vec::new();
    while let Some(row) = rows.next().map_err(sql_error)? {
        let text = |column: usize| row.get::<_, String>(column).map_err(sql_error);
        let hash = text(3)?.parse();
        let what = "the list of boards that were taken out cannot be read".to_owned();
        let hash = hash.map_err(|_| JournalError::Corrupt { seq: None, what })?;
        let seq: i64 = row.get(2).map_err(sql_error)?;
        tombstones.push(Tombstone {
            board: text(0)?.into(),
            name: text(1)?,
            head: Head { seq: Seq(seq.unsigned_abs()), hash },
            at: Timestamp(row.get(4).map_err(sql_error)?),
            archive: row.get(5).map_err(sql_error)?,
        });
    }
    Ok(tombstones)
}
