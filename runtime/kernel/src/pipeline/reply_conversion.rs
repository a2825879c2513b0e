//! Converts replies in other formats to patches: a whole object, members to merge, a message (`docs/modes.md`).
//!
//! All later stages handle patches only, so journals, rules and histories are the same in every mode.

use jsonptr::{Pointer, PointerBuf};
use serde::de::IgnoredAny;
use serde_json::{Deserializer, Map, Value, json};

use super::json_diff;
use super::reply::{Checked, ReplyBody, Unwrapped};
use crate::freshness::ReadSet;
use crate::id::WorkerName;
use crate::json::{self, Limits};
use crate::patch::Op;
use crate::plan::WorkerPlan;
use crate::projection::Projection;
use crate::rejection::{Code, Violation};
use crate::tree::Node;

/// Document member that holds the messages of a plain blackboard. No schema may declare it.
pub(crate) const MESSAGES: &str = "$messages";
/// Maximum bytes of a reply that is a whole object.
pub(super) const WHOLE_BYTES_MAX: usize = 256 * 1024;
/// Maximum depth of a reply, and of a path in a reply.
const DEPTH_MAX: usize = 64;

/// Converts a whole-object reply: the difference from the shown values.
pub(super) fn whole(seat: &WorkerPlan, body: &ReplyBody, basis: &ReadSet) -> Checked<Unwrapped> {
    let text = body.text();
    let new = Value::Object(object(&text, WHOLE_BYTES_MAX)?);
    let document = basis.state.root();
    let shown = Projection::from_places(document, basis.reads.iter().map(|place| place.as_ref()));
    let contract = seat.unrestricted.as_deref().unwrap_or(&seat.contract);
    let patch = json_diff::diff_shown(document, &shown, &new, &|place, op| contract.has_grant(place, op))?;
    Ok(Unwrapped::from_patch(patch, Some(text)))
}

/// Converts a merge reply (RFC 7396); members are applied in order. A name with a leading slash is a JSON Pointer. It
/// may occur more than once, and `-` at its end appends.
pub(super) fn merge(seat: &WorkerPlan, document: &Node, body: &ReplyBody) -> Checked<Unwrapped> {
    let text = body.text();
    let limits = Limits { bytes: seat.worker.patch.max_bytes as usize, depth: DEPTH_MAX };
    let members = match json::members(text.as_bytes(), limits) {
        Ok(members) => members,
        // Reports the error of the text as an object, or else the reason why its members could not be read.
        Err(refusal) => return Err(object(&text, limits.bytes).err().unwrap_or_else(|| vec![unread(&refusal)])),
    };
    let before = document.to_value();
    let mut after = before.clone();
    for (name, value) in members {
        match PointerBuf::parse(name.as_str()) {
            Ok(place) if name.starts_with('/') => set(&mut after, &place, value),
            Ok(_) | Err(_) => merge_member(&mut after, name, value),
        }
    }
    Ok(Unwrapped::from_patch(json_diff::diff(&before, &after), Some(text)))
}

/// Converts a message reply. Adds the message, and applies its lines of the form `set /place: value`.
pub(super) fn message(seat: &WorkerPlan, worker: &WorkerName, document: &Node, body: &ReplyBody) -> Checked<Unwrapped> {
    let text = body.text();
    let bytes_max = seat.worker.patch.max_bytes as usize;
    if text.len() > bytes_max {
        let message = format!("the message has {} bytes, at most {bytes_max} are read", text.len());
        return Err(vec![Violation::new(Code::TooLarge, "", message)]);
    }
    let before = document.to_value();
    let mut after = before.clone();
    for (place, value) in settings(&text, bytes_max) {
        set(&mut after, &place, value);
    }
    let mut patch = json_diff::diff(&before, &after);
    if let Value::Array(ops) = &mut patch {
        // Workers may not change existing messages.
        let is_message = |op: &Value| op["path"].as_str().is_some_and(is_message_path);
        ops.retain(|op| !is_message(op));
        ops.push(message_op(document, worker, &text));
    }
    Ok(Unwrapped::from_patch(patch, Some(text)))
}

/// Returns the operation that adds a message.
pub(super) fn message_op(document: &Node, from: &WorkerName, text: &str) -> Value {
    let message = json!({"from": from, "text": text});
    match document.child(MESSAGES) {
        Some(Node::Array(_)) => json!({"op": "add", "path": format!("/{MESSAGES}/-"), "value": message}),
        Some(_) | None => json!({"op": "add", "path": format!("/{MESSAGES}"), "value": [message]}),
    }
}

