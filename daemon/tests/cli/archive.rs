//! `archive`, `restore` and `delete`: an ended board leaves the journal, and is restored unchanged or deleted for good.

use std::fs;

use patchboard_kernel::digest::sha256;
use serde_json::{Value, json};

use crate::redact::{finished, holding};
use crate::sandbox::Sandbox;

/// Returns an archive as forged by an attacker who knows the format: changed lines, with the chain and the total hash
/// recomputed.
fn crafted(archive: &str, change: impl Fn(&mut Value)) -> String {
    let mut lines: Vec<Value> =
        archive.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    lines.pop();
    let mut previous = [0; 32];
    for line in &mut lines {
        change(line);
        if let Some(record) = line.get_mut("record") {
            let header = record["header"].as_str().expect("a header is text");
            previous = sha256(&[previous.as_slice(), header.as_bytes()].concat()).0;
            record["hash"] = patchboard_kernel::digest::Digest(previous).to_string().into();
        }
    }
    lines[0]["archive"]["hash"] = patchboard_kernel::digest::Digest(previous).to_string().into();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let end = json!({"end": sha256(text.as_bytes())});
    format!("{text}{end}\n")
}

/// Archives the finished board and returns the archive's text.
fn archived(sandbox: &Sandbox) -> String {
    let archived = sandbox.run(&["archive", "last", "--output", "json"]).expect_exit(0).json();
    fs::read_to_string(sandbox.path().join(archived["archive"].as_str().expect("a path"))).expect("it can be read")
}

/// Returns a change that replaces a text in a column of a record.
fn replaced<'a>(column: &'a str, from: &'a str, to: &'a str) -> impl Fn(&mut Value) + 'a {
    move |line| {
        if let Some(text) =
            line.get("record").and_then(|record| record[column].as_str()).map(|text| text.replace(from, to))
        {
            line["record"][column] = text.into();
        }
    }
}

#[test]
fn an_archived_board_is_gone_and_comes_back_as_it_was() {
    let sandbox = finished();
    let export = || sandbox.run(&["export", "last"]).expect_exit(0).stdout;
    let before = export();
    let archived = sandbox.run(&["archive", "last", "--output", "json"]).expect_exit(0).json();
    let board = archived["board"].as_str().expect("an id").to_owned();
    assert_eq!(sandbox.run(&["verify", &board, "--output", "json"]).expect_exit(2).error()["code"], "no_such_board");
    let listed = sandbox.run(&["archive", "--output", "json"]).expect_exit(0).lines();
    assert_eq!((listed[0]["board"].as_str(), &listed[0]["archive"]), (Some(board.as_str()), &archived["archive"]));
    let restored = sandbox.run(&["restore", &board, "--output", "json"]).expect_exit(0).json();
    assert_eq!(restored, json!({"board": board}));
    assert_eq!(export(), before);
    sandbox.run(&["verify", "last"]).expect_exit(0);
    sandbox.run(&["replay", "last"]).expect_exit(0);
    assert_eq!(sandbox.run(&["archive", "--output", "json"]).expect_exit(0).lines(), Vec::<serde_json::Value>::new());
    // The board already exists.
    assert_eq!(sandbox.run(&["restore", &board, "--output", "json"]).expect_exit(2).error()["code"], "board_exists");
}

#[test]
fn an_archive_that_was_altered_brings_nothing_back() {
    let sandbox = finished();
    let archived = sandbox.run(&["archive", "last", "--output", "json"]).expect_exit(0).json();
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
        assert_eq!(sandbox.run(&["restore", board, "--output", "json"]).expect_exit(1).error()["code"], "bad_archive");
    }
    fs::write(&path, text).expect("it can be written");
    sandbox.run(&["restore", path.to_str().expect("a path")]).expect_exit(0);
}

