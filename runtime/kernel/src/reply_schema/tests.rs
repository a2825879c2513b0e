//! Examples of reply forms; `laws` holds the properties of all forms.

use std::sync::Arc;

use jsonptr::PointerBuf;
use serde_json::{Value, json};

use super::*;
use crate::ablation::Mode;
use crate::digest::{Hasher, Salt};
use crate::freshness::{CommitLookup, ReadSet};
use crate::id::{Seq, Version, WorkerName};
use crate::plan::{PATCHES_ONLY, PlanSource as _};
use crate::state::State;
use crate::view;

mod laws;

/// Finds no commit for any version.
struct NoCommits;

impl CommitLookup for NoCommits {
    fn commit_of(&self, _: Version) -> Option<(Seq, WorkerName)> {
        None
    }
}

/// Worker, document and a view of it.
pub(super) struct Scene {
    pub(super) shown: CallContext,
    pub(super) view: view::View,
}

impl Scene {
    fn new(schema: &Value, state: &Value, worker: &Value, budget: u32) -> Self {
        Self::held(schema, state, worker, &json!([]), budget)
    }

    /// Builds a scene with invariants.
    fn held(schema: &Value, state: &Value, worker: &Value, invariants: &Value, budget: u32) -> Self {
        let blueprint = json!({"blueprint": 1, "name": "b", "state": {"schema": schema}, "workers": {"w": worker},
            "invariants": invariants});
        let plan = PATCHES_ONLY
            .plan(serde_json::from_value(blueprint).expect("a blueprint"), &Mode::default())
            .expect("a plan");
        let state = State::new(state, &Hasher::new(&Salt::ZERO));
        let seat = &plan.workers["w"];
        let view = view::compile(&view::Inputs {
            worker: &seat.worker,
            readable: &seat.contract.readable(state.root()),
            fixed: &seat.fixed,
            state: &state,
            trigger: &json!({"kind": "start", "rule": "begin"}),
            feedback: &[],
            expand: &[],
            newest: 0,
            may_expand: true,
            compiler: crate::view::COMPILER,
            commits: &NoCommits,
            budget,
        });
        let pointers =
            |texts: &[String]| texts.iter().map(|text| PointerBuf::parse(text).expect("a pointer")).collect();
        let basis = ReadSet { state, reads: pointers(&view.reads), members: pointers(&view.members) };
        let shown = CallContext::new(plan, "w".into(), Arc::new(basis), view.may_expand).expect("the worker is there");
        Self { shown, view }
    }

    fn form(&self) -> ReplySchema {
        ReplySchema::for_call(&self.shown).expect("a form")
    }
}

fn schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "question": {"type": "string"},
            "sources": {"type": "array", "items": {"$ref": "#/$defs/source"}},
            "claims": {"type": "array", "items": {
                "type": "object",
                "required": ["text", "status"],
                "additionalProperties": false,
                "properties": {
                    "text": {"type": "string", "description": "One sentence."},
                    "status": {"enum": ["draft", "verified", "refused"]},
                    "note": {"type": "string"},
                },
            }},
            "names": {"type": "object", "additionalProperties": {"type": "integer"}},
            "answer": {"type": "string"},
        },
        "$defs": {"source": {
            "type": "object",
            "required": ["title", "sentences"],
            "properties": {"title": {"type": "string"}, "sentences": {"type": "array", "items": {"type": "string"}}},
        }},
    })
}

fn state() -> Value {
    json!({
        "question": "Why?",
        "sources": [{"title": "A", "sentences": ["one", "two"]}, {"title": "B", "sentences": ["three"]}],
        "claims": [{"text": "one", "status": "draft"}, {"text": "two", "status": "verified", "note": "so"}],
        "names": {"a/b": 1, "c": 2},
    })
}

/// Returns the form of a worker with these reads and writes.
fn form(reads: Value, writes: Value) -> Value {
    let worker = json!({"agent": "llm", "reads": reads, "writes": writes});
    Scene::new(&schema(), &state(), &worker, 4000).form().schema
}

