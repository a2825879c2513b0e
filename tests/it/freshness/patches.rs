//! Generates random patches for a document: all six operations, with existing and missing indices and names.

use serde_json::{Value, json};

use super::place::Place;
use patchboard_faults::random::Random;

/// Maximum length to which arrays and objects grow; the large object starts longer.
const LEN_MAX: usize = 5;
const LARGE_MAX: usize = 36;
/// Maximum depth at which values are added.
const DEPTH_MAX: usize = 4;

/// Returns a patch of one to three operations. `may_read` decides whether a place may be copied or tested.
pub(super) fn patch(random: &mut Random, document: &Value, may_read: &dyn Fn(&Place) -> bool) -> Value {
    let count = 1 + random.below(6) / 3 + random.below(8) / 7;
    let ops: Vec<Value> = (0..count).map(|_| op(random, document, may_read)).collect();
    Value::Array(ops)
}

fn op(random: &mut Random, document: &Value, may_read: &dyn Fn(&Place) -> bool) -> Value {
    let path = some_place(random, document);
    match random.below(100) {
        0..34 => {
            let same = path.of(document).filter(|_| random.percent(8)).cloned();
            let value = same.unwrap_or_else(|| some_value(random, path.of(document)));
            json!({"op": "replace", "path": path.to_string(), "value": value})
        }
        34..68 => match some_addition(random, document) {
            Some(path) => json!({"op": "add", "path": path.to_string(), "value": some_value(random, None)}),
            None => json!({"op": "remove", "path": path.to_string()}),
        },
        68..80 => json!({"op": "remove", "path": path.to_string()}),
        80..87 => {
            let to = some_addition(random, document).unwrap_or_else(|| some_place(random, document));
            // A value cannot be moved into itself, so such a move would test nothing.
            if path.covers(&to) && path != to {
                return json!({"op": "remove", "path": path.to_string()});
            }
            json!({"op": "move", "from": path.to_string(), "path": to.to_string()})
        }
        87..94 if may_read(&path) && path.of(document).is_none_or(is_small) => {
            let to = some_addition(random, document).unwrap_or_else(|| some_place(random, document));
            json!({"op": "copy", "from": path.to_string(), "path": to.to_string()})
        }
        _ if may_read(&path) => {
            let value = path.of(document).filter(|_| random.percent(90)).cloned().unwrap_or(json!("nothing like it"));
            json!({"op": "test", "path": path.to_string(), "value": value})
        }
        _ => json!({"op": "replace", "path": path.to_string(), "value": some_value(random, path.of(document))}),
    }
}

/// Returns a place at least two levels deep, so that the top of the document keeps its shape; rarely a whole
/// collection.
fn some_place(random: &mut Random, document: &Value) -> Place {
    let mut place = Place::default();
    loop {
        let value = place.of(document);
        let depth = place.tokens().len();
        let stops = match depth {
            0 => false,
            1 => random.percent(1),
            2 => random.percent(35),
            _ => random.percent(50),
        };
        let Some(value) = value.filter(|_| !stops) else { return place };
        place = match value {
            Value::Array(elements) if depth > 0 && random.percent(12) => {
                place.child(random.below(elements.len() as u64 + 3))
            }
            Value::Array(elements) if !elements.is_empty() => place.child(random.below(elements.len() as u64)),
            Value::Object(members) if depth > 0 && random.percent(4) => {
                place.child(format!("n{}", random.below(members.len() as u64 + 4)))
            }
            Value::Object(members) if !members.is_empty() => {
                let names: Vec<&String> = members.keys().collect();
                place.child(random.pick(&names))
            }
            _ => return place,
        };
    }
}

/// Returns a place at which a value can be added; `None` if the collection is long enough.
fn some_addition(random: &mut Random, document: &Value) -> Option<Place> {
    let mut place = some_place(random, document);
    // Goes up to the enclosing collection.
    while !place.of(document).is_some_and(|value| value.is_array() || value.is_object()) {
        place = place.split()?.0;
    }
    if place.tokens().is_empty() || place.tokens().len() >= DEPTH_MAX {
        return None;
    }
    match place.of(document)? {
        Value::Array(elements) if elements.len() < LEN_MAX => Some(match random.below(10) {
            0..4 => place.child("-"),
            4 => place.child(elements.len()),
            5 => place.child(random.below(elements.len() as u64 + 3)),
            _ => place.child(random.below(elements.len() as u64 + 1)),
        }),
        Value::Object(members) if members.len() < LEN_MAX || (members.len() > 30 && members.len() < LARGE_MAX) => {
            Some(place.child(format!("n{}", random.below(8))))
        }
        _ => None,
    }
}

fn some_value(random: &mut Random, instead_of: Option<&Value>) -> Value {
    // Collections mostly stay collections, otherwise the document would soon be flat.
    if let Some(Value::Array(elements)) = instead_of
        && random.percent(85)
    {
        let mut elements = elements.clone();
        elements.truncate(3);
        elements.push(json!(random.below(1000)));
        return Value::Array(elements);
    }
    match random.below(8) {
        0 => json!({"a": random.below(100), "b": [random.below(100)]}),
        1 => json!({"id": random.below(100), "a": "some", "b": {"c": random.below(100)}}),
        2 => json!([random.below(10), random.below(10)]),
        3 => json!(["word", "some words", "other words"][usize::try_from(random.below(3)).expect("few")]),
        _ => json!(random.below(1000)),
    }
}

/// Returns true if copies of a value cannot make the document grow without bound.
fn is_small(value: &Value) -> bool {
    value.as_array().is_none_or(|elements| elements.len() < 4)
        && value.as_object().is_none_or(|members| members.len() < 4)
}

/// Returns a board's initial document: arrays of objects, nested arrays, a large object, a small one.
pub(super) fn document(random: &mut Random) -> Value {
    let items: Vec<Value> =
        (0..3).map(|number| json!({"id": number, "a": random.below(100), "tags": ["x", "y"]})).collect();
    let large: serde_json::Map<String, Value> =
        (0..34).map(|number| (format!("k{number}"), json!(random.below(10)))).collect();
    json!({
        "items": items,
        "grid": [[1, 2, 3], [4, 5], [[6], 7]],
        "large": large,
        "conf": {"x": {"p": 1, "q": [1, 2]}, "y": {"r": "a text"}, "z": 3},
    })
}
