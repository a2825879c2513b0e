//! From a seat to the JSON Schema that a model's reply is held to.
//!
//! [`of_reply`] is the one place that decides it. What it asks for is generic: the RFC 6902 form with the operations
//! that the seat's grants name. The kernel judges every reply again, whether a server honoured the schema or not.

use std::collections::BTreeSet;

use patchboard_kernel::blueprint::{GrantOp, Intent, Worker, WriteGrant};
use serde_json::{Value, json};

/// The schema of a seat's reply: a patch, or an envelope with an intent where the seat must state one.
pub fn of_reply(seat: &Worker) -> Value {
    let patch = patch(seat);
    match seat.patch.intent {
        Intent::Optional => patch,
        Intent::Required => json!({
            "type": "object",
            "properties": {"intent": {"type": "string"}, "patch": patch},
            "required": ["intent", "patch"],
            "additionalProperties": false,
        }),
    }
}

fn patch(seat: &Worker) -> Value {
    let granted: BTreeSet<&str> = seat.writes.iter().flat_map(WriteGrant::effective_ops).map(written).collect();
    // One alternative for each shape, so that an operation cannot lack the member it needs.
    let shapes = [
        (&["add", "replace", "test"][..], Some(("value", json!({})))),
        (&["remove"][..], None),
        (&["copy", "move"][..], Some(("from", json!({"type": "string"})))),
    ];
    let mut items: Vec<Value> = shapes
        .into_iter()
        .filter_map(|(ops, member)| {
            let ops: Vec<&str> = ops.iter().copied().filter(|op| *op == "test" || granted.contains(op)).collect();
            (!ops.is_empty()).then(|| operation(&ops, member))
        })
        .collect();
    let items = if items.len() == 1 { items.remove(0) } else { json!({"anyOf": items}) };
    json!({"type": "array", "items": items, "maxItems": seat.patch.max_ops})
}

fn operation(ops: &[&str], member: Option<(&str, Value)>) -> Value {
    let mut properties = json!({"op": {"enum": ops}, "path": {"type": "string"}});
    let mut required = vec!["op", "path"];
    if let Some((name, schema)) = member {
        properties[name] = schema;
        required.push(name);
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// The RFC 6902 operation by which a grant is used.
const fn written(op: GrantOp) -> &'static str {
    match op {
        // An insertion is an `add` at an index that exists.
        GrantOp::Add | GrantOp::Insert => "add",
        GrantOp::Replace => "replace",
        GrantOp::Remove => "remove",
        GrantOp::Move => "move",
        GrantOp::Copy => "copy",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(writes: Value) -> Worker {
        serde_json::from_value(json!({"agent": "llm", "writes": writes})).expect("a seat")
    }

    /// Every operation that some alternative of the schema allows.
    fn ops(schema: &Value) -> Vec<String> {
        let items = &schema["items"];
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
            assert_eq!(ops(&of_reply(&seat(grants.clone()))), expected, "{grants}");
        }
    }

    #[test]
    fn an_operation_must_have_the_member_it_needs() {
        let schema = of_reply(&seat(json!([{"path": "/a", "ops": ["add", "remove", "move"]}])));
        let required: Vec<&Value> =
            schema["items"]["anyOf"].as_array().expect("alternatives").iter().map(|one| &one["required"]).collect();
        assert_eq!(required, [&json!(["op", "path", "value"]), &json!(["op", "path"]), &json!(["op", "path", "from"])]);
        assert_eq!(schema["maxItems"], 8);
    }

    #[test]
    fn a_seat_that_must_state_its_intent_is_asked_for_an_envelope() {
        let mut seat = seat(json!([{"path": "/a"}]));
        seat.patch.intent = Intent::Required;
        let schema = of_reply(&seat);
        assert_eq!(schema["required"], json!(["intent", "patch"]));
        assert_eq!(ops(&schema["properties"]["patch"]), ["add", "replace", "test"]);
    }
}
