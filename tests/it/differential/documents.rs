//! Generates documents that probably satisfy a schema.

use serde_json::{Map, Value, json};

use super::schemas::{Dice, NAMES, PATTERNS, anything, scalar};

/// Returns a value that has a good chance to satisfy `schema`, a part of `document`.
pub(crate) fn instance(dice: &mut Dice, document: &Value, schema: &Value, depth: usize) -> Value {
    let Value::Object(members) = schema else { return anything(dice, depth.min(2)) };
    let mut asked = members.clone();
    merge(dice, document, &mut asked, members, 6);
    if let Some(value) = asked.get("const") {
        return value.clone();
    }
    if let Some(values) = asked.get("enum").and_then(Value::as_array)
        && !values.is_empty()
    {
        return dice.pick(values).clone();
    }
    let has = |names: &[&str]| names.iter().any(|name| asked.contains_key(*name));
    let kind = match asked.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        Some(Value::Array(kinds)) => dice.pick(kinds).as_str().expect("a name").to_owned(),
        _ if has(&["properties", "required", "minProperties", "patternProperties", "additionalProperties"]) => {
            "object".to_owned()
        }
        _ if has(&["items", "prefixItems", "contains", "minItems", "uniqueItems"]) => "array".to_owned(),
        _ if has(&["minLength", "maxLength", "pattern"]) => "string".to_owned(),
        _ if has(&["minimum", "maximum", "exclusiveMinimum", "multipleOf"]) => "number".to_owned(),
        _ => return anything(dice, depth.min(2)),
    };
    match kind.as_str() {
        "object" if depth > 0 => object(dice, document, &asked, depth - 1),
        "object" => json!({}),
        "array" if depth > 0 => array(dice, document, &asked, depth - 1),
        "array" => json!([]),
        "string" => json!(*dice.pick(&["", "a", "x1", "y3", "b", "longer"])),
        "integer" => json!(dice.roll(3)),
        "number" => dice.pick(&[json!(1), json!(0.5), json!(0), json!(2.0), json!(1.5)]).clone(),
        "boolean" => json!(dice.one_in(2)),
        "null" => Value::Null,
        _ => scalar(dice),
    }
}

/// Merges the keywords of subschemas that judge the same value, and of one of the alternatives.
fn merge(dice: &mut Dice, document: &Value, into: &mut Map<String, Value>, from: &Map<String, Value>, left: usize) {
    if left == 0 {
        return;
    }
    let mut parts: Vec<&Value> = Vec::new();
    parts.extend(from.get("allOf").and_then(Value::as_array).into_iter().flatten());
    for keyword in ["anyOf", "oneOf"] {
        parts.extend(from.get(keyword).and_then(Value::as_array).map(|list| dice.pick(list)));
    }
    if from.contains_key("if") && dice.one_in(2) {
        parts.extend(from.get("if").into_iter().chain(from.get("then")));
    } else {
        parts.extend(from.get("else"));
    }
    if let Some(Value::String(reference)) = from.get("$ref") {
        parts.extend(reference.strip_prefix('#').and_then(|pointer| document.pointer(pointer)));
    }
    for part in parts {
        let Value::Object(part) = part else { continue };
        for (keyword, value) in part {
            match (into.get_mut(keyword), value) {
                (Some(Value::Object(mine)), Value::Object(theirs)) => {
                    for (name, value) in theirs {
                        mine.entry(name).or_insert_with(|| value.clone());
                    }
                }
                (Some(Value::Array(mine)), Value::Array(theirs)) if keyword == "required" => {
                    mine.extend(theirs.iter().cloned());
                }
                (Some(_), _) => {}
                (None, _) => drop(into.insert(keyword.clone(), value.clone())),
            }
        }
        merge(dice, document, into, part, left - 1);
    }
}

fn object(dice: &mut Dice, document: &Value, asked: &Map<String, Value>, depth: usize) -> Value {
    let mut members = Map::new();
    let known = asked.get("properties").and_then(Value::as_object);
    for (name, schema) in known.into_iter().flatten() {
        if *schema != Value::Bool(false) && !dice.one_in(3) {
            members.insert(name.clone(), instance(dice, document, schema, depth));
        }
    }
    let required = asked.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let dependent = ["dependentRequired", "dependencies"].into_iter().filter_map(|keyword| asked.get(keyword));
    let dependent = dependent.filter_map(Value::as_object).flatten();
    let dependent: Vec<&str> = dependent
        .filter(|(name, _)| members.contains_key(*name))
        .flat_map(|(_, names)| names.as_array().into_iter().flatten().filter_map(Value::as_str))
        .collect();
    for name in required.chain(dependent) {
        if !members.contains_key(name) {
            members.insert(name.to_owned(), member(dice, document, asked, name, depth));
        }
    }
    let least = asked.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
    let more = if asked.get("additionalProperties") == Some(&Value::Bool(false)) { 0 } else { dice.roll(3) };
    for _ in 0..more.max(usize::try_from(least).expect("small")) {
        let name = if dice.one_in(3) { dice.pick(&PATTERNS).1 } else { *dice.pick(&NAMES) };
        let value = member(dice, document, asked, name, depth);
        members.entry(name).or_insert(value);
    }
    members.into()
}

/// Returns a value for the member `name`.
pub(crate) fn member(dice: &mut Dice, document: &Value, asked: &Map<String, Value>, name: &str, depth: usize) -> Value {
    let known = asked.get("properties").and_then(|known| known.get(name));
    let pattern = || {
        let patterns = asked.get("patternProperties")?.as_object()?;
        patterns.iter().find(|(pattern, _)| PATTERNS.iter().any(|(known, text)| known == pattern && *text == name))
    };
    let schema = known.or_else(|| pattern().map(|(_, schema)| schema)).or_else(|| asked.get("additionalProperties"));
    instance(dice, document, schema.unwrap_or(&Value::Bool(true)), depth)
}

fn array(dice: &mut Dice, document: &Value, asked: &Map<String, Value>, depth: usize) -> Value {
    let mut items = Vec::new();
    let tuple = asked.get("prefixItems").or_else(|| asked.get("items")).and_then(Value::as_array);
    for schema in tuple.into_iter().flatten() {
        items.push(instance(dice, document, schema, depth));
    }
    let count = |keyword: &str, otherwise: u64| {
        let count = asked.get(keyword).and_then(Value::as_u64).unwrap_or(otherwise);
        usize::try_from(count).expect("small")
    };
    if let Some(schema) = asked.get("contains") {
        for _ in 0..count("minContains", 1) {
            items.push(instance(dice, document, schema, depth));
        }
    }
    for _ in 0..dice.roll(5).max(count("minItems", 0)) {
        items.push(element(dice, document, asked, depth));
    }
    items.truncate(count("maxItems", 20));
    items.into()
}

/// Returns a value for an element after the first ones.
pub(crate) fn element(dice: &mut Dice, document: &Value, asked: &Map<String, Value>, depth: usize) -> Value {
    let schema = ["items", "additionalItems", "contains"].iter().filter_map(|keyword| asked.get(*keyword));
    let schema = schema.into_iter().find(|schema| !schema.is_array());
    instance(dice, document, schema.unwrap_or(&Value::Bool(true)), depth)
}
