//! Schemas: accepted ones, rejected ones, and the errors of instances.

use serde_json::{Value, json};

use super::*;
use crate::pattern::Pattern;

mod effort;
mod incremental;
mod places;
mod regexes;

fn compiled(schema: Value) -> Schema {
    Schema::compile(&schema, false).unwrap_or_else(|error| panic!("{schema}: {error}"))
}

fn refused(schema: Value, pointer: &str, part: &str) {
    let Err(error) = Schema::compile(&schema, false) else { panic!("accepted: {schema}") };
    assert_eq!(error.pointer, pointer, "{error}");
    assert!(error.message.contains(part), "{error}");
}

/// Expects a rejection because of validation cost; the pointer denotes a link of the overlong chain.
fn unsafe_to_walk(schema: Value, part: &str) {
    let Err(error) = Schema::compile(&schema, false) else { panic!("accepted: {schema}") };
    assert!(schema.pointer(&error.pointer).is_some(), "{}", error.pointer);
    assert!(error.message.contains(part), "{error}");
}

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).expect("a pattern of a test is well-formed")
}

#[test]
fn the_accepted_drafts_are_four() {
    for draft in [
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-06/schema#",
    ] {
        let schema = compiled(json!({"$schema": draft, "properties": {"a": {"const": 1}}}));
        assert!(schema.is_valid(&json!({"a": 1.0})), "{draft}");
        assert!(!schema.is_valid(&json!({"a": 2})), "{draft}");
    }
    refused(json!({"$schema": "http://json-schema.org/draft-04/schema#"}), "/$schema", "draft 4 is too old");
    refused(json!({"$schema": "http://example.com/mine"}), "/$schema", "no dialect known here");
    refused(json!({"$schema": 7}), "/$schema", "is a text");
    // Without `$schema` the draft is 2020-12, which supports `prefixItems`.
    assert!(!compiled(json!({"prefixItems": [false]})).is_valid(&json!([1])));
}

#[test]
fn an_invalid_schema_is_rejected_with_its_position() {
    refused(json!({"properties": {"a": {"type": 12}}}), "/properties/a/type", "no valid schema");
    refused(json!({"properties": {"a": {"type": "text"}}}), "/properties/a/type", "no valid schema");
    refused(json!(3), "", "no valid schema");
    refused(json!({"required": ["a", "a"]}), "/required", "no two elements");
}

#[test]
fn references_never_leave_the_document() {
    for reference in
        ["http://example.com/x", "https://127.0.0.1:1/x", "file:///etc/passwd", "other.json", "#/$defs/b", "#b"]
    {
        refused(json!({"properties": {"a": {"$ref": reference}}, "$defs": {}}), "/properties/a/$ref", reference);
    }
    let inside = compiled(json!({
        "$id": "http://example.com/root.json",
        "properties": {
            "a": {"$ref": "#/$defs/a"},
            "b": {"$ref": "#bee"},
            "c": {"$ref": "http://example.com/c.json#/$defs/d"},
            "e": {"$ref": "c.json"},
        },
        "$defs": {
            "a": {"const": 1},
            "b": {"$anchor": "bee", "const": 2},
            "c": {"$id": "c.json", "type": "object", "properties": {"z": true}, "$defs": {"d": {"const": 3}}},
        },
    }));
    assert!(inside.is_valid(&json!({"a": 1, "b": 2, "c": 3, "e": {}})));
    for wrong in [json!({"a": 2}), json!({"b": 1}), json!({"c": 1}), json!({"e": 1})] {
        assert!(!inside.is_valid(&wrong), "{wrong}");
    }
    assert_eq!(inside.locate(&pattern("/e/z")), Location::Legal(vec![]));
    assert!(matches!(inside.locate(&pattern("/c/z")), Location::Illegal { .. }));
    // The published meta-schemas are built in.
    let meta = compiled(json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}));
    assert!(!meta.is_valid(&json!({"type": 12})));
}

