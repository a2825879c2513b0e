//! Candidate states, by example and as properties of random documents and operations.

use json_patch::PatchOperation;
use jsonptr::PointerBuf;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::blueprint::PatchLimits;
use crate::digest::Salt;
use crate::patch;

const ROOMY: ResultLimits = ResultLimits { bytes: 1 << 20, depth: 64 };

fn hasher() -> Hasher {
    Hasher::new(&Salt::ZERO)
}

fn candidate(document: Value) -> Candidate {
    State::new(&document, &hasher()).candidate()
}

/// Parses one operation and applies it.
fn apply(candidate: &mut Candidate, mut operation: Value, limits: ResultLimits) -> Result<(), Violation> {
    json::normalise(&mut operation);
    let patch = json!([operation]);
    let ops = patch::parse(&patch, &PatchLimits::default()).expect("a well-formed patch");
    candidate.apply(&ops[0], limits).map(drop)
}

fn check_effect(document: &Value, operation: Value, kind: Option<GrantOp>, granted_at: &str, lands_at: &str) {
    let patch = json!([operation]);
    let ops = patch::parse(&patch, &PatchLimits::default()).expect("a well-formed patch");
    let effect = candidate(document.clone()).effect(&ops[0]);
    let got = (effect.kind, effect.granted_at.as_str(), effect.lands_at.as_str());
    assert_eq!(got, (kind, granted_at, lands_at), "{operation}");
}

#[test]
fn effects_are_judged_by_what_is_there() {
    use GrantOp::{Add, Insert, Remove, Replace};
    let document = json!({"a": [1, 2, 3], "o": {"x": 1, "~/": 2}, "s": "text"});
    let add = |path: &str| json!({"op": "add", "path": path, "value": 0});
    for (path, kind, granted_at, lands_at) in [
        ("/new", Add, "/new", "/new"),
        ("/s", Replace, "/s", "/s"),
        ("/o/x", Replace, "/o/x", "/o/x"),
        ("/o/~0~1", Replace, "/o/~0~1", "/o/~0~1"),
        ("/o/-", Add, "/o/-", "/o/-"),
        ("/a/-", Add, "/a/-", "/a/3"),
        ("/a/3", Add, "/a/-", "/a/3"),
        ("/a/1", Insert, "/a/1", "/a/1"),
        ("", Replace, "", ""),
        // An invalid place counts as an add at the path as written.
        ("/a/4", Add, "/a/4", "/a/4"),
        ("/a/01", Add, "/a/01", "/a/01"),
        ("/a/-/x", Add, "/a/-/x", "/a/-/x"),
        ("/nope/x", Add, "/nope/x", "/nope/x"),
        ("/s/x", Add, "/s/x", "/s/x"),
    ] {
        check_effect(&document, add(path), Some(kind), granted_at, lands_at);
        check_effect(&document, json!({"op": "copy", "from": "/o", "path": path}), Some(kind), granted_at, lands_at);
    }
    for path in ["/a/0", "/a/3", "/a/-", "/nope/x", ""] {
        check_effect(&document, json!({"op": "remove", "path": path}), Some(Remove), path, path);
        check_effect(&document, json!({"op": "replace", "path": path, "value": 0}), Some(Replace), path, path);
        check_effect(&document, json!({"op": "test", "path": path, "value": 0}), None, path, path);
    }
}

#[test]
fn the_effect_of_a_move_is_judged_once_its_source_is_gone() {
    use GrantOp::{Add, Insert, Replace};
    let document = json!({"a": [[1], [2], [3]], "o": {"x": 1, "y": 2}});
    for (from, path, kind, granted_at, lands_at) in [
        ("/a/0", "/a/2", Add, "/a/-", "/a/2"),
        ("/a/0", "/a/-", Add, "/a/-", "/a/2"),
        ("/a/0", "/a/1", Insert, "/a/1", "/a/1"),
        ("/a/2", "/a/2", Add, "/a/-", "/a/2"),
        // By then the second element is at index 0, the third at 1.
        ("/a/0", "/a/1/-", Add, "/a/1/-", "/a/1/1"),
        ("/a/0", "/a/2/-", Add, "/a/2/-", "/a/2/-"),
        ("/o/x", "/o/y", Replace, "/o/y", "/o/y"),
        ("/o/x", "/o/x", Add, "/o/x", "/o/x"),
        ("/o/x", "/o/z", Add, "/o/z", "/o/z"),
        ("/nope", "/a/3", Add, "/a/-", "/a/3"),
        ("", "/a/3", Add, "/a/-", "/a/3"),
    ] {
        check_effect(&document, json!({"op": "move", "from": from, "path": path}), Some(kind), granted_at, lands_at);
    }
}

