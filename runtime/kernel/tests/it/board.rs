//! Regression tests of boards in rare situations.

use std::collections::BTreeMap;
use std::convert::Infallible;

use crate::played::Played;
use patchboard_kernel::admission::Admission;
use patchboard_kernel::board::{Board, BoardError, Input, NewBoard, Outcome};
use patchboard_kernel::digest::{Hasher, Salt, sha256};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::money::Price;
use patchboard_kernel::record::{Architect, Body, Cause, End, GENESIS, Kind, Record};
use patchboard_kernel::rejection::Code;
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

fn appender(limits: Value) -> Value {
    json!({"agent": "llm", "reads": ["/list"], "writes": [{"path": "/list/-", "ops": ["add"]}], "limits": limits})
}

fn append() -> Value {
    json!([{"op": "add", "path": "/list/-", "value": 1}])
}

#[test]
fn a_cost_beyond_all_numbers_is_recorded_so_that_it_can_be_read_back() {
    let mut played = Played::new(json!({
        "workers": {"w": appender(json!({}))},
        "rules": [{"name": "begin", "trigger": "start", "run": "w"}],
    }));
    let usage = Usage { prompt: u64::MAX, completion: 9_007_199_254_740_993, cached: 1, estimated: false, money: 0 };
    assert!(matches!(played.answer(append(), Some(usage)), Outcome::Committed { .. }));
    played.holds();
}

#[test]
fn calls_under_way_may_finish_before_a_budget_is_said_to_be_short() {
    let mut played = Played::new(json!({
        "workers": {"w": appender(json!({"reply_tokens": 2000}))},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
        "limits": {"tokens": 5000},
    }));
    for _ in 0..6 {
        played.signal();
    }
    assert_eq!(played.calls.len(), 2, "the others wait for what these leave");
    let usage = Usage { prompt: 10, completion: 10, ..Usage::default() };
    for _ in 0..6 {
        assert!(matches!(played.answer(append(), Some(usage)), Outcome::Committed { .. }));
    }
    assert_eq!((played.count(Kind::Budget), played.count(Kind::Late)), (0, 0));
    played.holds();
}

#[test]
fn invocations_that_were_granted_run_though_further_ones_are_not() {
    let mut played = Played::new(json!({
        "workers": {"w": appender(json!({"invocations": 3}))},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
    }));
    for _ in 0..6 {
        played.signal();
    }
    assert_eq!((played.calls.len(), played.count(Kind::Budget)), (3, 3));
    assert_eq!(played.board.given_up().len(), 3);
    for _ in 0..3 {
        assert!(matches!(played.answer(append(), None), Outcome::Committed { .. }));
    }
    let ended = played.board.ended().expect("nothing is left");
    assert_eq!((ended.end, ended.cause), (End::Stopped, Cause::Exhausted));
    played.holds();
}

#[test]
fn a_stopped_branch_does_not_keep_a_board_from_other_work() {
    let mut played = Played::new(json!({
        "workers": {"w": appender(json!({})), "v": appender(json!({}))},
        "rules": [
            {"name": "go", "trigger": {"signal": "go"}, "run": "w"},
            {"name": "on", "trigger": {"signal": "on"}, "run": "v"},
        ],
    }));
    for _ in 0..2 {
        played.signal();
        played.answer(json!([]), None);
    }
    let ended = played.board.ended().expect("its only branch with work is stopped");
    assert_eq!((ended.end, ended.cause), (End::Stopped, Cause::Breaker));
    played.give(Input::Signal { name: "on".into(), value: Value::Null, key: None });
    assert!(matches!(played.answer(append(), None), Outcome::Committed { .. }));
    played.holds();
}

