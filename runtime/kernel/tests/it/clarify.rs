//! Clarifications: a worker asks a person a question, and is called again with the answer.

use crate::played::Played;
use patchboard_kernel::board::{Input, Outcome};
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::Seq;
use patchboard_kernel::record::{Answer, Body, Cause, Kind};
use patchboard_kernel::rejection::{Code, Stage};
use serde_json::{Value, json};

/// Returns a board with a clerk that may ask the household, and a worker that may ask no one.
fn house() -> Played {
    Played::new(json!({
        "state": {"schema": {"type": "object"}, "initial": {"lists": []}},
        "workers": {
            "household": {"agent": "human"},
            "clerk": {"agent": "llm", "reads": ["/lists"], "clarify": {"by": "household", "expires": "10s"},
                "limits": {"attempts": 2}, "writes": [{"path": "/lists/-", "ops": ["add"]}]},
            "mute": {"agent": "llm", "writes": [{"path": "/lists/-", "ops": ["add"]}]},
            "next": {"agent": "llm", "writes": [{"path": "/end", "ops": ["add"]}]},
        },
        "rules": [
            {"name": "go", "trigger": {"signal": "go"}, "run": "clerk"},
            {"name": "mute", "trigger": {"signal": "mute"}, "run": "mute"},
            {"name": "after", "trigger": {"after": ["go"]}, "run": "next"},
        ],
        "concurrency": 1,
        "limits": {"wall": "20s"},
    }))
}

fn which() -> Value {
    json!({"clarify": {"question": "Which list?", "choices": ["household", "office"]}})
}

fn question(played: &Played) -> (Seq, Digest) {
    let (seq, question) = played.board.pending().iter().next().expect("a question");
    (*seq, question.digest)
}

fn answer(played: &mut Played, agrees: bool, text: Option<&str>) -> Outcome {
    let (of, digest) = question(played);
    let reason = (!agrees).then(|| "I do not care".to_owned());
    let text = text.map(str::to_owned);
    played
        .give(Input::Answer(Answer { of, by: "household".into(), digest, agrees, reason, text }))
        .outcome
        .expect("an outcome")
}

fn refused(outcome: &Outcome) -> (Stage, Code) {
    match outcome {
        Outcome::RejectedUnrecorded(rejection) | Outcome::Rejected { rejection, .. } => {
            (rejection.stage, rejection.code)
        }
        other => panic!("it was {other:?}"),
    }
}

fn add(list: &str) -> Value {
    json!([{"op": "add", "path": "/lists/-", "value": list}])
}

#[test]
fn the_answer_comes_with_the_next_call_and_only_then_the_rule_is_complete() {
    let mut played = house();
    played.signal();
    assert!(played.instructions().contains("\"clarify\""), "{}", played.instructions());
    assert!(matches!(played.answer(which(), None), Outcome::AwaitingApproval { .. }));
    assert!(played.board.waits_for_persons());
    assert_eq!((played.calls.len(), played.board.ended()), (0, None));
    assert!(matches!(answer(&mut played, true, Some("office")), Outcome::Answered { .. }));
    assert_eq!(played.calls[0].2, "clerk");
    assert!(played.view().contains("Which list? household says: office"), "{}", played.view());
    // A further question keeps the earlier answers.
    let outcome = played.answer(json!({"patch": [], "clarify": {"question": "What of it?"}}), None);
    assert!(matches!(outcome, Outcome::AwaitingApproval { .. }), "{outcome:?}");
    answer(&mut played, true, Some("bananas,\nripe ones"));
    let view = played.view().to_owned();
    assert!(view.contains("office") && view.contains("What of it? household says: bananas, ripe ones"), "{view}");
    assert_eq!(played.count(Kind::Scheduled), 3, "the rule behind it waits");
    assert!(matches!(played.answer(add("office"), None), Outcome::Committed { .. }));
    assert_eq!(played.calls[0].2, "next");
    assert!(!played.instructions().contains("\"clarify\""));
    played.holds();
}

#[test]
fn a_question_is_put_only_by_who_may_and_as_often_as_may_be() {
    let mut played = house();
    played.give(Input::Signal { name: "mute".into(), value: Value::Null, key: None });
    assert_eq!(refused(&played.answer(which(), None)), (Stage::Authorization, Code::ClarifyNotGranted));
    assert_eq!(refused(&played.direct("clerk", &which().to_string())).1, Code::ExpansionLimit);
    played.give(Input::Cancel);

    let mut played = house();
    played.signal();
    for _ in 0..3 {
        played.answer(which(), None);
        answer(&mut played, true, Some("office"));
    }
    assert_eq!(refused(&played.answer(which(), None)), (Stage::Authorization, Code::ExpansionLimit));
    assert!(matches!(played.answer(add("office"), None), Outcome::Committed { .. }));
    played.holds();
}

