//! Rules that wait until no run of other rules is open, and workers with a concurrency limit.

use crate::played::Played;
use patchboard_kernel::board::{Input, Outcome};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::record::{Body, Cause, Retried, Trigger};
use serde_json::{Value, json};

/// Returns a board with two workers that receive tasks, and one that reviews the results.
fn shop(more: Value) -> Played {
    let seat = json!({"agent": "llm", "limits": {"attempts": 1}, "writes": [{"path": "/done/-", "ops": ["add"]}]});
    let mut members = json!({
        "state": {"schema": {"type": "object"}, "initial": {"tasks": [], "done": [], "looks": 0}},
        "workers": {
            "lead": {"agent": "llm", "writes": [{"path": "/tasks/-", "ops": ["add"]}]},
            "ada": seat.clone(),
            "bob": seat,
            "look": {"agent": "llm", "writes": [{"path": "/looks", "ops": ["replace"]}]},
        },
        "rules": [
            {"name": "go", "trigger": {"signal": "go"}, "run": "lead"},
            {"name": "for-ada", "trigger": {"op": "add", "path": "/tasks/*"}, "when": "value == 'ada'", "run": "ada"},
            {"name": "for-bob", "trigger": {"op": "add", "path": "/tasks/*"}, "when": "value == 'bob'", "run": "bob"},
            {"name": "all-over", "trigger": {"idle": ["for-ada", "for-bob"]}, "run": "look"},
        ],
        "concurrency": 8,
    });
    members.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    Played::new(members)
}

fn give_out(played: &mut Played, names: &[&str]) {
    let patch: Vec<Value> = names.iter().map(|name| json!({"op": "add", "path": "/tasks/-", "value": name})).collect();
    let outcome = played.direct("lead", &Value::Array(patch).to_string());
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
}

fn called(played: &Played) -> Vec<&str> {
    played.calls.iter().map(|call| call.2.as_str()).collect()
}

fn done() -> Value {
    json!([{"op": "add", "path": "/done/-", "value": 1}])
}

fn fail(played: &mut Played, worker: &str) {
    let at = played.calls.iter().position(|call| call.2.as_str() == worker).expect("it is called");
    let (invocation, attempt, ..) = played.calls.remove(at);
    let (code, message) = (FailureCode::Crashed, "no more".to_owned());
    played.give(Input::AgentFailed { invocation, attempt, code, message, usage: None });
}

fn idles(played: &Played) -> usize {
    played.bodies().filter(|body| matches!(body, Body::Scheduled(of) if of.trigger == Trigger::Idle)).count()
}

#[test]
fn an_idle_rule_fires_after_all_calls_however_they_ended() {
    let mut played = shop(json!({}));
    give_out(&mut played, &["ada", "bob", "ada"]);
    assert_eq!(called(&played), ["ada", "bob", "ada"]);
    played.answer(done(), None);
    fail(&mut played, "bob");
    assert_eq!(idles(&played), 0, "one is still at work");
    played.answer(done(), None);
    assert_eq!((called(&played), idles(&played)), (vec!["look"], 1));
    assert!(played.view().contains("idle"), "{}", played.view());
    // Fires again after another round, and not because of unrelated calls.
    played.answer(json!([{"op": "replace", "path": "/looks", "value": 1}]), None);
    assert_eq!(idles(&played), 1);
    give_out(&mut played, &["bob"]);
    fail(&mut played, "bob");
    assert_eq!((called(&played), idles(&played)), (vec!["look"], 2));
    played.holds();
}

#[test]
fn invocations_behind_a_stopped_branch_count_as_over() {
    let mut played = shop(json!({"circuit": {"crashes": {"limit": 1, "then": "stop_branch"}}, "concurrency": 1}));
    give_out(&mut played, &["ada", "ada"]);
    assert_eq!(called(&played), ["ada"]);
    fail(&mut played, "ada");
    assert_eq!((called(&played), idles(&played)), (vec!["look"], 1), "the second one is queued, and will not start");
    // An invocation queued later behind a stopped branch counts as finished at once, too.
    played.answer(json!([{"op": "replace", "path": "/looks", "value": 1}]), None);
    give_out(&mut played, &["ada"]);
    assert_eq!((called(&played), idles(&played)), (vec!["look"], 2));
    played.holds();
}

#[test]
fn invocations_beyond_a_budget_count_as_over_even_during_a_pause() {
    let mut poor = json!({"agent": "llm", "writes": [{"path": "/done/-", "ops": ["add"]}]});
    poor["limits"] = json!({"tokens": 1});
    let mut played = shop(json!({"workers": {
        "lead": {"agent": "llm", "writes": [{"path": "/tasks/-", "ops": ["add"]}]},
        "ada": poor, "bob": {"agent": "llm", "limits": {"attempts": 1}},
        "look": {"agent": "llm", "writes": [{"path": "/looks", "ops": ["replace"]}]},
    }}));
    give_out(&mut played, &["ada"]);
    assert_eq!((called(&played), idles(&played)), (vec!["look"], 1), "scheduled and given up in one step");
    played.answer(json!([{"op": "replace", "path": "/looks", "value": 1}]), None);

    give_out(&mut played, &["bob"]);
    played.give(Input::Pause { key: None });
    fail(&mut played, "bob");
    assert_eq!((called(&played), idles(&played)), (Vec::new(), 2), "it is queued, and waits for the end of the pause");
    played.give(Input::Resume { key: None });
    assert_eq!(called(&played), ["look"]);
    played.holds();
}