/// Lists the operations of a form: name, path, and `from` or value of each branch.
fn branches(form: &Value) -> Vec<Value> {
    let items = &form["properties"]["patch"]["items"];
    let branches = items["anyOf"].as_array().cloned().unwrap_or_else(|| vec![items.clone()]);
    let place = |schema: &Value| schema.get("enum").or(schema.get("pattern")).cloned().unwrap_or_default();
    let short = |branch: &Value| {
        let properties = &branch["properties"];
        let mut short = json!([properties["op"]["enum"][0], place(&properties["path"])]);
        let more = properties.get("from").map(place).or(properties.get("value").cloned());
        short.as_array_mut().expect("a list").extend(more);
        short
    };
    branches.iter().map(short).collect()
}

#[test]
fn a_form_is_an_object_with_a_patch_of_what_the_grants_allow() {
    let form = form(
        json!(["/question", "/claims"]),
        json!([
            {"path": "/claims/-", "ops": ["add"], "value": {"properties": {"status": {"const": "draft"}}}},
            {"path": "/claims/*/status", "ops": ["replace"]},
        ]),
    );
    let claim = json!({
        "type": "object",
        "required": ["text", "status"],
        "additionalProperties": false,
        "properties": {
            "text": {"type": "string", "description": "One sentence."},
            "status": {"enum": ["draft"]},
            "note": {"type": "string"},
        },
    });
    let operation = |op: &str, paths: Value, value: Value| {
        json!({
            "type": "object",
            "required": ["op", "path", "value"],
            "additionalProperties": false,
            "properties": {
                "op": {"type": "string", "enum": [op]},
                "path": {"type": "string", "enum": paths},
                "value": value,
            },
        })
    };
    let status = json!({"enum": ["draft", "verified", "refused"]});
    assert_eq!(
        form,
        json!({
            "type": "object",
            "required": ["patch"],
            "additionalProperties": false,
            "properties": {"patch": {
                "type": "array",
                "maxItems": 8,
                "items": {"anyOf": [
                    operation("add", json!(["/claims/-"]), claim),
                    operation("replace", json!(["/claims/0/status", "/claims/1/status"]), status),
                ]},
            }},
        })
    );
}

