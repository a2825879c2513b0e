//! Makes random edits, to a tree and to a value alike.

use jsonptr::PointerBuf;
use patchboard_kernel::tree::{Edit, Node};
use serde_json::{Map, Value, json};

use super::documents::{element, instance, member};
use super::schemas::{Dice, NAMES, PATTERNS, anything};

/// A place in a value, with some of the schema objects that judge it.
struct Place<'s> {
    pointer: PointerBuf,
    schemas: Vec<&'s Map<String, Value>>,
}

/// Collects the schema objects that judge the same value as `schema`, as far as this does not depend on the value.
fn judges<'s>(document: &'s Value, schema: &'s Value, found: &mut Vec<&'s Map<String, Value>>) {
    let Value::Object(members) = schema else { return };
    if found.len() > 20 {
        return;
    }
    found.push(members);
    let lists = ["allOf", "anyOf", "oneOf"].iter().filter_map(|keyword| members.get(*keyword)?.as_array());
    lists.flatten().for_each(|part| judges(document, part, found));
    for keyword in ["then", "else"] {
        members.get(keyword).into_iter().for_each(|part| judges(document, part, found));
    }
    if let Some(Value::String(reference)) = members.get("$ref") {
        let target = reference.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
        target.into_iter().for_each(|part| judges(document, part, found));
    }
}

/// Selects a random container.
fn container<'s>(dice: &mut Dice, document: &'s Value, value: &Value) -> Place<'s> {
    let mut place = Place { pointer: PointerBuf::new(), schemas: Vec::new() };
    judges(document, document, &mut place.schemas);
    let mut here = value;
    loop {
        let deeper: Vec<(String, &Value)> = match here {
            Value::Array(items) => items.iter().enumerate().map(|(index, item)| (index.to_string(), item)).collect(),
            Value::Object(members) => members.iter().map(|(name, member)| (name.clone(), member)).collect(),
            _ => return place,
        };
        let deeper: Vec<_> = deeper.into_iter().filter(|(_, part)| part.is_array() || part.is_object()).collect();
        if deeper.is_empty() || dice.one_in(4) {
            return place;
        }
        let (token, part) = dice.pick(&deeper);
        let mut schemas = Vec::new();
        for judge in &place.schemas {
            let parts = match here {
                Value::Object(_) => [
                    judge.get("properties").and_then(|known| known.get(token)),
                    judge.get("additionalProperties"),
                    judge.get("patternProperties").and_then(|known| known.as_object()?.values().next()),
                ],
                _ => [judge.get("items"), judge.get("contains"), judge.get("prefixItems").and_then(|list| list.get(0))],
            };
            parts.into_iter().flatten().for_each(|part| judges(document, part, &mut schemas));
        }
        place.pointer.push_back(token.as_str());
        place.schemas = schemas;
        here = part;
    }
}

/// Returns a value from elsewhere in the document, with its stamps.
fn elsewhere(dice: &mut Dice, tree: &Node, value: &Value) -> Option<(Node, Value)> {
    let mut pointer = PointerBuf::new();
    let mut here = value;
    loop {
        let (token, part) = match here {
            Value::Array(items) if !items.is_empty() => {
                let index = dice.roll(items.len());
                (index.to_string(), &items[index])
            }
            Value::Object(members) if !members.is_empty() => {
                let (name, part) = members.iter().nth(dice.roll(members.len()))?;
                (name.clone(), part)
            }
            _ => break,
        };
        pointer.push_back(token);
        here = part;
        if dice.one_in(2) {
            break;
        }
    }
    Some((tree.get(&pointer)?.clone(), here.clone()))
}

/// Makes one random change to both, and returns its description.
pub(crate) fn change(dice: &mut Dice, document: &Value, tree: &mut Node, value: &mut Value, edit: &Edit) -> String {
    let place = container(dice, document, value);
    let empty = Map::new();
    let chosen = dice.roll(place.schemas.len().max(1));
    let asked: &Map<String, Value> = place.schemas.get(chosen).copied().unwrap_or(&empty);
    let moved = if dice.one_in(8) { elsewhere(dice, tree, value) } else { None };
    let at = |token: &str| place.pointer.with_trailing_token(token);
    let here = value.pointer_mut(place.pointer.as_str()).expect("it was found");
    let make = |dice: &mut Dice, otherwise: Value| match &moved {
        Some((node, value)) => (node.clone(), value.clone()),
        None => {
            let mut value = if dice.one_in(4) { anything(dice, 2) } else { otherwise };
            patchboard_kernel::json::normalise(&mut value);
            (Node::from_value(&value, edit), value)
        }
    };
    match here {
        Value::Array(items) => match dice.roll(6) {
            0 if !items.is_empty() => {
                let index = dice.roll(items.len());
                items.remove(index);
                tree.remove(&at(&index.to_string()), edit);
                format!("remove {}", at(&index.to_string()))
            }
            1 | 2 if !items.is_empty() => {
                let index = dice.roll(items.len());
                let made = element(dice, document, asked, 2);
                let (node, made) = make(dice, made);
                items[index] = made;
                tree.replace(&at(&index.to_string()), node, edit);
                format!("replace {}", at(&index.to_string()))
            }
            3 => {
                let index = dice.roll(items.len() + 1);
                let made = element(dice, document, asked, 2);
                let (node, made) = make(dice, made);
                items.insert(index, made);
                tree.insert(&at(&index.to_string()), node, edit);
                format!("insert {}", at(&index.to_string()))
            }
            _ => {
                let made = element(dice, document, asked, 2);
                let (node, made) = make(dice, made);
                items.push(made);
                tree.insert(&at("-"), node, edit);
                format!("append {}", at("-"))
            }
        },
        Value::Object(members) => {
            let present: Vec<String> = members.keys().cloned().collect();
            let known: Vec<&String> =
                asked.get("properties").and_then(Value::as_object).map_or(Vec::new(), |known| known.keys().collect());
            let name = match dice.roll(6) {
                0 => (*dice.pick(&NAMES)).to_owned(),
                1 => dice.pick(&PATTERNS).1.to_owned(),
                2 | 3 if !known.is_empty() => (*dice.pick(&known)).clone(),
                _ if !present.is_empty() => dice.pick(&present).clone(),
                _ => (*dice.pick(&NAMES)).to_owned(),
            };
            if members.contains_key(&name) && dice.one_in(3) {
                members.remove(&name);
                tree.remove(&at(&name), edit);
                return format!("remove {}", at(&name));
            }
            let made = member(dice, document, asked, &name, 2);
            let (node, made) = make(dice, made);
            if members.insert(name.clone(), made).is_some() {
                tree.replace(&at(&name), node, edit);
                format!("replace {}", at(&name))
            } else {
                tree.insert(&at(&name), node, edit);
                format!("add {}", at(&name))
            }
        }
        scalar => {
            let mut made = if dice.one_in(3) { json!({}) } else { instance(dice, document, document, 3) };
            patchboard_kernel::json::normalise(&mut made);
            *scalar = made;
            *tree = Node::from_value(scalar, edit);
            "root replaced".to_owned()
        }
    }
}
