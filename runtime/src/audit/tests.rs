//! Every change of a stored journal is found and attributed to the first record concerned.

use patchboard_protocols::PLANS;
use proptest::prelude::*;
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use patchboard_storage::sqlite::{FILE, SqliteJournal};
use patchboard_storage::testing::Writer;

/// Returns a closed journal of eight records, 0 to 7; record 3 names the first view, record 6 the second.
async fn stored() -> (TempDir, Writer) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let journal = SqliteJournal::open(dir.path()).expect("opened");
    let mut writer = Writer::new("b");
    let batches = [
        writer.created(),
        writer.signal("first"),
        writer.taken_over("owner"),
        writer.invoked("the first view"),
        writer.signal("second"),
        writer.signal("third"),
        writer.invoked("the second view"),
        writer.signal("fourth"),
    ];
    for batch in batches {
        journal.append(batch).await.expect("appended");
    }
    (dir, writer)
}

fn check(dir: &TempDir, head: Option<Digest>) -> Result<AuditReport, AuditError> {
    let journal = SqliteJournal::open_read_only(dir.path())?;
    verify(&journal, &"b".into(), head, &PLANS)
}

/// Changes stored data and removes the marks, which would reveal it.
fn change(dir: &TempDir, sql: &str) {
    // The file is missing after the first change.
    let _ = std::fs::remove_file(dir.path().join("patchboard.marks"));
    let shell = Connection::open(dir.path().join(FILE)).expect("opened");
    let changed = shell.execute(sql, ()).expect(sql);
    assert!(changed > 0, "{sql} changes nothing");
}

#[tokio::test]
async fn an_untouched_journal_verifies() {
    let (dir, writer) = stored().await;
    let head = writer.head.expect("written");
    let verified = check(&dir, Some(head.hash)).expect("sound");
    assert_eq!(
        verified,
        AuditReport {
            head,
            records: 8,
            blobs: 4,
            unchecked_blobs: 0,
            snapshots: 0,
            unchecked_snapshots: 0,
            expected_at: Some(head.seq),
            erased: ErasureCounts::default(),
        }
    );
}

