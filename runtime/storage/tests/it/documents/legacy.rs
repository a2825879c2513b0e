//! Files that versions before documents wrote, as SQL dumps: `daemon.db` and `departments.sqlite`.

use std::fs;
use std::path::{Path, PathBuf};

use patchboard_storage::blocking::wait;
use patchboard_storage::documents::{Change, Documents, all};
use patchboard_storage::sqlite::SqliteDocuments;
use rusqlite::Connection;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

const DEPARTMENTS: [&str; 6] =
    ["departments", "outcomes", "rows/notes", "history/notes", "rows/places", "history/places"];
const TOKENS: [&str; 6] = ["header", "tokens", "hashes", "keys", "plain_keys", "audit"];

/// Writes a file as an earlier version left it.
fn old(dir: &Path, dump: &str) -> PathBuf {
    let path = dir.join("old.db");
    Connection::open(&path).expect("a file").execute_batch(dump).expect("tables");
    path
}

/// Returns the documents of these collections, by collection and key.
fn content(store: &dyn Documents, collections: &[&str]) -> Value {
    let read = |collection: &str| -> Map<String, Value> {
        let documents = wait(all(store, collection)).expect("read").into_iter();
        documents.map(|document| (document.key, document.value)).collect()
    };
    collections.iter().map(|collection| ((*collection).to_owned(), json!(read(collection)))).collect()
}

#[test]
fn files_of_the_format_before_are_migrated_and_read() {
    for (dump, collections, expected) in [
        (
            include_str!("../../data/departments.sql"),
            DEPARTMENTS,
            include_str!("../../data/departments.documents.json"),
        ),
        (include_str!("../../data/tokens.sql"), TOKENS, include_str!("../../data/tokens.documents.json")),
    ] {
        let expected: Value = serde_json::from_str(expected).expect("JSON");
        let dir = TempDir::new().expect("a directory");
        let path = old(dir.path(), dump);
        let before = fs::read(&path).expect("bytes");
        let read = SqliteDocuments::open_read_only(&path).expect("it opens");
        let found = content(&*read, &collections);
        assert_eq!(found, expected, "{found:#}");
        assert_eq!(fs::read(&path).expect("bytes"), before, "only read");
        for _ in 0..2 {
            let store = SqliteDocuments::open(&path).expect("it opens");
            assert_eq!(content(&store, &collections), expected);
        }
        let tables = "SELECT group_concat(name) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
        let tables = Connection::open(&path).expect("it opens").query_row(tables, (), |row| row.get::<_, String>(0));
        assert_eq!(tables, Ok("store,documents".to_owned()));
        let store = SqliteDocuments::open(&path).expect("it opens");
        wait(store.change(vec![Change::put("more", "key", json!(1)).expecting(None)])).expect("applied");
    }
}

#[test]
fn two_processes_migrate_a_file_once() {
    let dir = TempDir::new().expect("a directory");
    let path = old(dir.path(), include_str!("../../data/departments.sql"));
    std::thread::scope(|scope| {
        for number in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let store = SqliteDocuments::open(path).expect("it opens");
                assert_eq!(
                    wait(store.get("rows/places", "0000000000000000001")).expect("read").map(|row| row.revision),
                    Some(1)
                );
                wait(store.change(vec![Change::put("more", number.to_string(), json!(1))])).expect("applied");
            });
        }
    });
    assert_eq!(wait(all(&SqliteDocuments::open(&path).expect("it opens"), "more")).expect("read").len(), 4);
}

#[test]
fn the_first_tokens_had_fewer_columns() {
    let dir = TempDir::new().expect("a directory");
    let path = old(
        dir.path(),
        "CREATE TABLE tokens (id INTEGER PRIMARY KEY AUTOINCREMENT, hash BLOB NOT NULL UNIQUE, name TEXT NOT NULL,
           scope TEXT NOT NULL, created_at INTEGER NOT NULL, revoked_at INTEGER) STRICT;
         INSERT INTO tokens VALUES (7, x'00ff', 'old', 'admin', 5, NULL);",
    );
    let store = SqliteDocuments::open(&path).expect("it opens");
    let token = json!({"id": 7, "name": "old", "scope": "admin", "created_at": 5, "revoked_at": null,
        "expires_at": null, "made_by": null});
    let expected = json!({
        "header": {"numbers": {"tokens": 1, "last_token": 7, "last_entry": 0}},
        "tokens": {"0000000000000000007": {"hash": "00ff", "key": null, "token": token}},
        "hashes": {"00ff": 7}, "keys": {}, "plain_keys": {}, "audit": {},
    });
    assert_eq!(content(&store, &TOKENS), expected);
}
