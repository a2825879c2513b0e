//! Rules with undecided conditions, and the joins that wait for them.

use patchboard_kernel::board::{Input, Outcome};
use patchboard_kernel::record::{Body, Cause, End, Retried, Trigger};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::played::Played;

/// Returns a blueprint in which notes are checked if they have weight, and reported after that. The rule `check`
/// triggers the checker.
fn notes(check: Value) -> Value {
    json!({
        "blueprint": 2, "concurrency": 100, "state": {"schema": {}, "initial": {"notes": {}}},
        // Documents recur if notes are removed and added again.
        "circuit": {"no_ops": {"limit": 50, "then": "stop_branch"}, "cycles": {"repeats": 100}},
        "workers": {
            "writer": {"agent": "llm", "writes": [
                {"path": "/notes/*", "ops": ["add", "replace", "remove"]}, {"path": "/notes/*/*"}, {"path": "/least"}]},
            "checker": {"agent": "llm", "reads": ["/notes/{note}"], "limits": {"attempts": 1},
                "writes": [{"path": "/notes/{note}/ok"}]},
            "reporter": {"agent": "llm", "reads": ["/notes"], "writes": [{"path": "/report"}]},
        },
        "rules": [
            {"name": "write", "trigger": "start", "run": "writer"},
            check,
            {"name": "report", "trigger": {"after": ["check"]}, "run": "reporter"},
        ],
    })
}

fn by_weight() -> Value {
    json!({"name": "check", "trigger": {"op": "add", "path": "/notes/{note}"}, "when": "value.weight > 1", "run": "checker"})
}

fn add(path: &str, value: Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}

fn called(played: &Played) -> Vec<&str> {
    played.calls.iter().map(|(_, _, worker)| worker.as_str()).collect()
}

fn ended(played: &Played) -> Option<(End, Cause)> {
    played.board.ended().map(|ended| (ended.end, ended.cause))
}

fn skipped(played: &Played) -> Vec<(bool, String, Option<String>)> {
    let of = |body| match body {
        Body::Skipped(of) => {
            let place = of.trigger.and_then(|trigger| match trigger {
                Trigger::Event { path, .. } => Some(path),
                _ => None,
            });
            Some((of.invocation.is_some(), of.message, place))
        }
        _ => None,
    };
    played.bodies().filter_map(of).collect()
}

fn directly(played: &mut Played, op: Value) {
    let outcome = played.direct("writer", &json!([op]).to_string());
    assert!(matches!(outcome, Outcome::Committed { .. }), "{op}: {outcome:?}");
}

const GAVE_UP: Option<(End, Cause)> = Some((End::Quiescent, Cause::GaveUp));

/// Returns a board with two notes without weight; they block its report.
fn held_up() -> Played {
    let mut played = Played::new(notes(by_weight()));
    played.answer(
        json!([add("/notes/a", json!({})), add("/notes/b", json!({})), add("/notes/c", json!({"weight": 2}))]),
        None,
    );
    assert_eq!(called(&played), ["checker"]);
    played.answer(json!([add("/notes/{note}/ok", json!(true))]), None);
    assert_eq!((called(&played), ended(&played)), (vec![], GAVE_UP));
    played
}

#[test]
fn after_waits_while_the_condition_of_an_element_is_undecided() {
    let played = held_up();
    let missing = |place: &str| (false, "no such member: weight".to_owned(), Some(place.to_owned()));
    assert_eq!(skipped(&played), [missing("/notes/a"), missing("/notes/b")], "each is named");
    let refused = played.board.judge_retry(&Retried::default()).expect_err("nothing was given up");
    assert!(refused.violations[0].message.contains("rule check"), "{refused:?}");
    played.holds();
    // A false condition excludes the element; `settled` also fires with undecided ones.
    for (trigger, weight) in [("after", json!({"weight": 1})), ("settled", json!({}))] {
        let mut blueprint = notes(by_weight());
        blueprint["rules"][2]["trigger"] = json!({trigger: ["check"]});
        let mut played = Played::new(blueprint);
        played.answer(json!([add("/notes/a", weight)]), None);
        assert_eq!(called(&played), ["reporter"], "{trigger}");
        played.holds();
    }
}

#[test]
fn elements_decided_later_release_the_join() {
    // One note gets a sufficient weight without an event that triggers its rule, and the other is removed.
    let mut played = held_up();
    directly(&mut played, add("/notes/a/weight", json!(2)));
    assert_eq!(called(&played), ["checker"]);
    assert!(played.view().contains("/notes/a"), "{}", played.view());
    played.answer(json!([add("/notes/{note}/ok", json!(true))]), None);
    assert_eq!((called(&played), ended(&played)), (vec![], GAVE_UP), "the other is not decided yet");
    directly(&mut played, json!({"op": "remove", "path": "/notes/b"}));
    assert_eq!(called(&played), ["reporter"]);
    played.holds();
    // Both are excluded.
    let mut played = held_up();
    directly(&mut played, add("/notes/a/weight", json!(0)));
    directly(&mut played, add("/notes/b/weight", json!(0)));
    assert_eq!(called(&played), ["reporter"]);
    played.holds();
    // Another event of the element triggers the rule before the board is quiescent.
    let check = json!({"name": "check", "trigger": {"path": "/notes/{note}/*"}, "run": "checker",
        "when": "state.notes[bound.note].weight > 1 && !has(state.notes[bound.note].ok)"});
    let mut played = Played::new(notes(check));
    played.answer(json!([add("/notes/a", json!({})), add("/notes/a/text", json!("t"))]), None);
    assert_eq!(ended(&played), GAVE_UP);
    directly(&mut played, add("/notes/a/weight", json!(2)));
    assert_eq!(called(&played), ["checker"], "once");
    played.answer(json!([add("/notes/{note}/ok", json!(true))]), None);
    assert_eq!(called(&played), ["reporter"]);
    played.holds();
}

