//! `archive`, `restore` and `delete`: a board that has ended leaves the journal, and comes back as it was, or never.

use std::fs;

use serde_json::json;

use crate::redact::{finished, holding};

#[test]
fn an_archived_board_is_gone_and_comes_back_as_it_was() {
    let sandbox = finished();
    let export = || sandbox.run(&["export", "last"]).exits(0).stdout;
    let before = export();
    let archived = sandbox.run(&["archive", "last", "--output", "json"]).exits(0).json();
    let board = archived["board"].as_str().expect("an id").to_owned();
    assert_eq!(sandbox.run(&["verify", &board, "--output", "json"]).exits(2).error()["code"], "no_such_board");
    let listed = sandbox.run(&["archive", "--output", "json"]).exits(0).lines();
    assert_eq!((listed[0]["board"].as_str(), &listed[0]["archive"]), (Some(board.as_str()), &archived["archive"]));
    let restored = sandbox.run(&["restore", &board, "--output", "json"]).exits(0).json();
    assert_eq!(restored, json!({"board": board}));
    assert_eq!(export(), before);
    sandbox.run(&["verify", "last"]).exits(0);
    sandbox.run(&["replay", "last"]).exits(0);
    assert_eq!(sandbox.run(&["archive", "--output", "json"]).exits(0).lines(), Vec::<serde_json::Value>::new());
    // It is there already.
    assert_eq!(sandbox.run(&["restore", &board, "--output", "json"]).exits(1).error()["code"], "journal_fenced");
}

#[test]
fn an_archive_that_was_altered_brings_nothing_back() {
    let sandbox = finished();
    let archived = sandbox.run(&["archive", "last", "--output", "json"]).exits(0).json();
    let path = sandbox.path().join(archived["archive"].as_str().expect("a path"));
    let text = fs::read_to_string(&path).expect("it can be read");
    let lines: Vec<&str> = text.lines().collect();
    let altered = [
        text.replacen("first", "fir5t", 1),
        lines[..lines.len() - 1].join("\n"),
        lines
            .iter()
            .filter(|line| !line.starts_with(r#"{"record":{"seq":3"#))
            .map(|line| format!("{line}\n"))
            .collect(),
        String::new(),
        "{}".to_owned(),
    ];
    for altered in altered {
        assert_ne!(altered, text);
        fs::write(&path, altered).expect("it can be written");
        let board = archived["board"].as_str().expect("an id");
        assert_eq!(sandbox.run(&["restore", board, "--output", "json"]).exits(1).error()["code"], "bad_archive");
    }
    fs::write(&path, text).expect("it can be written");
    sandbox.run(&["restore", path.to_str().expect("a path")]).exits(0);
}

#[test]
fn a_deleted_board_is_in_no_file_and_leaves_its_last_hash() {
    let sandbox = finished();
    let verified = sandbox.run(&["verify", "last", "--output", "json"]).exits(0).json();
    let delete = ["delete", "last", "--output", "json"];
    assert_eq!(sandbox.run(&delete).exits(2).error()["code"], "not_confirmed");
    sandbox.run(&[&delete[..], &["--yes"]].concat()).exits(0);
    assert!(holding(&sandbox.path().join(".patchboard")).is_empty());
    let listed = sandbox.run(&["archive", "--output", "json"]).exits(0).lines();
    assert_eq!((&listed[0]["head"], &listed[0]["archive"]), (&verified["head"], &json!(null)));
    assert!(sandbox.run(&["boards", "--output", "json"]).exits(0).lines().is_empty());
}
