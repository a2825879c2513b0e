//! The rows of all departments, in one SQLite file; nothing of a row is ever lost.
//!
//! Each department has a table of its own, made from its fields. Every state of a row is kept with two times: when it was
//! so (`valid_from`, `valid_to`) and when that was known (`recorded_from`, `recorded_to`). What is current has no end of
//! either and is not `deleted`. Outcomes are kept by the key of the call, so that a call that is made again gets what it
//! got before. What the statements say is in `sql`; what is written when is in [`super::crud`].

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use patchboard_kernel::department::{Department, FieldType};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::Timestamp;
use patchboard_runtime::agent::Failure;
use patchboard_runtime::private;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, types};
use serde_json::Value;
use tempfile::TempDir;

use super::found::{Row, Values};
use super::values::number_of;
use crate::failure;

pub mod erase;
pub(super) mod sql;
#[cfg(test)]
mod tests;

/// The name of the file in the data directory.
pub const FILE: &str = "departments.sqlite";

/// Current rows of one department.
pub const ROWS_MAX: usize = 10_000;

/// How long to wait for another process that writes.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// "PBDP".
const APPLICATION_ID: i64 = 0x5042_4450;
/// The format of the file.
const USER_VERSION: i64 = 1;

/// What departments keep. Its file is made when it is first needed.
pub struct Storage {
    place: Place,
    open: Mutex<Option<Open>>,
}

enum Place {
    /// Nobody has said where.
    Nowhere,
    Memory,
    Directory(PathBuf),
    /// A copy of what was there in this directory before this moment, as long as it is looked at.
    Copy(PathBuf, Timestamp),
}

/// An open file.
struct Open {
    connection: Connection,
    /// The directory of a copy, which goes with it.
    _copy: Option<TempDir>,
}

/// Why rows cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It has to be set up otherwise.
    #[error("{0}")]
    NotConfigured(String),
    /// The file, or the disk under it.
    #[error("what departments keep cannot be read or written: {0}")]
    Sql(#[from] rusqlite::Error),
    /// Another process reads, and the log cannot be emptied.
    #[error("another process uses {FILE}, so that its log cannot be emptied: stop it, and repeat this")]
    Busy,
    /// The directory of the file.
    #[error("what departments keep cannot be read or written: {0}")]
    Io(#[from] std::io::Error),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let code = match fault {
            Fault::NotConfigured(_) => FailureCode::NotConfigured,
            Fault::Sql(_) | Fault::Io(_) | Fault::Busy => FailureCode::Crashed,
        };
        failure(code, fault.to_string())
    }
}

impl Storage {
    /// None: whatever needs rows says that there is no place for them.
    pub const fn nowhere() -> Self {
        Self { place: Place::Nowhere, open: Mutex::new(None) }
    }

    /// In memory, for as long as this lives.
    pub const fn in_memory() -> Self {
        Self { place: Place::Memory, open: Mutex::new(None) }
    }

    /// In the file [`FILE`] of a data directory.
    pub fn at(data_dir: &Path) -> Self {
        Self { place: Place::Directory(data_dir.to_owned()), open: Mutex::new(None) }
    }

    /// The same as it was before a moment, on a copy that is made when it is first needed: whatever is done, the file stays
    /// as it is. Nothing is known there of what came later, nor of calls that were carried out.
    pub fn copy_before(data_dir: &Path, moment: Timestamp) -> Self {
        Self { place: Place::Copy(data_dir.to_owned(), moment), open: Mutex::new(None) }
    }

    /// All current rows of a department, in the order in which they were made.
    ///
    /// # Errors
    /// See [`Fault`].
    pub fn rows(&self, department: &Department) -> Result<Vec<Row>, Fault> {
        self.using(department, |connection| current(connection, department))
    }

    /// The rows as they were at `valid`, as far as that was known at `recorded`.
    ///
    /// # Errors
    /// See [`Fault`].
    pub fn rows_as_of(
        &self,
        department: &Department,
        valid: Timestamp,
        recorded: Timestamp,
    ) -> Result<Vec<Row>, Fault> {
        self.using(department, |connection| {
            let mut statement = connection.prepare(&sql::as_of(department))?;
            let rows = statement.query_and_then((valid.0, recorded.0), |row| read(row, department))?;
            rows.collect()
        })
    }