#[test]
fn only_what_can_be_written_now_is_offered() {
    for (writes, expected) in [
        (json!([{"path": "/answer"}]), json!([["add", ["/answer"], {"type": "string"}]])),
        (json!([{"path": "/question"}]), json!([["replace", ["/question"], {"type": "string"}]])),
        (json!([{"path": "/claims/*/note", "ops": ["add"]}]), json!([["add", ["/claims/0/note"], {"type": "string"}]])),
        (json!([{"path": "/claims/*/note", "ops": ["remove"]}]), json!([["remove", ["/claims/1/note"]]])),
        (
            json!([{"path": "/names/*"}]),
            json!([
                ["add", r#"^/names/([^/~"\\\x00-\x1F]|~[01])+$"#, {"type": "integer"}],
                ["replace", ["/names/a~1b", "/names/c"], {"type": "integer"}],
            ]),
        ),
        (
            json!([{"path": "/sources/*/sentences/*", "ops": ["add", "insert"]}]),
            json!([
                ["add", ["/sources/0/sentences/-", "/sources/1/sentences/-"], {"type": "string"}],
                ["add", ["/sources/0/sentences/0", "/sources/0/sentences/1", "/sources/1/sentences/0"], {"type": "string"}],
            ]),
        ),
        // The names come from the schema.
        (
            json!([{"path": "/claims/*/*", "ops": ["add"], "value": {"maxLength": 9, "type": "string"}}]),
            json!([["add", ["/claims/0/note"], {"anyOf": [
                {"type": "string", "maxLength": 9},
                {"type": "string", "maxLength": 9, "enum": ["draft", "verified", "refused"]},
                {"type": "string", "maxLength": 9, "description": "One sentence."},
            ]}]]),
        ),
    ] {
        let offered = branches(&form(json!([""]), writes.clone()));
        assert_eq!(Value::from(offered), expected, "{writes}");
    }
}

#[test]
fn a_worker_that_can_write_nothing_has_an_empty_patch_left() {
    for writes in [
        json!([]),
        json!([{"path": "/claims/5/status", "ops": ["replace"]}]),
        json!([{"path": "/answer", "ops": ["add"], "value": {"type": "integer"}}]),
        json!([{"path": "/claims/*/status", "ops": ["copy"]}]),
    ] {
        let patch = &form(json!([""]), writes.clone())["properties"]["patch"];
        assert_eq!(patch["maxItems"], 0, "{writes}: {patch}");
    }
}

#[test]
fn an_intent_and_places_to_expand_are_asked_for_where_they_may_be_given() {
    let worker = json!({"agent": "llm", "reads": ["/list/*"], "writes": [{"path": "/answer"}], "patch": {"intent": "required", "max_ops": 3}});
    let state = |count| json!({"list": vec!["x".repeat(50); count]});
    let schema = json!({"properties": {"list": {"type": "array"}, "answer": {"type": "string"}}});
    let form = Scene::new(&schema, &state(40), &worker, 1000).form().schema;
    assert_eq!(form["required"], json!(["intent", "patch"]));
    assert_eq!(form["properties"]["patch"]["maxItems"], 3);
    let [place, part] =
        form["properties"]["expand"]["items"]["anyOf"].as_array().expect("a place or a part of it").as_slice()
    else {
        panic!("two forms")
    };
    assert_eq!(part["required"], json!(["at", "from"]));
    let expand = &place["pattern"];
    assert!(expand.as_str().is_some_and(|pattern| pattern.starts_with("^/list/(0|[1-9]")), "{expand}");
    let all = Scene::new(&schema, &state(2), &worker, 1000).form().schema;
    assert_eq!(all["properties"]["expand"], Value::Null, "everything is shown");
}

#[test]
fn copy_sources_are_shown_places_with_a_fitting_value() {
    let copies = |reads: Value, path: &str| {
        branches(&form(reads, json!([{"path": path, "ops": ["add", "copy"]}])))
            .into_iter()
            .filter(|branch| branch[0] == "copy")
            .collect::<Value>()
    };
    // Places below a read path are listed too, such as a sentence of a document.
    assert_eq!(
        copies(json!(["/sources/*", "/question"]), "/answer"),
        json!([[
            "copy",
            ["/answer"],
            [
                "/question",
                "/sources/0/sentences/0",
                "/sources/0/sentences/1",
                "/sources/0/title",
                "/sources/1/sentences/0",
                "/sources/1/title",
            ]
        ]])
    );
    assert_eq!(
        copies(json!(["/sources/*", "/question"]), "/sources/-"),
        json!([["copy", ["/sources/-"], ["/sources/0", "/sources/1"]]])
    );
    assert_eq!(copies(json!(["/question"]), "/sources/-"), json!([]));
}

#[test]
fn move_sources_need_a_grant_to_remove() {
    let form = form(
        json!([""]),
        json!([
            {"path": "/sources/*/sentences/*", "ops": ["remove", "insert", "move", "add"]},
        ]),
    );
    let moves: Vec<Value> = branches(&form).into_iter().filter(|branch| branch[0] == "move").collect();
    // Within one array, the last index is the append position after an element was removed.
    let ends = ["/sources/0/sentences/-", "/sources/1/sentences/-"];
    let both = [&ends[..], &["/sources/0/sentences/0"]].concat();
    assert_eq!(
        Value::from(moves),
        json!([
            ["move", [ends[0], ends[1], "/sources/1/sentences/0"], ["/sources/0/sentences/0"]],
            ["move", [both[0], both[1], both[2], "/sources/1/sentences/0"], ["/sources/0/sentences/1"]],
            ["move", [both[0], both[1], both[2], "/sources/0/sentences/1"], ["/sources/1/sentences/0"]],
        ])
    );
}

#[test]
fn test_operations_are_offered_to_workers_without_freshness_checks() {
    let worker = json!({"agent": "llm", "reads": ["/question"], "writes": [{"path": "/answer"}], "freshness": "none"});
    let offered = branches(&Scene::new(&schema(), &state(), &worker, 4000).form().schema);
    let last = offered.last().expect("a branch");
    assert_eq!((&last[0], &last[1]), (&json!("test"), &json!(["/question"])));
}

#[test]
fn reply_schemas_hide_the_existence_of_unreadable_places() {
    let offered = |reads: Value, writes: Value| Value::from(branches(&form(reads, writes)));
    let status = json!({"enum": ["draft", "verified", "refused"]});
    // The number of claims is not revealed.
    assert_eq!(
        offered(json!([]), json!([{"path": "/claims/*/status", "ops": ["replace"]}])),
        json!([["replace", "^/claims/(0|[1-9][0-9]*)/status$", status]])
    );
    // The existence of an answer is not revealed.
    assert_eq!(
        offered(json!([]), json!([{"path": "/question"}, {"path": "/answer"}])),
        json!([
            ["add", ["/question"], {"type": "string"}],
            ["replace", ["/question"], {"type": "string"}],
            ["add", ["/answer"], {"type": "string"}],
            ["replace", ["/answer"], {"type": "string"}],
        ])
    );
    // A worker that reads the texts sees the number of claims, but not the claims that have a note.
    assert_eq!(
        offered(json!(["/claims/*/text"]), json!([{"path": "/claims/*/note", "ops": ["add"]}])),
        json!([["add", ["/claims/0/note", "/claims/1/note"], {"type": "string"}]])
    );
}

#[test]
fn summarised_places_can_be_added_to_but_not_overwritten() {
    let mut state = state();
    state["claims"] =
        (0..200).map(|n| json!({"text": format!("claim {n} {}", "x".repeat(80)), "status": "draft"})).collect();
    let worker = json!({"agent": "llm", "reads": ["/claims/*"], "writes": [
        {"path": "/claims/*/status", "ops": ["replace"]}, {"path": "/claims/*/note", "ops": ["add"]},
    ]});
    let scene = Scene::new(&schema(), &state, &worker, 2500);
    let offered = branches(&scene.form().schema);
    let replaced = offered[0][1].as_array().expect("a list").len();
    assert!((1..40).contains(&replaced), "{replaced} of those that were shown");
    assert_eq!(replaced, scene.view.reads.len());
    assert_eq!(offered[1][1], "^/claims/(0|[1-9][0-9]*)/note$");
}

#[test]
fn a_form_that_would_be_too_long_says_less_and_never_too_little() {
    let mut large = state();
    let long = "a-name-that-takes-many-characters-of-a-form-".repeat(2);
    large["names"] = (0..60).map(|n| (format!("{long}{n}"), json!(1))).collect::<Map<_, _>>().into();
    let grant =
        |path: &str, least: usize| json!({"path": path, "ops": ["add", "replace"], "value": {"minimum": least}});
    for count in [1, 4, 8] {
        let writes: Vec<Value> = (0..count).map(|least| grant("/names/*", least)).collect();
        let worker = json!({"agent": "llm", "reads": [""], "writes": writes});
        let form = Scene::new(&schema(), &large, &worker, 20000).form();
        assert!(form.schema.to_string().len() <= CHARS_MAX);
        let offered = branches(&form.schema);
        let listed = offered.iter().filter(|branch| branch[1].is_array()).count();
        assert_eq!(form.is_whole, listed > 0, "{count} grants");
        // Branches that have become equal are merged into one.
        assert_eq!(offered.len(), if form.is_whole { 2 * count } else { count }, "{count} grants");
    }
    let writes: Vec<Value> = (0..60).map(|n| grant(&format!("/names/{long}{n}"), 0)).collect();
    let worker = json!({"agent": "llm", "reads": [""], "writes": writes});
    assert_eq!(ReplySchema::for_call(&Scene::new(&schema(), &large, &worker, 200_000).shown), None);
}

#[test]
fn grants_that_overlap_are_said_once() {
    let grant = json!({"path": "/claims/*/status", "ops": ["replace"]});
    let form = |writes: Value| {
        let worker = json!({"agent": "llm", "reads": [""], "writes": writes});
        Scene::new(&schema(), &state(), &worker, 20_000).form()
    };
    assert_eq!(form(json!([grant, grant])), form(json!([grant])));
}

#[test]
fn values_are_joined_into_what_decoders_know() {
    let met = |one: Value, other: Value| {
        let schema = value::intersect(value::portable(&one, false, 0), value::portable(&other, false, 0));
        value::finish(&schema, DETAIL_LEVELS[0].value)
    };
    for (one, other, expected) in [
        (json!({"type": "string"}), json!({"enum": ["a", 1]}), Some(json!({"type": "string", "enum": ["a"]}))),
        (json!({"type": ["string", "number"]}), json!({"type": "integer"}), Some(json!({"type": "integer"}))),
        (json!({"type": "string"}), json!({"type": "integer"}), None),
        (
            json!({"minimum": 1, "maximum": 9}),
            json!({"minimum": 3, "maximum": 12}),
            Some(json!({"minimum": 3, "maximum": 9})),
        ),
        (
            json!({"type": "string", "pattern": "^[a-z]+$", "format": "uri"}),
            json!({"pattern": "^[a-c]+$", "maxLength": 3}),
            Some(json!({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3, "allOf": [{"pattern": "^[a-c]+$"}]})),
        ),
        // Keywords that decoders do not support are omitted.
        (
            json!({"pattern": "\\d", "maxLength": 5000}),
            json!({"not": {"const": 1}, "$ref": "#/x"}),
            Some(json!({"type": value_types()})),
        ),
        (
            json!({"oneOf": [{"type": "null"}, {"type": "string"}]}),
            json!({"maxLength": 2}),
            Some(json!({"anyOf": [{"type": "null", "maxLength": 2}, {"type": "string", "maxLength": 2}]})),
        ),
        (
            json!({"anyOf": [{"type": "null"}, {"type": "string"}]}),
            json!({"type": "string"}),
            Some(json!({"type": "string"})),
        ),
        (
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}),
            json!({"required": ["c"], "properties": {"a": {"const": "x"}}, "additionalProperties": {"type": "null"}}),
            Some(json!({
                "type": "object",
                "required": ["a", "c"],
                "properties": {"a": {"type": "string", "enum": ["x"]}, "c": {"type": "null"}},
                "additionalProperties": {"type": "null"},
            })),
        ),
        (json!({"additionalProperties": false, "properties": {"a": {}}}), json!({"required": ["b"]}), None),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!({"items": {"type": "integer"}}),
            Some(json!({"type": "array", "maxItems": 0})),
        ),
        (json!(true), json!(true), Some(json!({"type": value_types()}))),
        (json!(true), json!(false), None),
    ] {
        assert_eq!(met(one.clone(), other.clone()), expected, "{one} and {other}");
        // The intersection does not depend on the order.
        assert_eq!(met(other.clone(), one.clone()).is_some(), expected.is_some(), "{other} and {one}");
    }
}