#[test]
fn a_name_of_two_subschemas_is_rejected() {
    let (text, number) = (json!({"$anchor": "x", "type": "string"}), json!({"$anchor": "x", "type": "integer"}));
    let with = |holder: Value| json!({"$defs": {"a": holder, "b": number}, "properties": {"p": {"$ref": "#x"}}});
    refused(with(text.clone()), "/$defs/b", "`#x`");
    refused(with(json!({"$dynamicAnchor": "x"})), "/$defs/b", "`#x`");
    // Validators also register names in keywords that are not evaluated.
    refused(with(json!({"then": text})), "/$defs/b", "`#x`");
    let mut older = with(json!({"additionalItems": text}));
    older["$schema"] = "https://json-schema.org/draft/2019-09/schema".into();
    refused(older, "/$defs/b", "`#x`");
    let draft_7 = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {"$anchor": "x", "type": "string"}, "b": {"$id": "#x", "type": "integer"}},
    });
    refused(draft_7, "/definitions/b", "`#x`");
    let identified = json!({"$defs": {"a": {"$id": "z.json"}, "b": {"$id": "y/../z.json"}}});
    refused(identified, "/$defs/b", "`y/../z.json`");
    // Repeated names of one schema, and names in documents of their own, are accepted.
    compiled(json!({"$id": "", "$anchor": "x", "$dynamicAnchor": "x", "$defs": {"a": {"$id": "a", "$anchor": "x"}}}));
    compiled(with(json!({"const": text})));
}

#[test]
fn regular_expressions_are_linear_or_rejected() {
    for (expression, why) in [
        ("(?=a)", "look-around"),
        ("(a)\\1", "backreferences"),
        ("(a{1000}){1000}", "linear time"),
        ("(", "unclosed group"),
    ] {
        refused(json!({"properties": {"a": {"pattern": expression}}}), "/properties/a/pattern", why);
    }
    assert!(!compiled(json!({"pattern": "^(a+)+$"})).is_valid(&json!("a".repeat(50_000) + "!")));
}

#[test]
fn formats_are_annotations_unless_they_are_asserted() {
    let schema = json!({"format": "date-time"});
    assert!(compiled(schema.clone()).is_valid(&json!("yesterday")));
    let asserting = Schema::compile(&schema, true).expect("a valid schema");
    assert!(!asserting.is_valid(&json!("yesterday")));
    assert!(asserting.is_valid(&json!("2026-01-02T03:04:05Z")));
    assert_eq!(asserting.violations(&json!("yesterday"), 1)[0].message, "must have the format date-time");
    // An unknown format is an annotation; a standard format without a check is rejected, because it would pass
    // silently.
    assert!(Schema::compile(&json!({"format": "colour"}), true).is_ok());
    let idn = json!({"properties": {"format": {"format": "idn-hostname"}}});
    assert!(Schema::compile(&idn, false).is_ok());
    let Err(error) = Schema::compile(&idn, true) else { panic!("accepted") };
    assert_eq!(error.pointer, "/properties/format/format");
}

#[test]
fn a_schema_that_could_overflow_the_stack_is_rejected() {
    let nested = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({ "not": inner }));
    refused(nested(129), "", "nested at most 128 deep");
    unsafe_to_walk(nested(100), "inside the other");
    compiled(nested(60));
    compiled((0..63).fold(json!({}), |inner, _| json!({"properties": {"a": inner}})));

    let chain = |length: usize, link: fn(Value) -> Value| {
        let mut schemas = serde_json::Map::new();
        for at in 0..length {
            schemas.insert(format!("d{at}"), link(json!({"$ref": format!("#/$defs/d{}", at + 1)})));
        }
        schemas.insert(format!("d{length}"), json!({"type": "object"}));
        json!({"$defs": schemas, "$ref": "#/$defs/d0"})
    };
    let unevaluated = |next| json!({"allOf": [next], "unevaluatedProperties": false});
    unsafe_to_walk(chain(10_000, |next| next), "inside the other");
    unsafe_to_walk(chain(200, unevaluated), "inside the other");
    assert!(!compiled(chain(30, unevaluated)).is_valid(&json!({"a": 1})));
    // Every link descends in the instance, so the chain ends with the instance.
    assert!(compiled(chain(10_000, |next| json!({"properties": {"a": next}}))).is_valid(&json!({"a": {"a": 1}})));
}

