//! Answers resume the request at its question, with the values known so far.

use serde_json::json;

use super::super::confirm::not_done;
use super::super::declared_tests::RESULT_BYTES_MAX;
use super::super::declared_tests::tests::notes;
use super::super::types::ASKED_MAX;
use super::*;

/// Returns a question about one of two lists, asked at second 0.
fn pending(asked: u32) -> OpenQuestion {
    let option = |id: i64, list: &str, item: &str| json!({"ids": [id], "values": {"list": list, "item": item}});
    let pending = json!({
        "department": "notes", "action": "move", "slots": {"item": "mlk", "number": 3, "new_list": "office"},
        "options": [option(1, "household", "milk"), option(2, "household", "oat milk"), option(3, "office", "milk")],
        "ask": "which list", "field": "list", "asked": asked, "expires_at": 300_000,
    });
    serde_json::from_value(pending).expect("a question")
}

fn answered(pending: &OpenQuestion, text: &str) -> Resolution {
    resume(&notes(), pending, text, Timestamp(299_999))
}

#[test]
fn an_answer_that_names_one_is_taken() {
    let found = answered(&pending(1), "The OFFICE one, please.");
    assert_eq!((found.status, found.ids), (Status::Found, vec![3]));
    let slots = json!({"list": "office", "item": "milk", "number": 3, "new_list": "office"});
    assert_eq!(serde_json::Value::Object(found.slots), slots);
}

#[test]
fn an_answer_that_names_some_is_followed_by_the_next_question() {
    let open = answered(&pending(3), "household");
    assert_eq!((open.status, open.field.as_deref(), open.asked), (Status::Open, Some("item"), 0));
    assert_eq!(open.options.iter().map(|option| option.ids[0]).collect::<Vec<_>>(), [1, 2]);
    let result = not_done(&notes(), &open, Timestamp(299_999), RESULT_BYTES_MAX);
    assert_eq!(answered(&result.pending.expect("it is asked"), "oat milk").ids, [2]);
}

#[test]
fn words_that_are_no_clear_answer_are_asked_again_at_most_three_times() {
    for asked in 1..ASKED_MAX {
        let open = answered(&pending(asked), "what do you mean");
        assert_eq!((open.status, open.asked, open.options), (Status::Open, asked, pending(1).options));
    }
    assert_eq!(answered(&pending(ASKED_MAX), "what do you mean").why, Some(UnresolvedReason::GaveUp));
    assert_eq!(answered(&pending(1), "yes").status, Status::Open, "to which of three");
    assert_eq!(answered(&pending(1), "no, leave it").why, Some(UnresolvedReason::Declined));
}

#[test]
fn a_question_waits_for_so_long_and_no_longer() {
    let late = resume(&notes(), &pending(1), "office", Timestamp(300_000));
    assert_eq!((late.status, late.why), (Status::None, Some(UnresolvedReason::Expired)));
}

#[test]
fn tampered_pending_questions_are_unresolved_or_asked_again() {
    let of = |change: &dyn Fn(&mut OpenQuestion)| {
        let mut pending = pending(1);
        change(&mut pending);
        answered(&pending, "office")
    };
    assert_eq!(of(&|pending| pending.action = "burn".to_owned()).why, Some(UnresolvedReason::UnknownAction));
    assert_eq!(
        of(&|pending| pending.options[2].action = Some("burn".to_owned())).why,
        Some(UnresolvedReason::UnknownAction)
    );
    let nothing = of(&|pending| (pending.options, pending.field) = (Vec::new(), Some("size".to_owned())));
    assert_eq!((nothing.status, nothing.asked), (Status::Open, 1));
}
