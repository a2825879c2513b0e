//! Stores records without a board: in a plain file, and in plain SQLite with the journal's tables and settings.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use patchboard_kernel::id::BoardId;
use patchboard_kernel::record::Record;
use rusqlite::{Connection, TransactionBehavior};

/// Tables of the journal.
const TABLES: &str = "
CREATE TABLE boards (
    board TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
    epoch INTEGER NOT NULL, last_seq INTEGER NOT NULL, last_hash TEXT NOT NULL, version INTEGER NOT NULL, ended TEXT
) STRICT;
CREATE TABLE records (
    board TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, at INTEGER NOT NULL,
    header TEXT NOT NULL, payload TEXT NOT NULL, hash TEXT NOT NULL,
    PRIMARY KEY (board, seq)
) STRICT;
";

/// Returns a record's size in bytes: header, payload and hash.
pub(super) fn length(record: &Record) -> usize {
    record.header.len() + record.payload.len() + record.hash.to_string().len()
}

/// File that is synced after each append.
pub(super) struct RawFile(File);

impl RawFile {
    pub(super) fn create(path: &Path) -> Self {
        super::remove(path);
        Self(File::create(path).expect("the file can be made"))
    }

    /// Appends the bytes of records and syncs once.
    pub(super) fn append<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>) {
        let mut bytes = Vec::new();
        for record in records {
            bytes.extend_from_slice(record.header.as_bytes());
            bytes.extend_from_slice(record.payload.as_bytes());
            bytes.extend_from_slice(record.hash.to_string().as_bytes());
        }
        self.0.write_all(&bytes).expect("there is room");
        self.0.sync_data().expect("the disk works");
    }
}

/// SQLite file with the journal's settings: write-ahead log, every transaction synced.
pub(super) struct RawSqlite {
    connection: Connection,
    /// Part of each record's number, so that one record can be stored repeatedly.
    round: u64,
}

impl RawSqlite {
    pub(super) fn create(path: &Path) -> Self {
        super::remove(path);
        let connection = Connection::open(path).expect("the file can be made");
        let set = connection.query_row("PRAGMA journal_mode = WAL", (), |row| row.get::<_, String>(0));
        assert_eq!(set.as_deref(), Ok("wal"));
        connection
            .execute_batch(
                "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA wal_autocheckpoint = 4000; \
                 PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;",
            )
            .and_then(|()| connection.execute_batch(TABLES))
            .expect("the tables can be made");
        Self { connection, round: 0 }
    }

    /// Stores records in one transaction; `with_board` also writes each record's board row, as the journal does.
    pub(super) fn insert<'a>(
        &mut self,
        records: impl IntoIterator<Item = (&'a BoardId, &'a Record)>,
        with_board: bool,
    ) {
        self.round += 1;
        // Each repetition of a record gets a new number, in the order in which the journal would store it.
        let place = |record: &Record| (self.round << 24) as i64 + record.seq.0 as i64;
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).expect("nobody else writes");
        for (board, record) in records {
            transaction
                .prepare_cached(
                    "INSERT INTO records (board, seq, kind, at, header, payload, hash) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )
                .and_then(|mut statement| {
                    statement.execute((
                        board.as_str(),
                        place(record),
                        record.kind.as_str(),
                        record.at.0,
                        &record.header,
                        &record.payload,
                        record.hash.to_string(),
                    ))
                })
                .expect("the row is new");
            if with_board {
                transaction
                    .prepare_cached(
                        "INSERT OR REPLACE INTO boards \
                         (board, name, created_at, updated_at, epoch, last_seq, last_hash, version, ended) \
                         VALUES (?1, 'measured', 0, ?2, 0, ?3, ?4, ?3, NULL)",
                    )
                    .and_then(|mut statement| {
                        statement.execute((board.as_str(), record.at.0, place(record), record.hash.to_string()))
                    })
                    .expect("it can be stored");
            }
        }
        transaction.commit().expect("the disk works");
    }
}
