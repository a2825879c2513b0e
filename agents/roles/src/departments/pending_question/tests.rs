//! A message that continues a question keeps the known values; a new request inherits nothing.

use serde_json::{Value, json};

use super::super::declared_tests::tests::notes;
use super::super::resolve::resolve as search;
use super::super::types::{Row, UnresolvedReason};
use super::*;

fn values(values: Value) -> Values {
    values.as_object().cloned().expect("values")
}

fn rows(of: &[(&str, &str)]) -> Vec<Row> {
    let row = |(id, (list, item)): (i64, &(&str, &str))| Row {
        id,
        version: 1,
        values: values(json!({"list": list, "item": item})),
    };
    (1..).zip(of).map(row).collect()
}

fn waiting(changed: Value) -> OpenQuestion {
    let mut pending =
        values(json!({"department": "notes", "action": "remove", "slots": {"item": "milk"}, "field": "list",
        "options": [{"ids": [1], "values": {"list": "household"}}, {"ids": [2], "values": {"list": "office"}}],
        "ask": "which list", "asked": 1, "expires_at": 300_000}));
    pending.extend(values(changed));
    serde_json::from_value(Value::Object(pending)).expect("a question")
}

const THERE: &[(&str, &str)] = &[("household", "milk"), ("office", "milk"), ("office", "tea")];

fn found_at(waits: &OpenQuestion, action: &str, slots: Value, now: i64) -> Resolution {
    let (department, rows, slots) = (notes(), rows(THERE), values(slots));
    let understood = Classification { action, slots: &slots };
    resolve(&department, Some(waits), understood, Timestamp(now), |action, slots| {
        search(&department, action, slots, &rows)
    })
}

fn found(waits: &OpenQuestion, action: &str, slots: Value) -> Resolution {
    found_at(waits, action, slots, 0)
}

#[test]
fn answers_are_merged_with_known_slots() {
    for (action, slots) in [
        ("remove", json!({"list": "ofice"})),
        ("none", json!({"list": "the office list"})),
        ("remove", json!({"list": "office", "item": "Milk"})),
        ("remove", json!({"list": "office", "item": null})),
    ] {
        let resolved = found(&waiting(json!({})), action, slots.clone());
        assert_eq!((resolved.status, resolved.ids), (Status::Found, vec![2]), "{action} {slots}");
    }
    // The value is resolved like any other input.
    let none = found(&waiting(json!({})), "remove", json!({"list": "garage"}));
    assert_eq!(
        (none.why, none.slots),
        (Some(UnresolvedReason::NotFound), values(json!({"item": "milk", "list": "garage"})))
    );
}

#[test]
fn a_message_about_another_matter_is_a_new_request() {
    let waits = waiting(json!({}));
    let added = found(&waits, "add", json!({"item": "tea", "list": "household"}));
    assert_eq!((added.action.as_str(), added.slots), ("add", values(json!({"item": "tea", "list": "household"}))));
    // Known values may not hold for another item.
    let tea = found(
        &waiting(json!({"slots": {"item": "milk", "list": "household"}, "field": "number"})),
        "remove",
        json!({"item": "tea"}),
    );
    assert_eq!((tea.status, tea.ids), (Status::Found, vec![3]));
    for (action, slots) in [("none", json!({})), ("none", json!({"number": 3})), ("burn", json!({"list": "office"}))] {
        let none = found(&waits, action, slots);
        assert_eq!((none.why, none.action.as_str()), (Some(UnresolvedReason::UnknownAction), action));
    }
}

#[test]
fn a_similar_value_replaces_the_known_one() {
    let there = rows(&[("office", "milk"), ("office", "oat milk"), ("household", "milk")]);
    let found = |waits: Value, action: &str, slots: Value| {
        let (department, slots) = (notes(), values(slots));
        let understood = Classification { action, slots: &slots };
        resolve(&department, Some(&waiting(waits)), understood, Timestamp(0), |action, slots| {
            search(&department, action, slots, &there)
        })
    };
    let said = || json!({"item": "oat milk", "list": "office"});
    assert_eq!(found(json!({}), "remove", said()).ids, [2]);
    assert_eq!(found(json!({}), "none", said()).ids, [2]);
    assert_eq!(
        found(json!({"slots": {"item": "oat milk"}}), "remove", json!({"item": "milk", "list": "office"})).ids,
        [1]
    );
    assert_eq!(found(json!({"action": "add"}), "add", said()).slots, values(said()));
    // The known row does not match another item, however alike.
    let moved = json!({"action": "move", "slots": {"item": "milk", "list": "office"}, "ids": [1], "field": "new_list",
        "options": []});
    let other = found(moved, "move", json!({"item": "oat milk", "new_list": "household"}));
    assert_eq!((other.status, other.ids), (Status::Found, vec![2]));
}

#[test]
fn a_question_of_another_or_that_is_late_is_none() {
    let office = || json!({"list": "office"});
    let own = search(&notes(), "remove", &values(office()), &rows(THERE));
    assert_eq!(own.status, Status::Open, "milk or tea");
    assert_eq!(found(&waiting(json!({"department": "timeline"})), "remove", office()), own);
    assert_eq!(found_at(&waiting(json!({})), "remove", office(), 300_000), own);
    assert_eq!(found_at(&waiting(json!({})), "remove", office(), 299_999).ids, [2]);
    assert_eq!(found(&waiting(json!({"action": "burn"})), "remove", office()), own);
}

#[test]
fn a_row_that_is_known_stays_the_one() {
    let waits = waiting(json!({"action": "move", "slots": {"item": "milk", "list": "office"}, "ids": [2],
        "field": "new_list", "options": []}));
    let moved = found(&waits, "move", json!({"new_list": "the household list"}));
    assert_eq!((moved.status, moved.ids), (Status::Found, vec![2]));
    assert_eq!(moved.slots["new_list"], "household", "a value of the field");
    let wrong = found(&waits, "move", json!({"new_list": "garage"}));
    assert_eq!((wrong.status, wrong.ids, wrong.asked), (Status::Open, vec![2], 1));
    assert!(wrong.because.is_some());
}

#[test]
fn an_offer_is_taken_with_what_was_sought() {
    let offer =
        waiting(json!({"slots": {"item": "tea", "list": "household"}, "field": null, "offer": true, "asked": 3,
        "options": [{"ids": [3], "values": {"item": "tea", "list": "office"}}]}));
    assert_eq!(found(&offer, "remove", json!({"list": "office"})).ids, [3]);
    // Another item is resolved from scratch: the message does not say that it is on the household list.
    assert_eq!(found(&offer, "remove", json!({"item": "milk"})).status, Status::Open);
}

#[test]
fn the_same_is_asked_at_most_three_times() {
    let asked = |asked: u32| found(&waiting(json!({"asked": asked})), "remove", json!({}));
    assert_eq!((asked(2).status, asked(2).asked), (Status::Open, 2));
    assert_eq!(asked(3).why, Some(UnresolvedReason::GaveUp));
    let waits = waiting(json!({"asked": 3, "slots": {}, "field": "item"}));
    let next = found(&waits, "remove", json!({"item": "milk"}));
    assert_eq!((next.status, next.field.as_deref(), next.asked), (Status::Open, Some("list"), 0), "another question");
}
