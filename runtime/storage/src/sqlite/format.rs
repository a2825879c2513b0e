//! File format: tables, versions, and how connections are opened.
//!
//! `application_id` identifies a PatchBoard file, `user_version` its format. Hashes are kept as text, so that
//! `sqlite3` shows them as every other tool here prints them.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::error_mapping::{io_error, sql_error};
use crate::journal::{JournalError, Result};
use crate::private_files;

/// "PBRD".
const APPLICATION_ID: i64 = 0x5042_5244;

/// Version of the tables below.
pub(super) const USER_VERSION: i64 = 3;

/// Tables of format 1.
const TABLES: &str = "
CREATE TABLE boards (
    board      TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL,
    last_hash  TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    ended      TEXT
) STRICT;
CREATE TABLE records (
    board   TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    header  TEXT    NOT NULL,
    payload TEXT    NOT NULL,
    hash    TEXT    NOT NULL,
    PRIMARY KEY (board, seq)
) STRICT;
CREATE TABLE blobs (
    hash  TEXT NOT NULL PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;
";

/// Tables added by format 2.
const SNAPSHOT_TABLES: &str = "
CREATE TABLE snapshots (
    board  TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    digest TEXT    NOT NULL,
    record INTEGER NOT NULL,
    PRIMARY KEY (board, seq)
) STRICT;
CREATE TABLE parts (
    board TEXT NOT NULL,
    hash  TEXT NOT NULL,
    names TEXT NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (board, hash)
) STRICT;
";

/// Tables added by format 3: erased texts with their `redacted` record; boards that require a rewrite of the file to
/// destroy erased bytes; tombstones of removed boards.
const ERASURE_TABLES: &str = "
CREATE TABLE erased (
    hash  TEXT    NOT NULL PRIMARY KEY,
    board TEXT    NOT NULL,
    seq   INTEGER NOT NULL
) STRICT;
CREATE TABLE unscrubbed (
    board TEXT NOT NULL PRIMARY KEY
) STRICT;
CREATE TABLE tombstones (
    board     TEXT    NOT NULL PRIMARY KEY,
    name      TEXT    NOT NULL,
    last_seq  INTEGER NOT NULL,
    last_hash TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    archive   TEXT
) STRICT;
";

/// Overwrites the format number with its own value, and waits until that is on disk.
pub(super) fn write_the_same(connection: &Connection) -> Result<()> {
    let format = pragma(connection, "user_version")?;
    connection.execute_batch(&format!("BEGIN IMMEDIATE; PRAGMA user_version = {format}; COMMIT;")).map_err(|error| {
        // An open transaction would block other connections.
        drop(connection.execute_batch("ROLLBACK;"));
        sql_error(error)
    })
}

pub(super) fn open_for_writing(path: &Path, patience: Duration) -> Result<Connection> {
    private_files::ensure(path).map_err(|error| io_error(path, &error))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(sql_error)?;
    connection.busy_timeout(patience).map_err(sql_error)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))
        .map_err(|error| opening_fault(path, error))?;
    let is_fresh =
        tables == 0 && pragma(&connection, "application_id")? == 0 && pragma(&connection, "user_version")? == 0;
    if !is_fresh {
        check_format(&connection, path)?;
    }
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0)).map_err(sql_error)?;
    if mode != "wal" {
        return Err(JournalError::Io(format!(
            "{} is on a file system without shared memory, which write-ahead logging needs: use a local one",
            path.display()
        )));
    }
    if is_fresh {
        make_tables(&mut connection, &[TABLES, SNAPSHOT_TABLES, ERASURE_TABLES]).map_err(sql_error)?;
    } else {
        match pragma(&connection, "user_version")? {
            1 => make_tables(&mut connection, &[SNAPSHOT_TABLES, ERASURE_TABLES]).map_err(sql_error)?,
            2 => make_tables(&mut connection, &[ERASURE_TABLES]).map_err(sql_error)?,
            _ => {}
        }
    }
    // FULL: an acknowledged commit is on disk. Without it the last ones before a power cut could vanish. The log is
    // folded into the file at 16 MB; at the usual 4 MB, folding costs 7 % of the commits of many boards.
    connection
        .execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA wal_autocheckpoint = 4000; \
             PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;",
        )
        .map_err(sql_error)?;
    keep_plans(&connection).map_err(sql_error)?;
    Ok(connection)
}

