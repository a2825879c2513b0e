//! Reads keywords of JSON Schemas.

use serde_json::Value;

/// Keywords next to or below which other schemas may declare a name.
pub(super) const ELSEWHERE: &str =
    "$ref additionalProperties allOf anyOf dependentSchemas else if oneOf patternProperties then";

pub(super) fn number(schema: &Value, keyword: &str) -> Option<f64> {
    schema.get(keyword).and_then(Value::as_f64)
}

pub(super) fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Returns true if a schema allows no members but those that it names.
pub(super) fn is_closed(schema: &Value) -> bool {
    schema.get("additionalProperties") == Some(&Value::Bool(false)) && schema.get("patternProperties").is_none()
}

/// Returns the types that a schema names, if it names any.
pub(super) fn types_of(schema: &Value) -> Option<Vec<&str>> {
    match schema.get("type")? {
        Value::Array(types) => Some(types.iter().filter_map(Value::as_str).collect()),
        one => Some(vec![one.as_str()?]),
    }
}

/// Returns the values that a schema names by `const` or `enum`; `None` if it names none.
pub(super) fn named_values(schema: &Value) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum").and_then(Value::as_array)) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(values)) => Some(values.iter().collect()),
        (None, None) => None,
    }
}
