//! Tests of `json_diff.rs`.

use proptest::prelude::*;

use super::*;
use crate::blueprint::PatchLimits;
use crate::digest::{Hasher, Salt};
use crate::patch;
use crate::state::{ResultLimits, State};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), (0..4).prop_map(Value::from)];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let name = prop_oneof!["[abc]", Just("a/b~".to_owned()), Just("-".to_owned()), Just("0".to_owned())];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..4).prop_map(|members| json!(members)),
        ]
    })
}

fn applied(document: &Value, patch: &Value) -> Value {
    let unlimited = PatchLimits { max_ops: u32::MAX, ..PatchLimits::default() };
    let mut candidate = State::new(document, &Hasher::new(&Salt::ZERO)).candidate();
    for op in patch::parse(patch, &unlimited).expect("a patch") {
        let applied = candidate.apply(&op, ResultLimits { bytes: u64::MAX, depth: 64 });
        applied.unwrap_or_else(|violation| panic!("{patch} on {document}: {violation:?}"));
    }
    candidate.into_state().root().to_value()
}

proptest! {
    #[test]
    fn the_patch_between_two_documents_leads_from_one_to_the_other(old in value(), new in value()) {
        let (old, new) = (json!({"it": old}), json!({"it": new}));
        let patch = diff(&old, &new);
        prop_assert_eq!(applied(&old, &patch), new);
    }

    #[test]
    fn a_diff_changes_shown_places_to_the_answer_and_keeps_the_rest(
        old in prop::collection::btree_map("[a-d]", value(), 1..4),
        new in prop::collection::btree_map("[a-d]", value(), 0..4),
        shown in prop::collection::btree_set("[a-d]", 0..4),
    ) {
        let document = json!(old);
        let state = State::new(&document, &Hasher::new(&Salt::ZERO));
        let places: Vec<PointerBuf> = shown.iter().map(|name| PointerBuf::from_tokens([name.as_str()])).collect();
        let excerpt = Projection::from_places(state.root(), places.iter().map(|place| place.as_ref()));
        // Members that exist but were not shown cannot be in the answer.
        let new: Map<String, Value> =
            new.into_iter().filter(|(name, _)| shown.contains(name) || !old.contains_key(name)).collect();
        let mut expected: Map<String, Value> =
            old.iter().filter(|(name, _)| !shown.contains(*name)).map(|(n, v)| (n.clone(), v.clone())).collect();
        expected.extend(new.clone());
        for granted in [true, false] {
            let patch = diff_shown(state.root(), &excerpt, &Value::Object(new.clone()), &|place, op| {
                granted || (place.count() == 1 && op == GrantOp::Replace)
            });
            prop_assert_eq!(&applied(&document, &patch.expect("objects")), &Value::Object(expected.clone()));
        }
        let same = diff_shown(state.root(), &excerpt, &excerpt.to_value(), &|_, _| true);
        prop_assert_eq!(same.expect("objects"), json!([]));
    }
}

#[test]
fn parts_of_arrays_are_compared_by_their_places() {
    let document = json!({"rows": [{"t": "a", "s": 1}, {"t": "b", "s": 2}, {"t": "c", "s": 3}], "hidden": [1]});
    let state = State::new(&document, &Hasher::new(&Salt::ZERO));
    let difference = |places: &[&str], new: Value| {
        let places: Vec<PointerBuf> = places.iter().map(|it| PointerBuf::parse(*it).expect("a place")).collect();
        let excerpt = Projection::from_places(state.root(), places.iter().map(|place| place.as_ref()));
        diff_shown(state.root(), &excerpt, &new, &|_, _| true)
    };
    for (places, new, expected) in [
        (
            &["/rows/0/s", "/rows/1/s", "/rows/2/s"][..],
            json!({"rows": [{"s": 1}, {"s": 5}, {"s": 3}, {"s": 4}]}),
            json!([
                {"op": "replace", "path": "/rows/1/s", "value": 5},
                {"op": "add", "path": "/rows/-", "value": {"s": 4}},
            ]),
        ),
        (
            &["/rows/1", "/rows/2"],
            json!({"rows": {"1": {"t": "b", "s": 2}, "-": "new"}}),
            json!([{"op": "remove", "path": "/rows/2"}, {"op": "add", "path": "/rows/-", "value": "new"}]),
        ),
        (&[], json!({"hidden": [2]}), json!([{"op": "add", "path": "/hidden/-", "value": 2}])),
    ] {
        assert_eq!(difference(places, new.clone()), Ok(expected), "{new}");
    }
    let refused = difference(&["/rows/1"], json!({"rows": [1]})).expect_err("an object is expected");
    assert_eq!((refused[0].code, refused[0].pointer.as_str()), (Code::NotAnObject, "/rows"));
}
