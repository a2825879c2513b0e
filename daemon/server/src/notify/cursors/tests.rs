//! Storing cursors, and reading those of earlier versions.

use patchboard_kernel::id::Seq;

use super::*;

#[test]
fn a_cursor_comes_back_and_a_damaged_one_counts_as_none() {
    let directory = tempfile::tempdir().expect("a directory");
    let cursors = Cursors::new(directory.path(), "webhook");
    fs::create_dir_all(&cursors.directory).expect("a directory");
    let ids = ["0199c0de-7ad4-7000-8000-1ce8a0b1c2d3", "../../etc/passwd", "a.b", ""].map(BoardId::from);
    for (seq, id) in (1..).zip(&ids) {
        assert_eq!(cursors.load(id), None);
        cursors.save(id, &Cursor::after_record(Seq(seq), vec![Seq(3)])).expect("it is stored");
    }
    for (seq, id) in (1..).zip(&ids) {
        assert_eq!(cursors.load(id), Some(Cursor::after_record(Seq(seq), vec![Seq(3)])));
    }
    assert_eq!(fs::read_dir(&cursors.directory).expect("a directory").count(), ids.len(), "nothing else, elsewhere");
    for damaged in ["{", r#"{"version":3,"after":1}"#, r#"{"version":"1","after":1}"#] {
        fs::write(cursors.directory.join(name(&ids[0])), damaged).expect("it is written");
        assert_eq!(cursors.load(&ids[0]), None, "{damaged}");
    }
}

#[test]
fn golden_files_of_all_versions_are_read_and_the_last_one_is_written() {
    let versions = [include_str!("version-0.json"), include_str!("version-1.json"), include_str!("version-2.json")];
    let [before, first, now] = versions.map(|text| read(text).expect("a cursor"));
    assert_eq!(before, first);
    assert_eq!(serde_json::to_string(&before).expect("JSON"), versions[0], "as it was written without a version");
    assert!(now.waits() && now.after == Some(Seq(41)) && now.questions == [Seq(12), Seq(40)], "{now:?}");
    let directory = tempfile::tempdir().expect("a directory");
    let cursors = Cursors::new(directory.path(), "webhook");
    fs::create_dir_all(&cursors.directory).expect("a directory");
    let board = BoardId::from("b");
    cursors.save(&board, &now).expect("it is stored");
    let written = fs::read_to_string(cursors.directory.join(name(&board))).expect("a file");
    assert_eq!(written, versions[VERSION as usize]);
}