#[test]
fn a_deleted_board_is_in_no_file_and_leaves_its_last_hash() {
    let sandbox = finished();
    let verified = sandbox.run(&["verify", "last", "--output", "json"]).expect_exit(0).json();
    let delete = ["delete", "last", "--output", "json"];
    assert_eq!(sandbox.run(&delete).expect_exit(2).error()["code"], "not_confirmed");
    sandbox.run(&[&delete[..], &["--yes"]].concat()).expect_exit(0);
    assert!(holding(&sandbox.path().join(".patchboard")).is_empty());
    let listed = sandbox.run(&["archive", "--output", "json"]).expect_exit(0).lines();
    assert_eq!((&listed[0]["head"], &listed[0]["archive"]), (&verified["head"], &json!(null)));
    assert!(sandbox.run(&["boards", "--output", "json"]).expect_exit(0).lines().is_empty());
}

#[test]
fn an_archive_comes_back_in_a_data_directory_that_is_missing_or_empty() {
    let sandbox = finished();
    let before = sandbox.run(&["export", "last"]).expect_exit(0).stdout;
    sandbox.write("kept.jsonl", archived(&sandbox));
    fs::create_dir(sandbox.path().join("empty")).expect("it can be made");
    for directory in ["missing/below", "empty"] {
        let run = |arguments: &[&str]| sandbox.run(&[&["--data-dir", directory], arguments].concat()).expect_exit(0);
        run(&["restore", "kept.jsonl"]);
        assert_eq!(run(&["export", "last"]).stdout, before);
        run(&["verify", "last"]);
        run(&["replay", "last"]);
    }
}

#[test]
fn an_archive_is_checked_as_a_journal_is_before_anything_is_written() {
    let sandbox = finished();
    let archive = archived(&sandbox);
    let refuses = |text: String, code: &str, words: &str| {
        sandbox.write("crafted.jsonl", text);
        let arguments = ["--data-dir", "other", "restore", "crafted.jsonl", "--output", "json"];
        let refused = sandbox.run(&arguments).expect_exit(1).error();
        assert_eq!(refused["code"], code, "{words}: {refused}");
        assert!(refused["message"].as_str().is_some_and(|message| message.contains(words)), "{words}: {refused}");
        assert!(refused["message"].as_str().is_some_and(|message| message.len() < 400), "{words}: {refused}");
        assert!(refused["help"].as_str().is_some_and(|help| help.contains("nothing was changed")), "{refused}");
        assert!(!sandbox.path().join("other").exists(), "{words}: something was written");
    };
    let board =
        serde_json::from_str::<Value>(archive.lines().next().expect("a line")).expect("JSON")["archive"]["board"]
            .as_str()
            .expect("an id")
            .to_owned();
    let long = "b".repeat(1_000_000);
    for id in [
        "../../x",
        "./x",
        "/tmp/x",
        "a.b",
        "",
        "last",
        "-b",
        "--help",
        "b\u{1b}[31m",
        "b\nfake",
        "b\0",
        "ü",
        &long[..129],
        &long,
    ] {
        let quoted = json!(id).to_string();
        let text = crafted(&archive, |line| {
            replaced("header", &format!("\"{board}\""), &quoted)(line);
            if line.get("archive").is_some() {
                line["archive"]["board"] = id.into();
            }
        });
        refuses(text, "bad_board_id", "1 to 128 letters");
    }
    // The longest allowed id is accepted, so the crafted archive is otherwise valid.
    let longest = &long[..128];
    let text = crafted(&archive, |line| {
        replaced("header", &board, longest)(line);
        if line.get("archive").is_some() {
            line["archive"]["board"] = longest.into();
        }
    });
    sandbox.write("longest.jsonl", text);
    sandbox.run(&["--data-dir", "longest", "restore", "longest.jsonl"]).expect_exit(0);
    sandbox.run(&["--data-dir", "longest", "verify", longest]).expect_exit(0);

    let other_value = |line: &mut Value| {
        if line["record"]["kind"] == "committed" {
            replaced("payload", "first", "fir5t")(line);
        }
    };
    refuses(crafted(&archive, other_value), "bad_archive", "record 5 cannot be trusted: the value of");
    refuses(crafted(&archive, replaced("header", "\"version\":2", "\"version\":7")), "bad_archive", "record 8");
    let other_state = |line: &mut Value| {
        if line["record"]["kind"] == "committed" {
            let header = line["record"]["header"].as_str().expect("a header");
            let (before, after) = header.split_once("\"state\":\"").expect("a commit has the hash of its document");
            line["record"]["header"] = format!("{before}\"state\":\"{}{}", "0".repeat(64), &after[64..]).into();
        }
    };
    refuses(crafted(&archive, other_state), "bad_archive", "record 5");
    let other = |member: &'static str, value: Value| {
        move |line: &mut Value| {
            if line.get("archive").is_some() {
                line["archive"][member] = value.clone();
            }
        }
    };
    refuses(crafted(&archive, other("board", "another".into())), "bad_archive", &format!("it is of board {board}"));
    refuses(crafted(&archive, other("epoch", 7.into())), "bad_archive", "epoch is 7, the records say 0");
    refuses(crafted(&archive, other("seq", 7.into())), "bad_archive", "list of boards");
    refuses(crafted(&archive, other("seq", 70.into())), "bad_archive", "record 10 cannot be trusted: it is missing");
    let untold = |line: &mut Value| {
        if line.get("text").is_some() {
            line["text"] = json!({"hash": sha256(b"another"), "text": "another"});
        }
    };
    refuses(crafted(&archive, untold), "bad_archive", "is missing");
    let altered = |line: &mut Value| {
        if line.get("text").is_some() {
            line["text"]["text"] = "another".into();
        }
    };
    refuses(crafted(&archive, altered), "bad_archive", "is not the one with the hash");
    let twice = archive.replacen("\"payload\":", "\"payload\":\"{}\",\"payload\":", 1);
    refuses(twice, "bad_archive", "line 2");
    refuses(format!("{archive}{archive}"), "bad_archive", "goes on after its end");
    refuses("[".repeat(1_000_000), "bad_archive", "line 1");
    let exported = sandbox.run(&["--data-dir", "longest", "export", "last"]).expect_exit(0).stdout;
    refuses(exported, "bad_archive", "it is an export");
}

