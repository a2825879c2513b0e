//! The reach of `redact`, row by row of the table in docs/erasure.md: every byte of every file is searched.

use std::fs;
use std::path::{Path, PathBuf};

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use serde_json::json;

use crate::held::holding;
use crate::inner;
use crate::sandbox::{CommandResult, Sandbox};
use crate::voices::{copy_into, voices};

/// The page with the table.
const PAGE: &str = include_str!("../../../docs/erasure.md");

/// A text that occurs nowhere else.
const SECRET: &str = "Quisquilius, born 1979";

/// A row of the table: its first column, and its test.
type Row = (&'static str, fn());

/// Rows of the table.
const ROWS: [Row; 11] = [
    ("values and texts in records, names of members", records),
    ("views and prompts", views),
    ("the blueprint, without `state.initial`", blueprint),
    ("snapshots, free pages, the write-ahead log", pages),
    ("`archive/BOARD.jsonl`", archives),
    ("`patchboard.marks`, `locks`, `notify`, `daemon.db`, lines of the log", others),
    ("recordings (`--record`)", recordings),
    ("boards inside, and around", boards),
    ("`departments.sqlite`", departments),
    ("the board's directory of files, `.patchboard/displaced` in it", directories),
    ("exports, copies, backups, what models were sent", copies),
];

/// A blueprint in which a model keeps a list of people.
const NAMED: &str = "blueprint: 1
name: named
request: {type: object}
state:
  schema: {type: object, properties: {request: {}, people: {type: object}}, additionalProperties: false}
  initial: {people: {}}
workers:
  clerk:
    agent: llm
    role: Keep the list.
    reads: [/request, /people]
    writes: [{path: /people/*, ops: [add]}]
rules:
  - {name: begin, trigger: start, run: clerk}
  - {name: more, trigger: {op: add, path: /people/*}, run: clerk}
done: {when: size(state.people) > 2}
";

/// Runs a board to its end: the kernel rejects its model once, then the model adds a member with a name, and two more.
fn named(more: &[&str], request: &str) -> (Sandbox, Endpoint) {
    let sandbox = Sandbox::new();
    sandbox.write("named.yaml", NAMED);
    let refused = json!([{"op": "add", "path": "/elsewhere", "value": SECRET}]).to_string();
    let accepted = |name: &str| {
        let patch = json!([{"op": "add", "path": format!("/people/{name}"), "value": {"was": SECRET}}]);
        json!({"patch": patch, "intent": SECRET}).to_string()
    };
    let accepted = ["Ada Zaphod", "Bea Zaphod", "Cai Zaphod"].map(accepted);
    let replies = [refused].into_iter().chain(accepted).map(|reply| ScriptedResponse::answer(&reply, 20, 2));
    let endpoint = Endpoint::new(replies.collect());
    sandbox.write("request.json", request);
    let run = ["run", "named.yaml", "-q", "--request", "@request.json", "--model-url", &endpoint.url, "--model", "m"];
    sandbox.run(&[&run[..], more].concat()).expect_exit(0);
    (sandbox, endpoint)
}

/// Returns the board with the secret in its request.
fn done() -> Sandbox {
    named(&[], &json!({"who": SECRET}).to_string()).0
}

fn data(sandbox: &Sandbox) -> PathBuf {
    sandbox.path().join(".patchboard")
}

/// Returns the names of the files of a directory that contain the secret or the name.
fn held(directory: &Path) -> Vec<String> {
    let found = holding(directory, &["Quisquilius", "born 1979", "Zaphod"]);
    found.iter().map(|path| path.strip_prefix(directory).expect("below").display().to_string()).collect()
}

/// Redacts every secret value.
fn redact(sandbox: &Sandbox, more: &[&str]) -> CommandResult {
    let places = ["redact", "last", "/people", "/request/who", "--output", "json"];
    sandbox.run(&[&places[..], more].concat()).expect_exit(0)
}

#[test]
fn the_table_has_these_rows() {
    let table = PAGE.lines().skip_while(|line| !line.starts_with("| it holds values |")).skip(2);
    let table = table.take_while(|line| line.starts_with('|'));
    let rows: Vec<&str> =
        table.map(|line| line.split(" | ").next().unwrap_or_default().trim_start_matches("| ")).collect();
    assert_eq!(rows, ROWS.map(|(row, _)| row));
}

#[test]
fn each_row_is_so() {
    for (row, test) in ROWS {
        println!("{row}");
        test();
    }
}

fn records() {
    let sandbox = done();
    let log = |expected: usize| {
        let exported = sandbox.run(&["export", "last"]).expect_exit(0).stdout;
        assert_eq!(
            usize::from(exported.contains("Zaphod") || exported.contains("Quisquilius")),
            expected,
            "{exported}"
        );
    };
    log(1);
    redact(&sandbox, &[]);
    log(0);
    assert_eq!(held(&data(&sandbox)), [""; 0]);
    for command in ["verify", "replay", "log", "state"] {
        sandbox.run(&[command, "last"]).expect_exit(0);
    }
}

fn views() {
    let (sandbox, endpoint) = named(&[], &json!({"who": SECRET}).to_string());
    assert!(endpoint.bodies().iter().any(|body| body.to_string().contains(SECRET)), "it was shown");
    assert!(redact(&sandbox, &[]).json()["texts"].as_u64() > Some(0));
    assert_eq!(held(&data(&sandbox)), [""; 0]);
}

fn pages() {
    let sandbox = done();
    let connection = rusqlite::Connection::open(data(&sandbox).join("patchboard.db")).expect("it can be opened");
    // A part of a snapshot, and the bytes of a deleted row that SQLite keeps.
    for statement in [
        "INSERT INTO parts (board, hash, names, bytes) SELECT board, '00', '', CAST(?1 AS BLOB) FROM boards",
        "INSERT INTO blobs (hash, bytes) VALUES ('00', CAST(?1 AS BLOB))",
    ] {
        connection.execute(statement, [SECRET.repeat(1000)]).expect("it can be written");
    }
    connection.execute("DELETE FROM blobs WHERE hash = '00'", []).expect("it can be written");
    drop(connection);
    redact(&sandbox, &[]);
    assert_eq!(held(&data(&sandbox)), [""; 0]);
}

fn archives() {
    let sandbox = done();
    let archived = sandbox.run(&["archive", "last", "--output", "json"]).expect_exit(0).json();
    let board = archived["board"].as_str().expect("an id");
    sandbox.run(&["restore", board]).expect_exit(0);
    assert!(held(&data(&sandbox)).contains(&format!("archive/{board}.jsonl")));
    redact(&sandbox, &[]);
    assert_eq!(held(&data(&sandbox)), [""; 0]);
    assert!(sandbox.path().join(archived["archive"].as_str().expect("a file")).is_file());
}

fn others() {
    let sandbox = done();
    sandbox.run(&["token", "create", "--scope", "read"]).expect_exit(0);
    let held = held(&data(&sandbox));
    assert!(held.iter().all(|name| name.starts_with("patchboard.db")) && !held.is_empty(), "{held:?}");
}

fn recordings() {
    let (sandbox, _) = named(&["--record", "tape.jsonl"], &json!({"who": SECRET}).to_string());
    let tape = || held(sandbox.path()).contains(&"tape.jsonl".to_owned());
    redact(&sandbox, &[]);
    assert!(tape(), "it is another's file");
    sandbox.run(&["redact", "last", "--cassette", "tape.jsonl"]).expect_exit(0);
    assert!(!tape());
}

fn boards() {
    let sandbox = inner::sandbox();
    sandbox.run(&["run", "outer.yaml", "-q", "--request", &json!({"text": SECRET}).to_string()]).expect_exit(0);
    let erase =
        |board: &str| sandbox.run(&["redact", board, "/request/text", "--output", "json"]).expect_exit(0).json();
    let related = erase("last")["related"].clone();
    assert!(held(&data(&sandbox)).contains(&"patchboard.db".to_owned()));
    // Related boards in archives are found, too.
    let inner = related[0].as_str().expect("an id");
    sandbox.run(&["archive", inner]).expect_exit(0);
    assert_eq!(erase_again(&sandbox)["related"], related);
    sandbox.run(&["restore", inner]).expect_exit(0);
    for board in related.as_array().expect("boards") {
        erase(board.as_str().expect("an id"));
    }
    assert_eq!(held(&data(&sandbox)), [""; 0]);
}

/// Redacts the outer board again, with its salt.
fn erase_again(sandbox: &Sandbox) -> serde_json::Value {
    sandbox.run(&["redact", "last", "--forget-salt", "--output", "json"]).expect_exit(0).json()
}

fn blueprint() {
    for (description, is_named) in [("Notes.", false), (SECRET, true)] {
        let sandbox = Sandbox::new();
        let text = fs::read_to_string(sandbox.path().join("notes.yaml")).expect("it can be read");
        let described = |line: &str| match line.starts_with("description:") {
            true => format!("description: {}\n", json!(description)),
            false => format!("{line}\n"),
        };
        sandbox.write("notes.yaml", text.lines().map(described).collect::<String>());
        let request = json!({"topic": SECRET}).to_string();
        sandbox.run(&["run", "notes.yaml", "--request", &request, "-q"]).expect_exit(0);
        let redact = ["redact", "last", "/request/topic"];
        let report = sandbox.run(&[&redact[..], &["--output", "json"]].concat()).expect_exit(0).json();
        let still = report["still"].as_array().expect("a list");
        assert_eq!(still.iter().any(|still| still["place"] == "blueprint"), is_named, "{report}");
        assert_eq!(!held(&data(&sandbox)).is_empty(), is_named);
    }
}

fn departments() {
    let (sandbox, voices) = (Sandbox::new(), voices());
    copy_into(sandbox.path());
    let model = ["--model-url", &voices.url, "--model", "m"];
    // The word does not occur in the manifest.
    let request = r#"{"text": "Put quisquiliae on the household list."}"#;
    sandbox.run(&[&["run", "clipboard.yaml", "-q", "--request", request][..], &model].concat()).expect_exit(4);
    sandbox.run(&[&["signal", "last", "close"][..], &model].concat()).expect_exit(0);
    let held = || holding(&data(&sandbox), &["quisquiliae"]);
    let file = data(&sandbox).join("departments.sqlite");
    assert!(held().contains(&file));
    let mut erased = Vec::new();
    for board in sandbox.run(&["--output", "json", "boards"]).expect_exit(0).lines() {
        let redact = ["--output", "json", "redact", board["board"].as_str().expect("an id"), "", "--everywhere"];
        let undecided = sandbox.run(&redact);
        // Nothing is redacted before the operator decides about the rows.
        if undecided.stderr.contains("kept_by_departments") {
            assert!(undecided.stderr.contains("1 row of the department notes (1)"), "{}", undecided.stderr);
            let report = sandbox.run(&[&redact[..], &["--departments", "erase"]].concat()).expect_exit(0).json();
            erased.push(report["departments"].clone());
        }
    }
    assert_eq!(held(), [""; 0].map(PathBuf::from));
    assert_eq!(erased, [json!({"rows": {"notes": [1]}, "outcomes": 1, "erased": true})]);
    let connection = rusqlite::Connection::open(file).expect("it can be opened");
    let kept = "SELECT count(*) FROM documents WHERE collection IN ('rows/notes', 'history/notes') \
                AND value ->> '$.deleted' AND value ->> '$.values' = '{}'";
    assert_eq!(connection.query_row(kept, [], |row| row.get::<_, i64>(0)), Ok(1));
}

fn directories() {
    let sandbox = Sandbox::new();
    let with = json!({"path": "a.txt", "file_text": format!("{SECRET}\n"), "intent": "note"}).to_string();
    let patch = ScriptedResponse::answer(r#"[{"op":"replace","path":"/answer","value":"noted"}]"#, 20, 2);
    let endpoint = Endpoint::new(vec![ScriptedResponse::call_tools(&[("c1", "create", &with)], 10, 5), patch]);
    sandbox.write(
        "patchboard.toml",
        format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n[workspaces.code]\ndir = \"code\"\n", endpoint.url),
    );
    sandbox.write("code/.patchboard/displaced/sha", SECRET);
    sandbox.write(
        "edit.yaml",
        "blueprint: 1\nname: edit\nworkspace: {dir: code}\nstate:\n  schema: {type: object, properties: {answer: {type: string}}}\n  \
         initial: {answer: \"\"}\nworkers:\n  a:\n    agent: llm\n    role: Edit.\n    writes: [{path: /answer, ops: [replace]}]\n    \
         files: {view: [\"**\"], edit: [\"**\"]}\nrules: [{name: go, trigger: start, run: a}]\ndone: {when: 'state.answer != \"\"'}\n",
    );
    sandbox.run(&["run", "edit.yaml", "-q"]).expect_exit(0);
    assert!(!held(&data(&sandbox)).is_empty());
    sandbox.run(&["redact", "last", "/files/a.txt"]).expect_exit(0);
    assert_eq!(held(&data(&sandbox)), [""; 0]);
    let mut held = held(&sandbox.path().join("code"));
    held.sort();
    assert_eq!(held, [".patchboard/displaced/sha", "a.txt"]);
}

fn copies() {
    let sandbox = done();
    sandbox.write("copy.jsonl", sandbox.run(&["export", "last"]).expect_exit(0).stdout);
    redact(&sandbox, &[]);
    let copy = fs::read_to_string(sandbox.path().join("copy.jsonl")).expect("it can be read");
    assert!(copy.contains("Quisquilius"));
    // The old copy still verifies, with the board's head of that time.
    sandbox.run(&["verify", "copy.jsonl"]).expect_exit(0);
}
