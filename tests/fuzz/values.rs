//! Draws JSON from bytes: documents, places in them and changes of them.

use jsonptr::PointerBuf;
use serde_json::{Map, Number, Value};

use crate::bytes::Bytes;

/// A small set of names, so that pointers often resolve. Some are indices, others nearly so.
const NAMES: [&str; 12] = ["a", "b", "c", "0", "1", "2", "-", "", "~/", "01", "é", "99999999999999999999"];

/// Returns a value, nested at most `depth` deep.
pub(crate) fn value(bytes: &mut Bytes<'_>, depth: usize) -> Value {
    let kinds = if depth == 0 { 8 } else { 14 };
    match bytes.below(kinds) {
        0 => Value::Null,
        1 => Value::Bool(true),
        2 | 3 => Value::from(bytes.below(4)),
        4 => Value::from(bytes.number() as i64),
        // The bits are used as they are, so that all kinds of doubles are equally likely.
        5 => Number::from_f64(f64::from_bits(bytes.number())).map_or(Value::Bool(false), Value::Number),
        6 => Value::from(*bytes.pick(&NAMES)),
        7 => {
            let length = bytes.below(40);
            Value::from(String::from_utf8_lossy(bytes.take(length)))
        }
        8..11 => {
            let length = length(bytes);
            (0..length).map(|_| value(bytes, depth - 1)).collect()
        }
        _ => {
            let length = length(bytes);
            let members = (0..length).map(|_| (name(bytes), value(bytes, depth - 1)));
            Value::Object(members.collect::<Map<_, _>>())
        }
    }
}

/// Returns a mostly small length; now and then one at which a tree takes another shape.
fn length(bytes: &mut Bytes<'_>) -> usize {
    match bytes.below(16) {
        15 if !bytes.is_empty() => bytes.below(64),
        small => small % 5,
    }
}

/// Returns the name of a member.
pub(crate) fn name(bytes: &mut Bytes<'_>) -> String {
    match bytes.below(NAMES.len() + 4) {
        known if known < NAMES.len() => NAMES[known].to_owned(),
        _ => format!("k{}", bytes.below(256)),
    }
}

/// Returns every pointer that resolves in the document, at most `max`.
pub(crate) fn places(document: &Value, max: usize) -> Vec<PointerBuf> {
    let mut found = Vec::new();
    let mut pending = vec![(PointerBuf::root(), document)];
    while let Some((place, value)) = pending.pop() {
        if found.len() == max {
            break;
        }
        match value {
            Value::Object(members) => {
                pending.extend(members.iter().map(|(name, child)| (place.with_trailing_token(name.as_str()), child)));
            }
            Value::Array(items) => {
                pending.extend(items.iter().enumerate().map(|(at, child)| (place.with_trailing_token(at), child)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        found.push(place);
    }
    found
}

/// Returns a place of the document, or one near it.
pub(crate) fn place(bytes: &mut Bytes<'_>, places: &[PointerBuf]) -> PointerBuf {
    let mut place = bytes.pick(places).clone();
    let below = [0, 0, 0, 1, 1, 1, 1, 2];
    for _ in 0..*bytes.pick(&below) {
        place.push_back(name(bytes));
    }
    place
}

/// Changes a value at a random place: replaces a value, adds or removes a member or element, or renames a member.
pub(crate) fn change(document: &mut Value, bytes: &mut Bytes<'_>, words: &[&str]) {
    let places = places(document, 4096);
    let place = bytes.pick(&places);
    let other = bytes.pick(&places).resolve(document).cloned().unwrap_or_default();
    let Ok(at) = place.resolve_mut(document) else { return };
    match (bytes.below(6), at) {
        (0, at) => *at = value(bytes, 2),
        (1, at) => *at = Value::from(*bytes.pick(words)),
        (2, at) => *at = other,
        (3, Value::Object(members)) => {
            let word = *bytes.pick(words);
            members.insert(word.to_owned(), other);
        }
        (4, Value::Object(members)) => {
            let names: Vec<String> = members.keys().cloned().collect();
            if !names.is_empty() {
                members.remove(bytes.pick(&names));
            }
        }
        (5, Value::Object(members)) => {
            let names: Vec<String> = members.keys().cloned().collect();
            if !names.is_empty()
                && let Some(moved) = members.remove(bytes.pick(&names))
            {
                members.insert(name(bytes), moved);
            }
        }
        (3, Value::Array(items)) => items.push(other),
        (_, Value::Array(items)) => {
            if !items.is_empty() {
                items.remove(bytes.below(items.len()));
            }
        }
        (_, at) => *at = Value::from(*bytes.pick(words)),
    }
}
