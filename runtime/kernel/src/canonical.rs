//! Canonical JSON (RFC 8785), the form of record headers.
//!
//! Only selects the form. Values of the state are fingerprinted by [`crate::digest`] instead, because this form prints
//! every number as a double.

use serde_json::Value;

/// Returns the canonical text of a value. Integers beyond ±2^53 lose precision in this form (RFC 8785 section 3.2.2.3),
/// so values of the state are fingerprinted by [`crate::digest`] instead.
pub fn to_string(value: &Value) -> String {
    // Headers are plain, and their compact text takes a tenth of the time.
    if is_plain(value) {
        return serde_json::to_string(value).expect("a JSON value has a text");
    }
    sorted(value)
}

fn sorted(value: &Value) -> String {
    serde_json_canonicalizer::to_string(value).expect("a JSON value holds no number that has no canonical text")
}

/// Largest integer such that a double represents it and all smaller ones exactly, 2^53.
const INTEGER_MAX: u64 = 1 << 53;

/// Returns true if the compact text of a value is canonical. All members are in order, by names that sort alike by
/// bytes and UTF-16 units, and all numbers are integers that doubles represent exactly. Both forms escape texts alike.
///
/// Recursion is as deep as the value, like that of serialisation.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => number
            .as_u64()
            .or_else(|| number.as_i64().map(i64::unsigned_abs))
            .is_some_and(|magnitude| magnitude <= INTEGER_MAX),
        Value::Array(items) => items.iter().all(is_plain),
        Value::Object(members) => {
            members.iter().all(|(name, value)| name.is_ascii() && is_plain(value)) && members.keys().is_sorted()
        }
    }
}

#[cfg(test)]
mod tests;
