//! Authors of a file since a commit.

use super::*;
use patchboard_kernel::digest::sha256;
use serde_json::{Value, json};

/// Authors after these edits: name, whether an agent made it, resulting text and number of lines written.
fn authors(edits: &[(&str, bool, &str, u32)], committed: Option<&str>) -> Authors {
    let mut histories = Histories::default();
    for (by, is_edit, text, lines) in edits {
        let hunk = json!({"at": 1, "was": "", "now": "x\n".repeat(*lines as usize)});
        edited(&mut histories, by, *is_edit, json!([change("a.py", Some(text), &hunk)]));
    }
    histories.authors(&FilePath::parse("a.py").expect("a name"), committed.map(|text| sha256(text.as_bytes())))
}

fn change(path: &str, text: Option<&str>, hunk: &Value) -> Value {
    let hash = text.map(|text| sha256(text.as_bytes()));
    json!({"path": path, "hash": hash, "lines": 9, "bytes": 1, "hunks": [hunk]})
}

fn edited(histories: &mut Histories, by: &str, is_edit: bool, changes: Value) {
    let mut edit = json!({"reads": [], "changes": changes});
    if is_edit {
        edit["of"] = json!({"invocation": 1, "attempt": 1});
    }
    histories.apply_edit(by, &serde_json::from_value(edit).expect("an edit"));
}

fn of(first: &str, others: &[&str]) -> Authors {
    Authors { first: first.to_owned(), others: others.iter().map(|name| (*name).to_owned()).collect() }
}

#[test]
fn the_main_writer_since_the_commit_is_its_author_and_others_are_coauthors() {
    let edits = [("external", false, "0", 9), ("ada", true, "1", 8), ("bob", true, "2", 3), ("ada", true, "3", 1)];
    assert_eq!(authors(&edits, Some("0")), of("ada", &["bob"]));
    assert_eq!(authors(&edits, Some("1")), of("bob", &["ada"]), "what is committed counts no more");
    assert_eq!(authors(&edits, Some("2")), of("ada", &[]));
    assert_eq!(authors(&edits, Some("?")), of("ada", &["bob"]), "what is committed is not known");
    assert_eq!(authors(&[("ada", true, "1", 2), ("bob", true, "2", 2)], None), of("bob", &["ada"]), "the last");
}

#[test]
fn a_program_takes_no_authorship_from_who_has_edited() {
    let formatted = [("ada", true, "1", 2), ("manager", false, "2", 400), ("external", false, "3", 50)];
    assert_eq!(authors(&formatted, None), of("ada", &[]));
    assert_eq!(authors(&formatted, Some("1")), of("manager", &[]), "nothing but the program's is new");
    assert_eq!(authors(&formatted, Some("2")), of("external", &[]));
    assert_eq!(authors(&[], None), of("external", &[]));
}

#[test]
fn a_file_under_another_name_is_still_of_those_who_wrote_it() {
    let mut histories = Histories::default();
    let hunk = |lines: usize| json!({"at": 1, "was": "", "now": "x\n".repeat(lines)});
    edited(&mut histories, "ada", true, json!([change("a.py", Some("1"), &hunk(5))]));
    let renamed = json!([change("a.py", None, &hunk(0)), change("b.py", Some("1"), &hunk(5))]);
    edited(&mut histories, "bob", true, renamed);
    assert_eq!(histories.authors(&FilePath::parse("b.py").expect("a name"), None), of("ada", &["bob"]));
}
