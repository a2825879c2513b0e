//! Placeholders of redacted values and names: salted commitments.

use serde_json::Value;

use crate::digest::Hasher;

pub(crate) const PLACEHOLDER_PREFIX: &str = "$redacted:";

/// Returns the placeholder for a redacted value: a text, independent of the value's type.
pub(crate) fn placeholder(hasher: &Hasher, value: &Value) -> Value {
    // Separates the commitment domain: no record has this number.
    Value::String(format!("{PLACEHOLDER_PREFIX}{}", hasher.commitment(u64::MAX, "", value)))
}

/// Returns the placeholder for the name of a member.
pub(crate) fn name_placeholder(hasher: &Hasher, name: &str) -> String {
    let digest = hasher.commitment(u64::MAX, "name", &Value::from(name)).to_string();
    format!("{PLACEHOLDER_PREFIX}{}", &digest[..32])
}

/// Returns true if a text is a placeholder.
pub fn is_placeholder(text: &str) -> bool {
    text.starts_with(PLACEHOLDER_PREFIX)
}
