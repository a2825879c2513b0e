//! Properties of all forms. A form accepts what is granted and nothing else, is short and deterministic, and reveals
//! nothing unreadable.

use std::cell::Cell;

use jsonptr::Pointer;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::strategy::Union;
use proptest::test_runner::TestRunner;

use super::*;
use crate::ablation::Interface;
use crate::freshness::{CommitLookup, ProposalContext, Reservations};
use crate::id::{Seq, Version, WorkerName};
use crate::patch::{self, Op};
use crate::pattern::Pattern;
use crate::pipeline::{self, ReplyBody, Verdict};
use crate::rejection::{Code, Stage};
use crate::schema::Schema;

struct NoCommits;

impl CommitLookup for NoCommits {
    fn commit_of(&self, _: Version) -> Option<(Seq, WorkerName)> {
        None
    }
}

/// Returns a schema with all kinds of containers.
fn schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "items": {"type": "array", "maxItems": 9, "items": {"$ref": "#/$defs/item"}},
            "notes": {"type": "object", "additionalProperties": {"type": "string"}},
            "config": {
                "type": "object",
                "additionalProperties": false,
                "properties": {"mode": {"enum": ["a", "b"]}, "level": {"type": "integer", "minimum": 0, "maximum": 3}},
            },
            "log": {"type": "array", "items": {"type": "string"}},
            "pairs": {"type": "object", "patternProperties": {"^[a-c]$": {"type": "integer"}}, "additionalProperties": false},
            "a/b": {"type": ["string", "null"]},
        },
        "$defs": {"item": {
            "type": "object",
            "required": ["title"],
            "additionalProperties": false,
            "properties": {
                "title": {"type": "string", "minLength": 1},
                "status": {"enum": ["draft", "done"]},
                "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}},
                "next": {"oneOf": [{"type": "null"}, {"type": "integer"}]},
            },
        }},
    })
}

/// Generates objects with a subset of these members.
fn some(members: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let count = members.len();
    let every: Vec<_> = members.into_iter().map(|(name, value)| value.prop_map(move |value| (name, value))).collect();
    (every, subsequence((0..count).collect::<Vec<_>>(), 0..=count))
        .prop_map(|(every, kept)| {
            kept.into_iter().map(|at| (every[at].0.to_owned(), every[at].1.clone())).collect::<Map<_, _>>()
        })
        .prop_map(Value::Object)
        .boxed()
}

fn of(values: &[Value]) -> BoxedStrategy<Value> {
    select(values.to_vec()).boxed()
}

fn list(items: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    prop::collection::vec(items, 0..4).prop_map(Value::from).boxed()
}

/// Generates documents that satisfy the schema.
fn documents() -> BoxedStrategy<Value> {
    let text = of(&[json!("x"), json!("yy"), json!("draft"), json!("")]);
    let item = some(vec![
        ("status", of(&[json!("draft"), json!("done")])),
        ("tags", list(of(&[json!("x"), json!("abc")]))),
        ("next", of(&[json!(null), json!(2)])),
    ]);
    let item = item.prop_map(|mut item| {
        item["title"] = json!("t");
        item
    });
    some(vec![
        ("items", list(item.boxed())),
        ("notes", some(vec![("a", text.clone()), ("b~c", text.clone()), ("0", text.clone())])),
        ("config", some(vec![("mode", of(&[json!("a")])), ("level", of(&[json!(0), json!(3)]))])),
        ("log", list(text)),
        ("pairs", some(vec![("a", of(&[json!(1)])), ("b", of(&[json!(2)]))])),
        ("a/b", of(&[json!(null), json!("x")])),
    ])
}

