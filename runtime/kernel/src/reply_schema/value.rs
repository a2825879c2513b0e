//! Value schemas, in the subset of JSON Schema that constrained decoders support.
//!
//! [`portable`] drops unsupported keywords, [`intersect`] intersects two schemas without `allOf` where possible, and
//! [`finish`] writes the result in the form that decoders understand best. Each allows at least what its input allows;
//! the kernel still checks what is lost.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::expression;

/// Maximum number of alternatives that a product of schemas may have.
const ALTERNATIVES_MAX: usize = 16;
/// Maximum length of a schema, as JSON, that is multiplied out. Alternatives at one level may contain such a product of
/// the level below, so the length would otherwise multiply with each level.
const MULTIPLIED_MAX: usize = 2 * super::CHARS_MAX;
/// Maximum count (of characters, elements, members) that is required; some decoders reject larger counts.
const COUNT_MAX: u64 = 1000;
/// Maximum length of a value list in a truncated part.
const OUTLINE_MAX: usize = 120;
/// Parts below this depth are unconstrained; the document and patches have the same limit.
const DEPTH_MAX: usize = 64;
/// All types. Some decoders need them where anything is allowed, because they read `{}` as an object.
const TYPES: [&str; 6] = ["object", "array", "string", "number", "boolean", "null"];

/// Formats that decoders support; they reject schemas with other formats.
const FORMATS: [&str; 10] =
    ["date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"];

/// Reduces a schema to the keywords that decoders support. The result allows everything that the schema allows.
///
/// `formats` is true if formats are asserted; otherwise texts of other formats are allowed.
pub(super) fn portable(schema: &Value, formats: bool, depth: usize) -> Value {
    let members = match schema {
        Value::Object(members) if depth < DEPTH_MAX => members,
        Value::Bool(false) => return json!(false),
        _ => return json!({}),
    };
    let below = |schema: &Value| portable(schema, formats, depth + 1);
    let all = |schemas: &Value| schemas.as_array().into_iter().flatten().map(below).collect::<Vec<_>>();
    let mut kept = Map::new();
    for (keyword, value) in members {
        let value = match keyword.as_str() {
            "type" | "enum" | "required" | "description" | "uniqueItems" | "multipleOf" | "minimum" | "maximum"
            | "exclusiveMinimum" | "exclusiveMaximum" => value.clone(),
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
                if value.as_u64().is_some_and(|count| count <= COUNT_MAX) =>
            {
                value.clone()
            }
            "const" => json!([value]),
            "format" if formats && FORMATS.iter().any(|known| value == known) => value.clone(),
            "pattern" if value.as_str().and_then(expression::portable).is_some() => value.clone(),
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                properties.map(|(name, schema)| (name.clone(), below(schema))).collect()
            }
            "additionalProperties" if !members.contains_key("patternProperties") => below(value),
            "prefixItems" => all(value).into(),
            // A tuple, in drafts before 2020-12.
            "items" if value.is_array() => all(value).into(),
            "items" => below(value),
            _ => continue,
        };
        let keyword = match keyword.as_str() {
            "const" => "enum",
            "items" if value.is_array() => "prefixItems",
            other => other,
        };
        let value = match kept.remove(keyword) {
            // A constant and a list of values are intersected.
            Some(other) if keyword == "enum" => intersection(&other, &value),
            _ => value,
        };
        kept.insert(keyword.to_owned(), value);
    }
    if members.contains_key("patternProperties") {
        kept.insert("additionalProperties".into(), json!({}));
    }
    let mut whole = Value::Object(kept);
    for part in members.get("allOf").into_iter().flat_map(all) {
        whole = intersect(whole, part);
    }
    for choice in ["anyOf", "oneOf"] {
        if let Some(branches) = members.get(choice) {
            whole = intersect(whole, any_of(all(branches), Map::new()));
        }
    }
    whole
}