    /// Does something with the table of a department, which is made or checked first.
    pub(super) fn using<T>(
        &self,
        department: &Department,
        work: impl FnOnce(&mut Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        // A statement that was broken off is rolled back; nothing half done is left behind by a panic.
        let mut slot = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Open { connection, .. } = match &mut *slot {
            Some(open) => open,
            empty => empty.insert(self.opened()?),
        };
        fit(connection, department)?;
        work(connection)
    }

    fn opened(&self) -> Result<Open, Fault> {
        match &self.place {
            Place::Nowhere => {
                let why = "departments keep their rows in the data directory, and there is none here";
                Err(Fault::NotConfigured(why.to_owned()))
            }
            Place::Memory => Ok(Open { connection: set_up(Connection::open_in_memory()?)?, _copy: None }),
            Place::Directory(dir) => {
                private::make_directory(dir)?;
                Ok(Open { connection: set_up(private::connect(&dir.join(FILE), PATIENCE)?)?, _copy: None })
            }
            Place::Copy(dir, moment) => {
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

/// A file of ours, made into one if it is new.
fn set_up(mut connection: Connection) -> Result<Connection, Fault> {
    // What is not ours stays as it is.
    format_of(&connection)?;
    // Readers and a writer do not wait for each other. In memory there is no such log.
    private::write_ahead(&connection, PATIENCE)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if format_of(&transaction)? < USER_VERSION {
        transaction.execute_batch(sql::TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", USER_VERSION)?;
    }
    transaction.commit()?;
    Ok(connection)
}

/// Returns the format of a file: 0 of an empty one.
fn format_of(connection: &Connection) -> Result<i64, Fault> {
    let id: i64 = connection.query_row("PRAGMA application_id", (), |row| row.get(0))?;
    let version: i64 = connection.query_row("PRAGMA user_version", (), |row| row.get(0))?;
    if id != 0 && id != APPLICATION_ID {
        return Err(Fault::NotConfigured(format!("{FILE} of the data directory is no file of departments")));
    }
    if version > USER_VERSION {
        let why = format!("{FILE} was written by a newer version of this program: format {version}");
        return Err(Fault::NotConfigured(why));
    }
    Ok(version)
}

/// Takes back what was recorded at a moment or later. A row's states only ever gain an end, so nothing else changed.
fn forget_since(connection: &mut Connection, moment: Timestamp) -> Result<(), Fault> {
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

/// Returns the names of all departments that have a table.
fn departments(connection: &Connection) -> Result<Vec<String>, Fault> {
    let mut statement = connection.prepare(sql::DEPARTMENTS)?;
    let names = statement.query_map((), |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// Makes the table of a department, or adds the columns that are new.
fn fit(connection: &mut Connection, department: &Department) -> Result<(), Fault> {
    let fields = sql::fields(department);
    if fields_there(connection, &department.name)?.as_ref() == Some(&fields) {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match fields_there(&transaction, &department.name)? {
        None => transaction.execute_batch(&sql::create(department))?,
        Some(there) => {
            let steps = sql::alter(department, &there).map_err(Fault::NotConfigured)?;
            transaction.execute_batch(&steps)?;
        }
    }
    transaction.execute(sql::PUT_FIELDS, (&department.name, Value::Object(fields).to_string()))?;
    transaction.commit()?;
    Ok(())
}

/// The fields of a table, as they were when it was made or changed.
fn fields_there(connection: &Connection, department: &str) -> Result<Option<Values>, Fault> {
    let fields: Option<String> = connection.query_row(sql::FIELDS, [department], |row| row.get(0)).optional()?;
    let read = |text: String| {
        serde_json::from_str(&text)
            .map_err(|why| Fault::NotConfigured(format!("{FILE} is damaged at the department {department}: {why}")))
    };
    fields.map(read).transpose()
}

/// All current rows.
pub(super) fn current(connection: &Connection, department: &Department) -> Result<Vec<Row>, Fault> {
    let mut statement = connection.prepare(&sql::current(department))?;
    let limit = i64::try_from(ROWS_MAX).unwrap_or(i64::MAX);
    let rows = statement.query_and_then([limit], |row| read(row, department))?;
    rows.collect()
}

/// The current row of this number.
pub(super) fn current_row(connection: &Connection, department: &Department, id: i64) -> Result<Option<Row>, Fault> {
    let mut statement = connection.prepare(&sql::current_row(department))?;
    let mut rows = statement.query_and_then([id], |row| read(row, department))?;
    rows.next().transpose()
}

/// Number, version and fields, in the order of the statements.
fn read(row: &rusqlite::Row<'_>, department: &Department) -> Result<Row, Fault> {
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

/// What a statement is given for a value.
pub(super) fn bound(value: Option<&Value>) -> types::Value {
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
