//! Incremental validation: the parts that a change revalidates, and the report on schemas that require more.
//!
//! `tests/it/differential` shows that the verdicts are correct.

use std::sync::Arc;

use jsonptr::PointerBuf;
use serde_json::{Value, json};

use crate::digest::{Hasher, Salt};
use crate::schema::StateSchema;
use crate::tree::{Edit, Node, Revision};

fn compiled(schema: Value) -> StateSchema {
    StateSchema::compile(&schema, false).unwrap_or_else(|error| panic!("{schema}: {error}"))
}

fn edit(at: Revision) -> Edit {
    Edit { revision: at, hasher: Arc::new(Hasher::new(&Salt([3; 32]))) }
}

fn place(text: &str) -> PointerBuf {
    PointerBuf::parse(text).expect("a pointer of a test is well-formed")
}

/// Returns a tree in which version 1 has replaced a value.
fn replaced(before: &Value, at: &str, value: &Value) -> Node {
    let mut tree = Node::from_value(before, &edit(0));
    tree.replace(&place(at), Node::from_value(value, &edit(1)), &edit(1));
    tree
}

#[test]
fn revalidation_skips_untouched_parts() {
    let element = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "if": {"required": ["m"]},
        "then": {"properties": {"m": {"type": "string"}}}});
    let schema = compiled(json!({
        "required": ["gone"], "minProperties": 9,
        "properties": {"list": {"items": element, "maxItems": 1}, "map": {"additionalProperties": element}},
    }));
    // Violates the schema in every part that is not revalidated.
    let before = json!({"list": [{"n": 1}, {"n": "x"}, {"m": 1}], "map": {"a": {"n": 1}, "b": {"n": "x", "m": 1}}});
    for (at, value, holds) in [
        ("/list/0/n", json!(2), true),
        ("/list/0/n", json!("x"), false),
        ("/list/0", json!({"m": 1}), false),
        ("/list/1/n", json!(2), true),
        // Checks that span the whole element run again, and find its existing errors.
        ("/list/2/m", json!(2), false),
        ("/map/a", json!({}), true),
        ("/map/b/n", json!(1), false),
    ] {
        let tree = replaced(&before, at, &value);
        assert_eq!(schema.is_valid_since(&tree, 0), holds, "{at} {value}");
        assert_eq!(schema.violations_since(&tree, 0, 9).is_empty(), holds, "{at} {value}");
        assert!(schema.is_valid_since(&tree, 1), "nothing is newer than version 1");
        assert!(!schema.is_valid_tree(&tree));
    }
    let mut longer = Node::from_value(&before, &edit(0));
    longer.insert(&place("/list/-"), Node::from_value(&json!({}), &edit(1)), &edit(1));
    assert!(!schema.is_valid_since(&longer, 0), "how many there are is asked when one came");
}

#[test]
fn violations_are_reported_as_of_the_whole_document() {
    let schema = compiled(json!({
        "properties": {"claims": {"items": {"$ref": "#/$defs/claim"}}},
        "$defs": {"claim": {
            "type": "object", "required": ["id", "text"], "additionalProperties": false,
            "properties": {"id": true, "text": true, "status": {"enum": ["draft"]}},
            "propertyNames": {"maxLength": 6},
            "anyOf": [{"properties": {"status": {"const": "draft"}}}, {"required": ["note"]}],
        }},
    }));
    let claim = json!({"id": 1, "text": "t"});
    let before = json!({"claims": [claim, claim]});
    for (at, value) in [
        ("/claims/1", json!({"id": 1})),
        ("/claims/1", json!({})),
        ("/claims/1", json!([])),
        ("/claims/0", json!({"id": 1, "text": "t", "status": "x", "unknown": 1})),
        ("/claims", json!([{}, {"statu": 1}])),
    ] {
        let tree = replaced(&before, at, &value);
        let whole = schema.violations(&tree.to_value(), 20);
        assert!(!whole.is_empty());
        assert_eq!(schema.violations_since(&tree, 0, 20), whole, "{at} {value}");
        assert_eq!(schema.violations_since(&tree, 0, 1), whole[..1], "{at} {value}");
    }
    // The order of errors may differ if a part of the schema is validated separately.
    let mut tree = Node::from_value(&before, &edit(0));
    tree.insert(&place("/claims/1/statuses"), Node::Null, &edit(1));
    tree.insert(&place("/claims/1/status"), Node::text("final"), &edit(1));
    tree.remove(&place("/claims/1/text"), &edit(1));
    let sorted = |mut violations: Vec<crate::rejection::Violation>| {
        violations.sort_by_key(|violation| format!("{violation:?}"));
        violations
    };
    let whole = sorted(schema.violations(&tree.to_value(), 20));
    assert_eq!(whole.len(), 5, "{whole:#?}");
    assert_eq!(sorted(schema.violations_since(&tree, 0, 20)), whole);
}

