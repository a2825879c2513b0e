//! Places of a schema, and the schema excerpts shown for them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{compiled, pattern};
use crate::pattern::Pattern;
use crate::schema::*;

/// Returns a schema typical of blueprints.
fn review() -> Schema {
    compiled(json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "answer": {"type": "string"},
            "claims": {"type": "array", "items": {"$ref": "#/$defs/claim"}},
            "notes": {"type": "object", "patternProperties": {"^n-": {"type": "string"}}, "additionalProperties": false},
            "free": {},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "object"}], "items": false},
            "shape": {"oneOf": [
                {"type": "object", "properties": {"radius": {"type": "number"}}, "additionalProperties": false},
                {"type": "object", "properties": {"width": {"type": "number"}}, "additionalProperties": false},
            ]},
            "tree": {"$ref": "#/$defs/tree"},
            "never": false,
        },
        "$defs": {
            "claim": {
                "type": "object",
                "required": ["id"],
                "properties": {"id": {"type": "string"}, "status": {"enum": ["draft", "verified"]}},
                "additionalProperties": false,
            },
            "tree": {
                "type": "object",
                "properties": {"left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}, "leaf": {"type": "string"}},
                "additionalProperties": false,
            },
        },
    }))
}

#[test]
fn a_place_is_legal_if_the_schema_leaves_room_for_it() {
    let schema = review();
    let legal = |text: &str, fragments: &[&str]| {
        let expected = Location::Legal(fragments.iter().map(|&pointer| pointer.to_owned()).collect());
        assert_eq!(schema.locate(&pattern(text)), expected, "{text}");
    };
    legal("", &[""]);
    legal("/answer", &["/properties/answer"]);
    legal("/claims/-", &["/properties/claims/items"]);
    legal("/claims/0", &["/properties/claims/items"]);
    legal("/claims/*", &["/properties/claims/items"]);
    legal("/claims/*/status", &["/$defs/claim/properties/status"]);
    legal("/notes/n-1", &["/properties/notes/patternProperties/^n-"]);
    legal("/notes/*", &["/properties/notes/patternProperties/^n-"]);
    legal("/free", &[]);
    legal("/free/x/0/y/-", &[]);
    legal("/counts/x", &["/properties/counts/additionalProperties"]);
    legal("/pair/0", &["/properties/pair/prefixItems/0"]);
    legal("/pair/-", &["/properties/pair/prefixItems/0", "/properties/pair/prefixItems/1"]);
    legal("/pair/1/x", &[]);
    legal("/shape/radius", &["/properties/shape/oneOf/0/properties/radius"]);
    legal("/shape/width", &["/properties/shape/oneOf/1/properties/width"]);
    legal("/tree/left/right/left/leaf", &["/$defs/tree/properties/leaf"]);
    legal("/tree/**/leaf", &["/$defs/tree/properties/leaf"]);
}

#[test]
fn a_place_that_can_never_be_an_array_is_known() {
    let schema = review();
    for (text, expected) in [
        ("/claims", true),
        ("/free", true),
        ("/free/x", true),
        ("/pair", true),
        ("/nowhere", true),
        ("", false),
        ("/answer", false),
        ("/counts", false),
        ("/claims/*", false),
        ("/shape", false),
        ("/tree/**", false),
    ] {
        assert_eq!(schema.may_be_array(&pattern(text)), expected, "{text}");
    }
    let either = compiled(json!({"anyOf": [{"type": "object"}, {"type": ["array", "null"]}]}));
    assert!(either.may_be_array(&pattern("")));
    let never = compiled(json!({"allOf": [{"type": ["object", "array"]}, {"type": ["object", "null"]}]}));
    assert!(!never.may_be_array(&pattern("")));
}

