//! Passing: a worker declines to contribute and gives a reason. The state stays the same, and the breaker does not
//! count it.

use crate::played::Played;
use jsonptr::PointerBuf;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Input, Outcome, Proposal, RememberedOutcome, ReplyBody};
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::{Body, Cause, Kind};
use patchboard_kernel::redaction::{self, Request};
use patchboard_kernel::rejection::{Code, Rejection, Stage};
use patchboard_kernel::reply_schema::ReplySchema;
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

const WORDS: &str = "no problem, waiting for more information";

/// Returns a board with a critic that may pass, a worker that may not, and a rule after the critic's.
fn members(circuit: Value) -> Value {
    json!({
        "workers": {
            "critic": {"agent": "script", "reads": ["/list"], "writes": [{"path": "/list/-", "ops": ["add"]}], "pass": true},
            "mute": {"agent": "script", "reads": ["/list"], "writes": [{"path": "/list/-", "ops": ["add"]}]},
            "next": {"agent": "script", "writes": [{"path": "/end", "ops": ["add"]}]},
        },
        "rules": [
            {"name": "go", "trigger": {"signal": "go"}, "run": "critic"},
            {"name": "mute", "trigger": {"signal": "mute"}, "run": "mute"},
            {"name": "after", "trigger": {"after": ["go"]}, "run": "next"},
        ],
        "circuit": circuit,
        "limits": {"wall": "20s"},
    })
}

fn board() -> Played {
    Played::new(members(json!({})))
}

fn wake(played: &mut Played, name: &str) {
    played.give(Input::Signal { name: name.into(), value: Value::Null, key: None });
}

fn rejection(outcome: Outcome) -> Rejection {
    match outcome {
        Outcome::Rejected { rejection, .. } => rejection,
        other => panic!("it was {other:?}"),
    }
}

#[test]
fn a_pass_is_recorded_and_leaves_the_state_unchanged() {
    let mut played = board();
    let before = played.board.state().digest();
    played.signal();
    assert!(played.instructions().contains("\"pass\""), "{}", played.instructions());
    let outcome = played.answer(json!({"pass": WORDS}), None);
    assert!(matches!(outcome, Outcome::NoOp { .. }), "{outcome:?}");
    assert_eq!(played.board.state().digest(), before);
    let said = played.bodies().find_map(|body| match body {
        Body::NoOp(no_op) => Some((no_op.patch, no_op.pass)),
        _ => None,
    });
    assert_eq!(said, Some((json!([]), Some(WORDS.to_owned()))));
    // The rule is complete, as after any no-op.
    assert_eq!(played.calls[0].2, "next");
    wake(&mut played, "mute");
    assert!(!played.instructions().contains("\"pass\""), "{}", played.instructions());
    played.holds();
}

