//! `patchboard run`, `signal` and `boards`: how runs end, and how the end is reported.

use std::fs;

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::sandbox::{NOTES, Sandbox};

const REQUEST: &str = r#"{"topic":"x"}"#;

#[test]
fn a_run_that_is_done_prints_its_result_and_exits_with_0() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["run", "notes.yaml", "--request", REQUEST, "--output", "json"]).expect_exit(0);
    let result = ran.json();
    let state = json!({"request": {"topic": "x"}, "notes": [{"text": "first", "status": "checked"}], "answer": "ok"});
    assert_eq!(result["state"], state);
    assert_eq!((&result["end"], &result["cause"], &result["version"]), (&json!("done"), &json!("done"), &json!(2)));
    assert_eq!((&result["calls"], &result["rejected"], &result["failed"]), (&json!(3), &json!(1), &json!(0)));
    assert_eq!(result["tokens"]["total"], 0);
    assert_eq!(result["state_hash"].as_str().map(str::len), Some(64));
    assert!(sandbox.path().join(".patchboard/patchboard.db").is_file());
}

#[test]
fn progress_on_stderr_shows_workers_and_rejections_with_reasons() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["run", "notes.yaml", "--request", REQUEST]).expect_exit(0);
    for part in [
        "invoked writer #1.1",
        "rejected writer #1.1 authorization/value_not_granted at /notes/-",
        "committed version 1 by writer #1.2: add /notes/-",
        "committed version 2 by checker #2.1: replace /notes/0/status, add /answer",
    ] {
        assert!(ran.stderr.contains(part), "{part:?} is not in:\n{}", ran.stderr);
    }
    assert!(!ran.stderr.contains("ERROR"), "{}", ran.stderr);
    let head: Vec<&str> = ran.stdout.lines().map(|line| line.split_whitespace().next().unwrap_or("")).collect();
    assert_eq!(head, ["ok", "", "board", "end", "version", "tokens", "document"], "the result comes first");
    let named = NOTES.replace("name: notes", "name: notes\nresult: /notes");
    sandbox.write("named.yaml", named);
    let ran = sandbox.run(&["run", "named.yaml", "--request", REQUEST]).expect_exit(0);
    let (result, _) = ran.stdout.split_once("\n\nboard ").expect("a result, and what the board came to");
    assert!(serde_json::from_str::<Value>(result).is_ok_and(|notes| notes[0]["status"] == "checked"), "{result}");
    let without = NOTES.replace("name: notes", "name: notes\nresult: /notes/7");
    sandbox.write("without.yaml", without);
    let ran = sandbox.run(&["run", "without.yaml", "--request", REQUEST]).expect_exit(0);
    let (_, state) = ran.stdout.split_once("{\n").expect("without a result the state is told, as pretty JSON");
    let state: Value = serde_json::from_str(&format!("{{{state}")).expect("the state is JSON");
    assert_eq!(state["answer"], "ok");
    let quiet = sandbox.run(&["run", "notes.yaml", "--request", REQUEST, "--quiet"]).expect_exit(0);
    assert_eq!(quiet.stderr, "");
}

