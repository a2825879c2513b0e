//! A grant never accepts a write outside its pattern.
//!
//! Random contracts judge random operations on random documents. Accepted operations are applied, and the oracle
//! compares the documents before and after (`contract_oracle/oracle.rs`).

mod oracle;

use std::cell::Cell;

use patchboard_kernel::blueprint::{GrantOp, PatchLimits, Worker};
use patchboard_kernel::contract::Contract;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::expressions::ExpressionCompiler;
use patchboard_kernel::patch::{self, Op};
use patchboard_kernel::pattern::PathSyntax;
use patchboard_kernel::schema::Schema;
use patchboard_kernel::state::{ResultLimits, State};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use self::oracle::{Grant, Oracle, Place, at, pointer};

/// Large enough for every operation on the small documents here.
const LIMITS: ResultLimits = ResultLimits { bytes: 1 << 20, depth: 64 };

#[test]
fn a_grant_never_lets_a_write_outside_it_through() {
    let every_place = Schema::compile(&json!(true), false).expect("a schema that allows anything");
    let let_through = Cell::new([0; 6]);
    let mut runner = TestRunner::new(ProptestConfig { cases: 8000, failure_persistence: None, ..Default::default() });
    runner
        .run(&situations(), |(document, (reads, grants), operation)| {
            let contract = compiled(&reads, &grants);
            let patch = json!([operation]);
            let Some(op) = read(&patch) else { return Ok(()) };
            let mut candidate = State::new(&document, &Hasher::new(&Salt([1; 32]))).candidate();
            if !contract.judge(0, &op, &candidate, &every_place).is_empty() || candidate.apply(&op, LIMITS).is_err() {
                return Ok(());
            }
            let after = candidate.root();
            let oracle = Oracle { reads: &reads, grants: &grants };
            let complaint = oracle.complaint(&document, &after.to_value(), &operation);
            prop_assert_eq!(complaint, None, "{} became {}", document, after);
            let kind =
                ["add", "replace", "remove", "move", "copy", "test"].iter().position(|kind| operation["op"] == **kind);
            let mut counts = let_through.get();
            counts[kind.expect("one of the six")] += 1;
            let_through.set(counts);
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    // Ensures that the oracle has judged enough operations of each kind.
    assert!(let_through.get().iter().all(|&count| count >= 25), "{:?}", let_through.get());
}

#[test]
fn a_grant_of_everything_rejects_only_the_whole_document() {
    let every_place = Schema::compile(&json!(true), false).expect("a schema that allows anything");
    let contract =
        compiled(&[vec![]], &[Grant { tokens: vec!["**".to_owned()], ops: GrantOp::ALL.to_vec(), value: None }]);
    let mut runner = TestRunner::new(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() });
    runner
        .run(&situations(), |(document, _, operation)| {
            let patch = json!([operation]);
            let Some(op) = read(&patch) else { return Ok(()) };
            let candidate = State::new(&document, &Hasher::new(&Salt([1; 32]))).candidate();
            let whole = operation["op"] != "test" && operation["path"] == ""
                || operation["op"] == "move" && operation["from"] == "";
            let refused = !contract.judge(0, &op, &candidate, &every_place).is_empty();
            prop_assert_eq!(refused, whole, "{}", operation);
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}

/// Returns the single operation of a patch.
fn read(patch: &Value) -> Option<Op<'_>> {
    patch::parse(patch, &PatchLimits::default()).ok()?.pop()
}

fn compiled(reads: &[Vec<String>], grants: &[Grant]) -> Contract {
    let writes = grants.iter().map(|grant| {
        let mut write = json!({"path": pointer(&grant.tokens), "ops": grant.ops});
        if let Some(kind) = grant.value {
            write["value"] = json!({ "type": kind });
        }
        write
    });
    let worker = json!({
        "agent": "llm",
        "reads": reads.iter().map(|tokens| pointer(tokens)).collect::<Vec<_>>(),
        "writes": writes.collect::<Vec<_>>(),
    });
    let worker: Worker = serde_json::from_value(worker).expect("a worker");
    Contract::compile(&worker, &json!(true), &ExpressionCompiler::new(PathSyntax::Plain)).expect("a contract")
}

/// Generates a document, with a contract and an operation on places that exist or could exist.
fn situations() -> impl Strategy<Value = (Value, (Vec<Place>, Vec<Grant>), Value)> {
    documents().prop_flat_map(|document| {
        let mut places = vec![Vec::new()];
        possible(&document, &mut Vec::new(), &mut places);
        let place = prop::sample::select(places);
        let contract = contracts(place.clone());
        (Just(document.clone()), contract, operations(document, place))
    })
}

fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(1)), Just(json!(2)), Just(json!("x")), Just(json!("y"))];
    let value = leaf.prop_recursive(2, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            members(inner, 0..3).prop_map(Value::Object),
        ]
    });
    members(value, 1..4).prop_map(Value::Object)
}