pub(super) fn open_for_reading(path: &Path, patience: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = |connection: Connection| {
        connection.busy_timeout(patience)?;
        connection.execute_batch("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;")?;
        connection.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
        keep_plans(&connection)?;
        Ok(connection)
    };
    let connection = match Connection::open_with_flags(path, flags).and_then(open) {
        // Reading a write-ahead log creates a file beside it. If none can be created, no process can be writing
        // either.
        Err(error) if is_unwritable(&error) && !has_log(path) => {
            let flags = flags | OpenFlags::SQLITE_OPEN_URI;
            Connection::open_with_flags(immutable_uri(path), flags).and_then(open)
        }
        opened => opened,
    };
    let connection = connection.map_err(|error| opening_fault(path, error))?;
    check_format(&connection, path)?;
    Ok(connection)
}

/// Keeps the plan of a prepared statement: SQLite would plan again each time a relevant value is bound, such as a
/// limit. Each of our statements has one good plan for all values.
fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// Opens a connection for long writes without durability of their own: parts of snapshots.
///
/// Does not sync by itself: the append that names a snapshot syncs the log, and with it all earlier writes. The log is
/// folded into the file in the background, so that no append has to do it for these writes.
pub(super) fn open_for_parts(path: &Path, patience: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| opening_fault(path, error))?;
    connection.busy_timeout(patience).map_err(sql_error)?;
    connection
        .execute_batch(
            "PRAGMA synchronous = NORMAL; PRAGMA fullfsync = ON; PRAGMA wal_autocheckpoint = 0; \
             PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;",
        )
        .map_err(sql_error)?;
    Ok(connection)
}

/// Returns true if the file has tables for snapshots. A file of format 1 opened for reading has none.
pub(super) fn has_snapshots(connection: &Connection) -> Result<bool> {
    Ok(pragma(connection, "user_version")? >= 2)
}

/// Returns true if the file has tables for erasures. An older file opened for reading has none.
pub(super) fn has_erasures(connection: &Connection) -> Result<bool> {
    Ok(pragma(connection, "user_version")? >= 3)
}

fn make_tables(connection: &mut Connection, tables: &[&str]) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for tables in tables {
        transaction.execute_batch(tables)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", USER_VERSION)?;
    transaction.commit()
}

fn check_format(connection: &Connection, path: &Path) -> Result<()> {
    if pragma(connection, "application_id")? != APPLICATION_ID {
        return Err(JournalError::NotAJournal(path.display().to_string()));
    }
    let found = pragma(connection, "user_version")?;
    if found > USER_VERSION {
        return Err(JournalError::NewerFormat { found: found.unsigned_abs(), known: USER_VERSION.unsigned_abs() });
    }
    if found < 1 {
        return Err(JournalError::Corrupt { seq: None, what: format!("there is no format {found}") });
    }
    Ok(())
}

fn pragma(connection: &Connection, name: &str) -> Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0)).map_err(sql_error)
}

fn opening_fault(path: &Path, error: rusqlite::Error) -> JournalError {
    if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
        return JournalError::NotAJournal(path.display().to_string());
    }
    match sql_error(error) {
        JournalError::Io(what) => JournalError::Io(format!("{}: {what}", path.display())),
        other => other,
    }
}

fn is_unwritable(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
}

fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
}

fn immutable_uri(path: &Path) -> String {
    let escaped = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    format!("file:{escaped}?immutable=1")
}
