//! Plays boards of other blueprints: with other ends, still open, taken over, partly redacted, and in other modes.

use std::sync::Arc;
use std::time::Duration;

use patchboard_agents::architect::{DesignRequest, design};
use patchboard_agents::config::DesignLimits;
use patchboard_kernel::ablation::{Component, Mode};
use patchboard_kernel::blueprint::{AgentKind, Blueprint};
use patchboard_kernel::board::{Proposal, ProposalSource, ReplyBody};
use patchboard_kernel::id::BoardId;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Answer, Principal, Retried, WorkerLimitOverrides};
use patchboard_kernel::redaction::Request;
use patchboard_lint::source::Source;
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::{Call, Reply};
use patchboard_runtime::options::CreateOptions;
use patchboard_runtime::redaction;
use patchboard_runtime::snapshotter::SnapshotPolicy;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal as _;
use serde_json::{Map, Value, json};

use super::play::{House, Own, accepted, scripted, seated, until};

/// A worker that writes notes, and another that checks them; the first note is rejected.
const NOTES: &str = r#"
blueprint: 1
name: notes
request: {type: object, required: [topic], properties: {topic: {type: string}}}
state:
  schema:
    type: object
    additionalProperties: false
    properties:
      request: {}
      answer: {type: string}
      notes:
        type: array
        items:
          type: object
          required: [text, status]
          additionalProperties: false
          properties: {text: {type: string}, status: {enum: [draft, checked]}}
  initial: {notes: []}
