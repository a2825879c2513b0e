//! `patchboard pipe`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;

const APPEND: &str =
    r#"{"worker":"writer","patch":[{"op":"add","path":"/notes/-","value":{"text":"a","status":"draft"}}]}"#;

fn kernel(lines: &[&str]) -> Vec<Value> {
    let sandbox = Sandbox::new();
    let ran = sandbox.run_with(&["kernel", "notes.yaml", "--print-state"], lines.join("\n")).expect_exit(0);
    assert_eq!(ran.stderr, "");
    ran.lines()
}

#[test]
fn a_commit_a_no_op_and_a_rejection_have_their_shapes() {
    let answers = kernel(&[
        APPEND,
        r#"{"worker":"writer","patch":[]}"#,
        r#"{"worker":"checker","patch":[{"op":"add","path":"/answer","value":3}]}"#,
    ]);
    let committed = &answers[0];
    assert_eq!(committed["state_hash"].as_str().map(str::len), Some(64));
    let hash = committed["state_hash"].clone();
    assert_eq!(*committed, json!({"seq": 1, "outcome": "committed", "version": 1, "state_hash": hash}));
    assert_eq!(answers[1], json!({"seq": 2, "outcome": "no_op"}));
    let rejected = &answers[2];
    assert_eq!(
        (&rejected["seq"], &rejected["outcome"], &rejected["stage"], &rejected["code"]),
        (&json!(3), &json!("rejected"), &json!("schema"), &json!("schema_violation"))
    );
    assert_eq!(rejected["violations"][0]["pointer"], "/answer");
    assert_eq!(rejected["allowed"][0]["path"], "/answer");
    assert_eq!(answers[3], json!({"state": {"notes": [{"text": "a", "status": "draft"}]}}));
    assert_eq!(answers.len(), 4);
}

