//! Erasure of payloads and texts, and what stays.

use std::path::Path;

use patchboard_kernel::digest::sha256;
use patchboard_kernel::driver::Head;
use patchboard_kernel::id::{BoardId, Seq, Timestamp};
use patchboard_kernel::record::Record;
use patchboard_storage::journal::{Erasure, NewPayload};
use patchboard_storage::testing::Writer;

use crate::drivers::{Driver, for_every_driver};
use crate::journal::chain;

for_every_driver!(
    an_erasure_replaces_payloads_and_texts_and_nothing_else,
    an_erasure_of_another_record_changes_nothing,
    erased_bytes_are_in_no_file,
    texts_without_a_record_are_removed,
);

fn head_of(record: &Record) -> Head {
    Head { seq: record.seq, hash: record.hash }
}

async fn an_erasure_replaces_payloads_and_texts_and_nothing_else(driver: &impl Driver) {
    let journal = driver.open();
    let board = BoardId::from("b");
    let mut writer = Writer::new("b");
    journal.append(writer.created()).await.expect("appended");
    journal.append(writer.signal("secret")).await.expect("appended");
    journal.append(writer.invoked("a view")).await.expect("appended");
    let before = chain(&*journal, "b").await;
    let view = sha256(b"a view");
    assert_eq!(journal.blob(view).await, Ok(Some("a view".to_owned())));
    let payload = r#"{"value":"gone"}"#.to_owned();
    let batch = writer.signal("stands for the redacted record");
    let last = batch.records[0].seq;
    let erasure = Erasure {
        batch,
        payloads: vec![NewPayload { of: head_of(&before[1]), payload: payload.clone() }],
        texts: vec![view],
    };
    let head = journal.erase(erasure).await.expect("erased");
    assert_eq!(Some(head), writer.head);
    for handle in [&journal, &driver.open()] {
        let after = chain(&**handle, "b").await;
        assert_eq!(after.len(), before.len() + 1);
        for (old, new) in before.iter().zip(&after) {
            let expected = if old.seq == Seq(1) { &payload } else { &old.payload };
            assert_eq!((&new.header, new.hash, &new.payload), (&old.header, old.hash, expected));
        }
        assert_eq!(handle.blob(view).await, Ok(None));
        assert_eq!(handle.erased_text(view).await, Ok(Some((board.clone(), last))));
        assert_eq!(handle.erased_text(sha256(b"another")).await, Ok(None));
    }
    journal.append(writer.signal("and on")).await.expect("appended");
}

async fn an_erasure_of_another_record_changes_nothing(driver: &impl Driver) {
    let journal = driver.open();
    let mut writer = Writer::new("b");
    journal.append(writer.created()).await.expect("appended");
    journal.append(writer.signal("kept")).await.expect("appended");
    let before = chain(&*journal, "b").await;
    let mut other = head_of(&before[1]);
    other.hash = before[0].hash;
    let missing = Head { seq: Seq(9), hash: before[1].hash };
    for of in [other, missing] {
        let (mut ahead, payload) = (writer.clone(), "{}".to_owned());
        let payloads =
            vec![NewPayload { of: head_of(&before[1]), payload: payload.clone() }, NewPayload { of, payload }];
        let erasure = Erasure { batch: ahead.signal("x"), payloads, texts: vec![sha256(b"t")] };
        assert_eq!(journal.erase(erasure).await.expect_err("no such record").code(), "bad_batch");
        assert_eq!(chain(&*journal, "b").await, before);
        assert_eq!(journal.erased_text(sha256(b"t")).await, Ok(None));
    }
    // A writer that has lost its board erases nothing, either.
    let mut zombie = writer.clone();
    journal.append(writer.signal("on")).await.expect("appended");
    let payloads = vec![NewPayload { of: head_of(&before[1]), payload: "{}".to_owned() }];
    let erasure = Erasure { batch: zombie.signal("late"), payloads, texts: Vec::new() };
    assert_eq!(journal.erase(erasure).await.expect_err("fenced").code(), "journal_fenced");
    assert_eq!(chain(&*journal, "b").await[..2], before);
}

/// Returns true if a file below a directory contains the bytes.
fn contains(directory: &Path, wanted: &[u8]) -> bool {
    std::fs::read_dir(directory).expect("a directory").any(|entry| {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => contains(&path, wanted),
            false => std::fs::read(&path).expect("read").windows(wanted.len()).any(|window| window == wanted),
        }
    })
}

async fn erased_bytes_are_in_no_file(driver: &impl Driver) {
    let Some(directory) = driver.directory() else { return };
    let journal = driver.open();
    let mut writer = Writer::new("b");
    journal.append(writer.created()).await.expect("appended");
    journal.append(writer.signal("Xyzzy-in-a-record")).await.expect("appended");
    journal.append(writer.invoked("Xyzzy in a view")).await.expect("appended");
    let records = chain(&*journal, "b").await;
    let head = |index: usize| head_of(&records[index]);
    assert!(contains(directory, b"Xyzzy"));
    let texts = vec![sha256(b"Xyzzy in a view"), sha256(br#"{"system":"","user":"Xyzzy in a view"}"#)];
    let payloads = (1..3).map(|index| NewPayload { of: head(index), payload: "{}".to_owned() }).collect();
    let batch = writer.signal("redacted");
    journal.erase(Erasure { batch, payloads, texts }).await.expect("erased");
    journal.purge_erased_bytes().await.expect("purged");
    assert!(!contains(directory, b"Xyzzy"));
    assert_eq!(chain(&*driver.open(), "b").await.len(), 4);
}

async fn texts_without_a_record_are_removed(driver: &impl Driver) {
    let journal = driver.open();
    let [mut kept, mut gone] = ["kept", "gone"].map(Writer::new);
    for created in [kept.created(), gone.created()] {
        journal.append(created).await.expect("appended");
    }
    let views = [kept.invoked("a view of one"), gone.invoked("a view of another"), gone.invoked("shared")];
    for batch in views {
        journal.append(batch).await.expect("appended");
    }
    journal.append(kept.invoked("shared")).await.expect("appended");
    journal.remove(&"gone".into(), gone.head.expect("a head"), None, Timestamp(1)).await.expect("removed");
    // The view and its prompt.
    assert_eq!(journal.vacuum().await.expect("vacuumed").texts, 2);
    assert_eq!(journal.blob(sha256(b"a view of another")).await, Ok(None));
    for view in ["a view of one", "shared"] {
        assert_eq!(journal.blob(sha256(view.as_bytes())).await, Ok(Some(view.to_owned())));
    }
}
