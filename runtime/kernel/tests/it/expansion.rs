//! A worker that asks to be shown more is asked again, with what it asked for, and never without an end.

use crate::played::Played;
use patchboard_kernel::board::Outcome;
use patchboard_kernel::breaker::Position;
use patchboard_kernel::id::InvocationId;
use patchboard_kernel::record::{Body, Cause, End, Kind};
use patchboard_kernel::rejection::{Code, Stage};
use serde_json::{Value, json};

/// Forty sources of which the reader's view holds a few, and an end after the reader's rule.
fn library(reader: Value) -> Played {
    let sources: Vec<Value> =
        (0..40).map(|n| json!({"title": format!("t{n}"), "text": format!("<{n}> {}", "x".repeat(60))})).collect();
    let mut seat = json!({"agent": "llm", "reads": ["/sources/*", "/long"], "view": {"budget": 1200},
        "writes": [{"path": "/notes/-", "ops": ["add"]}, {"path": "/long", "ops": ["replace"]}]});
    seat.as_object_mut().expect("an object").extend(reader.as_object().expect("members").clone());
    Played::new(json!({
        "state": {"schema": {"type": "object"}, "initial": {"sources": sources, "notes": [], "long": "y".repeat(5000), "secret": 1}},
        "workers": {"reader": seat, "last": {"agent": "script", "script": [[{"op": "add", "path": "/end", "value": 1}]],
            "writes": [{"path": "/end", "ops": ["add"]}]}},
        "rules": [
            {"name": "begin", "trigger": "start", "run": "reader"},
            {"name": "end", "trigger": {"after": ["begin"]}, "run": "last"},
        ],
    }))
}

fn ask(places: &[&str]) -> Value {
    json!({"expand": places})
}

fn note() -> Value {
    json!([{"op": "add", "path": "/notes/-", "value": "n"}])
}

fn refused(outcome: Outcome) -> (Stage, Code) {
    match outcome {
        Outcome::Rejected { rejection, .. } => (rejection.stage, rejection.code),
        other => panic!("it was {other:?}"),
    }
}

#[test]
fn what_was_asked_for_is_shown_in_the_next_view_and_the_rule_is_not_complete_before() {
    let mut played = library(json!({"limits": {"invocations": 1}}));
    assert!(!played.view().contains("<3>") && played.view().contains("\"expand\": ["), "{}", played.view());
    assert!(matches!(played.answer(ask(&["/sources/3", "/long"]), None), Outcome::Expanded { .. }));
    assert!(played.view().contains("/sources/3: ") && played.view().contains("<3>"), "{}", played.view());
    assert!(played.view().contains(" (its first ") && played.view().chars().count() <= 1200, "{}", played.view());

    // A patch may come with it; what was asked for before stays.
    let with_patch = json!({"patch": note(), "intent": "more", "expand": ["/sources/7"]});
    assert!(matches!(played.answer(with_patch, None), Outcome::Committed { .. }));
    assert!(played.view().contains("<3>") && played.view().contains("<7>"), "{}", played.view());
    assert_eq!(played.count(Kind::Ended), 0);
    assert_eq!(played.calls.len(), 1, "the rule after it has not fired");

    assert!(matches!(played.answer(note(), None), Outcome::Committed { .. }));
    assert_eq!(played.calls[0].2, "last", "now it has");
    let follows: Vec<Option<InvocationId>> = played
        .bodies()
        .filter_map(|body| match body {
            Body::Scheduled(scheduled) => Some(scheduled.follows),
            _ => None,
        })
        .collect();
    assert_eq!(follows, [None, Some(InvocationId(1)), Some(InvocationId(2)), None]);
    assert_eq!(played.count(Kind::Budget), 0, "an invocation that goes on is one");
    played.holds();
}

#[test]
fn an_operation_on_expand_means_the_same_and_the_others_keep_their_numbers() {
    let mut played = library(json!({}));
    let ops = |other: &str| json!([{"op": "add", "path": "/$expand/-", "value": "/sources/3"}, {"op": "add", "path": other, "value": "n"}]);
    let Outcome::Rejected { rejection, .. } = played.answer(ops("/secret"), None) else {
        panic!("it may not write there")
    };
    assert_eq!((rejection.code, rejection.violations[0].op), (Code::PathNotGranted, Some(1)));
    assert!(matches!(played.answer(ops("/notes/-"), None), Outcome::Committed { .. }));
    assert!(played.view().contains("<3>"));
    assert_eq!(played.board.state().root()["notes"].to_value(), json!(["n"]));
    played.holds();
}

