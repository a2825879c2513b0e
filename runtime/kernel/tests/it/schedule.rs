//! Scheduled rules: recorded before they act, caught up once, and without a clock in the kernel.

use crate::played::Played;
use patchboard_kernel::board::{Input, Outcome, Step};
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::{Body, Cause, Kind, Trigger};
use serde_json::{Value, json};

const MINUTE: i64 = 60_000;

/// Returns a board with a worker that is triggered every minute.
fn minutely(limits: Value, more: Value) -> Played {
    let mut members = json!({
        "workers": {"w": {"agent": "llm", "limits": limits, "writes": [{"path": "/list/-", "ops": ["add"]}]}},
        "rules": [
            {"name": "minutely", "trigger": {"every": "* * * * *"}, "run": "w"},
            {"name": "go", "trigger": {"signal": "go"}, "run": "w"},
        ],
    });
    members.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    Played::new(members)
}

/// Returns the wake-up time that a step requests.
fn alarm(step: &Step) -> Option<i64> {
    step.effects.wake_at.map(|at| at.0)
}

fn tick_at(played: &mut Played, now: i64) -> Step {
    played.now = now - 1;
    played.give(Input::Tick)
}

/// Returns the due time of each invocation.
fn due(played: &Played) -> Vec<i64> {
    let scheduled = played.bodies().filter_map(|body| match body {
        Body::Scheduled(scheduled) => Some(scheduled.trigger),
        _ => None,
    });
    scheduled.filter_map(|trigger| if let Trigger::Every { due } = trigger { Some(due.0) } else { None }).collect()
}

fn step() -> Value {
    json!([{"op": "add", "path": "/list/-", "value": 1}])
}

#[test]
fn a_rule_fires_when_it_is_due_and_not_before() {
    let mut played = minutely(json!({}), json!({}));
    assert_eq!((played.board.wake_at(), played.board.ended()), (Some(Timestamp(MINUTE)), None));
    assert!(tick_at(&mut played, MINUTE - 1).records.is_empty());
    let fired = tick_at(&mut played, MINUTE + 7);
    let kinds: Vec<Kind> = fired.records.iter().map(|record| record.kind).collect();
    assert_eq!(kinds, [Kind::Tick, Kind::Scheduled, Kind::Invoked]);
    assert!(played.view().contains("every") && !played.view().contains("60000"), "{}", played.view());
    assert!(matches!(played.answer(step(), None), Outcome::Committed { .. }));
    assert_eq!((played.board.wake_at(), played.board.ended()), (Some(Timestamp(2 * MINUTE)), None));
    assert_eq!(played.board.running_ms(), 1, "between its times nothing runs");
    played.holds();
}

#[test]
fn missed_schedule_times_fire_once() {
    let mut played = minutely(json!({}), json!({}));
    tick_at(&mut played, 10 * MINUTE + 5);
    assert_eq!(due(&played), [MINUTE]);
    played.answer(step(), None);
    played.give(Input::take_over(1, "again".into()));
    assert_eq!(played.board.wake_at(), Some(Timestamp(11 * MINUTE)));
    // During a pause nothing fires; resuming catches up once.
    played.give(Input::Pause { key: None });
    assert_eq!(played.board.wake_at(), None);
    assert!(tick_at(&mut played, 20 * MINUTE).records.is_empty());
    let resumed = played.give(Input::Resume { key: None });
    assert_eq!(alarm(&resumed), Some(11 * MINUTE), "it is late already");
    played.give(Input::Tick);
    assert_eq!(due(&played), [MINUTE, 11 * MINUTE]);
    played.holds();
}

