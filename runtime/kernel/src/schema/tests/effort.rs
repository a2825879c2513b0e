//! Schemas that validate nested values repeatedly: validation reaches a verdict or is rejected within its work limit.

use std::sync::Arc;

use jsonptr::PointerBuf;
use serde_json::{Value, json};

use super::compiled;
use crate::digest::{Hasher, Salt};
use crate::schema::StateSchema;
use crate::tree::{Edit, Node, Revision};

/// Maximum nesting depth of documents.
const DEEPEST: usize = 60;
const ENDLESS: &str = "validating this would take too long: the schema judges what is nested again and again";
const UNEXPLAINED: &str = "something in here is not valid, and finding it would take too long";

fn edit(at: Revision) -> Edit {
    Edit { revision: at, hasher: Arc::new(Hasher::new(&Salt([3; 32]))) }
}

/// Wraps a value `depth` times.
fn nested(depth: usize, innermost: Value, around: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(innermost, |value, _| around(value))
}

/// Returns the errors of every way to validate a value: as a value, as a tree, and as a change of a tree.
fn said(schema: &Value, value: &Value) -> Vec<String> {
    let (of_values, of_trees) = (compiled(schema.clone()), StateSchema::compile(schema, false).expect("as before"));
    let tree = Node::from_value(value, &edit(0));
    let said = of_values.violations(value, 20);
    assert_eq!(of_values.is_valid(value), said.is_empty());
    assert_eq!(of_trees.is_valid_tree(&tree), said.is_empty());
    let messages = |violations: Vec<crate::rejection::Violation>| -> Vec<String> {
        violations.into_iter().map(|violation| format!("{}: {}", violation.pointer, violation.message)).collect()
    };
    assert_eq!(messages(of_trees.tree_violations(&tree, 20)), messages(said.clone()));
    messages(said)
}

/// Returns the errors after replacing the innermost value at a place of a valid document.
fn said_since(schema: &Value, document: &Value, place: &str, value: Value) -> Vec<String> {
    let schema = StateSchema::compile(schema, false).expect("a schema of a test is good");
    let mut tree = Node::from_value(document, &edit(0));
    assert!(schema.is_valid_tree(&tree), "it was valid before");
    let place = PointerBuf::parse(place).expect("a pointer of a test is well-formed");
    tree.replace(&place, Node::from_value(&value, &edit(1)), &edit(1));
    let said = schema.violations_since(&tree, 0, 20);
    assert_eq!(schema.is_valid_since(&tree, 0), said.is_empty());
    said.into_iter().map(|violation| format!("{}: {}", violation.pointer, violation.message)).collect()
}

/// Returns a schema of nested lists; one schema validates their elements twice.
fn twice(keywords: Value) -> Value {
    let mut list = json!({"type": "array"});
    list.as_object_mut().expect("it is one").extend(keywords.as_object().expect("keywords").clone());
    json!({"$defs": {"n": list}, "$ref": "#/$defs/n"})
}

#[test]
fn lists_that_are_judged_twice_at_each_level_are_judged() {
    let inner = json!({"$ref": "#/$defs/n"});
    for keywords in [
        json!({"allOf": [{"items": inner}, {"items": inner}]}),
        json!({"items": inner, "contains": inner, "minContains": 0}),
        json!({"allOf": [{"prefixItems": [inner]}, {"items": inner}]}),
        json!({"oneOf": [{"items": inner, "maxItems": 0}, {"items": inner, "minItems": 1}]}),
        json!({"if": {"items": inner}, "then": {"items": inner}, "else": {"items": inner}}),
        json!({"items": inner, "unevaluatedItems": inner}),
    ] {
        let schema = twice(keywords);
        let list = |innermost| nested(DEEPEST, innermost, |value| json!([value]));
        assert_eq!(said(&schema, &list(json!([]))), [""; 0], "{schema}");
        // At a small depth, all errors are reported.
        let shallow = said(&schema, &nested(3, json!(1), |value| json!([value])));
        assert!(!shallow.is_empty() && !shallow.iter().any(|said| said.contains("too long")), "{shallow:?}");

        let innermost = "/0".repeat(DEEPEST);
        assert_eq!(said_since(&schema, &list(json!([])), &innermost, json!([[]])), [""; 0], "{schema}");
    }
    let both = twice(json!({"allOf": [{"items": inner}, {"items": inner}]}));
    let refused = said(&both, &nested(DEEPEST, json!(1), |value| json!([value])));
    assert!(refused.len() == 1 && refused[0].contains(UNEXPLAINED), "{refused:?}");
    let list = nested(DEEPEST, json!([]), |value| json!([value]));
    assert!(!said_since(&both, &list, &"/0".repeat(DEEPEST), json!(1)).is_empty());
}