#[test]
fn there_is_an_end_to_asking() {
    let mut played = library(json!({"limits": {"attempts": 2}}));
    for place in ["/sources/1", "/sources/2", "/sources/3"] {
        assert!(matches!(played.answer(ask(&[place]), None), Outcome::Expanded { .. }));
    }
    assert!(!played.view().contains("expand"), "nobody is told of what cannot be done: {}", played.view());
    assert_eq!(refused(played.answer(ask(&["/sources/4"]), None)), (Stage::Authorization, Code::ExpansionLimit));
    assert_eq!(refused(played.answer(ask(&["/sources/4"]), None)), (Stage::Authorization, Code::ExpansionLimit));
    assert_eq!(played.board.ended().map(|ended| (ended.end, ended.cause)), Some((End::Quiescent, Cause::GaveUp)));
    played.holds();
}

#[test]
fn only_what_is_there_and_may_be_read_can_be_asked_for() {
    let many: Vec<String> = (0..17).map(|n| format!("/sources/{n}")).collect();
    for (reply, stage, code) in [
        (ask(&["/secret"]), Stage::Authorization, Code::PathNotGranted),
        (ask(&["/sources/40"]), Stage::Application, Code::PathNotFound),
        (ask(&["sources/1"]), Stage::Syntax, Code::BadPointer),
        (json!({"expand": [3]}), Stage::Syntax, Code::BadPointer),
        (json!({"expand": "/sources/1"}), Stage::Syntax, Code::NotAPatch),
        (json!({"expand": []}), Stage::Syntax, Code::NotAPatch),
        (json!({"expand": many}), Stage::Syntax, Code::TooLarge),
        (
            json!([{"op": "replace", "path": "/$expand/-", "value": "/sources/1"}]),
            Stage::Authorization,
            Code::PathNotGranted,
        ),
    ] {
        let mut played = library(json!({}));
        assert_eq!(refused(played.answer(reply.clone(), None)), (stage, code), "{reply}");
        played.holds();
    }
    // What holds something readable may be asked for as well, and what was asked twice counts once.
    let mut played = library(json!({}));
    assert!(matches!(played.answer(ask(&["/sources", "/sources"]), None), Outcome::Expanded { .. }));
    assert_eq!(
        refused(played.direct("reader", &ask(&["/long"]).to_string())),
        (Stage::Authorization, Code::ExpansionLimit)
    );
    played.holds();
}

#[test]
fn asking_is_no_streak_of_nothing_and_a_repeated_reply_has_the_first_outcome() {
    let mut played = library(json!({}));
    let first = played.calls[0].clone();
    let outcome = played.answer(ask(&["/sources/1"]), None);
    played.calls.insert(0, first);
    let again = played.answer(json!({"patch": [], "expand": ["/sources/1"]}), None);
    assert!(matches!((&outcome, &again), (Outcome::Expanded { .. }, Outcome::Duplicate(_))), "{again:?}");
    assert!(matches!(played.answer(ask(&["/sources/2"]), None), Outcome::Expanded { .. }));
    assert!(matches!(played.answer(json!([]), None), Outcome::NoOp { .. }));
    assert_eq!(played.count(Kind::Breaker), 0);
    played.holds();
}

#[test]
fn a_stopped_branch_that_asks_on_its_probe_goes_on_with_it() {
    let mut played = Played::new(json!({
        "workers": {"w": {"agent": "llm", "reads": ["/list"], "writes": [{"path": "/list/-", "ops": ["add"]}]},
            "other": {"agent": "llm", "writes": [{"path": "/x", "ops": ["add", "replace"]}]}},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
        "circuit": {"no_ops": {"limit": 1, "then": "stop_branch"}, "cooldown": 1},
    }));
    played.signal();
    assert!(matches!(played.answer(json!([]), None), Outcome::NoOp { .. }));
    played.direct("other", &json!([{"op": "add", "path": "/x", "value": 1}]).to_string());
    played.signal();
    assert!(matches!(played.answer(ask(&["/list"]), None), Outcome::Expanded { .. }));
    assert_eq!(
        played
            .board
            .breaker()
            .positions()
            .map(|(_, position)| matches!(position, Position::HalfOpen { .. }))
            .collect::<Vec<_>>(),
        [true]
    );
    assert!(matches!(
        played.answer(json!([{"op": "add", "path": "/list/-", "value": 1}]), None),
        Outcome::Committed { .. }
    ));
    played.holds();
}
