//! Documents in one SQLite file, with a write-ahead log and durable commits.
//!
//! Each document has a digest over its place, revision and text: a bit that flips in the file is an error, and no other
//! content. The log is emptied after each change, because a flipped bit in it would revert every later commit.

mod legacy;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use patchboard_kernel::digest::sha256;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, TransactionBehavior};
use tokio::sync::watch;

use crate::documents::{Answer, Change, Document, DocumentError, Documents, PAGE_MAX, checked};
use crate::memory::MemoryDocuments;
use crate::private_files;

/// Time limit to wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval at which changes by other processes are detected.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Application id of a file: "PBDP".
const APPLICATION_ID: i64 = 0x5042_4450;

/// Version of the tables below; 1 is the format of departments before there were documents.
const FORMAT: i64 = 2;

const TABLES: &str = "
CREATE TABLE store (revision INTEGER NOT NULL) STRICT;
INSERT INTO store VALUES (1);
CREATE TABLE documents (
    collection TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    revision   INTEGER NOT NULL,
    value      TEXT    NOT NULL,
    digest     TEXT    NOT NULL,
    PRIMARY KEY (collection, key)
) STRICT, WITHOUT ROWID;
";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    /// The file is new.
    Empty,
    /// Tokens in tables of their own.
    Tokens,
    /// Departments in tables of their own.
    Departments,
    Documents,
}

/// Store of documents in one file.
pub struct SqliteDocuments {
    path: PathBuf,
    connection: Mutex<Connection>,
    /// Last revision that this handle has written.
    written: watch::Sender<i64>,
}

impl SqliteDocuments {
    /// Opens a file of an existing directory, creating or migrating it if necessary. A file of another program is left
    /// unchanged. Fails with [`DocumentError::Foreign`] or [`DocumentError::Newer`].
    pub fn open(path: &Path) -> Result<Self, DocumentError> {
        let mut connection = private_files::connect(path, PATIENCE).map_err(error)?;
        format_of(&connection, path)?;
        private_files::enable_wal(&connection, PATIENCE).map_err(error)?;
        connection.execute_batch("PRAGMA secure_delete = ON; PRAGMA cell_size_check = ON;").map_err(error)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(error)?;
        let format = format_of(&transaction, path)?;
        if format != Format::Documents {
            let old = legacy::documents(&transaction, format).map_err(error)?;
            transaction.execute_batch(&legacy::drop_tables(&transaction).map_err(error)?).map_err(error)?;
            transaction.execute_batch(TABLES).map_err(error)?;
            for (collection, key, value) in old {
                put(&transaction, &collection, &key, 1, &value.to_string()).map_err(error)?;
            }
            transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(error)?;
            transaction.pragma_update(None, "user_version", FORMAT).map_err(error)?;
        }
        transaction.commit().map_err(error)?;
        let store =
            Self { path: path.to_owned(), connection: Mutex::new(connection), written: watch::Sender::default() };
        if matches!(format, Format::Tokens | Format::Departments) {
            store.empty_log(&store.connection.lock(), PATIENCE);
        }
        Ok(store)
    }