#[test]
fn workers_without_invocations_left_count_as_idle() {
    let mut spent = json!({"agent": "llm", "writes": [{"path": "/done/-", "ops": ["add"]}]});
    spent["limits"] = json!({"invocations": 1});
    let mut played = shop(json!({"workers": {
        "lead": {"agent": "llm", "writes": [{"path": "/tasks/-", "ops": ["add"]}]},
        "ada": spent, "bob": {"agent": "llm", "writes": [{"path": "/done/-", "ops": ["add"]}]},
        "look": {"agent": "llm", "writes": [{"path": "/looks", "ops": ["replace"]}]},
    }}));
    give_out(&mut played, &["ada"]);
    played.answer(done(), None);
    assert_eq!((called(&played), idles(&played)), (vec!["look"], 1));
    played.answer(json!([{"op": "replace", "path": "/looks", "value": 1}]), None);
    // The worker's limit is used up, so a round triggers no call and counts as finished at once.
    for round in 2..=3 {
        give_out(&mut played, &["ada", "ada"]);
        assert_eq!((called(&played), idles(&played)), (vec!["look"], round));
        played.answer(json!([{"op": "replace", "path": "/looks", "value": round}]), None);
    }
    assert_eq!(played.bodies().filter(|body| matches!(body, Body::Budget(_))).count(), 4);
    // With other calls open, the rule waits for those.
    give_out(&mut played, &["bob", "ada"]);
    assert_eq!((called(&played), idles(&played)), (vec!["bob"], 3));
    played.answer(done(), None);
    assert_eq!((called(&played), idles(&played)), (vec!["look"], 4));
    played.holds();
}

#[test]
fn rules_waiting_for_each_other_without_workers_left_come_to_an_end() {
    let writes = json!([{"path": "/list/-", "ops": ["add"]}]);
    let seat = json!({"agent": "llm", "limits": {"invocations": 1}, "writes": writes});
    let mut played = Played::new(json!({
        "workers": {"ada": seat.clone(), "bob": seat},
        "rules": [
            {"name": "begin", "trigger": {"signal": "go"}, "run": "ada"},
            {"name": "one", "trigger": {"idle": ["begin", "two"]}, "run": "bob"},
            {"name": "two", "trigger": {"idle": ["one"]}, "run": "ada"},
        ],
    }));
    let add = || json!([{"op": "add", "path": "/list/-", "value": 1}]);
    played.signal();
    played.answer(add(), None);
    assert_eq!(called(&played), ["bob"]);
    played.answer(add(), None);
    assert_eq!((called(&played), idles(&played)), (Vec::new(), 4), "each has had its one invocation");
    assert_eq!(played.board.given_up().len(), 3, "each rule is noted once in a step");
    assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::Exhausted));
    played.holds();
}

#[test]
fn a_worker_does_as_many_things_at_once_as_it_may() {
    let seat = json!({"agent": "llm", "limits": {"concurrency": 1, "attempts": 2},
        "writes": [{"path": "/done/-", "ops": ["add"]}]});
    let mut played = shop(json!({"workers": {
        "lead": {"agent": "llm", "writes": [{"path": "/tasks/-", "ops": ["add"]}]},
        "ada": seat, "bob": {"agent": "llm"},
        "look": {"agent": "llm", "writes": [{"path": "/looks", "ops": ["replace"]}]},
    }}));
    give_out(&mut played, &["ada", "ada", "bob", "bob"]);
    assert_eq!(called(&played), ["ada", "bob", "bob"], "the second waits, and what is behind it goes first");
    // A retry of the first precedes the second.
    fail(&mut played, "ada");
    assert_eq!(called(&played), ["bob", "bob", "ada"]);
    let again = played.calls[2].0;
    fail(&mut played, "ada");
    assert_eq!(called(&played), ["bob", "bob", "ada"]);
    assert_ne!(played.calls[2].0, again, "the first is given up, the second begins");
    assert_eq!(idles(&played), 0);
    assert_eq!(played.board.ended().map(|ended| ended.cause), None::<Cause>);
    played.holds();
}

#[test]
fn a_rule_that_waits_for_rest_fires_once_for_a_branch_that_is_stopped() {
    let seat = |more: Value| {
        let mut seat = json!({"agent": "llm", "writes": [{"path": "/list/-"}], "limits": {"invocations": 1_000_000}});
        seat.as_object_mut().expect("an object").extend(more.as_object().expect("members").clone());
        seat
    };
    for rules in [
        // The rule waits for itself, or two rules wait for each other.
        json!([{"name": "go-on", "trigger": {"idle": ["begin", "go-on"]}, "run": {"group": "crew"}}]),
        json!([
            {"name": "go-on", "trigger": {"idle": ["begin", "back"]}, "run": {"group": "crew"}},
            {"name": "back", "trigger": {"idle": ["go-on"]}, "run": {"group": "crew"}},
        ]),
    ] {
        let mut all = vec![json!({"name": "begin", "trigger": "start", "run": "ada"})];
        all.extend(rules.as_array().expect("rules").iter().cloned());
        let mut played = Played::new(json!({
            "workers": {"ada": seat(json!({"group": "crew"})), "bob": seat(json!({"group": "crew"}))},
            "rules": all,
            "circuit": {"no_ops": {"limit": 1, "then": "stop_branch"}},
        }));
        while !played.calls.is_empty() {
            let before = played.records.len();
            played.answer(json!([]), None);
            assert!(played.records.len() - before < 20, "{} records of a step", played.records.len() - before);
        }
        assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::Breaker));
        let queued: Vec<_> = played.board.scheduler().queue().iter().map(|queued| queued.branch.clone()).collect();
        let branches: std::collections::BTreeSet<_> = queued.iter().collect();
        assert!(!queued.is_empty() && queued.len() == branches.len(), "{queued:?}");
        played.holds();
        // A retry grants each branch one probe.
        played.give(Input::Retry(Retried::default()));
        assert!(played.calls.len() >= queued.len(), "{:?}", played.calls);
        played.holds();
    }
}