#[test]
fn recursive_schemas_with_long_walks_are_rejected_and_short_ones_are_safe() {
    let recursive = |links: usize| {
        (0..links)
            .fold(json!({"properties": {"a": {"$ref": "#"}}}), |inner, _| json!({ "dependentSchemas": {"a": inner} }))
    };
    unsafe_to_walk(recursive(40), "nested 64 deep");
    let safe = compiled(recursive(20));
    let instance = (0..64).fold(json!(1), |inner, _| json!({ "a": inner }));
    assert!(safe.is_valid(&instance));
    assert_eq!(safe.violations(&instance, 3), []);
}

#[test]
fn a_schema_that_branches_without_end_is_rejected() {
    let mut schemas = serde_json::Map::new();
    for at in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
        schemas.insert(format!("d{at}"), json!({"anyOf": [next, next]}));
    }
    schemas.insert("d40".into(), json!({"type": "object"}));
    unsafe_to_walk(json!({"$defs": schemas, "$ref": "#/$defs/d0"}), "branch so often");
}

#[test]
fn references_that_go_in_a_circle_end() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        json!({"anyOf": [{"type": "string"}, {"$ref": "#"}]}),
        json!({"dependentSchemas": {"a": {"$ref": "#"}}}),
        json!({"$dynamicAnchor": "x", "allOf": [{"$dynamicRef": "#x"}]}),
        json!({"$id": "http://example.com/x", "if": {"type": "object"}, "then": {"$ref": "http://example.com/x"}}),
    ] {
        let schema = compiled(schema);
        assert!(schema.is_valid(&json!({"a": 1})));
        assert!(matches!(schema.locate(&pattern("/a/b/**")), Location::Legal(_)));
        drop(schema.fragment(&pattern("/**")));
    }
}

