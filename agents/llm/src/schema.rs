//! Derives the JSON Schema of a model's reply from its seat.
//!
//! Three levels: [`SchemaLevel::Derived`], the form that the kernel derives from the seat's contract and its view
//! ([`ReplySchema`]); [`SchemaLevel::Generic`], RFC 6902 with the granted operations; [`SchemaLevel::None`]. If a
//! server rejects one, the next is used. Boards under an ablation ([`patchboard_kernel::ablation`]) have schemas
//! without the disabled part. Without contracts or validation there are operations only, without patches any object,
//! and messages have no schema. A seat with a `format` uses that form's schema ([`patchboard_protocols::blackboard`]).
//! The kernel judges every reply again, even if a server honoured the schema.

use std::collections::BTreeSet;

use patchboard_kernel::ablation::{Component, Interface};
use patchboard_kernel::blueprint::{GrantOp, Intent, Worker, WriteGrant};
use patchboard_kernel::call_context::CallContext;
use patchboard_kernel::reply_schema::ReplySchema;
use patchboard_protocols::blackboard::{self, ReplyFormat};
use serde_json::{Map, Value, json};

/// Keywords that OpenAI's strict mode documents.
const STRICT_KEYWORDS: &str = "type properties required additionalProperties items enum anyOf description pattern \
    format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minItems maxItems const";

/// Keywords that many engines for constrained decoding reject.
const UNSUPPORTED_KEYWORDS: &str = "uniqueItems pattern format minLength maxLength minItems maxItems minimum maximum \
    exclusiveMinimum exclusiveMaximum multipleOf minProperties maxProperties propertyNames patternProperties";

/// Nesting limit for the doubling of objects in a closed schema.
const DOUBLED_MAX: u32 = 3;

/// Nesting limit of objects in strict mode.
const STRICT_DEPTH_MAX: usize = 10;

/// Strictness of the reply schema.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SchemaLevel {
    /// Paths, values and operations.
    Derived,
    /// Operations.
    Generic,
    /// Nothing.
    None,
}

/// Returns the schema of a reply and its level: the requested one, or [`SchemaLevel::Generic`] if the derived form of
/// the seat would be too long.
pub fn reply_schema(shown: &CallContext, level: SchemaLevel) -> Option<(SchemaLevel, Value)> {
    let (plan, mode) = (shown.worker_plan(), &shown.plan().mode);
    if let (Some(format), Interface::Patch) = (ReplyFormat::of_worker(&plan.worker), plan.interface) {
        return match level {
            SchemaLevel::Derived => Some((level, blackboard::reply_schema(shown, format))),
            SchemaLevel::Generic => Some((level, json!({"type": "object"}))),
            SchemaLevel::None => None,
        };
    }
    let generic = || {
        let schema = match plan.interface {
            Interface::Patch if mode.has(Component::Contracts) => generic(&plan.worker),
            Interface::Patch => generic(&with_all_operations(&plan.worker)),
            Interface::Whole | Interface::Merge => json!({"type": "object"}),
            Interface::Message => return None,
        };
        Some((SchemaLevel::Generic, schema))
    };
    let is_derivable =
        plan.interface == Interface::Patch && mode.has(Component::Contracts) && mode.has(Component::Schema);
    match level {
        SchemaLevel::Derived if is_derivable => match ReplySchema::for_call(shown) {
            Some(form) => Some((SchemaLevel::Derived, form.schema)),
            None => generic(),
        },
        SchemaLevel::Derived | SchemaLevel::Generic => generic(),
        SchemaLevel::None => None,
    }
}

/// Returns all schemas that a seat's reply may have, from the richest to the plainest, by their names in reports.
pub fn all_reply_schemas(shown: &CallContext) -> Vec<(&'static str, Value)> {
    let of = |level| reply_schema(shown, level).map(|(_, schema)| schema);
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut schema = of(SchemaLevel::Derived)?;
        change(&mut schema);
        Some(schema)
    };
    let forms = [
        ("derived", of(SchemaLevel::Derived)),
        ("strict", changed(&|schema| close(schema, takes_null(shown)))),
        ("plain", changed(&plain)),
        ("generic", of(SchemaLevel::Generic)),
    ];
    forms.into_iter().filter_map(|(name, schema)| Some((name, schema?))).collect()
}

