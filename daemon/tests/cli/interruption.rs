//! Runs that are interrupted and resumed.

#![cfg(unix)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use serde_json::{Value, json};

use crate::sandbox::{Sandbox, notes_by};

const REQUEST: &str = r#"{"topic":"x"}"#;

/// A run with a program as the writer, which answers only once the file `go` exists.
struct Held {
    sandbox: Sandbox,
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Held {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let reply = r#"[{"op":"add","path":"/notes/-","value":{"text":"held","status":"draft"}}]"#;
        sandbox.write("reply.json", reply);
        let program = "    program: [sh, -c, 'echo $$ > pid; while [ ! -e go ]; do [ -e reply.json ] || exit 1; sleep 0.02; done; cat reply.json; echo']\n";
        sandbox.write(
            "held.yaml",
            notes_by("command", &format!("    limits: {{timeout: 60s}}\n{program}")) + "signals: {go: {}}\n",
        );
        let mut held =
            Self::start(sandbox, &["run", "held.yaml", "--request", REQUEST, "--allow-inline", "--output", "json"]);
        held.hear("invoked writer");
        held
    }

    fn start(sandbox: Sandbox, arguments: &[&str]) -> Self {
        let mut child = sandbox
            .command(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be run");
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        Self { sandbox, child, stderr }
    }

    /// Reads progress up to the line that contains `what`.
    fn hear(&mut self, what: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.stderr.read_line(&mut line).expect("stderr is text");
            assert!(read > 0, "{what:?} was never told");
            if line.contains(what) {
                return line;
            }
        }
    }

    fn send(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{signal} can be sent");
    }

    fn let_go(&self) {
        self.sandbox.write("go", "");
    }

    /// Waits for the end; returns the exit code and stdout.
    fn end(&mut self) -> (Option<i32>, String) {
        let mut stdout = String::new();
        self.child.stdout.take().expect("stdout is piped").read_to_string(&mut stdout).expect("stdout is text");
        (self.child.wait().expect("it ends").code(), stdout)
    }

