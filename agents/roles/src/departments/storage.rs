//! Bitemporal storage of the rows of all departments, in one SQLite file.
//!
//! Each department has its own table, made from its fields. Every state of a row is kept with two periods: its validity
//! (`valid_from`, `valid_to`) and its knowledge (`recorded_from`, `recorded_to`). A current state has no end of either
//! and is not `deleted`. Outcomes are stored by the key of the call, so that a repeated call gets the same outcome.
//! `sql` has the statements; [`super::crud`] decides when to write.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::Timestamp;
use patchboard_protocols::department::{Department, FieldType};
use patchboard_runtime::agent::Failure;
use patchboard_storage::private_files;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, types};
use serde_json::Value;
use tempfile::TempDir;

use super::types::{Row, Values};
use super::values::number_of;

pub mod erase;
pub(super) mod sql;
#[cfg(test)]
mod tests;

/// Name of the file in the data directory.
pub const FILE: &str = "departments.sqlite";

/// Greatest number of current rows in one department.
pub const ROWS_MAX: usize = 10_000;

/// Time limit to wait for another process that writes.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Application id of the file: "PBDP".
const APPLICATION_ID: i64 = 0x5042_4450;
/// Format version of the file.
const USER_VERSION: i64 = 1;

/// Storage of departments. The file is created at first use.
pub struct Storage {
    place: StorageLocation,
    open: Mutex<Option<Open>>,
}

enum StorageLocation {
    /// No place is configured.
    Nowhere,
    Memory,
    Directory(PathBuf),
    /// Temporary copy of the file in this directory, as it was before this moment.
    Copy(PathBuf, Timestamp),
}

/// Open database.
struct Open {
    connection: Connection,
    /// Temporary directory of a copy, removed on drop.
    _copy: Option<TempDir>,
}

/// Error of reading or writing rows.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The configuration must be changed.
    #[error("{0}")]
    NotConfigured(String),
    /// Error of the file, or of the disk under it.
    #[error("what departments keep cannot be read or written: {0}")]
    Sql(#[from] rusqlite::Error),
    /// Another process reads, so the log cannot be emptied.
    #[error("another process uses {FILE}, so that its log cannot be emptied: stop it, and repeat this")]
    Busy,
    /// Error of the file's directory.
    #[error("what departments keep cannot be read or written: {0}")]
    Io(#[from] std::io::Error),
}

impl From<StorageError> for Failure {
    fn from(fault: StorageError) -> Self {
        let code = match fault {
            StorageError::NotConfigured(_) => FailureCode::NotConfigured,
            StorageError::Sql(_) | StorageError::Io(_) | StorageError::Busy => FailureCode::Crashed,
        };
        Failure::new(code, fault.to_string())
    }
}

impl Storage {
    /// Creates a storage without a place; any use of rows returns an error.
    pub const fn unconfigured() -> Self {
        Self { place: StorageLocation::Nowhere, open: Mutex::new(None) }
    }

    /// Creates a storage in memory, which ends with this value.
    pub const fn in_memory() -> Self {
        Self { place: StorageLocation::Memory, open: Mutex::new(None) }
    }

    /// Creates a storage in the file [`FILE`] of a data directory.
    pub fn in_dir(data_dir: &Path) -> Self {
        Self { place: StorageLocation::Directory(data_dir.to_owned()), open: Mutex::new(None) }
    }

    /// Creates a storage on a copy as it was before a moment. The copy is made at first use, and the file itself stays
    /// unchanged. Later rows are missing, and so are the outcomes of later calls.
    pub fn copy_before(data_dir: &Path, moment: Timestamp) -> Self {
        Self { place: StorageLocation::Copy(data_dir.to_owned(), moment), open: Mutex::new(None) }
    }

    /// Returns all current rows of a department, in the order of their creation.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub fn rows(&self, department: &Department) -> Result<Vec<Row>, StorageError> {
        self.with_table(department, |connection| current(connection, department))
    }

    /// Returns the rows as they were at `valid`, as far as that was known at `recorded`.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub fn rows_as_of(
        &self,
        department: &Department,
        valid: Timestamp,
        recorded: Timestamp,
    ) -> Result<Vec<Row>, StorageError> {
        self.with_table(department, |connection| {
            let mut statement = connection.prepare(&sql::as_of(department))?;
            let rows = statement.query_and_then((valid.0, recorded.0), |row| read(row, department))?;
            rows.collect()
        })
    }

    /// Runs `work` on the table of a department, which is created or checked first.
    pub(super) fn with_table<T>(
        &self,
        department: &Department,
        work: impl FnOnce(&mut Connection) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        // An interrupted statement is rolled back, so a panic leaves no partial change.
        let mut slot = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Open { connection, .. } = match &mut *slot {
            Some(open) => open,
            empty => empty.insert(self.opened()?),
        };
        migrate_table(connection, department)?;
        work(connection)
    }

    fn opened(&self) -> Result<Open, StorageError> {
        match &self.place {
            StorageLocation::Nowhere => {
                let why = "departments keep their rows in the data directory, and there is none here";
                Err(StorageError::NotConfigured(why.to_owned()))
            }
            StorageLocation::Memory => Ok(Open { connection: set_up(Connection::open_in_memory()?)?, _copy: None }),
            StorageLocation::Directory(dir) => {
                private_files::make_directory(dir)?;
                Ok(Open { connection: set_up(private_files::connect(&dir.join(FILE), PATIENCE)?)?, _copy: None })
            }
            StorageLocation::Copy(dir, moment) => {
                let (file, copy) = (dir.join(FILE), tempfile::tempdir()?);
                let to = copy.path().join(FILE);
                if file.is_file() {
                    let original = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
                    original.busy_timeout(PATIENCE)?;
                    original.execute("VACUUM INTO ?1", [to.to_string_lossy()])?;
                }
                let mut connection = set_up(Connection::open(to)?)?;
                forget_since(&mut connection, *moment)?;
                Ok(Open { connection, _copy: Some(copy) })
            }
        }
    }
}