fn value_types() -> Value {
    json!(["object", "array", "string", "number", "boolean", "null"])
}

#[test]
fn only_plain_regular_expressions_are_handed_on() {
    for (text, expected) in [
        ("^[a-z]+$", true),
        ("^(a|b)-[0-9]{2,4}$", true),
        (r"^v\.[0-9]+$", true),
        ("[a-z]+", false),
        ("^a|b$", false),
        ("^.*$", false),
        (r"^\d+$", false),
        ("^[^a]$", false),
        ("^(?:a)$", false),
        ("^a+?$", false),
        ("^(a$", false),
        ("^$", false),
        (r"^a\$", false),
    ] {
        assert_eq!(expression::portable(text).is_some(), expected, "{text}");
    }
}

#[test]
fn a_tuple_that_is_closed_can_be_written_whole() {
    let pair = json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false});
    let schema = json!({"properties": {"pair": pair}});
    let worker = json!({"agent": "llm", "reads": [""], "writes": [{"path": "/pair", "ops": ["add"]}]});
    let form = Scene::new(&schema, &json!({}), &worker, 4000).form().schema;
    let value = &form["properties"]["patch"]["items"]["properties"]["value"];
    assert_eq!((&value["maxItems"], value["prefixItems"].as_array().map(Vec::len)), (&json!(2), Some(2)), "{value}");
}

