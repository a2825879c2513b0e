//! `patchboard dry-run`: repeats one worker's call on an earlier state and keeps nothing.

use std::path::PathBuf;

use patchboard_kernel::digest::{Digest, sha256};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::sandbox::{CommandResult, Sandbox, notes_by, shipped};
use crate::voices::{copy_into, voices};

/// Returns the non-empty files of the data directory with their digests.
fn files(sandbox: &Sandbox) -> Vec<(PathBuf, Digest)> {
    let directory = std::fs::read_dir(sandbox.path().join(".patchboard")).expect("there are boards");
    let paths = directory.map(|entry| entry.expect("an entry").path());
    // Shared memory of concurrent readers.
    let is_shared =
        |path: &PathBuf| path.extension().is_some_and(|ending| ending == "db-shm" || ending == "sqlite-shm");
    let paths = paths.filter(|path| path.is_file() && !is_shared(path));
    let mut files: Vec<_> =
        paths.map(|path| (path.clone(), sha256(&std::fs::read(&path).expect("it can be read")))).collect();
    // A reader may leave an empty log.
    files.retain(|(_, bytes)| *bytes != sha256(b""));
    files.sort();
    files
}

impl Sandbox {
    fn step(&self, at: u64, worker: &str, more: &[&str]) -> CommandResult {
        let at = at.to_string();
        self.run(&[&["step", "last", "--at", &at, "--worker", worker, "--output", "json"], more].concat())
    }

    fn journal(&self) -> Vec<Value> {
        self.run(&["log", "last", "--output", "json"]).expect_exit(0).lines()
    }
}

fn finished() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "notes.yaml", "--request", r#"{"topic":"x"}"#, "-q"]).expect_exit(0);
    sandbox
}

#[test]
fn every_attempt_of_a_recorded_run_comes_to_the_same_again() {
    let sandbox = Sandbox::new();
    let (blueprint, request) = (shipped("evidence-review.yaml"), shipped("evidence-review/request.json"));
    let cassette = shipped("evidence-review/cassette.jsonl");
    let request = format!("@{request}");
    sandbox.run(&["run", &blueprint, "--request", &request, "--cassette", &cassette, "-q"]).expect_exit(0);
    let before = files(&sandbox);
    let records = sandbox.journal();
    let (mut commits, mut refusals, mut attempts) = (0, 0, 0);
    for record in &records {
        let (seq, kind) = (record["seq"].as_u64().expect("a number"), record["kind"].as_str().expect("a kind"));
        let worker = record["by"]["worker"].as_str().or_else(|| record["worker"].as_str());
        let code = match kind {
            "committed" => 0,
            "rejected" => 1,
            // The result is compared with the attempt's later outcome.
            "invoked" => {
                attempts += 1;
                let stepped = sandbox.step(seq, worker.expect("a worker"), &["--cassette", &cassette]).json();
                assert_eq!(stepped["recorded"]["same"], true, "{stepped}");
                assert_eq!(stepped["view"]["hash"], record["view"], "{stepped}");
                continue;
            }
            _ => continue,
        };
        let stepped =
            sandbox.step(seq, worker.expect("an author"), &["--cassette", &cassette]).expect_exit(code).json();
        assert_eq!(
            (&stepped["recorded"]["same"], &stepped["recorded"]["seq"]),
            (&json!(true), &json!(seq)),
            "{stepped}"
        );
        assert_eq!(stepped["view"]["hash"], stepped["view"]["recorded"]);
        if kind == "committed" {
            commits += 1;
            assert_eq!((&stepped["patch"], &stepped["outcome"]), (&record["patch"], &json!("committed")));
            assert_eq!(stepped["version"].as_u64().map(|version| version + 1), record["version"].as_u64());
        } else {
            refusals += 1;
            assert_eq!(stepped["rejection"]["code"], record["code"]);
        }
    }
    assert!(commits > 3 && refusals > 0 && attempts == commits + refusals, "{commits} {refusals} {attempts}");
    assert_eq!(files(&sandbox), before, "a step writes nothing");
}