#[test]
fn an_illegal_place_is_reported_with_the_names_that_would_be_right() {
    let schema = review();
    let illegal = |text: &str, legal_prefix: &str, known: &[&str]| {
        let known = known.iter().map(|&name| name.to_owned()).collect();
        let patterns = if legal_prefix == "/notes" { vec!["^n-".to_owned()] } else { Vec::new() };
        let expected = Location::Illegal { legal_prefix: legal_prefix.to_owned(), known, patterns };
        assert_eq!(schema.locate(&pattern(text)), expected, "{text}");
        if !text.contains('*') {
            let pointer = Pointer::parse(text).expect("a pattern without signs is a pointer");
            assert_eq!(schema.locate_pointer(pointer), expected, "{text}");
        }
    };
    let top = ["answer", "claims", "counts", "free", "notes", "pair", "shape", "tree"];
    illegal("/claim", "", &top);
    illegal("/never", "", &top);
    illegal("/-", "", &top);
    illegal("/claims/first", "/claims", &["-"]);
    illegal("/claims/*/sttus", "/claims/*", &["id", "status"]);
    illegal("/claims/0/id/x", "/claims/0/id", &[]);
    illegal("/answer/0", "/answer", &[]);
    illegal("/notes/x", "/notes", &[]);
    illegal("/notes/-", "/notes", &[]);
    illegal("/counts/x/y", "/counts/x", &[]);
    illegal("/pair/2", "/pair", &["-", "0", "1"]);
    illegal("/pair/01", "/pair", &["-", "0", "1"]);
    illegal("/pair/99999999999999999999999999", "/pair", &["-", "0", "1"]);
    illegal("/shape/height", "/shape", &["radius", "width"]);
    illegal("/tree/**/stem", "/tree/**", &["leaf", "left", "right"]);
}