#[test]
fn members_that_are_judged_twice_at_each_level_are_judged() {
    let inner = json!({"$ref": "#"});
    for schema in [
        json!({"type": "object", "properties": {"a": inner}, "patternProperties": {"^a": inner}}),
        json!({"type": "object", "properties": {"a": inner}, "allOf": [{"additionalProperties": inner}]}),
        json!({"type": "object", "anyOf": [{"properties": {"a": inner}, "required": ["b"]}, {"properties": {"a": inner}}]}),
        json!({"type": "object", "properties": {"a": inner}, "dependentSchemas": {"a": {"properties": {"a": inner}}}}),
    ] {
        let objects = |innermost| nested(DEEPEST, innermost, |value| json!({ "a": value }));
        assert_eq!(said(&schema, &objects(json!({}))), [""; 0], "{schema}");
        assert!(!compiled(schema.clone()).is_valid(&objects(json!(1))), "{schema}");
        assert_eq!(said_since(&schema, &objects(json!({})), &"/a".repeat(DEEPEST), json!({"a": {}})), [""; 0]);
    }
}

#[test]
fn a_validation_of_endless_effort_is_rejected() {
    // Results are not cached without recursion.
    let mut chain = json!({"$ref": "#/$defs/n0", "$defs": {"n50": {"type": "array"}}});
    for n in 0..50 {
        let next = json!({"items": {"$ref": format!("#/$defs/n{}", n + 1)}});
        chain["$defs"][format!("n{n}")] = json!({"type": "array", "allOf": [next, next]});
    }
    let deep = nested(50, json!([]), |value| json!([value]));
    let refused = said(&chain, &deep);
    assert!(refused.len() == 1 && refused[0].starts_with(&format!(": {ENDLESS}")), "{refused:?}");
    assert_eq!(said(&chain, &nested(10, json!([]), |value| json!([value]))), [""; 0]);

    // A schema with `unevaluatedProperties` evaluates each of its siblings again, and so do they in turn.
    let seeking = |depth| {
        nested(
            depth,
            json!({"unevaluatedProperties": false, "properties": {"a": true}}),
            |inner| json!({"unevaluatedProperties": false, "allOf": [inner]}),
        )
    };
    assert_eq!(said(&seeking(5), &json!({"a": 1})), [""; 0]);
    assert!(!compiled(seeking(30)).is_valid(&json!({"a": 1})));
}

/// Returns a schema of expressions with ten alternatives, distinguished by their kind; each may have another as `of`.
fn expressions() -> Value {
    let alternative = |n: usize| {
        json!({
            "type": "object", "required": ["kind"], "additionalProperties": false,
            "properties": {"kind": {"const": format!("k{n}")}, "of": {"$ref": "#/$defs/expression"}},
        })
    };
    let alternatives: Vec<Value> = (0..10).map(alternative).collect();
    json!({"$defs": {"expression": {"oneOf": alternatives}}, "$ref": "#/$defs/expression"})
}