/// Returns true if optional members of the reply may be null, as in the kernel's envelope.
pub(super) fn takes_null(shown: &CallContext) -> bool {
    shown.worker_plan().interface == Interface::Patch && shown.worker_plan().worker.format.is_none()
}

fn with_all_operations(worker: &Worker) -> Worker {
    let everything =
        WriteGrant { path: "/**".to_owned(), ops: GrantOp::ALL.to_vec(), value: None, approval: None, condition: None };
    Worker { writes: vec![everything], ..worker.clone() }
}

/// Removes keywords that many engines reject from a schema, and rewrites `const` as an `enum` of one value. Descends
/// only into schemas: names of properties are no keywords.
pub(super) fn plain(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else { return };
    members.retain(|keyword, _| UNSUPPORTED_KEYWORDS.split(' ').all(|one| one != keyword));
    if let Some(value) = members.remove("const") {
        members.insert("enum".to_owned(), json!([value]));
    }
    each_part(members, plain);
}

/// Removes keywords that many engines reject, and opens all objects.
pub(super) fn open(schema: &mut Value) {
    fn opened(schema: &mut Value) {
        let Some(members) = schema.as_object_mut() else { return };
        members.remove("additionalProperties");
        each_part(members, opened);
    }
    plain(schema);
    opened(schema);
}

/// Applies a change to the direct subschemas of a schema.
fn each_part(members: &mut Map<String, Value>, change: fn(&mut Value)) {
    for (keyword, value) in members {
        match (keyword.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(all)) => all.values_mut().for_each(change),
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(all)) => all.iter_mut().for_each(change),
            ("items" | "additionalProperties" | "not", value) => change(value),
            _ => {}
        }
    }
}

/// Closes every object of a schema and requires all its members, for servers that accept strict schemas only. Also
/// removes keywords that many engines reject. Optional members stay optional: with `takes_null` they may be null at
/// the root; elsewhere an object has two alternatives, one without its optional members and one with all of them.
pub(super) fn close(schema: &mut Value, takes_null: bool) {
    plain(schema);
    let optional = optional(schema);
    let Some(members) = schema.as_object_mut() else { return };
    close_parts(members, DOUBLED_MAX);
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        if takes_null {
            for name in &optional {
                let property = properties.get_mut(name).map(Value::take);
                properties.insert(name.clone(), json!({"anyOf": [property, {"type": "null"}]}));
            }
        }
        if takes_null || optional.is_empty() {
            let names: Vec<&String> = properties.keys().collect();
            let names = json!(names);
            members.insert("required".to_owned(), names);
        }
        members.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
}

fn optional(schema: &Value) -> Vec<String> {
    let is_required =
        |name: &String| schema["required"].as_array().is_some_and(|list| list.iter().any(|one| one == name));
    let properties = schema["properties"].as_object();
    properties.into_iter().flat_map(Map::keys).filter(|name| !is_required(name)).cloned().collect()
}

fn close_parts(members: &mut Map<String, Value>, doubled: u32) {
    if let Some(alternatives) = members.remove("oneOf") {
        members.entry("anyOf").or_insert(alternatives);
    }
    for (keyword, value) in members {
        match (keyword.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(all)) => {
                all.values_mut().for_each(|schema| close_at(schema, doubled));
            }
            ("anyOf" | "allOf" | "prefixItems", Value::Array(all)) => {
                all.iter_mut().for_each(|schema| close_at(schema, doubled));
            }
            ("items", value) => close_at(value, doubled),
            _ => {}
        }
    }
}