    /// Opens an existing file for reading. Of a file of an earlier format its present content is returned.
    pub fn open_read_only(path: &Path) -> Result<Arc<dyn Documents>, DocumentError> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(error)?;
        connection.busy_timeout(PATIENCE).map_err(error)?;
        Ok(match format_of(&connection, path)? {
            Format::Documents => Arc::new(Self {
                path: path.to_owned(),
                connection: Mutex::new(connection),
                written: watch::Sender::default(),
            }),
            format => Arc::new(MemoryDocuments::of(legacy::documents(&connection, format).map_err(error)?)),
        })
    }

    fn apply(&self, changes: &[Change]) -> Result<u64, DocumentError> {
        let texts = checked(changes)?;
        let mut connection = self.connection.lock();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(error)?;
        let next = "UPDATE store SET revision = revision + 1 RETURNING revision";
        let revision: i64 = transaction.query_row(next, (), |row| row.get(0)).map_err(error)?;
        for (change, text) in changes.iter().zip(&texts) {
            let Change { collection, key, .. } = change;
            change.check(revision_of(&transaction, collection, key)?)?;
            match text {
                Some(text) => {
                    put(&transaction, collection, key, revision, text).map_err(error)?;
                    let found = get(&transaction, collection, key);
                    if !found.is_ok_and(|found| found.is_some_and(|found| Some(&found.value) == change.value.as_ref()))
                    {
                        return Err(DocumentError::Unverified { collection: collection.clone(), key: key.clone() });
                    }
                }
                None => remove(&transaction, collection, key).map_err(error)?,
            }
        }
        transaction.commit().map_err(error)?;
        let has_removal = texts.iter().any(Option::is_none);
        self.empty_log(&connection, if has_removal { PATIENCE } else { Duration::ZERO });
        self.written.send_replace(revision);
        Ok(revision.unsigned_abs())
    }

    /// Moves the commits from the log into the file. If others read for longer than `patience`, the next change and the
    /// last handle to close repeat it: the commits are in effect.
    fn empty_log(&self, connection: &Connection, patience: Duration) {
        let emptied = connection.busy_timeout(patience).and_then(|()| private_files::truncate_wal(connection));
        let restored = connection.busy_timeout(PATIENCE);
        if emptied.as_ref().is_ok_and(|is_empty| *is_empty || patience.is_zero()) && restored.is_ok() {
            return;
        }
        let file = self.path.display();
        tracing::warn!(%file, ?emptied, "the last commits are in the log of the file alone, as another process reads it");
    }

    fn purge(&self) -> Result<(), DocumentError> {
        let connection = self.connection.lock();
        connection.execute_batch("VACUUM").map_err(error)?;
        let is_empty = private_files::truncate_wal(&connection).map_err(error)?;
        is_empty.then_some(()).ok_or(DocumentError::Locked)
    }

    fn current_revision(&self) -> Result<u64, DocumentError> {
        let revision = self.connection.lock().query_row("SELECT revision FROM store", (), |row| row.get::<_, i64>(0));
        revision.map(i64::unsigned_abs).map_err(error)
    }
}

impl Documents for SqliteDocuments {
    fn get<'a>(&'a self, collection: &'a str, key: &'a str) -> Answer<'a, Option<Document>> {
        Box::pin(async move { get(&self.connection.lock(), collection, key) })
    }

    fn page<'a>(&'a self, collection: &'a str, after: Option<&'a str>, limit: usize) -> Answer<'a, Vec<Document>> {
        Box::pin(async move {
            let connection = self.connection.lock();
            let sql = "SELECT key, revision, value, digest FROM documents \
                       WHERE collection = ?1 AND key >= ?2 ORDER BY key LIMIT ?3";
            let mut page = connection.prepare_cached(sql).map_err(error)?;
            // In byte order, the text that follows `after`.
            let first = after.map(|after| format!("{after}\0")).unwrap_or_default();
            let limit = i64::try_from(limit.min(PAGE_MAX)).unwrap_or(i64::MAX);
            let read = |row: &Row<'_>| Ok(read(row, collection));
            let rows = page.query_map((collection, first, limit), read).map_err(error)?;
            rows.map(|row| row.map_err(error)?).collect()
        })
    }

    fn change(&self, changes: Vec<Change>) -> Answer<'_, u64> {
        Box::pin(async move { self.apply(&changes) })
    }

    fn revision(&self) -> Answer<'_, u64> {
        Box::pin(async move { self.current_revision() })
    }

    fn changed(&self, since: u64) -> Answer<'_, u64> {
        Box::pin(async move {
            let mut written = self.written.subscribe();
            loop {
                let now = self.current_revision()?;
                if now != since {
                    return Ok(now);
                }
                // Either the handle has written, or it is time to look for changes of others.
                drop(tokio::time::timeout(POLL_INTERVAL, written.changed()).await);
            }
        })
    }

    fn purge_erased_bytes(&self) -> Answer<'_, ()> {
        Box::pin(async move { self.purge() })
    }
}

