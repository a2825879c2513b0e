//! Messages are recorded unchanged, and matched as answers to open questions.

use serde_json::json;

use super::*;

#[test]
fn signals_with_text_are_parsed_as_messages() {
    let said = json!({"text": "Hello"});
    for signal in [json!("Hello"), json!(" Hello\n"), json!({"text": "Hello", "more": 1})] {
        assert_eq!(parse_message(Some(&signal)), Ok(said.clone()));
    }
    let long = json!("x".repeat(MESSAGE_CHARS_MAX + 1));
    for signal in [None, Some(&json!(" ")), Some(&json!(7)), Some(&json!({"text": 7})), Some(&long)] {
        assert!(parse_message(signal).is_err());
    }
}

/// Returns a question that expires after 300 seconds, or an offer.
fn waiting(offer: bool) -> Value {
    json!({"department": "notes", "action": "remove", "question": "which list?", "field": "list", "offer": offer,
        "options": [{"ids": [1], "values": {"list": "office"}}], "asked": 1, "expires_at": 300_000})
}

/// Returns the turn of this text, after a turn with these results.
fn after(turn: &Turn, results: &[Value], seconds: i64, text: &str) -> Turn {
    let worked: Vec<String> =
        results.iter().filter_map(|result| result["department"].as_str()).map(str::to_owned).collect();
    let asked: Vec<Question> = results
        .iter()
        .filter_map(|result| result.get("pending"))
        .map(|pending| serde_json::from_value(pending.clone()).expect("a question"))
        .collect();
    let before =
        TurnContext { turn: Some(turn), questions: &asked, departments: &worked, now: Timestamp(seconds * 1000) };
    Turn::next(text, before)
}

fn turn() -> Turn {
    Turn { n: 4, text: "x".into(), pending: None, waits: None, open: Vec::new(), expired: None }
}

fn result(offer: bool) -> Value {
    json!({"department": "notes", "text": "t", "pending": waiting(offer)})
}

#[test]
fn the_first_turn_is_the_first_message() {
    let first = Turn::next("a", TurnContext { turn: None, questions: &[], departments: &[], now: Timestamp(0) });
    assert_eq!(first, Turn { n: 1, text: "a".into(), ..turn() });
}

#[test]
fn a_clear_answer_goes_to_who_asked_and_everything_else_is_a_message() {
    let answer = after(&turn(), &[result(false)], 299, "The office one.");
    assert_eq!((answer.n, answer.text.as_str(), answer.waits), (5, "The office one.", None));
    assert_eq!(answer.pending.expect("an answer").summary.department, "notes");
    let other = after(&turn(), &[result(false)], 299, "Put milk on the office list.");
    assert_eq!((other.pending, other.waits.map(|waits| waits.summary.department)), (None, Some("notes".to_owned())));
    let late = after(&turn(), &[result(false)], 300, "office");
    assert_eq!((late.pending, late.waits, late.expired.as_deref()), (None, None, Some("which list?")));
    let nothing = after(&turn(), &[json!({"status": "done", "text": "t"})], 0, "office");
    assert_eq!((nothing.pending, nothing.waits), (None, None));
    for nonsense in [json!("nonsense"), json!({}), json!({"department": 7}), json!({"department": "a", "options": 7})] {
        assert!(serde_json::from_value::<Question>(nonsense.clone()).is_err(), "{nonsense}");
    }
}

#[test]
fn extra_members_of_a_question_are_kept_for_its_department() {
    let own = json!({"department": "weather", "step": {"town": null}, "question": "where?"});
    let result = json!({"department": "weather", "pending": own});
    // Without options no answer is clear; without a time the question does not expire.
    let next = after(&turn(), &[result], 1_000_000, "Paris");
    assert_eq!(serde_json::to_value(&next).expect("it is JSON")["waits"], own);
    let free = json!({"department": "weather", "field": "town", "options": [{"values": {"town": "Paris"}}, {"values": {"town": "Rome"}}], "step": 2});
    let next = after(&turn(), &[json!({"department": "weather", "pending": free})], 0, "Paris!");
    assert_eq!(serde_json::to_value(&next).expect("it is JSON")["pending"], free);
}

#[test]
fn several_questions_wait_for_their_answers() {
    let mut when = waiting(false);
    when["department"] = "timeline".into();
    when["options"] = json!([{"values": {"list": "Monday"}}]);
    let results = [result(false), json!({"department": "timeline", "text": "t", "pending": when})];
    let departments = |turn: &Turn| {
        let name = |question: &Question| question.summary.department.clone();
        (turn.pending.as_ref().map(name), turn.waits.as_ref().map(name), turn.open.iter().map(name).collect::<Vec<_>>())
    };
    let [notes, timeline] = ["notes", "timeline"].map(str::to_owned);
    let first = after(&turn(), &results, 0, "the office one");
    assert_eq!(departments(&first), (Some(notes.clone()), None, vec![timeline.clone()]));
    let second = after(&first, &[json!({"department": "notes", "text": "t"})], 0, "Monday");
    assert_eq!(departments(&second), (Some(timeline.clone()), None, vec![]));
    // An answer that fits both questions answers neither.
    let both = after(&turn(), &results, 0, "never mind");
    assert_eq!(departments(&both), (None, Some(timeline.clone()), vec![notes.clone()]));
    // An unclear answer leaves both open; a department that has run since has no open question.
    let unclear = after(&both, &[json!({"department": "timeline", "text": "t"})], 0, "hm");
    assert_eq!(departments(&unclear), (None, Some(notes), vec![]));
}

#[test]
fn a_question_waits_until_it_is_answered_replaced_or_late() {
    let asked = after(&turn(), &[result(false)], 0, "What is on Friday?");
    assert!(asked.waits.is_some());
    let elsewhere = json!({"department": "timeline", "text": "t"});
    for results in [&[][..], std::slice::from_ref(&elsewhere)] {
        let answer = after(&asked, results, 299, "office");
        assert!(answer.pending.is_some() && answer.waits.is_none());
        assert!(after(&asked, results, 299, "And on Monday?").waits.is_some());
        let late = after(&asked, results, 300, "office");
        assert_eq!((late.pending, late.waits, late.expired.as_deref()), (None, None, Some("which list?")));
    }
    let mut newer = waiting(false);
    newer["department"] = "timeline".into();
    let replaced = after(&asked, &[json!({"department": "timeline", "pending": newer})], 0, "hm");
    assert_eq!(replaced.waits.expect("the newer one").summary.department, "timeline");
    // The department that asked has run since, even if another ran after it.
    let worked = [json!({"department": "notes", "text": "t"}), elsewhere];
    let over = after(&asked, &worked, 0, "office");
    assert_eq!((over.pending, over.waits, over.expired), (None, None, None));
}

#[test]
fn an_offer_is_taken_by_the_next_message_or_not_at_all() {
    assert!(after(&turn(), &[result(true)], 0, "Yes, please.").pending.is_some());
    assert!(after(&turn(), &[result(true)], 0, "No.").pending.is_some());
    let other = after(&turn(), &[result(true)], 0, "the office");
    assert!(other.pending.is_none() && other.waits.is_some() && other.expired.is_none());
    let later = after(&other, &[json!({"department": "timeline"})], 0, "yes");
    assert_eq!((later.pending, later.waits), (None, None));
    assert_eq!(after(&turn(), &[result(true)], 300, "Yes").expired, None, "nobody asked");
}
