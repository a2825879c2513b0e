//! Numbers, keys and previous values in the conditions and invariants of a board.

use patchboard_kernel::board::{Board, Outcome};
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::{Body, GENESIS, Record};
use patchboard_kernel::rejection::Code;
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

use crate::played::Played;

/// Returns a board with a worker that may write anything below `/rows`, `/claims` and `/price`, and is called for each
/// signal.
fn board(initial: Value, invariants: Value) -> Played {
    let claim = json!({"type": "object", "properties": {"status": {"enum": ["open", "checked", "closed"]}}});
    Played::new(json!({
        "state": {
            "schema": {"type": "object", "properties": {
                "claims": {"type": "object", "additionalProperties": claim},
                "rows": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
                "price": {"type": "number"}, "count": {"type": "integer"},
            }},
            "initial": initial,
        },
        "workers": {"w": {"agent": "llm", "reads": ["/**"], "writes": [
            {"path": "/claims/**", "ops": ["add", "replace", "remove", "move"]}, {"path": "/price"}, {"path": "/count"},
            {"path": "/rows/**", "ops": ["add", "insert", "replace", "remove", "move"]},
        ]}},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}, {"name": "yearly", "trigger": {"every": "0 0 1 1 *"}, "run": "w"}],
        "invariants": invariants,
    }))
}

/// Returns true if a patch is committed; otherwise an invariant has rejected it.
fn is_committed(played: &mut Played, patch: Value) -> bool {
    if played.calls.is_empty() {
        played.signal();
    }
    match played.answer(patch, None) {
        Outcome::Committed { .. } => true,
        Outcome::Rejected { rejection, .. } => {
            assert_eq!(rejection.code, Code::InvariantViolated, "{rejection:?}");
            false
        }
        other => panic!("it was {other:?}"),
    }
}

fn put(path: &str, value: Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

#[test]
fn a_status_only_moves_forward_in_objects_and_arrays() {
    let ranks = "{'open': 0, 'checked': 1, 'closed': 2}";
    let forward = format!("old == null || {ranks}[self.status] >= {ranks}[old.status]");
    let initial = json!({"claims": {"a": {"status": "checked"}}, "rows": [{"n": 1, "status": "checked"}]});
    let mut played = board(
        initial,
        json!([{"name": "claims", "for": "/claims/*", "expr": forward}, {"name": "rows", "for": "/rows/*", "expr": forward}]),
    );
    assert!(is_committed(&mut played, put("/claims/b", json!({"status": "open"}))), "nothing was there");
    assert!(!is_committed(&mut played, put("/claims/a/status", json!("open"))));
    assert!(is_committed(&mut played, put("/claims/a/status", json!("closed"))));
    let replaced =
        json!([{"op": "remove", "path": "/claims/a"}, {"op": "add", "path": "/claims/a", "value": {"status": "open"}}]);
    assert!(!is_committed(&mut played, replaced), "one patch that takes it away and makes it anew changes it");
    // Shifted elements are compared with their value at their previous index.
    let shifted = json!([
        {"op": "add", "path": "/rows/0", "value": {"n": 0, "status": "open"}},
        {"op": "replace", "path": "/rows/1/status", "value": "closed"},
    ]);
    assert!(is_committed(&mut played, shifted));
    let shifted_back = json!([
        {"op": "add", "path": "/rows/0", "value": {"n": 5, "status": "open"}},
        {"op": "replace", "path": "/rows/2/status", "value": "checked"},
    ]);
    assert!(!is_committed(&mut played, shifted_back));
    let moved = |status: &str| {
        json!([
            {"op": "move", "from": "/rows/1", "path": "/rows/0"},
            {"op": "replace", "path": "/rows/0/status", "value": status},
        ])
    };
    assert!(!is_committed(&mut played, moved("open")), "what is moved is what it was");
    assert!(is_committed(&mut played, moved("closed")));
    let renamed = |status: &str| {
        json!([
            {"op": "move", "from": "/claims/a", "path": "/claims/c"},
            {"op": "replace", "path": "/claims/c/status", "value": status},
        ])
    };
    assert!(!is_committed(&mut played, renamed("open")));
    assert!(is_committed(&mut played, renamed("closed")));
    // A list that is replaced as a whole is compared index by index, regardless of earlier shifts.
    let whole = |status: &str| {
        json!([
            {"op": "add", "path": "/rows/0", "value": {"n": 9, "status": "open"}},
            {"op": "replace", "path": "/rows", "value": [{"n": 1, "status": status}]},
        ])
    };
    assert!(!is_committed(&mut played, whole("open")));
    assert!(is_committed(&mut played, whole("closed")));
    played.holds();
}

#[test]
fn an_instance_knows_its_name_or_index() {
    let mut played = board(
        json!({"claims": {"a": {"id": "a"}}, "rows": [{"n": 0}]}),
        json!([{"name": "named", "for": "/claims/*", "expr": "self.id == key"}, {"name": "numbered", "for": "/rows/*", "expr": "self.n == key"}]),
    );
    assert!(is_committed(&mut played, put("/claims/b", json!({"id": "b"}))));
    assert!(!is_committed(&mut played, put("/claims/c", json!({"id": "b"}))));
    assert!(is_committed(&mut played, put("/rows/-", json!({"n": 1}))));
    assert!(
        !is_committed(&mut played, json!([{"op": "remove", "path": "/rows/0"}])),
        "the other one has another index"
    );
    played.holds();
}

#[test]
fn numbers_are_alike_wherever_the_schema_says_number() {
    let invariants = json!([{"name": "half", "expr": "state.price / 2 + 0.5 > 3 && state.count / 2 >= 3"}]);
    let mut played = board(json!({"price": 5.5, "count": 7, "claims": {}, "rows": []}), invariants);
    assert!(!is_committed(&mut played, put("/price", json!(5))), "2.5 and 0.5 are 3");
    assert!(is_committed(&mut played, put("/price", json!(7))));
    assert!(is_committed(&mut played, put("/price", json!(6.0))));
    played.holds();
}

#[test]
fn a_board_of_an_earlier_format_keeps_its_arithmetic() {
    let invariants = json!([{"name": "dear", "expr": "state.price * 2.0 > 3.0"}]);
    let initial = json!({"price": 5.5, "count": 7, "claims": {}, "rows": []});
    for (format, expected) in [(13, false), (14, true)] {
        let mut played = board(initial.clone(), invariants.clone());
        let mut body = played.records[0].body().expect("it can be read").clone();
        let Body::Created(created) = &mut body else { panic!("the first record creates") };
        created.format = format;
        let first = Record::seal(GENESIS, played.records[0].seq, Timestamp(0), body, &Hasher::new(&Salt::ZERO));
        played.board = Board::recover(std::slice::from_ref(&first), &PLANS).expect("it is read");
        played.records = vec![first];
        assert_eq!(is_committed(&mut played, put("/price", json!(5))), expected, "format {format}");
        played.holds();
    }
}