/// Returns the format of a file, whose tables are read only if it is one of this program.
fn format_of(connection: &Connection, path: &Path) -> Result<Format, DocumentError> {
    // Both numbers of one moment: another process may create the file meanwhile.
    let _moment = connection.is_autocommit().then(|| connection.unchecked_transaction()).transpose().map_err(error)?;
    let number = |sql: &str| connection.query_row(sql, (), |row| row.get::<_, i64>(0)).map_err(error);
    let tables = "SELECT count(*) FROM sqlite_schema";
    match (number("PRAGMA application_id")?, number("PRAGMA user_version")?) {
        (APPLICATION_ID, FORMAT) => Ok(Format::Documents),
        (APPLICATION_ID, 1) => Ok(Format::Departments),
        (0, 0) if number(tables)? == 0 => Ok(Format::Empty),
        (0, 0) if number(&format!("{tables} WHERE name = 'tokens'"))? == 1 => Ok(Format::Tokens),
        (0 | APPLICATION_ID, found) if found > FORMAT => {
            Err(DocumentError::Newer { path: path.display().to_string(), found })
        }
        _ => Err(DocumentError::Foreign(path.display().to_string())),
    }
}

fn get(connection: &Connection, collection: &str, key: &str) -> Result<Option<Document>, DocumentError> {
    let sql = "SELECT key, revision, value, digest FROM documents WHERE collection = ?1 AND key = ?2";
    let mut one = connection.prepare_cached(sql).map_err(error)?;
    one.query_row((collection, key), |row| Ok(read(row, collection))).optional().map_err(error)?.transpose()
}

fn revision_of(connection: &Connection, collection: &str, key: &str) -> Result<Option<u64>, DocumentError> {
    let sql = "SELECT revision FROM documents WHERE collection = ?1 AND key = ?2";
    let mut one = connection.prepare_cached(sql).map_err(error)?;
    let revision = one.query_row((collection, key), |row| row.get::<_, i64>(0)).optional().map_err(error)?;
    Ok(revision.map(i64::unsigned_abs))
}

fn put(connection: &Connection, collection: &str, key: &str, revision: i64, text: &str) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO documents (collection, key, revision, value, digest) VALUES (?1, ?2, ?3, ?4, ?5)";
    let digest = digest(collection, key, revision, text);
    connection.prepare_cached(sql)?.execute((collection, key, revision, text, digest)).map(drop)
}

fn remove(connection: &Connection, collection: &str, key: &str) -> rusqlite::Result<()> {
    let sql = "DELETE FROM documents WHERE collection = ?1 AND key = ?2";
    connection.prepare_cached(sql)?.execute((collection, key)).map(drop)
}

/// Reads key, revision, value and digest, and checks the digest.
fn read(row: &Row<'_>, collection: &str) -> Result<Document, DocumentError> {
    let (key, revision): (String, i64) = (row.get(0).map_err(error)?, row.get(1).map_err(error)?);
    let (text, expected): (String, String) = (row.get(2).map_err(error)?, row.get(3).map_err(error)?);
    let damaged = || DocumentError::Corrupt(format!("the document {key} of {collection} is damaged"));
    if digest(collection, &key, revision, &text) != expected {
        return Err(damaged());
    }
    let value = serde_json::from_str(&text).map_err(|_| damaged())?;
    Ok(Document { revision: revision.unsigned_abs(), value, key })
}

fn digest(collection: &str, key: &str, revision: i64, text: &str) -> String {
    sha256(format!("{collection}\n{key}\n{revision}\n{text}").as_bytes()).to_string()
}

fn error(error: rusqlite::Error) -> DocumentError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => DocumentError::Locked,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown) => {
            DocumentError::Corrupt(error.to_string())
        }
        // A column of another type than the tables require.
        None if !matches!(error, rusqlite::Error::ToSqlConversionFailure(_)) => {
            DocumentError::Corrupt(error.to_string())
        }
        _ => DocumentError::Io(error.to_string()),
    }
}
