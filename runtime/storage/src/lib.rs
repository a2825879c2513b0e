//! Storage of everything durable: one interface, and its drivers.
//!
//! Owns the rules that every driver keeps: fenced and atomic appends, records in pages, erasure of values. A driver
//! knows one kind of storage; nothing outside of it does. Does not know how a board decides, nor actors or HTTP.
//!
//! [`open`] chooses the driver.
//!
//! * [`journal`]: the interface of boards: records, texts, snapshots, tombstones.
//! * [`archives`](mod@archives): the interface of archives, with its drivers.
//! * [`sqlite`]: the driver for a data directory on local disk; [`memory`]: the one in memory.
//! * [`documents`]: the interface of small JSON documents: API tokens, rows of departments.
//! * [`blocking`]: storage for code that runs on a thread of its own.
//! * [`private_files`]: files that only their owner reads; [`board_id`]: the rule of board ids.

pub mod archives;
pub mod blocking;
pub mod board_id;
pub mod documents;
pub mod journal;
pub mod memory;
pub mod private_files;
pub mod sqlite;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::path::Path;
use std::sync::Arc;

use archives::{Archives, DirectoryArchives};
use documents::{DocumentError, Documents};
use journal::{Journal, JournalError, RecordLoss};
use sqlite::{SqliteDocuments, SqliteJournal};

/// Opens the journal of a data directory, creating both if they are missing.
pub fn open(data_dir: &Path) -> Result<Arc<dyn Journal>, JournalError> {
    Ok(Arc::new(SqliteJournal::open(data_dir)?))
}

/// Opens an existing journal for reading, even while another process writes to it.
pub fn open_read_only(data_dir: &Path) -> Result<Arc<dyn Journal>, JournalError> {
    Ok(Arc::new(SqliteJournal::open_read_only(data_dir)?))
}

/// Opens a store of documents of a data directory, creating it if it is missing.
pub fn open_documents(data_dir: &Path, name: &str) -> Result<Arc<dyn Documents>, DocumentError> {
    Ok(Arc::new(SqliteDocuments::open(&data_dir.join(name))?))
}

/// Opens a store of documents for reading; `None` if there is none.
pub fn open_documents_read_only(data_dir: &Path, name: &str) -> Result<Option<Arc<dyn Documents>>, DocumentError> {
    has_documents(data_dir, name).then(|| SqliteDocuments::open_read_only(&data_dir.join(name))).transpose()
}

/// Returns true if a data directory has a store of documents with this name.
pub fn has_documents(data_dir: &Path, name: &str) -> bool {
    data_dir.join(name).is_file()
}

/// Returns the archives of a data directory.
pub fn archives(data_dir: &Path) -> Arc<dyn Archives> {
    Arc::new(DirectoryArchives::new(data_dir))
}

/// Returns true if a data directory has a journal.
pub fn has_journal(data_dir: &Path) -> bool {
    data_dir.join(sqlite::FILE).exists()
}

/// Returns the boards of a journal that is gone from a data directory; none if it is there, or never was.
pub fn losses_without_journal(data_dir: &Path) -> Result<Vec<RecordLoss>, JournalError> {
    SqliteJournal::losses_without_database(data_dir)
}