#[test]
fn a_raw_reply_goes_through_the_syntax_stage() {
    let text = |text: &str| json!({"worker": "writer", "text": text}).to_string();
    let good = text(r#"[{"op":"add","path":"/notes/-","value":{"text":"a","status":"draft"}}]"#);
    let fenced = text("```json\n[]\n```");
    let twice = text(r#"[{"op":"add","op":"add","path":"/notes/-","value":1}]"#);
    let answers = kernel(&[&good, &fenced, &twice]);
    assert_eq!(answers[0]["outcome"], "committed");
    assert_eq!((&answers[1]["stage"], &answers[1]["code"]), (&json!("syntax"), &json!("invalid_json")));
    assert_eq!((&answers[2]["stage"], &answers[2]["code"]), (&json!("syntax"), &json!("duplicate_key")));
}

#[test]
fn a_line_that_is_no_proposal_is_a_rejection_and_changes_nothing() {
    let lines = [
        "not json",
        "",
        "   ",
        "[]",
        "null",
        "\"text\"",
        "{}",
        r#"{"worker":"writer"}"#,
        r#"{"worker":7,"patch":[]}"#,
        r#"{"patch":[]}"#,
        r#"{"worker":"writer","patch":{}}"#,
        r#"{"worker":"writer","patch":{"patch":[]}}"#,
        r#"{"worker":"writer","text":[]}"#,
        r#"{"worker":"writer","patch":[],"text":"[]"}"#,
        r#"{"worker":"writer","patch":[],"bogus":1}"#,
        r#"{"worker":"writer","patch":[],"base":-1}"#,
        r#"{"worker":"writer","patch":[],"token":5}"#,
        r#"{"worker":"writer","worker":"writer","patch":[]}"#,
        r#"{"worker":"writer","patch":[]} trailing"#,
        r#"{"worker":"writer","patch":[{"op":"add","path":"/notes/-","value":1e999}]}"#,
    ];
    let answers = kernel(&lines);
    assert_eq!(answers.len(), lines.len() + 1);
    for (index, line) in lines.iter().enumerate() {
        let answer = &answers[index];
        assert_eq!(answer["outcome"], "rejected", "{line:?}: {answer}");
        assert_eq!(answer["stage"], "syntax", "{line:?}: {answer}");
        assert_eq!(answer["seq"], index + 1, "{line:?}: seq has no gaps");
    }
    assert_eq!(answers[lines.len()], json!({"state": {"notes": []}}));
}

#[test]
fn a_line_that_is_no_text_is_a_rejection() {
    let sandbox = Sandbox::new();
    let mut input = br#"{"worker":"writer","patch":[{"op":"add","path":"/notes/-","value":{"text":""#.to_vec();
    input.extend_from_slice(b"\\\xff\xfe\"}}]}\n");
    input.extend_from_slice(APPEND.as_bytes());
    let answers = sandbox.run_with(&["kernel", "notes.yaml"], input).expect_exit(0).lines();
    assert_eq!((&answers[0]["stage"], &answers[0]["code"]), (&json!("syntax"), &json!("invalid_json")));
    assert_eq!((&answers[1]["seq"], &answers[1]["outcome"]), (&json!(2), &json!("committed")));
}

#[test]
fn a_deep_or_a_long_line_is_a_rejection_and_the_next_one_is_read() {
    let deep = format!(r#"{{"worker":"writer","patch":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let long = format!(r#"{{"worker":"writer","text":"{}"}}"#, "x".repeat(100_000));
    let answers = kernel(&[&deep, &long, APPEND]);
    assert_eq!(answers[0]["stage"], "syntax");
    assert_eq!(answers[1]["code"], "too_large");
    assert_eq!(answers[2]["outcome"], "committed");
}

#[test]
fn a_line_beyond_all_bounds_is_skipped_and_reported() {
    let sandbox = Sandbox::new();
    let mut input = vec![b'x'; 64 * 1024 * 1024 + 1];
    input.push(b'\n');
    input.extend_from_slice(APPEND.as_bytes());
    let answers = sandbox.run_with(&["kernel", "notes.yaml"], input).expect_exit(0).lines();
    assert_eq!((&answers[0]["outcome"], &answers[0]["code"]), (&json!("rejected"), &json!("too_large")));
    assert_eq!((&answers[1]["seq"], &answers[1]["outcome"]), (&json!(2), &json!("committed")));
}

#[test]
fn a_repeated_token_gets_the_first_outcome_and_another_patch_a_conflict() {
    let with_token = |value: &str| {
        format!(
            r#"{{"worker":"checker","token":"t","patch":[{{"op":"add","path":"/answer","value":"{value}"}}],"base":0}}"#
        )
    };
    let answers = kernel(&[&with_token("a"), &with_token("a"), &with_token("b")]);
    assert_eq!(answers[0]["outcome"], "committed");
    assert_eq!(answers[1], json!({"outcome": "duplicate", "of": answers[0]}));
    assert_eq!((&answers[2]["outcome"], &answers[2]["code"]), (&json!("rejected"), &json!("token_conflict")));
    assert_eq!(answers[3], json!({"state": {"notes": [], "answer": "a"}}));
}

#[test]
fn neither_rules_nor_done_nor_limits_act() {
    let sandbox = Sandbox::new();
    let limited = crate::sandbox::NOTES.to_owned() + "limits: {commits: 1}\n";
    sandbox.write("limited.yaml", limited);
    let answer = r#"{"worker":"checker","patch":[{"op":"add","path":"/answer","value":"x"}]}"#;
    let answers =
        sandbox.run_with(&["kernel", "limited.yaml"], [answer, APPEND, APPEND].join("\n")).expect_exit(0).lines();
    for (index, answer) in answers.iter().enumerate() {
        assert_eq!((&answer["seq"], &answer["outcome"]), (&json!(index + 1), &json!("committed")));
    }
    assert_eq!(answers.len(), 3);
}

#[test]
fn a_given_state_replaces_the_initial_one_and_must_be_valid() {
    let sandbox = Sandbox::new();
    let state = json!({"request": {"topic": "t"}, "notes": [{"text": "old", "status": "draft"}]});
    sandbox.write("state.json", state.to_string());
    let run = |file: &str| sandbox.run(&["kernel", "notes.yaml", "--state", file, "--print-state", "--output", "json"]);
    assert_eq!(run("state.json").expect_exit(0).json(), json!({"state": state}));
    sandbox.write("wrong.json", r#"{"notes": 3}"#);
    assert_eq!(run("wrong.json").expect_exit(2).error()["code"], "invalid_state");
    sandbox.write("asks.json", r#"{"request": {"topic": 3}, "notes": []}"#);
    let asks = run("asks.json").expect_exit(2).error();
    assert_eq!((&asks["code"], &asks["violations"][0]["pointer"]), (&json!("invalid_state"), &json!("/request/topic")));
    sandbox.write("twice.json", r#"{"notes": [], "notes": []}"#);
    assert_eq!(run("twice.json").expect_exit(2).error()["reason"], "duplicate_key");
    assert_eq!(run("missing.json").expect_exit(2).error()["code"], "state_unreadable");
}

#[test]
fn hashes_compare_between_runs() {
    assert_eq!(kernel(&[APPEND, APPEND]), kernel(&[APPEND, APPEND]));
}

#[test]
fn a_rejected_blueprint_is_reported_with_exit_2() {
    let sandbox = Sandbox::new();
    sandbox.write("bad.yaml", crate::sandbox::NOTES.replace("run: checker", "run: nobody"));
    let ran = sandbox.run_with(&["kernel", "bad.yaml", "--output", "json"], APPEND).expect_exit(2);
    assert_eq!(ran.error()["code"], "blueprint_refused");
    assert_eq!(ran.error()["findings"][0]["code"], "undeclared_worker");
    assert_eq!(ran.stdout, "");
}

#[test]
fn each_answer_comes_before_the_next_line_is_needed() {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .command(&["kernel", "notes.yaml"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary can be run");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let mut line = String::new();
    for round in 1..=3 {
        // A line and the beginning of the next: the answer to the first must not wait for the rest of the second.
        let (begin, rest) = APPEND.split_at(10);
        if round == 1 {
            writeln!(stdin, "{APPEND}").expect("written");
        } else {
            writeln!(stdin, "{rest}").expect("written");
        }
        write!(stdin, "{begin}").expect("written");
        stdin.flush().expect("written");
        line.clear();
        stdout.read_line(&mut line).expect("an answer");
        let answer: Value = serde_json::from_str(&line).expect("an answer is JSON");
        assert_eq!((&answer["seq"], &answer["outcome"]), (&json!(round), &json!("committed")));
    }
    drop(stdin);
    child.wait().expect("it ends");
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .command(&["kernel", "notes.yaml"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be run");
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // The process ends at the first answer that it cannot write, so writing to it may fail, too.
    for _ in 0..10_000 {
        if writeln!(stdin, "{APPEND}").is_err() {
            break;
        }
    }
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_line_that_is_no_proposal_learns_what_is_wrong_with_it() {
    let lines = [
        (r#"{"worker":"writer"}"#, "not_a_patch", "", "patch and text are missing"),
        ("null", "not_a_patch", "", "this is null"),
        ("[]", "not_a_patch", "", "this is an array"),
        (r#"{"patch":[]}"#, "not_a_patch", "", "worker is missing"),
        (r#"{"worker":1,"patch":[]}"#, "not_a_patch", "/worker", "worker is a number, not a name"),
        (r#"{"worker":"writer","patch":{}}"#, "not_a_patch", "/patch", "patch is an object, not an array"),
        (r#"{"worker":"writer","patch":[],"base":-1}"#, "not_a_patch", "/base", "base is -1, not a version"),
        (r#"{"worker":"writer","patch":[],"a/b":1}"#, "not_a_patch", "/a~1b", "a/b is no member of a line"),
        (r#"{"worker":"writer","patch":[]} more"#, "invalid_json", "", "(at byte 31)"),
        (r#"{"worker":"writer","worker":"b"}"#, "duplicate_key", "", "(at byte 26)"),
    ];
    let answers = kernel(&lines.map(|(line, ..)| line));
    for ((line, code, pointer, message), answer) in lines.into_iter().zip(&answers) {
        let violations = answer["violations"].as_array().expect("a rejection has violations");
        assert_eq!(violations.len(), 1, "{line}: {answer}");
        assert_eq!((&answer["code"], &violations[0]["code"]), (&json!(code), &json!(code)), "{line}");
        assert_eq!(violations[0]["pointer"], pointer, "{line}");
        let text = violations[0]["message"].as_str().expect("a message is text");
        assert!(text.contains(message) && text.contains("a line is one JSON object"), "{line}: {text}");
        assert!(!text.contains("a reply"), "{line}: {text}");
    }
}

#[test]
fn a_line_that_is_no_text_is_reported_with_its_place() {
    let sandbox = Sandbox::new();
    let answers = sandbox.run_with(&["kernel", "notes.yaml"], b"{\"worker\":\"\xff\"}\n").expect_exit(0).lines();
    let message = answers[0]["violations"][0]["message"].as_str().expect("a message is text");
    assert!(message.starts_with("not UTF-8 (at byte 11)"), "{message}");
}

#[test]
fn a_required_intent_is_accepted_beside_the_patch() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "stated.yaml",
        crate::sandbox::NOTES.replace("    role: Write", "    patch: {intent: required}\n    role: Write"),
    );
    let with = |member: &str| APPEND.replace(r#""patch""#, &format!(r#"{member},"patch""#));
    let lines = [
        APPEND.to_owned(),
        with(r#""intent":"note what was found""#),
        with(r#""intent":null"#),
        with(r#""intent":7"#),
        r#"{"worker":"writer","text":"[]","intent":"x"}"#.to_owned(),
    ];
    let answers = sandbox.run_with(&["kernel", "stated.yaml"], lines.join("\n")).expect_exit(0).lines();
    assert_eq!(answers[0]["code"], "intent_missing");
    assert_eq!((&answers[1]["outcome"], &answers[1]["version"]), (&json!("committed"), &json!(1)));
    assert_eq!(answers[2]["code"], "intent_missing");
    for answer in &answers[3..] {
        assert_eq!((&answer["code"], &answer["violations"][0]["pointer"]), (&json!("not_a_patch"), &json!("/intent")));
    }
    assert_eq!(kernel(&[&lines[1]])[0]["outcome"], "committed", "an intent is welcome where none is demanded");
}

#[test]
fn a_version_that_is_not_there_yet_is_no_base() {
    let with_base = |base: u64| APPEND.replace(r#""patch""#, &format!(r#""base":{base},"patch""#));
    let answers = kernel(&[&with_base(1), &with_base(0), &with_base(1), &with_base(u64::MAX)]);
    let refused = |answer: &Value, message: &str| {
        assert_eq!((&answer["outcome"], &answer["code"]), (&json!("rejected"), &json!("not_a_patch")));
        assert_eq!(answer["violations"][0]["pointer"], "/base");
        assert!(answer["violations"][0]["message"].as_str().is_some_and(|text| text.starts_with(message)), "{answer}");
    };
    refused(&answers[0], "base is 1, but the board is at version 0");
    assert_eq!(answers[1]["outcome"], "committed");
    assert_eq!(answers[2]["outcome"], "committed");
    refused(&answers[3], "base is 18446744073709551615, but the board is at version 2");
    let seqs: Vec<_> = answers[..4].iter().map(|answer| answer["seq"].clone()).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
}
