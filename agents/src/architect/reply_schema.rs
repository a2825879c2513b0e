//! JSON Schema for the answer of an architect.
//!
//! Derived from the published meta-schema, so that both stay consistent. Leaves out what architects may not use
//! ([`super::review`]) or need not (breakers, seeds), and requires what makes a blueprint useful (rules, an end). Uses
//! only the few keywords that constrained decoders support, and is small enough for a server with a short context. It
//! is weaker than the lint: a valid answer may still be rejected.

use patchboard_lint::META_SCHEMA;
use serde_json::{Map, Value, json};

use crate::config::DesignLimits;

/// Order of the members of a blueprint: parts that later ones depend on come first.
pub const ORDER: &[&str] = &[
    "blueprint",
    "name",
    "description",
    "request",
    "state",
    "workers",
    "rules",
    "invariants",
    "done",
    "input",
    "circuit",
    "limits",
    "concurrency",
    "schema",
    "initial",
    "agent",
    "role",
    "reads",
    "writes",
    "view",
    "patch",
    "freshness",
    "trigger",
    "when",
    "run",
    "for",
    "op",
    "path",
    "ops",
    "value",
    "approval",
    "type",
    "required",
    "properties",
    "items",
];

/// Greatest number of rules, invariants, reads and writes that the schema allows.
const ITEMS_MAX: u64 = 16;

/// Members of a blueprint that architects need not write.
const OMITTED_MEMBERS: &str = "backlog boards circuit departments models result seed signals use workflow writers";

/// Members of a worker that architects may not or need not write.
const OMITTED_WORKER_MEMBERS: &str =
    "board command description format group model order pass program restart script with";

/// Keywords of the meta-schema that are kept.
const KEYWORDS: &str = "type properties required additionalProperties items enum const anyOf minimum maximum maxItems";

/// Returns the schema of an answer, with a member `input` if the board's request is wanted as well.
pub fn schema(terms: &DesignLimits, wants_input: bool) -> Value {
    let meta: Value = serde_json::from_str(META_SCHEMA).expect("the meta-schema is part of the kernel and tested");
    let mut root = reduced(&meta, &meta, 0);
    remove(&mut root, "/properties", OMITTED_MEMBERS);
    let worker = "/properties/workers/additionalProperties";
    remove(&mut root, &format!("{worker}/properties"), OMITTED_WORKER_MEMBERS);
    let caps = &terms.caps;
    for (pointer, value) in [
        ("/required".to_owned(), required(wants_input)),
        ("/properties/blueprint".to_owned(), json!({"const": 2})),
        (format!("{worker}/required"), json!(["agent", "role", "reads", "writes"])),
        (format!("{worker}/properties/reads/items"), reduced(&json!({"$ref": "#/$defs/pattern"}), &meta, 0)),
        (format!("{worker}/properties/agent"), json!({"type": "string", "enum": ["llm", "human"]})),
        ("/properties/rules/items/properties/run".to_owned(), reduced(&json!({"$ref": "#/$defs/name"}), &meta, 0)),
        ("/properties/state/required".to_owned(), json!(["schema", "initial"])),
        ("/properties/state/properties/schema".to_owned(), json!({"type": "object"})),
        ("/properties/request".to_owned(), json!({"type": "object"})),
        ("/properties/limits/properties/commits/maximum".to_owned(), caps.commits.into()),
        ("/properties/limits/properties/tokens/maximum".to_owned(), caps.tokens.into()),
    ] {
        if let Some(place) = root.pointer_mut(&pointer) {
            *place = value;
        }
    }
    remove(&mut root, "/properties/rules/items/properties", "priority urgent delay bind");
    // Models keep the word of format 1, `exempt`, which every format has.
    remove(&mut root, &format!("{worker}/properties/limits/properties"), "unmetered_concurrency");
    remove(&mut root, &format!("{worker}/properties/writes/items/properties"), "where");
    remove(&mut root, "/properties/limits/properties", "edits patience journal dedup state_bytes depth");
    // Leaves out schedules and manual rules, because a board that must end cannot wait for them.
    if let Some(Value::Array(forms)) = root.pointer_mut("/properties/rules/items/properties/trigger/anyOf") {
        let is_left_out =
            |form: &Value| ["every", "after_first"].iter().any(|word| form["properties"].get(word).is_some());
        forms.retain(|form| !is_left_out(form));
        if let Some(words) = forms.first_mut().filter(|form| form["enum"].is_array()) {
            *words = json!({"type": "string", "enum": ["start"]});
        }
    }
    if wants_input && let Some(members) = root.pointer_mut("/properties").and_then(Value::as_object_mut) {
        members.insert("input".to_owned(), json!({"type": "object"}));
    }
    root
}

fn required(wants_input: bool) -> Value {
    let always = ["blueprint", "name", "description", "request", "state", "workers", "rules", "invariants", "done"];
    always.into_iter().chain(wants_input.then_some("input")).collect()
}

fn remove(root: &mut Value, pointer: &str, names: &str) {
    if let Some(members) = root.pointer_mut(pointer).and_then(Value::as_object_mut) {
        members.retain(|name, _| !names.split(' ').any(|one| one == name));
    }
}

/// Reduces a part of the meta-schema to fewer keywords, with references inlined.
fn reduced(schema: &Value, meta: &Value, depth: usize) -> Value {
    let Some(members) = schema.as_object() else { return schema.clone() };
    // The meta-schema does not refer to itself; if it ever does, this still terminates.
    if depth > 16 {
        return json!({"type": ["object", "array", "string", "number", "boolean", "null"]});
    }
    if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
        let name = reference.trim_start_matches("#/$defs/");
        return match name {
            "pattern" => json!({"type": "string", "pattern": "^(/([A-Za-z0-9_*-]{1,40}|[{][a-z_]{1,20}[}])){1,8}$"}),
            "duration" => json!({"type": "string", "pattern": "^[1-9][0-9]{0,2}(s|m|h)$"}),
            "name" => json!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"}),
            _ => reduced(&meta["$defs"][name], meta, depth + 1),
        };
    }
    let mut kept = Map::new();
    for (keyword, value) in members {
        let keyword = if keyword == "oneOf" { "anyOf" } else { keyword.as_str() };
        if !KEYWORDS.split(' ').any(|one| one == keyword) {
            continue;
        }
        let value = match (keyword, value) {
            ("properties", Value::Object(all)) => {
                // An architect knows no prices. Questions must expire, so `never` is left out below.
                let all = all.iter().filter(|(name, _)| *name != "money");
                all.map(|(name, schema)| (name.clone(), reduced(schema, meta, depth + 1))).collect()
            }
            ("items" | "additionalProperties", schema) => reduced(schema, meta, depth + 1),
            ("anyOf", Value::Array(all)) => {
                let all = all.iter().filter(|schema| schema.get("const").is_none_or(|word| word != "never"));
                all.map(|schema| reduced(schema, meta, depth + 1)).collect()
            }
            ("maxItems", count) => count.as_u64().unwrap_or(ITEMS_MAX).min(ITEMS_MAX).into(),
            (_, other) => other.clone(),
        };
        kept.insert(keyword.to_owned(), value);
    }
    if kept.contains_key("enum") {
        kept.insert("type".to_owned(), "string".into());
    }
    Value::Object(kept)
}

#[cfg(test)]
mod tests;
