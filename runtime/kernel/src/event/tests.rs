//! Tests of `event.rs`.

use serde_json::{Value, json};

use super::*;

fn check(before: Option<Value>, after: Option<Value>, expected: &[(EventOp, &str)]) {
    let path = PointerBuf::parse("/x").expect("a pointer");
    let hasher = std::sync::Arc::new(crate::digest::Hasher::new(&crate::digest::Salt::ZERO));
    let node = |value: Value| Node::from_value(&value, &crate::tree::Edit { revision: 0, hasher: hasher.clone() });
    let changes = [Change { path, before: before.map(node), after: after.map(node) }];
    let found: Vec<_> = events(&changes).into_iter().map(|event| (event.op, event.path.to_string())).collect();
    let expected: Vec<_> = expected.iter().map(|(op, path)| (*op, (*path).to_owned())).collect();
    assert_eq!(found, expected);
}

#[test]
fn replacing_an_empty_array_by_three_elements_adds_three() {
    check(
        Some(json!([])),
        Some(json!([1, 2, 3])),
        &[(EventOp::Replace, "/x"), (EventOp::Add, "/x/0"), (EventOp::Add, "/x/1"), (EventOp::Add, "/x/2")],
    );
}

#[test]
fn writing_what_was_there_already_is_no_event() {
    check(Some(json!({"a": 1})), Some(json!({"a": 1})), &[]);
}

#[test]
fn members_that_stay_have_no_event() {
    check(
        Some(json!({"a": 1, "b": 2, "c": 3})),
        Some(json!({"a": 1, "b": 5, "d": 4})),
        &[(EventOp::Replace, "/x"), (EventOp::Replace, "/x/b"), (EventOp::Remove, "/x/c"), (EventOp::Add, "/x/d")],
    );
}

#[test]
fn removing_a_place_removes_what_was_below_it() {
    check(
        Some(json!({"a": [1]})),
        None,
        &[(EventOp::Remove, "/x"), (EventOp::Remove, "/x/a"), (EventOp::Remove, "/x/a/0")],
    );
}
