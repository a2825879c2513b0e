//! Nested boards on the command line: from files, in lists, recorded and replayed.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;

/// A board with a nested board as its only worker, defined in its own file.
const OUTER: &str = r#"blueprint: 1
name: outer
request: {type: object, required: [text], properties: {text: {type: string}}}
state:
  schema:
    type: object
    additionalProperties: false
    properties: {request: true, length: {type: integer}}
workers:
  counter:
    agent: board
    reads: [/request/text]
    writes: [{path: /length, ops: [add]}]
    board: {of: counter, input: {text: /request/text}, output: {/length: /count}}
rules:
  - {name: begin, trigger: start, run: counter}
done: {when: has(state.length)}
boards:
  counter: parts/counter.yaml
"#;

/// The nested board: two programs, one after the other.
const COUNTER: &str = r#"blueprint: 1
name: counter
request: {type: object, required: [text], additionalProperties: false, properties: {text: {type: string}}}
state:
  schema: {type: object, additionalProperties: false, properties: {request: true, count: {type: integer}, trimmed: {type: string}}}
workers:
  trimmer:
    agent: command
    command: trim
    reads: [/request]
    writes: [{path: /trimmed, ops: [add]}]
  counter:
    agent: command
    command: count
    reads: [/trimmed]
    writes: [{path: /count, ops: [add]}]
rules:
  - {name: begin, trigger: start, run: trimmer}
  - {name: trimmed, trigger: {op: add, path: /trimmed}, run: counter}
done: {when: has(state.count)}
"#;

pub(crate) fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path().join("parts")).expect("a directory");
    sandbox.write("outer.yaml", OUTER);
    sandbox.write("parts/counter.yaml", COUNTER);
    let trim = r#"read line; printf '{"patch":[{"op":"add","path":"/trimmed","value":"%s"}]}\n' abc"#;
    let count = r#"read line; printf '{"patch":[{"op":"add","path":"/count","value":3}]}\n'"#;
    let programs = format!(
        "[commands.trim]\nprogram = [\"sh\", \"-c\", {trim:?}]\n[commands.count]\nprogram = [\"sh\", \"-c\", {count:?}]\n"
    );
    sandbox.write("patchboard.toml", programs);
    sandbox
}

fn boards(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.run(&["--output", "json", "boards"]).expect_exit(0).lines()
}

#[test]
fn a_board_inside_is_a_board_like_any_other() {
    let sandbox = sandbox();
    let ran = sandbox
        .run(&["--output", "json", "run", "outer.yaml", "--request", r#"{"text": " abc "}"#])
        .expect_exit(0)
        .json();
    assert_eq!(ran["state"]["length"], 3);
    let boards = boards(&sandbox);
    let [outer, inside] = boards.as_slice() else { panic!("{boards:?}") };
    assert_eq!(
        (&outer["parent"], &inside["parent"], &inside["name"]),
        (&Value::Null, &outer["board"], &json!("counter"))
    );
    let listed = sandbox.run(&["boards"]).expect_exit(0).stdout;
    let parent = outer["board"].as_str().expect("an id");
    assert!(listed.contains(&format!("counter in {parent}")), "{listed}");
    // `last` means the board that the user started.
    assert_eq!(sandbox.run(&["--output", "json", "state", "last"]).expect_exit(0).json()["state"]["length"], 3);
    let id = inside["board"].as_str().expect("an id");
    for board in ["last", id] {
        sandbox.run(&["replay", board]).expect_exit(0);
        sandbox.run(&["verify", board]).expect_exit(0);
    }
    let why = sandbox.run(&["why", "last", "/length"]).expect_exit(0).stdout;
    assert!(why.contains("counter"), "{why}");
    // Both boards contain the passed values, and each board is redacted separately.
    let redacted = sandbox.run(&["--output", "json", "redact", "last", "/request/text"]).expect_exit(0).json();
    assert_eq!(redacted["related"], json!([id]));
    let redaction = sandbox.run(&["redact", id, "/request/text"]).expect_exit(0);
    assert!(redaction.stderr.contains(parent), "{}", redaction.stderr);
}

#[test]
fn errors_of_nested_boards_are_reported_at_their_position() {
    let sandbox = sandbox();
    sandbox.write("parts/counter.yaml", COUNTER.replace("reads: [/trimmed]", "reads: [/trimed]"));
    let check = sandbox.run(&["check", "outer.yaml"]).expect_exit(2).stdout;
    assert!(check.contains("parts/counter.yaml:15:13") && check.contains("unknown_path"), "{check}");
    sandbox.write("parts/counter.yaml", COUNTER);
    sandbox.write("patchboard.toml", "");
    let ran = sandbox.run(&["run", "outer.yaml", "--request", r#"{"text": "abc"}"#]).expect_exit(2).stderr;
    assert!(ran.contains("no program trim") && ran.contains("in the board inside, counter"), "{ran}");
}

#[test]
fn nested_view_shortages_are_reported_by_check_and_run() {
    let sandbox = sandbox();
    sandbox.write(
        "parts/counter.yaml",
        COUNTER.replace("    reads: [/request]\n", "    reads: [/request]\n    view: {budget: 1500}\n"),
    );
    let request = json!({"text": "word ".repeat(700)}).to_string();
    let sentence = "trimmer does not see all of /request/text: it needs up to 3,502 characters beside the rest, view.budget \
                    is 1,500";
    let check = sandbox.run(&["check", "outer.yaml", "--request", &request]).expect_exit(0).stdout;
    for part in [sentence, "with what `counter` gives its board", "parts/counter.yaml:"] {
        assert!(check.contains(part), "{part:?} is not in:\n{check}");
    }
    let ran = sandbox.run(&["run", "outer.yaml", "--request", &request]).expect_exit(0).stderr;
    assert_eq!(ran.matches(&format!("in the board inside, counter: {sentence}")).count(), 1, "{ran}");
    let ran = sandbox.run(&["--output", "json", "run", "outer.yaml", "--request", &request]).expect_exit(0).json();
    assert_eq!(ran["unshown"][0]["worker"], "trimmer", "{ran}");
    let boards = boards(&sandbox);
    assert!(boards.iter().any(|board| board["board"] == ran["unshown"][0]["board"]), "{ran}");
}

#[test]
fn a_recording_holds_what_was_asked_inside() {
    let sandbox = sandbox();
    let request = r#"{"text": "abc"}"#;
    let run = ["run", "outer.yaml", "--request", request];
    sandbox.run(&[&run[..], &["--record", "tape.jsonl"]].concat()).expect_exit(0);
    let tape = std::fs::read_to_string(sandbox.path().join("tape.jsonl")).expect("a recording");
    let workers: Vec<Value> =
        tape.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).expect("JSON")["worker"].clone()).collect();
    assert_eq!(workers, ["trimmer", "counter"], "the board itself is nobody's answer");
    // A recorded answer needs no model call, and the nested board still runs.
    sandbox.write("patchboard.toml", "");
    let played =
        sandbox.run(&[&["--output", "json"], &run[..], &["--cassette", "tape.jsonl"]].concat()).expect_exit(0).json();
    assert_eq!((&played["state"]["length"], boards(&sandbox).len()), (&json!(3), 4));
}
