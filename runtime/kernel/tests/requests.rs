//! Requests from outside that carry a token: a repetition is answered like the first, and does nothing.

mod played;

use patchboard_kernel::board::{Board, Input, Outcome, Verdict};
use patchboard_kernel::id::{Timestamp, Token};
use patchboard_kernel::record::Kind;
use patchboard_kernel::rejection::{Code, Stage};
use played::Played;
use serde_json::{Value, json};

/// How long a token is known, in milliseconds.
const WINDOW: i64 = 3_600_000;

fn board() -> Played {
    Played::new(json!({
        "workers": {"w": {"agent": "llm", "reads": ["/list"], "writes": [{"path": "/list/-", "ops": ["add"]}]}},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
        "limits": {"wall": "30d"},
    }))
}

fn token(text: &str) -> Option<Token> {
    Some(Token::from(text))
}

fn signal(value: Value, with: &str) -> Input {
    Input::Signal { name: "go".into(), value, token: token(with) }
}

#[test]
fn a_repeated_signal_wakes_nobody_again() {
    let mut played = board();
    let first = played.give(signal(json!(1), "a"));
    let seq = first.records[0].seq;
    let records = played.records.len();
    assert_eq!(played.give(signal(json!(1), "a")).outcome, Some(Outcome::Duplicate(Verdict::Heard { seq })));
    let other = played.give(signal(json!(2), "a")).outcome;
    let Some(Outcome::Refused(rejection)) = other else { panic!("it was {other:?}") };
    assert_eq!(rejection.code, Code::TokenConflict);
    assert_eq!(played.records.len(), records, "nothing was recorded");
    played.give(signal(json!(2), "b"));
    assert_eq!(played.count(Kind::Scheduled), 2);
    played.holds();
}

#[test]
fn a_signal_whose_value_does_not_fit_is_refused_and_not_recorded() {
    let mut played = Played::new(json!({
        "signals": {"go": {"type": "string", "maxLength": 3}},
        "workers": {"w": {"agent": "llm", "reads": ["/list"], "writes": [{"path": "/list/-", "ops": ["add"]}]}},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
    }));
    let records = played.records.len();
    for wrong in [json!(7), json!("four"), Value::Null] {
        let Some(Outcome::Refused(rejection)) = played.give(signal(wrong, "a")).outcome else { panic!("it fits") };
        assert_eq!((rejection.stage, rejection.code), (Stage::Schema, Code::SchemaViolation));
    }
    assert_eq!(played.records.len(), records, "nothing was recorded");
    // The token was not used, and other signals carry what they like.
    assert_eq!(played.give(signal(json!("two"), "a")).outcome, None);
    played.give(Input::Signal { name: "other".into(), value: json!(7), token: None });
    assert_eq!((played.count(Kind::Signal), played.count(Kind::Scheduled)), (2, 1));
    played.holds();
}

#[test]
fn a_signal_for_which_there_is_no_room_is_refused_and_not_recorded() {
    let mut played = Played::new(json!({
        "concurrency": 1,
        "backlog": {"go": {"at": "/list", "max": 3}},
        "workers": {"w": {"agent": "llm", "reads": ["/list"], "writes": [
            {"path": "/list/-", "ops": ["add"]}, {"path": "/list/*", "ops": ["remove"]}]}},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
    }));
    let add = json!([{"op": "add", "path": "/list/-", "value": "step"}]);
    played.give(signal(json!(1), "a"));
    played.answer(add, None);
    // One is there; one is under way, one is queued.
    played.give(signal(json!(2), "b"));
    played.give(signal(json!(3), "c"));
    let records = played.records.len();
    let Some(Outcome::Refused(rejection)) = played.give(signal(json!(4), "d")).outcome else { panic!("it was heard") };
    assert_eq!((rejection.stage, rejection.code), (Stage::Application, Code::BacklogFull));
    assert_eq!(rejection.violations[0].message, "1 wait at /list and 2 are on the way there; 3 may wait");
    assert_eq!(played.records.len(), records, "nothing was recorded");
    // Others are heard, and a repetition is told what the first was.
    played.give(Input::Signal { name: "other".into(), value: json!(7), token: None });
    assert!(matches!(played.give(signal(json!(3), "c")).outcome, Some(Outcome::Duplicate(_))));
    // One less waits, and one that was woken has added nothing.
    let taken = played.answer(json!([{"op": "remove", "path": "/list/0"}]), None);
    assert!(matches!(taken, Outcome::Committed { .. }), "{taken:?}");
    assert_eq!(played.give(signal(json!(4), "d")).outcome, None);
    played.holds();
}

#[test]
fn what_a_request_was_answered_is_known_after_a_recovery_until_its_time_is_over() {
    let mut played = board();
    played.give(signal(Value::Null, "a"));
    played.board = Board::recover(&played.records).expect("the journal is enough");
    played.now += WINDOW - 2;
    assert!(matches!(played.give(signal(Value::Null, "a")).outcome, Some(Outcome::Duplicate(_))));
    played.now += 1;
    assert_eq!(played.give(signal(Value::Null, "a")).outcome, None);
    played.holds();
}

#[test]
fn a_repeated_pause_does_not_undo_what_came_after_it() {
    let mut played = board();
    let pause = || Input::Pause { token: token("a") };
    played.give(pause());
    played.give(Input::Resume { token: token("b") });
    assert!(matches!(played.give(pause()).outcome, Some(Outcome::Duplicate(_))));
    assert!(!played.board.is_paused());
    // A pause of its own that changes nothing is known again, too.
    played.give(Input::Pause { token: None });
    played.give(Input::Pause { token: token("c") });
    played.give(Input::Resume { token: None });
    assert!(matches!(played.give(Input::Pause { token: token("c") }).outcome, Some(Outcome::Duplicate(_))));
    assert!(!played.board.is_paused());
    // Neither is the end of a pause, which has the same token.
    let other = played.give(Input::Resume { token: token("c") }).outcome;
    assert!(matches!(other, Some(Outcome::Refused(_))), "it was {other:?}");
    played.holds();
}

#[test]
fn tokens_of_requests_are_none_of_proposals() {
    let mut played = board();
    played.give(signal(Value::Null, "a"));
    let direct = patchboard_kernel::board::Proposal {
        from: patchboard_kernel::board::From::Direct { token: token("a"), base: None },
        worker: "w".into(),
        reply: patchboard_kernel::board::ReplyBody::Text("[]".into()),
        usage: None,
    };
    let outcome = played.board.step(Timestamp(played.now), Input::Propose(direct)).outcome;
    assert!(matches!(outcome, Some(Outcome::NoOp { .. })), "it was {outcome:?}");
}