const READS: [&str; 14] = [
    "",
    "/items",
    "/items/*",
    "/items/*/title",
    "/items/*/tags/*",
    "/items/0",
    "/notes",
    "/notes/*",
    "/notes/a",
    "/config",
    "/log/*",
    "/pairs",
    "/a~1b",
    "/**/status",
];
const WRITES: [&str; 22] = [
    "/items/-",
    "/items/*",
    "/items/*/title",
    "/items/*/status",
    "/items/*/tags",
    "/items/*/tags/-",
    "/items/*/tags/*",
    "/items/*/*",
    "/items/1",
    "/notes/*",
    "/notes/a",
    "/notes",
    "/config",
    "/config/mode",
    "/config/*",
    "/log/-",
    "/log/*",
    "/log/1",
    "/pairs/*",
    "/a~1b",
    "/**/status",
    "/items/**",
];

fn values() -> BoxedStrategy<Value> {
    of(&[
        json!("x"),
        json!("draft"),
        json!(""),
        json!("long text"),
        json!(1),
        json!(7),
        json!(null),
        json!([]),
        json!(["x"]),
        json!({}),
        json!({"title": "t"}),
        json!({"title": "t", "status": "done"}),
        json!({"mode": "a"}),
        json!({"a": "x"}),
        json!("b"),
    ])
}

fn workers() -> impl Strategy<Value = Value> {
    let value = of(&[
        json!(null),
        json!(null),
        json!(null),
        json!({"type": "string"}),
        json!({"maxLength": 3}),
        json!({"type": "integer"}),
        json!({"enum": ["draft", "b", "x"]}),
        json!({"properties": {"status": {"const": "draft"}}, "required": ["status"]}),
        json!({"$ref": "#/$defs/item"}),
    ]);
    let ops = prop_oneof![Just(GrantOp::ALL.to_vec()), subsequence(GrantOp::ALL.to_vec(), 1..=6)];
    let grant = (select(WRITES.to_vec()), ops, value).prop_map(|(path, ops, value)| {
        let mut grant = json!({"path": path, "ops": ops});
        if !value.is_null() {
            grant["value"] = value;
        }
        grant
    });
    // Mostly the whole document, because forms are less specific for partial reads.
    let reads = prop_oneof![Just(vec![""]), subsequence(READS.to_vec(), 0..4)];
    let freshness = select(vec!["none", "target", "reads", "members"]);
    (reads, prop::collection::vec(grant, 1..4), freshness).prop_map(
        |(reads, writes, freshness)| json!({"agent": "llm", "reads": reads, "writes": writes, "freshness": freshness}),
    )
}

fn scenes() -> impl Strategy<Value = (Value, Value, u32)> {
    (documents(), workers(), select(vec![20_000, 20_000, 900, 600]))
}

fn run<S: Strategy>(cases: u32, situations: &S, law: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..Default::default() });
    runner.run(situations, law).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Judges a reply to the shown view with the pipeline.
fn judged(scene: &Scene, reply: Value) -> Verdict {
    let basis = scene.shown.basis();
    let context = ProposalContext {
        expansions_left: 0,
        base: basis.state.version(),
        basis: Some(basis),
        invocation: None,
        reservations: &Reservations::default(),
        commits: &NoCommits,
    };
    let by = pipeline::Proposer { worker: &"w".into(), worker_plan: Some(scene.shown.worker_plan()) };
    pipeline::judge(scene.shown.plan(), &basis.state, by, &ReplyBody::Json(reply), Interface::Patch, &context)
}