#[test]
fn a_board_that_does_not_verify_stays_in_the_journal() {
    let sandbox = finished();
    let journal = rusqlite::Connection::open(sandbox.path().join(".patchboard/patchboard.db")).expect("a database");
    let sql = "UPDATE records SET payload = replace(payload, 'first', 'fir5t') WHERE seq = 5";
    assert_eq!(journal.execute(sql, ()).expect("it can be altered"), 1);
    drop(journal);
    let refused = sandbox.run(&["archive", "last", "--output", "json"]).expect_exit(1).error();
    assert_eq!(refused["code"], "bad_archive", "{refused}");
    assert_eq!(sandbox.run(&["boards", "--output", "json"]).expect_exit(0).lines().len(), 1);
}

#[test]
fn the_list_of_boards_alone_decides_nothing() {
    let code = |sandbox: &Sandbox, arguments: &[&str]| {
        sandbox.run(&[arguments, &["--output", "json"]].concat()).expect_exit(1).error()["code"].clone()
    };
    let other = "0".repeat(64);
    for change in ["ended = 'cancelled'", "ended = NULL", "version = version + 1", &format!("last_hash = '{other}'")] {
        let sandbox = finished();
        let file = sandbox.path().join(".patchboard/patchboard.db");
        let connection = rusqlite::Connection::open(&file).expect("it can be opened");
        connection.execute(&format!("UPDATE boards SET {change}"), []).expect("it can be written");
        drop(connection);
        for command in [&["archive", "last"][..], &["delete", "last", "--yes"], &["heads"]] {
            assert_eq!(code(&sandbox, command), "bad_record", "{change}: {command:?}");
        }
        let listed = sandbox.run(&["boards", "--output", "json"]).expect_exit(0).lines();
        assert_eq!(listed[0]["status"], "damaged", "{change}");
        assert!(!holding(&sandbox.path().join(".patchboard")).is_empty(), "it is still there");
    }
    // The board is missing from the list of boards, and its records exist.
    let sandbox = finished();
    let connection = rusqlite::Connection::open(sandbox.path().join(".patchboard/patchboard.db")).expect("it opens");
    connection.execute("DELETE FROM boards", []).expect("it can be written");
    drop(connection);
    for command in ["boards", "heads"] {
        assert_eq!(code(&sandbox, &[command]), "records_lost");
    }
    assert_eq!(sandbox.run(&["doctor", "--offline"]).code, 1);
}
