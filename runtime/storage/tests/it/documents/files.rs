//! Drivers with files: ends of processes, lost logs, flipped bits, erased bytes, files of others.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use patchboard_storage::blocking::wait;
use patchboard_storage::documents::{Change, Document, DocumentError, Documents as _, all};
use patchboard_storage::sqlite::SqliteDocuments;
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Store, open};

/// Names the file for the process that is killed.
const PLACE: &str = "PATCHBOARD_DOCUMENTS_OF_A_WRITER";

/// Writes one batch: a document of two collections, and a removal.
fn write(store: &SqliteDocuments, number: u64) {
    let changes = vec![
        Change::put("a", format!("{number:05}"), json!(number)),
        Change::put("b", format!("{number:05}"), json!("b".repeat(2000))),
        Change::remove("a", format!("{:05}", number.wrapping_sub(20))),
        Change::remove("b", format!("{:05}", number.wrapping_sub(20))),
    ];
    wait(store.change(changes)).expect("applied");
}

/// Returns the numbers that are stored, which are the same in both collections.
fn numbers(store: &Store) -> Result<Vec<String>, DocumentError> {
    let keys = |documents: Vec<Document>| documents.into_iter().map(|document| document.key).collect::<Vec<_>>();
    let (a, b) = (keys(wait(all(&**store, "a"))?), keys(wait(all(&**store, "b"))?));
    assert_eq!(a, b, "a batch is whole");
    Ok(a)
}

#[test]
#[ignore = "another test runs it in a process of its own, and kills it"]
fn writes_until_it_is_killed() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    let store = SqliteDocuments::open(Path::new(&place)).expect("it opens");
    for number in 0.. {
        write(&store, number);
        println!("acknowledged {number}");
    }
}

#[test]
fn acknowledged_changes_outlive_the_process() {
    let dir = TempDir::new().expect("a directory");
    for round in 0..3 {
        let path = dir.path().join(format!("{round}.db"));
        let mut writer = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "documents::files::writes_until_it_is_killed", "--ignored", "--nocapture"])
            .env(PLACE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let lines = BufReader::new(writer.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let acknowledged = lines.filter_map(|line| line.strip_prefix("acknowledged ")?.parse::<u64>().ok());
        let last = acknowledged.take(10 + 7 * round).last().expect("it writes");
        writer.kill().expect("it is killed");
        writer.wait().expect("it ends");
        let stored = numbers(&open(&path)).expect("read");
        assert!(stored.iter().any(|number| number.parse() == Ok(last)), "{last} is not in {stored:?}");
    }
}

#[test]
fn a_removal_does_not_depend_on_the_log() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("documents.db");
    let store = open(&path);
    for key in ["one", "two"] {
        wait(store.change(vec![Change::put("c", key, json!(key))])).expect("applied");
    }
    wait(store.change(vec![Change::remove("c", "one")])).expect("applied");
    let log = fs::metadata(dir.path().join("documents.db-wal")).expect("a log");
    assert_eq!(log.len(), 0);
    // The log is lost as a whole, while the process that wrote it still runs.
    let alone = dir.path().join("alone.db");
    fs::copy(&path, &alone).expect("copied");
    let left = open(&alone);
    assert_eq!(wait(left.get("c", "one")), Ok(None));
    assert!(wait(left.get("c", "two")).is_ok_and(|two| two.is_some()));
}