#[test]
fn invalid_questions_are_rejected_with_the_reason() {
    let long = "x".repeat(2001);
    for (clarify, code) in [
        (json!({}), Code::NotAPatch),
        (json!("Which?"), Code::NotAPatch),
        (json!({"question": " "}), Code::NotAPatch),
        (json!({"question": "Which?", "choices": ["a", "a"]}), Code::NotAPatch),
        (json!({"question": "Which?", "choices": [""]}), Code::NotAPatch),
        (json!({"question": "Which?", "other": 1}), Code::NotAPatch),
        (json!({"question": long}), Code::TooLarge),
        (json!({"question": "Which?", "choices": vec!["x".repeat(201)]}), Code::TooLarge),
        (json!({"question": "Which?", "choices": (0..17).map(|n| n.to_string()).collect::<Vec<_>>()}), Code::TooLarge),
    ] {
        let mut played = house();
        played.signal();
        assert_eq!(refused(&played.answer(json!({ "clarify": clarify }), None)), (Stage::Syntax, code), "{clarify}");
    }
    for beside in [json!({"patch": add("x")}), json!({"expand": ["/lists"]})] {
        let mut played = house();
        played.signal();
        let mut reply = which();
        reply.as_object_mut().expect("an object").extend(beside.as_object().expect("an object").clone());
        assert_eq!(refused(&played.answer(reply, None)), (Stage::Syntax, Code::NotAPatch));
    }
}

#[test]
fn an_answer_is_one_of_those_that_were_offered() {
    let mut played = house();
    played.signal();
    played.answer(which(), None);
    let before = played.records.len();
    for (agrees, text) in [(true, None), (true, Some("attic")), (true, Some("")), (false, Some("office"))] {
        assert_eq!(refused(&answer(&mut played, agrees, text)), (Stage::Approval, Code::AnswerNotOffered), "{text:?}");
    }
    assert_eq!(played.records.len(), before);
    answer(&mut played, true, Some("office"));
    played.answer(json!({"clarify": {"question": "Why?"}}), None);
    let long = "x".repeat(4001);
    for text in [" ", long.as_str()] {
        assert_eq!(refused(&answer(&mut played, true, Some(text))).1, Code::AnswerNotOffered);
    }
    assert!(matches!(answer(&mut played, true, Some("because")), Outcome::Answered { .. }));
    played.holds();
}

#[test]
fn a_declined_question_is_retried_and_an_expired_one_given_up() {
    let mut played = house();
    played.signal();
    played.answer(which(), None);
    assert_eq!(refused(&answer(&mut played, false, None)), (Stage::Approval, Code::Denied));
    assert!(played.view().contains("household does not say: I do not care"), "{}", played.view());
    played.answer(which(), None);
    played.now += 10_000;
    played.give(Input::Tick);
    assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::GaveUp));
    let last = played.bodies().filter(|body| body.kind() == Kind::Rejected).last();
    let Some(Body::Rejected(rejected)) = last else { panic!("it was refused") };
    assert_eq!((rejected.code, rejected.is_final), (Code::ApprovalExpired, true));
    played.holds();
}

#[test]
fn a_repeated_question_is_the_same_and_a_crash_forgets_neither_question_nor_answer() {
    let mut played = house();
    played.signal();
    let first = played.calls[0].clone();
    played.answer(which(), None);
    played.calls.insert(0, first.clone());
    assert!(matches!(played.answer(which(), None), Outcome::Duplicate(_)));
    played.calls.insert(0, first);
    assert_eq!(refused(&played.answer(json!({"clarify": {"question": "Why?"}}), None)).1, Code::TokenConflict);
    played.give(Input::take_over(1, "again".into()));
    assert_eq!((played.count(Kind::Failed), played.board.pending().len()), (0, 1), "no call was lost");
    answer(&mut played, true, Some("office"));
    played.give(Input::take_over(2, "again".into()));
    assert!(played.view().contains("household says: office"), "{}", played.view());
    played.holds();
}

#[test]
fn answers_take_no_more_of_a_view_than_there_is_room_for() {
    for budget in [300, 420, 600, 1000, 4000] {
        let mut played = house();
        let mut blueprint = serde_json::to_value(&**played.board.blueprint()).expect("JSON");
        blueprint["workers"]["clerk"]["view"] = json!({"budget": budget});
        played = Played::new(blueprint);
        played.signal();
        for answered in ["x".repeat(4000), "y".repeat(4000)] {
            assert!(matches!(
                played.answer(json!({"clarify": {"question": "q".repeat(2000)}}), None),
                Outcome::AwaitingApproval { .. }
            ));
            answer(&mut played, true, Some(&answered));
        }
        let chars = played.view().chars().count();
        assert!(chars <= budget, "{chars} characters of {budget}: {}", played.view());
        assert_eq!(played.view().contains("household says: yyy"), budget >= 420, "{budget}: {}", played.view());
    }
}