fn members(
    value: impl Strategy<Value = Value>,
    count: std::ops::Range<usize>,
) -> impl Strategy<Value = serde_json::Map<String, Value>> {
    let name = prop::sample::select(vec!["a", "b", "0", "-"]).prop_map(str::to_owned);
    prop::collection::btree_map(name, value, count).prop_map(|members| members.into_iter().collect())
}

/// Collects every place below `place`, including those that could be added.
fn possible(value: &Value, place: &mut Place, found: &mut Vec<Place>) {
    let children: Vec<String> = match value {
        Value::Object(_) => ["a", "b", "0", "-"].map(str::to_owned).into(),
        Value::Array(items) => (0..=items.len()).map(|index| index.to_string()).chain(["-".to_owned()]).collect(),
        _ => return,
    };
    for token in children {
        place.push(token);
        found.push(place.clone());
        if let Some(child) = at(value, &place[place.len() - 1..]) {
            possible(child, place, found);
        }
        place.pop();
    }
}

fn contracts(place: impl Strategy<Value = Place> + Clone) -> impl Strategy<Value = (Vec<Place>, Vec<Grant>)> {
    let pattern = (place, prop::collection::vec(0..8, 8)).prop_map(|(place, changes)| {
        let last = place.len().saturating_sub(1);
        let token = |(at, (token, change)): (usize, (String, i32))| match change {
            0 | 1 => "*".to_owned(),
            2 => "**".to_owned(),
            // The append position is only valid at the end of a pattern.
            _ if token == "-" && at < last => "*".to_owned(),
            _ => token,
        };
        place.into_iter().zip(changes).enumerate().map(token).collect::<Vec<_>>()
    });
    let ops = prop_oneof![Just(GrantOp::ALL.to_vec()), prop::sample::subsequence(GrantOp::ALL.to_vec(), 1..=6)];
    let value = prop::sample::select(vec![None, None, None, Some("integer"), Some("string")]);
    let grant = (pattern.clone(), ops, value).prop_map(|(tokens, ops, value)| Grant { tokens, ops, value });
    (prop::collection::vec(pattern, 0..4), prop::collection::vec(grant, 1..6))
}

fn operations(document: Value, place: impl Strategy<Value = Place> + Clone) -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec!["add", "replace", "remove", "move", "copy", "test"]);
    let value = prop_oneof![Just(json!(1)), Just(json!("x")), Just(json!([1])), Just(json!({"a": 1}))];
    (kind, place.clone(), place, value).prop_map(move |(kind, path, from, value)| {
        // A test of another value would not be applied, and prove nothing.
        let value = at(&document, &path).filter(|_| kind == "test").cloned().unwrap_or(value);
        let (path, from) = (pointer(&path), pointer(&from));
        match kind {
            "remove" => json!({"op": kind, "path": path}),
            "move" | "copy" => json!({"op": kind, "path": path, "from": from}),
            _ => json!({"op": kind, "path": path, "value": value}),
        }
    })
}
