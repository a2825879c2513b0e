//! Tests of `patch.rs`.

use serde_json::json;

use super::*;

/// Code, pointer and operation of a violation.
type Fault = (Code, String, Option<usize>);

fn read(patch: &Value) -> Result<Vec<Op<'_>>, Vec<Fault>> {
    parse(patch, &PatchLimits::default()).map_err(|violations| {
        violations.into_iter().map(|violation| (violation.code, violation.pointer, violation.op)).collect()
    })
}

#[test]
fn every_operation_is_read_and_written_as_it_was() {
    let patch = json!([
        {"op": "add", "path": "/a~1b/-", "value": null},
        {"op": "remove", "path": "/a"},
        {"op": "replace", "path": "", "value": {"x": [1]}},
        {"op": "move", "from": "/a", "path": "/b"},
        {"op": "copy", "from": "", "path": "/b"},
        {"op": "test", "path": "/m~0n", "value": "x"},
    ]);
    let ops = read(&patch).expect("six good operations");
    assert_eq!(to_value(&ops), patch);
    assert_eq!(read(&json!([])), Ok(vec![]));
}

#[test]
fn members_that_an_operation_does_not_define_are_ignored() {
    let patch = json!([{"op": "remove", "path": "/a", "value": 1, "from": 7, "why": "tidy"}]);
    assert_eq!(to_value(&read(&patch).expect("a patch")), json!([{"op": "remove", "path": "/a"}]));
}

#[test]
fn all_faults_of_all_operations_are_reported_with_their_places() {
    let patch = json!([
        {"op": "add", "path": "/fine", "value": 1},
        {"op": "set", "path": "fine"},
        {"path": 7},
        {"op": "move", "path": "/a~2"},
        "remove /a",
        {"op": "replace", "path": "/a"},
        {"op": "copy", "path": "/a", "from": null},
    ]);
    let violations = read(&patch).expect_err("six faulty operations");
    let expected = [
        (Code::UnknownOp, "/1/op", 1),
        (Code::BadPointer, "/1/path", 1),
        (Code::NotAPatch, "/2", 2),
        (Code::NotAPatch, "/2/path", 2),
        (Code::BadPointer, "/3/path", 3),
        (Code::NotAPatch, "/3", 3),
        (Code::NotAPatch, "/4", 4),
        (Code::NotAPatch, "/5", 5),
        (Code::NotAPatch, "/6/from", 6),
    ];
    assert_eq!(violations, expected.map(|(code, pointer, op)| (code, pointer.to_owned(), Some(op))));
}

#[test]
fn a_patch_must_be_an_array() {
    for value in [json!(null), json!({"op": "add"}), json!("[]"), json!(1)] {
        assert_eq!(read(&value), Err(vec![(Code::NotAPatch, String::new(), None)]));
    }
}

#[test]
fn too_many_operations_are_reported_together_with_the_faults_of_those_that_count() {
    let mut ops = vec![json!({"op": "remove", "path": "/a"}); 9];
    ops[7] = json!({"op": "delete", "path": "/a"});
    ops[8] = json!("beyond the limit");
    let patch = ops.into();
    let violations = read(&patch).expect_err("nine are too many");
    assert_eq!(violations, [(Code::TooLarge, String::new(), None), (Code::UnknownOp, "/7/op".to_owned(), Some(7))]);
}

#[test]
fn the_number_of_violations_is_bounded() {
    let limits = PatchLimits { max_ops: u32::MAX, ..PatchLimits::default() };
    let patch = vec![json!({}); 1000].into();
    let violations = parse(&patch, &limits).expect_err("empty objects");
    assert_eq!(violations.len(), VIOLATIONS_MAX);
}