#[test]
fn conjunctions_alternatives_and_conditions_are_weighed() {
    let check = |schema: Value, legal: &[&str], illegal: &[&str]| {
        let compiled = compiled(schema.clone());
        for text in legal {
            assert!(matches!(compiled.locate(&pattern(text)), Location::Legal(_)), "{text} in {schema}");
        }
        for text in illegal {
            assert!(matches!(compiled.locate(&pattern(text)), Location::Illegal { .. }), "{text} in {schema}");
        }
    };
    let closed = |names: &[&str]| {
        let properties = names.iter().map(|&name| (name.to_owned(), json!({}))).collect::<serde_json::Map<_, _>>();
        json!({"properties": properties, "additionalProperties": false})
    };
    // Each part of an `allOf` has its own `additionalProperties`.
    check(json!({"allOf": [closed(&["a", "b"]), closed(&["b", "c"])]}), &["/b"], &["/a", "/c"]);
    check(json!({"anyOf": [closed(&["a"]), closed(&["b"])]}), &["/a", "/b"], &["/c"]);
    check(json!({"anyOf": [closed(&["a"]), closed(&["b"])], "properties": {"a": false}}), &["/b"], &["/a"]);
    check(json!({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": false}), &["/a"], &["/b"]);
    check(
        json!({"oneOf": [{"properties": {"a": {"type": "object", "additionalProperties": false}}}, {"properties": {"b": {}}}], "unevaluatedProperties": false}),
        &["/a", "/b"],
        &["/c", "/a/x"],
    );
    check(
        json!({"if": {"properties": {"kind": {}}}, "then": closed(&["kind", "a"]), "else": closed(&["b"])}),
        &["/a", "/b", "/kind"],
        &["/c"],
    );
    check(json!({"if": true, "then": closed(&["a"])}), &["/a", "/c"], &[]);
    check(
        json!({"properties": {"a": {}}, "dependentSchemas": {"a": {"properties": {"b": {}}}}, "unevaluatedProperties": false}),
        &["/a", "/b"],
        &["/c"],
    );
    // An element matched by `contains` counts as evaluated, and the matching elements depend on the values.
    check(
        json!({"type": "array", "contains": {"type": "object"}, "unevaluatedItems": false}),
        &["/0", "/-", "/1/a"],
        &["/a"],
    );
    check(
        json!({"type": "array", "prefixItems": [{"type": "object"}], "unevaluatedItems": false}),
        &["/0/a", "/-"],
        &["/1"],
    );
    check(json!({"type": ["array", "null"]}), &["/0", "/-"], &["/a"]);
    check(json!({"type": "object"}), &["/0", "/a"], &["/-"]);
    check(json!({"enum": ["a", 1]}), &[""], &["/0", "/a", "/-"]);
    check(json!({"enum": ["a", {"b": 1}]}), &["/b"], &["/-"]);
    check(json!({"const": [1]}), &["/0"], &["/b"]);
    check(json!({"properties": {"a": {"$ref": "#/$defs/no"}}, "$defs": {"no": {"allOf": [false]}}}), &["/b"], &["/a"]);
    check(json!(false), &[], &["", "/a"]);
    check(json!(true), &["", "/a/0/b/-"], &[]);
    let draft = "http://json-schema.org/draft-07/schema#";
    check(
        json!({"$schema": draft, "type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "object"}}),
        &["/0", "/1/x"],
        &["/0/x"],
    );
    check(
        json!({"$schema": draft, "definitions": {"a": {"type": "object"}}, "properties": {"x": {"$ref": "#/definitions/a", "type": "string"}}}),
        &["/x/y"],
        &["/x/-"],
    );
    check(
        json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true, "properties": {"x": {"$recursiveRef": "#"}}, "additionalProperties": false}),
        &["/x/x/x"],
        &["/x/y"],
    );
    check(
        json!({"$dynamicAnchor": "n", "properties": {"x": {"$dynamicRef": "#n"}}, "additionalProperties": false}),
        &["/x/x/x"],
        &["/x/y"],
    );
}

#[test]
fn deep_patterns_end_on_schemas_that_never_do() {
    let schema = review();
    assert!(matches!(schema.locate(&pattern("/**/**/**/nowhere/**")), Location::Legal(_)), "through /free");
    let tree = compiled(json!({
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "leaf": {"type": "string"}},
        "type": "object",
        "additionalProperties": false,
    }));
    assert!(matches!(tree.locate(&pattern("/**/**/**/nowhere/**")), Location::Illegal { .. }));
    assert!(matches!(tree.locate(&pattern("/**/left/**/leaf")), Location::Legal(_)));
    let many = (0..600).map(|at| (format!("m{at}"), json!({"$ref": "#"}))).collect::<serde_json::Map<_, _>>();
    let wide = compiled(json!({"type": "object", "properties": many, "additionalProperties": false}));
    assert!(matches!(wide.locate(&pattern("/*/*/*/*/m5")), Location::Legal(_)));
}

#[test]
fn a_fragment_is_what_a_writer_needs_to_know() {
    let schema = compiled(json!({
        "title": "Board",
        "properties": {
            "claims": {"type": "array", "items": {"$ref": "#/$defs/claim", "description": "One claim."}},
            "title": {"type": "string", "title": "dropped", "examples": [1], "$comment": "dropped"},
            "tree": {"$ref": "#/$defs/tree"},
            "both": {"allOf": [{"properties": {"x": {"minimum": 1}}}, {"properties": {"x": {"maximum": 9}}}]},
            "union": {"anyOf": [
                {"properties": {"x": {"type": "string"}}, "required": ["x"]},
                {"properties": {"x": {"type": "null"}}, "required": ["x"]},
            ]},
            "free": true,
        },
        "$defs": {
            "claim": {"type": "object", "description": "Any claim.", "properties": {"title": {"$ref": "#/properties/title"}}},
            "tree": {"type": "object", "description": "A tree.", "properties": {"left": {"$ref": "#/$defs/tree"}}},
        },
    }));
    let check = |text: &str, expected: Value| {
        assert_eq!(schema.fragment(&pattern(text)).unwrap_or_default(), expected, "{text}");
    };
    check(
        "/claims/-",
        json!({"type": "object", "description": "One claim.", "properties": {"title": {"type": "string"}}}),
    );
    check("/title", json!({"type": "string"}));
    check(
        "/tree",
        json!({"type": "object", "description": "A tree.", "properties": {
            "left": {"$ref": "#/$defs/tree", "description": "A tree."},
        }}),
    );
    check("/both/x", json!({"allOf": [{"minimum": 1}, {"maximum": 9}]}));
    check("/union/x", json!({"anyOf": [{"type": "string"}, {"type": "null"}]}));
    check("/free", Value::Null);
    check("/nowhere/-", Value::Null);
}

#[test]
fn a_fragment_is_never_long() {
    let wide = (0..200).map(|at| (format!("member{at}"), json!({"type": "string"}))).collect::<serde_json::Map<_, _>>();
    let schema = compiled(json!({
        "properties": {
            "wide": {"type": "object", "description": "d".repeat(4000), "properties": wide},
            "refers": {"type": "object", "properties": {"a": {"$ref": "#/properties/wide"}}},
        },
    }));
    for text in ["", "/wide", "/refers", "/refers/a", "/*", "/**"] {
        if let Some(fragment) = schema.fragment(&pattern(text)) {
            assert!(fragment.to_string().len() <= 1600, "{text}: {fragment}");
        }
    }
    let refers = schema.fragment(&pattern("/refers")).expect("something is said of it");
    assert_eq!(refers["properties"]["a"]["$ref"], "#/properties/wide");
    assert_eq!(schema.fragment(&pattern("/wide")).expect("something is said of it")["type"], "object");
}

#[test]
fn the_names_of_a_group_are_shown_however_many_there_are() {
    let names: Vec<String> = (0..100).map(|at| format!("agent_{at}")).collect();
    let described = |chars: usize| {
        let lines: Vec<String> = names.iter().map(|name| format!("{name}: {}", "d".repeat(chars))).collect();
        let agent = json!({"$ref": "#/$defs/group:agents"});
        let room = json!({"type": "object", "properties": {"members": {"type": "array", "items": {"type": "array", "items": {"type": "object",
            "properties": {"who": agent}}}}}});
        compiled(json!({
            "properties": {
                "one": {"$ref": "#/$defs/group:agents"},
                "list": {"type": "array", "items": {"$ref": "#/$defs/group:agents"}},
                "deep": {"type": "object", "description": "d".repeat(2000), "properties": {"room": room}},
            },
            "$defs": {"group:agents": {"enum": names, "description": lines.join("\n")}},
        }))
    };
    for (chars, is_whole) in [(60, true), (250, false)] {
        let schema = described(chars);
        for place in ["/one", "/list/-", "/list/*"] {
            let shown = schema.fragment(&pattern(place)).expect("something is said of it");
            assert_eq!(shown["enum"], json!(names), "{place}");
            let lines: Vec<&str> = shown["description"].as_str().expect("a text").lines().collect();
            assert_eq!(lines.len(), 100);
            // Each description gets an equal share of the available room.
            assert!(lines.iter().all(|line| line.ends_with(if is_whole { 'd' } else { '…' })), "{shown}");
            assert!(lines.iter().all(|line| line.chars().count() <= 121), "{shown}");
        }
        // This also holds if parts are truncated.
        let list = schema.fragment(&pattern("/list")).expect("something is said of it");
        assert_eq!(list["items"]["enum"], json!(names));
        let deep = schema.fragment(&pattern("/deep/room")).expect("something is said of it");
        assert_eq!(deep["properties"]["members"]["items"]["items"]["properties"]["who"]["enum"], json!(names));
    }
}

/// Generates schemas with every keyword that affects places, references included.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(true)),
        Just(json!(false)),
        Just(json!({})),
        prop::sample::select(vec!["object", "array", "integer"]).prop_map(|name| json!({ "type": name })),
        prop::sample::select(vec!["#", "#/$defs/a", "#/$defs/b", "#anchor"]).prop_map(|to| json!({ "$ref": to })),
        Just(json!({"$dynamicRef": "#anchor"})),
        Just(json!({"enum": [1, {"a": 1}, [1]]})),
        Just(json!({"required": ["a"]})),
    ];
    let schema = leaf.prop_recursive(3, 16, 4, |inner| {
        let named = prop::sample::select(vec!["a", "b", "0", "-"]);
        let one = prop::sample::select(vec![
            "additionalProperties",
            "unevaluatedProperties",
            "items",
            "unevaluatedItems",
            "contains",
            "not",
            "if",
            "then",
            "else",
            "propertyNames",
        ]);
        let several = prop::sample::select(vec!["allOf", "anyOf", "oneOf", "prefixItems"]);
        let map = prop::sample::select(vec!["properties", "properties", "patternProperties", "dependentSchemas"]);
        let keyword = prop_oneof![
            (one, inner.clone()),
            (several, prop::collection::vec(inner.clone(), 1..3))
                .prop_map(|(keyword, schemas)| (keyword, json!(schemas))),
            (map, prop::collection::btree_map(named, inner, 0..3)).prop_map(|(keyword, map)| (keyword, json!(map))),
        ];
        prop::collection::vec(keyword, 1..5)
            .prop_map(|keywords| keywords.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    });
    (schema.clone(), schema.clone(), schema).prop_map(|(mut root, a, b)| {
        if let Some(members) = root.as_object_mut() {
            members
                .insert("$defs".into(), json!({"a": a, "b": b, "c": {"$dynamicAnchor": "anchor", "type": "object"}}));
        }
        root
    })
}

fn instances() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(1)), Just(json!("x")), Just(json!(null))];
    leaf.prop_recursive(3, 16, 3, |inner| {
        let name = prop::sample::select(vec!["a", "b", "0", "-"]).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(name, inner, 0..4).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

#[test]
fn a_place_is_plain_if_its_names_are_all_that_matters() {
    let schema = Schema::compile(
        &json!({
            "properties": {
                "claims": {"type": "array", "items": {"$ref": "#/$defs/claim"}},
                "either": {"anyOf": [{"properties": {"a": true}}, false]},
                "tuple": {"type": "array", "prefixItems": [true], "items": true},
                "conditional": {"properties": {"a": {}}, "if": false, "else": {"type": "array"}},
                "free": {"type": "object", "patternProperties": {"^x": true}, "properties": {"a": true}},
            },
            "$defs": {"claim": {"type": "object", "properties": {"text": {}, "gone": false}, "not": {"maxProperties": 0}}},
        }),
        false,
    );
    let schema = schema.expect("it compiles");
    let is_plain = |text: &str| schema.is_plain(jsonptr::Pointer::parse(text).expect("a pointer"));
    for text in ["", "/claims", "/claims/-", "/claims/7", "/claims/0/text"] {
        assert!(is_plain(text), "{text}");
    }
    for text in [
        "/other",
        "/claims/x",
        "/claims/0/gone",
        "/claims/0/x",
        "/either/a",
        "/tuple/0",
        "/free/a",
        "/claims/01",
        "/conditional/a",
    ] {
        assert!(!is_plain(text), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_place_of_a_valid_instance_is_legal(schema in schemas(), instances in prop::collection::vec(instances(), 12)) {
        let Ok(schema) = Schema::compile(&schema, false) else { return Ok(()) };
        for instance in instances {
            for place in pattern("/**").instances_of_value(&instance, 100).into_iter().filter(|place| schema.is_plain(place)) {
                let location = schema.locate_pointer(&place);
                prop_assert!(matches!(location, Location::Legal(_)), "{} of {}: {:?}", place, schema.document(), location);
            }
            prop_assert_eq!(schema.is_valid(&instance), schema.violations(&instance, 3).is_empty());
            if !schema.is_valid(&instance) {
                continue;
            }
            for place in pattern("/**").instances_of_value(&instance, 100) {
                let location = schema.locate_pointer(&place);
                prop_assert!(matches!(location, Location::Legal(_)), "{} of {}: {:?}", place, instance, location);
                let elements = "/*".repeat(place.count());
                let location = schema.locate(&pattern(&elements));
                prop_assert!(matches!(location, Location::Legal(_)), "{} of {}: {:?}", elements, instance, location);
            }
            prop_assert!(matches!(schema.locate(&pattern("/**")), Location::Legal(_)));
        }
        for text in ["", "/*", "/**", "/a/*", "/**/b", "/-"] {
            if let Some(fragment) = schema.fragment(&pattern(text)) {
                prop_assert!(fragment.to_string().chars().count() <= 1500);
            }
        }
    }

    #[test]
    fn no_document_makes_the_compiler_panic(document in instances(), keyword in "[$a-zA-Z]{1,12}") {
        drop(Schema::compile(&document, true));
        drop(Schema::compile(&json!({ keyword: document }), true));
    }
}

#[test]
fn a_place_is_said_to_hold_numbers_where_the_schema_names_them() {
    for (schema, expected) in [
        (json!({"type": "number"}), true),
        (json!({"type": ["number", "null"]}), true),
        (json!({"type": "integer"}), false),
        (json!({}), false),
        (json!({"minimum": 1}), false),
        (json!({"$ref": "#/$defs/price"}), true),
        (json!({"anyOf": [{"type": "string"}, {"$ref": "#/$defs/price"}]}), true),
        (json!({"oneOf": [{"type": "integer"}, {"type": "null"}]}), false),
        (json!({"allOf": [{"type": "number"}, {"minimum": 0}]}), true),
        (json!({"allOf": [{"type": "number"}, {"type": "integer"}]}), false),
        (json!({"not": {"type": "number"}}), false),
        (json!({"if": {"type": "number"}, "then": {"minimum": 1}}), false),
        (json!({"enum": [0.5, 1]}), true),
        (json!({"enum": [1, 2]}), false),
        (json!({"const": 1.5}), true),
        (json!({"type": "integer", "enum": [1.5, 2]}), false),
    ] {
        let document = json!({
            "$defs": {"price": {"type": "number", "minimum": 0}},
            "properties": {"it": schema, "list": {"items": schema}}, "patternProperties": {"^by": {"additionalProperties": schema}},
        });
        let compiled = Schema::compile(&document, false).expect("it compiles");
        for place in ["/it", "/list/*", "/list/0", "/by_name/x", "/by_name/*"] {
            let pattern = Pattern::parse(place).expect("a pattern");
            assert_eq!(compiled.says_number(&pattern), expected, "{place}: {schema}");
        }
    }
    let prefix = json!({"properties": {"pair": {"prefixItems": [{"type": "number"}, {"type": "integer"}]}}});
    let compiled = Schema::compile(&prefix, false).expect("it compiles");
    let says = |place: &str| compiled.says_number(&Pattern::parse(place).expect("a pattern"));
    assert!(says("/pair/0") && !says("/pair/1"));
}