#[test]
fn violations_say_where_by_which_keyword_what_was_expected_and_what_was_found() {
    let check = |schema: Value, instance: Value, expected: &[(&str, &str, Value, Value, &str)]| {
        let violations = compiled(schema.clone()).violations(&instance, 20);
        let said = violations.iter().map(|violation| {
            assert_eq!(violation.code, crate::rejection::Code::SchemaViolation);
            (
                violation.pointer.as_str(),
                violation.rule.as_deref().expect("the keyword is named"),
                violation.expected.clone().unwrap_or_default(),
                violation.found.clone().expect("what was found is shown"),
                violation.message.as_str(),
            )
        });
        assert_eq!(said.collect::<Vec<_>>(), expected, "{schema}");
    };
    check(
        json!({"properties": {"a/b": {"type": "string"}}}),
        json!({"a/b": 1}),
        &[("/a~1b", "type", json!("string"), json!(1), "must be of type string")],
    );
    check(
        json!({"required": ["a", "b", "c"], "properties": {"d": {"required": ["e"]}}}),
        json!({"b": 1, "d": {}}),
        &[
            ("", "required", json!(["a", "c"]), json!({"b": 1, "d": {}}), "required members are missing: `a`, `c`"),
            ("/d", "required", json!(["e"]), json!({}), "required members are missing: `e`"),
        ],
    );
    check(
        json!({"properties": {"s": {"$ref": "#/$defs/s"}}, "$defs": {"s": {"enum": ["draft", "verified"]}}}),
        json!({"s": "done"}),
        &[("/s", "enum", json!(["draft", "verified"]), json!("done"), r#"must be one of ["draft","verified"]"#)],
    );
    check(
        json!({"type": ["string", "null"]}),
        json!(1),
        &[("", "type", json!(["null", "string"]), json!(1), "must be of type null or string")],
    );
    check(
        json!({"additionalProperties": false, "properties": {"status": {}, "text": {}}}),
        json!({"statsu": 1, "z": 2}),
        &[(
            "",
            "additionalProperties",
            json!(["status", "text"]),
            json!(["statsu", "z"]),
            "no member may be called `statsu`, `z`; known are `status`, `text`; did you mean `status`?",
        )],
    );
    check(
        json!({"unevaluatedProperties": false, "allOf": [{"properties": {"a": {}}}, {"$ref": "#/$defs/b"}], "$defs": {"b": {"properties": {"b": {}}}}}),
        json!({"c": 1}),
        &[(
            "",
            "unevaluatedProperties",
            json!(["a", "b"]),
            json!(["c"]),
            "no member may be called `c`; known are `a`, `b`",
        )],
    );
    check(
        json!({"anyOf": [{"type": "string"}, {"properties": {"a": {"minimum": 3}}}]}),
        json!({"a": 1}),
        &[(
            "",
            "anyOf",
            json!([{"type": "string"}, {"properties": {"a": {"minimum": 3}}}]),
            json!({"a": 1}),
            "none of the alternatives fits: (1) must be of type string; (2) a: must be at least 3",
        )],
    );
    check(
        json!({"prefixItems": [true], "items": false}),
        json!([1, 2]),
        &[("/1", "items", json!(false), json!(2), "nothing is allowed here")],
    );
    check(
        json!({"properties": {"items": false}}),
        json!({"items": 2}),
        &[("/items", "falseSchema", json!(false), json!(2), "nothing is allowed here")],
    );
    check(
        json!({"dependentRequired": {"a": ["b"]}, "minProperties": 2}),
        json!({"a": 1}),
        &[
            ("", "minProperties", json!(2), json!({"a": 1}), "must have at least 2 members"),
            ("", "dependentRequired", json!(["b"]), json!({"a": 1}), "required members are missing: `b`"),
        ],
    );
    check(
        json!({"propertyNames": {"pattern": "^a"}}),
        json!({"b": 1}),
        &[(
            "",
            "propertyNames",
            json!("must match the regular expression ^a"),
            json!({"b": 1}),
            "the names of members are restricted: must match the regular expression ^a",
        )],
    );
}

#[test]
fn long_values_are_described_and_violations_are_bounded() {
    let schema = compiled(json!({"items": {"type": "string"}, "maxItems": 3}));
    let long = Value::from_iter(0..1000);
    let violations = schema.violations(&long, 20);
    assert_eq!(violations.len(), 20);
    let whole = violations.iter().find(|violation| violation.pointer.is_empty());
    if let Some(whole) = whole {
        assert_eq!(whole.found, Some(json!("an array of 1000 elements")));
    }
    assert_eq!(shorten(&long), json!("an array of 1000 elements"));
    assert_eq!(shorten(&json!({"a": "x".repeat(300), "b": 1})), json!("an object of 2 members: `a`, `b`"));
    let text = shorten(&json!("y".repeat(300)));
    assert!(text.as_str().expect("a text").starts_with("a text of 300 characters that begins with \"yyy"), "{text}");
    assert_eq!(shorten(&json!({"a": [1, null]})), json!({"a": [1, null]}));
}

#[test]
fn no_message_holds_a_value_of_the_instance() {
    let schema = compiled(json!({
        "properties": {
            "a": {"const": 1}, "b": {"type": "integer"}, "c": {"pattern": "^x"}, "d": {"enum": [1]}, "e": {"maxLength": 1},
            "f": {"anyOf": [{"const": 1}, {"maxLength": 2}]}, "g": {"not": {"type": "string"}}, "h": {"oneOf": [{}, {}]},
            "i": false, "j": {"items": {"type": "null"}}, "k": {"contains": {"const": 1}},
        },
    }));
    let secret = "hunter2";
    let instance = json!({
        "a": secret, "b": secret, "c": secret, "d": secret, "e": secret, "f": secret, "g": secret, "h": secret,
        "i": secret, "j": [secret], "k": [secret],
    });
    let violations = schema.violations(&instance, 20);
    assert_eq!(violations.len(), 11);
    for violation in violations {
        assert!(!violation.message.contains(secret), "{}", violation.message);
        assert!(!violation.expected.unwrap_or_default().to_string().contains(secret), "{}", violation.pointer);
    }
}