#[test]
fn invocations_held_by_a_breaker_survive_a_quiescent_board() {
    let mut played = Played::new(json!({
        "workers": {"w": appender(json!({})), "v": appender(json!({}))},
        "rules": [
            {"name": "go", "trigger": {"signal": "go"}, "run": "w"},
            {"name": "on", "trigger": {"signal": "on"}, "run": "v"},
        ],
        "circuit": {"no_ops": {"limit": 1, "then": "stop_branch"}, "cooldown": 2},
    }));
    played.signal();
    played.answer(json!([]), None);
    // The branch is stopped, and has more work queued.
    played.signal();
    assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::Breaker));
    for _ in 0..2 {
        played.give(Input::Signal { name: "on".into(), value: Value::Null, key: None });
        assert!(matches!(played.answer(append(), None), Outcome::Committed { .. }));
        played.holds();
    }
    assert_eq!(played.calls.len(), 1, "it has cooled down, and is called for what it was to do");
    assert!(matches!(played.answer(append(), None), Outcome::Committed { .. }));
    assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::NothingToDo));
    played.holds();
}

#[test]
fn invocations_held_by_a_breaker_continue_when_direct_proposals_cool_it_down() {
    let no_op = "[]".to_owned();
    let refused = json!([{"op": "remove", "path": "/list"}]).to_string();
    for (is_paused, reply) in [(false, &no_op), (false, &refused), (true, &no_op)] {
        let mut played = Played::new(json!({
            "workers": {"w": appender(json!({}))},
            "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
            "circuit": {"no_ops": {"limit": 1, "then": "stop_branch"}, "cooldown": 2},
        }));
        played.signal();
        played.answer(json!([]), None);
        played.signal();
        assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::Breaker));
        if is_paused {
            played.give(Input::Pause { key: None });
        }
        played.direct("w", reply);
        assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::Breaker), "it has not cooled down");
        played.direct("w", reply);
        assert_eq!(played.board.ended(), None, "what is queued may go on");
        played.holds();
        if is_paused {
            assert_eq!(played.calls.len(), 0);
            played.give(Input::Resume { key: None });
        }
        assert!(matches!(played.answer(append(), None), Outcome::Committed { .. }));
        assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::NothingToDo));
        played.holds();
    }
}

#[test]
fn a_quiescent_board_stays_so_when_an_empty_branch_cools_down() {
    let mut played = Played::new(json!({
        "workers": {"w": appender(json!({}))},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
        "circuit": {"no_ops": {"limit": 1, "then": "stop_branch"}, "cooldown": 1},
    }));
    played.signal();
    played.answer(json!([]), None);
    played.direct("w", "[]");
    assert!(played.board.ended().is_some());
    assert_eq!((played.count(Kind::Breaker), played.count(Kind::Ended)), (2, 2));
    played.holds();
}

#[test]
fn an_ended_board_ends_once() {
    let mut played = Played::new(json!({
        "workers": {"w": appender(json!({}))},
        "rules": [{"name": "begin", "trigger": "start", "run": "w"}],
        "done": {"when": "size(state.list) > 0"},
        "limits": {"commits": 1},
    }));
    played.answer(append(), None);
    played.give(Input::take_over(1, "next".into()));
    assert_eq!(played.board.ended().map(|ended| ended.end), Some(End::Done));
    assert_eq!(played.count(Kind::Ended), 1);
    played.holds();
}

#[test]
fn a_rule_that_cannot_decide_is_reported_once_for_each_commit() {
    let mut played = Played::new(json!({
        "workers": {"w": {"agent": "script", "script": [[]], "writes": [{"path": "/list", "ops": ["replace"]}]}},
        "rules": [{"name": "odd", "trigger": {"op": "add", "path": "/list/*"}, "when": "value.kind == 'x'", "run": "w"}],
    }));
    let many: Vec<u32> = (0..1000).collect();
    played.direct("w", &json!([{"op": "replace", "path": "/list", "value": many}]).to_string());
    assert_eq!(played.count(Kind::Skipped), 1);
    played.holds();
}

#[test]
fn done_is_asked_again_when_what_it_refers_to_changes() {
    let mut played = Played::new(json!({
        "workers": {"w": {"agent": "script", "script": [[]], "writes": [{"path": "/**", "ops": ["add", "replace"]}]}},
        "done": {"when": "state.answer.score > 1"},
    }));
    assert_eq!(played.count(Kind::Skipped), 1, "there is no answer yet");
    let mut propose = |path: &str, value: serde_json::Value, skipped: usize| {
        played.direct("w", &json!([{"op": "add", "path": path, "value": value}]).to_string());
        assert_eq!(played.count(Kind::Skipped), skipped, "{path}");
    };
    propose("/list/-", json!(1), 1);
    propose("/note", json!("a note"), 1);
    propose("/answer", json!({"text": "none"}), 2);
    propose("/answer/text", json!("some"), 2);
    propose("/answer/score", json!(1), 2);
    propose("/answer/score", json!(2), 2);
    assert_eq!(played.board.ended().map(|ended| ended.end), Some(End::Done));
    played.holds();
}