workers:
  boss: {agent: human}
  writer:
    agent: script
    role: Write a note on the topic.
    reads: [/request, /notes]
    writes:
      - {path: /notes/-, ops: [add], value: {properties: {status: {const: draft}}}}
    script:
      - [{op: add, path: /notes/-, value: {text: too early, status: checked}}]
      - {patch: [{op: add, path: /notes/-, value: {text: "the year 1897, by A. Quisquilius", status: draft}}], intent: the topic}
  checker:
    agent: script
    role: Check notes.
    reads: [/notes]
    writes: [{path: /notes/*/status, ops: [replace]}, {path: /answer, ops: [add, replace]}]
    script:
      - [{op: replace, path: /notes/0/status, value: checked}, {op: add, path: /answer, value: ok}]
rules:
  - {name: begin, trigger: start, run: writer}
  - {name: check, trigger: {op: add, path: /notes/*}, run: checker}
done: {when: has(state.answer)}
"#;

/// A worker that switches a lamp on, and another that switches it off, without end.
const LAMP: &str = r#"
blueprint: 1
name: lamp
state:
  schema: {type: object, properties: {request: {}, on: {type: boolean}}, additionalProperties: false}
  initial: {on: false}
workers:
  switch:
    agent: script
    reads: [/on]
    writes: [{path: /on, ops: [replace]}]
    limits: {invocations: 100}
    script: [[{op: replace, path: /on, value: true}]]
  other:
    agent: script
    reads: [/on]
    writes: [{path: /on, ops: [replace]}]
    limits: {invocations: 100}
    script: [[{op: replace, path: /on, value: false}]]
rules:
  - {name: begin, trigger: start, run: switch}
  - {name: lit, trigger: {op: replace, path: /on}, when: value, run: other}
  - {name: dark, trigger: {op: replace, path: /on}, when: "!value", run: switch}
done: {when: "false"}
"#;

/// A worker that is called again after a delay, one with too few tokens, and a rule without a truth value.
const SHELF: &str = r#"
blueprint: 1
name: shelf
state:
  schema:
    type: object
    additionalProperties: false
    properties:
      request: {}
      texts: {type: object, additionalProperties: {type: string}}
      items: {type: array, items: {type: object}}
  initial: {items: [], texts: {}}
workers:
  writer:
    agent: llm
    role: Add items.
    reads: [/items, /texts/*]
    view: {budget: 1000}
    writes: [{path: /items/-, ops: [add]}, {path: "/items/*/count", ops: [replace]}, {path: /texts/*, ops: [add]}]
  poor:
    agent: llm
    role: Add items.
    reads: [/items]
    writes: [{path: /items/-, ops: [add]}]
    limits: {tokens: 10}
rules:
  - {name: begin, trigger: start, run: writer}
  - {name: many, trigger: {op: add, path: /items/*}, when: value.count > 1, run: writer}
  - {name: poor, trigger: {op: add, path: /items/*}, run: poor}
  - {name: later, trigger: {op: add, path: /items/*}, delay: 5m, run: writer}
invariants:
  - {name: counted, for: /items/*, expr: '!has(self.count) || old == null || (key < 100 && self.count / 2.0 >= old.count * 0.5)'}
  - {name: few, expr: 'state.texts.all(name, text, size(text) > 0) && sum(state.items.map(i, has(i.count) ? i.count : 0.5)) < 1000'}
done: {when: size(state.items) > 9}
"#;

/// Returns the blueprint of the notes with replacements in its text.
fn notes(changes: &[(&str, &str)]) -> Blueprint {
    read(NOTES, changes)
}

const SACKS: &str = r#"
blueprint: 2
name: sacks
state:
  schema:
    type: object
    additionalProperties: false
    properties:
      request: {}
      report: {type: string}
      sacks: {type: object, additionalProperties: {type: object, properties: {is: {type: string}, full: {type: boolean}}}}
  initial: {sacks: {}}
workers:
  carrier:
    agent: script
    writes: [{path: /sacks/*, ops: [add]}]
    script:
      - - {op: add, path: /sacks/barley, value: {is: barley, full: true}}
        - {op: add, path: /sacks/oats, value: {is: oats}}
        - {op: add, path: /sacks/rye, value: {is: rye, full: false}}
  weigher:
    agent: script
    reads: ["/sacks/{sack}"]
    writes: [{path: "/sacks/{sack}/is", ops: [replace]}]
    script: [[{op: replace, path: "/sacks/{sack}/is", value: weighed}]]
  reporter:
    agent: script
    reads: [/sacks]
    writes: [{path: /report, ops: [add]}]
    script: [[{op: add, path: /report, value: every full sack is weighed}]]
rules:
  - {name: carry, trigger: start, run: carrier}
  - {name: weigh, trigger: {op: add, path: "/sacks/{sack}"}, when: value.full, run: weigher}
  - {name: report, trigger: {after: [weigh]}, run: reporter}
"#;

fn read(text: &str, changes: &[(&str, &str)]) -> Blueprint {
    let mut text = text.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from:?} is not in the blueprint");
        text = text.replace(from, to);
    }
    accepted(&Source::read("golden.yaml", &text).expect("it can be read"))
}

fn topic() -> Value {
    json!({"topic": "A. Quisquilius"})
}

/// Plays a board that a circuit breaker stops.
pub(super) async fn stopped(house: &House) {
    house.play(scripted(), read(LAMP, &[]), Value::Null).await;
}

/// Plays a board as [`stopped`] does, then retries it with more tokens for a worker. A worker without invocations left
/// gives up.
pub(super) async fn taken_up(house: &House) {
    let limited = LAMP.replacen("{invocations: 100}", "{invocations: 100, tokens: 1000}", 1);
    let limited = limited.replacen("{invocations: 100}", "{invocations: 4}", 1);
    let runtime = house.runtime(scripted()).await;
    let board = runtime.create(read(&limited, &[]), Value::Null, None).await.expect("a board");
    board.wait_for_end().await.expect("it is stopped");
    let worker_limits = WorkerLimitOverrides { tokens: Some(2000), money: None };
    let retried = Retried { worker: Some("switch".into()), worker_limits, ..Retried::default() };
    board.retry(retried).await.expect("retried");
    board.wait_for_end().await.expect("it is stopped again");
    runtime.shutdown().await;
}

/// Plays a board that stalls because a worker gave up.
pub(super) async fn gave_up(house: &House) {
    let fails = r#"      - {fail: crashed, message: exit code 1}
      - {text: "no patch"}
      - {fail: unreachable, message: "503 Service Unavailable"}
"#;
    let mut lines = NOTES.lines().filter(|line| line.contains("too early") || line.contains("Quisquilius"));
    let (first, second) = (lines.next().expect("a reply"), lines.next().expect("a reply"));
    house.play(scripted(), notes(&[(&format!("{first}\n{second}\n"), fails)]), topic()).await;
}

/// Plays a board that stalls because one element's condition has no truth value. The other elements are processed, and
/// the join does not fire.
pub(super) async fn undecided(house: &House) {
    house.play(scripted(), read(SACKS, &[]), Value::Null).await;
}

/// Plays a board that is stopped: a worker adds more notes than one commit may, and then more than the checker has
/// invocations for.
pub(super) async fn bounded(house: &House) {
    let patch = |count: usize| {
        let notes: Map<String, Value> = (0..count).map(|number| (format!("n{number}"), json!(1))).collect();
        json!([{"op": "replace", "path": "/notes", "value": notes}])
    };
    let blueprint = json!({
        "blueprint": 2, "name": "many",
        "state": {"schema": {"properties": {"notes": {"additionalProperties": {"type": "integer"}}, "report": {"type": "string"}}},
            "initial": {"notes": {}}},
        "workers": {
            "writer": {"agent": "script", "script": [patch(4097), patch(3)], "patch": {"max_bytes": 65_536},
                "writes": [{"path": "/notes", "ops": ["replace"]}, {"path": "/notes/*", "ops": ["add"]}]},
            "checker": {"agent": "script", "script": [[]], "limits": {"invocations": 1},
                "reads": ["/notes/{note}"], "writes": [{"path": "/notes/{note}", "ops": ["replace"]}]},
            "reporter": {"agent": "script", "script": [[{"op": "add", "path": "/report", "value": "all"}]],
                "reads": ["/notes"], "writes": [{"path": "/report", "ops": ["add"]}]},
        },
        "rules": [
            {"name": "write", "trigger": "start", "run": "writer"},
            {"name": "check", "trigger": {"op": "add", "path": "/notes/{note}"}, "run": "checker"},
            {"name": "report", "trigger": {"after": ["check"]}, "run": "reporter"},
        ],
        "done": {"when": "has(state.report)"},
    });
    house.play(scripted(), read(&blueprint.to_string(), &[]), Value::Null).await;
}

/// Plays a board to completion: a reader requests missing parts, and writes a wildcard instead of a new name. The names
/// share such long prefixes that only their ends differ.
pub(super) async fn parts(house: &House) {
    let pages: Map<String, Value> = (0..40)
        .map(|number| {
            (format!("https://docs.example.org/{}/{number:02}", "guide/".repeat(10)), json!("text ".repeat(40)))
        })
        .collect();
    let shown = |at: &str, from: Value| json!({"patch": [], "expand": [{"at": at, "from": from}]});
    let written = |path: &str| json!([{"op": "add", "path": path, "value": "read"}]);
    let blueprint = json!({
        "blueprint": 2, "name": "parts",
        "state": {
            "schema": {"properties": {
                "pages": {"additionalProperties": {"type": "string"}},
                "list": {"items": {"properties": {"id": {"type": "string"}}}},
                "said": {"properties": {"a/b": {"type": "string"}}, "additionalProperties": false}}},
            "initial": {"pages": pages, "list": [{"id": "x"}], "said": {}}},
        "workers": {"reader": {
            "agent": "script", "limits": {"attempts": 5}, "view": {"budget": 1600}, "reads": ["/pages", "/list", "/said"],
            "writes": [{"path": "/said/*", "ops": ["add"]}],
            "script": [shown("/list", json!("y")), shown("/pages", json!("zz")), shown("/pages", json!("")), written("/said/*"),
                written("/said/a~1b")]}},
        "rules": [{"name": "read", "trigger": "start", "run": "reader"}],
        "done": {"when": "size(state.said) > 0"},
    });
    house.play(scripted(), read(&blueprint.to_string(), &[]), Value::Null).await;
}

/// Plays a board that is stopped. Of three elements, one is accepted at once, one after several rounds, and one is
/// rewritten identically again and again.
pub(super) async fn rounds(house: &House) {
    let written =
        |round: u32| json!([{"op": "replace", "path": "/items/{item}", "value": {"round": round, "status": "draft"}}]);
    let judged = |status: &str| json!([{"op": "replace", "path": "/items/{item}/status", "value": status}]);
    let (taken, refused) = (judged("accepted"), judged("refused"));
    let blueprint = json!({
        "blueprint": 2, "name": "rounds", "concurrency": 1,
        "state": {"schema": {"properties": {"items": {"additionalProperties": {
            "properties": {"round": {"type": "integer"}, "status": {"enum": ["draft", "refused", "accepted"]}}}}}},
            "initial": {"items": {"a": {}, "b": {}, "c": {}}}},
        "workers": {
            "writer": {"agent": "script", "reads": ["/items/{item}"], "writes": [{"path": "/items/{item}", "ops": ["replace"]}],
                "script": [written(1), written(1), written(1), written(2), written(1), written(3), written(1), written(1)]},
            "reviewer": {"agent": "script", "reads": ["/items/{item}"], "writes": [{"path": "/items/{item}/status", "ops": ["replace"]}],
                "script": [refused, refused, taken, refused, refused, taken, refused, refused]},
        },
        "rules": [
            {"name": "write", "trigger": {"start": "/items/{item}"}, "run": "writer"},
            {"name": "review", "trigger": {"op": "replace", "path": "/items/{item}"}, "run": "reviewer"},
            {"name": "again", "trigger": {"op": "replace", "path": "/items/{item}/status"}, "when": "value == 'refused'", "run": "writer"},
        ],
        "done": {"when": "state.items.all(k, item, has(item.status) && item.status == 'accepted')"},
    });
    house.play(scripted(), read(&blueprint.to_string(), &[]), Value::Null).await;
}

/// Plays a board that is cancelled. External callers propose, are rejected and answer; replies are too long or late,
/// and the clock jumps during a call.
pub(super) async fn callers(house: &House) {
    let user = Principal::User { name: "ann".to_owned() };
    let ops = || Box::new(Principal::Token { id: 1, name: "ops".to_owned(), person: None, made_by: None });
    let token = |id: i64, name: &str| {
        let person = (name == "boss").then(|| name.into());
        Principal::Token { id, name: name.to_owned(), person, made_by: Some(ops()) }
    };
    let address = Principal::Address { address: "127.0.0.1".to_owned() };
    let blueprint = json!({
        "blueprint": 2, "name": "callers",
        "state": {"schema": {}, "initial": {"payments": []}},
        "workers": {
            "clerk": {"agent": "llm", "limits": {"timeout": "5m"}, "reads": ["/payments"], "writes": [
                {"path": "/payments/-", "ops": ["add"], "approval": {"by": "boss", "four_eyes": true, "expires": "2h"}}]},
            "boss": {"agent": "human"},
        },
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "clerk"}],
        "limits": {"wall": "30m", "journal": 200_000},
    });
    let runtime = house.runtime(seated(|_, _| Own::Silent)).await;
    let founding = CreateOptions { principal: Some(user.clone()), ..CreateOptions::default() };
    let board = runtime.create_with(read(&blueprint.to_string(), &[]), Value::Null, founding).await.expect("a board");
    let proposes = async |patch: Value, token: &str, caller: Principal| {
        let (from, reply) = (ProposalSource::Direct { key: Some(token.into()), base: None }, ReplyBody::Json(patch));
        let proposal = Proposal { from, worker: "clerk".into(), reply, usage: None, raw: None };
        board.with_principal(caller).propose(proposal).await.expect("answered")
    };
    let pays = |what: &str| json!([{"op": "add", "path": "/payments/-", "value": what}]);
    proposes(pays("9 to the baker"), "one", token(2, "clerk")).await;
    let question = until(&board, |snapshot| !snapshot.pending.is_empty()).await;
    let (of, question) = question.pending.iter().next().expect("a question");
    let answer = |agrees| {
        let (by, digest) = ("boss".into(), question.digest);
        Answer { of: *of, by, digest, agrees, reason: Some("It is right.".to_owned()), text: None }
    };
    for caller in [user, token(2, "clerk"), address.clone(), token(3, "boss")] {
        board.with_principal(caller).answer(answer(true)).await.expect("answered");
    }
    proposes(pays(&"long ".repeat(5000)), "two", token(2, "clerk")).await;
    board.with_principal(address).signal("go", Value::Null, None).await.expect("heard");
    until(&board, |snapshot| !snapshot.attempts.is_empty()).await;
    house.jump(24 * 3_600_000);
    board.with_principal(Principal::Host).pause(None).await.expect("paused");
    board.resume(None).await.expect("resumed");
    board.signal("nobody", Value::Null, None).await.expect_err("no rule waits for it");
    board.with_principal(token(3, "boss")).cancel().await.expect("cancelled");
    proposes(pays(&"late ".repeat(2000)), "three", token(2, "clerk")).await;
    runtime.shutdown().await;
}

/// Plays a board that waits for a person's approval.
pub(super) async fn waiting(house: &House) {
    let asks = "{status: {const: draft}}}, approval: {by: boss}}";
    let runtime = house.runtime(scripted()).await;
    let blueprint = notes(&[("{status: {const: draft}}}}", asks)]);
    let board = runtime.create(blueprint, topic(), None).await.expect("a board");
    until(&board, |snapshot| snapshot.waits_for_persons).await;
    runtime.shutdown().await;
}

/// Plays a board that another process takes over during a call, pauses and resumes; done.
pub(super) async fn taken_over(house: &House) {
    let silent = |call: &Call, _: &Value| if call.worker.as_str() == "checker" { Own::Silent } else { Own::Product };
    let before = house.runtime(seated(silent)).await;
    let board = before.create(notes(&[]), topic(), None).await.expect("a board");
    until(&board, |snapshot| snapshot.version.0 == 1 && snapshot.open == 1).await;
    let checks = json!([{"op": "replace", "path": "/notes/0/status", "value": "checked"},
        {"op": "add", "path": "/answer", "value": "ok"}]);
    let checked = move |_: &Call, _: &Value| Own::Says(checks.to_string());
    let after = house.runtime(seated(checked)).await;
    let again = after.resume_forced(board.id()).await.expect("it is taken over");
    again.pause(Some("a pause".into())).await.expect("paused");
    again.resume(Some("a pause is over".into())).await.expect("resumed");
    again.wait_for_end().await.expect("it ends");
    after.shutdown().await;
    before.shutdown().await;
}

/// Drives a board by hand through cases that the others lack. These are a second call of an attempt, a view expansion,
/// a late answer, a rule without a truth value, an exhausted budget, and an elapsed delay. It ends with a call under
/// way.
pub(super) async fn by_hand(house: &House) {
    let runtime = house.runtime(seated(|_, _| Own::Silent)).await;
    let board = runtime.create(read(SHELF, &[]), Value::Null, None).await.expect("a board");
    let usage = Some(Usage { prompt: 90, completion: 9, cached: 0, estimated: false, money: 0 });
    let says = async |(invocation, attempt), text: Value| {
        let (from, reply) = (ProposalSource::Attempt { invocation, attempt }, ReplyBody::Text(text.to_string()));
        board.propose(Proposal { from, worker: "writer".into(), reply, usage, raw: None }).await.expect("answered")
    };
    let called = || async { until(&board, |snapshot| !snapshot.attempts.is_empty()).await.attempts[0] };
    let (invocation, attempt) = called().await;
    board.continue_attempt(invocation, attempt, usage, 500).await.expect("answered");
    let text = json!({"op": "add", "path": "/texts/long", "value": "word ".repeat(400)});
    says((invocation, attempt), json!([text, {"op": "add", "path": "/items/-", "value": {"count": 2}}])).await;
    let second = called().await;
    says(second, json!({"patch": [], "expand": [{"at": "/texts/long", "from": 1500}, "/texts/long"]})).await;
    let third = called().await;
    says(third, json!([{"op": "replace", "path": "/items/*/count", "value": 3}])).await;
    let third = called().await;
    says(third, json!([{"op": "add", "path": "/items/-", "value": {"text": "without a count"}}])).await;
    says(third, json!([{"op": "add", "path": "/items/-", "value": {"text": "too late"}}])).await;
    tokio::time::sleep(Duration::from_secs(301)).await;
    called().await;
    runtime.shutdown().await;
}

/// Plays a board to completion, and then redacts a text.
pub(super) async fn redacted(house: &House) {
    house.play(scripted(), notes(&[]), topic()).await;
    erase(house, "redacted", "/notes/0/text", None, false).await;
}

/// Replaces and redacts the topic while an approval is pending, and then approves; done.
pub(super) async fn redacted_open(house: &House) {
    waiting(house).await;
    erase(house, "redacted-open", "/request/topic", Some(json!("another")), false).await;
    let runtime = house.runtime(scripted()).await;
    let board = runtime.resume(&"redacted-open".into()).await.expect("resumed");
    until(&board, |snapshot| snapshot.waits_for_persons).await;
    super::shipped::answer(&board, "").await;
    board.wait_for_end().await.expect("it ends");
    runtime.shutdown().await;
}

/// Plays a board to completion, and then redacts the topic and destroys the salt.
pub(super) async fn salt_destroyed(house: &House) {
    house.play(scripted(), notes(&[]), topic()).await;
    erase(house, "salt-destroyed", "/request/topic", None, true).await;
}

async fn erase(house: &House, board: &str, place: &str, replacement: Option<Value>, forget_salt: bool) {
    let place = jsonptr::PointerBuf::parse(place).expect("a place");
    let request =
        Request { places: vec![place], records: Vec::new(), keep: false, everywhere: true, forget_salt, token: None };
    let journal = Arc::new(house.journal.clone());
    let board = BoardId::from(board);
    let _claim = wait(journal.claim(&board, true)).expect("claimed");
    redaction::redact(journal, board, request, replacement, (None, house.now()), PLANS, |_| Ok(()))
        .await
        .expect("erased");
}

/// Drives an open board with unsolicited proposals and snapshots, and resumes it from one.
pub(super) async fn snapshots(house: &House) {
    let blueprint: Blueprint = serde_json::from_value(json!({
        "blueprint": 1,
        "name": "driven",
        "state": {
            "schema": {"type": "object", "properties": {"table": {"type": "object"}, "request": {}}},
            "initial": {"table": {}},
        },
        "workers": {"walker": {
            "agent": "script", "reads": ["/table"], "writes": [{"path": "/table/*", "ops": ["add", "replace", "remove"]}],
        }},
        "signals": {"look": {"type": "string"}},
    }))
    .expect("a blueprint");
    let policy = SnapshotPolicy { records: 25, bytes: u64::MAX, waits: true };
    let mut id = None;
    for round in 0..3_u64 {
        let runtime = house.runtime_keeping(scripted(), policy).await;
        let board = match &id {
            None => runtime.create(blueprint.clone(), Value::Null, None).await.expect("a board"),
            Some(id) => runtime.resume(id).await.expect("resumed"),
        };
        for number in 0..20 {
            let key = (7 * number + round) % 13;
            let is_removed =
                number % 5 == 4 && board.status().state.root().to_value()["table"].get(format!("{key}")).is_some();
            let patch = match is_removed {
                true => json!([{"op": "remove", "path": format!("/table/{key}")}]),
                false => {
                    json!([{"op": "add", "path": format!("/table/{key}"), "value": {"round": round, "number": number}}])
                }
            };
            let from = ProposalSource::Direct { key: Some(format!("{round}.{number}").as_str().into()), base: None };
            let reply = ReplyBody::Json(patch);
            board
                .propose(Proposal { from, worker: "walker".into(), reply, usage: None, raw: None })
                .await
                .expect("answered");
        }
        board.signal("look", json!("here"), None).await.expect("heard");
        id = Some(board.id().clone());
        runtime.shutdown().await;
    }
    assert!(!wait(house.journal.snapshots(&id.expect("a board"))).expect("read").is_empty(), "snapshots are kept");
}

/// Lets a model write a blueprint, at its second attempt, and plays the board of it; done.
pub(super) async fn architect(house: &House) {
    let written = |done: &str| {
        json!({
            "blueprint": 1,
            "name": "answered",
            "request": {"type": "object", "required": ["topic"], "properties": {"topic": {"type": "string"}}},
            "state": {"schema": {"type": "object", "properties": {"answer": {"type": "string"}}}, "initial": {}},
            "workers": {"writer": {
                "agent": "llm", "role": "Write the answer.", "reads": ["/request"],
                "writes": [{"path": "/answer", "ops": ["add"]}],
            }},
            "rules": [{"name": "begin", "trigger": "start", "run": "writer"}],
            "done": {"when": done},
        })
    };
    let mut answers = [written("has(state.answer"), written("has(state.answer)")].into_iter();
    let ask = async |_: &_| {
        let usage = Usage { prompt: 3000, completion: 200, cached: 0, estimated: false, money: 0 };
        let text = answers.next().expect("two attempts are enough").to_string();
        Ok(Reply::new(text, Some(usage)))
    };
    let brief =
        DesignRequest { request: "Answer the topic.".to_owned(), input: Some(topic()), ..DesignRequest::default() };
    let made = design(&brief, &DesignLimits::default(), ask, |_| {}).await.unwrap_or_else(|why| panic!("{why:?}"));
    let founding = CreateOptions {
        architect: Some(made.designed(Some(super::provider::admission("architect", 3_000_000_000)))),
        ..CreateOptions::default()
    };
    let answer = json!({"patch": [{"op": "add", "path": "/answer", "value": "In 1897."}]}).to_string();
    house.play_as(seated(move |_, _| Own::Says(answer.clone())), made.blueprint, topic(), founding).await;
}

/// Plays the notes with all components ablated; done.
pub(super) async fn mode_ablated(house: &House) {
    in_mode(house, Mode::without(Component::ALL.iter().copied())).await;
}

/// Plays the notes as a blackboard of messages; done.
pub(super) async fn mode_plain(house: &House) {
    in_mode(house, Mode::Plain {}).await;
}

/// Plays the notes as a blackboard of JSON; done.
pub(super) async fn mode_structured(house: &House) {
    in_mode(house, Mode::Structured {}).await;
}

async fn in_mode(house: &House, mode: Mode) {
    let note = json!({"text": "first", "status": "draft"});
    let text = match mode {
        Mode::Plain {} => format!("A note.\nset /notes/-: {note}"),
        Mode::Structured {} => json!({"/notes/-": note}).to_string(),
        Mode::Patchboard { .. } => String::new(),
    };
    let writer = move |call: &Call, document: &Value| match call.worker.as_str() {
        "writer" if text.is_empty() => {
            let mut whole = document.clone();
            whole["notes"] = json!([note]);
            Own::Says(whole.to_string())
        }
        "writer" => Own::Says(text.clone()),
        _ => Own::Product,
    };
    let mut blueprint = notes(&[]);
    let seat = blueprint.workers.get_mut("writer").expect("a worker");
    (seat.agent, seat.script) = (AgentKind::Llm, Vec::new());
    let founding = CreateOptions { ablation: mode, ..CreateOptions::default() };
    house.play_as(seated(writer), blueprint, topic(), founding).await;
}

/// Documents that trigger a worker each, one of them rejected at first, one with a view expansion. A signal concerns
/// one of them; a join and its successor follow.
const ELEMENTS: &str = r#"
blueprint: 2
name: elements
state:
  schema:
    type: object
    properties:
      docs: {type: object, additionalProperties: {type: object, properties: {text: {type: string}}}}
      sums: {type: object, additionalProperties: {type: integer}}
      looks: {type: array, items: {type: string}}
      answer: {type: string}
      end: {type: boolean}
  initial: {docs: {"*": {text: one}, a: {text: two}, b/c: {text: three}}, sums: {}, looks: []}
workers:
  mapper:
    agent: script
    role: Sum up the document.
    reads: ["/docs/{doc}"]
    writes: [{path: "/sums/{doc}", ops: [add]}]
    script:
      - [{op: add, path: /sums/elsewhere, value: 1}]
      - {patch: [], expand: ["/docs/{doc}/text"]}
      - [{op: add, path: "/sums/{doc}", value: 7}]
  looker:
    agent: script
    reads: ["/docs/{doc}"]
    writes: [{path: /looks/-, ops: [add]}]
    script: [[{op: add, path: /looks/-, value: looked}]]
  reducer:
    agent: script
    reads: [/sums]
    writes: [{path: /answer, ops: [add]}]
    script: [[{op: add, path: /answer, value: "21"}]]
  closer:
    agent: script
    writes: [{path: /end, ops: [add]}]
    script: [[{op: add, path: /end, value: true}]]
rules:
  - {name: map, trigger: {start: "/docs/{doc}"}, run: mapper}
  - {name: look, trigger: {signal: look}, bind: {doc: /id}, when: bound.doc != "b", run: looker}
  - {name: close, trigger: {settled: [reduce]}, run: closer}
  - {name: reduce, trigger: {after: [map]}, run: reducer}
done: {when: has(state.end) && size(state.looks) > 0}
"#;

/// Plays workers of elements, and joins.
pub(super) async fn elements(house: &House) {
    let runtime = house.runtime(scripted()).await;
    let board = runtime.create(read(ELEMENTS, &[]), Value::Null, None).await.expect("a board");
    until(&board, |snapshot| snapshot.state.root().child("end").is_some()).await;
    for id in ["b", "a"] {
        board.signal("look", json!({"id": id}), None).await.expect("it is heard");
    }
    board.wait_for_end().await.expect("it is done");
    runtime.shutdown().await;
}
