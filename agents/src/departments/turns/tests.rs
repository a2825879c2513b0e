//! Messages are taken down as they are, and taken up as answers where something was asked.

use serde_json::json;

use super::*;

#[test]
fn what_was_said_is_taken_down() {
    let said = json!({"text": "Hello"});
    for signal in [json!("Hello"), json!(" Hello\n"), json!({"text": "Hello", "more": 1})] {
        assert_eq!(perceived(Some(&signal)), Ok(said.clone()));
    }
    let long = json!("x".repeat(MESSAGE_CHARS_MAX + 1));
    for signal in [None, Some(&json!(" ")), Some(&json!(7)), Some(&json!({"text": 7})), Some(&long)] {
        assert!(perceived(signal).is_err());
    }
}

/// The turn of "office" after a result, at this second.
fn after(result: &Value, seconds: i64, text: &str) -> Turn {
    let turn = Turn { n: 4, text: "x".into(), pending: None, expired: None };
    Turn::next(text, Before { turn: Some(&turn), last: Some(result), now: Timestamp(seconds * 1000) })
}

fn result(status: &str) -> Value {
    json!({"status": status, "text": "t", "question": "which list?", "pending": {
        "department": "notes", "action": "remove", "options": [{"ids": [1], "values": {"list": "office"}}],
        "asked": 1, "expires_at": 300_000}})
}

#[test]
fn the_first_turn_is_the_first_message() {
    let first = Turn::next("a", Before { turn: None, last: None, now: Timestamp(0) });
    assert_eq!(first, Turn { n: 1, text: "a".into(), pending: None, expired: None });
}

#[test]
fn a_question_that_waits_is_answered_by_whatever_comes() {
    for text in ["office", "something else"] {
        let turn = after(&result("clarification"), 299, text);
        assert_eq!((turn.n, turn.text.as_str()), (5, text));
        assert_eq!(turn.pending.expect("an answer").department, "notes");
    }
    let late = after(&result("clarification"), 300, "office");
    assert_eq!((late.pending, late.expired.as_deref()), (None, Some("which list?")));
    assert_eq!(after(&json!({"status": "done", "text": "t"}), 0, "office").pending, None);
    assert_eq!(after(&json!({"pending": "nonsense"}), 0, "office").pending, None);
}

#[test]
fn an_offer_is_answered_only_by_an_answer() {
    assert!(after(&result("refusal"), 0, "Yes").pending.is_some());
    assert!(after(&result("refusal"), 0, "the office").pending.is_some());
    let other = after(&result("refusal"), 0, "What is on it?");
    assert_eq!((other.pending, other.expired), (None, None));
    assert_eq!(after(&result("refusal"), 300, "Yes").expired, None, "nobody asked");
}
