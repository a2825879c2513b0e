//! Sentences and offers. Whole results are covered by the tests of cases.

use serde_json::json;

use super::super::declared_tests::RESULT_BYTES_MAX;
use super::super::declared_tests::tests::notes;
use super::*;
use crate::departments::types::RowChange;

fn outcome(action: &str, rows: Value, count: u64) -> Outcome {
    let rows: Vec<RowChange> = serde_json::from_value(rows).expect("rows");
    let slots = json!({"list": "office"}).as_object().cloned().expect("slots");
    Outcome { status: OutcomeStatus::Done, action: action.to_owned(), slots, rows, count, verified: true, wrong: None }
}

#[test]
fn a_selection_is_enumerated_up_to_a_limit() {
    let rows: Vec<Value> =
        (0..30).map(|n| json!({"id": n, "after": {"list": "office", "item": format!("i{n}")}})).collect();
    let text =
        |count: usize, of: u64| done(&notes(), &outcome("show", json!(rows[..count]), of), RESULT_BYTES_MAX).text;
    assert_eq!(text(0, 0), "On the office list: nothing.");
    assert_eq!(text(1, 1), "On the office list: i0.");
    assert_eq!(text(3, 3), "On the office list: i0, i1 and i2.");
    assert!(text(30, 1000).ends_with("i19 and 980 more."), "{}", text(30, 1000));
}

#[test]
fn a_change_is_reported_by_what_was_and_what_is() {
    let row =
        json!([{"id": 1, "before": {"list": "office", "item": "tea"}, "after": {"list": "household", "item": "tea"}}]);
    let result = done(&notes(), &outcome("move", row, 1), RESULT_BYTES_MAX);
    assert_eq!(result.text, "Moved tea from the office to the household list.");
    assert_eq!(result.data["first"], json!({"list": "household", "item": "tea"}));
}

#[test]
fn row_values_are_sanitised_in_confirmation_sentences() {
    let item = format!("{{list}}\n\u{1b}[31m{}", "x".repeat(5000));
    let result = done(
        &notes(),
        &outcome("add", json!([{"id": 1, "after": {"list": "office", "item": item}}]), 1),
        RESULT_BYTES_MAX,
    );
    assert!(result.text.starts_with("Put {list} [31mxxx") && result.text.chars().count() <= 2000, "{}", result.text);
}

#[test]
fn a_question_waits_from_now_on() {
    let open = Resolution::new(Status::Open, "add", Values::new()).asking(&notes(), "item", "item");
    let result = not_done(&notes(), &open, Timestamp(1000), RESULT_BYTES_MAX);
    assert_eq!((result.status, result.text.as_str()), (ResultStatus::Clarification, "which item?"));
    let pending = result.pending.expect("a question waits");
    assert_eq!((pending.expires_at, pending.asked, pending.department.as_str()), (301_000, 1, "notes"));
}

#[test]
fn oversized_results_are_cut_with_a_count_of_the_rest() {
    let long = |n: usize| format!("{n} {}", "\u{1f34c}".repeat(190));
    let rows: Vec<Value> = (0..100).map(|n| json!({"id": n, "after": {"list": "office", "item": long(n)}})).collect();
    let result = done(&notes(), &outcome("show", json!(rows), 200), RESULT_BYTES_MAX);
    let bytes = bytes_of(&result);
    assert!(bytes > RESULT_BYTES_MAX / 4 && bytes < RESULT_BYTES_MAX * 2, "{bytes}");
    assert!(result.text.ends_with("and 195 more."), "{}", result.text);
    let given = result.data["entries"].as_array().expect("rows").len();
    assert!(given > 5 && given < 100, "{given}");
    let mut silent = notes();
    silent.actions.get_mut("show").expect("it is there").confirm = "That is on the {list} list.".to_owned();
    let result = done(&silent, &outcome("show", json!(rows), 200), RESULT_BYTES_MAX);
    assert_eq!(result.text, format!("That is on the office list. ({given} of 200 are handed on.)"));
    assert_eq!(result.data["count"], 200);
    // Options that exceed the size limit are summarised as "another".
    let choice = |n: usize| Choice {
        ids: vec![1],
        values: Values::from_iter([("item".to_owned(), long(n).into())]),
        ..Choice::default()
    };
    let open =
        Resolution { options: (0..12).map(choice).collect(), ..Resolution::new(Status::Open, "remove", Values::new()) };
    let open = open.asking(&notes(), "item", "item");
    let asks = not_done(&notes(), &open, Timestamp(0), RESULT_BYTES_MAX / 4);
    let pending = asks.pending.clone().expect("it waits");
    assert!(pending.options.len() > 1 && pending.options.len() < 12 && asks.options.len() == pending.options.len());
    assert!(asks.text.ends_with(" or another?"), "{}", asks.text);
    assert!(bytes_of(&asks) < RESULT_BYTES_MAX / 2);
    // A question with slots beyond the limit is an error.
    let slots = Values::from_iter([("item".to_owned(), "x".repeat(20_000).into())]);
    let asks = not_done(&notes(), &Resolution { slots, ..open }, Timestamp(0), RESULT_BYTES_MAX);
    assert_eq!((asks.status, asks.pending), (ResultStatus::Error, None));
}

#[test]
fn change_errors_are_described_in_the_result_text() {
    let text = |wrong: ChangeError| {
        let failed = Outcome { status: OutcomeStatus::Error, wrong: Some(wrong), ..outcome("add", json!([]), 0) };
        let result = done(&notes(), &failed, RESULT_BYTES_MAX);
        assert_eq!(result.status, ResultStatus::Error);
        result.text
    };
    let unfit = ChangeError::Unfit { field: "list".to_owned(), value: json!("garage") };
    assert_eq!(text(unfit), "list: \"garage\" is none of household, office.");
    assert_eq!(text(ChangeError::Missing { field: "item".to_owned() }), "It has no item.");
    assert_eq!(text(ChangeError::UnknownAction), "There is no action \"add\".");
    // Errors are stored and read back.
    for wrong in
        [ChangeError::Stale, ChangeError::Taken { values: Values::from_iter([("item".to_owned(), json!("tea"))]) }]
    {
        let written = serde_json::to_string(&wrong).expect("JSON");
        assert_eq!(serde_json::from_str::<ChangeError>(&written).expect("the same"), wrong);
    }
}
