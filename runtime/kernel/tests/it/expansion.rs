//! Expansion: a worker that asks to see more is called again with the requested places, up to a limit.

use crate::played::Played;
use patchboard_kernel::board::{Board, Input, Outcome};
use patchboard_kernel::breaker::BreakerState;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::id::{InvocationId, Timestamp};
use patchboard_kernel::record::{Body, Cause, End, FORMAT, GENESIS, Kind, Record};
use patchboard_kernel::rejection::{Code, Stage};
use patchboard_protocols::PLANS;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Returns a board with forty sources that ends after the reader's rule. The reader's view holds a few of them.
fn library(reader: Value) -> Played {
    let sources: Vec<Value> =
        (0..40).map(|n| json!({"title": format!("t{n}"), "text": format!("<{n}> {}", "x".repeat(60))})).collect();
    let mut seat = json!({"agent": "llm", "reads": ["/sources/*", "/long"], "view": {"budget": 1200},
        "writes": [{"path": "/notes/-", "ops": ["add"]}, {"path": "/long", "ops": ["replace"]}]});
    seat.as_object_mut().expect("an object").extend(reader.as_object().expect("members").clone());
    Played::new(json!({
        "state": {"schema": {"type": "object"}, "initial": {"sources": sources, "notes": [], "list": [{"id": "x"}, {"id": "y"}], "named": {"a": 1, "b": 2}, "long": "y".repeat(5000), "secret": 1}},
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
fn expanded_places_are_in_the_next_view_and_defer_rule_completion() {
    let mut played = library(json!({"limits": {"invocations": 1}}));
    assert!(!played.view().contains("<3>") && played.view().contains("\"expand\": ["), "{}", played.view());
    assert!(matches!(played.answer(ask(&["/sources/3", "/long"]), None), Outcome::Expanded { .. }));
    assert!(played.view().contains("/sources/3: ") && played.view().contains("<3>"), "{}", played.view());
    assert!(played.view().contains(" (characters 1 to ") && played.view().chars().count() <= 1200, "{}", played.view());

    // A request may include a patch; earlier requests stay in force.
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
fn parts_are_asked_for_and_the_record_has_what_was_asked() {
    let mut played = library(json!({"view": {"budget": 1600}}));
    let part = json!({"at": "/sources", "from": 10});
    let asked = json!({"expand": [part, {"at": "/long", "from": 4000}]});
    assert!(matches!(played.answer(asked, None), Outcome::Expanded { .. }));
    assert!(played.view().contains("<10>") && played.view().contains("(characters 4001 to "), "{}", played.view());
    // The parts requested last are shown first.
    assert!(matches!(
        played.answer(json!({"expand": [{"at": "/sources", "from": "20"}]}), None),
        Outcome::Expanded { .. }
    ));
    assert!(played.view().contains("<20>"), "{}", played.view());
    let expands = played.bodies().filter_map(|body| match body {
        Body::Scheduled(scheduled) => Some(json!(scheduled.expand)),
        _ => None,
    });
    let last = expands.last().expect("scheduled");
    assert_eq!(last[0], json!({"at": "/sources", "from": "20"}));
    assert_eq!(last[1], part);
    played.holds();
}

#[test]
fn asking_for_what_has_no_room_is_not_counted() {
    // The required parts leave no room for a text.
    let mut played = library(json!({"view": {"budget": 300}}));
    let part = |from: usize| json!({"expand": [{"at": "/long", "from": from}]});
    let times = (0..9).take_while(|from| matches!(played.answer(part(*from), None), Outcome::Expanded { .. })).count();
    assert_eq!(times, 6, "three times, and three that found no room: {}", played.view());
    let unspent = played.bodies().filter(|body| matches!(body, Body::Invoked(invoked) if invoked.is_unspent)).count();
    assert!(unspent >= 6, "{unspent}");
    played.holds();

    // A worker that repeats a request was already informed that there is no room.
    let mut played = library(json!({"view": {"budget": 300}}));
    let times = (0..9).take_while(|_| matches!(played.answer(ask(&["/long"]), None), Outcome::Expanded { .. })).count();
    assert_eq!(times, 4);
    played.holds();
}

/// Returns the hidden names on the summary line of a collection.
fn named(view: &str, collection: &str) -> String {
    let line = view.lines().find(|line| line.starts_with(&format!("{collection}: ")) && line.contains("not shown: "));
    line.map(|line| line.split_once("not shown: ").expect("it is there").1.to_owned()).unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    /// Every identifier that a summary omits can be reached by asking from the last one named.
    #[test]
    fn every_identifier_of_a_summary_is_reached(
        ids in prop::collection::btree_set("[a-z][a-z0-9]{2,9}", 20..120_usize),
        shared in 0..90_usize,
        size in 100..400_usize,
        is_array in any::<bool>(),
        pattern in any::<bool>(),
    ) {
        // The identifiers of arrays are short; otherwise elements are named by index alone.
        let shared = if is_array { 0 } else { shared };
        let ids: std::collections::BTreeSet<String> = ids.iter().map(|id| "p".repeat(shared) + id).collect();
        let value = |id: &String| json!({"id": id, "text": "x".repeat(size)});
        let things = match is_array {
            true => json!(ids.iter().map(value).collect::<Vec<_>>()),
            false => json!(ids.iter().map(|id| (id.clone(), value(id))).collect::<serde_json::Map<_, _>>()),
        };
        // Large enough for three lists of all names.
        let chars = ids.iter().map(|id| id.len() + 8).sum::<usize>();
        let budget = 900 + chars * 4 / 2;
        let reads = if pattern { "/things/*" } else { "/things" };
        let mut played = Played::new(json!({
            "state": {"schema": {"type": "object"}, "initial": {"things": things}},
            "workers": {"reader": {"agent": "llm", "reads": [reads], "view": {"budget": budget},
                "writes": [{"path": "/note", "ops": ["add"]}]}},
            "rules": [{"name": "begin", "trigger": "start", "run": "reader"}],
        }));
        let mut seen = played.view().to_owned();
        let mut from = None;
        for _ in 0..3 {
            let place = match &from {
                None => json!("/things"),
                Some(from) => json!({"at": "/things", "from": from}),
            };
            let outcome = played.answer(json!({"expand": [place]}), None);
            prop_assert!(matches!(outcome, Outcome::Expanded { .. }), "{outcome:?}");
            seen += played.view();
            let list = named(played.view(), reads);
            // An index is followed by the identifier: `12 (abc)`.
            let last = list.trim_end_matches(" and more").rsplit([',', '(']).next().unwrap_or_default();
            from = Some(last.trim_matches([' ', ')']).to_owned()).filter(|name| !name.is_empty());
            if from.is_none() || !list.contains(" and more") {
                break;
            }
        }
        // A long name may be truncated if it stays distinct from all others.
        let words: std::collections::BTreeSet<&str> = seen.split(|c: char| !c.is_ascii_alphanumeric() && c != '…').collect();
        let is_named = |id: &&String| {
            let begins = |word: &&str| {
                let begun = word.strip_suffix('…');
                begun.is_some_and(|begun| ids.range(begun.to_owned()..).next() == Some(*id))
            };
            words.contains(id.as_str()) || words.iter().any(begins)
        };
        let missing: Vec<_> = ids.iter().filter(|id| !is_named(id)).collect();
        prop_assert!(missing.is_empty(), "{missing:?} are in none of the views, the last of which is\n{}", played.view());
        played.holds();
    }
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
    let wide = || json!({"reads": ["/sources/*", "/long", "/list", "/named"]});
    let many: Vec<String> = (0..17).map(|n| format!("/sources/{n}")).collect();
    for (reply, stage, code) in [
        (ask(&["/secret"]), Stage::Authorization, Code::PathNotGranted),
        (ask(&["/sources/40"]), Stage::Application, Code::PathNotFound),
        (ask(&["sources/1"]), Stage::Syntax, Code::BadPointer),
        (json!({"expand": [3]}), Stage::Syntax, Code::BadPointer),
        (json!({"expand": [{"at": "/sources"}]}), Stage::Syntax, Code::BadPointer),
        (json!({"expand": [{"at": "/sources", "from": -1}]}), Stage::Syntax, Code::BadPointer),
        (json!({"expand": [{"at": "/secret", "from": 0}]}), Stage::Authorization, Code::PathNotGranted),
        (json!({"expand": [{"at": "/long", "from": 5000}]}), Stage::Application, Code::PathNotFound),
        (json!({"expand": [{"at": "/long", "from": "end"}]}), Stage::Application, Code::PathNotFound),
        (json!({"expand": [{"at": "/list", "from": "zz"}]}), Stage::Application, Code::PathNotFound),
        (json!({"expand": [{"at": "/list", "from": 2}]}), Stage::Application, Code::PathNotFound),
        (json!({"expand": [{"at": "/named", "from": "c"}]}), Stage::Application, Code::PathNotFound),
        (json!({"expand": "/sources/1"}), Stage::Syntax, Code::NotAPatch),
        (json!({"expand": []}), Stage::Syntax, Code::NotAPatch),
        (json!({"expand": many}), Stage::Syntax, Code::TooLarge),
        (
            json!([{"op": "replace", "path": "/$expand/-", "value": "/sources/1"}]),
            Stage::Authorization,
            Code::PathNotGranted,
        ),
    ] {
        let mut played = library(wide());
        assert_eq!(refused(played.answer(reply.clone(), None)), (stage, code), "{reply}");
        played.holds();
    }
    for from in [json!("x"), json!("1"), json!(1)] {
        let mut played = library(wide());
        let outcome = played.answer(json!({"expand": [{"at": "/list", "from": from}]}), None);
        assert!(matches!(outcome, Outcome::Expanded { .. }), "{from}: {outcome:?}");
    }
    for from in ["", "aa", "b", "b…"] {
        let mut played = library(wide());
        let outcome = played.answer(json!({"expand": [{"at": "/named", "from": from}]}), None);
        assert!(matches!(outcome, Outcome::Expanded { .. }), "{from}: {outcome:?}");
    }
    // A container with readable parts may be requested as well, and a duplicate request counts once.
    let mut played = library(wide());
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
            .states()
            .map(|(_, position)| matches!(position, BreakerState::HalfOpen { .. }))
            .collect::<Vec<_>>(),
        [true]
    );
    assert!(matches!(
        played.answer(json!([{"op": "add", "path": "/list/-", "value": 1}]), None),
        Outcome::Committed { .. }
    ));
    played.holds();
}

#[test]
fn a_board_of_an_earlier_format_keeps_its_views_after_a_takeover() {
    let mut played = Played::new(json!({
        "state": {"schema": {}, "initial": {"long": "y".repeat(3000)}},
        "workers": {"w": {"agent": "llm", "reads": ["/long"], "writes": [{"path": "/note"}], "view": {"budget": 900}}},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}, {"name": "yearly", "trigger": {"every": "0 0 1 1 *"}, "run": "w"}],
    }));
    let mut body = played.records[0].body().expect("it can be read").clone();
    let Body::Created(created) = &mut body else { panic!("the first record creates") };
    created.format = 12;
    let first = Record::seal(GENESIS, played.records[0].seq, Timestamp(0), body, &Hasher::new(&Salt::ZERO));
    played.board = Board::recover(std::slice::from_ref(&first), &PLANS).expect("an earlier format is read");
    played.records = vec![first];
    played.give(Input::take_over(1, "next".into()));
    assert_eq!(played.board.format(), FORMAT);
    played.signal();
    assert!(
        played.view().contains("\"expand\": [\"/its/path\"]") && !played.view().contains("FIRST"),
        "{}",
        played.view()
    );
    let part = json!({"expand": [{"at": "/long", "from": 9}]});
    assert_eq!(refused(played.answer(part, None)), (Stage::Syntax, Code::BadPointer));
    assert!(matches!(played.answer(ask(&["/long"]), None), Outcome::Expanded { .. }));
    assert!(played.view().contains(" (its first "), "{}", played.view());
    let compilers: Vec<(u32, usize)> = played
        .bodies()
        .filter_map(|body| match body {
            Body::Invoked(invoked) => Some((invoked.compiler, invoked.unshown.len())),
            _ => None,
        })
        .collect();
    assert_eq!(compilers, [(4, 0); 3]);
    played.holds();
}