/// Prepares a database, and initialises it if it is new.
fn set_up(mut connection: Connection) -> Result<Connection, StorageError> {
    // A file of another program stays unchanged.
    format_of(&connection)?;
    // With a write-ahead log, readers and a writer do not block each other. A database in memory has none.
    private_files::enable_wal(&connection, PATIENCE)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if format_of(&transaction)? < USER_VERSION {
        transaction.execute_batch(sql::TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", USER_VERSION)?;
    }
    transaction.commit()?;
    Ok(connection)
}

/// Returns the format version of a file, 0 if it is empty.
fn format_of(connection: &Connection) -> Result<i64, StorageError> {
    let id: i64 = connection.query_row("PRAGMA application_id", (), |row| row.get(0))?;
    let version: i64 = connection.query_row("PRAGMA user_version", (), |row| row.get(0))?;
    if id != 0 && id != APPLICATION_ID {
        return Err(StorageError::NotConfigured(format!("{FILE} of the data directory is no file of departments")));
    }
    if version > USER_VERSION {
        let why = format!("{FILE} was written by a newer version of this program: format {version}");
        return Err(StorageError::NotConfigured(why));
    }
    Ok(version)
}

/// Reverts what was recorded at a moment or later. States only ever gain an end, so nothing else has changed.
fn forget_since(connection: &mut Connection, moment: Timestamp) -> Result<(), StorageError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for department in departments(&transaction)? {
        let [states, ends] = sql::forget_since(&department);
        transaction.execute(&states, [moment.0])?;
        transaction.execute(&ends, [moment.0])?;
    }
    transaction.execute(sql::FORGET_OUTCOMES, [moment.0])?;
    transaction.commit()?;
    Ok(())
}

/// Returns the names of all departments with a table.
fn departments(connection: &Connection) -> Result<Vec<String>, StorageError> {
    let mut statement = connection.prepare(sql::DEPARTMENTS)?;
    let names = statement.query_map((), |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// Creates the table of a department, or adds missing columns.
fn migrate_table(connection: &mut Connection, department: &Department) -> Result<(), StorageError> {
    let fields = sql::fields(department);
    if fields_there(connection, &department.name)?.as_ref() == Some(&fields) {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match fields_there(&transaction, &department.name)? {
        None => transaction.execute_batch(&sql::create(department))?,
        Some(there) => {
            let steps = sql::alter(department, &there).map_err(StorageError::NotConfigured)?;
            transaction.execute_batch(&steps)?;
        }
    }
    transaction.execute(sql::PUT_FIELDS, (&department.name, Value::Object(fields).to_string()))?;
    transaction.commit()?;
    Ok(())
}

/// Returns the recorded fields of a table.
fn fields_there(connection: &Connection, department: &str) -> Result<Option<Values>, StorageError> {
    let fields: Option<String> = connection.query_row(sql::FIELDS, [department], |row| row.get(0)).optional()?;
    let read = |text: String| {
        serde_json::from_str(&text).map_err(|why| {
            StorageError::NotConfigured(format!("{FILE} is damaged at the department {department}: {why}"))
        })
    };
    fields.map(read).transpose()
}

/// Returns all current rows.
pub(super) fn current(connection: &Connection, department: &Department) -> Result<Vec<Row>, StorageError> {
    let mut statement = connection.prepare(&sql::current(department))?;
    let limit = i64::try_from(ROWS_MAX).unwrap_or(i64::MAX);
    let rows = statement.query_and_then([limit], |row| read(row, department))?;
    rows.collect()
}

/// Returns the current row of this number.
pub(super) fn current_row(
    connection: &Connection,
    department: &Department,
    id: i64,
) -> Result<Option<Row>, StorageError> {
    let mut statement = connection.prepare(&sql::current_row(department))?;
    let mut rows = statement.query_and_then([id], |row| read(row, department))?;
    rows.next().transpose()
}

/// Reads number, version and fields, in the order of the statements.
fn read(row: &rusqlite::Row<'_>, department: &Department) -> Result<Row, StorageError> {
    let mut values = Values::new();
    for (index, (name, field)) in department.storage.fields.iter().enumerate() {
        let value = match (row.get(index + 2)?, field.kind) {
            (types::Value::Null | types::Value::Blob(_), _) => continue,
            (types::Value::Integer(number), FieldType::Boolean) => (number != 0).into(),
            (types::Value::Integer(number), _) => number.into(),
            (types::Value::Real(number), _) => number_of(number),
            (types::Value::Text(text), _) => text.into(),
        };
        values.insert(name.clone(), value);
    }
    Ok(Row { id: row.get(0)?, version: row.get(1)?, values })
}

/// Converts a value to a statement parameter.
pub(super) fn to_sql(value: Option<&Value>) -> types::Value {
    match value {
        None | Some(Value::Null) => types::Value::Null,
        Some(Value::Bool(is_so)) => types::Value::Integer((*is_so).into()),
        Some(Value::Number(number)) => match number.as_i64() {
            Some(whole) => types::Value::Integer(whole),
            None => number.as_f64().map_or(types::Value::Null, types::Value::Real),
        },
        Some(Value::String(text)) => types::Value::Text(text.clone()),
        Some(other) => types::Value::Text(other.to_string()),
    }
}
