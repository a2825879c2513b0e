//! Rooms that only their members may read: views, feedback and rejections of other workers reveal nothing about them.

mod watched;

use std::collections::{BTreeMap, BTreeSet};

use self::watched::{Watched, acts, house};
use crate::played::Played;
use patchboard_kernel::bindings::Bindings;
use patchboard_kernel::board::{Board, Input, Outcome};
use patchboard_kernel::expand_request::ExpandRequest;
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::nested;
use patchboard_kernel::record::Body;
use patchboard_kernel::rejection::{Code, Rejection, Stage};
use patchboard_kernel::reply_schema::ReplySchema;
use patchboard_protocols::PLANS;
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn only_members_learn_of_a_room() {
    let (mut shown, mut hidden, mut refused) = (0, 0, BTreeMap::<(Stage, Code), usize>::new());
    let situations = (
        prop::sample::select(&["none", "target", "reads", "members"][..]),
        prop::sample::select(&[150_u32, 500, 900, 1500, 100_000, 100_000][..]),
        acts(),
    );
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(80) };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let watched = std::cell::RefCell::new((&mut shown, &mut hidden, &mut refused));
    let outcome = runner.run(&situations, |(freshness, budget, acts)| {
        let mut house = Watched::new(freshness, budget);
        acts.iter().for_each(|act| house.act(act));
        house.played.holds();
        let mut all = watched.borrow_mut();
        *all.0 += house.shown;
        *all.1 += house.hidden;
        for body in house.played.bodies() {
            if let Body::Rejected(rejected) = body {
                *all.2.entry((rejected.stage, rejected.code)).or_default() += 1;
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(shown > 100 && hidden > 1000, "{shown} shown, {hidden} hidden");
    let stages: BTreeSet<Stage> = refused.keys().map(|(stage, _)| *stage).collect();
    let all = [Stage::Authorization, Stage::Freshness, Stage::Application, Stage::Schema, Stage::Invariant];
    assert!(all.iter().all(|stage| stages.contains(stage)), "{refused:?}");
}

/// Returns a board with these rooms.
fn board(budget: u32, rooms: &Value) -> Board {
    Played::asked(json!({"question": "?"}), house("members", budget, rooms)).board
}

fn rooms(names: &'static [&'static str], agents: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let member = prop::sample::subsequence(agents, 0..=agents.len().min(3));
    let messages = prop::collection::vec("[a-z ]{1,30}", 0..6);
    let room = (member, messages).prop_map(|(members, messages)| json!({"members": members, "messages": messages}));
    let name = prop::sample::select(names).prop_map(str::to_owned);
    prop::collection::btree_map(name, room, 0..=names.len()).prop_map(|rooms| json!(rooms))
}

fn joined(one: &Value, other: &Value) -> Value {
    let mut all = one.as_object().expect("rooms").clone();
    all.extend(other.as_object().expect("rooms").clone());
    Value::Object(all)
}

/// Returns expansion requests that are valid in any state.
fn places() -> Vec<Value> {
    let from = |from: Value| json!({"at": "/board/rooms", "from": from});
    vec![
        json!("/board"),
        json!("/board/rooms"),
        json!("/board/rooms/m1/messages/0"),
        from(json!("m")),
        from(json!("m2")),
        from(json!(1)),
        json!({"at": "/board/rooms/m1/messages", "from": 1}),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// The rooms of others do not change a single byte of an agent's view or its reply form.
    #[test]
    fn the_rooms_of_others_make_no_difference(
        own in rooms(&["m1", "m2", "m3"], &["bob"]),
        others in rooms(&["a", "m1x", "m20", "z", "~0/-", "*"], &["bob", "cid", "dot"]),
        budget in prop::sample::select(&[150_u32, 400, 600, 900, 1500, 100_000][..]),
        expand in prop::sample::subsequence(places(), 0..=places().len()),
    ) {
        let mut own = own;
        for room in own.as_object_mut().expect("rooms").values_mut() {
            room["members"].as_array_mut().expect("members").push("ann".into());
        }
        let (alone, among) = (board(budget, &own), board(budget, &joined(&own, &others)));
        let ann = WorkerName::from("ann");
        let expand: Vec<ExpandRequest> = expand.iter().map(|place| ExpandRequest::parse(place).expect("a place")).collect();
        let [one, other] = [&alone, &among].map(|board| {
            let ann = board.worker_plan(&ann, &Bindings::default()).expect("ann is there");
            let view = board.explained_preview(&ann, &expand, &board.readable_by(&ann));
            let shown = board.previewed_values(&ann, &view).expect("ann is there");
            (view, ReplySchema::for_call(&shown))
        });
        prop_assert_eq!(one, other);
    }
}

fn met(rooms: Value) -> Played {
    Played::asked(json!({"question": "?"}), house("reads", 4000, &rooms))
}

fn room(members: &[&str], messages: &[&str]) -> Value {
    json!({"members": members, "messages": messages})
}

#[test]
fn hidden_and_missing_rooms_get_the_same_rejection() {
    let secrets = json!({"quelm": room(&["bob"], &["<QUELM>"]), "zundov": room(&["ann"], &[])});
    let refusal = |patch: Value, name: &str| -> Rejection {
        let patch = patch.to_string().replace("ROOM", name);
        met(secrets.clone()).rejection("ann", serde_json::from_str(&patch).expect("a patch"))
    };
    let patches = [
        json!([{"op": "test", "path": "/board/rooms/ROOM", "value": 1}]),
        json!([{"op": "test", "path": "/board/rooms/ROOM/messages/0", "value": "<QUELM>"}]),
        json!([{"op": "copy", "from": "/board/rooms/ROOM/messages/0", "path": "/board/public/-"}]),
        json!([{"op": "copy", "from": "/board/rooms/ROOM", "path": "/board/public/-"}]),
        json!({"patch": [], "expand": ["/board/rooms/ROOM/messages/0"]}),
    ];
    for patch in patches {
        let (there, nowhere) = (refusal(patch.clone(), "quelm"), refusal(patch.clone(), "yrriph"));
        let codes: Vec<Code> = there.violations.iter().map(|violation| violation.code).collect();
        // Without an invocation, no worker can expand its view.
        let expected = if patch.is_object() { Code::ExpansionLimit } else { Code::PathNotGranted };
        assert_eq!(codes, [expected], "{there:?}");
        let words = |rejection: &Rejection, name: &str| json!(rejection).to_string().replace(name, "ROOM");
        assert_eq!(words(&there, "quelm"), words(&nowhere, "yrriph"));
        assert!(!json!(there).to_string().contains("zundov"), "{there:?}");
    }
    // A member is allowed to.
    let copy = json!([{"op": "copy", "from": "/board/rooms/quelm/messages/0", "path": "/board/public/-"}]).to_string();
    assert!(matches!(met(secrets).direct("bob", &copy), Outcome::Committed { .. }));
}

#[test]
fn the_conditions_of_reads_have_one_limit_for_all_that_a_proposal_does() {
    let rooms: Value = (0..6).map(|_| json!({"text": "t"})).collect();
    let numbers: Value = (0..330).collect();
    let agrees = "request.numbers.all(a, request.numbers.all(b, a != b || b == a))";
    let ann = json!({"agent": "llm", "patch": {"max_ops": 64}, "writes": [{"path": "/list/-"}],
        "reads": [{"path": "/rooms/*", "where": agrees}]});
    let members = json!({"state": {"schema": {}, "initial": {"list": [], "rooms": rooms}}, "workers": {"ann": ann}});
    let mut played = Played::asked(json!({"numbers": numbers}), members);
    let test = json!({"op": "test", "path": "/rooms/5/text", "value": "t"});
    let add = json!({"op": "add", "path": "/list/-", "value": 1});
    // The state does not change between the tests, so each condition is evaluated once.
    let tests: Vec<&Value> = std::iter::repeat_n(&test, 32).chain([&add]).collect();
    assert!(matches!(played.direct("ann", &json!(tests).to_string()), Outcome::Committed { .. }));
    let refused = played.rejection("ann", json!([add, test, add, test, add, test, add, test]));
    assert_eq!(refused.code, Code::PathNotGranted, "{refused:?}");
    assert!(refused.violations[0].op > Some(1), "the first of them is within the limit: {refused:?}");
    played.holds();
}

#[test]
fn unread_copies_are_judged_by_value_unless_a_condition_hides_the_source() {
    let refused = |read: Value| -> Vec<Code> {
        let numbers = json!([{"path": "/out", "ops": ["add", "copy"], "value": {"type": "number"}}]);
        let members = json!({
            "state": {"schema": {}, "initial": {"list": [], "secret": "s"}},
            "workers": {"ann": {"agent": "llm", "reads": ["/list", read], "writes": numbers}},
        });
        let copy = json!([{"op": "copy", "from": "/secret", "path": "/out"}]);
        let refused = Played::new(members).rejection("ann", copy);
        refused.violations.iter().map(|violation| violation.code).collect()
    };
    assert_eq!(refused(json!("/other")), [Code::PathNotGranted, Code::ValueNotGranted], "as journals have it");
    assert_eq!(refused(json!({"path": "/secret", "where": "self == worker"})), [Code::PathNotGranted]);
}

#[test]
fn moves_and_shifts_keep_unreadable_values_hidden() {
    let secrets = json!({"quelm": room(&["bob"], &["<QUELM>"])});
    // Moving a value out of a room requires read access, in addition to any write grant.
    let moved = json!([{"op": "move", "from": "/board/rooms/quelm/messages/0", "path": "/board/public/-"}]);
    let refused = met(secrets.clone()).rejection("ann", moved.clone());
    assert_eq!(refused.code, Code::PathNotGranted, "{refused:?}");
    assert!(matches!(met(secrets).direct("bob", &moved.to_string()), Outcome::Committed { .. }));

    // In an array, a removal shifts another room to the place of a readable one.
    let mut members = house("none", 4000, &json!({}));
    members["state"] =
        json!({"schema": {}, "initial": {"rooms": [room(&["ann"], &["mine"]), room(&["bob"], &["<S>"])]}});
    members["workers"] = json!({"ann": {"agent": "llm",
        "reads": [{"path": "/rooms/*", "where": "worker in self.members"}],
        "writes": [{"path": "/rooms/*", "ops": ["remove"]}, {"path": "/rooms/*/messages/*", "ops": ["replace"]},
            {"path": "/rooms/*/members/*", "ops": ["replace"]}]}});
    members["rules"] = json!([]);
    members["invariants"] = json!([]);
    let shifted = |second: Value| {
        let patch = json!([{"op": "remove", "path": "/rooms/0"}, second]);
        Played::new(members.clone()).rejection("ann", patch)
    };
    let seen = shifted(json!({"op": "test", "path": "/rooms/0/messages/0", "value": "<S>"}));
    assert_eq!((seen.code, seen.violations.len()), (Code::PathNotGranted, 1), "{seen:?}");
    let length = shifted(json!({"op": "replace", "path": "/rooms/0/messages/4", "value": "x"}));
    let messages: Vec<&str> = length.violations.iter().map(|violation| violation.message.as_str()).collect();
    assert_eq!(messages, ["there is no such place"]);
    assert_eq!((&length.violations[0].expected, &length.violations[0].found), (&None, &None));
}

#[test]
fn a_removed_member_learns_nothing_of_the_room_when_it_answers() {
    let mut played = met(json!({"quelm": room(&["ann", "bob"], &["<QUELM> 1"])}));
    let wake = |played: &mut Played| {
        played.give(Input::Signal { name: "ann".into(), value: Value::Null, key: None });
    };
    // A message in a room triggers another worker, too.
    let answer = |played: &mut Played, said: &str| {
        let hers = played.calls.iter().position(|(_, _, worker)| worker == "ann").expect("ann is asked");
        played.calls.swap(0, hers);
        played.answer(json!([{"op": "add", "path": "/board/public/-", "value": said}]), None)
    };
    let view = |played: &Played| {
        let hers = played.prompts.iter().rev().find(|(worker, ..)| worker == "ann");
        hers.expect("ann is asked").1.user.clone()
    };
    wake(&mut played);
    assert!(view(&played).contains("<QUELM> 1"), "{}", view(&played));
    let keep = |played: &mut Played, patch: Value| {
        // Waits until the reservation for the rejected worker has expired.
        played.now += 31_000;
        assert!(matches!(played.direct("keeper", &patch.to_string()), Outcome::Committed { .. }));
    };
    let members = "/board/rooms/quelm/members";
    keep(
        &mut played,
        json!([
            {"op": "replace", "path": members, "value": ["bob"]},
            {"op": "add", "path": "/board/rooms/quelm/messages/-", "value": "<QUELM> 2"},
        ]),
    );
    let outcome = answer(&mut played, "I agree");
    let Outcome::Rejected { rejection, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!((rejection.stage, rejection.code), (Stage::Freshness, Code::StaleRead), "what it had read has changed");
    let places: Vec<&str> = rejection.violations.iter().map(|violation| violation.pointer.as_str()).collect();
    assert_eq!(places, ["/board/rooms"], "several changes in it are told as one, and not where");
    let text = json!(rejection).to_string();
    assert!(!text.contains("QUELM") && !text.contains("quelm") && !text.contains("keeper"), "{text}");
    let next = view(&played);
    assert!(!next.contains("quelm") && !next.contains("<QUELM>"), "{next}");
    assert!(matches!(answer(&mut played, "well"), Outcome::Committed { .. }));

    // A member that has returned sees the whole room.
    keep(&mut played, json!([{"op": "replace", "path": members, "value": ["ann"]}]));
    wake(&mut played);
    assert!(view(&played).contains("<QUELM> 2"), "{}", view(&played));

    // A member is rejected because of a change, and the rejection describes the change.
    keep(&mut played, json!([{"op": "add", "path": "/board/rooms/quelm/messages/-", "value": "<QUELM> 3"}]));
    keep(&mut played, json!([{"op": "replace", "path": members, "value": ["ann", "cid"]}]));
    let outcome = answer(&mut played, "yes");
    let Outcome::Rejected { rejection, .. } = outcome else { panic!("{outcome:?}") };
    let stale = rejection.violations.iter().find(|violation| violation.pointer == format!("{members}/1"));
    let stale = stale.or_else(|| rejection.violations.iter().find(|violation| violation.pointer == members));
    let stale = stale.unwrap_or_else(|| panic!("{rejection:?}"));
    assert!(stale.found.is_some() && stale.stale.is_some(), "{stale:?}");

    // Feedback for a member is concealed once the worker has left the room.
    assert!(view(&played).contains("- freshness/stale_read"), "{}", view(&played));
    keep(&mut played, json!([{"op": "replace", "path": members, "value": ["cid"]}]));
    let preview = played.board.preview(&played.seat("ann"));
    assert!(preview.text.contains("- freshness/stale_read"), "{}", preview.text);
    assert!(!preview.text.contains("quelm") && !preview.text.contains("QUELM"), "{}", preview.text);
    played.holds();
}

#[test]
fn a_former_member_sees_of_the_past_what_it_may_read_now() {
    let mut played =
        met(json!({"quelm": room(&["ann"], &["<QUELM>"]), "zundov": room(&["ann", "bob"], &["<ZUNDOV>"])}));
    let members = json!([{"op": "replace", "path": "/board/rooms/quelm/members", "value": ["bob"]}]);
    played.direct("keeper", &members.to_string());
    let ann = played.seat("ann");
    let past = Board::from_created(&played.records[0], &PLANS).expect("the journal is enough");
    let then = past.readable_by(&ann);
    let now = played.board.readable_by(&ann);
    let of = |readable| past.explained_preview(&ann, &[], &readable).text;
    assert!(of(then.clone()).contains("<QUELM>"), "whoever may see all sees what she saw");
    let both = of(then.within(now.places()));
    assert!(!both.contains("quelm") && !both.contains("<QUELM>") && both.contains("<ZUNDOV>"), "{both}");
    // Bob, a member by now, does not see what was said before.
    let bob = played.seat("bob");
    let now = played.board.readable_by(&bob);
    let both = past.readable_by(&bob).within(now.places());
    assert_eq!(both.places().len(), 1, "{:?}", both.places());
}

#[test]
fn values_hidden_from_a_board_worker_stay_out_of_the_nested_request() {
    let request = |members: Value| {
        let inner =
            json!({"of": "inside", "input": {"about": "/rooms/quelm", "text": "/text"}, "output": {"/out": "/out"}});
        let inside = json!({"blueprint": 1, "name": "inside", "state": {"schema": {}}, "workers": {}});
        let mut played = Played::new(json!({
            "state": {"schema": {}, "initial": {"text": "t", "rooms": {"quelm": {"members": members}}}},
            "boards": {"inside": inside},
            "workers": {"ann": {"agent": "board", "board": inner, "writes": [{"path": "/out"}],
                "reads": ["/text", {"path": "/rooms/*", "where": "worker in self.members"}]}},
            "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "ann"}],
        }));
        played.signal();
        let (_, _, shown) = played.prompts.last().expect("she is asked");
        nested::request(shown.worker_plan().worker.board.as_ref().expect("she is a board"), shown)
    };
    let whole = json!({"about": {"members": ["ann"]}, "text": "t"});
    assert_eq!(request(json!(["ann"])), Ok(whole));
    assert_eq!(request(json!(["bob"])), Ok(json!({"text": "t"})));
}

#[test]
fn rejections_for_size_hide_the_size_from_conditional_readers() {
    for (condition, has_size) in
        [(json!({"path": "/rooms/*", "where": "worker in self.members"}), false), (json!("/b"), true)]
    {
        let mut played = Played::new(json!({
            "state": {"schema": {}, "initial": {"list": [], "rooms": {"quelm": {"members": ["bob"]}}}},
            "workers": {"ann": {"agent": "llm", "reads": ["/list", condition], "writes": [{"path": "/list/-"}]}},
            "limits": {"state_bytes": 1024, "depth": 8},
        }));
        for value in [json!("x".repeat(1024)), json!([[[[[[[[1]]]]]]]])] {
            let refused = played.rejection("ann", json!([{"op": "add", "path": "/list/-", "value": value}]));
            let violation = &refused.violations[0];
            assert_eq!(
                (violation.code, violation.pointer.as_str()),
                (Code::ResultTooLarge, "/list/-"),
                "{violation:?}"
            );
            assert_eq!(violation.message.contains(char::is_numeric), has_size, "{violation:?}");
        }
        played.holds();
    }
}

#[test]
fn writers_without_read_access_see_the_errors_of_their_own_value() {
    let mut played = met(json!({}));
    played.give(Input::Signal { name: "ann".into(), value: Value::Null, key: None });
    let open = json!([{"op": "add", "path": "/board/rooms/quelm", "value": {"members": ["bob"], "messages": [7]}}]);
    let outcome = played.answer(open, None);
    let Outcome::Rejected { rejection, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(rejection.violations[0].pointer, "/board/rooms/quelm/messages/0");
    let view = played.view();
    assert!(view.contains("/board/rooms/quelm/messages/0 (type)") && view.contains("found 7"), "{view}");
    // Other workers that may write there see nothing of a foreign room.
    let other = played.board.preview(&played.seat("cid"));
    assert!(!other.text.contains("quelm"), "{}", other.text);
}

#[test]
fn a_condition_that_cannot_be_evaluated_or_comes_too_late_does_not_hold() {
    let reads = |condition: &str, rooms: Value| {
        let played = Played::asked(
            json!({"topic": "t"}),
            json!({
                "state": {"schema": {}, "initial": {"rooms": rooms}},
                "workers": {"ann": {"agent": "llm", "reads": [{"path": "/rooms/*", "where": condition}]}},
            }),
        );
        let ann = played.seat("ann");
        played.board.readable_by(&ann).places().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let few =
        json!({"a": {"open": true}, "b": {"open": 1}, "c": 3, "d": {}, "e": {"open": false}, "f/~": {"open": true}});
    assert_eq!(reads("self.open", few.clone()), ["/rooms/a", "/rooms/f~1~0"]);
    assert_eq!(reads("worker == 'ann' && request.topic == 't' && has(self.open) && self.open == true", few).len(), 2);
    assert_eq!(reads("self.nobody.here || worker == 'bob'", json!({"a": {}})), [""; 0]);
    let many: Vec<Value> = (0..300).map(|n| json!({"n": n})).collect();
    let far = reads("self.n >= 250", json!(many));
    assert_eq!((far.len(), far[0].as_str()), (6, "/rooms/250"), "the first 256 are looked at");
    // Each evaluation uses a large part of the shared step limit.
    let list: Vec<Value> = (0..1000).map(|n| json!(n)).collect();
    let dear = json!((0..40).map(|_| json!({"list": list})).collect::<Vec<_>>());
    let afforded = reads("self.list.all(a, self.list.exists(b, b == a + 0 || b > 90))", dear).len();
    assert!(afforded > 0 && afforded < 40, "{afforded}");
}