#[tokio::test]
async fn a_changed_column_is_found_at_its_record() {
    let flip = |column: &str| format!("UPDATE records SET {column} = replace({column}, substr({column}, 9, 1), '~')");
    let cases = [
        (flip("header"), 0, "hash"),
        (flip("hash"), 0, "hash is malformed"),
        (flip("payload"), 4, ""),
        ("UPDATE records SET hash = replace(hash, substr(hash, 1, 1), CASE substr(hash, 1, 1) WHEN 'f' THEN '0' ELSE 'f' END)".to_owned(), 5, "hash"),
        ("UPDATE records SET payload = '{}'".to_owned(), 4, "value"),
        (r#"UPDATE records SET payload = '{"value":"other"}'"#.to_owned(), 4, "the value of value"),
        (r#"UPDATE records SET payload = '{"value":"second","more":1}'"#.to_owned(), 4, "more is not committed to"),
        ("UPDATE records SET payload = 'no JSON'".to_owned(), 4, "not readable"),
        ("UPDATE records SET kind = 'tick'".to_owned(), 5, "kind"),
        ("UPDATE records SET kind = 'unheard'".to_owned(), 5, "unknown kind"),
        ("UPDATE records SET at = at + 1".to_owned(), 5, "at"),
        ("UPDATE records SET header = CAST(x'ff' AS TEXT)".to_owned(), 5, ""),
        ("DELETE FROM records".to_owned(), 5, "missing"),
    ];
    for (sql, seq, reason) in cases {
        let (dir, _) = stored().await;
        change(&dir, &format!("{sql} WHERE seq = {seq}"));
        match check(&dir, None) {
            Err(AuditError::Record { seq: found, reason: why }) => {
                assert_eq!(found, Seq(seq), "{sql}: {why}");
                assert!(why.contains(reason), "{sql}: {why}");
            }
            other => panic!("{sql}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn of_two_bad_records_the_first_is_named() {
    let (dir, _) = stored().await;
    change(&dir, "UPDATE records SET kind = 'unheard' WHERE seq = 6");
    change(&dir, "UPDATE records SET payload = '{}' WHERE seq = 5");
    assert!(matches!(check(&dir, None), Err(AuditError::Record { seq: Seq(5), .. })));
}

#[tokio::test]
async fn a_changed_text_is_found_at_the_record_that_names_it() {
    let blob = "(SELECT json_extract(header, '$.view') FROM records WHERE seq = 6)";
    let cases = [
        format!("UPDATE blobs SET bytes = CAST(x'00' || substr(bytes, 2) AS BLOB) WHERE hash = {blob}"),
        format!("UPDATE blobs SET bytes = CAST(x'ff' || substr(bytes, 2) AS BLOB) WHERE hash = {blob}"),
        format!("UPDATE blobs SET hash = 'other' WHERE hash = {blob}"),
        format!("DELETE FROM blobs WHERE hash = {blob}"),
    ];
    for sql in cases {
        let (dir, _) = stored().await;
        change(&dir, &sql);
        match check(&dir, None) {
            Err(AuditError::Record { seq, reason }) => {
                assert!(seq == Seq(6) && reason.contains("view"), "{sql}: {reason}")
            }
            other => panic!("{sql}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_list_of_boards_that_disagrees_is_found() {
    for change_of in
        ["name = 'other'", "created_at = 1", "updated_at = 1", "epoch = 9", "version = 1", "ended = 'done'"]
    {
        let (dir, _) = stored().await;
        change(&dir, &format!("UPDATE boards SET {change_of}"));
        let column = change_of.split(' ').next().expect("a column");
        match check(&dir, None) {
            Err(AuditError::Summary(what)) => assert!(what.starts_with(column), "{change_of}: {what}"),
            other => panic!("{change_of}: {other:?}"),
        }
    }
    let (dir, _) = stored().await;
    change(&dir, "DELETE FROM boards");
    assert!(matches!(check(&dir, None), Err(AuditError::Summary(_))));
}

#[tokio::test]
async fn a_journal_cut_off_with_care_is_found_by_the_head_alone() {
    let (dir, writer) = stored().await;
    let head = writer.head.expect("written").hash;
    change(&dir, "DELETE FROM records WHERE seq = 7");
    assert!(matches!(check(&dir, None), Err(AuditError::Record { seq: Seq(7), .. })));

    change(
        &dir,
        "UPDATE boards SET (last_seq, last_hash, updated_at) = (SELECT seq, hash, at FROM records WHERE seq = 6)",
    );
    let shorter = check(&dir, None).expect("sound in itself");
    assert_eq!(shorter.head.seq, Seq(6));
    assert_eq!(check(&dir, Some(head)), Err(AuditError::Head { expected: head, head: shorter.head }));
}

#[tokio::test]
async fn a_kept_head_stays_good_while_the_board_goes_on() {
    let (dir, mut writer) = stored().await;
    let kept = writer.head.expect("written");
    let journal = SqliteJournal::open(dir.path()).expect("opened");
    journal.append(writer.signal("later")).await.expect("appended");
    let verified = verify(&journal, &"b".into(), Some(kept.hash), &PLANS).expect("sound");
    assert_eq!((verified.expected_at, Some(verified.head)), (Some(kept.seq), writer.head));
}

#[test]
fn a_board_that_does_not_exist_is_not_found() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let journal = SqliteJournal::open(dir.path()).expect("opened");
    assert!(matches!(verify(&journal, &"b".into(), None, &PLANS), Err(AuditError::Journal(JournalError::NotFound(_)))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_flipped_bit_anywhere_is_an_error_or_does_no_harm(position in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (dir, writer) = runtime.block_on(stored());
        let path = dir.path().join(FILE);
        let mut bytes = std::fs::read(&path).expect("read");
        let is_folded = !dir.path().join(format!("{FILE}-wal")).exists();
        prop_assert!(is_folded, "everything is in the file");
        let position = position.index(bytes.len());
        bytes[position] ^= 1 << bit;
        std::fs::write(&path, &bytes).expect("written");

        match check(&dir, None) {
            Ok(verified) => prop_assert_eq!(Some(verified.head), writer.head),
            Err(fault) => prop_assert!(!fault.to_string().is_empty()),
        }
        // Appending fails or succeeds; it never panics.
        if let Ok(journal) = SqliteJournal::open(dir.path()) {
            let mut writer = writer;
            drop(runtime.block_on(journal.append(writer.signal("more"))));
        }
    }
}