/// Generates values that roughly satisfy a form's schema; invalid ones are filtered out later.
fn samples(schema: &Value) -> BoxedStrategy<Value> {
    let list = |keyword: &str| schema.get(keyword).and_then(Value::as_array);
    if let Some(values) = list("enum") {
        return of(values);
    }
    if let Some(branches) = list("anyOf") {
        return Union::new(branches.iter().map(samples)).boxed();
    }
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        // Short names of few letters suffice, and sometimes existing ones.
        let plain = pattern
            .trim_start_matches('^')
            .trim_end_matches('$')
            .replace(expression::NAME, "(a|b~0c|zz|mode|title|0|1)");
        let plain = plain.replace("[1-9][0-9]*", "[1-3]").replace(")*", "){0,2}");
        return proptest::string::string_regex(&plain).expect("a regular expression").prop_map(Value::from).boxed();
    }
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        kind => vec![kind.clone()],
    };
    Union::new(kinds.into_iter().map(|kind| match kind.as_str() {
        Some("object") => {
            let properties = schema["properties"].as_object().cloned().unwrap_or_default();
            let required: Vec<String> =
                list("required").into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect();
            let members: Vec<_> = properties
                .iter()
                .map(|(name, schema)| {
                    let is_kept = if required.contains(name) { Just(true).boxed() } else { any::<bool>().boxed() };
                    (Just(name.clone()), samples(schema), is_kept)
                })
                .collect();
            members
                .prop_map(|members| {
                    let kept = members.into_iter().filter(|(_, _, is_kept)| *is_kept);
                    Value::Object(kept.map(|(name, value, _)| (name, value)).collect())
                })
                .boxed()
        }
        Some("array") => {
            let items = schema.get("items").map_or_else(|| Just(json!(1)).boxed(), samples);
            let most = schema["maxItems"].as_u64().map_or(3, |most| most.min(3));
            prop::collection::vec(items, 0..=usize::try_from(most).expect("few")).prop_map(Value::from).boxed()
        }
        Some("integer" | "number") => of(&[json!(0), json!(1), json!(3)]),
        Some("boolean") => of(&[json!(true)]),
        Some("null") => of(&[json!(null)]),
        _ => of(&[json!("x"), json!("abc"), json!("long text"), json!("")]),
    }))
    .boxed()
}

/// Returns true if the worker can know the place and its surroundings, and the form lists it.
fn is_known(scene: &Scene, form: &ReplySchema, member: &str, place: &str) -> bool {
    let contract = &scene.shown.worker_plan().contract;
    if contract.readable(scene.shown.basis().state.root()).may_read(Pointer::root()) {
        return true;
    }
    let lists = |branch: &Value| {
        let listed = branch["properties"][member]["enum"].as_array();
        listed.is_some_and(|listed| listed.iter().any(|listed| *listed == place))
    };
    let items = &form.schema["properties"]["patch"]["items"];
    let branches = items["anyOf"].as_array().cloned().unwrap_or_else(|| vec![items.clone()]);
    let above = Pointer::parse(place).ok().and_then(Pointer::parent);
    let was_shown = |above: &Pointer| scene.shown.basis().reads.iter().any(|read| above.starts_with(read));
    above.is_some_and(was_shown) && branches.iter().any(lists)
}