#[test]
fn alternatives_within_alternatives_are_not_multiplied_out_without_end() {
    let mut deep = json!({"type": "integer"});
    for _ in 0..16 {
        deep = json!({"items": deep, "anyOf": [{"minItems": 1}, {"maxItems": 2}, {"minItems": 3}]});
    }
    let schema = json!({"properties": {"deep": deep}});
    let worker = json!({"agent": "llm", "reads": [""], "writes": [{"path": "/deep", "ops": ["add"]}]});
    let form = Scene::new(&schema, &json!({}), &worker, 6000).form().schema;
    assert!(form.to_string().len() <= CHARS_MAX, "{form}");
}

#[test]
fn grants_are_offered_if_the_same_patch_can_meet_their_demands() {
    let list = json!({"type": "array", "items": {"type": "object"}});
    let links = json!({"type": "array", "items": {"type": "object", "required": ["claim"]}});
    let schema = json!({"properties": {"claims": list, "links": links, "tree": list}});
    let invariants = json!([
        {"name": "link", "for": "/links/*", "expr": "state.claims.exists(c, c.id == self.claim)"},
        {"name": "tree", "for": "/tree/*", "expr": "state.tree.exists(t, t.id == self.parent)"},
    ]);
    let paths = |writes: &[&str], most: u32| {
        let writes: Vec<Value> = writes.iter().map(|path| json!({"path": path, "ops": ["add"]})).collect();
        let worker = json!({"agent": "llm", "reads": [""], "writes": writes, "patch": {"max_ops": most}});
        let state = json!({"claims": [], "links": [], "tree": []});
        let form = Scene::held(&schema, &state, &worker, &invariants, 6000).form().schema;
        let items = form["properties"]["patch"]["items"].clone();
        let branches = items["anyOf"].as_array().cloned().unwrap_or_else(|| vec![items.clone()]);
        let path = |branch: &Value| branch["properties"]["path"]["enum"][0].as_str().map(str::to_owned);
        branches.iter().filter_map(path).collect::<Vec<_>>()
    };
    assert_eq!(paths(&["/claims/-", "/links/-"], 2), ["/claims/-", "/links/-"]);
    assert_eq!(paths(&["/tree/-"], 1), ["/tree/-"], "one that is its own parent");
    // If no claim can be added, a link has no target.
    assert_eq!(paths(&["/claims/-", "/links/-"], 1), ["/claims/-"]);
    assert_eq!(paths(&["/links/-"], 2), [""; 0]);
}

