//! Schemas of every level, checked with a validator.

use super::*;

fn seat(writes: Value) -> Worker {
    serde_json::from_value(json!({"agent": "llm", "writes": writes})).expect("a seat")
}

/// Returns the operations that some alternative of the schema allows.
fn ops(schema: &Value) -> Vec<String> {
    let items = &schema["properties"]["patch"]["items"];
    let alternatives = items["anyOf"].as_array().cloned().unwrap_or_else(|| vec![items.clone()]);
    let names = alternatives.iter().flat_map(|one| one["properties"]["op"]["enum"].as_array().cloned());
    names.flatten().map(|name| name.as_str().expect("a name").to_owned()).collect()
}

#[test]
fn only_the_operations_that_grants_name_and_test_can_be_expressed() {
    for (grants, expected) in [
        (json!([]), vec!["test"]),
        (json!([{"path": "/a"}]), vec!["add", "replace", "test"]),
        (json!([{"path": "/a", "ops": ["insert"]}]), vec!["add", "test"]),
        (
            json!([{"path": "/a", "ops": ["replace"]}, {"path": "/b", "ops": ["remove"]}]),
            vec!["replace", "test", "remove"],
        ),
        (json!([{"path": "/a", "ops": ["move", "copy"]}]), vec!["test", "copy", "move"]),
    ] {
        assert_eq!(ops(&generic(&seat(grants.clone()))), expected, "{grants}");
    }
}

#[test]
fn an_operation_must_have_the_member_it_needs() {
    let schema = generic(&seat(json!([{"path": "/a", "ops": ["add", "remove", "move"]}])));
    let patch = &schema["properties"]["patch"];
    let required: Vec<&Value> =
        patch["items"]["anyOf"].as_array().expect("alternatives").iter().map(|one| &one["required"]).collect();
    assert_eq!(required, [&json!(["op", "path", "value"]), &json!(["op", "path"]), &json!(["op", "path", "from"])]);
    assert_eq!(patch["maxItems"], 8);
}

#[test]
fn the_intent_is_asked_for_where_it_must_be_stated() {
    let mut seat = seat(json!([{"path": "/a"}]));
    assert_eq!(generic(&seat)["required"], json!(["patch"]));
    seat.patch.intent = Intent::Required;
    assert_eq!(generic(&seat)["required"], json!(["intent", "patch"]));
}

#[test]
fn a_plain_schema_keeps_names_that_look_like_keywords() {
    let mut schema = json!({"properties": {"pattern": {"type": "string", "pattern": "a", "minLength": 1},
        "op": {"const": "add"}}, "items": {"anyOf": [{"uniqueItems": true}]}, "maxItems": 3});
    plain(&mut schema);
    let expected =
        json!({"properties": {"pattern": {"type": "string"}, "op": {"enum": ["add"]}}, "items": {"anyOf": [{}]}});
    assert_eq!(schema, expected);
}

#[test]
fn a_closed_schema_is_strict_and_demands_nothing_new() {
    let text = json!({"type": "string", "minLength": 2});
    let open = json!({"type": "object", "properties": {"a": text, "required": {"const": 1, "type": "number"}},
        "required": ["a"]});
    for mut schema in [
        open.clone(),
        json!({"type": "object", "properties": {"patch": {"type": "array", "uniqueItems": true, "items": open}}}),
        json!({"type": "object", "properties": {"x": {"oneOf": [open, text]}}, "additionalProperties": true}),
    ] {
        assert!(!is_strict(&schema), "{schema}");
        close(&mut schema, true);
        assert!(is_strict(&schema), "{schema}");
    }
    let mut envelope = json!({"type": "object", "required": ["patch"], "properties": {
        "patch": {"type": "array", "items": open}, "pass": {"type": "string"}}});
    close(&mut envelope, true);
    let validator = jsonschema::validator_for(&envelope).expect("a schema");
    for (reply, expected) in [
        (json!({"patch": [{"a": "xx"}], "pass": null}), true),
        (json!({"patch": [{"a": "xx", "required": 1}], "pass": null}), true),
        (json!({"patch": [], "pass": "no"}), true),
        (json!({"patch": [{"required": 1}], "pass": null}), false),
        (json!({"patch": [{"a": "xx", "b": 1}], "pass": null}), false),
        (json!({"patch": []}), false),
    ] {
        assert_eq!(validator.is_valid(&reply), expected, "{reply}");
    }
    let mut asked = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    close(&mut asked, false);
    assert_eq!(asked.get("required"), None, "who asks may not take null");
}

#[test]
fn a_closed_schema_of_many_levels_stays_short() {
    let mut schema = json!({"type": "string"});
    for _ in 0..30 {
        schema = json!({"type": "object", "properties": {"a": schema, "b": {"type": "number"}}, "required": ["a"]});
    }
    let before = schema.to_string().len();
    close(&mut schema, true);
    assert!(schema.to_string().len() < 10 * before, "{}", schema.to_string().len());
}

#[test]
fn strict_is_what_closes_every_object_and_asks_for_all_of_it() {
    let closed = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let text = json!({"type": "string"});
    for (schema, expected) in [
        (closed(json!({"a": text}), json!(["a"])), true),
        (closed(json!({"a": text}), json!([])), false),
        (json!({"type": "object", "properties": {"a": text}, "required": ["a"]}), false),
        (closed(json!({"a": {"type": "array", "items": text, "maxItems": 3}}), json!(["a"])), true),
        (closed(json!({"a": {"type": "array", "items": text, "uniqueItems": true}}), json!(["a"])), false),
        (closed(json!({"a": {"type": "array"}}), json!(["a"])), false),
        (closed(json!({"a": {"type": "string", "minLength": 1}}), json!(["a"])), false),
        (closed(json!({"a": {"anyOf": [text, {"enum": ["x"]}]}}), json!(["a"])), true),
        (closed(json!({"a": {"anyOf": [text, {"type": ["object", "string"]}]}}), json!(["a"])), false),
        (closed(json!({"a": {}}), json!(["a"])), false),
        (json!({"type": "array", "items": text}), false),
    ] {
        assert_eq!(is_strict(&schema), expected, "{schema}");
    }
}