#[test]
fn operations_admitted_by_a_reply_schema_are_granted_and_applicable() {
    let applied = Cell::new([0; 6]);
    let situations = scenes().prop_flat_map(|(document, worker, budget)| {
        let form = Scene::new(&schema(), &document, &worker, budget).form();
        let replies = samples(&form.schema["properties"]["patch"]["items"]);
        (Just((document, worker, budget)), Just(form), prop::collection::vec(replies, 12))
    });
    let law = |((document, worker, budget), form, operations): ((Value, Value, u32), ReplySchema, Vec<Value>)| {
        let scene = Scene::new(&schema(), &document, &worker, budget);
        let validator = Schema::compile(&form.schema, false).expect("a form is a schema");
        for operation in operations {
            let reply = json!({"patch": [operation]});
            if !form.is_whole || !validator.is_valid(&reply) {
                continue;
            }
            let op = operation["op"].as_str().expect("an operation");
            // A chosen name may exist already, and unreadable places may hold any value.
            let is_known = ["path", "from"]
                .into_iter()
                .all(|member| operation[member].as_str().is_none_or(|place| is_known(&scene, &form, member, place)));
            match judged(&scene, reply) {
                Verdict::Accepted(_) => {
                    let mut counts = applied.get();
                    let kinds = ["add", "replace", "remove", "move", "copy", "test"];
                    counts[kinds.iter().position(|kind| *kind == op).expect("one of the six")] += 1;
                    applied.set(counts);
                }
                Verdict::NoOp(_) => {}
                Verdict::Rejected { rejection, .. } => {
                    let case = format!("{operation} of {}\n{}\n{rejection:?}", document, form.schema);
                    let path = operation["path"].as_str().expect("a place");
                    let taken = Pointer::parse(path).is_ok_and(|path| scene.shown.basis().state.get(path).is_some());
                    prop_assert!(rejection.stage != Stage::Syntax, "{case}");
                    for violation in &rejection.violations {
                        match violation.code {
                            Code::PathNotGranted if is_known => prop_assert!(false, "{case}"),
                            // A value added at an existing name replaces it, and another grant may apply to that.
                            Code::ValueNotGranted if is_known && (!taken || op == "replace") => {
                                prop_assert!(false, "{case}");
                            }
                            Code::OpNotGranted if is_known && !taken => prop_assert!(false, "{case}"),
                            // A chosen name may exist already without having been shown.
                            Code::UnseenTarget if is_known && !(op == "add" && taken) => prop_assert!(false, "{case}"),
                            Code::UnknownLocation | Code::PathNotFound | Code::IndexOutOfRange if is_known => {
                                prop_assert!(false, "{case}");
                            }
                            _ => {}
                        }
                    }
                }
            }
        }
        Ok(())
    };
    // `test` changes nothing, so it never results in more than a no-op. Moves are rare: some hundred cases have few.
    let is_covered = || applied.get()[..5].iter().all(|&count| count >= 3);
    for _ in 0..20 {
        run(100, &situations, law);
        if is_covered() {
            break;
        }
    }
    assert!(is_covered(), "{:?}", applied.get());
}

/// Returns places of a document, and some that do not exist.
fn places(document: &Value) -> Vec<String> {
    fn below(value: &Value, place: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    let place = format!("{place}/{}", jsonptr::Token::new(name.as_str()).encoded());
                    found.push(place.clone());
                    below(member, &place, found);
                }
                found.extend(["a", "mode", "status", "new", "tags", "c"].map(|name| format!("{place}/{name}")));
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    found.push(format!("{place}/{index}"));
                    below(item, &format!("{place}/{index}"), found);
                }
                found.extend([format!("{place}/-"), format!("{place}/{}", items.len())]);
            }
            _ => {}
        }
    }
    let mut found = vec!["/notes".to_owned(), "/config".to_owned(), "/a~1b".to_owned()];
    below(document, "", &mut found);
    found
}

/// Rewrites an operation into the only spelling that forms use.
fn in_one_form(scene: &Scene, mut operation: Value) -> Option<Value> {
    let given = json!([operation.clone()]);
    let ops = patch::parse(&given, &Default::default()).ok()?;
    let candidate = scene.shown.basis().state.candidate();
    let effect = candidate.effect(ops.first()?);
    operation["path"] = effect.granted_at.as_str().into();
    if matches!(ops[0], Op::Add { .. }) && effect.kind == Some(GrantOp::Replace) {
        operation["op"] = "replace".into();
    }
    Some(operation)
}