#[test]
fn inapplicable_operations_are_rejected_with_their_place_and_change_nothing() {
    use Code::{IndexOutOfRange, PathNotFound, TestFailed};
    let document = json!({"a": [1, 2], "o": {"x": {"y": 1}}, "l": [{}, {}], "s": "text"});
    for (operation, code, pointer) in [
        (json!({"op": "add", "path": "/nope/x", "value": 1}), PathNotFound, "/nope/x"),
        (json!({"op": "add", "path": "/s/x", "value": 1}), PathNotFound, "/s/x"),
        (json!({"op": "add", "path": "/a/3", "value": 1}), IndexOutOfRange, "/a/3"),
        (json!({"op": "add", "path": "/a/x", "value": 1}), PathNotFound, "/a/x"),
        (json!({"op": "add", "path": "/a/", "value": 1}), PathNotFound, "/a/"),
        (json!({"op": "add", "path": "/a/00", "value": 1}), PathNotFound, "/a/00"),
        (json!({"op": "add", "path": "/a/+1", "value": 1}), PathNotFound, "/a/+1"),
        (
            json!({"op": "add", "path": "/a/99999999999999999999", "value": 1}),
            IndexOutOfRange,
            "/a/99999999999999999999",
        ),
        (json!({"op": "add", "path": "/a/-/x", "value": 1}), IndexOutOfRange, "/a/-/x"),
        (json!({"op": "replace", "path": "/o/z", "value": 1}), PathNotFound, "/o/z"),
        (json!({"op": "replace", "path": "/a/2", "value": 1}), IndexOutOfRange, "/a/2"),
        (json!({"op": "remove", "path": "/a/-"}), IndexOutOfRange, "/a/-"),
        (json!({"op": "remove", "path": ""}), PathNotFound, ""),
        (json!({"op": "move", "from": "/nope", "path": "/z"}), PathNotFound, "/nope"),
        (json!({"op": "move", "from": "/o", "path": "/o/x"}), PathNotFound, "/o/x"),
        // Rejected, although the second element would be at index 0 by then (RFC 6902 section 4.4).
        (json!({"op": "move", "from": "/l/0", "path": "/l/0/x"}), PathNotFound, "/l/0/x"),
        (json!({"op": "move", "from": "/o", "path": "/nope/x"}), PathNotFound, "/nope/x"),
        // One of the two elements is gone by then.
        (json!({"op": "move", "from": "/a/0", "path": "/a/2"}), IndexOutOfRange, "/a/2"),
        (json!({"op": "move", "from": "", "path": "/z"}), PathNotFound, ""),
        (json!({"op": "move", "from": "", "path": ""}), PathNotFound, ""),
        (json!({"op": "copy", "from": "/a/7", "path": "/z"}), IndexOutOfRange, "/a/7"),
        (json!({"op": "test", "path": "/s", "value": "other"}), TestFailed, "/s"),
        (json!({"op": "test", "path": "/o/z", "value": null}), PathNotFound, "/o/z"),
    ] {
        let mut candidate = candidate(document.clone());
        let result = apply(&mut candidate, operation.clone(), ROOMY);
        let violation = result.expect_err("cannot be applied");
        assert_eq!((violation.code, violation.pointer.as_str()), (code, pointer), "{operation}");
        assert_eq!(*candidate.root(), document, "{operation}");
    }
}

