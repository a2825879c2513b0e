//! Definitions of the state schema in the value schemas of grants.

use serde_json::{Map, Value};

/// A value schema, with the definitions of the state schema if it refers to some and has none.
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

/// Draft and identity of the state schema, without which its definitions may mean something else.
fn inherit(complete: &mut Map<String, Value>, state: &Map<String, Value>) {
    for keyword in ["$schema", "$id"] {
        if let Some(value) = state.get(keyword) {
            complete.entry(keyword).or_insert_with(|| value.clone());
        }
    }
}

/// Whether a `$ref` in a schema begins with this text.
fn refers_to(schema: &Value, prefix: &str) -> bool {
    // A stack of our own: the schema has not been measured yet.
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
