//! Resolution of state-schema definitions in the value schemas of grants.

use serde_json::{Map, Value};

/// Returns a value schema, with the state schema's definitions added if it refers to some and has none.
pub(super) fn with_definitions(value: &Value, state_schema: &Value) -> Value {
    let (Some(members), Some(state)) = (value.as_object(), state_schema.as_object()) else { return value.clone() };
    let mut complete = members.clone();
    for part in ["$defs", "definitions"] {
        if let Some(definitions) = state.get(part)
            && !members.contains_key(part)
            && refers_to(value, &format!("#/{part}/"))
        {
            complete.insert(part.to_owned(), definitions.clone());
            inherit(&mut complete, state);
        }
    }
    Value::Object(complete)
}

/// Copies `$schema` and `$id` of the state schema, because its definitions may depend on them.
fn inherit(complete: &mut Map<String, Value>, state: &Map<String, Value>) {
    for keyword in ["$schema", "$id"] {
        if let Some(value) = state.get(keyword) {
            complete.entry(keyword).or_insert_with(|| value.clone());
        }
    }
}

/// Returns true if a `$ref` in a schema begins with this text.
fn refers_to(schema: &Value, prefix: &str) -> bool {
    // Uses an explicit stack: the schema's depth has not been checked yet.
    let mut pending = vec![schema];
    while let Some(value) = pending.pop() {
        match value {
            Value::Object(members) => {
                if members.get("$ref").and_then(Value::as_str).is_some_and(|target| target.starts_with(prefix)) {
                    return true;
                }
                pending.extend(members.values());
            }
            Value::Array(items) => pending.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}