    fn resume(&self) -> Value {
        self.sandbox.run(&["resume", "last", "--allow-inline", "--output", "json"]).expect_exit(0).json()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The program of a killed run waits for this file and then ends, too.
        let _ = fs::write(self.sandbox.path().join("go"), "");
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the status of the only board, equal in JSON and text output.
fn status(sandbox: &Sandbox) -> String {
    let listed = sandbox.run(&["boards", "--output", "json"]).expect_exit(0).json();
    let status = listed["status"].as_str().expect("a status is text").to_owned();
    let table = sandbox.run(&["boards"]).expect_exit(0).stdout;
    assert!(table.contains("STATUS") && table.contains(&status), "{table}");
    status
}

#[test]
fn an_interrupt_pauses_the_board_once_calls_under_way_have_answered() {
    let mut held = Held::new();
    held.send("-INT");
    held.hear("pausing, calls running: 1");
    held.let_go();
    let hint = held.hear("go on with: patchboard resume ");
    assert!(hint.contains("--allow-inline"), "{hint}");
    let (code, stdout) = held.end();
    assert_eq!(code, Some(5));
    let result: Value = serde_json::from_str(&stdout).expect("the result is JSON");
    assert_eq!((&result["paused"], &result["end"], &result["version"]), (&json!(true), &json!(null), &json!(1)));
    let log = held.sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
    let paused = log.iter().find(|record| record["kind"] == "paused").expect("it is recorded");
    assert_eq!(paused["principal"]["kind"], "user", "{paused}");
    assert_eq!(status(&held.sandbox), "paused");
    let resumed = held.resume();
    assert_eq!(status(&held.sandbox), "done");
    assert_eq!((&resumed["end"], &resumed["version"]), (&json!("done"), &json!(2)));
    assert_eq!(resumed["state"]["notes"], json!([{"text": "held", "status": "checked"}]));
    held.sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_terminal_that_is_gone_stops_the_run_and_its_programs() {
    let mut held = Held::new();
    held.send("-HUP");
    assert_eq!(held.end().0, Some(5));
    assert_eq!(status(&held.sandbox), "paused");
    let program = fs::read_to_string(held.sandbox.path().join("pid")).expect("the program has begun");
    let runs = || {
        Command::new("kill").args(["-0", program.trim()]).stderr(Stdio::null()).status().is_ok_and(|is| is.success())
    };
    let since = Instant::now();
    while runs() {
        assert!(since.elapsed() < Duration::from_secs(30), "the program goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    held.let_go();
    assert_eq!(held.resume()["end"], "done");
}

#[test]
fn an_interrupt_ends_the_run_before_the_next_attempt_of_a_rejected_call() {
    let mut held = Held::new();
    held.send("-INT");
    held.hear("pausing, calls running: 1");
    held.sandbox.write("reply.json", r#"[{"op":"add","path":"/elsewhere","value":1}]"#);
    held.let_go();
    held.hear("go on with: patchboard resume ");
    assert_eq!(held.end().0, Some(5));
    assert_eq!(status(&held.sandbox), "paused");
}

#[test]
fn an_interrupt_does_not_wait_for_a_provider() {
    let sandbox = Sandbox::new();
    let endpoint = Endpoint::new(vec![ScriptedResponse::Say(429, "retry-after: 3600\r\n", String::new())]);
    sandbox.write("llm.yaml", notes_by("llm", ""));
    let model = ["--model-url", &endpoint.url, "--model", "m"];
    let run = [&["run", "llm.yaml", "--request", REQUEST, "--output", "json"], &model[..]].concat();
    let mut held = Held::start(sandbox, &run);
    held.hear("deferred writer");
    held.send("-TERM");
    held.hear("go on with: patchboard resume ");
    let (code, stdout) = held.end();
    assert_eq!(code, Some(5));
    let result: Value = serde_json::from_str(&stdout).expect("the result is JSON");
    assert_eq!((&result["paused"], &result["end"]), (&json!(true), &json!(null)));
    assert_eq!(status(&held.sandbox), "paused");
}

#[test]
fn a_second_interrupt_gives_calls_under_way_up_and_they_are_made_again() {
    let mut held = Held::new();
    held.send("-INT");
    held.hear("pausing");
    held.send("-TERM");
    let (code, stdout) = held.end();
    assert_eq!(code, Some(5));
    let result: Value = serde_json::from_str(&stdout).expect("the result is JSON");
    assert_eq!((&result["paused"], &result["version"]), (&json!(true), &json!(0)));
    held.let_go();
    assert_eq!(held.resume()["state"]["notes"], json!([{"text": "held", "status": "checked"}]));
}

#[test]
fn a_killed_run_goes_on_from_its_journal() {
    let mut held = Held::new();
    held.send("-KILL");
    let (code, _) = held.end();
    assert_eq!(code, None, "it was killed");
    assert_eq!(status(&held.sandbox), "interrupted");
    let broken_off = held.sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
    assert_eq!(broken_off.last().map(|record| &record["kind"]), Some(&json!("invoked")));
    held.let_go();
    let resumed = held.resume();
    assert_eq!((&resumed["end"], &resumed["version"]), (&json!("done"), &json!(2)));
    assert_eq!(resumed["state"]["notes"], json!([{"text": "held", "status": "checked"}]), "committed once");
    let records = held.sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
    assert_eq!(records[..broken_off.len()], broken_off, "what was acknowledged is there");
    held.sandbox.run(&["verify", "last"]).expect_exit(0);
    held.sandbox.run(&["replay", "last"]).expect_exit(0);
}

/// A chain of fifteen commits by two workers at once, each answer a few hundredths of a second away.
const CHAIN: &str = r#"
blueprint: 1
name: chain
state:
  schema: {type: object, properties: {links: {type: array, items: {type: integer}}}}
  initial: {links: []}
workers:
  smith: &smith
    agent: command
    program: [sh, -c, 'sleep 0.03; printf "%s\n" "[{\"op\":\"add\",\"path\":\"/links/-\",\"value\":1}]"']
    reads: [/links]
    writes: [{path: /links/-, ops: [add]}]
    limits: {attempts: 20, conflicts: 8}
  helper: *smith
rules:
  - {name: begin, trigger: start, run: smith}
  - {name: help, trigger: start, run: helper}
  - {name: next, trigger: {op: add, path: /links/*}, when: size(state.links) < 14, run: smith}
done: {when: size(state.links) >= 15}
"#;

#[test]
fn a_run_killed_again_and_again_loses_no_commit_that_it_reported_and_makes_none_twice() {
    let sandbox = Sandbox::new();
    sandbox.write("chain.yaml", CHAIN);
    let mut reported = 0;
    let mut kills = 0;
    for turn in 0..60_u64 {
        let arguments: &[&str] = match turn {
            0 => &["run", "chain.yaml", "--allow-inline"],
            _ => &["resume", "last", "--allow-inline"],
        };
        let mut child = sandbox
            .command(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be run");
        let mut stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        // Kills the run after a certain number of lines.
        let mut lines = 0;
        let mut line = String::new();
        while stderr.read_line(&mut line).expect("stderr is text") > 0 {
            let version = line.split("version ").nth(1).filter(|_| line.contains("committed"));
            let version = version.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
            reported = reported.max(version.unwrap_or(0_u64));
            lines += 1;
            if lines == 6 + turn % 5 {
                child.kill().expect("it can be killed");
            }
            line.clear();
        }
        let code = child.wait().expect("it ends").code();
        let state = sandbox.run(&["state", "last", "--output", "json"]).expect_exit(0).json();
        let version = state["version"].as_u64().expect("a version is a number");
        assert!(version >= reported, "version {reported} was told, {version} is there");
        sandbox.run(&["verify", "last"]).expect_exit(0);
        if code.is_some() {
            assert_eq!(code, Some(0), "it ended by itself, and done");
            break;
        }
        kills += 1;
    }
    assert!(kills >= 3, "it was killed {kills} times only");
    let records = sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
    assert_eq!(records.last().map(|record| &record["end"]), Some(&json!("done")), "after {kills} kills");
    let mut committed = std::collections::BTreeSet::new();
    for record in records.iter().filter(|record| record["kind"] == "committed") {
        let invocation = record["by"]["attempt"]["invocation"].as_u64().expect("a commit names its invocation");
        assert!(committed.insert(invocation), "invocation {invocation} committed twice");
    }
    assert_eq!(committed.len(), 15);
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

/// Two commits make a snapshot due; the third answer waits for `go`. Process numbers are padded to seven digits,
/// because shorter ones would make blocks too small for a snapshot.
const BLOCKS: &str = r#"
blueprint: 1
name: blocks
state:
  schema: {type: object, properties: {blocks: {type: array, items: {type: object, additionalProperties: {type: string}}}}}
  initial: {blocks: []}
workers:
  mason:
    agent: command
    program: [sh, -c, 'if [ -e two ]; then while [ ! -e go ]; do [ -e reply.json ] || exit 1; sleep 0.02; done;
      elif [ -e one ]; then touch two; else touch one; fi; sed "s/@/$(printf %07d $$)/g" reply.json; echo']
    writes: [{path: /blocks/-, ops: [add]}]
    patch: {max_bytes: 4000000}
    limits: {attempts: 20, timeout: 60s}
rules:
  - {name: begin, trigger: start, run: mason}
  - {name: next, trigger: {op: add, path: /blocks/*}, when: size(state.blocks) < 3, run: mason}
done: {when: size(state.blocks) >= 3}
"#;

#[test]
fn a_run_killed_while_it_stores_snapshots_goes_on_and_stores_one() {
    // Programs of killed runs wait for the reply file and end when it is removed.
    struct Answer<'s>(&'s Sandbox);
    impl Drop for Answer<'_> {
        fn drop(&mut self) {
            let _ = fs::remove_file(self.0.path().join("reply.json"));
        }
    }
    let sandbox = Sandbox::new();
    let _answer = Answer(&sandbox);
    sandbox.write("blocks.yaml", BLOCKS);
    // Each text is a separate part and differs between blocks.
    let block: serde_json::Map<_, _> =
        (0..1100).map(|name| (format!("k{name}"), json!(format!("@ {name} ").repeat(190)))).collect();
    sandbox.write("reply.json", json!([{"op": "add", "path": "/blocks/-", "value": block}]).to_string());
    let has_snapshot = || !sandbox.run(&["log", "last", "--kind", "snapshot"]).expect_exit(0).stdout.is_empty();
    let start = |arguments: &[&str]| {
        let mut command = sandbox.command(arguments);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().expect("the binary can be run")
    };
    // Bytes of the journal's files.
    let stored = || -> u64 {
        let files = fs::read_dir(sandbox.path().join(".patchboard")).into_iter().flatten().flatten();
        files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
    };
    // Far longer than a snapshot takes.
    let patience = Instant::now() + Duration::from_secs(120);
    let mut broken_off = 0;
    for turn in 0..4_u64 {
        let (arguments, awaited): (&[&str], _) = match turn {
            0 => (&["run", "blocks.yaml", "--allow-inline"], "version 2"),
            // A snapshot is due and begins with the first record.
            _ => (&["resume", "last", "--allow-inline"], "invoked mason"),
        };
        let before = stored();
        let mut child = start(arguments);
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let is_seen = stderr.lines().map_while(Result::ok).any(|line| line.contains(awaited));
        // Each turn is killed later in the snapshot.
        while stored() < before + turn * 900_000 && !has_snapshot() {
            assert!(child.try_wait().expect("it can be asked").is_none(), "it waits for the answer");
            assert!(Instant::now() < patience, "no snapshot is begun");
        }
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        assert!(is_seen, "{awaited:?} was never told in turn {turn}");
        broken_off += u32::from(!has_snapshot());
        sandbox.run(&["verify", "last"]).expect_exit(0);
        assert_eq!(sandbox.run(&["state", "last", "--output", "json"]).expect_exit(0).json()["version"], 2);
    }
    assert!(broken_off > 0, "every snapshot was stored before it could be broken off");
    let mut child = start(&["resume", "last", "--allow-inline", "-q"]);
    while !has_snapshot() {
        assert!(child.try_wait().expect("it can be asked").is_none(), "it waits for the answer");
        assert!(Instant::now() < patience, "no snapshot is stored");
    }
    sandbox.write("go", "");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let verified = sandbox.run(&["verify", "last", "--output", "json"]).expect_exit(0).json();
    assert_eq!(verified["snapshots"], 1, "{verified}");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_board_that_runs_elsewhere_is_not_taken_by_mistake() {
    let held = Held::new();
    let taken = held.sandbox.run(&["resume", "last", "--allow-inline", "--output", "json"]).expect_exit(1);
    assert_eq!(taken.error()["code"], "board_owned");
    let signalled =
        held.sandbox.run(&["signal", "last", "go", "--allow-inline", "--output", "json"]).expect_exit(1).error();
    assert_eq!(signalled["code"], "board_owned");
    assert!(signalled["help"].as_str().is_some_and(|help| help.contains("pause its run")), "{signalled}");
    assert_eq!(status(&held.sandbox), "running");
    // Reading does not wait for the run.
    assert_eq!(held.sandbox.run(&["state", "last", "--output", "json"]).expect_exit(0).json()["version"], 0);
}

#[test]
fn a_run_after_a_takeover_reports_the_fence_without_resume_advice() {
    let mut held = Held::new();
    let mut taker = held
        .sandbox
        .command(&["resume", "last", "--force-takeover", "--allow-inline", "-q"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary can be run");
    let is_taken = || held.sandbox.run(&["log", "last", "--kind", "epoch"]).expect_exit(0).stdout.contains("epoch");
    while !is_taken() {
        assert!(taker.try_wait().expect("it can be asked").is_none(), "it works on the board");
    }
    held.let_go();
    let mut stderr = String::new();
    held.stderr.read_to_string(&mut stderr).expect("stderr is text");
    assert!(stderr.contains("journal_fenced"), "{stderr}");
    for word in ["go on with", "ERROR"] {
        assert!(!stderr.contains(word), "{word} is in {stderr}");
    }
    assert_eq!(held.end().0, Some(1));
    taker.wait().expect("it ends");
}

#[test]
fn a_reader_that_goes_away_ends_a_listing_quietly() {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "notes.yaml", "--request", REQUEST, "-q"]).expect_exit(0);
    for arguments in [&["log", "last"][..], &["export", "last"], &["boards"], &["check", "--codes"]] {
        let mut child = sandbox
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be run");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn a_kill_during_a_call_of_a_model_spends_that_call_again_and_the_ledger_says_so() {
    let sandbox = Sandbox::new();
    sandbox.write("model.yaml", notes_by("llm", "    limits: {reply_tokens: 40, timeout: 60s}\n"));
    let reply = r#"{"patch": [{"op": "add", "path": "/notes/-", "value": {"text": "said", "status": "draft"}}]}"#;
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 20}});
    let endpoint = Endpoint::new(vec![ScriptedResponse::Hang, ScriptedResponse::complete(reply, "stop", usage)]);
    let model = ["--model-url", &endpoint.url, "--model", "m"];
    let mut child = sandbox
        .command(&["run", "model.yaml", "--request", REQUEST])
        .args(model)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary can be run");
    let until = Instant::now() + Duration::from_secs(60);
    while endpoint.bodies().is_empty() {
        assert!(Instant::now() < until, "no request came");
        std::thread::yield_now();
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let reserved = |sandbox: &Sandbox| {
        let log = sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
        let invoked = log.iter().find(|record| record["kind"] == "invoked" && record["worker"] == "writer");
        invoked.expect("it was recorded before it was made")["reserved"].as_u64().expect("a number")
    };
    let reserved = reserved(&sandbox);
    assert!(reserved > 40, "the prompt and the longest reply: {reserved}");

    let done =
        sandbox.command(&["resume", "last", "--output", "json"]).args(model).output().expect("the binary can be run");
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(endpoint.bodies().len(), 2, "the call that was lost, and that call again");
    assert_eq!(endpoint.bodies()[0]["messages"], endpoint.bodies()[1]["messages"]);
    let cost = sandbox.run(&["cost", "last", "--output", "json"]).expect_exit(0).json();
    let tokens = &cost["tokens"];
    assert_eq!((&tokens["spent"], &tokens["cached"]), (&json!(reserved + 110), &json!(20)), "{cost}");
    assert_eq!((&tokens["unanswered"], &tokens["reserved"]), (&json!(reserved), &json!(0)), "{cost}");
    let text = sandbox.run(&["cost", "last"]).expect_exit(0).stdout;
    assert!(text.contains(&format!("charged without an answer: {reserved}")), "{text}");
    sandbox.run(&["replay", "last"]).expect_exit(0);
    let result: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let shared = ["prompt", "cached", "completion", "unanswered"].map(|part| (&result["tokens"][part], &tokens[part]));
    assert!(shared.iter().all(|(result, cost)| result == cost && !result.is_null()), "{result} {cost}");
    assert_eq!((&result["tokens"]["total"], &result["calls"]), (&tokens["spent"], &tokens["calls"]), "{result} {cost}");

    // A repetition changes nothing.
    let again = sandbox.run(&["resume", "last"]).expect_exit(0).stdout;
    let sum = format!("{} (100 in prompts, 10 in replies, {reserved} without an answer)", reserved + 110);
    assert!(again.contains(&sum), "{again}");
    assert_eq!(sandbox.run(&["cost", "last", "--output", "json"]).expect_exit(0).json(), cost);
}

#[test]
fn a_retry_with_a_broken_off_answer_is_charged_as_a_retry() {
    let sandbox = Sandbox::new();
    sandbox.write("model.yaml", notes_by("llm", "    limits: {reply_tokens: 40, timeout: 1s, attempts: 2}\n"));
    let endpoint = Endpoint::new(vec![ScriptedResponse::BreakOff]);
    let model = ["--model-url", &endpoint.url, "--model", "m"];
    sandbox.run(&[&["run", "model.yaml", "--request", REQUEST, "-q"][..], &model].concat()).expect_exit(4);
    let cost = sandbox.run(&["cost", "last", "--output", "json"]).expect_exit(0).json();
    let (spent, retries) = (&cost["tokens"]["spent"], &cost["tokens"]["retries"]);
    assert_eq!((&retries["calls"], cost["tokens"]["calls"].as_u64()), (&json!(1), Some(2)), "{cost}");
    let half = spent.as_u64().expect("a number") / 2;
    assert!(half > 40 && retries["tokens"] == half, "both were charged at their reservations: {cost}");
}