/// Returns a schema of the values that satisfy both.
pub(super) fn intersect(one: Value, other: Value) -> Value {
    let (Value::Object(one), Value::Object(other)) = (one, other) else { return json!(false) };
    if one.is_empty() || other.is_empty() {
        return Value::Object(if one.is_empty() { other } else { one });
    }
    match (alternatives(&one), alternatives(&other)) {
        (None, None) => keywords(one, other),
        (mine, theirs) => {
            let count = |alternatives: Option<&Vec<Value>>| alternatives.map_or(1, Vec::len);
            if count(mine) * count(theirs) > ALTERNATIVES_MAX {
                return all_of(one, Value::Object(other));
            }
            let described: Map<String, Value> =
                one.get("description").map(|text| ("description".to_owned(), text.clone())).into_iter().collect();
            let branches = |schema: &Map<String, Value>| {
                alternatives(schema).cloned().unwrap_or_else(|| vec![Value::Object(schema.clone())])
            };
            let theirs = branches(&other);
            let pairs = branches(&one).into_iter().flat_map(|mine| {
                theirs.iter().map(move |theirs| intersect(mine.clone(), theirs.clone())).collect::<Vec<_>>()
            });
            let multiplied = any_of(pairs.collect(), described);
            if multiplied.to_string().len() <= MULTIPLIED_MAX { multiplied } else { all_of(one, Value::Object(other)) }
        }
    }
}

/// Returns the alternatives of a schema that has nothing else but a description.
fn alternatives(schema: &Map<String, Value>) -> Option<&Vec<Value>> {
    let is_only = schema.keys().all(|keyword| keyword == "anyOf" || keyword == "description");
    schema.get("anyOf").and_then(Value::as_array).filter(|_| is_only)
}

/// Returns the union of several schemas.
fn any_of(branches: Vec<Value>, described: Map<String, Value>) -> Value {
    let mut distinct: Vec<Value> = Vec::new();
    for branch in branches.into_iter().filter(|branch| *branch != json!(false)) {
        if branch == json!({}) {
            return Value::Object(described);
        }
        if !distinct.contains(&branch) {
            distinct.push(branch);
        }
    }
    match <[Value; 1]>::try_from(distinct) {
        Ok([Value::Object(mut only)]) => {
            only.extend(described);
            Value::Object(only)
        }
        Ok([other]) => other,
        Err(none) if none.is_empty() => json!(false),
        Err(several) => {
            let mut any = described;
            any.insert("anyOf".into(), several.into());
            Value::Object(any)
        }
    }
}

/// Combines two schemas with `allOf`, if they cannot be joined.
fn all_of(mut one: Map<String, Value>, other: Value) -> Value {
    match one.entry("allOf").or_insert_with(|| json!([])) {
        Value::Array(parts) => parts.push(other),
        rest => *rest = json!([other]),
    }
    Value::Object(one)
}

/// Joins two schemas without alternatives, keyword by keyword.
fn keywords(mut one: Map<String, Value>, mut other: Map<String, Value>) -> Value {
    // Tuple elements of one schema are governed by `items` of the other.
    if one.contains_key("prefixItems") != other.contains_key("prefixItems")
        && (one.contains_key("items") || other.contains_key("items"))
    {
        return all_of(one, Value::Object(other));
    }
    let (mut joined, mut rest) = (Map::new(), Map::new());
    if let Some(properties) = properties(&mut one, &mut other) {
        joined.insert("properties".into(), properties);
    }
    for (keyword, theirs) in other {
        let Some(mine) = one.remove(&keyword) else {
            joined.insert(keyword, theirs);
            continue;
        };
        let larger = |than: fn(f64, f64) -> bool| match (mine.as_f64(), theirs.as_f64()) {
            (Some(a), Some(b)) if than(b, a) => theirs.clone(),
            _ => mine.clone(),
        };
        let value = match keyword.as_str() {
            "description" => mine,
            "type" => {
                match types(&mine).iter().filter_map(|mine| narrowed(mine, &types(&theirs))).collect::<Vec<_>>() {
                    none if none.is_empty() => return json!(false),
                    one if one.len() == 1 => json!(one[0]),
                    several => json!(several),
                }
            }
            "enum" => intersection(&mine, &theirs),
            "required" => {
                let names = [&mine, &theirs].into_iter().filter_map(Value::as_array).flatten();
                names.filter_map(Value::as_str).collect::<BTreeSet<_>>().into_iter().collect()
            }
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => larger(|b, a| b > a),
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => larger(|b, a| b < a),
            "uniqueItems" => json!(mine == true || theirs == true),
            "items" | "additionalProperties" => intersect(mine, theirs),
            "allOf" => mine.as_array().into_iter().chain(theirs.as_array()).flatten().cloned().collect(),
            _ if mine == theirs => mine,
            _ => {
                rest.insert(keyword.clone(), theirs);
                mine
            }
        };
        joined.insert(keyword, value);
    }
    joined.extend(one);
    if let Some(values) = joined.get("enum").and_then(Value::as_array) {
        let types = joined.get("type").map(types);
        let fits = |value: &&Value| types.as_ref().is_none_or(|types| types.iter().any(|kind| has_type(value, kind)));
        let values: Vec<Value> = values.iter().filter(fits).cloned().collect();
        if values.is_empty() {
            return json!(false);
        }
        joined.insert("enum".into(), values.into());
    }
    if !has_integers(&joined) {
        return json!(false);
    }
    if rest.is_empty() { Value::Object(joined) } else { all_of(joined, Value::Object(rest)) }
}

