//! A grant never lets a write outside it through.
//!
//! Random contracts judge random operations on random documents. Whatever is let through is applied, and the document
//! before is compared with the one after: every difference must lie at or below a place that some grant allows for that
//! kind of difference. Matching, comparing and value checks are written here a second time, as plainly as possible, so
//! that a mistake in the kernel is not repeated by its judge.

use std::cell::Cell;

use patchboard_kernel::blueprint::{GrantOp, PatchLimits, Worker};
use patchboard_kernel::contract::Contract;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::patch::{self, Op};
use patchboard_kernel::schema::Schema;
use patchboard_kernel::state::{ResultLimits, State};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

/// Enough for every operation on the small documents here.
const LIMITS: ResultLimits = ResultLimits { bytes: 1 << 20, depth: 64 };

#[derive(Clone, Debug)]
struct Grant {
    tokens: Vec<String>,
    ops: Vec<GrantOp>,
    /// Name of the only JSON type it allows, if it does not allow all.
    value: Option<&'static str>,
}

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
    // An oracle that is never asked proves nothing.
    assert!(let_through.get().iter().all(|&count| count >= 25), "{:?}", let_through.get());
}

#[test]
fn a_grant_of_everything_refuses_only_the_whole_document() {
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

/// The one operation of a patch.
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
    Contract::compile(&worker, &json!(true)).expect("a contract")
}

/// A document, and a contract and an operation that speak of places it has or could have.
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

/// Every place below `place`, and every place where something could be added.
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
            // Before the end of a pattern there is no append position.
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
        // A test of something else would not be applied, and prove nothing.
        let value = at(&document, &path).filter(|_| kind == "test").cloned().unwrap_or(value);
        let (path, from) = (pointer(&path), pointer(&from));
        match kind {
            "remove" => json!({"op": kind, "path": path}),
            "move" | "copy" => json!({"op": kind, "path": path, "from": from}),
            _ => json!({"op": kind, "path": path, "value": value}),
        }
    })
}

fn pointer(tokens: &[impl AsRef<str>]) -> String {
    tokens.iter().map(|token| format!("/{}", token.as_ref())).collect()
}

/// Places are lists of tokens.
type Place = Vec<String>;

struct Oracle<'a> {
    reads: &'a [Vec<String>],
    grants: &'a [Grant],
}

impl Oracle<'_> {
    /// What was let through and should not have been.
    fn complaint(&self, before: &Value, after: &Value, operation: &Value) -> Option<String> {
        let place = |member: &str| {
            operation[member].as_str().expect("a pointer").split('/').skip(1).map(str::to_owned).collect::<Place>()
        };
        match operation["op"].as_str().expect("a name") {
            "test" => (!self.reads(&place("path")) || before != after).then(|| "a test of what is not read".to_owned()),
            "copy" if !self.reads(&place("from")) => Some("a copy of what is not read".to_owned()),
            "copy" => self.unexplained(before, after, Some(GrantOp::Copy)),
            "move" => {
                // First without what was moved away, then with it where it went.
                let from = place("from");
                let mut between = before.clone();
                take(&mut between, &from);
                self.unexplained(before, &between, None)
                    .or_else(|| self.unexplained(&between, after, Some(GrantOp::Move)))
                    // Moved onto itself, nothing differs, but both grants are still needed.
                    .filter(|_| before != after)
            }
            _ => self.unexplained(before, after, None),
        }
    }

    /// The first difference that no grant explains; `with` is an operation that every arrival needs besides.
    fn unexplained(&self, before: &Value, after: &Value, with: Option<GrantOp>) -> Option<String> {
        let mut differences = Vec::new();
        differ(before, after, &mut Vec::new(), &mut differences);
        differences
            .into_iter()
            .find(|difference| !self.explains(difference, before, after, with))
            .map(|d| format!("{d:?}"))
    }

    fn explains(&self, difference: &Difference, before: &Value, after: &Value, with: Option<GrantOp>) -> bool {
        let arrives = |op: GrantOp, place: &Place, names: &[&Place]| {
            self.grants.iter().any(|grant| {
                let named = grant.ops.contains(&op) && with.is_none_or(|with| grant.ops.contains(&with));
                let fits = grant.value.is_none_or(|kind| at(after, place).is_some_and(|value| is(kind, value)));
                named && fits && names.iter().any(|name| grant.denotes(name, before))
            })
        };
        let (Difference::Added(place)
        | Difference::Changed(place)
        | Difference::Removed(place)
        | Difference::Resized(place)) = difference;
        // Something around it was replaced.
        let replaced = (1..=place.len()).any(|end| {
            let outer = place[..end].to_vec();
            at(before, &outer).is_some() && arrives(GrantOp::Replace, &outer, &[&outer])
        });
        replaced
            || match difference {
                Difference::Changed(_) => false,
                Difference::Added(place) => arrives(GrantOp::Add, place, &[place]),
                Difference::Removed(place) => self.removes(place, before),
                Difference::Resized(array) => {
                    let (old, new) = (items(before, array), items(after, array));
                    let element = |index: usize| [array.as_slice(), &[index.to_string()]].concat();
                    if new.len() == old.len() + 1 {
                        (0..new.len()).any(|index| {
                            if [&new[..index], &new[index + 1..]].concat() != *old {
                                return false;
                            }
                            let place = element(index);
                            if index == old.len() {
                                let end = [array.as_slice(), &["-".to_owned()]].concat();
                                arrives(GrantOp::Add, &place, &[&place, &end])
                            } else {
                                arrives(GrantOp::Insert, &place, &[&place])
                            }
                        })
                    } else if new.len() + 1 == old.len() {
                        (0..old.len()).any(|index| {
                            [&old[..index], &old[index + 1..]].concat() == *new && self.removes(&element(index), before)
                        })
                    } else {
                        false
                    }
                }
            }
    }

    fn removes(&self, place: &Place, before: &Value) -> bool {
        self.grants.iter().any(|grant| grant.ops.contains(&GrantOp::Remove) && grant.denotes(place, before))
    }

    fn reads(&self, place: &Place) -> bool {
        self.reads.iter().any(|tokens| (0..=place.len()).any(|end| matches(tokens, &place[..end])))
    }
}

