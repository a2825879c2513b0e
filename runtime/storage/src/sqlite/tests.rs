//! Guarantees of an append, and checks at opening.

use crate::blocking::wait;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::testing::Writer;

fn dir() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn open(dir: &TempDir) -> SqliteJournal {
    SqliteJournal::open(dir.path()).expect("the journal opens")
}

/// Returns another program's connection to the file.
fn shell(dir: &Path) -> Connection {
    Connection::open(dir.join(FILE)).expect("the file opens")
}

#[tokio::test]
async fn appended_batches_are_readable_after_reopening() {
    let dir = dir();
    let mut writer = Writer::new("b");
    let batches = [writer.created(), writer.signal("one"), writer.invoked("view")];
    let journal = open(&dir);
    for batch in batches.clone() {
        journal.append(batch).await.expect("appended");
    }
    drop(journal);

    let journal = open(&dir);
    let records = wait(journal.records(&"b".into(), None, 10)).expect("read");
    assert_eq!(records, batches.iter().flat_map(|batch| batch.records.clone()).collect::<Vec<_>>());
    assert_eq!(wait(journal.head(&"b".into())), Ok(writer.head));
    let blob = &batches[2].blobs[0];
    assert_eq!(wait(journal.blob(blob.hash)), Ok(Some(blob.text.to_string())));
    let boards = wait(journal.boards()).expect("listed");
    assert_eq!(
        (boards.len(), boards[0].name.as_str(), boards[0].created_at),
        (1, "test", Timestamp(1_700_000_000_000))
    );
}

#[tokio::test]
async fn retries_and_signals_clear_the_listed_end_of_a_board() {
    use patchboard_kernel::record::{Body, Cause, End, Ended, Retried, Signal};
    let dir = dir();
    let journal = open(&dir);
    let mut writer = Writer::new("b");
    journal.append(writer.created()).await.expect("appended");
    let ended = || Body::Ended(Ended { end: End::Quiescent, cause: Cause::GaveUp });
    let signal = Body::Signal(Signal { name: "s".to_owned(), value: serde_json::Value::Null, token: None });
    for wakes in [Body::Retried(Retried::default()), signal] {
        for (bodies, end) in [
            (vec![ended()], Some(End::Quiescent)),
            (vec![wakes.clone()], None),
            (vec![ended(), wakes.clone(), ended()], Some(End::Quiescent)),
            (vec![wakes], None),
        ] {
            journal.append(writer.batch(bodies)).await.expect("appended");
            let summary = wait(journal.summary(&"b".into())).expect("read").expect("listed");
            assert_eq!((summary.ended, Some(summary.head)), (end, writer.head));
        }
    }
}

#[tokio::test]
async fn records_come_in_pages() {
    let dir = dir();
    let journal = open(&dir);
    let mut writer = Writer::new("b");
    journal.append(writer.created()).await.expect("appended");
    for text in ["1", "2", "3"] {
        journal.append(writer.signal(text)).await.expect("appended");
    }
    let seqs = |after, limit| -> Vec<u64> {
        wait(journal.records(&"b".into(), after, limit)).expect("read").iter().map(|record| record.seq.0).collect()
    };
    assert_eq!(seqs(None, 3), [0, 1, 2]);
    assert_eq!(seqs(Some(Seq(2)), 3), [3]);
    assert!(seqs(Some(Seq(3)), 3).is_empty());
    assert_eq!(wait(journal.records(&"none".into(), None, 3)), Ok(Vec::new()));
}

#[tokio::test]
async fn a_writer_is_fenced_after_a_takeover() {
    let dir = dir();
    let journal = open(&dir);
    let mut old = Writer::new("b");
    journal.append(old.created()).await.expect("appended");

    let other_process = open(&dir);
    let mut new = old.clone();
    other_process.append(new.taken_over("new")).await.expect("taken over");

    let fenced = journal.append(old.signal("from the old owner")).await;
    assert_eq!(fenced.expect_err("refused").code(), "journal_fenced");
    assert_eq!(wait(journal.head(&"b".into())), Ok(new.head));
    other_process.append(new.signal("from the new owner")).await.expect("the new owner goes on");
}