#[test]
fn a_script_goes_on_where_it_was_and_a_reply_by_hand_is_judged_as_it_would_have_been() {
    let sandbox = finished();
    // Records: created scheduled invoked rejected invoked committed scheduled invoked committed ended
    let refused = sandbox.step(3, "writer", &[]).expect_exit(1).json();
    assert_eq!((&refused["outcome"], &refused["recorded"]["same"]), (&json!("rejected"), &json!(true)), "{refused}");
    let second = sandbox.step(5, "writer", &[]).expect_exit(0).json();
    assert_eq!((&second["attempt"], &second["recorded"]["same"]), (&json!(2), &json!(true)), "{second}");
    let note = json!({"text": "first", "status": "draft"});
    assert_eq!(second["changes"], json!([{"path": "/notes/0", "after": note}]));
    let text = sandbox.run(&["step", "last", "--at", "5", "--worker", "writer"]).expect_exit(0).stdout;
    assert!(text.contains("would commit version 1") && text.ends_with("record 5 (committed): the same\n"), "{text}");

    let other = r#"[{"op":"add","path":"/notes/-","value":{"text":"other","status":"draft"}}]"#;
    sandbox.write("other.json", other);
    let differs = sandbox.step(5, "writer", &["--reply", "other.json"]).expect_exit(0).json();
    assert_eq!((&differs["outcome"], &differs["recorded"]["same"]), (&json!("committed"), &json!(false)), "{differs}");
    let by_hand = ["step", "last", "--at", "5", "--worker", "writer", "--reply", "-"];
    let text = sandbox.run_with(&by_hand, other).expect_exit(0).stdout;
    assert!(text.contains("record 5 (committed) differs: ") && text.contains("\"first\""), "{text}");
    let denied = r#"[{"op":"add","path":"/answer","value":"mine"}]"#;
    let refused = sandbox.run_with(&[&by_hand[..], &["--output", "json"]].concat(), denied).expect_exit(1).json();
    assert_eq!(refused["rejection"]["code"], "path_not_granted");
    assert_eq!(
        sandbox.run_with(&[&by_hand[..], &["--output", "json"]].concat(), "[]").expect_exit(0).json()["outcome"],
        "no_op"
    );
}

#[test]
fn elsewhere_the_worker_is_shown_the_board_of_that_moment() {
    let sandbox = finished();
    // Before the note was checked, the start had triggered the writer.
    let stepped = sandbox.step(8, "writer", &["--reply", "/dev/null"]).expect_exit(1).json();
    assert_eq!((&stepped["trigger"]["kind"], &stepped["view"]["version"]), (&json!("start"), &json!(1)), "{stepped}");
    assert_eq!((&stepped["attempt"], &stepped["view"]["recorded"]), (&Value::Null, &Value::Null));
    assert_eq!(stepped["recorded"]["seq"], 5, "the last that came of that trigger");
    // The checker had not been triggered yet.
    let patch = r#"[{"op":"replace","path":"/notes/0/status","value":"checked"}]"#;
    sandbox.write("patch.json", patch);
    let early = sandbox.step(5, "checker", &["--reply", "patch.json"]).expect_exit(1).json();
    assert_eq!((&early["trigger"], &early["recorded"]), (&Value::Null, &Value::Null));
    assert_eq!(early["rejection"]["stage"], "application");
    let checked = sandbox.step(7, "checker", &["--reply", "patch.json"]).expect_exit(0).json();
    assert_eq!(checked["changes"], json!([{"path": "/notes/0/status", "before": "draft", "after": "checked"}]));
    assert_eq!(checked["recorded"]["same"], false);
}

