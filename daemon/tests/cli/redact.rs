//! `redact` and `vacuum`: no file contains a redacted value, and every other query still works.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::held;
use crate::sandbox::{CommandResult, Sandbox};

/// Contains characters that JSON escapes, and non-ASCII ones.
pub(crate) const SECRET: &str = "Zoë \"Z.\" Quisquilius, born 1979";

/// Returns a sandbox with one finished board, with the secret in its request.
pub(crate) fn finished() -> Sandbox {
    let sandbox = Sandbox::new();
    let request = json!({"topic": SECRET}).to_string();
    sandbox.run(&["run", "notes.yaml", "--request", &request, "-q"]).expect_exit(0);
    sandbox
}

/// Returns the files of the data directory that contain a piece of the secret, in any escaping.
pub(crate) fn holding(directory: &Path) -> Vec<PathBuf> {
    held::holding(directory, &["Quisquilius", "born 1979", "Zoë", "Zo\\u00eb", "Zo\\\\u00eb"])
}

impl Sandbox {
    fn data(&self) -> PathBuf {
        self.path().join(".patchboard")
    }

    fn asked(&self, command: &str, more: &[&str]) -> CommandResult {
        self.run(&[&[command, "last"], more, &["--output", "json"]].concat())
    }
}

#[test]
fn redacted_values_leave_every_file_and_the_board_still_answers() {
    let sandbox = finished();
    assert!(!holding(&sandbox.data()).is_empty());
    sandbox.write("heads.jsonl", sandbox.run(&["heads", "--output", "json"]).expect_exit(0).stdout);
    let done = sandbox.asked("redact", &["/request/topic"]).expect_exit(0).json();
    assert_eq!((&done["scrubbed"], &done["still"]), (&json!(true), &json!([])));
    assert!(done["texts"].as_u64() > Some(0), "{done}");
    assert_eq!(holding(&sandbox.data()), Vec::<PathBuf>::new());

    let verified = sandbox.run(&["verify", "--heads", "heads.jsonl", "--output", "json"]).expect_exit(0).json();
    assert_eq!((&verified["ok"], &verified["erased"]["values"]), (&json!(true), &done["values"]), "{verified}");
    let replayed = sandbox.asked("replay", &[]).expect_exit(0).json();
    assert_eq!((&replayed["ok"], &replayed["erased"]), (&json!(true), &json!({"from": 0, "to": done["seq"]})));
    let text = sandbox.run(&["replay", "last"]).expect_exit(0).stdout;
    assert!(text.contains("erased, not re-derivable"), "{text}");
    let shown = |at: &str| sandbox.asked("state", &["--at", at]).expect_exit(0).json();
    for version in ["0", "2"] {
        let state = shown(version);
        assert!(state["state"]["request"]["topic"].as_str().is_some_and(|text| text.starts_with("$redacted:")));
        assert_eq!((&state["state_hash"], &state["erased"]), (&Value::Null, &json!(true)));
    }
    assert_eq!(shown("2")["state"]["answer"], "ok");
    let records = sandbox.asked("log", &[]).expect_exit(0).lines();
    assert_eq!(records.last().expect("records")["kind"], "redacted");
    for (command, more) in [
        ("why", ["/request/topic"].as_slice()),
        ("why", &["/notes/0/text"]),
        ("view", &["writer"]),
        ("cost", &[]),
        ("denials", &[]),
        ("export", &[]),
    ] {
        let ran = sandbox.run(&[&[command, "last"], more].concat());
        assert!(ran.code == 0 && !ran.stderr.contains("panicked"), "{command}: {} {}", ran.code, ran.stderr);
    }
    // A second redaction finds nothing.
    assert_eq!(sandbox.asked("redact", &["/request/topic"]).expect_exit(2).error()["code"], "nothing_to_erase");
}

#[test]
fn altered_redaction_marks_are_detected() {
    let sandbox = finished();
    sandbox.asked("redact", &["/request/topic"]).expect_exit(0);
    let file = sandbox.data().join("patchboard.db");
    let connection = rusqlite::Connection::open(&file).expect("it can be opened");
    let altered = connection
        .execute("UPDATE records SET payload = replace(payload, '$redacted:', '$redacted:0') WHERE seq = 0", ())
        .expect("it can be written");
    assert_eq!(altered, 1);
    drop(connection);
    let report = sandbox.asked("verify", &[]).expect_exit(1).json();
    assert_eq!((&report["code"], &report["seq"]), (&json!("bad_record"), &json!(0)));
}