#[test]
fn removed_elements_release_the_join() {
    // The rule cannot be decided for the removal of its own element.
    let check = json!({"name": "check", "trigger": {"path": "/notes/{note}"}, "run": "checker",
        "when": "state.notes[bound.note].weight > 1"});
    let mut played = Played::new(notes(check));
    played.answer(json!([add("/notes/a", json!({"weight": 2}))]), None);
    directly(&mut played, json!({"op": "remove", "path": "/notes/a"}));
    // The call for it fails and is given up.
    while called(&played) == ["checker"] {
        played.answer(json!([add("/notes/{note}/ok", json!(true))]), None);
    }
    assert!(!played.board.given_up().is_empty());
    assert_eq!(called(&played), ["reporter"], "{:?}", skipped(&played));
    played.holds();
    // An abandoned invocation no longer counts once its element is removed.
    let mut played = Played::new(notes(
        json!({"name": "check", "trigger": {"op": "add", "path": "/notes/{note}"}, "run": "checker"}),
    ));
    played.answer(json!([add("/notes/a", json!({}))]), None);
    played.answer(json!([add("/elsewhere", json!(1))]), None);
    assert_eq!((called(&played), ended(&played)), (vec![], GAVE_UP));
    directly(&mut played, json!({"op": "remove", "path": "/notes/a"}));
    assert_eq!(called(&played), ["reporter"]);
    played.holds();
    // An invocation for the removal itself still counts.
    let mut blueprint = notes(json!({"name": "check", "trigger": {"path": "/notes/{note}"}, "run": "checker"}));
    blueprint["state"]["initial"] = json!({"notes": {"a": {}}});
    let mut played = Played::new(blueprint);
    played.answer(json!([{"op": "remove", "path": "/notes/a"}]), None);
    while called(&played) == ["checker"] {
        played.answer(json!([add("/elsewhere", json!(1))]), None);
    }
    assert_eq!((called(&played), ended(&played)), (vec![], GAVE_UP));
    played.holds();
    // A rule for removals still counts after its element is gone.
    let check = json!({"name": "check", "trigger": {"op": "remove", "path": "/notes/{note}"}, "run": "checker",
        "when": "value.weight > 1"});
    let mut blueprint = notes(check);
    blueprint["state"]["initial"] = json!({"notes": {"a": {}}});
    let mut played = Played::new(blueprint);
    played.answer(json!([{"op": "remove", "path": "/notes/a"}]), None);
    assert_eq!((called(&played), ended(&played)), (vec![], GAVE_UP));
    played.holds();
}

#[test]
fn each_worker_of_a_group_is_decided_for_itself() {
    for (first, second) in [("r1", "r2"), ("r2", "r1")] {
        let mut blueprint = notes(json!({"name": "check", "trigger": {"op": "add", "path": "/notes/{note}"},
            "when": "value[worker] > 1", "run": {"group": "readers"}}));
        for reader in ["r1", "r2"] {
            blueprint["workers"][reader] = json!({"agent": "llm", "group": "readers", "description": reader,
                "reads": ["/notes/{note}"], "writes": [{"path": "/notes/{note}/ok"}]});
        }
        let mut played = Played::new(blueprint);
        played.answer(json!([add("/notes/a", json!({first: 2}))]), None);
        assert_eq!(called(&played), [first]);
        played.answer(json!([add("/notes/{note}/ok", json!(true))]), None);
        assert_eq!((called(&played), ended(&played)), (vec![], GAVE_UP), "{second} was not decided");
        directly(&mut played, add(&format!("/notes/a/{second}"), json!(2)));
        assert_eq!(called(&played), [second]);
        played.answer(json!([add("/notes/{note}/ok", json!(false))]), None);
        assert_eq!(called(&played), ["reporter"]);
        played.holds();
    }
}