#[test]
fn nothing_an_agent_writes_reaches_the_terminal_unescaped() {
    let sandbox = Sandbox::new();
    // The intent of the second reply in this blueprint contains escapes.
    assert!(NOTES.contains(r"\e[31m"));
    let hostile = NOTES.replace("text: first", r#"text: "\e]0;title\x07\u009b2J\u202efirst""#);
    sandbox.write("hostile.yaml", hostile);
    let request = ["run", "hostile.yaml", "--request", REQUEST];
    for arguments in [
        &request[..],
        &["log", "last"],
        &["state", "last"],
        &["why", "last", "/notes/0/text"],
        &["view", "last", "checker"],
        &["state", "last", "--output", "json"],
        &["log", "last", "--output", "json"],
        &["export", "last"],
    ] {
        let ran = sandbox.run(arguments).expect_exit(0);
        for text in [&ran.stdout, &ran.stderr] {
            let acts = text.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
            assert_eq!(acts, None, "{arguments:?}: {text:?}");
        }
    }
    let state = sandbox.run(&["state", "last", "--output", "json"]).expect_exit(0).json();
    assert_eq!(state["state"]["notes"][0]["text"], "\u{1b}]0;title\u{7}\u{9b}2J\u{202e}first");
}

#[test]
fn a_rejected_blueprint_or_request_creates_no_board() {
    let sandbox = Sandbox::new();
    sandbox.write("bad.yaml", NOTES.replace("run: checker", "run: nobody"));
    let run = |blueprint: &str, request: &str| {
        let arguments = ["run", blueprint, "--request", request, "--output", "json"];
        sandbox.run(&arguments).expect_exit(2).error()
    };
    assert_eq!(run("bad.yaml", REQUEST)["code"], "blueprint_refused");
    assert_eq!(run("notes.yaml", r#"{"topic":3}"#)["code"], "bad_request");
    assert_eq!(run("notes.yaml", r#"{"topic":"a","topic":"b"}"#)["reason"], "duplicate_key");
    assert_eq!(run("notes.yaml", "@missing.json")["code"], "request_unreadable");
    assert_eq!(run("missing.yaml", REQUEST)["code"], "blueprint_unreadable");
    let without = sandbox.run(&["run", "notes.yaml", "--output", "json"]).expect_exit(2).error();
    assert_eq!(without["code"], "bad_request");
    let message = without["message"].as_str().expect("a message is text");
    assert!(message.starts_with("--request is missing: "), "{message}");
    assert_eq!(sandbox.run(&["boards", "--output", "json"]).expect_exit(0).stdout, "");
}

#[test]
fn a_request_may_come_from_a_file_and_boards_may_be_kept_elsewhere() {
    let sandbox = Sandbox::new();
    sandbox.write("request.json", REQUEST);
    let run = ["run", "notes.yaml", "-r", "@request.json", "-q", "--data-dir", "kept/here"];
    sandbox.run(&run).expect_exit(0);
    assert!(sandbox.path().join("kept/here/patchboard.db").is_file());
    let mut command = sandbox.command(&["boards", "--output", "json"]);
    let output = command.env("PATCHBOARD_DATA_DIR", "kept/here").output().expect("the binary can be run");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1);
}

#[test]
fn a_board_with_nothing_to_do_exits_with_4_and_a_signal_wakes_it() {
    let sandbox = Sandbox::new();
    sandbox.write("waiting.yaml", NOTES.replace("trigger: start", "trigger: {signal: go}"));
    let run = || sandbox.run(&["run", "waiting.yaml", "--request", REQUEST, "--output", "json"]).expect_exit(4).json();
    assert_eq!(run()["end"], "quiescent");
    let woken = sandbox.run(&["signal", "last", "go", r#"{"by":"hand"}"#, "--output", "json"]).expect_exit(0);
    let woken = woken.json();
    assert_eq!((&woken["end"], &woken["version"]), (&json!("done"), &json!(2)));
    let late = sandbox.run(&["signal", "last", "go", "--output", "json"]).expect_exit(2);
    assert_eq!(late.error()["code"], "board_over");

    run();
    let unheard = sandbox.run(&["signal", "last", "other", "--output", "json"]).expect_exit(2).error();
    assert_eq!((&unheard["code"], &unheard["help"]), (&json!("unknown_signal"), &json!("rules handle go")));
    let answer = sandbox.run(&["signal", "last", "go", "--no-run", "--output", "json"]).expect_exit(0).json();
    assert_eq!((&answer["wakes"], &answer["names"]), (&json!(["begin"]), &Value::Null), "{answer}");
    let log = sandbox.run(&["log", "last", "--kind", "invoked", "--kind", "signal", "--output", "json"]).expect_exit(0);
    let kinds: Vec<Value> = log.lines().iter().map(|record| record["kind"].clone()).collect();
    assert_eq!(kinds, ["signal"], "nobody was called for it yet");
    assert_eq!(sandbox.run(&["resume", "last", "--output", "json"]).expect_exit(0).json()["end"], "done");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

/// Two sacks, one without the member that a rule's condition reads, and a report that waits for that rule.
const SACKS: &str = r#"
blueprint: 2
name: sacks
state:
  schema:
    type: object
    properties:
      sacks: {type: object, additionalProperties: {type: object, properties: {full: {type: boolean}, ok: {type: boolean}}}}
      report: {type: string}
  initial: {sacks: {}}
workers:
  carrier: {agent: script, writes: [{path: /sacks/*}], script: [[
    {op: add, path: /sacks/oats, value: {}}, {op: add, path: /sacks/rye, value: {full: true}}]]}
  weigher: {agent: script, reads: ["/sacks/{sack}"], writes: [{path: "/sacks/{sack}/ok"}], script: [[
    {op: add, path: "/sacks/{sack}/ok", value: true}]]}
  reporter: {agent: script, reads: [/sacks], writes: [{path: /report}], script: [[{op: add, path: /report, value: all is weighed}]]}
rules:
  - {name: carry, trigger: start, run: carrier}
  - {name: weigh, trigger: {op: add, path: "/sacks/{sack}"}, when: value.full, run: weigher}
  - {name: report, trigger: {after: [weigh]}, run: reporter}
done: {when: has(state.report)}
"#;

#[test]
fn an_element_with_an_undecidable_condition_is_named_and_blocks_joins() {
    let sandbox = Sandbox::new();
    sandbox.write("sacks.yaml", SACKS);
    let ran = sandbox.run(&["run", "sacks.yaml", "--output", "json"]).expect_exit(4);
    let result = ran.json();
    assert_eq!((&result["end"], &result["cause"]), (&json!("quiescent"), &json!("gave_up")));
    assert_eq!(result["state"]["sacks"], json!({"oats": {}, "rye": {"full": true, "ok": true}}));
    for part in [
        "rule weigh did not fire at /sacks/oats: no such member: full",
        "rule weigh could not be decided at /sacks/oats",
    ] {
        assert!(ran.stderr.contains(part), "{part:?} is not in:\n{}", ran.stderr);
    }
    assert!(!ran.stderr.contains("patchboard retry"), "{}", ran.stderr);
    let retried = sandbox.run(&["retry", "last"]).expect_exit(2);
    assert!(retried.stderr.contains("whether rule weigh should have fired"), "{}", retried.stderr);
    // A `settled` join ignores the undecided rule and reports it.
    sandbox.write("sacks.yaml", SACKS.replace("after: [weigh]", "settled: [weigh]"));
    let ran = sandbox.run(&["run", "sacks.yaml", "--output", "json"]).expect_exit(0);
    assert!(ran.stderr.contains("`done` held though rule weigh could not be decided at /sacks/oats"), "{}", ran.stderr);
    assert_eq!(ran.json()["undecided"], json!([{"rule": "weigh", "at": "/sacks/oats"}]));
    // The suggested fix works.
    sandbox.write("sacks.yaml", SACKS.replace("when: value.full", "when: has(value.full) && value.full"));
    assert!(sandbox.run(&["run", "sacks.yaml"]).expect_exit(0).stdout.starts_with("all is weighed"));
}

#[test]
fn a_limit_stops_a_board_with_3() {
    let sandbox = Sandbox::new();
    sandbox.write("limited.yaml", format!("{NOTES}limits: {{commits: 1}}\n"));
    let result = sandbox.run(&["run", "limited.yaml", "--request", REQUEST, "--output", "json"]).expect_exit(3).json();
    assert_eq!((&result["end"], &result["cause"]), (&json!("stopped"), &json!("commits")));
}

#[test]
fn a_seat_that_cannot_be_filled_is_reported_before_anything_happens() {
    let sandbox = Sandbox::new();
    sandbox.write("model.yaml", NOTES.replacen("agent: script", "agent: llm", 1).replace(SCRIPT_OF_WRITER, ""));
    let ran = sandbox.run(&["run", "model.yaml", "--request", REQUEST, "--output", "json"]).expect_exit(2);
    assert_eq!(ran.error()["code"], "not_configured");
    let scripted = sandbox.run(&["run", "model.yaml", "--request", REQUEST, "--scripted"]).expect_exit(2);
    assert!(scripted.stderr.contains("give `writer` a `script`, or a model"), "{}", scripted.stderr);
    let message = ran.error()["message"].to_string();
    assert!(message.contains("writer") && message.contains("--model-url"), "{message}");

    let inline =
        NOTES.replacen("agent: script", "agent: command\n    program: [\"true\"]", 1).replace(SCRIPT_OF_WRITER, "");
    sandbox.write("inline.yaml", inline);
    let ran = sandbox.run(&["run", "inline.yaml", "--request", REQUEST, "--output", "json"]).expect_exit(2);
    assert!(ran.error()["message"].to_string().contains("--allow-inline"), "{}", ran.stderr);
    assert_eq!(sandbox.run(&["boards", "--output", "json"]).expect_exit(0).stdout, "");
    sandbox.write("patchboard.toml", "[modles.x]\n");
    let ran = sandbox.run(&["run", "notes.yaml", "--request", REQUEST, "--output", "json"]).expect_exit(2);
    assert_eq!(ran.error()["code"], "bad_config");
}

#[test]
fn a_server_that_wants_a_key_leads_to_the_flag_that_sends_one() {
    let Endpoint { url, .. } = &Endpoint::new(vec![ScriptedResponse::Say(401, "", "{}".to_owned())]);
    let sandbox = Sandbox::new();
    sandbox.write("model.yaml", NOTES.replacen("agent: script", "agent: llm", 1).replace(SCRIPT_OF_WRITER, ""));
    let ran = sandbox.run(&["run", "model.yaml", "-r", REQUEST, "--model-url", url, "--model", "m"]);
    assert_eq!(ran.code, 5);
    for part in ["paused (provider_unavailable)", "provider 401 Unauthorized"] {
        assert!(ran.stdout.contains(part), "{}", ran.stdout);
    }
    assert!(ran.stderr.contains("no key was sent; give --api-key-env"), "{}", ran.stderr);
}

/// The lines of [`NOTES`] with the writer's replies.
const SCRIPT_OF_WRITER: &str = r#"    script:
      - [{op: add, path: /notes/-, value: {text: bad, status: checked}}]
      - {patch: [{op: add, path: /notes/-, value: {text: first, status: draft}}], intent: "one \e[31mred note"}
"#;

#[test]
fn two_runs_of_one_cassette_give_the_same_records_except_ids_and_times() {
    let sandbox = Sandbox::new();
    let run = |more: &[&str]| sandbox.run(&[&["run", "notes.yaml", "--request", REQUEST, "-q"], more].concat());
    run(&["--record", "notes.cassette"]).expect_exit(0);
    let again = run(&["--record", "notes.cassette", "--output", "json"]).expect_exit(2);
    assert_eq!(again.error()["code"], "cassette_exists");
    run(&["--record", "notes.cassette", "--force"]).expect_exit(0);

    let records = || {
        run(&["--cassette", "notes.cassette"]).expect_exit(0);
        let mut lines = sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
        for line in &mut lines {
            let record = line.as_object_mut().expect("a record is an object");
            for its_own in ["at", "hash", "board", "deadline", "writer"] {
                record.remove(its_own);
            }
        }
        lines
    };
    let first = records();
    assert!(first.len() > 5, "{first:?}");
    assert_eq!(first, records());

    sandbox.write("other.yaml", NOTES.replace("name: notes", "name: others"));
    let other = sandbox
        .run(&["run", "other.yaml", "-r", REQUEST, "--cassette", "notes.cassette", "--output=json"])
        .expect_exit(2);
    assert_eq!(other.error()["code"], "wrong_cassette");
    let missing = run(&["--cassette", "missing.cassette", "--output", "json"]).expect_exit(2);
    assert_eq!(missing.error()["code"], "cassette_io");
}

/// Deletes the records after `seq` of the only board, as if its process had died before writing them.
fn cut_after(sandbox: &Sandbox, seq: i64, version: i64) {
    fs::remove_file(sandbox.path().join(".patchboard/patchboard.marks")).expect("there are marks");
    let journal = Connection::open(sandbox.path().join(".patchboard/patchboard.db")).expect("it is a database");
    journal.execute("DELETE FROM records WHERE seq > ?1", [seq]).expect("records can be deleted");
    let sql = "UPDATE boards SET last_seq = ?1, version = ?2, ended = NULL, \
               last_hash = (SELECT hash FROM records WHERE seq = ?1)";
    assert_eq!(journal.execute(sql, [seq, version]).expect("the list of boards can be changed"), 1);
}

#[test]
fn a_board_that_goes_on_with_its_cassette_asks_only_for_what_it_has_not_had() {
    let sandbox = Sandbox::new();
    sandbox.write("notes.yaml", NOTES.replace("    agent: script", "    restart: fresh\n    agent: script"));
    sandbox.run(&["run", "notes.yaml", "-r", REQUEST, "-q", "--record", "notes.cassette"]).expect_exit(0);
    // Up to the checker's `invoked`: the writer has both answers, the checker does not have its only one.
    cut_after(&sandbox, 7, 1);
    let last =
        sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines().pop().expect("there are records");
    assert_eq!((&last["kind"], &last["worker"]), (&json!("invoked"), &json!("checker")));
    let ran = sandbox.run(&["resume", "last", "--cassette", "notes.cassette", "--output", "json"]).expect_exit(0);
    assert_eq!((&ran.json()["end"], &ran.json()["version"]), (&json!("done"), &json!(2)));
    for word in ["WARN", "never asked for", "were not used"] {
        assert!(!ran.stderr.contains(word), "{}", ran.stderr);
    }
}

#[test]
fn a_miss_shows_how_the_view_differs_and_the_result_that_a_call_failed() {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "notes.yaml", "-r", REQUEST, "-q", "--record", "notes.cassette"]).expect_exit(0);
    let ran = sandbox.run(&["run", "notes.yaml", "-r", r#"{"topic":"another"}"#, "--cassette", "notes.cassette"]);
    assert_ne!(ran.code, 0);
    let log = sandbox.run(&["log", "last"]).expect_exit(0).stdout;
    for text in [&ran.stderr, &log] {
        assert!(text.contains("\n      --- recorded\n      +++ now\n"), "{text}");
        assert!(text.lines().any(|line| line.starts_with("      +") && line.contains("another")), "{text}");
    }
    let failed = ran.stdout.lines().find(|line| line.starts_with("failed "));
    assert!(failed.is_some_and(|line| line.starts_with("failed   1 call; last: cassette_miss: ")), "{}", ran.stdout);
}

#[test]
fn a_join_that_triggers_no_worker_is_named() {
    let sandbox = Sandbox::new();
    let text = "\
blueprint: 2
name: join
state:
  schema: {properties: {items: {additionalProperties: {type: string}}, report: {type: string}}}
  initial: {items: {}}
workers:
  reviewer: {agent: script, writes: [{path: /items/a, ops: [add]}], script: [[{op: add, path: /items/a, value: refused}]]}
  last: {agent: script, reads: [/items], writes: [{path: /report, ops: [add]}], script: [[]]}
rules:
  - {name: review, trigger: start, run: reviewer}
  - {name: sum, trigger: {after: [review]}, when: 'state.items.all(k, v, v == \"accepted\")', run: last}
done: {when: has(state.report)}
";
    sandbox.write("join.yaml", text);
    let ran = sandbox.run(&["run", "join.yaml"]).expect_exit(4);
    assert!(
        ran.stderr.contains("rule sum has triggered no worker: its `when` does not hold")
            && ran.stderr.contains("nothing is left to do, and `done` does not hold: has(state.report)"),
        "{}\n{}",
        ran.stdout,
        ran.stderr
    );
}

#[test]
fn resume_rejects_a_board_with_lost_records() {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "notes.yaml", "-r", REQUEST, "-q"]).expect_exit(0);
    let journal = Connection::open(sandbox.path().join(".patchboard/patchboard.db")).expect("it is a database");
    assert_eq!(journal.execute("DELETE FROM records WHERE seq > 7", ()).expect("records can be deleted"), 2);
    drop(journal);
    let error = sandbox.run(&["resume", "last", "--output", "json"]).expect_exit(1).error();
    assert_eq!((&error["code"], &error["known"], &error["found"]), (&json!("records_lost"), &json!(9), &json!(7)));
    // Without marks, the list of boards reveals the loss.
    fs::remove_file(sandbox.path().join(".patchboard/patchboard.marks")).expect("there are marks");
    let error = sandbox.run(&["resume", "last", "--output", "json"]).expect_exit(1).error();
    assert_eq!((&error["code"], &error["seq"]), (&json!("bad_record"), &json!(8)));
    assert!(error["help"].as_str().is_some_and(|help| help.contains("patchboard verify")), "{error}");
}

#[test]
fn a_database_that_is_gone_is_missed_by_its_marks() {
    let sandbox = Sandbox::new();
    let no_journal = sandbox.run(&["log", "last", "--output", "json"]).expect_exit(2).error();
    assert_eq!(no_journal["code"], "no_journal");
    sandbox.run(&["run", "notes.yaml", "-r", REQUEST, "-q"]).expect_exit(0);
    let archived = sandbox.run(&["archive", "last", "--output", "json"]).expect_exit(0).json();
    let archived = archived["board"].as_str().expect("an id").to_owned();
    sandbox.run(&["run", "notes.yaml", "-r", REQUEST, "-q"]).expect_exit(0);
    let board =
        sandbox.run(&["boards", "--output", "json"]).expect_exit(0).json()["board"].as_str().expect("an id").to_owned();
    fs::remove_file(sandbox.path().join(".patchboard/patchboard.db")).expect("there is a database");
    for command in [&["log", "last"][..], &["boards"], &["heads"], &["verify", &board], &["inbox"]] {
        let error = sandbox.run(&[command, &["--output", "json"]].concat()).expect_exit(1).error();
        assert_eq!((&error["code"], &error["board"]), (&json!("records_lost"), &json!(board)), "{command:?}");
        assert!(error["help"].as_str().is_some_and(|help| help.contains("--accept-loss")), "{error}");
    }
    let examined = sandbox.run(&["doctor", "--offline"]).expect_exit(1);
    assert!(examined.stdout.contains("[records_lost]") && examined.stdout.contains(&board), "{}", examined.stdout);
    // An archived board is restored and other boards run, and the loss is still reported.
    sandbox.run(&["restore", &archived]).expect_exit(0);
    sandbox.run(&["verify", &archived]).expect_exit(0);
    let ran = sandbox.run(&["run", "notes.yaml", "-r", REQUEST, "-q"]).expect_exit(0);
    assert!(ran.stderr.contains("are lost") && ran.stderr.contains(&board), "{}", ran.stderr);
    assert_eq!(sandbox.run(&["log", &board, "--output", "json"]).expect_exit(1).error()["code"], "records_lost");
    fs::remove_file(sandbox.path().join(".patchboard/patchboard.db")).expect("there is a database");
    sandbox.run(&["doctor", "--accept-loss", &board]).expect_exit(0);
    assert_eq!(sandbox.run(&["log", &board, "--output", "json"]).expect_exit(2).error()["code"], "no_such_board");
}

#[test]
fn boards_are_listed_and_found_by_a_unique_prefix() {
    let sandbox = Sandbox::new();
    let run = || sandbox.run(&["run", "notes.yaml", "--request", REQUEST, "--output", "json"]).expect_exit(0).json();
    let ids: Vec<String> = (0..2).map(|_| run()["board"].as_str().expect("an id is text").to_owned()).collect();
    let listed = sandbox.run(&["boards", "--output", "json"]).expect_exit(0).lines();
    let found: Vec<&Value> = listed.iter().map(|board| &board["board"]).collect();
    assert_eq!(found, [&ids[0], &ids[1]]);
    assert_eq!(
        (&listed[0]["name"], &listed[0]["end"], &listed[0]["version"]),
        (&json!("notes"), &json!("done"), &json!(2))
    );
    let table = sandbox.run(&["boards"]).expect_exit(0).stdout;
    assert!(table.lines().nth(1).is_some_and(|row| row.contains(&ids[0]) && row.contains("done")), "{table}");

    let common: String = ids[0].chars().zip(ids[1].chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    let state = |board: &str| sandbox.run(&["state", board, "--output", "json"]);
    assert_eq!(state("last").expect_exit(0).json()["board"], ids[1]);
    assert_eq!(state(&ids[0][..=common.len()]).expect_exit(0).json()["board"], ids[0]);
    assert_eq!(state(&ids[0]).expect_exit(0).json()["board"], ids[0]);
    assert_eq!(state(&common).expect_exit(2).error()["code"], "ambiguous_board");
    assert_eq!(state("").expect_exit(2).error()["code"], "no_such_board");
    assert_eq!(state("zzz").expect_exit(2).error()["code"], "no_such_board");
    let elsewhere = sandbox.run(&["state", "last", "--data-dir", "nowhere", "--output", "json"]).expect_exit(2);
    assert_eq!(elsewhere.error()["code"], "no_journal");
    assert!(!sandbox.path().join("nowhere").exists(), "reading makes nothing");
}

#[test]
fn a_blueprint_without_rules_is_not_run() {
    let sandbox = Sandbox::new();
    let (head, _) = NOTES.split_once("rules:").expect("it has rules");
    sandbox.write("still.yaml", head);
    let refused =
        sandbox.run(&["run", "still.yaml", "--request", r#"{"topic":"x"}"#, "--output", "json"]).expect_exit(2);
    assert_eq!(refused.error()["code"], "no_rules");
}

#[test]
fn a_run_with_only_stopped_branches_exits_with_3_and_takes_signals() {
    let sandbox = Sandbox::new();
    let blueprint = r"
blueprint: 1
name: stopped
state: {schema: {type: object, properties: {list: {type: array}}}, initial: {list: []}}
workers:
  idler: {agent: script, script: [[]], reads: [/list], writes: [{path: /list/-, ops: [add]}]}
  worker: {agent: script, script: [[{op: add, path: /list/-, value: 1}]], writes: [{path: /list/-, ops: [add]}]}
rules:
  - {name: begin, trigger: start, run: idler}
  - {name: again, trigger: {signal: again}, run: idler}
  - {name: go, trigger: {signal: go}, run: worker}
circuit: {no_ops: {limit: 1, then: stop_branch}}
done: {when: size(state.list) > 0}
";
    sandbox.write("stopped.yaml", blueprint);
    let stopped = sandbox.run(&["run", "stopped.yaml", "--output", "json"]).expect_exit(3).json();
    assert_eq!((&stopped["end"], &stopped["cause"]), (&json!("stopped"), &json!("breaker")));
    let done = sandbox.run(&["signal", "last", "go", "--output", "json"]).expect_exit(0).json();
    assert_eq!(done["end"], "done");
    sandbox.run(&["signal", "last", "go"]).expect_exit(2);
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn models_are_drawn_by_the_seed_that_is_given_and_reported() {
    let small = Endpoint::serving(|_| {
        ScriptedResponse::answer(r#"{"patch":[{"op":"add","path":"/list/-","value":"small"}]}"#, 10, 1)
    });
    let large = Endpoint::serving(|_| {
        ScriptedResponse::answer(r#"{"patch":[{"op":"add","path":"/list/-","value":"large"}]}"#, 10, 1)
    });
    let sandbox = Sandbox::new();
    let config = |name: &str, url: &str| format!("[models.{name}]\nurl = \"{url}\"\nmodel = \"m\"\n");
    sandbox.write("patchboard.toml", config("small", &small.url) + &config("large", &large.url));
    let blueprint = r"
blueprint: 1
name: crowd
state: {schema: {type: object, properties: {list: {type: array, items: {type: string}}}}, initial: {list: []}}
models: {default: [small, large]}
seed: 3
workers:
  one: {agent: llm, group: crowd, writes: [{path: /list/-, ops: [add]}]}
  two: {agent: llm, group: crowd, writes: [{path: /list/-, ops: [add]}]}
rules: [{name: all, trigger: start, run: {group: crowd}}]
concurrency: 1
done: {when: size(state.list) == 2}
";
    sandbox.write("crowd.yaml", blueprint);
    let mut seen = std::collections::BTreeSet::new();
    for seed in [None, Some("3"), Some("0"), Some("1"), Some("2")] {
        let given = seed.map_or(vec![], |seed| vec!["--seed", seed]);
        let ran = sandbox.run(&[&["run", "crowd.yaml", "--output", "json"][..], &given].concat()).expect_exit(0).json();
        let cost = sandbox.run(&["cost", "last", "--output", "json"]).expect_exit(0).json();
        let drawn = &cost["drawn"];
        // Each server answers with its own name, so the list shows the drawn models.
        assert_eq!(ran["state"]["list"], json!([drawn["one"], drawn["two"]]), "{seed:?}");
        let named =
            |text: &str| ["one", "two"].iter().all(|name| text.contains(name)) && text.contains("models drawn: ");
        let (log, costs) =
            (sandbox.run(&["log", "last"]).expect_exit(0).stdout, sandbox.run(&["cost", "last"]).expect_exit(0).stdout);
        assert!(named(log.lines().next().unwrap_or_default()) && named(&costs), "{log}\n{costs}");
        sandbox.run(&["replay", "last"]).expect_exit(0);
        seen.insert((seed.unwrap_or("3"), drawn.to_string()));
    }
    assert_eq!(seen.len(), 4, "the same seed draws the same: {seen:?}");
    let drawn: std::collections::BTreeSet<&String> = seen.iter().map(|(_, drawn)| drawn).collect();
    assert!(drawn.len() > 1, "other seeds draw others: {seen:?}");
}

#[test]
fn a_pass_is_reported_by_its_words() {
    let sandbox = Sandbox::new();
    let blueprint = r"
blueprint: 1
name: waits
state: {schema: {type: object, properties: {list: {type: array}}}, initial: {list: []}}
workers:
  critic: {agent: script, pass: true, script: [{pass: no problem yet}], reads: [/list], writes: [{path: /list/-, ops: [add]}]}
rules:
  - {name: begin, trigger: start, run: critic}
  - {name: again, trigger: {signal: again}, run: critic}
circuit: {no_ops: {limit: 1, then: stop_board}}
done: {when: size(state.list) > 0}
";
    sandbox.write("waits.yaml", blueprint);
    sandbox.run(&["run", "waits.yaml"]).expect_exit(4);
    sandbox.run(&["signal", "last", "again"]).expect_exit(4);
    let log = sandbox.run(&["log", "last"]).expect_exit(0);
    assert_eq!(log.stdout.matches("passes: no problem yet").count(), 2, "{}", log.stdout);
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

/// A board with one program that appends its number and its request count.
const COUNTING: &str = r#"
blueprint: 1
name: counting
state:
  schema:
    type: object
    properties: {request: true, seen: {type: array, items: {type: array, items: {type: integer}}}}
  initial: {seen: []}
workers:
  counter:
    agent: command
    restart: fresh
    program: [sh, -c, 'sleep 60 & n=0; while read -r line; do n=$((n+1)); echo "[{\"op\":\"add\",\"path\":\"/seen/-\",\"value\":[$$,$n]}]"; done']
    reads: [/seen]
    writes: [{path: /seen/-, ops: [add]}]
    limits: {invocations: 5}
rules:
  - {name: begin, trigger: start, run: counter}
  - {name: go-on, trigger: {op: add, path: /seen/*}, run: counter}
done: {when: size(state.seen) == 3}
"#;

#[test]
fn a_program_that_declares_restart_serves_all_calls_and_is_gone_when_the_run_ends() {
    let sandbox = Sandbox::new();
    sandbox.write("counting.yaml", COUNTING);
    let run = ["run", "counting.yaml", "--request", "{}", "--allow-inline", "--output", "json"];
    let state = sandbox.run(&run).expect_exit(0).json()["state"].clone();
    let process = &state["seen"][0][0];
    assert_eq!(state["seen"], json!([[process, 1], [process, 2], [process, 3]]));
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    assert!(status.is_empty() || status.contains(") Z "), "it still runs: {status}");
}

/// Returns the journal's size in bytes after a run in which two workers with long instructions count to a number.
fn journal_bytes(to: u64) -> u64 {
    let sandbox = Sandbox::new();
    let worker = |first: u64| {
        let script: Vec<Value> =
            (first..=to).step_by(2).map(|n| json!([{"op": "replace", "path": "/n", "value": n}])).collect();
        json!({"agent": "script", "role": "Count. ".repeat(1000), "reads": ["/n"],
               "writes": [{"path": "/n", "ops": ["replace"]}], "limits": {"invocations": 1000}, "script": script})
    };
    let rule = |name: &str, when: &str, run: &str| json!({"name": name, "trigger": {"op": "replace", "path": "/n"}, "when": when, "run": run});
    let blueprint = json!({
        "blueprint": 2, "name": "count",
        "state": {"schema": {"type": "object", "properties": {"n": {"type": "integer"}, "request": true}}, "initial": {"n": 0}},
        "workers": {"odd": worker(1), "even": worker(2)},
        "rules": [
            {"name": "begin", "trigger": "start", "run": "odd"},
            rule("up", "value % 2 == 1", "even"), rule("on", "value % 2 == 0", "odd"),
        ],
        "done": {"when": format!("state.n >= {to}")},
    });
    sandbox.write("count.json", blueprint.to_string());
    sandbox.run(&["--data-dir", "data", "run", "count.json"]).expect_exit(0);
    std::fs::metadata(sandbox.path().join("data/patchboard.db")).expect("a journal").len()
}

#[test]
fn an_attempt_stores_its_instructions_once_and_little_beside_its_view() {
    let (few, more) = (10, 110);
    let of_each = (journal_bytes(more) - journal_bytes(few)) / (more - few);
    // The worker's script is in the blueprint, and its view is short.
    assert!(of_each < 3_000, "{of_each} bytes for an attempt with instructions of 7,000");
}

/// Three documents, one note on each, and a digest once all are checked.
const RACE: &str = r#"blueprint: 2
name: race
state:
  schema:
    properties:
      notes: {additionalProperties: {properties: {ok: {type: boolean}}}}
      digest: {type: string}
  initial: {notes: {}}
workers:
  reader:
    agent: llm
    reads: ["/request/docs/{d}"]
    writes: [{path: "/notes/{d}", ops: [add]}]
    script: [[{op: add, path: "/notes/{d}", value: {}}]]
  checker:
    agent: llm
    reads: ["/notes/{d}"]
    writes: [{path: "/notes/{d}/ok", ops: [add]}]
    script: [[{op: add, path: "/notes/{d}/ok", value: true}]]
  editor:
    agent: llm
    reads: [/notes]
    writes: [{path: /digest, ops: [add]}]
    script: [[{op: add, path: /digest, value: all}]]
rules:
  - {name: read, trigger: {start: "/request/docs/{d}"}, run: reader}
  - {name: check, trigger: {op: add, path: "/notes/{d}"}, urgent: true, run: checker}
  - {name: sum-up, trigger: {after: [read, check]}, run: editor}
done: {when: "size(state.notes) > 0 && state.notes.all(k, n, has(n.ok))"}
result: /digest
concurrency: 1
"#;

#[test]
fn a_run_says_what_a_board_that_is_done_has_not_waited_for() {
    let sandbox = Sandbox::new();
    sandbox.write("race.yaml", RACE);
    sandbox.write(
        "whole.yaml",
        RACE.replace("size(state.notes) > 0 && state.notes.all(k, n, has(n.ok))", "has(state.digest)"),
    );
    let run = |file| {
        sandbox.run(&["run", file, "--scripted", "--request", r#"{"docs": ["a", "b", "c"]}"#]).expect_exit(0).stderr
    };
    let early = run("race.yaml");
    let said = "`done` held though 2 invocations came to nothing, and before sum-up had fired, and though nothing is at /digest, the result";
    assert!(early.contains(said), "{early}");
    let whole = run("whole.yaml");
    assert!(!whole.contains("`done` held"), "{whole}");
}

#[test]
fn a_run_says_what_its_request_gives_no_rule_to_do() {
    let sandbox = Sandbox::new();
    sandbox.write("race.yaml", RACE.replace("done: {when:", "done: {when: has(state.digest)} #"));
    for request in [r#"{"docs": "abc"}"#, r#"{"docs": []}"#, r#"{"documents": ["a"]}"#] {
        let ran = sandbox.run(&["run", "race.yaml", "--scripted", "--request", request]);
        assert!(ran.stderr.contains("with this request, `read` fires for no place"), "{request}: {}", ran.stderr);
    }
    let ran = sandbox.run(&["run", "race.yaml", "--scripted", "--request", r#"{"docs": ["a"]}"#]).expect_exit(0);
    assert!(!ran.stderr.contains("fires for no place"), "{}", ran.stderr);
    let said = "with this request, `read` fires for no place: there is no request";
    let ran = sandbox.run(&["run", "race.yaml", "--scripted"]);
    assert!(ran.stderr.contains(said) && ran.stderr.contains("--request @FILE"), "{}", ran.stderr);
    // `--documents` supplies a request, and a condition can exclude every place of it.
    sandbox.write("texts.yaml", RACE.replace("/request/docs/", "/request/documents/"));
    sandbox.write("a.txt", "about a");
    let ran = sandbox.run(&["run", "texts.yaml", "--scripted", "--documents", "a.txt"]);
    assert!(!ran.stderr.contains("fires for no place"), "{}", ran.stderr);
    sandbox
        .write("none.yaml", RACE.replace("/{d}\"}, run: reader", "/{d}\"}, when: value.startsWith('x'), run: reader"));
    let said = "fires for no place: its `when` does not hold for any of the 2 places at `/request/docs/{d}`";
    for (request, is_warned) in [(r#"{"docs": ["a", "b"]}"#, true), (r#"{"docs": ["a", "x"]}"#, false)] {
        let ran = sandbox.run(&["run", "none.yaml", "--scripted", "--request", request]);
        assert_eq!(ran.stderr.contains(said), is_warned, "{}", ran.stderr);
    }
}