#[test]
fn a_mark_that_no_record_speaks_of_is_noticed() {
    let sandbox = finished();
    let file = sandbox.data().join("patchboard.db");
    let connection = rusqlite::Connection::open(&file).expect("it can be opened");
    let sql = "UPDATE records SET payload = replace(payload, '{\"patch\"', '{\"$redacted\":{\"by\":9},\"patch\"') \
               WHERE kind = 'committed'";
    assert!(connection.execute(sql, ()).expect("it can be written") > 0);
    drop(connection);
    assert_eq!(sandbox.asked("verify", &[]).expect_exit(1).json()["code"], "bad_record");
}

#[test]
fn without_the_salt_only_the_chain_is_verified_and_that_is_said() {
    let sandbox = finished();
    sandbox.asked("redact", &["/request/topic", "--forget-salt"]).expect_exit(0);
    assert_eq!(holding(&sandbox.data()), Vec::<PathBuf>::new());
    let text = sandbox.run(&["verify", "last"]).expect_exit(0).stdout;
    assert!(text.contains("only the chain was verified"), "{text}");
    sandbox.asked("state", &[]).expect_exit(0);
    sandbox.asked("replay", &[]).expect_exit(0);
}

#[test]
fn invalid_redactions_are_rejected_and_change_nothing() {
    let sandbox = finished();
    let records = || sandbox.asked("log", &[]).expect_exit(0).lines().len();
    let before = records();
    for (targets, code) in [
        (["/nowhere"].as_slice(), "nothing_to_erase"),
        (&["0"], "bad_redaction"),
        (&["999"], "bad_redaction"),
        (&["topic"], "bad_pointer"),
        (&[], "bad_redaction"),
        // An ended board cannot take a replacement.
        (&["/request/topic", "--replace", "1"], "replacement_refused"),
    ] {
        assert_eq!(sandbox.asked("redact", targets).expect_exit(2).error()["code"], code, "{targets:?}");
    }
    assert_eq!(records(), before);
}

#[test]
fn a_cassette_loses_what_its_board_lost_and_says_so_when_it_is_played() {
    let sandbox = Sandbox::new();
    let request = json!({"topic": SECRET}).to_string();
    let run = ["run", "notes.yaml", "--request", &request, "-q"];
    sandbox.run(&[&run[..], &["--record", "tape.jsonl"]].concat()).expect_exit(0);
    let tape = sandbox.path().join("tape.jsonl");
    assert!(fs::read_to_string(&tape).expect("it was recorded").contains("Quisquilius"));
    sandbox.asked("redact", &["/request/topic", "--cassette", "tape.jsonl"]).expect_exit(0);
    let text = fs::read_to_string(&tape).expect("it is there");
    assert!(!text.contains("Quisquilius"), "{text}");
    // A repetition changes nothing.
    let again = sandbox.asked("redact", &["--cassette", "tape.jsonl"]).expect_exit(0).json();
    assert_eq!(again["cassettes"][0]["views"], 0, "{again}");
    // The recorded answers did not contain the topic.
    sandbox.run(&[&run[..], &["--cassette", "tape.jsonl"]].concat()).expect_exit(0);
    sandbox.asked("redact", &["/notes/0/text", "--cassette", "tape.jsonl"]).expect_exit(0);
    let played = sandbox.run(&["run", "notes.yaml", "--request", &request, "--cassette", "tape.jsonl"]);
    assert_ne!(played.code, 0, "{}", played.stderr);
    assert!(played.stderr.contains("cassette_miss") && played.stderr.contains("was erased"), "{}", played.stderr);
}

#[test]
fn vacuum_frees_unused_texts() {
    let sandbox = finished();
    let file = sandbox.data().join("patchboard.db");
    let connection = rusqlite::Connection::open(&file).expect("it can be opened");
    let orphan = "orphan ".repeat(100_000);
    connection
        .execute("INSERT INTO blobs (hash, bytes) VALUES ('00', ?1)", [orphan.as_bytes()])
        .expect("it can be written");
    drop(connection);
    let vacuumed = sandbox.run(&["vacuum", "--output", "json"]).expect_exit(0).json();
    assert_eq!(vacuumed["texts_removed"], 1);
    let bytes = |name: &str| vacuumed[name].as_u64().expect("a number");
    assert!(bytes("bytes_after") + 600_000 < bytes("bytes_before"), "{vacuumed}");
    sandbox.asked("verify", &[]).expect_exit(0);
}

