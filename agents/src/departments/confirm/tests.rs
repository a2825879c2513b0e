//! Sentences and offers; whole results are in the tests of cases.

use serde_json::json;

use super::super::cases::tests::notes;
use super::*;
use crate::departments::found::Changed;

fn outcome(action: &str, rows: Value, count: u64) -> Outcome {
    let rows: Vec<Changed> = serde_json::from_value(rows).expect("rows");
    let slots = json!({"list": "office"}).as_object().cloned().expect("slots");
    Outcome { status: Done::Done, action: action.to_owned(), slots, rows, count, verified: true, message: None }
}

#[test]
fn a_selection_is_enumerated_up_to_a_limit() {
    let rows: Vec<Value> =
        (0..30).map(|n| json!({"id": n, "after": {"list": "office", "item": format!("i{n}")}})).collect();
    let text = |count: usize, of: u64| done(&notes(), &outcome("show", json!(rows[..count]), of)).text;
    assert_eq!(text(0, 0), "On the office list: nothing.");
    assert_eq!(text(1, 1), "On the office list: i0.");
    assert_eq!(text(3, 3), "On the office list: i0, i1 and i2.");
    assert!(text(30, 1000).ends_with("i19 and 980 more."), "{}", text(30, 1000));
}

#[test]
fn a_change_is_told_by_what_was_and_what_is() {
    let row =
        json!([{"id": 1, "before": {"list": "office", "item": "tea"}, "after": {"list": "household", "item": "tea"}}]);
    let told = done(&notes(), &outcome("move", row, 1));
    assert_eq!(told.text, "Moved tea from the office to the household list.");
    assert_eq!(told.data["first"], json!({"list": "household", "item": "tea"}));
}

#[test]
fn what_stands_in_a_row_cannot_break_a_sentence() {
    let item = format!("{{list}}\n\u{1b}[31m{}", "x".repeat(5000));
    let told = done(&notes(), &outcome("add", json!([{"id": 1, "after": {"list": "office", "item": item}}]), 1));
    assert!(told.text.starts_with("Put {list} [31mxxx") && told.text.chars().count() <= 2000, "{}", told.text);
}

#[test]
fn a_question_waits_from_now_on() {
    let open = Resolved::new(Status::Open, "add", Values::new()).asking(&notes(), "item", "item");
    let told = not_done(&notes(), &open, Timestamp(1000));
    assert_eq!((told.status, told.text.as_str()), (Ending::Clarification, "which item?"));
    let pending = told.pending.expect("a question waits");
    assert_eq!((pending.expires_at, pending.asked, pending.department.as_str()), (301_000, 1, "notes"));
}