#[tokio::test]
async fn an_epoch_that_is_not_the_boards_is_fenced() {
    let dir = dir();
    let journal = open(&dir);
    let mut writer = Writer::new("b");
    journal.append(writer.created()).await.expect("appended");
    journal.append(writer.taken_over("a")).await.expect("taken over");
    let mut batch = writer.signal("x");
    batch.epoch = 0;
    assert_eq!(journal.append(batch).await.expect_err("refused").code(), "journal_fenced");
}

#[tokio::test]
async fn a_board_is_created_once() {
    let dir = dir();
    let journal = open(&dir);
    journal.append(Writer::new("b").created()).await.expect("appended");
    assert_eq!(journal.append(Writer::new("b").created()).await.expect_err("refused").code(), "journal_fenced");
    let mut unborn = Writer::new("c");
    drop(unborn.created());
    assert_eq!(journal.append(unborn.signal("x")).await.expect_err("refused").code(), "journal_fenced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_32_appends_with_one_expectation_exactly_one_wins() {
    let dir = dir();
    let mut writer = Writer::new("b");
    open(&dir).append(writer.created()).await.expect("appended");
    // Half of them use a second connection, as another process would.
    let journals = [open(&dir), open(&dir)];
    for round in 0..5 {
        let mut rivals = tokio::task::JoinSet::new();
        for rival in 0..32 {
            let journal = journals[rival % 2].clone();
            let mut writer = writer.clone();
            rivals.spawn(async move {
                let batch = writer.signal(&format!("{round}:{rival}"));
                (journal.append(batch).await, writer)
            });
        }
        let mut winners = Vec::new();
        while let Some(rival) = rivals.join_next().await {
            match rival.expect("no rival panics") {
                (Ok(head), rival) => winners.push((head, rival)),
                (Err(error), _) => assert_eq!(error.code(), "journal_fenced"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        writer = winners.remove(0).1;
        assert_eq!(wait(journals[0].head(&"b".into())), Ok(writer.head));
    }
}

#[tokio::test]
async fn batches_of_a_group_succeed_or_fail_independently() {
    let dir = dir();
    let journal = open(&dir);
    let mut writers: Vec<_> = (0..20).map(|board| Writer::new(&format!("b{board}"))).collect();
    let created = writers.iter_mut().map(Writer::created).collect();
    assert!(journal.append_all(created).await.iter().all(Result::is_ok));

    let before_the_odd_ones: Vec<_> = writers.iter().map(|writer| writer.head).collect();
    let mut batches: Vec<_> = writers.iter_mut().map(|writer| writer.invoked("view")).collect();
    for batch in batches.iter_mut().skip(1).step_by(2) {
        batch.expected = Some(Head { seq: Seq(0), hash: Digest([9; 32]) });
    }
    let answers = journal.append_all(batches).await;
    for (board, answer) in answers.iter().enumerate() {
        let head = wait(journal.head(&writers[board].board)).expect("read");
        if board % 2 == 0 {
            assert_eq!((answer.clone().ok(), head), (writers[board].head, writers[board].head));
        } else {
            assert!(answer.is_err());
            assert_eq!(head, before_the_odd_ones[board]);
        }
    }
}

#[tokio::test]
async fn an_impossible_batch_is_rejected() {
    let dir = dir();
    let journal = open(&dir);
    let mut writer = Writer::new("b");
    journal.append(writer.created()).await.expect("appended");
    let good = writer.signal("x");
    let mut empty = good.clone();
    empty.records.clear();
    let mut gap = good.clone();
    gap.records[0].seq = Seq(5);
    let mut unchained = good.clone();
    unchained.records[0].header.push(' ');
    for bad in [empty, gap, unchained] {
        assert_eq!(journal.append(bad).await.expect_err("refused").code(), "bad_batch");
    }
    journal.append(good).await.expect("the board is as it was");
}

#[tokio::test]
async fn reading_goes_on_while_another_process_writes() {
    let dir = dir();
    let journal = open(&dir);
    let mut writer = Writer::new("b");
    journal.append(writer.created()).await.expect("appended");
    let shell = shell(dir.path());
    shell.execute_batch("BEGIN IMMEDIATE; UPDATE boards SET name = 'unfinished'").expect("the other one writes");

    let reader = SqliteJournal::open_read_only(dir.path()).expect("opened");
    for journal in [&journal, &reader] {
        assert_eq!(wait(journal.records(&"b".into(), None, 9)).expect("read").len(), 1);
        assert_eq!(wait(journal.boards()).expect("read")[0].name, "test");
    }
}

#[tokio::test]
async fn an_append_waits_for_another_process_without_holding_up_the_thread() {
    let dir = dir();
    let journal = open(&dir);
    let mut writer = Writer::new("b");
    journal.append(writer.created()).await.expect("appended");
    let shell = shell(dir.path());
    shell.execute_batch("BEGIN IMMEDIATE").expect("the other one writes");
    // On one thread, the second future runs only if the first yields.
    let release = async { shell.execute_batch("ROLLBACK") };
    let (appended, released) = tokio::join!(biased; journal.append(writer.signal("x")), release);
    released.expect("released");
    assert_eq!(appended.ok(), writer.head);
}

#[tokio::test]
async fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let dir = dir();
    let journal = open(&dir);
    let mut writer = Writer::new("b");
    journal.append(writer.created()).await.expect("appended");
    let before = writer.clone();
    let limit = |pages: u32| {
        let connection = journal.files.writer.as_ref().expect("opened for writing").lock();
        connection.pragma_update(None, "max_page_count", pages).expect("set");
    };
    // SQLite raises the limit to the current number of pages if that is larger.
    limit(1);
    let large = "x".repeat(1 << 20);
    assert_eq!(journal.append(writer.signal(&large)).await, Err(JournalError::DiskFull));
    assert_eq!(wait(journal.head(&"b".into())), Ok(before.head));
    limit(1 << 20);
    writer = before;
    journal.append(writer.signal(&large)).await.expect("there is room again");
}

#[test]
fn opening_says_what_is_wrong_with_the_file() {
    let code = |prepare: &dyn Fn(&Path)| {
        let dir = dir();
        prepare(&dir.path().join(FILE));
        let writing = SqliteJournal::open(dir.path()).err().map(|error| error.code());
        let reading = SqliteJournal::open_read_only(dir.path()).err().map(|error| error.code());
        assert_eq!(writing, reading);
        writing
    };
    let with_sql = |path: &Path, sql: &str| Connection::open(path).and_then(|c| c.execute_batch(sql)).expect("made");
    let ours = |path: &Path, sql: &str| {
        drop(SqliteJournal::open(path.parent().expect("in a directory")).expect("made"));
        with_sql(path, sql);
    };
    assert_eq!(code(&|path| std::fs::write(path, "no database ".repeat(999)).expect("written")), Some("not_a_journal"));
    assert_eq!(code(&|path| with_sql(path, "CREATE TABLE theirs (x)")), Some("not_a_journal"));
    assert_eq!(code(&|path| ours(path, "PRAGMA user_version = 4")), Some("journal_newer"));
    assert_eq!(code(&|path| ours(path, "PRAGMA user_version = 0")), Some("journal_corrupt"));
    assert_eq!(code(&|path| ours(path, "")), None);
}

#[tokio::test]
async fn a_file_of_format_1_is_read_and_brought_up_to_date_by_a_writer() {
    let dir = dir();
    let mut writer = Writer::new("b");
    open(&dir).append(writer.created()).await.expect("appended");
    let sql = "DROP TABLE snapshots; DROP TABLE parts; DROP TABLE erased; DROP TABLE unscrubbed; \
               DROP TABLE tombstones; PRAGMA user_version = 1";
    shell(dir.path()).execute_batch(sql).expect("made as format 1 was");
    let reader = SqliteJournal::open_read_only(dir.path()).expect("opened");
    assert_eq!(wait(reader.head(&"b".into())), Ok(writer.head));
    assert_eq!(wait(reader.snapshots(&"b".into())), Ok(Vec::new()));
    assert_eq!(wait(reader.part(&"b".into(), Digest([1; 32]))), Ok(None));
    assert_eq!((wait(reader.erased_text(Digest([1; 32]))), wait(reader.tombstones())), (Ok(None), Ok(Vec::new())));
    drop(reader);
    let journal = open(&dir);
    assert_eq!(wait(journal.head(&"b".into())), Ok(writer.head));
    journal.append(writer.signal("still there")).await.expect("appended");
    let text: std::sync::Arc<str> = "[]".into();
    let part = SnapshotPart { hash: patchboard_kernel::digest::sha256(text.as_bytes()), text, names: Vec::new() };
    assert_eq!(wait(journal.store_parts(&"b".into(), 0, vec![part.clone()])), Ok(NewParts { count: 1, bytes: 2 }));
    assert_eq!(wait(journal.store_parts(&"b".into(), 0, vec![part.clone()])), Ok(NewParts::default()), "it is there");
    assert_eq!(wait(journal.part(&"b".into(), part.hash)), Ok(Some("[]".to_owned())));
    let version: i64 = shell(dir.path()).query_row("PRAGMA user_version", (), |row| row.get(0)).expect("read");
    assert_eq!(version, 3);
}

#[tokio::test]
async fn a_journal_opened_for_reading_is_not_written_to() {
    let dir = dir();
    let missing = SqliteJournal::open_read_only(dir.path()).err();
    assert_eq!(missing.map(|error| error.code()), Some("not_found"));
    assert!(!dir.path().join(FILE).exists());

    drop(open(&dir));
    let journal = SqliteJournal::open_read_only(dir.path()).expect("opened");
    assert_eq!(journal.append(Writer::new("b").created()).await, Err(JournalError::ReadOnly));
    assert_eq!(wait(journal.claim(&"b".into(), true)).err(), Some(JournalError::ReadOnly));
}

#[test]
fn a_board_is_claimed_by_one_at_a_time() {
    let dir = dir();
    let (mine, theirs) = (open(&dir), open(&dir));
    let board = BoardId::from("b");
    let claim = wait(mine.claim(&board, false)).expect("free");
    assert_eq!(wait(theirs.claim(&board, false)).err(), Some(JournalError::Owned { board: board.clone() }));
    assert!(wait(theirs.claim(&board, true)).is_ok());
    assert!(wait(theirs.claim(&"other".into(), false)).is_ok());
    drop(claim);
    assert!(wait(theirs.claim(&board, false)).is_ok());
}

#[test]
fn a_boards_name_leads_to_no_other_directory() {
    let dir = dir();
    let journal = open(&dir);
    for name in ["../x", "/tmp/x", "a/b", "", ".", &"x".repeat(200)] {
        assert_eq!(
            wait(journal.claim(&name.into(), false)).err().map(|error| error.code()),
            Some("not_found"),
            "{name}"
        );
    }
}

#[tokio::test]
async fn journals_are_shared_between_threads() {
    let dir = dir();
    let journal: Arc<dyn Journal> = Arc::new(open(&dir));
    let mut writer = Writer::new("b");
    journal.append(writer.created()).await.expect("appended");
    let read = tokio::task::spawn_blocking({
        let journal = Arc::clone(&journal);
        move || wait(journal.head(&"b".into()))
    });
    assert_eq!(read.await.expect("no panic"), Ok(writer.head));
}

#[test]
fn every_commit_is_synced_to_the_disk() {
    let dir = dir();
    let journal = open(&dir);
    let writer = journal.files.writer.as_ref().expect("opened for writing").lock();
    let pragma = |name| -> String {
        let text = |value: rusqlite::types::Value| match value {
            rusqlite::types::Value::Text(text) => text,
            other => format!("{other:?}"),
        };
        writer.pragma_query_value(None, name, |row| row.get(0).map(text)).expect("asked")
    };
    assert_eq!(pragma("synchronous"), "Integer(2)", "FULL");
    assert_eq!(pragma("journal_mode"), "wal");
}

#[cfg(unix)]
#[tokio::test]
async fn a_journal_is_readable_where_nothing_can_be_written() {
    let dir = dir();
    let mut writer = Writer::new("b");
    open(&dir).append(writer.created()).await.expect("appended");
    // SQLite follows no links, so it cannot create the shared-memory file, as on a read-only medium.
    std::os::unix::fs::symlink("elsewhere", dir.path().join(format!("{FILE}-shm"))).expect("in the way");
    let journal = SqliteJournal::open_read_only(dir.path()).expect("opened");
    assert_eq!(wait(journal.head(&"b".into())), Ok(writer.head));
}

#[cfg(unix)]
#[test]
fn only_its_owner_may_look_into_the_data_directory() {
    use std::os::unix::fs::PermissionsExt;
    let dir = dir();
    let data = dir.path().join("data");
    drop(SqliteJournal::open(&data).expect("opened"));
    assert_eq!(std::fs::metadata(data).expect("there").permissions().mode() & 0o777, 0o700);
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_unlinked_or_replaced_is_noticed_before_anything_is_acknowledged() {
    let copied = |from: &Path, to: &Path| std::fs::copy(from, to).map(drop);
    let replaced = |path: &Path| {
        let other = path.with_extension("other");
        copied(path, &other).and_then(|()| std::fs::rename(&other, path))
    };
    let files = [FILE, "patchboard.db-wal"];
    for (file, is_replaced) in files.into_iter().flat_map(|file| [(file, false), (file, true)]) {
        let dir = dir();
        let journal = open(&dir);
        let mut writer = Writer::new("b");
        journal.append(writer.created()).await.expect("appended");
        journal.append(writer.signal("one")).await.expect("appended");
        let path = dir.path().join(file);
        let lost = if is_replaced { replaced(&path) } else { std::fs::remove_file(&path) };
        lost.expect("it is gone, or another file");
        let error = journal.append(writer.signal("two")).await.expect_err("it is not acknowledged");
        assert!(matches!(&error, JournalError::Replaced(path) if path.ends_with(file)), "{file}: {error}");
        assert_eq!(error.code(), "journal_replaced");
        let again = journal.append(writer.signal("three")).await;
        assert!(again.is_err(), "nor later");
    }
}

/// Removes all records after `after`, as a lost log would.
fn lose(dir: &Path, board: &str, after: u64) {
    let sql = format!(
        "DELETE FROM records WHERE board = '{board}' AND seq > {after}; \
         UPDATE boards SET (last_seq, last_hash, updated_at) = \
         (SELECT seq, hash, at FROM records WHERE board = '{board}' AND seq = {after}) WHERE board = '{board}'"
    );
    shell(dir).execute_batch(&sql).expect("it can be changed");
}

#[tokio::test]
async fn missing_acknowledged_records_are_reported_lost_until_accepted() {
    let dir = dir();
    let (mut lossy, mut other) = (Writer::new("b1"), Writer::new("b2"));
    let journal = open(&dir);
    for writer in [&mut lossy, &mut other] {
        journal.append(writer.created()).await.expect("appended");
    }
    let together = vec![lossy.signal("1"), other.signal("1")];
    assert!(journal.append_all(together).await.iter().all(Result::is_ok));
    let kept = lossy.clone();
    journal.append(lossy.signal("2")).await.expect("appended");
    drop(journal);
    lose(dir.path(), "b1", 1);

    let lost = RecordLoss { board: "b1".into(), known: Seq(2), found: Some(Seq(1)) };
    let reader = SqliteJournal::open_read_only(dir.path()).expect("opened");
    let journal = open(&dir);
    for journal in [&reader, &journal] {
        assert_eq!(wait(journal.record_losses()), Ok(vec![lost.clone()]));
        assert_eq!(wait(journal.records(&"b1".into(), None, 1)), Err(JournalError::RecordsLost(lost.clone())));
        assert_eq!(wait(journal.records(&"b2".into(), None, 9)).map(|records| records.len()), Ok(2));
    }
    assert_eq!(wait(reader.accept_loss(&"b1".into())), Err(JournalError::ReadOnly));
    wait(journal.accept_loss(&"b1".into())).expect("accepted");
    // Also for journals that are already open.
    for journal in [&reader, &journal] {
        assert_eq!(wait(journal.record_losses()), Ok(Vec::new()));
        assert_eq!(wait(journal.records(&"b1".into(), None, 9)).map(|records| records.len()), Ok(2));
    }
    lossy = kept;
    journal.append(lossy.signal("other")).await.expect("it goes on");
    drop((journal, reader));
    assert_eq!(wait(open(&dir).record_losses()), Ok(Vec::new()));
    assert_eq!(wait(open(&dir).records(&"b1".into(), None, 9)).map(|records| records.len()), Ok(3));
}

#[tokio::test]
async fn other_records_in_the_place_of_lost_ones_and_a_board_that_is_gone_are_noticed() {
    let dir = dir();
    let mut writer = Writer::new("b");
    let journal = open(&dir);
    journal.append(writer.created()).await.expect("appended");
    let mut before = writer.clone();
    journal.append(writer.signal("acknowledged")).await.expect("appended");
    let marks = dir.path().join("patchboard.marks");
    let noted = std::fs::read(&marks).expect("there are marks");
    drop(journal);
    lose(dir.path(), "b", 0);
    // A version without marks continued the board.
    std::fs::remove_file(&marks).expect("removed");
    let journal = open(&dir);
    for text in ["another", "and more"] {
        journal.append(before.signal(text)).await.expect("appended");
    }
    drop(journal);
    std::fs::write(&marks, &noted).expect("written");
    let found = |found| Ok(vec![RecordLoss { board: "b".into(), known: Seq(1), found }]);
    assert_eq!(wait(open(&dir).record_losses()), found(Some(Seq(2))));
    shell(dir.path()).execute_batch("DELETE FROM records; DELETE FROM boards").expect("deleted");
    assert_eq!(wait(open(&dir).record_losses()), found(None));
}

#[tokio::test]
async fn a_board_that_was_taken_out_is_not_lost() {
    let dir = dir();
    let mut writer = Writer::new("b");
    let journal = open(&dir);
    journal.append(writer.created()).await.expect("appended");
    let noted = std::fs::read(dir.path().join("patchboard.marks")).expect("there are marks");
    // This reader has read the marks before.
    let reader = SqliteJournal::open_read_only(dir.path()).expect("opened");
    wait(journal.remove(&"b".into(), writer.head.expect("a head"), None, Timestamp(1))).expect("removed");
    assert_eq!(wait(reader.records(&"b".into(), None, 9)), Ok(Vec::new()));
    let text = std::fs::read_to_string(dir.path().join("patchboard.marks")).expect("there are marks");
    assert!(!text.contains("b 0 "), "{text}");
    // Also holds if the process died before the mark was removed.
    std::fs::write(dir.path().join("patchboard.marks"), noted).expect("written");
    assert_eq!(wait(open(&dir).record_losses()), Ok(Vec::new()));
    assert_eq!(wait(open(&dir).records(&"b".into(), None, 9)), Ok(Vec::new()));
    let log = std::fs::metadata(dir.path().join(format!("{FILE}-wal"))).map_or(0, |log| log.len());
    assert_eq!(log, 0, "what the log alone has can be lost");
}

#[tokio::test]
async fn an_erasure_leaves_a_mark_as_every_commit_does() {
    let dir = dir();
    let mut writer = Writer::new("b");
    let journal = open(&dir);
    journal.append(writer.created()).await.expect("appended");
    let batch = writer.signal("in the place of a redaction");
    let head = wait(journal.erase(Erasure { batch, payloads: Vec::new(), texts: Vec::new() })).expect("erased");
    assert_eq!(Marks::new(dir.path()).read(), Ok(Heads::from([("b".into(), head)])));
}
