//! Checks that each problem of a manifest is reported at its place, without further findings.

use serde_json::json;

use super::*;

fn notes() -> Value {
    json!({
        "department": 1, "name": "notes", "description": "Lists of things to buy.",
        "promises": {"entries": {"type": "array"}},
        "storage": {
            "entity": "entry",
            "fields": {
                "list": {"type": "string", "enum": ["household", "office"], "ask": "which list"},
                "item": {"type": "string", "maxLength": 20, "pattern": "^[a-z ]+$"},
                "number": {"type": "integer"},
            },
            "identity": ["list", "item"],
        },
        "actions": {
            "add": {"does": "insert", "sets": ["list", "item"], "confirm": "Put {item} on the {list} list."},
            "remove": {"does": "delete", "finds": ["list", "item"], "confirm": "Took {item} off."},
            "move": {"does": "update", "finds": ["list", "item"], "sets": ["list", "number"], "confirm": "Now on {new_list}: {number}."},
            "show": {"does": "select", "finds": ["list"], "confirm": "On {list}: {rows.item} ({count})."},
        },
        "examples": [{"text": "Throw it off.", "classified": {"action": "remove", "slots": {"item": "bananas"}}}],
        "tests": [{"rows": [{"list": "office"}], "classified": {"action": "show"}, "expect": {"status": "done"}}],
    })
}

fn found(manifest: Value) -> Vec<String> {
    let manifest: Manifest = serde_json::from_value(manifest).expect("a manifest");
    manifest.validation_errors().into_iter().map(|problem| problem.pointer).collect()
}

#[test]
fn a_good_manifest_has_no_problem_and_comes_back_as_it_was_written() {
    assert_eq!(found(notes()), [""; 0]);
    let manifest: Manifest = serde_json::from_value(notes()).expect("a manifest");
    let again = serde_json::from_value(serde_json::to_value(&manifest).expect("JSON")).expect("a manifest");
    assert_eq!(manifest, again);
    let department = manifest.department();
    let again = serde_json::from_value(serde_json::to_value(&department).expect("JSON")).expect("a department");
    assert_eq!(department, again);
}

#[test]
fn manifest_errors_are_reported_at_their_place() {
    for (pointer, value, expected) in [
        ("/department", json!(2), vec!["/department"]),
        ("/name", json!("No\"tes"), vec!["/name"]),
        ("/name", json!("../notes"), vec!["/name"]),
        ("/name", json!("a".repeat(41)), vec!["/name"]),
        ("/description", json!(" "), vec!["/description"]),
        ("/description", json!("a\nb"), vec!["/description"]),
        ("/promises/entries", json!({"type": "string"}), vec!["/promises/entries"]),
        ("/storage/entity", json!(""), vec!["/storage/entity"]),
        ("/storage/identity", json!(["list", "list"]), vec!["/storage/identity/1"]),
        ("/storage/identity", json!(["size"]), vec!["/storage/identity/0", "/actions/add/sets"]),
        ("/storage/identity", json!(["number"]), vec!["/actions/add/sets"]),
        ("/storage/fields/number/pattern", json!("a"), vec!["/storage/fields/number/pattern"]),
        ("/storage/fields/number/maxLength", json!(3), vec!["/storage/fields/number/maxLength"]),
        (
            "/storage/fields/number/enum",
            json!([1, 1, "x"]),
            vec!["/storage/fields/number/enum/1", "/storage/fields/number/enum/2"],
        ),
        ("/storage/fields/item/pattern", json!("("), vec!["/storage/fields/item/pattern"]),
        ("/storage/fields/item/pattern", json!("(a{1000}){1000}"), vec!["/storage/fields/item/pattern"]),
        ("/storage/fields/item/maxLength", json!(100_000), vec!["/storage/fields/item/maxLength"]),
        ("/storage/fields/item/ask", json!(""), vec!["/storage/fields/item/ask"]),
        ("/storage/fields/valid_to", json!({"type": "string"}), vec!["/storage/fields/valid_to"]),
        ("/storage/fields/new_x", json!({"type": "string"}), vec!["/storage/fields/new_x"]),
        ("/storage/fields/x\"; drop", json!({"type": "string"}), vec!["/storage/fields/x\"; drop"]),
        ("/actions/add/finds", json!(["list"]), vec!["/actions/add"]),
        ("/actions/show/sets", json!(["list"]), vec!["/actions/show"]),
        ("/actions/move/finds", json!([]), vec!["/actions/move", "/actions/move/confirm"]),
        (
            "/actions/remove/finds",
            json!(["size"]),
            vec!["/actions/remove/finds/0", "/examples/0/classified/slots/item"],
        ),
        ("/actions/add/confirm", json!(""), vec!["/actions/add/confirm"]),
        ("/actions/add/confirm", json!("{size"), vec!["/actions/add/confirm"]),
        ("/actions/add/confirm", json!("{size}, {rows.size}"), vec!["/actions/add/confirm"; 2]),
        ("/actions/show/confirm", json!("{item}"), vec!["/actions/show/confirm"]),
        ("/resolve", json!({"gap": 2.0}), vec!["/resolve"]),
        ("/examples/0/text", json!(""), vec!["/examples/0/text"]),
        ("/examples/0/classified/action", json!("burn"), vec!["/examples/0/classified/action"]),
        ("/examples/0/classified/slots", json!({"size": 1}), vec!["/examples/0/classified/slots/size"]),
        (
            "/tests/0/rows",
            json!([{"list": "garage"}, {"size": 1}]),
            vec!["/tests/0/rows/0/list", "/tests/0/rows/1/size"],
        ),
        ("/tests/0/expect", json!({}), vec!["/tests/0"]),
    ] {
        let mut manifest = notes();
        let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
        let parent = manifest.pointer_mut(parent).expect("there");
        match parent.as_array_mut() {
            Some(elements) => elements[name.parse::<usize>().expect("an index")] = value.clone(),
            None => parent[name] = value.clone(),
        }
        assert_eq!(found(manifest), expected, "{pointer}: {value}");
    }
}

#[test]
fn a_value_fits_its_field_or_not() {
    let field = |field: Value| serde_json::from_value::<Field>(field).expect("a field");
    let item = field(json!({"type": "string", "maxLength": 4, "pattern": "^[a-zä]+$"}));
    let list = field(json!({"type": "string", "enum": ["a", "b"]}));
    let number = field(json!({"type": "integer"}));
    for (field, value, fits) in [
        (&item, json!("äpfe"), true),
        (&item, json!("apple"), false),
        (&item, json!("A"), false),
        (&item, json!("a\0"), false),
        (&item, json!(1), false),
        (&list, json!("b"), true),
        (&list, json!("c"), false),
        (&number, json!(-3), true),
        (&number, json!(1.5), false),
        (&number, json!(u64::MAX), false),
        (&field(json!({"type": "number"})), json!(1.5), true),
        (&field(json!({"type": "boolean"})), json!(false), true),
        (&field(json!({"type": "boolean"})), Value::Null, false),
    ] {
        assert_eq!(field.value_error(&value).is_none(), fits, "{value}");
    }
}