impl Grant {
    /// Whether a place is one that the grant speaks of; `-` speaks of the end of an array.
    fn denotes(&self, place: &Place, before: &Value) -> bool {
        let wants_end = self.tokens.last().is_some_and(|last| last == "-");
        let container = place.split_last().and_then(|(_, container)| at(before, container));
        matches(&self.tokens, place) && !place.is_empty() && (!wants_end || container.is_some_and(Value::is_array))
    }
}

fn matches(tokens: &[String], place: &[String]) -> bool {
    let Some((token, rest)) = tokens.split_first() else { return place.is_empty() };
    if token == "**" {
        return (0..=place.len()).any(|taken| matches(rest, &place[taken..]));
    }
    place.split_first().is_some_and(|(name, below)| (token == "*" || token == name) && matches(rest, below))
}

#[derive(Debug)]
enum Difference {
    Added(Place),
    Removed(Place),
    Changed(Place),
    /// An array that has more or fewer elements.
    Resized(Place),
}

fn differ(before: &Value, after: &Value, place: &mut Place, found: &mut Vec<Difference>) {
    match (before, after) {
        _ if before == after => {}
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old {
                place.push(name.clone());
                match new.get(name) {
                    Some(other) => differ(value, other, place, found),
                    None => found.push(Difference::Removed(place.clone())),
                }
                place.pop();
            }
            for name in new.keys().filter(|name| !old.contains_key(*name)) {
                found.push(Difference::Added([place.as_slice(), std::slice::from_ref(name)].concat()));
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (value, other)) in old.iter().zip(new).enumerate() {
                place.push(index.to_string());
                differ(value, other, place, found);
                place.pop();
            }
        }
        (Value::Array(_), Value::Array(_)) => found.push(Difference::Resized(place.clone())),
        _ => found.push(Difference::Changed(place.clone())),
    }
}

fn at<'v>(document: &'v Value, place: &[String]) -> Option<&'v Value> {
    place.iter().try_fold(document, |value, token| match value {
        Value::Object(members) => members.get(token),
        Value::Array(items) => items.get(token.parse::<usize>().ok()?),
        _ => None,
    })
}

fn items<'v>(document: &'v Value, place: &[String]) -> &'v Vec<Value> {
    at(document, place).and_then(Value::as_array).expect("an array that was compared")
}

fn take(document: &mut Value, place: &[String]) {
    let Some((last, container)) = place.split_last() else { return };
    let container = container.iter().try_fold(document, |value, token| match value {
        Value::Object(members) => members.get_mut(token),
        Value::Array(items) => items.get_mut(token.parse::<usize>().ok()?),
        _ => None,
    });
    match container {
        Some(Value::Object(members)) => drop(members.remove(last)),
        Some(Value::Array(items)) => drop(items.remove(last.parse().expect("an index"))),
        _ => {}
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "integer" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        other => panic!("no grant here has the type {other}"),
    }
}