/// Returns the number of values that satisfy a schema, if it can be counted.
fn count(schema: &Value) -> Option<u64> {
    let schema = schema.as_object()?;
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return Some(values.len() as u64);
    }
    let (least, most) = integers(schema).filter(|(least, most)| least.is_finite() && most.is_finite())?;
    Some((most - least) as u64 + 1)
}

/// Returns true if an integer schema allows any integer.
fn has_integers(schema: &Map<String, Value>) -> bool {
    integers(schema).is_none_or(|(least, most)| least <= most)
}

/// Returns the bounds of an integer schema.
fn integers(schema: &Map<String, Value>) -> Option<(f64, f64)> {
    if schema.get("type").is_none_or(|kind| kind != "integer") {
        return None;
    }
    let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
    let above = bound("exclusiveMinimum").map(|bound| bound.floor() + 1.0);
    let below = bound("exclusiveMaximum").map(|bound| bound.ceil() - 1.0);
    let least = bound("minimum").into_iter().chain(above).fold(f64::NEG_INFINITY, f64::max);
    let most = bound("maximum").into_iter().chain(below).fold(f64::INFINITY, f64::min);
    Some((least.ceil(), most.floor()))
}

/// Intersects the `properties` of two schemas; removes them from both.
fn properties(one: &mut Map<String, Value>, other: &mut Map<String, Value>) -> Option<Value> {
    if !one.contains_key("properties") && !other.contains_key("properties") {
        return None;
    }
    let take = |schema: &mut Map<String, Value>| match schema.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    let (mine, mut theirs) = (take(one), take(other));
    let rest = |schema: &Map<String, Value>| schema.get("additionalProperties").cloned().unwrap_or_else(|| json!({}));
    let (my_rest, their_rest) = (rest(one), rest(other));
    let mut joined = Map::new();
    for (name, schema) in mine {
        let theirs = theirs.remove(&name).unwrap_or_else(|| their_rest.clone());
        joined.insert(name, intersect(schema, theirs));
    }
    for (name, schema) in theirs {
        joined.insert(name, intersect(schema, my_rest.clone()));
    }
    Some(Value::Object(joined))
}

/// Returns the values that are in both lists.
fn intersection(one: &Value, other: &Value) -> Value {
    let has = |value: &&Value| other.as_array().is_some_and(|others| others.contains(value));
    one.as_array().into_iter().flatten().filter(has).cloned().collect()
}

fn types(kind: &Value) -> Vec<&str> {
    match kind {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    }
}

/// Narrows a type to the allowed types.
fn narrowed<'a>(kind: &'a str, allowed: &[&str]) -> Option<&'a str> {
    match kind {
        kind if allowed.contains(&kind) => Some(kind),
        "integer" if allowed.contains(&"number") => Some(kind),
        "number" if allowed.contains(&"integer") => Some("integer"),
        _ => None,
    }
}

/// Returns true if a value has this JSON Schema type.
pub(super) fn has_type(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::Number(number) => kind == "number" || kind == "integer" && !number.is_f64(),
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    }
}

/// Level of detail of a value schema.
#[derive(Clone, Copy)]
pub(super) struct Detail {
    /// True if descriptions are included.
    pub(super) described: bool,
    /// Maximum depth; deeper parts are truncated to their types.
    pub(super) depth: usize,
}

