//! Small blueprints that would take all the time and memory there is: schemas in which one part is reached in very many ways.
//! A check that has no limit does not end here, and is stopped by the test runner.

use patchboard_kernel::lint;
use patchboard_kernel::source::Source;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Levels of a schema whose parts are reached in 2^40 ways or more.
const LEVELS: usize = 40;

/// A blueprint of a script and an agent that may write everywhere below `/a`, where the first of these schemas holds.
fn blueprint(schemas: Map<String, Value>) -> Value {
    json!({
        "blueprint": 2,
        "name": "bomb",
        "state": {"schema": {
            "$defs": schemas,
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/0"}, "b": {}, "request": {}},
        }},
        "workers": {
            "script": {"agent": "script", "script": [[]], "reads": ["/request"], "writes": [{"path": "/b", "ops": ["add"]}]},
            "agent": {
                "agent": "llm",
                "reads": ["/a/**", "/a/*/*/*/*/*/*", "/a/x/x/x/x/x/x/x/x/x/x/x/x"],
                "writes": [{"path": "/a/**", "ops": ["add", "replace"]}, {"path": "/b/*/*/*", "ops": ["add"]}],
            },
        },
        "rules": [
            {"name": "begin", "trigger": "start", "run": "script"},
            {"name": "each", "trigger": {"op": "add", "path": "/a/x/*/*/*"}, "run": "agent"},
        ],
        "invariants": [{"name": "same", "for": "/a/*/*/*/*", "expr": "self.x.x.x.x == self.x.x.x.y"}],
        "done": {"when": "has(state.b)"},
    })
}

/// The number of findings, those on a board that begins included; what they are does not matter.
fn checked(blueprint: &Value) -> usize {
    let source = Source::read("bomb", &blueprint.to_string()).expect("JSON");
    let report = lint::check(&source);
    let begun = report.blueprint.map(|blueprint| lint::check_beginning(&source, blueprint, json!({"x": 1})));
    report.findings.len() + begun.and_then(Result::ok).map_or(0, |found| found.len())
}

/// Makes a schema in which another one stands.
type Level<'l> = &'l dyn Fn(&Value) -> Value;

/// A schema of a keyword, in which the next one stands where `next` is.
fn levels(level: Level<'_>) -> Value {
    let numbered = (0..LEVELS).map(|n| (n.to_string(), level(&json!({"$ref": format!("#/$defs/{}", n + 1)}))));
    blueprint(numbered.chain([(LEVELS.to_string(), json!({"type": "array"}))]).collect())
}

