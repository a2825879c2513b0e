//! Bitemporal storage of the rows of all departments, as documents.
//!
//! `rows/NAME` has the current state of each row of a department by its number, `history/NAME` every earlier one. A
//! state has two periods: its validity (`valid_from`, `valid_to`) and its knowledge (`recorded_from`, `recorded_to`).
//! `departments` has a header of each department, which every change rewrites, so no two decide on the same rows.
//! `outcomes` has the outcome of each call by its key, so a repeated call gets the same one. [`super::crud`] decides
//! when to write.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::Timestamp;
use patchboard_protocols::department::Department;
use patchboard_runtime::agent::Failure;
use patchboard_storage::blocking::wait;
use patchboard_storage::documents::{Change, Document, DocumentError, Documents, all, number_key};
use patchboard_storage::memory::MemoryDocuments;
use patchboard_storage::private_files;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::types::{Row, Values};

pub mod erase;
#[cfg(test)]
mod tests;

/// Name of the file in the data directory.
pub const FILE: &str = "departments.sqlite";

/// Greatest number of current rows in one department.
pub const ROWS_MAX: usize = 10_000;

const HEADERS: &str = "departments";
pub(super) const OUTCOMES: &str = "outcomes";
/// Prefix of the collections with current states.
const ROWS: &str = "rows";
/// Prefix of the collections with earlier states.
const HISTORY: &str = "history";

/// Attempts to read a department while others change it.
const ATTEMPTS: usize = 100;

/// Storage of departments. The file is created at first use.
pub struct Storage {
    place: StorageLocation,
    open: Mutex<Option<Arc<dyn Documents>>>,
}

enum StorageLocation {
    /// No place is configured.
    Nowhere,
    Memory,
    Directory(PathBuf),
    /// Copy of the file in this directory, as it was before this moment.
    Copy(PathBuf, Timestamp),
}

/// Error of reading or writing rows.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The configuration must be changed.
    #[error("{0}")]
    NotConfigured(String),
    /// Error of the file, or of the disk under it.
    #[error("what departments keep cannot be read or written: {0}")]
    Documents(DocumentError),
    /// Another process reads, so the log cannot be emptied.
    #[error("another process uses {FILE}, so that its log cannot be emptied: stop it, and repeat this")]
    Busy,
    /// Error of the file's directory.
    #[error("what departments keep cannot be read or written: {0}")]
    Io(#[from] std::io::Error),
}

impl From<DocumentError> for StorageError {
    fn from(error: DocumentError) -> Self {
        match error {
            DocumentError::Foreign(_) => {
                Self::NotConfigured(format!("{FILE} of the data directory is no file of departments"))
            }
            DocumentError::Newer { found, .. } => {
                Self::NotConfigured(format!("{FILE} was written by a newer version of this program: format {found}"))
            }
            error => Self::Documents(error),
        }
    }
}

impl From<StorageError> for Failure {
    fn from(fault: StorageError) -> Self {
        let code = match fault {
            StorageError::NotConfigured(_) => FailureCode::NotConfigured,
            StorageError::Documents(_) | StorageError::Io(_) | StorageError::Busy => FailureCode::Crashed,
        };
        Failure::new(code, fault.to_string())
    }
}

/// State of a row, with its periods.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    pub(super) id: i64,
    /// Number of writes of the row.
    pub(super) version: i64,
    pub(super) valid_from: i64,
    pub(super) valid_to: Option<i64>,
    pub(super) recorded_from: i64,
    pub(super) recorded_to: Option<i64>,
    /// True if the row ended; its values stay.
    pub(super) deleted: bool,
    /// Key of the call that wrote the state.
    pub(super) key: String,
    pub(super) values: Values,
}

impl State {
    const fn is_current(&self) -> bool {
        self.valid_to.is_none() && self.recorded_to.is_none() && !self.deleted
    }

    /// Returns the change that stores the state of a row of a department.
    pub(super) fn put(&self, department: &str) -> Change {
        let Self { id, version, recorded_from, .. } = self;
        match self.is_current() {
            true => Change::put(format!("{ROWS}/{department}"), number_key(*id), json!(self)),
            false => {
                let key = format!("{}/{version}/{recorded_from}", number_key(*id));
                Change::put(format!("{HISTORY}/{department}"), key, json!(self))
            }
        }
    }

    /// Returns the change that removes the current state of a row.
    pub(super) fn remove(&self, department: &str) -> Change {
        Change::remove(format!("{ROWS}/{department}"), number_key(self.id))
    }

    fn into_row(self) -> Row {
        Row { id: self.id, version: self.version, values: self.values }
    }
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// Types of the fields, by name.
    fields: Values,
    /// Greatest row number; numbers are not reused.
    last_id: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallOutcome {
    pub(super) department: String,
    pub(super) recorded: i64,
    pub(super) outcome: Value,
}

/// Rows of a department as read, at one revision of its header.
pub(super) struct Table {
    name: String,
    header: Header,
    /// Revision of the header; `None` if the department has no rows yet.
    revision: Option<u64>,
    /// Current states by row number.
    pub(super) rows: BTreeMap<i64, State>,
    /// Earlier states, if they were read.
    history: Vec<State>,
}

impl Table {
    /// Reads a department, again if it is changed meanwhile.
    pub(super) async fn read(documents: &dyn Documents, name: &str, has_history: bool) -> Result<Self, StorageError> {
        for _ in 0..ATTEMPTS {
            let header = documents.get(HEADERS, name).await?;
            let rows = all(documents, &format!("{ROWS}/{name}")).await?;
            let history = if has_history { all(documents, &format!("{HISTORY}/{name}")).await? } else { Vec::new() };
            let revision = header.as_ref().map(|header| header.revision);
            if documents.get(HEADERS, name).await?.map(|header| header.revision) != revision {
                continue;
            }
            let states = |documents: Vec<Document>| documents.into_iter().map(parsed::<State>);
            return Ok(Self {
                name: name.to_owned(),
                header: header.map(parsed).transpose()?.unwrap_or_default(),
                revision,
                rows: states(rows).map(|state| state.map(|state| (state.id, state))).collect::<Result<_, _>>()?,
                history: states(history).collect::<Result<_, _>>()?,
            });
        }
        Err(DocumentError::Locked.into())
    }