#[test]
fn only_who_may_pass_passes_and_then_does_nothing_else() {
    let mut played = board();
    wake(&mut played, "mute");
    // The rejection names only the members that existed before `pass` was added, because older journals contain this
    // text.
    let refused = rejection(played.answer(json!({"pass": WORDS}), None));
    let first = |refused: &Rejection| (refused.violations[0].pointer.clone(), refused.violations[0].message.clone());
    let no_patch = "a reply is an array of operations, or an object with such an array as \"patch\"";
    assert_eq!((refused.stage, refused.code), (Stage::Syntax, Code::NotAPatch));
    assert_eq!(first(&refused), (String::new(), no_patch.to_owned()));
    let refused = rejection(played.direct("mute", &json!({"pass": WORDS, "patch": []}).to_string()));
    let other_member = "a reply may hold patch, intent, expand and clarify, not pass";
    assert_eq!(first(&refused), ("/pass".to_owned(), other_member.to_owned()));
    assert_eq!((refused.stage, refused.code), (Stage::Syntax, Code::NotAPatch));
    let add = json!([{"op": "add", "path": "/list/-", "value": 1}]);
    for (reply, code) in [
        (json!({"pass": WORDS, "patch": add}), Code::NotAPatch),
        (json!({"pass": WORDS, "patch": {}}), Code::NotAPatch),
        (json!({"pass": WORDS, "expand": ["/list"]}), Code::NotAPatch),
        (json!({"pass": WORDS, "clarify": {"question": "?"}}), Code::NotAPatch),
        (json!({"pass": WORDS, "patch": [{"op": "add", "path": "/$expand/-", "value": "/list"}]}), Code::NotAPatch),
        (json!({"pass": "  "}), Code::NotAPatch),
        (json!({"pass": ["no"]}), Code::NotAPatch),
        (json!({"pass": "x".repeat(2001)}), Code::TooLarge),
    ] {
        let refused = rejection(played.direct("critic", &reply.to_string()));
        assert_eq!((refused.stage, refused.violations[0].code), (Stage::Syntax, code), "{reply}");
        assert_eq!(refused.violations[0].pointer, "/pass", "{reply}");
    }
    for reply in [
        json!({"pass": WORDS, "patch": [], "expand": [], "intent": "to wait"}),
        json!({"pass": "x".repeat(2000)}),
        json!({"pass": null, "patch": []}),
    ] {
        assert!(matches!(played.direct("critic", &reply.to_string()), Outcome::NoOp { .. }), "{reply}");
    }
    played.holds();
}

#[test]
fn an_intent_that_is_required_is_not_required_of_who_passes() {
    let mut members = members(json!({}));
    members["workers"]["critic"]["patch"] = json!({"intent": "required"});
    let mut played = Played::new(members);
    let refused = rejection(played.direct("critic", "[]"));
    assert_eq!(refused.code, Code::IntentMissing);
    assert!(matches!(played.direct("critic", &json!({"pass": WORDS}).to_string()), Outcome::NoOp { .. }));
}

#[test]
fn a_repetition_is_known_by_the_words() {
    let mut played = board();
    let mut say = |text: String| {
        let from = patchboard_kernel::board::ProposalSource::Direct { key: Some("t".into()), base: None };
        let proposal = Proposal { from, worker: "critic".into(), reply: ReplyBody::Text(text), usage: None, raw: None };
        played.give(Input::Propose(proposal)).outcome.expect("an outcome")
    };
    assert!(matches!(say(json!({"pass": WORDS}).to_string()), Outcome::NoOp { .. }));
    let again = say(format!("{{ \"patch\": [],  \"pass\": \"{WORDS}\" }}"));
    assert!(matches!(again, Outcome::Duplicate(RememberedOutcome::NoOp { .. })), "{again:?}");
    for other in [json!({"pass": "another reason"}), json!([]), json!({"pass": WORDS, "intent": "to wait"})] {
        assert_eq!(rejection(say(other.to_string())).code, Code::TokenConflict, "{other}");
    }
    played.holds();
}

#[test]
fn the_breaker_counts_passes_only_where_it_is_set_to() {
    let mut played = board();
    for _ in 0..20 {
        played.signal();
        let call = played.calls.iter().position(|call| call.2 == "critic").expect("it is asked every time");
        let call = played.calls.remove(call);
        played.calls.insert(0, call);
        assert!(matches!(played.answer(json!({"pass": WORDS}), None), Outcome::NoOp { .. }));
    }
    assert_eq!(played.count(Kind::Breaker), 0);
    // Passes neither extend nor end a streak of no-ops.
    played.signal();
    played.calls.retain(|call| call.2 == "critic");
    played.answer(json!([]), None);
    played.signal();
    played.answer(json!({"pass": WORDS}), None);
    assert_eq!(played.count(Kind::Breaker), 0);
    played.signal();
    played.answer(json!([]), None);
    assert_eq!(played.count(Kind::Breaker), 1);
    played.holds();

    let mut played = Played::new(members(json!({"passes": {"limit": 2, "then": "stop_board"}})));
    played.signal();
    played.answer(json!({"pass": WORDS}), None);
    played.calls.clear();
    played.signal();
    played.answer(json!([{"op": "add", "path": "/list/-", "value": 1}]), None);
    for left in [1, 0] {
        assert_eq!(played.board.ended(), None, "{left}: a commit ends the streak");
        played.signal();
        played.calls.retain(|call| call.2 == "critic");
        played.answer(json!({"pass": WORDS}), None);
    }
    assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::Passes));
    played.holds();
}