#[test]
fn a_check_ends_however_often_a_schema_leads_to_the_same_part() {
    let member = |next: &Value| json!({"properties": {"x": next}});
    let kinds: [(&str, Level<'_>); 17] = [
        ("anyOf", &|next| json!({"anyOf": [member(next), member(next)]})),
        ("anyOf of references", &|next| json!({"anyOf": [next, next]})),
        ("oneOf", &|next| json!({"oneOf": [member(next), member(next), member(next)]})),
        ("allOf", &|next| json!({"allOf": [member(next), member(next)]})),
        ("allOf of references", &|next| json!({"allOf": [next, next]})),
        ("not", &|next| json!({"not": member(next), "properties": {"x": next}})),
        ("if", &|next| json!({"if": member(next), "then": member(next), "else": member(next)})),
        ("dependentSchemas", &|next| json!({"dependentSchemas": {"x": member(next), "y": member(next)}})),
        ("two members", &|next| json!({"properties": {"x": next, "y": next}})),
        ("items and contains", &|next| json!({"items": next, "contains": next})),
        ("prefixItems", &|next| json!({"prefixItems": [next, next], "items": next})),
        (
            "patternProperties",
            &|next| json!({"additionalProperties": next, "patternProperties": {"^x": next, "y$": next}}),
        ),
        (
            "unevaluatedProperties",
            &|next| json!({"anyOf": [member(next), member(next)], "unevaluatedProperties": next}),
        ),
        (
            "unevaluatedItems",
            &|next| json!({"anyOf": [{"contains": next}, {"contains": next}], "unevaluatedItems": next}),
        ),
        ("propertyNames", &|next| json!({"propertyNames": next, "additionalProperties": next})),
        ("items in anyOf", &|next| json!({"anyOf": [{"items": next}, {"items": next}]})),
        ("a mixture", &|next| {
            json!({"anyOf": [member(next), {"items": next}], "oneOf": [member(next), {"items": next}],
                   "allOf": [{"if": member(next), "then": member(next)}]})
        }),
    ];
    for (kind, level) in kinds {
        assert!(checked(&levels(level)) < lint::FINDINGS_MAX, "{kind}");
    }
}

#[test]
fn a_check_ends_where_every_part_leads_to_every_other() {
    let all = |each: &dyn Fn(Value) -> Value| {
        (0..LEVELS).map(|n| each(json!({"$ref": format!("#/$defs/{n}")}))).collect::<Value>()
    };
    let kinds: [&dyn Fn() -> Value; 3] = [
        &|| json!({"anyOf": all(&|next| json!({"properties": {"x": next}}))}),
        &|| json!({"prefixItems": all(&|next| next)}),
        &|| {
            let members = (0..LEVELS).map(|n| (format!("p{n}"), json!({"$ref": format!("#/$defs/{n}")})));
            json!({"properties": members.collect::<Map<_, _>>()})
        },
    ];
    for kind in kinds {
        checked(&blueprint((0..LEVELS).map(|n| (n.to_string(), kind())).collect()));
    }
}

/// A schema object of some keywords that lead to others of `count`.
fn schema(count: usize) -> impl Strategy<Value = Value> {
    let next = (0..count).prop_map(|n| json!({"$ref": format!("#/$defs/{n}")})).boxed();
    let part = prop_oneof![
        next.clone(),
        next.clone().prop_map(|next| json!({"properties": {"x": next}})),
        next.clone().prop_map(|next| json!({"items": next})),
        next.clone().prop_map(|next| json!({"additionalProperties": next})),
    ];
    let parts = prop::collection::vec(part.clone(), 1..4);
    let named = |keyword: &'static str| move |value: Value| (keyword.to_owned(), value);
    let list = |keyword: &'static str| parts.clone().prop_map(move |parts| (keyword.to_owned(), json!(parts)));
    let keyword = prop_oneof![
        list("anyOf"),
        list("oneOf"),
        list("prefixItems"),
        part.clone().prop_map(named("not")),
        part.clone().prop_map(named("if")),
        part.clone().prop_map(named("then")),
        part.clone().prop_map(named("else")),
        part.clone().prop_map(named("items")),
        part.clone().prop_map(named("contains")),
        part.clone().prop_map(named("additionalProperties")),
        part.clone().prop_map(named("unevaluatedProperties")),
        (part.clone(), part.clone()).prop_map(|(x, y)| ("properties".to_owned(), json!({"x": x, "y": y}))),
        (part.clone(), part).prop_map(|(x, y)| ("dependentSchemas".to_owned(), json!({"x": x, "y": y}))),
    ];
    prop::collection::vec(keyword, 1..5).prop_map(|keywords| Value::Object(keywords.into_iter().collect()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn a_check_of_any_graph_of_schemas_ends(schemas in (2_usize..40).prop_flat_map(|count| prop::collection::vec(schema(count), count))) {
        checked(&blueprint(schemas.into_iter().enumerate().map(|(n, schema)| (n.to_string(), schema)).collect()));
    }
}

#[test]
fn invariants_are_tried_on_the_initial_state_within_one_allowance() {
    let invariant = |name: String, expr: &str| json!({"name": name, "for": "/list/*", "expr": expr});
    let found = |invariants: Vec<Value>| {
        let mut blueprint = blueprint(Map::new());
        blueprint["state"] = json!({"schema": {}, "initial": {"list": (0..1_000).collect::<Vec<_>>()}});
        blueprint["invariants"] = invariants.into();
        let source = Source::read("bomb", &blueprint.to_string()).expect("JSON");
        let findings = lint::check(&source).findings.into_iter();
        let wrong = findings.filter(|it| it.code == "invalid_initial_state" || it.code == "bad_value");
        wrong.map(|it| it.message).collect::<Vec<_>>()
    };
    let many = || (0..120).map(|n| invariant(format!("i{n}"), "state.list.all(x, x + self >= 0)"));
    assert_eq!(found(many().collect()), [""; 0]);
    let wrong = found([invariant("few".to_owned(), "self < 999")].into_iter().chain(many()).collect());
    assert!(wrong.len() == 1 && wrong[0].ends_with("at `/list/999`"), "{wrong:?}");
}