#[test]
fn every_accepted_operation_can_be_expressed_in_the_reply_schema() {
    let accepted = Cell::new(0);
    let situations = scenes().prop_flat_map(|(document, worker, budget)| {
        let places = places(&document);
        let grants = worker["writes"].as_array().expect("a list").iter();
        let patterns: Vec<_> =
            grants.map(|grant| Pattern::parse(grant["path"].as_str().expect("a text")).expect("a pattern")).collect();
        let is_granted = |place: &&String| {
            let place = PointerBuf::parse(place.as_str()).expect("a pointer");
            patterns.iter().any(|pattern| pattern.matches(&place))
        };
        // An operation without a grant is never accepted.
        let mut granted: Vec<String> = places.iter().filter(is_granted).cloned().collect();
        granted.push("/items/-".to_owned());
        let kind = select(vec!["add", "replace", "remove", "move", "copy"]);
        let operation =
            (kind, select(granted), select(places), values()).prop_map(|(kind, path, from, value)| match kind {
                "remove" => json!({"op": kind, "path": path}),
                "move" | "copy" => json!({"op": kind, "path": path, "from": from}),
                _ => json!({"op": kind, "path": path, "value": value}),
            });
        (Just((document, worker, budget)), prop::collection::vec(operation, 60))
    });
    run(150, &situations, |((document, worker, budget), operations)| {
        let scene = Scene::new(&schema(), &document, &worker, budget);
        let form = scene.form();
        let validator = Schema::compile(&form.schema, false).expect("a form is a schema");
        for operation in operations {
            let Verdict::Accepted(_) = judged(&scene, json!({"patch": [operation]})) else { continue };
            let from = operation["from"].as_str().map(|from| Pointer::parse(from).expect("a pointer"));
            let path = Pointer::parse(operation["path"].as_str().expect("a place")).expect("a pointer");
            let is_shown = |place: &Pointer| scene.shown.basis().reads.iter().any(|read| place.starts_with(read));
            let skipped = match operation["op"].as_str() {
                // Places that were not shown are not listed.
                Some("copy") => !from.is_some_and(is_shown),
                // The path changes its meaning after the value was removed.
                Some("move") => from.and_then(Pointer::parent).is_some_and(|above| path.starts_with(above)),
                _ => false,
            };
            if skipped {
                continue;
            }
            accepted.set(accepted.get() + 1);
            let asked = in_one_form(&scene, operation.clone()).expect("it was accepted");
            prop_assert!(
                // A grant may name the index of the append position.
                [&asked, &operation].into_iter().any(|op| validator.is_valid(&json!({"patch": [op]}))),
                "{operation} as {asked} of {document} for {worker} under {}",
                form.schema
            );
        }
        Ok(())
    });
    assert!(accepted.get() > 150, "{}", accepted.get());
}

#[test]
fn forms_are_short_and_the_same_for_the_same_inputs() {
    run(100, &scenes(), |(document, worker, budget)| {
        let [one, other] = [0, 1].map(|_| Scene::new(&schema(), &document, &worker, budget).form().schema.to_string());
        prop_assert!(one.chars().count() <= CHARS_MAX);
        prop_assert_eq!(one, other);
        Ok(())
    });
}

#[test]
fn reply_schemas_are_independent_of_unreadable_values() {
    let changed = Cell::new(0);
    let situations = scenes().prop_flat_map(|(document, worker, budget)| {
        let place = select(places(&document));
        (Just((document, worker, budget)), prop::collection::vec((place, prop::option::of(values())), 20))
    });
    run(150, &situations, |((document, worker, budget), changes)| {
        let scene = Scene::new(&schema(), &document, &worker, budget);
        let form = scene.form();
        for (place, value) in changes {
            let pointer = PointerBuf::parse(&*place).expect("a pointer");
            let readable = scene.shown.worker_plan().contract.readable(scene.shown.basis().state.root());
            if readable.may_ask_for(&pointer) {
                continue;
            }
            let mut other = document.clone();
            let Some(there) = other.pointer_mut(&place) else { continue };
            match value {
                Some(value) => *there = value,
                None => {
                    let (above, name) = place.rsplit_once('/').expect("a place below the root");
                    let name = name.replace("~1", "/").replace("~0", "~");
                    if let Some(Value::Object(members)) = other.pointer_mut(above) {
                        members.remove(&name);
                    }
                }
            }
            let other = Scene::new(&schema(), &other, &worker, budget);
            if scene.view != other.view {
                continue;
            }
            changed.set(changed.get() + 1);
            prop_assert_eq!(&form, &other.form(), "{} and another {} for {}", document, place, worker);
        }
        Ok(())
    });
    assert!(changed.get() > 80, "{}", changed.get());
}