/// Returns the form of the value of a write at /answer under an invariant.
fn of_answer(state: &Value, expr: &str) -> Value {
    let index = json!({"type": "integer", "minimum": 0});
    let indices = json!({"type": "array", "items": index, "uniqueItems": true, "maxItems": 5});
    let answer = json!({"type": "object", "required": ["of"], "properties": {"of": indices, "by": {"type": "string"}}});
    let schema = json!({"properties": {"answer": answer, "list": {"type": "array"}, "names": {"type": "object"}}});
    let invariants = json!([{"name": "held", "for": "/answer", "expr": expr}]);
    let worker =
        json!({"agent": "llm", "reads": ["/list/*", "/names"], "writes": [{"path": "/answer", "ops": ["add"]}]});
    let form = Scene::held(&schema, state, &worker, &invariants, 4000).form().schema;
    form["properties"]["patch"]["items"]["properties"]["value"]["properties"].clone()
}

#[test]
fn parts_of_a_value_are_held_to_what_an_invariant_says_of_them() {
    let state = json!({"list": ["ann", "bob"], "names": {"carl": "x"}});
    let of = |expr: &str| of_answer(&state, expr);
    let below = of("self.of.all(i, i < size(state.list)) && (!has(self.by) || self.by in state.list)");
    assert_eq!(below["of"]["items"]["exclusiveMaximum"], 2);
    assert_eq!((&below["of"]["maxItems"], &of("true")["of"]["maxItems"]), (&json!(2), &json!(5)), "none twice");
    assert_eq!(below["by"]["enum"], json!(["ann", "bob"]));
    let none = of_answer(&json!({"list": [], "names": {}}), "self.of.all(i, i < size(state.list))");
    assert_eq!(none["of"]["maxItems"], 0, "{none}");
    // For an object, `in` looks at the names; other conditions restrict nothing.
    for expr in ["self.by in state.names", "self.of.exists(i, i < size(state.list))", "self.of.all(i, i > 0)"] {
        assert_eq!(of(expr), of("true"), "{expr}");
    }
}