#[test]
fn an_archive_in_the_data_directory_is_redacted_with_its_board_and_deleted_with_it() {
    let sandbox = finished();
    let archived = sandbox.run(&["archive", "last", "--output", "json"]).expect_exit(0).json();
    let board = archived["board"].as_str().expect("an id");
    let file = sandbox.path().join(archived["archive"].as_str().expect("a file"));
    sandbox.run(&["restore", board]).expect_exit(0);
    // A partial file of a crashed process.
    let unfinished = file.with_extension("unfinished");
    fs::copy(&file, &unfinished).expect("it can be copied");
    sandbox.asked("redact", &["/request/topic", "--everywhere"]).expect_exit(0);
    assert_eq!(holding(&sandbox.data()), Vec::<PathBuf>::new());
    assert!(file.is_file() && !unfinished.exists());
    // The redacted archive restores the board's current state.
    let state = sandbox.asked("state", &[]).expect_exit(0).stdout;
    let head = sandbox.asked("verify", &[]).expect_exit(0).json()["head"].clone();
    sandbox.run(&["archive", board]).expect_exit(0);
    sandbox.run(&["restore", board]).expect_exit(0);
    assert_eq!(sandbox.asked("state", &[]).expect_exit(0).stdout, state);
    assert_eq!(sandbox.asked("verify", &[]).expect_exit(0).json()["head"], head);
    sandbox.run(&["delete", board, "--yes"]).expect_exit(0);
    assert!(!file.exists());
    sandbox.run(&["restore", board]).expect_exit(1);
}

#[test]
fn a_copy_of_an_archive_from_before_an_erasure_does_not_come_back() {
    let sandbox = finished();
    let archived = sandbox.run(&["archive", "last", "--output", "json"]).expect_exit(0).json();
    let board = archived["board"].as_str().expect("an id");
    let file = sandbox.path().join(archived["archive"].as_str().expect("a file"));
    let copy = sandbox.path().join("copy.jsonl");
    fs::copy(&file, &copy).expect("it can be copied");
    sandbox.run(&["restore", board]).expect_exit(0);
    sandbox.asked("redact", &["/request/topic", "--everywhere"]).expect_exit(0);
    sandbox.run(&["archive", board]).expect_exit(0);
    let refused = sandbox.run(&["restore", "copy.jsonl", "--output", "json"]).expect_exit(2).error();
    assert_eq!(refused["code"], "older_archive", "{refused}");
    // The older archive is also rejected in place of the latest one, and after that one is deleted.
    let last = fs::read(&file).expect("it can be read");
    fs::copy(&copy, &file).expect("it can be copied");
    assert_eq!(sandbox.run(&["restore", board, "--output", "json"]).expect_exit(2).error()["code"], "older_archive");
    assert_eq!(holding(&sandbox.data()), std::slice::from_ref(&file));
    fs::write(&file, last).expect("it can be written");
    sandbox.run(&["restore", board]).expect_exit(0);
    assert_eq!(holding(&sandbox.data()), Vec::<PathBuf>::new());
    sandbox.run(&["delete", board, "--yes"]).expect_exit(0);
    assert_eq!(
        sandbox.run(&["restore", "copy.jsonl", "--output", "json"]).expect_exit(2).error()["code"],
        "older_archive"
    );
}

#[test]
fn a_recording_of_salted_views_is_erased_also_when_the_salt_goes() {
    let sandbox = Sandbox::new();
    let request = json!({"topic": SECRET}).to_string();
    let run = ["run", "notes.yaml", "--request", &request, "-q", "--record", "run.jsonl"];
    sandbox.run(&run).expect_exit(0);
    let recording = sandbox.path().join("run.jsonl");
    let entries = || fs::read_to_string(&recording).expect("it can be read");
    if !entries().contains("Quisquilius") {
        panic!("the recording holds what was shown: {}", entries());
    }
    let done =
        sandbox.asked("redact", &["/request/topic", "--forget-salt", "--cassette", "run.jsonl"]).expect_exit(0).json();
    assert!(done["cassettes"][0]["views"].as_u64() > Some(0), "{done}");
    assert!(!entries().contains("Quisquilius"), "{}", entries());
    // Without the salt, the board's views in a cassette cannot be identified.
    let late = sandbox.asked("redact", &["--cassette", "run.jsonl"]).expect_exit(2);
    assert_eq!(late.error()["code"], "salt_gone");
}