fn close_at(schema: &mut Value, doubled: u32) {
    let optional = optional(schema);
    let Some(members) = schema.as_object_mut() else { return };
    close_parts(members, doubled.saturating_sub(u32::from(!optional.is_empty())));
    let Some(Value::Object(properties)) = members.get("properties") else { return };
    let of = |properties: Map<String, Value>| {
        let mut members = members.clone();
        let names: Vec<&String> = properties.keys().collect();
        members.insert("required".to_owned(), json!(names));
        members.insert("properties".to_owned(), Value::Object(properties));
        members.insert("additionalProperties".to_owned(), Value::Bool(false));
        Value::Object(members)
    };
    let mut least = properties.clone();
    least.retain(|name, _| !optional.contains(name));
    let (least, all) = (of(least), of(properties.clone()));
    *schema = match (optional.is_empty(), doubled) {
        (true, _) => all,
        (false, 0) => least,
        (false, _) => json!({"anyOf": [least, all]}),
    };
}

/// Returns true if a schema uses only the documented part of OpenAI's strict mode. The root must be an object, every
/// object closed with every member required, and other keywords are not allowed.
pub fn is_strict(schema: &Value) -> bool {
    schema["type"] == "object" && is_strict_at(schema, STRICT_DEPTH_MAX)
}

fn is_strict_at(schema: &Value, depth: usize) -> bool {
    let (Some(members), Some(depth)) = (schema.as_object(), depth.checked_sub(1)) else { return false };
    let kinds: Vec<&str> = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    let object = !kinds.contains(&"object") || {
        let properties = schema["properties"].as_object();
        let required =
            |name: &String| schema["required"].as_array().is_some_and(|list| list.iter().any(|one| one == name));
        schema["additionalProperties"] == false && properties.is_some_and(|properties| properties.keys().all(required))
    };
    let array = !kinds.contains(&"array") || members.contains_key("items");
    let says_something = !kinds.is_empty() || members.contains_key("enum") || members.contains_key("anyOf");
    object
        && array
        && says_something
        && members.iter().all(|(keyword, value)| match keyword.as_str() {
            // Depth counts objects.
            "properties" => value.as_object().is_some_and(|all| all.values().all(|schema| is_strict_at(schema, depth))),
            "items" => is_strict_at(value, depth),
            "anyOf" => value.as_array().is_some_and(|all| all.iter().all(|schema| is_strict_at(schema, depth))),
            other => STRICT_KEYWORDS.split(' ').any(|one| one == other),
        })
}

/// Builds an envelope of RFC 6902 with the granted operations.
fn generic(worker: &Worker) -> Value {
    let mut properties = json!({"patch": patch(worker)});
    let mut required = vec!["patch"];
    if worker.patch.intent == Intent::Required {
        properties["intent"] = json!({"type": "string"});
        required.insert(0, "intent");
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn patch(worker: &Worker) -> Value {
    let granted: BTreeSet<&str> = worker.writes.iter().flat_map(WriteGrant::effective_ops).map(written).collect();
    // Some decoders treat an empty schema as one of objects.
    let any = json!({"type": ["object", "array", "string", "number", "boolean", "null"]});
    // One alternative per shape, so that no operation can lack the member it needs.
    let shapes = [
        (&["add", "replace", "test"][..], Some(("value", any))),
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
    json!({"type": "array", "items": items, "maxItems": worker.patch.max_ops})
}

fn operation(ops: &[&str], member: Option<(&str, Value)>) -> Value {
    let mut properties = json!({"op": {"type": "string", "enum": ops}, "path": {"type": "string"}});
    let mut required = vec!["op", "path"];
    if let Some((name, schema)) = member {
        properties[name] = schema;
        required.push(name);
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// Returns the RFC 6902 operation that uses a grant.
const fn written(op: GrantOp) -> &'static str {
    match op {
        // An insertion is an `add` at an existing index.
        GrantOp::Add | GrantOp::Insert => "add",
        GrantOp::Replace => "replace",
        GrantOp::Remove => "remove",
        GrantOp::Move => "move",
        GrantOp::Copy => "copy",
    }
}

#[cfg(test)]
mod tests;