#[test]
fn a_try_that_passes_stops_the_branch_again() {
    let mut played = Played::new(members(json!({"no_ops": {"limit": 1, "then": "stop_branch"}, "cooldown": 1})));
    played.signal();
    played.answer(json!([]), None);
    played.calls.clear();
    played.signal();
    assert!(played.calls.is_empty(), "it is stopped");
    // A decision of another worker.
    played.direct("next", &json!([{"op": "add", "path": "/end", "value": 1}]).to_string());
    assert_eq!(played.calls[0].2, "critic", "it gets one try");
    played.answer(json!({"pass": WORDS}), None);
    let last = played.bodies().filter_map(|body| match body {
        Body::Breaker(moved) => Some((moved.change.as_str(), moved.reason.as_str())),
        _ => None,
    });
    assert_eq!(last.last(), Some(("opened", "probe_failed")));
    played.holds();
}

#[test]
fn the_words_of_who_passes_can_be_erased() {
    const SECRET: &str = "Ada Lovelace asked me not to";
    let mut played = board();
    played.direct("mute", &json!([{"op": "add", "path": "/list/-", "value": SECRET}]).to_string());
    played.signal();
    played.answer(json!({"pass": format!("{SECRET}, so I wait")}), None);
    played.answer(json!([{"op": "add", "path": "/end", "value": 1}]), None);
    played.give(Input::Cancel);
    let whole: String = played.records.iter().map(|record| format!("{}{}", record.header, record.payload)).collect();
    assert_eq!(whole.matches(SECRET).count(), 2);
    let no_op = played.records.iter().find(|record| record.kind == Kind::NoOp).expect("there").seq;
    let by_place = Request { places: vec![PointerBuf::parse("/list/0").expect("a pointer")], ..Request::default() };
    let by_record = Request { records: vec![no_op], ..Request::default() };
    for (request, left) in [(by_place, 0), (by_record, 1)] {
        let planned = redaction::plan(&played.board, &played.records, &mut |_| None, &request).expect("it is erased");
        let mut records = played.records.clone();
        for changed in planned.records {
            let index = usize::try_from(changed.seq.0).expect("small");
            records[index] = changed;
        }
        let said = played.board.clone().step(Timestamp(played.now + 1), Input::Redact(planned.body));
        records.extend(said.records);
        let text: String = records.iter().map(|record| format!("{}{}", record.header, record.payload)).collect();
        assert_eq!(text.matches(SECRET).count(), left);
        patchboard_kernel::replay::replay(&records, None, &PLANS).expect("the rest is derived");
    }
}

#[test]
fn blueprints_and_forms_speak_of_it_only_where_it_is_allowed() {
    let played = board();
    for (worker, may_pass) in [("critic", true), ("mute", false)] {
        let view = played.board.preview(&played.seat(worker));
        let shown = played.board.previewed_values(&played.seat(worker), &view).expect("a seat");
        let form = ReplySchema::for_call(&shown).expect("a form").schema;
        assert_eq!(form["properties"].get("pass").is_some(), may_pass, "{form}");
        let seat = &played.board.plan().blueprint.workers[worker];
        let written = serde_json::to_value(seat).expect("JSON");
        assert_eq!(written.get("pass").is_some(), may_pass, "{written}");
        assert!(written.get("with").is_none() && written.get("format").is_none(), "{written}");
    }
    let blueprint: &Blueprint = &played.board.plan().blueprint;
    assert!(serde_json::to_value(blueprint).expect("JSON")["circuit"].get("passes").is_none());
}