#[test]
fn a_tuple_is_revalidated_when_its_elements_shift() {
    let tuple =
        json!({"prefixItems": [{"type": "integer"}, {"type": ["string", "integer"]}], "items": {"type": "string"}});
    let schema = compiled(json!({"properties": {"tuple": tuple}}));
    let value = json!({"tuple": [1, 2, "c", "d"]});
    let before = Node::from_value(&value, &edit(0));
    for (index, insert, holds) in [
        ("0", Some(json!(0)), false),
        ("1", Some(json!("b")), false),
        ("2", Some(json!("b")), true),
        ("-", Some(json!("e")), true),
        ("-", Some(json!(3)), false),
        ("0", None, true),
        ("1", None, true),
        ("3", None, true),
    ] {
        let mut tree = before.clone();
        let at = place(&format!("/tuple/{index}"));
        match &insert {
            Some(value) => tree.insert(&at, Node::from_value(value, &edit(1)), &edit(1)),
            None => drop(tree.remove(&at, &edit(1))),
        }
        assert_eq!(schema.is_valid(&tree.to_value()), holds, "{index} {insert:?}");
        assert_eq!(schema.is_valid_since(&tree, 0), holds, "{index} {insert:?}");
    }
    // Two removals at the front: the third element is now first, the fourth second.
    let mut tree = before;
    tree.remove(&place("/tuple/0"), &edit(1));
    tree.remove(&place("/tuple/0"), &edit(2));
    assert!(schema.is_valid_since(&tree, 1) == schema.is_valid(&tree.to_value()));
    assert!(!schema.is_valid_since(&tree, 0), "a text is first now");
}

#[test]
fn a_schema_that_cannot_be_followed_is_validated_whole() {
    for (schema, opaque) in [
        (json!({"properties": {"a": {"$ref": "#"}}}), false),
        (json!({"properties": {"a": {"$ref": "#x"}}, "$defs": {"x": {"$anchor": "x", "type": "object"}}}), false),
        (
            json!({"$id": "https://example.org/a", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}}),
            false,
        ),
        (json!({"unevaluatedProperties": false, "properties": {"a": true}}), true),
        (json!({"properties": {"a": {"unevaluatedProperties": false}}}), false),
        (json!({"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"allOf": [{"$ref": "#/$defs/x"}]}}}), true),
        (json!({"properties": {"a": {"$id": "https://example.org/a"}}}), true),
        (json!({"properties": {"b": {"properties": {"a": {"$id": "https://example.org/a"}}}}}), false),
        (
            json!({"$dynamicAnchor": "n", "properties": {"a": {"$dynamicRef": "#n"}}, "$defs": {"x": {"$id": "x", "$dynamicAnchor": "n"}}}),
            true,
        ),
        (json!({"$dynamicAnchor": "n", "properties": {"a": {"$dynamicRef": "#n"}}}), false),
        (json!({"properties": {"a": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}}), false),
        (json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}), true),
        (json!({"properties": {"a": {"$comment": "x", "const": "patchboard:///state"}}}), true),
    ] {
        assert_eq!(compiled(schema.clone()).is_opaque(), opaque, "{schema}");
    }
}

#[test]
fn places_that_cost_more_than_a_write_are_named() {
    let check = |schema: Value, expected: &[(&str, &str, Option<&str>)]| {
        let costs = compiled(schema.clone()).costs();
        let found: Vec<_> =
            costs.iter().map(|cost| (cost.place.as_str(), cost.keyword.as_str(), cost.collection.as_deref())).collect();
        assert_eq!(found, expected, "{schema}");
        for cost in &costs {
            assert!(schema.pointer(&cost.pointer).is_some(), "{cost:?}");
        }
    };
    let list = |keywords: Value| json!({"properties": {"list": keywords}});
    check(list(json!({"items": {"type": "string"}, "maxItems": 9})), &[]);
    check(list(json!({"contains": {"const": 1}})), &[("/list", "contains", Some("/list"))]);
    check(list(json!({"contains": {"const": 1}, "maxItems": 9})), &[("/list", "contains", None)]);
    check(list(json!({"contains": {"const": 1}, "type": "object"})), &[]);
    check(list(json!({"uniqueItems": true})), &[("/list", "uniqueItems", Some("/list"))]);
    // An alternative that inspects members by name costs no more than those members.
    let choice = json!({"anyOf": [{"required": ["a"]}, {"properties": {"b": {"const": 1}}}]});
    check(list(json!({"items": choice})), &[("/list/*", "anyOf", None)]);
    let deep = json!({"not": {"properties": {"tags": {"items": {"const": 1}}}}});
    check(list(json!({"items": deep})), &[("/list/*", "not", Some("/list/*/tags"))]);
    let bounded = json!({"allOf": [{"properties": {"tags": {"maxItems": 5}}}], "not": deep["not"]});
    check(list(json!({"items": bounded})), &[("/list/*", "not", None)]);
    let map = json!({"if": {"additionalProperties": {"type": "string"}}, "else": false});
    check(map.clone(), &[("", "else", None), ("", "if", Some(""))]);
    check(json!({"allOf": [map, {"maxProperties": 4}]}), &[("", "else", None), ("", "if", None)]);
    check(
        json!({"properties": {"a": true}, "unevaluatedProperties": false, "type": "object"}),
        &[("", "unevaluatedProperties", None)],
    );
    check(
        json!({"properties": {"a": {"items": {}}}, "unevaluatedProperties": false}),
        &[("", "unevaluatedProperties", Some("/a"))],
    );
    // The whole document is one opaque place; the report names the first reference that causes it.
    let dynamic = json!({
        "$dynamicAnchor": "n",
        "properties": {"a": {"items": {"$dynamicRef": "#n"}}},
        "$defs": {"x": {"$id": "x", "$dynamicAnchor": "n"}}
    });
    check(dynamic.clone(), &[("", "$dynamicRef", Some("/a"))]);
    assert_eq!(compiled(dynamic).costs()[0].pointer, "/properties/a/items/$dynamicRef");
    // Recursive schemas terminate.
    check(
        json!({"properties": {"next": {"$ref": "#"}}, "oneOf": [{"required": ["next"]}, {"maxProperties": 0}]}),
        &[("", "oneOf", None), ("/next", "oneOf", None), ("/next/next", "oneOf", None)],
    );
}