#[test]
fn messages_say_what_is_there_without_showing_it() {
    let document = json!({"a": [1, 2], "o": {"secret": "value"}, "s": "text"});
    for (operation, message) in [
        (json!({"op": "remove", "path": "/o/x"}), r#"the object at "/o" has no member "x""#),
        (json!({"op": "remove", "path": "/o/x/y"}), r#"the object at "/o" has no member "x""#),
        (json!({"op": "remove", "path": "/a/2"}), "the array has 2 elements, counted from 0"),
        (json!({"op": "remove", "path": "/s/x"}), r#"at "/s": the value is a string and contains nothing"#),
        (json!({"op": "test", "path": "/s", "value": 1}), "the value is a string, a number was expected"),
        (json!({"op": "test", "path": "/s", "value": "t"}), "the value is a string other than the expected one"),
    ] {
        let violation = apply(&mut candidate(document.clone()), operation, ROOMY).expect_err("refused");
        assert_eq!(violation.message, message);
    }
}

#[test]
fn a_failed_test_shows_both_values_unless_they_are_large() {
    let long = "x".repeat(5000);
    let mut candidate = candidate(json!({"short": 1, "long": long}));
    let violation =
        apply(&mut candidate, json!({"op": "test", "path": "/short", "value": [2]}), ROOMY).expect_err("1 is not [2]");
    assert_eq!((violation.found, violation.expected), (Some(json!(1)), Some(json!([2]))));
    let violation =
        apply(&mut candidate, json!({"op": "test", "path": "/long", "value": "y"}), ROOMY).expect_err("another text");
    assert_eq!((violation.found, violation.expected), (None, Some(json!("y"))));
}

#[test]
fn numbers_are_tested_by_value() {
    let mut candidate = candidate(json!({"n": 100, "z": 0, "f": 1.5}));
    for (path, value) in [("/n", json!(1e2)), ("/z", json!(-0.0)), ("/f", json!(1.5))] {
        apply(&mut candidate, json!({"op": "test", "path": path, "value": value}), ROOMY).expect("the same number");
    }
    for (path, value) in [("/n", json!("100")), ("/z", json!(false)), ("/z", json!(null)), ("/f", json!(1))] {
        apply(&mut candidate, json!({"op": "test", "path": path, "value": value}), ROOMY).expect_err("something else");
    }
}

#[test]
fn the_whole_document_can_be_written_at_this_layer() {
    for operation in [
        json!({"op": "add", "path": "", "value": {"b": 1}}),
        json!({"op": "replace", "path": "", "value": {"b": 1}}),
        json!({"op": "copy", "from": "/a", "path": ""}),
        json!({"op": "move", "from": "/a", "path": ""}),
    ] {
        let mut candidate = candidate(json!({"a": {"b": 1}, "c": [1, 2, 3]}));
        apply(&mut candidate, operation.clone(), ROOMY).expect("root writes apply");
        assert_eq!((candidate.root().to_value(), candidate.bytes()), (json!({"b": 1}), 7), "{operation}");
    }
}

#[test]
fn a_value_can_be_moved_over_what_contains_it() {
    for (from, path, result) in [
        ("/o/a/0", "/o", json!({"o": {"x": 1}, "s": 2})),
        ("/o/a", "/o", json!({"o": [{"x": 1}, 3], "s": 2})),
        ("/o/a/0/x", "/o/a/0", json!({"o": {"a": [1, {}, 3]}, "s": 2})),
        ("/o/a", "/o/a", json!({"o": {"a": [{"x": 1}, 3]}, "s": 2})),
    ] {
        let mut candidate = candidate(json!({"o": {"a": [{"x": 1}, 3]}, "s": 2}));
        apply(&mut candidate, json!({"op": "move", "from": from, "path": path}), ROOMY).expect("it applies");
        assert_eq!(
            (candidate.root().to_value(), candidate.bytes()),
            (result.clone(), json::size(&result)),
            "{from} to {path}"
        );
    }
}

#[test]
fn a_patch_that_multiplies_the_document_is_rejected_before_it_grows() {
    let mut document = candidate(json!({"a": ["x"], "b": []}));
    let limits = ResultLimits { bytes: 4096, depth: 64 };
    let mut refused = None;
    for step in 0..40 {
        let (from, to) = if step % 2 == 0 { ("/a", "/b/-") } else { ("/b", "/a/-") };
        match apply(&mut document, json!({"op": "copy", "from": from, "path": to}), limits) {
            Ok(()) => assert!(document.bytes() <= limits.bytes),
            Err(violation) => {
                refused = Some(violation.code);
                break;
            }
        }
    }
    assert_eq!(refused, Some(Code::ResultTooLarge));
}

#[test]
fn a_copy_into_itself_cannot_pass_the_depth_limit() {
    let limits = ResultLimits { bytes: u64::MAX, depth: 8 };
    let mut document = candidate(json!({"a": {}}));
    let deepen = json!({"op": "copy", "from": "/a", "path": "/a/a"});
    let mut applied = 0;
    while apply(&mut document, deepen.clone(), limits).is_ok() {
        applied += 1;
        assert!(document.root().depth() <= 8);
        assert!(applied < 20);
    }
    assert_eq!(document.root().depth(), 1 + 7);
    apply(&mut document, json!({"op": "move", "from": "/a", "path": "/b"}), limits).expect("as deep as before");
    let add = json!({"op": "add", "path": "/b/c", "value": [[[[[[[1]]]]]]]});
    assert_eq!(apply(&mut document, add, limits).map_err(|violation| violation.code), Err(Code::ResultTooLarge));
}

#[test]
fn shrinking_operations_are_accepted_even_above_the_limit() {
    let limits = ResultLimits { bytes: 4, depth: 64 };
    let mut document = candidate(json!({"a": "long", "b": "longer"}));
    apply(&mut document, json!({"op": "remove", "path": "/a"}), limits).expect("smaller");
    apply(&mut document, json!({"op": "replace", "path": "/b", "value": "short"}), limits).expect("smaller");
    let grow = apply(&mut document, json!({"op": "replace", "path": "/b", "value": "longer"}), limits);
    assert_eq!(grow.map_err(|violation| violation.code), Err(Code::ResultTooLarge));
}

#[test]
fn a_candidate_leaves_the_state_it_came_from_alone_and_shares_it_until_it_changes() {
    let state = State::new(&json!({"a": 1}), &hasher());
    let mut candidate = state.candidate();
    apply(&mut candidate, json!({"op": "test", "path": "/a", "value": 1}), ROOMY).expect("it is");
    assert!(candidate.root.is_same(&state.root));
    apply(&mut candidate, json!({"op": "add", "path": "/b", "value": 2}), ROOMY).expect("it applies");
    assert_eq!(*state.root(), json!({"a": 1}));
    let next = candidate.into_state();
    assert_eq!(next.digest(), State::new(&json!({"a": 1, "b": 2}), &hasher()).digest());
    assert_eq!(next.get(Pointer::from_static("/b")).map(Node::to_value), Some(json!(2)));
    assert_eq!(state.candidate().into_state().digest(), state.digest());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The json_patch crate is the second opinion. It works on a copy, because a rejected patch may lose data.
    #[test]
    fn one_operation_does_what_the_json_patch_crate_does_or_nothing((document, ops) in any_trial(1)) {
        let operation = ops.into_iter().next().expect("one operation");
        let op = Op::from(&operation);
        let mut ours = candidate(document.clone());
        let effect = ours.effect(&op);
        let mut theirs = document.clone();
        let verdict = json_patch::patch_unsafe(&mut theirs, std::slice::from_ref(&operation));
        match ours.apply(&op, ROOMY) {
            Ok(applied) => {
                prop_assert!(verdict.is_ok(), "{:?}", verdict);
                prop_assert_eq!(ours.root(), &theirs);
                check_effect_of(&effect, &applied, &op, &document, &ours.root().to_value())?;
            }
            Err(violation) => {
                prop_assert!(verdict.is_err(), "{:?}", violation);
                prop_assert_eq!(ours.root(), &document);
            }
        }
        prop_assert_eq!(ours.bytes(), json::size(&ours.root().to_value()));
    }

    #[test]
    fn any_patch_keeps_the_count_of_bytes_and_stays_within_the_limits(
        (document, ops) in any_trial(12),
        bytes in 1_u64..400,
        depth in 1_u32..6,
    ) {
        let limits = ResultLimits { bytes, depth };
        let mut candidate = candidate(document);
        for op in &ops {
            let before = (candidate.root().clone(), candidate.bytes());
            let depth_before = json::depth(&candidate.root().to_value());
            if candidate.apply(&op.into(), limits).is_err() {
                prop_assert_eq!((candidate.root(), candidate.bytes()), (&before.0, before.1));
            }
            prop_assert_eq!(candidate.bytes(), json::size(&candidate.root().to_value()));
            prop_assert!(candidate.bytes() <= bytes.max(before.1));
            prop_assert!(json::depth(&candidate.root().to_value()) <= depth_before.max(depth as usize));
        }
    }
}

/// Checks that the predicted effect occurred, and that the removed and added values are reported.
fn check_effect_of(
    effect: &OpEffect<'_>,
    applied: &AppliedOp,
    op: &Op<'_>,
    before: &Value,
    after: &Value,
) -> Result<(), TestCaseError> {
    let value_of = |node: &Option<Node>| node.as_ref().map(Node::to_value);
    let taken = match op {
        Op::Move { from, .. } | Op::Remove { path: from } => from.resolve(before).ok(),
        _ => None,
    };
    prop_assert_eq!(value_of(&applied.removed), taken.cloned());
    let arrived = match *op {
        Op::Add { value, .. } | Op::Replace { value, .. } => value,
        Op::Copy { from, .. } | Op::Move { from, .. } => from.resolve(before).expect("it was there"),
        Op::Remove { path } => {
            prop_assert_eq!((effect.kind, &*effect.lands_at), (Some(GrantOp::Remove), path));
            return Ok(());
        }
        Op::Test { path, .. } => {
            prop_assert_eq!((effect.kind, &*effect.lands_at), (None, path));
            return Ok(());
        }
    };
    prop_assert_eq!(effect.lands_at.resolve(after).ok(), Some(arrived));
    prop_assert_eq!(value_of(&applied.made), Some(arrived.clone()));
    let mut without = before.clone();
    if let Op::Move { from, .. } = op {
        let removal = PatchOperation::Remove(json_patch::RemoveOperation { path: from.to_buf() });
        json_patch::patch_unsafe(&mut without, &[removal]).expect("it was moved");
    }
    let there = effect.lands_at.resolve(&without).is_ok();
    let array = effect.lands_at.parent().and_then(|parent| parent.resolve(&without).ok()).and_then(Value::as_array);
    let kind = match (op, there, array) {
        (Op::Replace { .. }, _, _) | (_, true, None) => GrantOp::Replace,
        (_, true, Some(_)) => GrantOp::Insert,
        (_, false, _) => GrantOp::Add,
    };
    prop_assert_eq!(effect.kind, Some(kind));
    let over = (kind == GrantOp::Replace).then(|| effect.lands_at.resolve(&without).ok()).flatten();
    prop_assert_eq!(value_of(&applied.overwritten), over.cloned());
    let appends = kind == GrantOp::Add && array.is_some();
    let granted_at = effect.granted_at.as_str();
    prop_assert_eq!(granted_at.ends_with("/-"), appends || op.path().as_str().ends_with("/-"));
    prop_assert!(appends || granted_at == effect.lands_at.as_str());
    Ok(())
}

fn any_document() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3_i32).prop_map(Value::from),
        "[a-c\"\n]{0,3}".prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any_token(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Generates from few tokens, so that pointers often match; some are indices, some only resemble them.
fn any_token() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "0", "1", "2", "-", "", "~/", "01", "+1", "99999999999999999999"])
        .prop_map(str::to_owned)
}

