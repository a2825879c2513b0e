//! Serializes JSON values with a chosen order of members, as JSON or as YAML for people.
//!
//! Owns the order: listed names come first, as listed, all others after them by name. A model under constrained
//! decoding writes members in the order of its schema, and people read a blueprint from its name to its limits; the
//! map of `serde_json` sorts by name. The kernel's parser reads the output of [`OrderedJson::yaml`] as an equal value.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Line width in characters up to which a container is written on one line of YAML.
const LINE_MAX: usize = 100;

/// A value, with the members that come first in its objects.
#[derive(Clone, Debug)]
pub struct OrderedJson<'a> {
    /// The value.
    pub value: Cow<'a, Value>,
    /// Names in their order; others follow by name.
    pub first: &'a [&'a str],
}

impl<'a> OrderedJson<'a> {
    /// Creates a value with this order of members.
    pub const fn new(value: &'a Value, first: &'a [&'a str]) -> Self {
        Self { value: Cow::Borrowed(value), first }
    }

    /// Serializes as compact JSON.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("a value has string keys and finite numbers")
    }

    /// Serializes as block YAML, short containers on one line; ends with a newline.
    pub fn yaml(&self) -> String {
        let mut text = String::new();
        self.block(&self.value, 0, &mut text);
        text
    }

    fn members<'v>(&self, value: &'v Value) -> Vec<(&'v String, &'v Value)> {
        let mut members: Vec<_> = value.as_object().into_iter().flatten().collect();
        let rank = |name: &str| self.first.iter().position(|first| *first == name).unwrap_or(usize::MAX);
        // Stable, so that other names stay sorted.
        members.sort_by_key(|(name, _)| rank(name));
        members
    }

    fn ordered<'v>(&'v self, value: &'v Value) -> OrderedJson<'v> {
        OrderedJson::new(value, self.first)
    }

    /// Writes a value on lines of its own, `indent` deep.
    fn block(&self, value: &Value, indent: usize, text: &mut String) {
        let pad = " ".repeat(indent);
        match value {
            Value::Object(all) if !all.is_empty() => {
                for (name, member) in self.members(value) {
                    text.push_str(&format!("{pad}{}:", scalar(name)));
                    self.after(member, indent, text);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                for item in items {
                    text.push_str(&format!("{pad}-"));
                    self.after(item, indent, text);
                }
            }
            other => writeln!(text, "{pad}{}", self.flow(other)).expect("a string takes everything"),
        }
    }

    /// Writes a value after a key or a dash: on the same line if it is short.
    fn after(&self, value: &Value, indent: usize, text: &mut String) {
        let flow = self.flow(value);
        let is_scalar = !value.is_object() && !value.is_array();
        // The top level is always in blocks, so that it reads as a list of its parts.
        if is_scalar || indent + flow.chars().count() <= LINE_MAX {
            text.push_str(&format!(" {flow}\n"));
        } else {
            text.push('\n');
            self.block(value, indent + 2, text);
        }
    }

    /// Formats a value on one line.
    fn flow(&self, value: &Value) -> String {
        match value {
            Value::Object(_) => {
                let members = self.members(value);
                let members = members.iter().map(|(name, value)| format!("{}: {}", scalar(name), self.flow(value)));
                format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
            }
            Value::Array(items) => {
                format!("[{}]", items.iter().map(|item| self.flow(item)).collect::<Vec<_>>().join(", "))
            }
            Value::String(text) => scalar(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        }
    }
}

impl Serialize for OrderedJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &*self.value {
            Value::Object(all) => {
                let mut map = serializer.serialize_map(Some(all.len()))?;
                for (name, value) in self.members(&self.value) {
                    map.serialize_entry(name, &self.ordered(value))?;
                }
                map.end()
            }
            Value::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&self.ordered(item))?;
                }
                list.end()
            }
            other => other.serialize(serializer),
        }
    }
}

/// Formats a text for block and flow YAML: plain if nothing in it is ambiguous.
fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.' | ' ' | '$' | '*');
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '$');
    let word = text.to_ascii_lowercase();
    let is_word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&word.as_str());
    if starts && !is_word && !text.ends_with(' ') && text.chars().all(plain) {
        return text.to_owned();
    }
    // A JSON string is a double-quoted scalar; characters that YAML does not print are escaped, too.
    let quoted = serde_json::to_string(text).expect("a string is JSON");
    let mut safe = String::with_capacity(quoted.len());
    for c in quoted.chars() {
        match c {
            '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                write!(safe, "\\u{:04x}", u32::from(c)).expect("a string takes everything");
            }
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests;
