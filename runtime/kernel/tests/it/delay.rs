//! Delayed rules: the condition is evaluated again when the delay ends.

use crate::played::Played;
use patchboard_kernel::board::{Board, Input, Outcome};
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::{Body, Cause, Kind};
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

const MINUTE: i64 = 60_000;

/// Returns a board where `opener` opens cases; a case that is still open after the delay triggers `late`.
fn cases(delay: Value, more: &Value) -> Played {
    let mut members = json!({
        "workers": {
            "opener": {"agent": "remote", "writes": [{"path": "/cases/*", "ops": ["add"]}, {"path": "/cases/*/is", "ops": ["replace"]}]},
            "late": {"agent": "remote", "reads": ["/cases/*"], "writes": [{"path": "/list/-", "ops": ["add"]}], "limits": {"timeout": "1d"}},
        },
        "rules": [
            {"name": "too-late", "trigger": {"op": "add", "path": "/cases/*"}, "when": "value.is == 'open'", "run": "late", "delay": delay},
        ],
        "state": {"schema": {}, "initial": {"list": [], "cases": {}}},
    });
    members.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    Played::new(members)
}

fn open(played: &mut Played, name: &str, case: &Value) {
    let patch = json!([{"op": "add", "path": format!("/cases/{name}"), "value": case}]);
    let outcome = played.direct("opener", &patch.to_string());
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
}

fn close(played: &mut Played, name: &str) {
    let patch = json!([{"op": "replace", "path": format!("/cases/{name}/is"), "value": "closed"}]);
    assert!(matches!(played.direct("opener", &patch.to_string()), Outcome::Committed { .. }));
}

fn tick_at(played: &mut Played, now: i64) {
    played.now = now - 1;
    played.give(Input::Tick);
}

fn skipped(played: &Played) -> Vec<(Option<u64>, String)> {
    let skipped = played.bodies().filter_map(|body| match body {
        Body::Skipped(skipped) => Some((skipped.invocation.map(|invocation| invocation.0), skipped.message)),
        _ => None,
    });
    skipped.collect()
}

#[test]
fn a_rule_with_a_delay_fires_when_that_is_over_and_not_before() {
    let mut played = cases(json!("5m"), &json!({}));
    let begun = played.now + 1;
    open(&mut played, "a", &json!({"is": "open"}));
    assert_eq!((played.count(Kind::Scheduled), played.count(Kind::Invoked)), (1, 0));
    assert_eq!((played.board.wake_at(), played.board.ended()), (Some(Timestamp(begun + 5 * MINUTE)), None));
    tick_at(&mut played, begun + 5 * MINUTE - 1);
    assert_eq!(played.count(Kind::Tick), 0, "nothing is due");
    tick_at(&mut played, begun + 5 * MINUTE);
    assert_eq!((played.count(Kind::Tick), played.calls.len()), (1, 1));
    assert!(played.view().contains("/cases/a"), "{}", played.view());
    assert!(played.board.running_ms() < 10, "while it waits nothing runs");
    let outcome = played.answer(json!([{"op": "add", "path": "/list/-", "value": "a"}]), None);
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::NothingToDo));
    played.holds();
}

#[test]
fn delayed_invocations_with_a_lapsed_condition_are_skipped_uncounted() {
    let mut played = cases(json!("5m"), &json!({}));
    open(&mut played, "a", &json!({"is": "open"}));
    open(&mut played, "b", &json!({"is": "open"}));
    open(&mut played, "c", &json!({"is": "closed"}));
    assert_eq!(played.count(Kind::Scheduled), 2, "a condition must hold both times");
    close(&mut played, "a");
    tick_at(&mut played, 6 * MINUTE);
    assert_eq!(skipped(&played), [(Some(1), "its condition does not hold any more".to_owned())]);
    assert_eq!(played.calls.len(), 1);
    assert_eq!(played.board.scheduler().scheduled_for(&"late".into()), 1, "the one that was not wanted is given back");
    played.answer(json!([]), None);
    // A removed value has no condition to evaluate.
    let mut played = cases(json!("5m"), &json!({}));
    open(&mut played, "a", &json!({"is": "open"}));
    played.give(Input::Amend { path: "/cases".to_owned(), value: json!({}) });
    tick_at(&mut played, 6 * MINUTE);
    let skipped = skipped(&played);
    assert!(skipped.len() == 1 && skipped[0].0 == Some(1), "{skipped:?}");
    assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::NothingToDo));
    played.holds();
}