#[test]
fn a_scheduled_invocation_is_queued_once() {
    let mut played = minutely(json!({"timeout": "1h"}), json!({"concurrency": 1}));
    tick_at(&mut played, MINUTE);
    tick_at(&mut played, 2 * MINUTE);
    assert_eq!((due(&played).len(), played.board.scheduler().queue().len()), (2, 1));
    for minute in 3..10 {
        assert!(tick_at(&mut played, minute * MINUTE).records.is_empty(), "{minute}");
    }
    let answered = played.answer(step(), None);
    assert!(matches!(answered, Outcome::Committed { .. }));
    played.give(Input::Tick);
    assert_eq!(due(&played), [MINUTE, 2 * MINUTE, 3 * MINUTE]);
    played.holds();
}

#[test]
fn an_unmetered_worker_waits_for_no_slot_and_takes_none() {
    for word in ["unmetered_concurrency", "exempt"] {
        unmetered(word);
    }
}

/// Plays a board of one slot, in which `word` leaves one worker out of the limit.
fn unmetered(word: &str) {
    let seat =
        |limits: Value| json!({"agent": "llm", "limits": limits, "writes": [{"path": "/list/-", "ops": ["add"]}]});
    let mut played = Played::new(json!({
        "concurrency": 1,
        "workers": {"judge": seat(json!({word: true, "attempts": 2})), "silent": seat(json!({}))},
        "rules": [
            {"name": "begin", "trigger": {"signal": "begin"}, "run": "silent"},
            {"name": "late", "trigger": {"signal": "late"}, "run": "judge"},
        ],
    }));
    let calling = |played: &Played| -> Vec<String> {
        let open = played.board.scheduler().open().values();
        open.map(|open| open.queued.branch.worker.to_string()).collect()
    };
    for signal in ["begin", "begin", "late", "late"] {
        played.give(Input::Signal { name: signal.into(), value: Value::Null, key: None });
    }
    assert_eq!(calling(&played), ["silent", "judge"], "one place, and one of each is called at a time");
    assert_eq!(played.board.scheduler().queue().len(), 2);
    // A retry needs no slot either, and frees none. The call of `silent` is the oldest, and stays open.
    played.calls.rotate_left(1);
    let refused = played.answer(json!([{"op": "add", "path": "/elsewhere", "value": 1}]), None);
    assert!(matches!(refused, Outcome::Rejected { .. }), "{refused:?}");
    assert_eq!(played.calls.iter().map(|(_, attempt, _)| *attempt).collect::<Vec<_>>(), [1, 2]);
    played.calls.rotate_left(1);
    played.answer(step(), None);
    assert_eq!(calling(&played), ["silent", "judge"]);
    assert_eq!(played.board.scheduler().queue().len(), 1, "another place is not free");
    played.holds();
}

#[test]
fn a_board_ends_when_its_schedules_can_bring_no_more() {
    let mut played = minutely(json!({"invocations": 2}), json!({}));
    for minute in 1..3 {
        tick_at(&mut played, minute * MINUTE);
        played.answer(step(), None);
    }
    assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::NothingToDo));
    assert!(tick_at(&mut played, 3 * MINUTE).records.is_empty());
    played.holds();

    let mut played = minutely(json!({}), json!({"done": {"when": "size(state.list) > 0"}}));
    tick_at(&mut played, MINUTE);
    played.answer(step(), None);
    assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::Done));
    assert_eq!(played.board.wake_at(), None);
    played.holds();
}

#[test]
fn a_condition_decides_whether_it_fires_and_a_board_that_waits_takes_a_signal() {
    let rules = json!({"rules": [
        {"name": "often", "trigger": {"every": "*/5 * * * *"}, "when": "event.name == 'often' && size(state.list) > 0",
         "run": "w"},
        {"name": "go", "trigger": {"signal": "go"}, "run": "w"},
    ]});
    let mut played = minutely(json!({}), rules);
    tick_at(&mut played, 5 * MINUTE);
    assert_eq!((played.calls.len(), played.board.wake_at()), (0, Some(Timestamp(10 * MINUTE))));
    played.signal();
    played.answer(step(), None);
    tick_at(&mut played, 10 * MINUTE);
    assert_eq!(due(&played), [10 * MINUTE]);
    played.holds();
}