#[test]
fn expressions_of_many_kinds_are_judged_at_any_depth() {
    let schema = expressions();
    for depth in [5, 30] {
        let expression = |kind: &str| nested(depth, json!({ "kind": kind }), |of| json!({"kind": "k7", "of": of}));
        assert_eq!(said(&schema, &expression("k9")), [""; 0]);
        let refused = said(&schema, &expression("k10"));
        assert!(refused.len() == 1, "{refused:?}");
        let place = "/of".repeat(depth);
        assert_eq!(said_since(&schema, &expression("k9"), &place, json!({"kind": "k8"})), [""; 0]);
        assert_eq!(said_since(&schema, &expression("k9"), &place, json!({"kind": "k10"})).len(), 1);
    }
    let shallow = nested(3, json!({"kind": "none"}), |of| json!({"kind": "k7", "of": of}));
    let said = said(&schema, &shallow);
    assert!(said[0].contains("exactly one of the alternatives must fit"), "{said:?}");
}

#[test]
fn large_documents_are_validated_whatever_their_size() {
    let numbers =
        json!({"items": {"allOf": [{"type": "integer"}, {"minimum": 0}, {"maximum": 9}]}, "uniqueItems": false});
    let right: Value = vec![1; 300_000].into();
    assert_eq!(said(&numbers, &right), [""; 0]);
    let wrong: Value = vec![-1; 50_000].into();
    let messages = said(&numbers, &wrong);
    assert!(messages.len() == 20 && messages.iter().all(|said| said.contains("must be at least")), "{messages:?}");

    let texts = json!({"items": {"pattern": "^(\\S+\\s+){0,49}\\S+$", "maxLength": 3000}});
    let right: Value = vec!["many words ".repeat(20) + "end"; 3000].into();
    assert_eq!(said(&texts, &right), [""; 0]);

    // In a tree both sides are validated, each once.
    let tree = json!({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "additionalProperties": false});
    let full = nested(14, json!({}), |side| json!({"left": side, "right": side}));
    assert_eq!(said(&tree, &full), [""; 0]);
}

#[test]
fn long_texts_are_not_matched_with_thousands_of_states() {
    // A text of `a` is in all automaton states at once.
    let texts = json!({"items": {"pattern": format!("^({})*$", "(a|ab)?".repeat(200))}});
    for few in ["", "a", "ab", &"a".repeat(100)] {
        assert_eq!(said(&texts, &json!([few, few])), [""; 0], "{}", few.len());
    }
    assert!(said(&texts, &json!(["b"]))[0].contains("must match"));
    // A single match of this takes seconds; the estimate rejects it in advance.
    let long = json!(["a".repeat(1_000_000)]);
    let refused = said(&texts, &long);
    assert!(refused.len() == 1 && refused[0].starts_with(&format!(": {ENDLESS}")), "{refused:?}");

    // Capture groups are copied with each state.
    for (group, is_endless) in [("(a|ab)?", true), ("(?:a|ab)?", false)] {
        let text = json!({"items": {"pattern": format!("^(?:{})*$", group.repeat(200))}});
        let refused = !compiled(text).is_valid(&json!(["a".repeat(300_000)]));
        assert_eq!(refused, is_endless, "{group}");
    }

    // Expressions with few states are matched with texts of any length.
    for pattern in ["^(a|ab)*$", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "^\\S{1,200}"] {
        assert_eq!(said(&json!({"items": {"pattern": pattern}}), &json!(vec!["a".repeat(200_000); 5])), [""; 0]);
    }
}

#[test]
fn thousands_of_alternatives_for_thousands_of_values_are_not_searched_to_the_end() {
    // Every pair would be an error of about a kilobyte, although the whole input has at most a tenth of a megabyte.
    let alternatives: Vec<Value> = (0..2_000).map(|least| json!({"minimum": 10_000 + least})).collect();
    let numbers: Value = (0..2_000).collect::<Vec<_>>().into();
    for keyword in ["oneOf", "anyOf"] {
        let schema = json!({"items": { keyword: alternatives }});
        let refused = said(&schema, &numbers);
        assert!(refused.len() == 1 && refused[0].contains(UNEXPLAINED), "{refused:?}");
        let few: Value = (0..20).collect::<Vec<_>>().into();
        assert!(said(&schema, &few).iter().all(|said| said.contains("alternatives")), "{keyword}");
    }
}
