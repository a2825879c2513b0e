//! Commands that read a board's history: `log`, `state`, `why`, `view`, `replay`, `verify` and `export`.

use std::fs;

use patchboard_kernel::digest::sha256;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::sandbox::{CommandResult, Sandbox};

/// Returns a sandbox with one finished board.
fn finished() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "notes.yaml", "--request", r#"{"topic":"x"}"#, "-q"]).expect_exit(0);
    sandbox
}

impl Sandbox {
    fn ask(&self, command: &str, more: &[&str]) -> CommandResult {
        self.run(&[&[command, "last"], more, &["--output", "json"]].concat())
    }
}

#[test]
fn the_log_has_every_record_and_can_be_narrowed() {
    let sandbox = finished();
    let records = sandbox.ask("log", &[]).expect_exit(0).lines();
    let kinds: Vec<&str> = records.iter().map(|record| record["kind"].as_str().expect("a kind is text")).collect();
    let expected = "created scheduled invoked rejected invoked committed scheduled invoked committed ended";
    assert_eq!(kinds.join(" "), expected);
    for (seq, record) in records.iter().enumerate() {
        assert_eq!(record["seq"], seq);
    }
    let rejected = sandbox.ask("log", &["--rejected"]).expect_exit(0).lines();
    assert_eq!(rejected, [records[3].clone()]);
    assert_eq!((&rejected[0]["stage"], &rejected[0]["code"]), (&json!("authorization"), &json!("value_not_granted")));
    let text = sandbox.run(&["log", "last"]).expect_exit(0).stdout;
    assert_eq!(text.lines().count(), records.len());
    let refused = text.lines().nth(3).expect("a line");
    assert!(refused.contains("; the reply: ") && refused.contains(r#""op":"add""#), "{refused}");
    let followed = sandbox.run(&["log", "last", "--follow"]).expect_exit(0).stdout;
    assert_eq!(followed, text, "an ended board has nothing more to follow");
}

#[test]
fn every_version_of_the_state_can_be_printed() {
    let sandbox = finished();
    let at = |version: &str| sandbox.ask("state", &["--at", version]).expect_exit(0).json();
    assert_eq!(at("0")["state"], json!({"request": {"topic": "x"}, "notes": []}));
    assert_eq!(at("1")["state"]["notes"], json!([{"text": "first", "status": "draft"}]));
    assert_eq!(at("2"), sandbox.ask("state", &[]).expect_exit(0).json());
    let text = sandbox.run(&["state", "last"]).expect_exit(0).stdout;
    assert_eq!(serde_json::from_str::<Value>(&text).expect("the text is JSON"), at("2")["state"]);
    let beyond = sandbox.ask("state", &["--at", "3"]).expect_exit(2).error();
    assert_eq!((&beyond["code"], &beyond["version"]), (&json!("no_such_version"), &json!(2)));
}

#[test]
fn a_view_shows_what_the_worker_may_read_and_nothing_else() {
    let sandbox = finished();
    let view = sandbox.ask("view", &["checker", "--at", "1"]).expect_exit(0).json();
    let text = view["text"].as_str().expect("a view is text");
    assert!(text.contains("first") && !text.contains("topic"), "{text}");
    assert_eq!(view["hash"].as_str().map(str::len), Some(64));
    assert!(view["reads"].to_string().contains("/notes"), "{view}");
    let printed = sandbox.run(&["view", "last", "checker", "--at", "1"]).expect_exit(0).stdout;
    assert_eq!(printed.trim_end(), text.trim_end());
    let items = view["items"].as_array().expect("items");
    assert!(items.iter().any(|item| item["place"] == "/notes/0" && item["why"] == "everything_fits"), "{view}");
    let explained = sandbox.run(&["view", "last", "checker", "--at", "1", "--explain"]).expect_exit(0).stdout;
    let line = |place: &str| explained.lines().find(|line| line.contains(place)).unwrap_or_default();
    assert!(line("/notes/0").starts_with(" shown") && line("/notes/0").ends_with("everything fits"), "{explained}");
    assert!(
        line("/request").contains("left out") && line("/request").ends_with("not in the read contract"),
        "{explained}"
    );
    let unknown = sandbox.ask("view", &["nobody"]).expect_exit(2).error();
    assert_eq!((&unknown["code"], &unknown["workers"]), (&json!("no_such_worker"), &json!(["checker", "writer"])));
}

#[test]
fn a_view_is_asked_for_places_that_are_there() {
    let sandbox = finished();
    for (place, code) in [("x", "bad_pointer"), ("/zzz", "path_not_granted"), ("/notes/9", "path_not_found")] {
        let refused = sandbox.run(&["view", "last", "checker", "--expand", place, "--output", "json"]).expect_exit(2);
        assert_eq!(refused.error()["code"], code);
    }
    sandbox.run(&["view", "last", "checker", "--expand", "/notes/0"]).expect_exit(0);
}

#[test]
fn view_and_why_show_the_read_set_of_a_proposal() {
    let sandbox = Sandbox::new();
    let blueprint = r#"
blueprint: 1
name: members
state:
  schema:
    type: object
    properties: {notes: {type: array, items: {type: string}}, sum: {type: integer}}
  initial: {notes: @}
workers:
  counter:
    agent: script
    role: Say how many notes there are.
    freshness: members
    view: {budget: 700}
    reads: [/notes/*]
    writes: [{path: /sum}]
    script: [[{op: add, path: /sum, value: 40}]]
rules: [{name: begin, trigger: start, run: counter}]
done: {when: has(state.sum)}
"#;
    let notes: Vec<String> = (0..40).map(|n| format!("note {n}, which is not short")).collect();
    sandbox.write("members.yaml", blueprint.replace('@', &json!(notes).to_string()));
    sandbox.run(&["run", "members.yaml", "--request", "{}", "-q"]).expect_exit(0);
    let view = sandbox.ask("view", &["counter", "--at", "0"]).expect_exit(0).json();
    assert_eq!((&view["freshness"], &view["members"]), (&json!("members"), &json!(["/notes"])));
    assert!(!view["reads"].to_string().contains("/notes\""), "{view}");
    let why = sandbox.ask("why", &["/sum"]).expect_exit(0).json();
    assert_eq!(why["view"]["members"], view["members"]);
    let text = sandbox.run(&["why", "last", "/sum"]).expect_exit(0).stdout;
    assert!(text.contains("members of /notes\n"), "{text}");
}

#[test]
fn every_place_can_be_asked_who_wrote_it_and_why() {
    let sandbox = finished();
    let why = |pointer: &str| sandbox.ask("why", &[pointer]).expect_exit(0).json();
    let note = why("/notes/0/text");
    assert_eq!((&note["worker"], &note["seq"], &note["version"]), (&json!("writer"), &json!(5), &json!(1)));
    assert_eq!((&note["invocation"], &note["attempt"], &note["base"]), (&json!(1), &json!(2), &json!(0)));
    assert_eq!((&note["trigger"]["rule"], &note["trigger"]["cause"]["kind"]), (&json!("begin"), &json!("start")));
    let refused = &note["rejected"][0];
    assert_eq!(
        (&refused["seq"], &refused["code"], &refused["attempt"]),
        (&json!(3), &json!("value_not_granted"), &json!(1))
    );
    let view = note["view"]["hash"].as_str().expect("a view has a hash");
    let invoked = sandbox.ask("log", &["--kind", "invoked"]).expect_exit(0).lines();
    assert_eq!((&note["view"]["seq"], view), (&invoked[1]["seq"], invoked[1]["view"].as_str().unwrap_or_default()));

    // The later commit wrote only the status, and thereby changed the note and the list that contain it.
    for pointer in ["/notes/0/status", "/notes/0", "/notes", "/answer", ""] {
        assert_eq!(why(pointer)["worker"], "checker", "{pointer}");
    }
    assert_eq!(
        why("/notes/0/status")["ops"],
        json!([{"op": "replace", "path": "/notes/0/status", "value": "checked"}])
    );
    assert_eq!(why("/request/topic")["source"], "request");
    assert_eq!(sandbox.ask("why", &["/nope"]).expect_exit(2).error()["code"], "no_such_place");
    assert_eq!(sandbox.ask("why", &["nope"]).expect_exit(2).error()["code"], "bad_pointer");
    let text = sandbox.run(&["why", "last", "/notes/0/text"]).expect_exit(0).stdout;
    for part in ["was last written by writer", "rule begin: the board began", "record 3, attempt 1, authorization/"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn a_replay_gives_the_run_again() {
    let sandbox = finished();
    let replayed = sandbox.ask("replay", &[]).expect_exit(0).json();
    let verified = sandbox.ask("verify", &[]).expect_exit(0).json();
    assert_eq!(replayed["head"], verified["head"]);
    assert_eq!((&replayed["records"], &replayed["commits"], &replayed["views"]), (&json!(10), &json!(2), &json!(3)));
    let part = sandbox.ask("replay", &["--to", "5"]).expect_exit(0).json();
    assert_eq!((&part["records"], &part["version"], &part["head"]["seq"]), (&json!(6), &json!(1), &json!(5)));
    assert_eq!(sandbox.ask("replay", &["--to", "10"]).expect_exit(2).error()["code"], "no_such_record");
}

#[test]
fn an_altered_record_is_named_by_verify() {
    for (what, sql) in [
        ("a value", "UPDATE records SET payload = replace(payload, 'first', 'fiRst') WHERE seq = 5"),
        ("a header", "UPDATE records SET header = replace(header, 'writer', 'wRiter') WHERE seq = 5"),
        ("a hash", "UPDATE records SET hash = (SELECT hash FROM records WHERE seq = 4) WHERE seq = 5"),
    ] {
        let sandbox = finished();
        let journal = Connection::open(sandbox.path().join(".patchboard/patchboard.db")).expect("it is a database");
        let changed = journal.execute(sql, ()).expect("the record can be altered");
        assert_eq!(changed, 1, "{what}");
        drop(journal);
        let ran = sandbox.ask("verify", &[]).expect_exit(1);
        let found = ran.error();
        assert_eq!((&found["code"], &found["seq"]), (&json!("bad_record"), &json!(5)), "{what}: {found}");
        // Stdout alone also reports the failure.
        let result = ran.json();
        assert_eq!((&result["ok"], &result["code"]), (&json!(false), &json!("bad_record")), "{what}");
        assert_eq!((&result["seq"], &result["message"]), (&json!(5), &found["message"]), "{what}");
    }
}

#[test]
fn a_damaged_list_of_snapshots_is_no_reason_to_restore_a_backup() {
    let sandbox = finished();
    let journal = || Connection::open(sandbox.path().join(".patchboard/patchboard.db")).expect("it is a database");
    let sql = "INSERT INTO snapshots (board, seq, digest, record) SELECT board, 5, 'no digest', 6 FROM boards";
    assert_eq!(journal().execute(sql, ()).expect("a row can be made"), 1);
    let ran = sandbox.ask("verify", &[]).expect_exit(1);
    let found = ran.error();
    assert_eq!(found["code"], "bad_snapshot_list", "{found}");
    assert!(!found.to_string().contains("backup"), "{found}");
    assert!(found["help"].as_str().is_some_and(|help| help.contains("records are sound")), "{found}");
    assert_eq!((&ran.json()["ok"], &ran.json()["code"]), (&json!(false), &json!("bad_snapshot_list")));
    // The advice is correct: the records suffice. If a record is altered as well, `verify` reports that record first.
    sandbox.ask("state", &[]).expect_exit(0);
    sandbox.ask("replay", &[]).expect_exit(0);
    let sql = "UPDATE records SET payload = replace(payload, 'first', 'fiRst') WHERE seq = 5";
    assert_eq!(journal().execute(sql, ()).expect("the record can be altered"), 1);
    assert_eq!(sandbox.ask("verify", &[]).expect_exit(1).error()["code"], "bad_record");
}

#[test]
fn a_replay_that_differs_is_reported_as_a_result() {
    let cut_off: fn(&Sandbox) = |sandbox| cut(sandbox, 9);
    let altered: fn(&Sandbox) = |sandbox| {
        let journal = Connection::open(sandbox.path().join(".patchboard/patchboard.db")).expect("it is a database");
        let sql = "UPDATE records SET payload = replace(payload, 'first', 'fiRst') WHERE seq = 5";
        assert_eq!(journal.execute(sql, ()).expect("the record can be altered"), 1);
    };
    for (change, code, seq) in [(cut_off, "replay_differs", 9), (altered, "bad_record", 5)] {
        let sandbox = finished();
        change(&sandbox);
        let ran = sandbox.ask("replay", &[]).expect_exit(1);
        let result = ran.json();
        assert_eq!((&result["ok"], &result["code"]), (&json!(false), &json!(code)));
        assert_eq!((&result["seq"], &result["message"]), (&json!(seq), &ran.error()["message"]));
        let text = sandbox.run(&["replay", "last"]).expect_exit(1);
        assert_eq!(text.stdout, "");
    }
}

#[test]
fn a_cut_or_rewritten_journal_does_not_have_the_head_that_was_kept() {
    let sandbox = finished();
    let head =
        sandbox.ask("verify", &[]).expect_exit(0).json()["head"]["hash"].as_str().expect("a hash is text").to_owned();
    assert_eq!(sandbox.ask("verify", &["--head", &head]).expect_exit(0).json()["expected_at"], 9);
    sandbox.run(&["run", "notes.yaml", "--request", r#"{"topic":"y"}"#, "-q"]).expect_exit(0);
    let other = sandbox.ask("verify", &["--head", &head]).expect_exit(1).error();
    assert_eq!(other["code"], "wrong_head");
    let result = sandbox.ask("verify", &["--head", &head]).expect_exit(1).json();
    assert_eq!((&result["ok"], &result["code"], &result["seq"]), (&json!(false), &json!("wrong_head"), &json!(null)));
    assert_eq!(sandbox.ask("verify", &["--head", "abc"]).expect_exit(2).error()["code"], "usage");
}

#[test]
fn a_journal_that_goes_on_after_the_given_head_does_not_have_it() {
    let sandbox = finished();
    let export = sandbox.run(&["export", "last"]).expect_exit(0);
    let hashes: Vec<String> =
        export.lines().iter().map(|record| record["hash"].as_str().expect("a hash").to_owned()).collect();
    sandbox.write("board.jsonl", &export.stdout);
    for wanted in ["last", "board.jsonl"] {
        let ask = |head: &str| sandbox.run(&["verify", wanted, "--head", head, "--output", "json"]);
        assert_eq!(ask(&hashes[9]).expect_exit(0).json()["head"]["hash"], hashes[9]);
        let ran = ask(&hashes[4]).expect_exit(1);
        let (found, result) = (ran.error(), ran.json());
        assert_eq!(
            (&found["code"], &found["at"], &found["head"]["seq"]),
            (&json!("head_differs"), &json!(4), &json!(9))
        );
        assert_eq!((&result["ok"], &result["code"]), (&json!(false), &json!("head_differs")));
        let message = found["message"].as_str().expect("a message");
        assert!([&hashes[4], &hashes[9]].iter().all(|hash| message.contains(hash.as_str())), "{message}");
        assert!(message.contains("goes on after it"), "{message}");
    }
}

#[test]
fn a_file_is_verified_as_a_board_is_without_a_data_directory() {
    let sandbox = finished();
    let whole = sandbox.ask("verify", &[]).expect_exit(0).json();
    let head = whole["head"]["hash"].as_str().expect("a hash").to_owned();
    let export = sandbox.run(&["export", "last"]).expect_exit(0).stdout;
    sandbox.run(&["archive", "last"]).expect_exit(0);
    let archive = sandbox.run(&["archive", "--output", "json"]).expect_exit(0).json()["archive"]
        .as_str()
        .expect("a path")
        .to_owned();
    let archive = fs::read_to_string(sandbox.path().join(archive)).expect("it can be read");
    let elsewhere = Sandbox::new();
    elsewhere.write("board.jsonl", &export);
    elsewhere.write("archive.jsonl", &archive);
    for (file, input, texts) in
        [("board.jsonl", "", 0), ("archive.jsonl", "", 5), ("-", export.as_str(), 0), ("-", &archive, 5)]
    {
        let ran = elsewhere.run_with(&["verify", file, "--head", &head, "--output", "json"], input).expect_exit(0);
        let verified = ran.json();
        for member in ["board", "head", "records", "erased"] {
            assert_eq!(verified[member], whole[member], "{file}: {member}");
        }
        assert_eq!((&verified["blobs"], &verified["unchecked_blobs"]), (&json!(texts), &json!(5 - texts)), "{file}");
    }
    let said = elsewhere.run(&["verify", "board.jsonl"]).expect_exit(0);
    assert!(
        said.stdout.contains(&format!("head 9 {head}")) && said.stdout.contains("not checked: 5 texts"),
        "{}",
        said.stdout
    );
    assert!(said.stderr.contains("compare the head"), "{}", said.stderr);
    assert!(!elsewhere.path().join(".patchboard").exists());

    let refuses = |text: &str, code: &str, words: &str| {
        let ran = elsewhere.run_with(&["verify", "-", "--head", &head, "--output", "json"], text).expect_exit(1);
        let found = ran.error();
        assert_eq!((&found["code"], &ran.json()["ok"]), (&json!(code), &json!(false)), "{found}");
        assert!(found["message"].as_str().is_some_and(|message| message.contains(words)), "{words}: {found}");
        assert!(!found.to_string().contains("data directory"), "{found}");
    };
    let lines: Vec<&str> = export.lines().collect();
    let joined = |lines: &[&str]| lines.join("\n");
    // Cut after a step, which only the head reveals, and inside a step.
    refuses(&joined(&lines[..8]), "wrong_head", &head);
    refuses(&joined(&lines[..9]), "bad_record", "record 9");
    refuses(&joined(&lines[1..]), "bad_file", "no record names its board");
    refuses(&joined(&[&lines[..4], &lines[5..]].concat()), "bad_record", "record 4 cannot be trusted: it is missing");
    refuses(&joined(&[&lines[..4], &lines[3..]].concat()), "bad_record", "record 4 cannot be trusted: it is missing");
    refuses("", "bad_file", "it is empty");
    refuses("{}", "bad_file", "line 1");
    refuses(&"[".repeat(100_000), "bad_file", "line 1");
    let (before_end, _) = archive.trim_end().rsplit_once('\n').expect("lines");
    refuses(before_end, "bad_file", "its end is missing");
    refuses(&export.replacen("\"payload\":", "\"payload\":{},\"payload\":", 1), "bad_file", "line 1");
    // Changing any character makes verification fail.
    for place in (0..export.len()).step_by(export.len() / 90) {
        let mut bytes = export.clone().into_bytes();
        bytes[place] ^= 1;
        let ran = elsewhere.run_with(&["verify", "-"], bytes).expect_exit(1);
        assert!(!ran.stderr.contains("panicked"), "{place}: {}", ran.stderr);
    }
    assert_eq!(elsewhere.run(&["verify", "./missing"]).expect_exit(2).stdout, "");
}

#[test]
fn heads_are_printed_and_taken_back() {
    let sandbox = finished();
    sandbox.run(&["run", "notes.yaml", "--request", r#"{"topic":"y"}"#, "-q"]).expect_exit(0);
    let ids: Vec<String> = sandbox
        .run(&["boards", "--output", "json"])
        .expect_exit(0)
        .lines()
        .iter()
        .map(|board| board["board"].as_str().expect("an id").to_owned())
        .collect();
    let heads = sandbox.run(&["heads", "--output", "json"]).expect_exit(0).lines();
    assert_eq!(heads.len(), 2);
    for (head, id) in heads.iter().zip(&ids) {
        let verified = sandbox.run(&["verify", id, "--output", "json"]).expect_exit(0).json();
        assert_eq!(
            (&head["board"], &head["seq"], &head["hash"]),
            (&json!(id), &verified["head"]["seq"], &verified["head"]["hash"])
        );
        assert_eq!((&head["version"], &head["status"]), (&json!(2), &json!("done")));
    }
    assert_eq!(sandbox.run(&["heads", &ids[1], "--output", "json"]).expect_exit(0).lines(), heads[1..]);
    let text = sandbox.run(&["heads"]).expect_exit(0).stdout;
    sandbox.write("heads.txt", &text);
    sandbox.write("heads.jsonl", sandbox.run(&["heads", "--output", "json"]).expect_exit(0).stdout);
    for file in ["heads.txt", "heads.jsonl"] {
        let verified = sandbox.run(&["verify", "--heads", file, "--output", "json"]).expect_exit(0).lines();
        assert_eq!(verified.iter().map(|board| &board["board"]).collect::<Vec<_>>(), [&json!(ids[0]), &json!(ids[1])]);
    }
    sandbox.run_with(&["verify", "--heads", "-"], &text).expect_exit(0);
    // Noted heads that differ: the board was cut, the noted number is wrong, and the board is gone.
    cut_board(&sandbox, &ids[1], 8);
    let ran = sandbox.run(&["verify", "--heads", "heads.txt", "--output", "json"]).expect_exit(1);
    let rows = ran.lines();
    assert_eq!((&rows[0]["ok"], &rows[1]["ok"], &rows[1]["code"]), (&json!(true), &json!(false), &json!("wrong_head")));
    assert_eq!(ran.error()["code"], "head_differs");
    sandbox.write("heads.txt", text.replace("  9  ", "  8  "));
    assert_eq!(
        sandbox.run(&["verify", "--heads", "heads.txt", "--output", "json"]).expect_exit(1).lines()[0]["code"],
        "head_differs"
    );
    for nothing in ["", "BOARD SEQ HASH", "{}", "board 1 2"] {
        sandbox.write("heads.txt", nothing);
        assert_eq!(
            sandbox.run(&["verify", "--heads", "heads.txt", "--output", "json"]).expect_exit(2).error()["code"],
            "bad_heads"
        );
    }
}

/// Cuts the only board's journal after `records` records, consistently: the list of boards is adjusted and the marks
/// are removed.
fn cut(sandbox: &Sandbox, records: i64) {
    cut_board(sandbox, "", records);
}

/// Like [`cut`], for the board with an id that ends in `id`.
fn cut_board(sandbox: &Sandbox, id: &str, records: i64) {
    fs::remove_file(sandbox.path().join(".patchboard/patchboard.marks")).expect("there are marks");
    let journal = Connection::open(sandbox.path().join(".patchboard/patchboard.db")).expect("it is a database");
    let of = format!("board LIKE '%{id}'");
    journal
        .execute(&format!("DELETE FROM records WHERE seq >= ?1 AND {of}"), [records])
        .expect("records can be deleted");
    let last = format!("SELECT seq, hash, at FROM records WHERE seq = ?1 - 1 AND {of}");
    let version = format!("SELECT count(*) FROM records WHERE kind = 'committed' AND {of}");
    let sql = format!(
        "UPDATE boards SET ended = iif(?1 < 10, NULL, ended), version = ({version}), \
         (last_seq, last_hash, updated_at) = ({last}) WHERE {of}"
    );
    assert_eq!(journal.execute(&sql, [records]).expect("the list can be changed"), 1);
}

#[test]
fn a_journal_that_ends_inside_a_step_is_rejected_by_rebuilding_commands() {
    // Records: created scheduled invoked, rejected invoked, committed scheduled invoked, committed ended.
    let inside = [(1, "scheduled"), (2, "invoked"), (4, "invoked"), (6, "scheduled"), (7, "invoked"), (9, "ended")];
    for (records, missing) in inside {
        let sandbox = finished();
        cut(&sandbox, records);
        for (command, more, code) in [
            ("verify", &[][..], "bad_record"),
            ("replay", &[], "replay_differs"),
            ("state", &[], "bad_record"),
            ("view", &["writer"], "bad_record"),
            ("resume", &[], "bad_record"),
        ] {
            let refused = sandbox.ask(command, more).expect_exit(1).error();
            assert_eq!((&refused["code"]), code, "{command} of {records}: {refused}");
            let message = refused["message"].as_str().expect("a message");
            assert!(message.contains(&format!("record {records}")), "{command} of {records}: {message}");
            assert!(message.contains(missing), "{command} of {records}: {message}");
        }
        // Older versions are readable, and the board still counts as incomplete.
        for (command, more, lines) in [
            ("state", &["--at", "0"][..], 1),
            ("view", &["writer", "--at", "0"], 1),
            ("log", &[], records),
            ("log", &["--follow"], records),
            ("export", &[], records),
            ("denials", &[], 1),
            ("replay", &["--to", "0"], 1),
        ] {
            let shown = sandbox.ask(command, more).expect_exit(1);
            assert_eq!(i64::try_from(shown.lines().len()), Ok(lines), "{command} of {records}: {}", shown.stdout);
            let error = shown.error();
            assert_eq!((&error["code"], &error["seq"]), (&json!("bad_record"), &json!(records)), "{command}: {error}");
            let text = sandbox.run(&[&[command, "last"], more].concat()).expect_exit(1);
            let errors: Vec<&str> = text.stderr.lines().filter(|line| line.starts_with("error[bad_record]")).collect();
            assert!(
                matches!(errors[..], [line] if line.contains("ends inside a step") && line.contains("backup")),
                "{errors:?}"
            );
        }
        let ran = sandbox.run(&["inbox", "--output", "json"]).expect_exit(1);
        assert_eq!((&ran.json()["questions"], &ran.error()["code"]), (&json!([]), &json!("bad_record")));
        // The exported part of a cut board does not verify.
        sandbox.write("cut.jsonl", sandbox.run(&["export", "last"]).stdout);
        let verified = sandbox.run(&["verify", "cut.jsonl", "--output", "json"]).expect_exit(1).error();
        assert_eq!((&verified["code"], &verified["seq"]), (&json!("bad_record"), &json!(records)));
    }
    for records in [3, 5, 8, 10] {
        let sandbox = finished();
        cut(&sandbox, records);
        for command in ["verify", "replay", "state", "log", "export", "denials"] {
            sandbox.ask(command, &[]).expect_exit(0);
        }
    }
}

#[test]
fn an_export_can_be_checked_by_anybody() {
    let sandbox = finished();
    let records = sandbox.run(&["export", "last"]).expect_exit(0).lines();
    let mut previous = [0; 32];
    for record in &records {
        let header = record["header"].as_str().expect("a header is the exact text");
        let hash = sha256(&[previous.as_slice(), header.as_bytes()].concat());
        assert_eq!(record["hash"], hash.to_string());
        previous = hash.0;
    }
    let head = sandbox.ask("verify", &[]).expect_exit(0).json();
    assert_eq!(records.last().map(|record| &record["hash"]), Some(&head["head"]["hash"]));
    assert_eq!(records.len(), 10);
}

#[test]
fn asking_changes_nothing() {
    let sandbox = finished();
    let before = sandbox.ask("verify", &[]).expect_exit(0).json();
    for arguments in [
        &["log", "last"][..],
        &["state", "last"],
        &["view", "last", "writer"],
        &["why", "last", "/answer"],
        &["replay", "last"],
        &["export", "last"],
        &["boards"],
        &["resume", "last"],
    ] {
        sandbox.run(arguments).expect_exit(0);
    }
    assert_eq!(sandbox.ask("verify", &[]).expect_exit(0).json(), before);
}