/// Generates a document and this many operations; most pointers begin with places of the document.
fn any_trial(ops: usize) -> impl Strategy<Value = (Value, Vec<PatchOperation>)> {
    let pointer = || {
        let below =
            prop_oneof![3 => prop::collection::vec(any_token(), 0..1), 1 => prop::collection::vec(any_token(), 1..4)];
        (any::<prop::sample::Index>(), below)
    };
    let op = (0..7, pointer(), pointer(), any_document());
    (any_document(), prop::collection::vec(op, ops)).prop_map(|(document, drafts)| {
        let places = places(&document);
        let pointer = |(place, below): (prop::sample::Index, Vec<String>)| {
            let mut pointer = place.get(&places).clone();
            below.iter().for_each(|token| pointer.push_back(token));
            pointer
        };
        let ops = drafts.into_iter().map(|(kind, path, from, value)| {
            let (path, from) = (pointer(path), pointer(from));
            match kind {
                0 => PatchOperation::Add(json_patch::AddOperation { path, value }),
                1 => PatchOperation::Replace(json_patch::ReplaceOperation { path, value }),
                2 => PatchOperation::Remove(json_patch::RemoveOperation { path }),
                3 => PatchOperation::Move(json_patch::MoveOperation { from, path }),
                4 => PatchOperation::Copy(json_patch::CopyOperation { from, path }),
                5 => PatchOperation::Test(json_patch::TestOperation { path, value }),
                _ => {
                    let value = path.resolve(&document).cloned().unwrap_or(value);
                    PatchOperation::Test(json_patch::TestOperation { path, value })
                }
            }
        });
        (document.clone(), ops.collect())
    })
}

/// Returns the pointers of all values.
fn places(document: &Value) -> Vec<PointerBuf> {
    let mut places = vec![PointerBuf::root()];
    let mut next = 0;
    while let Some(place) = places.get(next).cloned() {
        match place.resolve(document).expect("it was found there") {
            Value::Array(items) => places.extend((0..items.len()).map(|index| place.with_trailing_token(index))),
            Value::Object(members) => places.extend(members.keys().map(|key| place.with_trailing_token(key))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        next += 1;
    }
    places
}