#[test]
fn a_copy_without_the_log_has_whole_batches_or_is_an_error() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("documents.db");
    let (store, is_over) = (SqliteDocuments::open(&path).expect("it opens"), AtomicBool::new(false));
    write(&store, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut numbers = 1..;
            while !is_over.load(Ordering::Relaxed) {
                write(&store, numbers.next().expect("there are more"));
            }
        });
        for round in 0..20 {
            let torn = dir.path().join(format!("{round}.db"));
            fs::copy(&path, &torn).expect("copied");
            if let Ok(torn) = SqliteDocuments::open(&torn) {
                drop(numbers(&(std::sync::Arc::new(torn) as Store)));
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_flipped_bit_changes_no_content_unnoticed() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("documents.db");
    let store = SqliteDocuments::open(&path).expect("it opens");
    (0..4).for_each(|number| write(&store, number));
    drop(store);
    let whole = fs::read(&path).expect("read");
    let (mut noticed, mut missing) = (0, 0);
    for flip in 0..400 {
        let mut flipped = whole.clone();
        let (place, bit) = (flip * 7919 % whole.len(), flip % 8);
        flipped[place] ^= 1 << bit;
        let path = dir.path().join("flipped.db");
        fs::write(&path, flipped).expect("written");
        let Ok(store) = SqliteDocuments::open(&path) else {
            noticed += 1;
            continue;
        };
        for number in 0..4u64 {
            match wait(store.get("a", &format!("{number:05}"))) {
                Ok(Some(found)) => assert_eq!(found.value, json!(number), "bit {bit} of byte {place}"),
                Ok(None) => missing += 1,
                Err(_) => noticed += 1,
            }
        }
    }
    assert!(noticed > 0 && missing < 40, "{noticed} {missing}");
}

#[test]
fn changes_that_read_back_differently_are_rolled_back() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("documents.db");
    let store = open(&path);
    wait(store.change(vec![Change::put("c", "other", json!(1))])).expect("applied");
    let meddle = "CREATE TRIGGER meddle AFTER INSERT ON documents WHEN NEW.key = 'tea' \
                  BEGIN UPDATE documents SET value = '\"coffee\"' WHERE key = NEW.key; END";
    Connection::open(&path).expect("opened").execute_batch(meddle).expect("a trigger");
    let error = wait(store.change(vec![Change::put("c", "other", json!(2)), Change::put("c", "tea", json!("tea"))]));
    assert_eq!(error.expect_err("it is undone").code(), "document_unverified");
    assert_eq!(wait(store.get("c", "tea")), Ok(None));
    assert_eq!(wait(store.get("c", "other")).expect("read").map(|other| other.value), Some(json!(1)));
}

/// Returns the files of a directory that contain a text.
fn holding(dir: &Path, text: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(dir).expect("a directory").map(|file| file.expect("a file").path());
    let holds = |path: &PathBuf| {
        let bytes = fs::read(path).expect("bytes");
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    files.filter(holds).collect()
}

#[test]
fn erased_bytes_are_in_no_file() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("documents.db");
    let store = open(&path);
    for number in 0..200 {
        let value = json!(format!("Zaphod {}", "x".repeat(number)));
        wait(store.change(vec![Change::put("c", number.to_string(), value)])).expect("applied");
    }
    assert_eq!(holding(dir.path(), "Zaphod").len(), 1);
    let erased = |number: u32| match number % 2 {
        0 => Change::remove("c", number.to_string()),
        _ => Change::put("c", number.to_string(), Value::Null),
    };
    wait(store.change((0..200).map(erased).collect())).expect("applied");
    wait(store.purge_erased_bytes()).expect("purged");
    assert_eq!(holding(dir.path(), "Zaphod"), Vec::<PathBuf>::new());
    assert_eq!(wait(all(&*store, "c")).expect("read").len(), 100);
}

#[test]
fn a_foreign_file_is_rejected_and_left_unchanged() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("documents.db");
    for (tables, code) in [
        ("PRAGMA application_id = 7; CREATE TABLE t (x)", "not_documents"),
        ("CREATE TABLE t (x)", "not_documents"),
        ("PRAGMA user_version = 99; CREATE TABLE t (x)", "documents_newer"),
        ("PRAGMA application_id = 1346520144; PRAGMA user_version = 3; CREATE TABLE t (x)", "documents_newer"),
    ] {
        let _ = fs::remove_file(&path);
        Connection::open(&path).expect("a file").execute_batch(tables).expect("tables");
        let before = fs::read(&path).expect("bytes");
        let errors = [SqliteDocuments::open(&path).err(), SqliteDocuments::open_read_only(&path).err()];
        assert_eq!(errors.map(|error| error.map(|error| error.code())), [Some(code); 2], "{tables}");
        assert_eq!(fs::read(&path).expect("bytes"), before);
    }
    fs::write(&path, "no database at all, but long enough to be looked at as one".repeat(20)).expect("written");
    assert_eq!(SqliteDocuments::open(&path).err().map(|error| error.code()), Some("documents_corrupt"));
}

#[test]
fn many_open_a_new_file_at_once() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("documents.db");
    std::thread::scope(|scope| {
        for number in 0..8u64 {
            let path = &path;
            scope.spawn(move || write(&SqliteDocuments::open(path).expect("it opens"), number));
        }
    });
    assert_eq!(numbers(&open(&path)).expect("read").len(), 8);
}

#[test]
fn a_store_opened_for_reading_is_not_written_to() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("documents.db");
    assert!(SqliteDocuments::open_read_only(&path).is_err() && !path.exists());
    write(&SqliteDocuments::open(&path).expect("it opens"), 1);
    let store = SqliteDocuments::open_read_only(&path).expect("it opens");
    assert_eq!(numbers(&store).expect("read"), ["00001"]);
    assert_eq!(wait(store.change(vec![Change::remove("a", "00001")])).expect_err("refused").code(), "documents_io");
}
