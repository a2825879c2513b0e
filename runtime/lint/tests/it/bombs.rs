//! Small blueprints that would exhaust time and memory: one part of a schema is reachable in exponentially many ways. A
//! check without a limit would not terminate, and the test runner stops it.

use patchboard_lint::STEPS_MAX;
use patchboard_lint::source::Source;
use patchboard_protocols::PLANS;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Number of schema levels; their parts are reachable in 2^40 ways or more.
const LEVELS: usize = 40;

/// Returns a blueprint with a script and an agent that may write anywhere below `/a`, the place of the first of these
/// schemas.
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

/// Returns the number of findings, including those for a started board; their content is irrelevant.
fn checked(blueprint: &Value) -> usize {
    let source = Source::read("bomb", &blueprint.to_string()).expect("JSON");
    let report = patchboard_protocols::check(&source);
    let begun = report
        .blueprint
        .map(|blueprint| patchboard_lint::check_with_request(&source, blueprint, json!({"x": 1}), &PLANS));
    report.findings.len() + begun.and_then(Result::ok).map_or(0, |found| found.len())
}

/// Wraps a schema in another one.
type Level<'l> = &'l dyn Fn(&Value) -> Value;

/// Returns a blueprint with nested levels of one keyword, each referring to the next.
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
        assert!(checked(&levels(level)) < patchboard_lint::FINDINGS_MAX, "{kind}");
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

/// Generates a schema object with keywords that refer to others of `count`.
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
        let findings = patchboard_protocols::check(&source).findings.into_iter();
        let wrong = findings.filter(|it| it.code == "invalid_initial_state" || it.code == "bad_value");
        wrong.map(|it| it.message).collect::<Vec<_>>()
    };
    let many = || (0..120).map(|n| invariant(format!("i{n}"), "state.list.all(x, x + self >= 0)"));
    assert_eq!(found(many().collect()), [""; 0]);
    let wrong = found([invariant("few".to_owned(), "self < 999")].into_iter().chain(many()).collect());
    assert!(wrong.len() == 1 && wrong[0].ends_with("at `/list/999`"), "{wrong:?}");
}

/// Returns a blueprint with this many workers and grants each; `grant` makes a grant from its number.
fn granting(schema: &Value, workers: usize, grants: usize, grant: &dyn Fn(usize) -> Value) -> Source {
    let worker = |nth: usize| {
        let writes: Vec<Value> = (0..grants).map(|own| grant(nth * grants + own)).collect();
        (format!("w{nth}"), json!({"agent": "script", "script": [[]], "reads": ["/**"], "writes": writes}))
    };
    let workers: Map<String, Value> = (0..workers).map(worker).collect();
    let rules = json!([{"name": "begin", "trigger": "start", "run": "w0"}]);
    let blueprint =
        json!({"blueprint": 2, "name": "bomb", "state": {"schema": schema}, "workers": workers, "rules": rules});
    Source::read("bomb", &blueprint.to_string()).expect("JSON")
}

/// Returns an object with the names `p0`, `p1`, …; `of` makes each value from its number.
fn numbered(count: usize, of: &dyn Fn(usize) -> Value) -> Map<String, Value> {
    (0..count).map(|nth| (format!("p{nth}"), of(nth))).collect()
}

fn code_of(source: &Source, steps: u64) -> Option<(&'static str, String)> {
    let report = patchboard_protocols::check_at_most(source, steps);
    let error = report.findings.into_iter().find(|finding| finding.severity == patchboard_lint::Severity::Error)?;
    Some((error.code, error.message))
}

#[test]
fn a_check_that_takes_too_many_steps_says_for_what() {
    let values: Vec<String> = (0..1_000).map(|nth| format!("v{nth}")).collect();
    let listed = json!({"type": "object", "$defs": {"e": {"enum": values}}, "properties": numbered(20, &|_| json!({"$ref": "#/$defs/e"}))});
    let own = |nth: usize| json!({"path": format!("/p{}", nth % 20), "value": {"$ref": "#/$defs/e", "title": nth.to_string()}});
    let schemas = granting(&listed, 10, 20, &own);

    let mut deep = json!({"type": "object", "properties": numbered(10, &|_| json!({"type": "string"}))});
    for _ in 0..20 {
        deep = json!({"type": "object", "properties": {"a": deep, "p0": {"type": "string"}}});
    }
    let places =
        granting(&deep, 10, 10, &|nth| json!({"path": format!("{}/**/p{}", "/a".repeat(1 + nth / 10), nth % 10)}));

    let wide = json!({"type": "object", "properties": numbered(900, &|_| json!({"type": "string"}))});
    let grants = granting(&wide, 30, 30, &|nth| json!({"path": format!("/p{nth}")}));

    let cases = [
        (schemas, 500_000, "its schemas"),
        (places, 500_000, "the places of its paths"),
        (grants, 1_000_000, "comparing its grants"),
    ];
    for (source, steps, what) in cases {
        let (code, message) = code_of(&source, steps).unwrap_or_else(|| panic!("{what} takes fewer"));
        assert_eq!(code, "too_costly", "{message}");
        assert!(message.contains(&format!("more than {steps} steps")) && message.ends_with(what), "{message}");
        assert_eq!(code_of(&source, STEPS_MAX), None, "{what}");
    }
}

#[test]
fn grants_with_equal_schemas_take_the_steps_of_one() {
    let values: Vec<String> = (0..3_000).map(|nth| format!("v{nth}")).collect();
    let listed = json!({"type": "object", "$defs": {"e": {"enum": values}}, "properties": numbered(30, &|_| json!({"$ref": "#/$defs/e"}))});
    let equal = |nth: usize| json!({"path": format!("/p{}", nth % 30), "value": {"$ref": "#/$defs/e"}});
    assert_eq!(code_of(&granting(&listed, 60, 30, &equal), 5_000_000), None);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may read files")]
fn the_shipped_blueprints_take_a_small_part_of_the_steps() {
    for path in ["blueprints/clipboard.yaml", "blueprints/evidence-review.yaml", "examples/word_count.yaml"] {
        let text = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        let source = Source::read(path, &std::fs::read_to_string(text).expect("it is there")).expect("it is YAML");
        let report = patchboard_protocols::check_at_most(&source, STEPS_MAX / 200);
        assert!(report.findings.iter().all(|finding| finding.code != "too_costly"), "{path}: {:?}", report.findings);
    }
}