#[test]
fn a_delay_may_come_with_what_wakes_the_rule() {
    let mut played = cases(json!({"at": "/within_ms"}), &json!({}));
    open(&mut played, "slow", &json!({"is": "open", "within_ms": 2 * MINUTE}));
    open(&mut played, "quick", &json!({"is": "open", "within_ms": MINUTE}));
    open(&mut played, "now", &json!({"is": "open", "within_ms": 0}));
    assert_eq!(played.calls.len(), 1, "nothing is to pass");
    let none = [json!(-1), json!("5m"), json!(1.5), json!(367_u64 * 86_400_000), Value::Null];
    for (at, within) in none.into_iter().enumerate() {
        open(&mut played, &format!("none-{at}"), &json!({"is": "open", "within_ms": within}));
    }
    let expected: Vec<_> = (0..5)
        .map(|at| format!("what stands at /cases/none-{at}/within_ms is no number of milliseconds, of a year at most"))
        .map(|message| (None, message))
        .collect();
    assert_eq!(skipped(&played), expected);
    tick_at(&mut played, MINUTE + 100);
    assert_eq!(played.calls.len(), 2);
    assert!(played.view().contains("/cases/quick"), "the shorter one goes first: {}", played.view());
    tick_at(&mut played, 2 * MINUTE + 100);
    assert_eq!(played.calls.len(), 3);
    while !played.calls.is_empty() {
        played.answer(json!([{"op": "add", "path": "/list/-", "value": 1}]), None);
    }
    played.holds();
}

#[test]
fn a_pause_lets_nothing_come_and_its_end_makes_up_for_it() {
    let mut played = cases(json!("5m"), &json!({}));
    open(&mut played, "a", &json!({"is": "open"}));
    played.give(Input::Pause { key: None });
    assert_eq!(played.board.wake_at(), None);
    tick_at(&mut played, 20 * MINUTE);
    assert_eq!((played.count(Kind::Tick), played.calls.len()), (0, 0));
    played.give(Input::Resume { key: None });
    played.give(Input::Tick);
    assert_eq!(played.calls.len(), 1);
    played.answer(json!([{"op": "add", "path": "/list/-", "value": 1}]), None);
    played.holds();
}

#[test]
fn delayed_invocations_survive_a_snapshot_and_count_as_idle() {
    let more = json!({"rules": [
        {"name": "too-late", "trigger": {"op": "add", "path": "/cases/*"}, "when": "event.worker == 'opener'", "run": "late", "delay": "5m"},
        {"name": "after-all", "trigger": {"idle": ["too-late"]}, "run": "late"},
    ]});
    let mut played = cases(json!("5m"), &more);
    open(&mut played, "a", &json!({"is": "open"}));
    assert_eq!(played.calls.len(), 0, "nothing was under way that could be over");
    let delayed = played.board.scheduler().delayed().to_vec();
    assert_eq!(delayed.len(), 1);
    let recovered = Board::recover(&played.records, &PLANS).expect("the journal is enough");
    assert_eq!(recovered.scheduler().delayed(), delayed);
    let stored = serde_json::to_value(played.board.scheduler()).expect("JSON");
    let restored: patchboard_kernel::scheduler::Scheduler = serde_json::from_value(stored).expect("it reads back");
    assert_eq!(restored.delayed(), delayed);
    tick_at(&mut played, 6 * MINUTE);
    played.answer(json!([{"op": "add", "path": "/list/-", "value": 1}]), None);
    assert_eq!(played.calls.len(), 1, "now it was");
    played.answer(json!([{"op": "add", "path": "/list/-", "value": 2}]), None);
    played.holds();
}

#[test]
fn ending_a_board_drops_its_delayed_invocations() {
    let mut played = cases(json!("5m"), &json!({}));
    open(&mut played, "a", &json!({"is": "open"}));
    played.give(Input::Cancel);
    assert_eq!((played.board.wake_at(), played.board.scheduler().delayed().len()), (None, 0));
    tick_at(&mut played, 6 * MINUTE);
    assert_eq!(played.calls.len(), 0);
    played.holds();
}
