//! The JSON Schema that the reply of a seat with a `format` is held to: what its role says, or that it passes.
//!
//! As in the forms of patches, nothing is allowed by it: what is made of the reply is judged as ever. It tells of the
//! document only what the state schema says.

use patchboard_kernel::blueprint::{Format, Occasion};
use patchboard_kernel::pattern::Pattern;
use patchboard_kernel::shown::Shown;
use serde_json::{Map, Value, json};

/// Experts that a reply may name.
const EXPERTS_MAX: usize = 3;
/// The most names that are listed.
const NAMES_MAX: usize = 64;

/// The schema of the reply of a seat to what it was shown.
pub fn of_reply(shown: &Shown, format: Format) -> Value {
    let worker = &shown.seat().worker;
    let said = match Occasion::of(shown.woken_at()) {
        Occasion::Own => own(shown, format),
        Occasion::Room | Occasion::Ballot => object(&[("output", text())]),
    };
    if worker.pass { json!({"anyOf": [said, object(&[("pass", text())])]}) } else { said }
}

fn own(shown: &Shown, format: Format) -> Value {
    let list = |name: &str, members: [&str; 2]| {
        let entry = object(&members.map(|member| (member, text())));
        let entries =
            json!({"type": "array", "items": entry, "minItems": 1, "maxItems": shown.seat().worker.patch.max_ops});
        object(&[(name, entries)])
    };
    match format {
        Format::Generator => {
            json!({"type": "object", "additionalProperties": text(), "minProperties": 1, "maxProperties": EXPERTS_MAX})
        }
        Format::Control => {
            let names = json!({"type": "array", "items": name(shown), "minItems": 1});
            object(&[("chosen agents", names)])
        }
        Format::Planner => object(&[("[problem]", text()), ("[planning]", text())]),
        Format::Critic => list("critic list", ["wrong message", "explanation"]),
        Format::Cleaner => list("clean list", ["useless message", "explanation"]),
        Format::ConflictResolver => list("conflict list", ["agent", "message"]),
        Format::Decider | Format::Expert => object(&[("output", text())]),
    }
}

/// The name of somebody who can be chosen: one of those that the state schema lists.
fn name(shown: &Shown) -> Value {
    let pattern = Pattern::parse("/rounds/*/agents/*").ok();
    let fragment = pattern.and_then(|pattern| shown.plan().schema.fragment(&pattern)).unwrap_or_default();
    let names = fragment.get("enum").and_then(Value::as_array);
    match names.filter(|names| (1..=NAMES_MAX).contains(&names.len()) && names.iter().all(Value::is_string)) {
        Some(names) => json!({"type": "string", "enum": names}),
        None => text(),
    }
}

fn text() -> Value {
    json!({"type": "string"})
}

/// An object of exactly these members.
fn object(members: &[(&str, Value)]) -> Value {
    let required: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
    let properties: Map<String, Value> =
        members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