#[test]
fn a_changed_program_gives_a_different_step_outcome() {
    let sandbox = Sandbox::new();
    let program = |text: &str| {
        let reply = json!({"patch": [{"op": "add", "path": "/notes/-", "value": {"text": text, "status": "draft"}}]});
        sandbox.write("reply.sh", format!("cat > /dev/null\ncat <<'END'\n{reply}\nEND\n"));
    };
    program("first");
    sandbox.write("notes.yaml", notes_by("command", ""));
    sandbox.write("patchboard.toml", "[commands.writer]\nprogram = [\"/bin/sh\", \"reply.sh\"]\n");
    sandbox.run(&["run", "notes.yaml", "--request", r#"{"topic":"x"}"#, "-q"]).expect_exit(0);
    let seq = sandbox.journal().iter().find(|record| record["kind"] == "committed").expect("a commit")["seq"].as_u64();
    let seq = seq.expect("a number");
    let before = files(&sandbox);
    assert_eq!(sandbox.step(seq, "writer", &[]).expect_exit(0).json()["recorded"]["same"], true);
    program("second");
    let stepped = sandbox.step(seq, "writer", &[]).expect_exit(0).json();
    assert_eq!(stepped["recorded"]["same"], false);
    assert_eq!(stepped["changes"][0]["after"]["text"], "second");
    sandbox.write("reply.sh", "exit 3\n");
    let failed = sandbox.step(seq, "writer", &[]).expect_exit(1).json();
    assert_eq!((&failed["outcome"], &failed["recorded"]["same"]), (&json!("failed"), &json!(false)), "{failed}");
    assert_eq!(files(&sandbox), before);
}

#[test]
fn a_record_that_is_missing_is_named() {
    let sandbox = finished();
    let journal = Connection::open(sandbox.path().join(".patchboard/patchboard.db")).expect("it is a database");
    assert_eq!(journal.execute("DELETE FROM records WHERE seq = 4", ()).expect("records can be deleted"), 1);
    let missing = sandbox.step(9, "writer", &[]).expect_exit(1).error();
    assert_eq!((&missing["code"], &missing["seq"]), (&json!("bad_record"), &json!(4)), "{missing}");
}

#[test]
fn invalid_steps_are_rejected_with_advice() {
    let sandbox = finished();
    let refused = |at, worker, more: &[&str]| sandbox.step(at, worker, more).expect_exit(2).error();
    assert_eq!(refused(5, "nobody", &[])["code"], "no_such_worker");
    assert_eq!(refused(5, "nobody", &[])["workers"], json!(["checker", "writer"]));
    let beyond = refused(99, "writer", &[]);
    assert_eq!((&beyond["code"], &beyond["last"]), (&json!("no_such_record"), &json!(9)));
    assert_eq!(refused(0, "writer", &[])["code"], "no_such_record");
    assert_eq!(refused(5, "writer", &["--reply", "missing.json"])["code"], "reply_unreadable");
    sandbox.run(&["redact", "last", "/notes/0/text"]).expect_exit(0);
    let erased = refused(8, "checker", &[]);
    assert_eq!((&erased["code"], &erased["seq"]), (&json!("values_erased"), &json!(5)));
    let at_it = sandbox.step(5, "writer", &[]).expect_exit(0).json();
    assert_eq!((&at_it["recorded"]["erased"], &at_it["recorded"]["same"]), (&json!(true), &Value::Null), "{at_it}");
    let archived = sandbox.run(&["archive", "last", "--output", "json"]).expect_exit(0).json();
    let board = archived["board"].as_str().expect("an id");
    let gone =
        sandbox.run(&["step", board, "--at", "5", "--worker", "writer", "--output", "json"]).expect_exit(2).error();
    assert_eq!(gone["code"], "no_such_board");
    assert!(gone["help"].as_str().is_some_and(|help| help.contains(&format!("patchboard restore {board}"))), "{gone}");
}

#[test]
fn a_file_editing_worker_is_stepped_only_with_a_given_reply() {
    let sandbox = Sandbox::new();
    crate::tools::played(&sandbox, 9);
    let records = sandbox.journal();
    let seq = records.iter().find(|record| record["kind"] == "committed").expect("a commit")["seq"].as_u64();
    let seq = seq.expect("a number");
    let before = files(&sandbox);
    let refused =
        sandbox.step(seq, "ada", &["--model-url", "http://127.0.0.1:9/v1", "--model", "m"]).expect_exit(2).error();
    assert_eq!(refused["code"], "uses_files", "{refused}");
    sandbox.write("reply.json", r#"[{"op": "add", "path": "/list/-", "value": 1}]"#);
    let by_hand = sandbox.step(seq, "ada", &["--reply", "reply.json"]).expect_exit(0).json();
    assert_eq!(by_hand["recorded"]["same"], true, "{by_hand}");
    assert_eq!(files(&sandbox), before);
}

#[test]
fn the_roles_of_a_department_find_the_rows_and_the_time_of_then() {
    let (sandbox, voices) = (Sandbox::new(), voices());
    copy_into(sandbox.path());
    let model = ["--model-url", &voices.url, "--model", "m", "-q"];
    let begin = ["run", "clipboard.yaml", "--request", r#"{"text": "Put bananas on the household list."}"#];
    sandbox.run(&[&begin[..], &model].concat()).expect_exit(4);
    for words in ["Put bananas on the office list.", "Throw the bananas off the list.", "the household one"] {
        sandbox.run(&[&["signal", "last", "say", &json!(words).to_string()][..], &model].concat()).expect_exit(4);
    }
    let before = files(&sandbox);
    let boards = sandbox.run(&["--output", "json", "boards"]).expect_exit(0).lines();
    let (mut stepped, mut expires) = (Vec::new(), 0);
    for board in boards.iter().filter(|board| board["name"] == "notes") {
        let board = board["board"].as_str().expect("an id");
        let records = sandbox.run(&["log", board, "--output", "json"]).expect_exit(0).lines();
        for record in records.iter().filter(|record| record["kind"] == "invoked") {
            let worker = record["worker"].as_str().expect("a name");
            if !["resolve", "resume", "crud", "confirm"].contains(&worker) {
                continue;
            }
            let seq = record["seq"].to_string();
            let step = ["step", board, "--at", &seq, "--worker", worker, "--output", "json"];
            let mut came = sandbox.run(&step).expect_exit(0).json();
            // The expiry of a question depends on the clock, which is fixed at the call.
            let then = came["recorded"]["patch"][0]["value"]["pending"]["expires_at"].clone();
            if let Some(at) = came.pointer_mut("/patch/0/value/pending/expires_at") {
                let wait = at.as_i64().expect("a time") - record["at"].as_i64().expect("a time");
                assert_eq!(wait, 300_000, "{record}");
                expires += 1;
                *at = then;
            }
            assert_eq!(came["patch"], came["recorded"]["patch"], "{worker}: {came}");
            let status = came["patch"][0]["value"]["status"].as_str().unwrap_or_default().to_owned();
            stepped.push(format!("{worker} {status}"));
        }
    }
    stepped.sort();
    let expected = [
        "confirm clarification",
        "confirm done",
        "confirm done",
        "confirm done",
        "crud done",
        "crud done",
        "crud done",
        "resolve found",
        "resolve found",
        "resolve open",
        "resume found",
    ];
    assert_eq!((stepped, expires), (expected.map(str::to_owned).to_vec(), 1));
    assert_eq!(files(&sandbox), before, "a step writes nothing");
}