#[test]
fn a_follow_up_invocation_leaves_later_events_undecided() {
    let check =
        json!({"name": "check", "trigger": {"path": "/notes/{note}"}, "when": "value.weight > 1", "run": "checker"});
    let mut played = Played::new(notes(check));
    played.answer(json!([add("/notes/a", json!({"weight": 2}))]), None);
    directly(&mut played, add("/notes/a", json!({})));
    directly(&mut played, add("/notes/a", json!({"x": 1})));
    played.answer(json!({"patch": [], "expand": ["/notes/a"]}), None);
    while called(&played) == ["checker"] {
        played.answer(json!([add("/notes/{note}/ok", json!(true))]), None);
    }
    assert_eq!((called(&played), played.board.undecided().len()), (vec![], 1), "the last stands for both");
    directly(&mut played, add("/notes/a/weight", json!(2)));
    assert_eq!(called(&played), ["checker"], "once");
    played.holds();
}

#[test]
fn removed_elements_free_their_undecided_slots() {
    let mut blueprint = notes(by_weight());
    blueprint["workers"]["writer"]["patch"] = json!({"max_ops": 20});
    let mut played = Played::new(blueprint);
    played.answer(json!([add("/notes/kept", json!({}))]), None);
    for batch in 0..55 {
        let all = |op: &dyn Fn(String) -> Value| (0..20).map(|n| op(format!("/notes/{batch}-{n}"))).collect::<Value>();
        for patch in [all(&|path| add(&path, json!({}))), all(&|path| json!({"op": "remove", "path": path}))] {
            let outcome = played.direct("writer", &patch.to_string());
            assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
        }
    }
    assert_eq!(ended(&played), GAVE_UP);
    directly(&mut played, add("/notes/kept/weight", json!(1)));
    assert_eq!(called(&played), ["reporter"]);
    played.answer(json!([add("/report", json!("r"))]), None);
    assert_eq!(ended(&played), Some((End::Quiescent, Cause::NothingToDo)));
    // The join has fired, so no rule is blocked any more.
    directly(&mut played, add("/notes/late", json!({})));
    assert_eq!(ended(&played), Some((End::Quiescent, Cause::NothingToDo)));
}

#[test]
fn a_condition_that_is_asked_again_after_a_delay_can_be_undecided() {
    let mut check = by_weight();
    check["when"] = json!("value.weight > 1 && (!has(state.least) || state.least.weight < 2)");
    check["delay"] = json!("1s");
    let mut played = Played::new(notes(check));
    played.answer(json!([add("/notes/a", json!({"weight": 2}))]), None);
    directly(&mut played, add("/least", json!({})));
    played.now += 1000;
    played.give(Input::Tick);
    let missing = (true, "no such member: weight".to_owned(), Some("/notes/a".to_owned()));
    assert_eq!((skipped(&played), called(&played), ended(&played)), (vec![missing], vec![], GAVE_UP));
    // Once decided, it waits for its delay again.
    directly(&mut played, add("/least", json!({"weight": 1})));
    assert_eq!(called(&played), Vec::<&str>::new());
    played.now += 1000;
    played.give(Input::Tick);
    assert_eq!(called(&played), ["checker"]);
    played.holds();
}

/// Random change of one of the notes.
#[derive(Clone, Debug)]
enum Change {
    Added(usize, Option<u8>),
    Weighed(usize, u8),
    Removed(usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0..4_usize, prop::option::of(0..4_u8)).prop_map(|(note, weight)| Change::Added(note, weight)),
        (0..4_usize, 0..4_u8).prop_map(|(note, weight)| Change::Weighed(note, weight)),
        (0..4_usize).prop_map(Change::Removed),
    ]
}

proptest! {
    #[test]
    fn a_report_is_made_once_every_note_is_decided(changes in prop::collection::vec(change(), 0..16)) {
        let mut played = Played::new(notes(by_weight()));
        // A note that stays undecided, so that the report waits until it is removed.
        played.answer(json!([add("/notes/z", json!({}))]), None);
        for change in &changes {
            let is_there = |note: &usize| played.board.state().root().to_value()["notes"].get(note.to_string()).is_some();
            // Replacing a note by another is skipped, because that triggers no rule.
            if matches!(change, Change::Added(note, _) if is_there(note)) {
                continue;
            }
            let op = match change {
                Change::Added(note, None) => add(&format!("/notes/{note}"), json!({})),
                Change::Added(note, Some(weight)) => add(&format!("/notes/{note}"), json!({"weight": weight})),
                Change::Weighed(note, weight) => add(&format!("/notes/{note}/weight"), json!(weight)),
                Change::Removed(note) => json!({"op": "remove", "path": format!("/notes/{note}")}),
            };
            // A change of a missing note is rejected.
            played.direct("writer", &json!([op]).to_string());
            while called(&played).contains(&"checker") {
                played.answer(json!([add("/notes/{note}/ok", json!(true))]), None);
            }
            prop_assert!(!called(&played).contains(&"reporter"));
        }
        directly(&mut played, json!({"op": "remove", "path": "/notes/z"}));
        while called(&played).contains(&"checker") {
            played.answer(json!([add("/notes/{note}/ok", json!(true))]), None);
        }
        let state = played.board.state().root().to_value();
        let notes = state["notes"].as_object().expect("notes");
        let is_decided = notes.values().all(|note| note.get("weight").is_some());
        prop_assert_eq!(called(&played).contains(&"reporter"), is_decided, "{}", state);
        played.holds();
    }
}