    /// Reads the rows of a department whose manifest fits them.
    pub(super) async fn of(documents: &dyn Documents, department: &Department) -> Result<Self, StorageError> {
        let mut table = Self::read(documents, &department.name, false).await?;
        check_fields(department, &table.header.fields)?;
        let fields = department.storage.fields.iter();
        table.header.fields = fields.map(|(name, field)| (name.clone(), field.kind.as_str().into())).collect();
        Ok(table)
    }

    pub(super) const fn next_id(&self) -> i64 {
        self.header.last_id + 1
    }

    pub(super) fn states(&self) -> impl Iterator<Item = &State> {
        self.rows.values().chain(&self.history)
    }

    /// Returns the change of the header that goes with changes of rows. It fails if the department was changed since.
    pub(super) fn put_header(&self, last_id: i64) -> Change {
        let header = Header { last_id: self.header.last_id.max(last_id), ..self.header.clone() };
        Change::put(HEADERS, &self.name, json!(header)).expecting(self.revision)
    }
}

pub(super) fn parsed<T: DeserializeOwned>(document: Document) -> Result<T, StorageError> {
    let Document { key, value, .. } = document;
    serde_json::from_value(value)
        .map_err(|why| StorageError::NotConfigured(format!("{FILE} is damaged at {key}: {why}")))
}

/// Checks that a department has all fields of its rows, with their types. The message describes the fix.
fn check_fields(department: &Department, there: &Values) -> Result<(), StorageError> {
    for (name, kind) in there {
        let kind = kind.as_str().unwrap_or_default();
        let wrong = match department.storage.fields.get(name) {
            None => format!("has no field {name} any more, and its rows have"),
            Some(field) if field.kind.as_str() != kind => {
                format!("says that {name} is of type {}, and in its rows it is {kind}", field.kind)
            }
            Some(_) => continue,
        };
        return Err(StorageError::NotConfigured(format!(
            "the manifest of the department {} {wrong}: write the field as it was ({name}: {{type: {kind}}}), no action has \
             to use it; or give the department another name, so that it begins without rows",
            department.name
        )));
    }
    Ok(())
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

    /// Returns all current rows of a department, in the order of their creation. Blocks.
    pub fn rows(&self, department: &Department) -> Result<Vec<Row>, StorageError> {
        let table = self.with_documents(|documents| wait(Table::of(documents, department)))?;
        Ok(table.rows.into_values().map(State::into_row).collect())
    }

    /// Runs `work` on the documents of all departments, which are opened first. Calls of this process wait for each
    /// other.
    pub(super) fn with_documents<T>(
        &self,
        work: impl FnOnce(&dyn Documents) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        // A batch of changes is atomic, so a panic leaves no partial change.
        let mut slot = self.open.lock();
        let documents = match &mut *slot {
            Some(open) => open,
            empty => empty.insert(self.opened()?),
        };
        work(&**documents)
    }

    fn opened(&self) -> Result<Arc<dyn Documents>, StorageError> {
        match &self.place {
            StorageLocation::Nowhere => {
                let why = "departments keep their rows in the data directory, and there is none here";
                Err(StorageError::NotConfigured(why.to_owned()))
            }
            StorageLocation::Memory => Ok(Arc::new(MemoryDocuments::default())),
            StorageLocation::Directory(dir) => {
                private_files::make_directory(dir)?;
                Ok(patchboard_storage::open_documents(dir, FILE)?)
            }
            StorageLocation::Copy(dir, moment) => {
                Ok(Arc::new(match patchboard_storage::open_documents_read_only(dir, FILE)? {
                    Some(original) => wait(copy_before(&*original, *moment))?,
                    None => MemoryDocuments::default(),
                }))
            }
        }
    }
}

/// Copies what was recorded before a moment. States only ever gain an end, so nothing else has changed since.
async fn copy_before(documents: &dyn Documents, moment: Timestamp) -> Result<MemoryDocuments, StorageError> {
    let mut copied = Vec::new();
    for header in all(documents, HEADERS).await? {
        let mut table = Table::read(documents, &header.key, true).await?;
        (table.header.last_id, table.revision) = (0, None);
        let known = table.states().filter(|state| state.recorded_from < moment.0).cloned();
        for mut state in known.collect::<Vec<_>>() {
            state.recorded_to = state.recorded_to.filter(|end| *end < moment.0);
            table.header.last_id = table.header.last_id.max(state.id);
            copied.push(state.put(&table.name));
        }
        copied.push(table.put_header(0));
    }
    for document in all(documents, OUTCOMES).await? {
        let Document { key, value, .. } = document.clone();
        if parsed::<CallOutcome>(document)?.recorded < moment.0 {
            copied.push(Change::put(OUTCOMES, key, value));
        }
    }
    Ok(MemoryDocuments::of(
        copied.into_iter().filter_map(|Change { collection, key, value, .. }| Some((collection, key, value?))),
    ))
}