/// Returns the enums of two grants under an invariant: the values to write at /action, and the places to copy from.
fn of_members(reads: Value, state: &Value, expr: &str, budget: u32) -> Vec<Value> {
    let schema = json!({"properties": {"action": {"type": "string", "maxLength": 9}, "list": {"type": "array"}}});
    let invariants = json!([{"name": "member", "for": "/action", "expr": expr}]);
    let worker = json!({"agent": "llm", "reads": reads, "writes": [{"path": "/action", "ops": ["add", "copy"]}]});
    let form = Scene::held(&schema, state, &worker, &invariants, budget).form().schema;
    let items = &form["properties"]["patch"]["items"];
    let branches = items["anyOf"].as_array().cloned().unwrap_or_else(|| vec![items.clone()]);
    let of = |branch: Value| {
        let properties = &branch["properties"];
        [&properties["value"]["enum"], &properties["from"]["enum"]].into_iter().find(|list| list.is_array()).cloned()
    };
    branches.into_iter().map(|branch| of(branch).unwrap_or(Value::Null)).collect()
}

#[test]
fn a_value_that_an_invariant_wants_in_a_list_is_one_of_it() {
    let state = json!({"list": ["look", "go to bed", "take lamp"], "other": ["look", "dig"], "docs": [{"lines": ["dig", "look"]}]});
    let reads = json!(["/list/*", "/other", "/docs"]);
    let short = json!(["look", "go to bed", "take lamp"]);
    let from = |places: &[&str]| json!(places);
    for (expr, values, sources) in [
        (
            "state.list.exists(a, a == self)",
            short.clone(),
            from(&["/docs/0/lines/1", "/list/0", "/list/1", "/list/2", "/other/0"]),
        ),
        ("self in state.list", short, from(&["/docs/0/lines/1", "/list/0", "/list/1", "/list/2", "/other/0"])),
        (
            "state.list.exists(a, self == a) && self in state.other",
            json!(["look"]),
            from(&["/docs/0/lines/1", "/list/0", "/other/0"]),
        ),
        (
            "state.docs.exists(d, d.lines.exists(l, l == self))",
            json!(["dig", "look"]),
            from(&["/docs/0/lines/0", "/docs/0/lines/1", "/list/0", "/other/0", "/other/1"]),
        ),
    ] {
        assert_eq!(of_members(reads.clone(), &state, expr, 4000), [values, sources], "{expr}");
    }
    // Every readable value was shown, although the number of documents was not.
    let expr = "state.docs.exists(d, d.lines.exists(l, l == self))";
    let reads = json!(["/docs/*/lines/*", "/other"]);
    let lines = from(&["/docs/0/lines/0", "/docs/0/lines/1", "/other/0", "/other/1"]);
    assert_eq!(of_members(reads, &state, expr, 4000), [json!(["dig", "look"]), lines]);
    assert_eq!(
        of_members(json!(["/docs/0/lines/*"]), &state, expr, 4000)[0],
        Value::Null,
        "there may be another document"
    );
    // Other conditions, and lists that are not entirely shown, restrict nothing.
    let reads = json!(["/list/*", "/other", "/docs"]);
    for expr in
        ["!state.list.exists(a, a == self)", "state.list.exists(a, a == self) || true", "state.list.all(a, a == self)"]
    {
        assert_eq!(of_members(reads.clone(), &state, expr, 4000)[0], Value::Null, "{expr}");
    }
    let expr = "state.list.exists(a, a == self)";
    assert_eq!(of_members(json!(["/list/0", "/list/1"]), &state, expr, 4000)[0], Value::Null, "there may be others");
    let long = json!({"list": vec!["x".repeat(30); 60]});
    assert_eq!(of_members(json!(["/list/*"]), &long, expr, 900)[0], Value::Null, "not all of it is shown");
    assert_eq!(
        of_members(json!(["/list/*"]), &json!({"list": []}), expr, 4000),
        [Value::Null; 1],
        "nothing can be written"
    );
}

#[test]
fn reply_schemas_offer_questions_only_to_workers_that_may_ask_a_person() {
    let worker = json!({"agent": "llm", "reads": ["/question"], "writes": [{"path": "/answer", "ops": ["add"]}]});
    let scene = Scene::new(&schema(), &state(), &worker, 4000);
    let asks = json!({"patch": [], "clarify": {"question": "Which?", "choices": ["a", "b"]}});
    let admits = |shown: &CallContext| {
        let form = ReplySchema::for_call(shown).expect("a form");
        jsonschema::draft202012::new(&form.schema).expect("a schema").is_valid(&asks)
    };
    assert!(!admits(&scene.shown));
    assert!(admits(&CallContext { may_clarify: true, ..scene.shown.clone() }));
}
