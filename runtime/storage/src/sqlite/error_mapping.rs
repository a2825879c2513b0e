//! Maps errors of SQLite and the file system to errors of the journal.

use std::io;
use std::path::Path;

use patchboard_kernel::id::Seq;
use rusqlite::types::FromSql;
use rusqlite::{CachedStatement, Connection, Error, ErrorCode, OpenFlags, OptionalExtension, Params, ffi};

use crate::journal::{JournalError, Result};

/// Maps an error of SQLite.
pub(super) fn sql_error(error: Error) -> JournalError {
    read_error(None, &error)
}

/// Executes a statement that is kept prepared, and returns the number of changed rows.
pub(super) fn execute(connection: &Connection, sql: &str, row: impl Params) -> Result<usize> {
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute(row)).map_err(sql_error)
}

/// Returns the first column of the first row of a query. Keeps the statement prepared.
pub(super) fn first_value<T: FromSql>(connection: &Connection, sql: &str, row: impl Params) -> Result<Option<T>> {
    let first = |mut statement: CachedStatement<'_>| statement.query_row(row, |found| found.get(0)).optional();
    connection.prepare_cached(sql).and_then(first).map_err(sql_error)
}

/// Maps an error of SQLite while reading a record.
pub(super) fn read_error(seq: Option<Seq>, error: &Error) -> JournalError {
    let corrupt = || JournalError::Corrupt { seq, what: error.to_string() };
    let Some(code) = error.sqlite_error_code() else {
        return match error {
            // A row with another type than the tables require.
            Error::FromSqlConversionFailure(..)
            | Error::IntegralValueOutOfRange(..)
            | Error::InvalidColumnType(..)
            | Error::Utf8Error(..)
            | Error::QueryReturnedNoRows => corrupt(),
            other => JournalError::Io(other.to_string()),
        };
    };
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => JournalError::Locked,
        ErrorCode::DiskFull => JournalError::DiskFull,
        ErrorCode::ReadOnly => JournalError::ReadOnly,
        ErrorCode::SystemIoFailure if is_reading(error) => JournalError::Unreadable(error.to_string()),
        // SQLite reports `Unknown` for a missing table or column; the tables of our format are fixed.
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown => corrupt(),
        _ => JournalError::Io(error.to_string()),
    }
}

fn is_reading(error: &Error) -> bool {
    matches!(
        error.sqlite_error().map(|error| error.extended_code),
        Some(
            ffi::SQLITE_IOERR_READ
                | ffi::SQLITE_IOERR_SHORT_READ
                | ffi::SQLITE_IOERR_FSTAT
                | ffi::SQLITE_IOERR_MMAP
                | ffi::SQLITE_IOERR_CORRUPTFS
        )
    )
}

/// Rechecks a file that is reported as damaged. While running a statement, SQLite reports a page that the disk did not
/// return like a wrong one. Its check of the file distinguishes them.
pub(super) fn recheck_corrupt(path: &Path, error: JournalError) -> JournalError {
    let JournalError::Corrupt { .. } = error else { return error };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let checked = Connection::open_with_flags(path, flags)
        .and_then(|connection| connection.query_row("PRAGMA quick_check(1)", (), |row| row.get::<_, String>(0)));
    match checked.map(|found| integrity_error(&found)).map_err(sql_error) {
        Ok(unreadable @ JournalError::Unreadable(_)) | Err(unreadable @ JournalError::Unreadable(_)) => unreadable,
        _ => error,
    }
}

/// Maps the finding of SQLite's check, which also reports an unreadable page as damage.
pub(super) fn integrity_error(found: &str) -> JournalError {
    let code = found.rsplit_once("error code=").and_then(|(_, code)| code.trim().parse::<i32>().ok());
    match code.map(|code| code & 0xff) {
        Some(ffi::SQLITE_IOERR) => JournalError::Unreadable(found.to_owned()),
        _ => JournalError::Corrupt { seq: None, what: found.to_owned() },
    }
}

/// Returns the error of creating a file in a directory, if that fails.
pub(super) fn file_creation_error(dir: &Path) -> Option<JournalError> {
    let path = dir.join("patchboard.probe");
    let made = std::fs::write(&path, "probe").and_then(|()| std::fs::remove_file(&path));
    made.err().map(|error| io_error(&path, &error))
}

/// Maps an error of the file system.
pub(super) fn io_error(path: &Path, error: &io::Error) -> JournalError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => JournalError::DiskFull,
        io::ErrorKind::ReadOnlyFilesystem => JournalError::ReadOnly,
        _ => JournalError::Io(format!("{}: {error}", path.display())),
    }
}