/// Describes a patch as a message, in the format of [`message`].
pub(super) fn describe_patch(ops: &[Op<'_>]) -> String {
    let line = |op: &Op<'_>| match op {
        Op::Add { path, value } | Op::Replace { path, value } => Some(format!("set {path}: {value}")),
        Op::Remove { path } => Some(format!("set {path}: null")),
        Op::Move { from, path } => Some(format!("set {path}: what was at {from}")),
        Op::Copy { from, path } => Some(format!("set {path}: what is at {from}")),
        Op::Test { .. } => None,
    };
    ops.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

/// Returns true if a path is that of the messages, or of one of them.
pub(super) fn is_message_path(place: &str) -> bool {
    place.strip_prefix('/').is_some_and(|place| place.split('/').next() == Some(MESSAGES))
}

fn object(text: &str, bytes: usize) -> Checked<Map<String, Value>> {
    let read = json::parse(text.as_bytes(), Limits { bytes, depth: DEPTH_MAX });
    match read {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => {
            let message = "a reply is one JSON object and nothing else";
            Err(vec![Violation::new(Code::NotAnObject, "", message)])
        }
        Err(refusal) => Err(vec![unread(&refusal)]),
    }
}

fn unread(refusal: &json::JsonError) -> Violation {
    Violation::new(refusal.code, "", format!("{refusal}; a reply is one JSON object and nothing else"))
}

/// Parses lines of the form `set /place: value`, with or without the word. A value that is not JSON is a text. Markup
/// around a line is ignored. An array or object may continue on further lines; a malformed one sets nothing.
fn settings(text: &str, bytes: usize) -> Vec<(PointerBuf, Value)> {
    let limits = Limits { bytes, depth: DEPTH_MAX };
    let mut settings = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let found = setting(line);
        rest = match found {
            Some((place, value)) if value.starts_with(['{', '[']) => {
                let colon = line.find(':').unwrap_or(0);
                let from = colon + line[colon..].find(['{', '[']).unwrap_or(0);
                let mut values = Deserializer::from_str(&rest[from..]).into_iter::<IgnoredAny>();
                let end = matches!(values.next(), Some(Ok(_))).then(|| from + values.byte_offset());
                let read = end.and_then(|end| json::parse(&rest.as_bytes()[from..end], limits).ok());
                settings.extend(read.map(|value| (place, value)));
                match end.and_then(|end| rest[end..].find('\n').map(|newline| end + newline + 1)) {
                    Some(next) => &rest[next..],
                    None if end.is_some() => "",
                    None => after,
                }
            }
            Some((place, value)) => {
                settings.push((place, json::parse(value.as_bytes(), limits).unwrap_or_else(|_| value.into())));
                after
            }
            None => after,
        };
    }
    settings
}

/// Returns the place that a line sets, and the value's text.
fn setting(line: &str) -> Option<(PointerBuf, &str)> {
    let line = line.trim().trim_start_matches("- ").trim_matches(['`', '*', ' ']);
    let (place, value) = line.split_once(':')?;
    let place = place.trim_end_matches(['`', '*']);
    let place =
        place.strip_prefix("set ").or_else(|| place.strip_prefix("Set ")).unwrap_or(place).trim_start_matches('`');
    if !place.starts_with('/') || place.contains(char::is_whitespace) {
        return None;
    }
    Some((PointerBuf::parse(place).ok()?, value.trim().trim_start_matches(['`', '*']).trim_start()))
}

/// Applies RFC 7396 to one member.
fn merge_member(document: &mut Value, name: String, value: Value) {
    let Value::Object(members) = document else { return };
    match value {
        Value::Null => drop(members.remove(&name)),
        Value::Object(patch) => {
            let member = members.entry(name).or_insert(Value::Null);
            if !member.is_object() {
                *member = Value::Object(Map::new());
            }
            for (name, value) in patch {
                merge_member(member, name, value);
            }
        }
        other => drop(members.insert(name, other)),
    }
}

/// Sets the value at a place and creates missing objects on the way; null removes it. Places that cannot be created are
/// ignored.
fn set(document: &mut Value, place: &Pointer, value: Value) {
    let tokens: Vec<String> = place.tokens().map(|token| token.decoded().into_owned()).collect();
    let Some((last, way)) = tokens.split_last() else { return };
    if tokens.len() > DEPTH_MAX {
        return;
    }
    let mut at = document;
    for token in way {
        let next = match at {
            Value::Object(_) if value.is_null() => at.get_mut(token),
            Value::Object(members) => Some(members.entry(token.clone()).or_insert_with(|| Value::Object(Map::new()))),
            Value::Array(elements) => token.parse::<usize>().ok().and_then(|index| elements.get_mut(index)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        let Some(next) = next else { return };
        at = next;
    }
    // Appending to a missing array creates it.
    if last == "-" && at.as_object().is_some_and(Map::is_empty) && !way.is_empty() && !value.is_null() {
        *at = Value::Array(Vec::new());
    }
    match at {
        Value::Object(members) if value.is_null() => drop(members.remove(last)),
        Value::Object(members) => drop(members.insert(last.clone(), value)),
        Value::Array(elements) => match (last.as_str(), last.parse::<usize>().ok()) {
            ("-", _) if !value.is_null() => elements.push(value),
            (_, Some(index)) if value.is_null() && index < elements.len() => drop(elements.remove(index)),
            (_, Some(index)) if !value.is_null() && index < elements.len() => elements[index] = value,
            (_, Some(index)) if !value.is_null() && index == elements.len() => elements.push(value),
            (_, Some(_) | None) => {}
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