/// Returns a schema as it is sent; `None` if it is unsatisfiable.
pub(super) fn finish(schema: &Value, detail: Detail) -> Option<Value> {
    let Value::Object(members) = schema else { return None };
    let Some(depth) = detail.depth.checked_sub(1) else { return Some(anything(outline(members))) };
    let below = |schema: &Value| finish(schema, Detail { depth, ..detail });
    let closed = members.get("additionalProperties") == Some(&json!(false));
    let required = |name: &String| {
        members.get("required").and_then(Value::as_array).is_some_and(|all| all.iter().any(|one| one == name))
    };
    let is_optional = members.get("properties").and_then(Value::as_object).is_some_and(|all| !all.keys().all(required));
    let mut done = Map::new();
    for (keyword, value) in members {
        let value = match keyword.as_str() {
            "description" if !detail.described => continue,
            // Many decoders reject it. The number of elements is limited below.
            "uniqueItems" => continue,
            // Decoders count members only if all described ones are required.
            "minProperties" | "maxProperties" if is_optional => continue,
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                // An unsatisfiable member must be absent: it is treated as an undescribed name.
                properties.filter_map(|(name, schema)| Some((name.clone(), below(schema)?))).collect()
            }
            "additionalProperties" if value.as_object().is_some_and(Map::is_empty) => json!(true),
            "additionalProperties" => below(value).unwrap_or(json!(false)),
            "items" => match below(value) {
                Some(items) => items,
                // Unsatisfiable `items` allow only the described tuple elements.
                None => {
                    let described = members.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
                    let most = members.get("maxItems").and_then(Value::as_u64).unwrap_or(u64::MAX);
                    done.insert("maxItems".into(), json!(most.min(described as u64)));
                    continue;
                }
            },
            // An unsatisfiable tuple element still allows shorter tuples.
            "prefixItems" => {
                value.as_array().into_iter().flatten().map(|part| below(part).unwrap_or(json!({}))).collect()
            }
            "anyOf" => match value.as_array().into_iter().flatten().filter_map(below).collect::<Vec<_>>() {
                none if none.is_empty() => return None,
                branches => branches.into(),
            },
            "allOf" => value.as_array().into_iter().flatten().map(below).collect::<Option<Vec<_>>>()?.into(),
            "maxItems" if done.contains_key("maxItems") => continue,
            _ => value.clone(),
        };
        done.insert(keyword.clone(), value);
    }
    // Decoders cannot track which elements they have written, but they can count.
    if members.get("uniqueItems") == Some(&json!(true))
        && let Some(values) = members.get("items").and_then(count)
    {
        let most = done.get("maxItems").and_then(Value::as_u64).unwrap_or(u64::MAX);
        done.insert("maxItems".into(), json!(most.min(values)));
    }
    // Some decoders write only described members.
    if let Some(required) = members.get("required").and_then(Value::as_array) {
        let rest = match done.get("additionalProperties") {
            Some(schema @ Value::Object(_)) => schema.clone(),
            _ => anything(Map::new()),
        };
        let properties = done.entry("properties").or_insert_with(|| json!({}));
        for name in required.iter().filter_map(Value::as_str) {
            let is_known = properties.get(name).is_some();
            let is_in_vain = members.get("properties").is_some_and(|schemas| schemas.get(name).is_some());
            if !is_known && (closed || is_in_vain) {
                return None;
            }
            if !is_known {
                properties[name] = rest.clone();
            }
        }
    }
    Some(anything(done))
}

/// Reduces a schema below the maximum depth to its type, and its values if they are few.
fn outline(members: &Map<String, Value>) -> Map<String, Value> {
    let is_short = |value: &Value| value.to_string().len() <= OUTLINE_MAX;
    let kept = members.iter().filter(|(keyword, value)| matches!(keyword.as_str(), "type" | "enum") && is_short(value));
    kept.map(|(keyword, value)| (keyword.clone(), value.clone())).collect()
}

/// Adds all types to a schema without constraints, so that it is not empty.
fn anything(mut schema: Map<String, Value>) -> Value {
    if schema.keys().all(|keyword| keyword == "description") {
        schema.insert("type".into(), json!(TYPES));
    }
    Value::Object(schema)
}
