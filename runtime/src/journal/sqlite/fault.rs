//! What SQLite and the file system report, as errors of the journal.

use std::io;
use std::path::Path;

use patchboard_kernel::id::Seq;
use rusqlite::{Error, ErrorCode};

use super::JournalError;

/// An error of SQLite.
pub(super) fn sql_fault(error: Error) -> JournalError {
    read_fault(None, &error)
}

/// An error of SQLite while reading a record.
pub(super) fn read_fault(seq: Option<Seq>, error: &Error) -> JournalError {
    let corrupt = || JournalError::Corrupt { seq, what: error.to_string() };
    let Some(code) = error.sqlite_error_code() else {
        return match error {
            // A row that holds something else than what the tables demand.
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
        // `Unknown` is what a missing table or column gives; the tables of our format are fixed.
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown => corrupt(),
        _ => JournalError::Io(error.to_string()),
    }
}

/// Why no file can be made in a directory, if none can.
pub(super) fn refusal_of_files(dir: &Path) -> Option<JournalError> {
    let path = dir.join("patchboard.probe");
    let made = std::fs::write(&path, "probe").and_then(|()| std::fs::remove_file(&path));
    made.err().map(|error| io_fault(&path, &error))
}

/// An error of the file system.
pub(super) fn io_fault(path: &Path, error: &io::Error) -> JournalError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => JournalError::DiskFull,
        io::ErrorKind::ReadOnlyFilesystem => JournalError::ReadOnly,
        _ => JournalError::Io(format!("{}: {error}", path.display())),
    }
}