#[test]
fn one_removal_wakes_a_rule_once() {
    let mut played = Played::new(json!({
        "state": {"schema": {}, "initial": {"a": {"b": {"c": 1}}}},
        "workers": {"w": {
            "agent": "script", "script": [[]],
            "writes": [{"path": "/a", "ops": ["move", "replace"]}, {"path": "/a/b", "ops": ["remove"]}],
        }},
        "rules": [{"name": "gone", "trigger": {"op": "remove", "path": "/a/b"}, "run": "w"}],
    }));
    let outcome = played.direct("w", r#"[{"op":"move","from":"/a/b","path":"/a"}]"#);
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    assert_eq!(played.board.state().root(), &json!({"a": {"c": 1}}));
    assert_eq!(played.count(Kind::Scheduled), 1);
    played.holds();
}

#[test]
fn numbers_that_grow_when_they_are_written_out_count_as_written_out() {
    let mut played = Played::new(json!({
        "workers": {"w": {
            "agent": "script", "script": [[]],
            "writes": [{"path": "/list", "ops": ["replace"]}],
            "patch": {"max_bytes": 400},
        }},
    }));
    let short = ["1e15"; 30].join(",");
    let outcome = played.direct("w", &format!(r#"[{{"op":"replace","path":"/list","value":[{short}]}}]"#));
    assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
    let shorter = ["1e15"; 10].join(",");
    let outcome = played.direct("w", &format!(r#"[{{"op":"replace","path":"/list","value":[{shorter}]}}]"#));
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    played.holds();
}

#[test]
fn a_rejection_hides_values_that_its_worker_may_not_read() {
    let secret = "nobody-may-read-this";
    let mut played = Played::new(json!({
        "state": {
            "schema": {"properties": {
                "public": {"type": "integer"},
                "list": {"items": {"type": "string"}, "prefixItems": [{"type": "integer"}]},
            }},
            "initial": {"secret": secret, "public": 1, "list": [1, secret, secret]},
        },
        "workers": {"w": {
            "agent": "script", "script": [[]],
            "writes": [
                {"path": "/public", "ops": ["move", "replace"]},
                {"path": "/secret", "ops": ["remove"]},
                {"path": "/list/*", "ops": ["remove", "replace"]},
            ],
        }},
        "invariants": [{"name": "few", "expr": "state.public != 2 || state.public < state.secret"}],
    }));
    let attempts = [
        json!([{"op": "move", "from": "/secret", "path": "/public"}]),
        json!([{"op": "remove", "path": "/list/0"}]),
        json!([{"op": "replace", "path": "/list/9", "value": 1}]),
        json!([{"op": "replace", "path": "/public", "value": 2}]),
    ];
    for attempt in attempts {
        let rejection = played.rejection("w", attempt.clone());
        let shown = serde_json::to_string(&rejection).expect("JSON");
        assert!(!shown.contains(secret), "{attempt} shows {shown}");
        assert!(!shown.contains("3 elements"), "{attempt} shows {shown}");
        assert!(rejection.violations.iter().all(|violation| violation.found.is_none()), "{attempt} shows {shown}");
    }
    // A worker may be shown the value that it wrote itself.
    let rejection = played.rejection("w", json!([{"op": "replace", "path": "/public", "value": "mine"}]));
    assert_eq!(rejection.violations[0].found, Some(json!("mine")));
    played.holds();
}

#[test]
fn invariants_of_one_proposal_share_their_steps() {
    let mut played = Played::new(json!({
        "state": {"schema": {}, "initial": {"list": (0..120).collect::<Vec<_>>()}},
        "workers": {"w": {"agent": "script", "script": [[]], "writes": [{"path": "/list/-", "ops": ["add"]}]}},
        "invariants": [{"name": "dear", "for": "/list/*",
            "expr": "size(state.list) < 121 || state.list.all(x, state.list.all(y, x + y + self >= 0))"}],
    }));
    let rejection = played.rejection("w", append());
    assert!(rejection.violations.len() <= 20);
    let trouble = rejection.violations[0].rule.as_deref();
    assert_eq!((rejection.code.as_str(), trouble), ("invariant_violated", Some("dear")));
}

#[test]
fn a_journal_that_ends_inside_a_step_is_found() {
    let mut played = Played::new(json!({
        "workers": {"w": appender(json!({}))},
        "rules": [{"name": "begin", "trigger": "start", "run": "w"}],
        "done": {"when": "size(state.list) > 0"},
    }));
    played.answer(append(), None);
    played.records.pop();
    let difference = replay::replay(&played.records, None, &PLANS).err().expect("the end is missing");
    assert!(difference.what.contains("ended is missing"), "{difference}");
}

#[test]
fn a_record_of_an_unknown_worker_is_rejected() {
    let played = Played::new(json!({
        "workers": {"w": appender(json!({}))},
        "rules": [{"name": "begin", "trigger": "start", "run": "w"}],
    }));
    let mut body = played.records[1].body().expect("it can be read").clone();
    let Body::Scheduled(scheduled) = &mut body else { panic!("the second record schedules") };
    scheduled.worker = "ghost".into();
    let first = played.records[0].clone();
    let forged = Record::seal(first.hash, played.records[1].seq, Timestamp(0), body, &Hasher::new(&Salt::ZERO));
    let error = Board::recover(&[first, forged], &PLANS).err().expect("there is no such worker");
    assert!(error.to_string().contains("ghost"), "{error}");
}

#[test]
fn a_board_of_the_first_format_is_read_but_not_decided_again() {
    let played = Played::new(json!({"workers": {"w": appender(json!({}))}}));
    let mut body = played.records[0].body().expect("it can be read").clone();
    let Body::Created(created) = &mut body else { panic!("the first record creates") };
    created.format = 1;
    let hasher = Hasher::new(&Salt::ZERO);
    let records = [Record::seal(GENESIS, played.records[0].seq, Timestamp(0), body, &hasher)];
    let recovered = Board::recover(&records, &PLANS).expect("an older format is read");
    assert_eq!(recovered.state().digest(), played.board.state().digest());
    let why = replay::unsupported_reason(&records[0]).expect("its rules are others");
    assert!(why.contains("format 1"), "{why}");
    let difference = replay::replay(&records, None, &PLANS).err().expect("nothing is claimed of it");
    assert_eq!(difference.what, why);
}

#[test]
fn a_rules_tokens_hold_its_branch_and_no_other() {
    let mut played = Played::new(json!({
        "workers": {"w": appender(json!({"reply_tokens": 100}))},
        "rules": [
            {"name": "dear", "trigger": {"signal": "dear"}, "run": "w", "limits": {"tokens": 1000}},
            {"name": "free", "trigger": {"signal": "free"}, "run": "w"},
        ],
    }));
    let signal = |played: &mut Played, name: &str| {
        played.give(Input::Signal { name: name.into(), value: Value::Null, key: None });
    };
    let usage = Usage { prompt: 700, completion: 50, ..Usage::default() };
    signal(&mut played, "dear");
    assert!(matches!(played.answer(append(), Some(usage)), Outcome::Committed { .. }));
    signal(&mut played, "dear");
    assert!(played.calls.is_empty(), "250 tokens are left, and a call reserves more");
    let Some(Body::Budget(budget)) = played.bodies().find(|body| body.kind() == Kind::Budget) else {
        panic!("it is told")
    };
    assert_eq!((budget.resource.as_str(), budget.left), ("branch_tokens", 250));
    signal(&mut played, "free");
    assert!(
        matches!(played.answer(append(), Some(usage)), Outcome::Committed { .. }),
        "the same worker by another rule"
    );
    played.holds();
}

#[test]
fn unreachable_calls_leave_the_occurrence_count_unchanged() {
    let mut played = Played::new(json!({
        "workers": {"w": appender(json!({"attempts": 5}))},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
    }));
    played.signal();
    let mut occurrences = Vec::new();
    for code in [FailureCode::Unreachable, FailureCode::Timeout, FailureCode::Unreachable] {
        occurrences.push(played.board.scheduler().attempts_of(&"w".into()) - 1);
        let (invocation, attempt, ..) = played.calls.remove(0);
        played.give(Input::AgentFailed { invocation, attempt, code, message: String::new(), usage: None });
    }
    occurrences.push(played.board.scheduler().attempts_of(&"w".into()) - 1);
    assert_eq!(occurrences, [0, 0, 1, 1]);
    played.holds();
}

#[test]
fn a_document_that_begins_larger_than_it_may_be_makes_no_board() {
    let blueprint = json!({
        "blueprint": 1, "name": "large", "state": {"schema": {}}, "workers": {}, "limits": {"state_bytes": 100},
    });
    let create = |text: &str| {
        let genesis = NewBoard::new(
            "large",
            serde_json::from_value(blueprint.clone()).expect("a blueprint"),
            json!(text),
            Timestamp(0),
        );
        Board::create(genesis, &PLANS).map(|_| ())
    };
    assert_eq!(create("short"), Ok(()));
    let Err(BoardError::BadRequest(violations)) = create(&"long".repeat(50)) else { panic!("it is too large") };
    assert_eq!(violations[0].code, Code::ResultTooLarge);
}

#[test]
fn a_board_pays_for_its_blueprint_and_says_so_however_it_is_rebuilt() {
    let blueprint = json!({
        "blueprint": 1, "name": "designed", "state": {"schema": {}, "initial": {"list": []}},
        "workers": {"w": appender(json!({"reply_tokens": 2000}))},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
        "limits": {"tokens": 3000},
    });
    let usage = |prompt, completion| Usage { prompt, completion, cached: 0, estimated: false, money: 0 };
    let prompts = vec![sha256(b"first"), sha256(b"second")];
    let price = Price { input: 2_000_000_000, cached: 0, output: 10_000_000_000, currency: "USD".to_owned() };
    let admitted = Admission { model: Some("large".to_owned()), price: Some(price), reply_tokens: None };
    let architect =
        Architect { calls: 2, usage: usage(1500, 200), repairs: usage(800, 90), prompts, admitted: Some(admitted) };
    let genesis = NewBoard {
        architect: Some(architect.clone()),
        ..NewBoard::new("designed", serde_json::from_value(blueprint).expect("a blueprint"), Value::Null, Timestamp(0))
    };
    let (mut board, step) = Board::create(genesis, &PLANS).expect("a board");
    let mut records = step.records;
    let Body::Created(created) = records[0].body().expect("it can be read") else { panic!("the first record creates") };
    assert_eq!(created.architect, Some(architect));
    let account = *board.ledger().architect().expect("an account");
    assert_eq!((account.calls, account.spent, account), (2, 1700, *board.ledger().board()));
    assert_eq!(account.money, 5_000_000, "1,500 tokens of prompts and 200 of replies");

    records.extend(
        board.step_ungated(Timestamp(1), Input::Signal { name: "go".into(), value: Value::Null, key: None }).records,
    );
    let short = records.iter().any(|record| record.kind == Kind::Budget);
    assert!(short, "1,300 tokens are left, and a call may take more");
    let recovered = Board::recover(&records, &PLANS).expect("a board");
    assert_eq!(recovered.ledger().architect(), Some(&account));
    let replayed = replay::replay(&records, None, &PLANS).expect("it follows");
    assert_eq!(replayed.records, records.len() as u64);
    let mut parts = BTreeMap::new();
    let Ok(stored) = board.store(true, &mut |part| {
        parts.insert(part.hash, part.text.to_string());
        Ok::<_, Infallible>(())
    });
    let restored = Board::restore(&records[0], stored.manifest.hash, &mut |hash| Ok(parts.get(&hash).cloned()), &PLANS);
    assert_eq!(restored.expect("a board").ledger().architect(), Some(&account));
}
