//! Writers of places, across moved and removed elements.

use patchboard_kernel::digest::{Digest, Hasher, Salt};
use patchboard_kernel::id::{Seq, Timestamp, Version};
use patchboard_kernel::record::{Author, Body, Committed, GENESIS, Record};
use patchboard_kernel::state::State;
use serde_json::{Value, json};

use super::last_writer;

/// Returns the index of the patch that last wrote the place, with its operations and the pointer then.
fn writer(initial: &Value, patches: &[Value], pointer: &str) -> Option<(usize, Vec<usize>, String)> {
    let hasher = Hasher::new(&Salt::ZERO);
    let records: Vec<Record> = patches
        .iter()
        .map(|patch| {
            let by = Author {
                worker: "w".into(),
                attempt: None,
                token: None,
                base: Version(0),
                usage: None,
                approval: None,
                edit: None,
            };
            let state = Digest([0; 32]);
            let committed = Committed {
                by,
                version: Version(1),
                state,
                patch: patch.clone(),
                intent: None,
                expand: Vec::new(),
                written: None,
                raw: None,
            };
            Record::seal(GENESIS, Seq(1), Timestamp(0), Body::Committed(committed), &hasher)
        })
        .collect();
    let found = last_writer(&State::new(initial, &hasher), &records, pointer).expect("the patches apply");
    found.map(|writer| (writer.record, writer.ops, writer.pointer))
}

#[test]
fn the_last_commit_at_above_or_below_a_place_wrote_it() {
    let initial = json!({"a": {"b": 1, "c": 2}, "ab": 0});
    let patches = [
        json!([{"op": "replace", "path": "/a", "value": {"b": 1, "c": 2}}]),
        json!([{"op": "test", "path": "/a/c", "value": 2}, {"op": "replace", "path": "/a/b", "value": 5}]),
        json!([{"op": "replace", "path": "/ab", "value": 1}]),
    ];
    for (pointer, expected) in [
        ("/a/b", Some((1, vec![1]))),
        ("/a", Some((1, vec![1]))),
        ("/a/c", Some((0, vec![0]))),
        ("/ab", Some((2, vec![0]))),
        ("", Some((2, vec![0]))),
        ("/z", None),
    ] {
        let found = writer(&initial, &patches, pointer).map(|(record, ops, _)| (record, ops));
        assert_eq!(found, expected, "{pointer}");
    }
}

#[test]
fn an_element_is_followed_to_where_it_was() {
    let initial = json!({"l": ["0"]});
    let patches = [
        json!([{"op": "add", "path": "/l/-", "value": {"x": 1}}]),
        json!([{"op": "add", "path": "/l/0", "value": "before"}, {"op": "add", "path": "/l/0", "value": "first"}]),
        json!([{"op": "remove", "path": "/l/1"}]),
    ];
    // Final list: first, 0, {x: 1}.
    let found = |pointer: &str| writer(&initial, &patches, pointer);
    assert_eq!(found("/l/2/x"), Some((0, vec![0], "/l/1/x".to_owned())));
    assert_eq!(found("/l/0"), Some((1, vec![1], "/l/0".to_owned())));
    assert_eq!(found("/l/1"), None, "it came with the initial state");
    assert_eq!(found("/l"), Some((2, vec![0], "/l".to_owned())), "the list itself lost an element last");
}

#[test]
fn moves_and_removals_are_attributed_to_the_record_that_made_them() {
    let initial = json!({"a": 1, "l": [1, 2, 3]});
    let patches =
        [json!([{"op": "move", "from": "/a", "path": "/b"}]), json!([{"op": "move", "from": "/l/0", "path": "/l/-"}])];
    let found = |pointer: &str| writer(&initial, &patches, pointer).map(|(record, ..)| record);
    assert_eq!((found("/a"), found("/b"), found("/l/2"), found("/l/0")), (Some(0), Some(0), Some(1), None));
}
