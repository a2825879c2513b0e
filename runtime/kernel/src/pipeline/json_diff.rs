//! Computes the patch from the values that a view showed to the worker's answer.
//!
//! Produces the smallest patch that the grants allow. A value with grants on its parts is compared part by part. A
//! value with a grant only on the whole is replaced as a whole. Places that were not shown are not compared.

use jsonptr::{Pointer, PointerBuf};
use serde_json::{Map, Value, json};

use crate::blueprint::GrantOp;
use crate::projection::Projection;
use crate::rejection::{Code, Violation};
use crate::tree::Node;

/// Returns true if an operation may be used at a place; `-` is the append position.
pub(super) type GrantCheck<'a> = dyn Fn(&Pointer, GrantOp) -> bool + 'a;

/// Returns the RFC 6902 operations that turn `old` into `new`.
pub(super) fn diff(old: &Value, new: &Value) -> Value {
    Value::Array(values(&PointerBuf::new(), old, new, &|_, _| true).into_iter().map(DiffOp::into_op).collect())
}

/// Returns the operations that turn the shown part of a document into `new`. Fails with `not_an_object` if an object
/// was shown in place of an array and the answer has another type.
pub(super) fn diff_shown(
    document: &Node,
    shown: &Projection<'_>,
    new: &Value,
    granted: &GrantCheck<'_>,
) -> Result<Value, Vec<Violation>> {
    let mut difference = Differ { granted, steps: Vec::new(), violations: Vec::new() };
    difference.compare(&PointerBuf::new(), Some(shown), Some(document), new);
    let Differ { steps, violations, .. } = difference;
    if violations.is_empty() { Ok(steps.into_iter().map(DiffOp::into_op).collect()) } else { Err(violations) }
}

/// One operation, and the grant that it needs.
struct DiffOp {
    kind: GrantOp,
    place: PointerBuf,
    value: Option<Value>,
}

impl DiffOp {
    fn new(kind: GrantOp, place: PointerBuf, value: &Value) -> Self {
        Self { kind, place, value: Some(value.clone()) }
    }

    fn remove(place: PointerBuf) -> Self {
        Self { kind: GrantOp::Remove, place, value: None }
    }

    fn into_op(self) -> Value {
        match (self.kind, self.value) {
            (GrantOp::Remove, _) | (_, None) => json!({"op": "remove", "path": self.place}),
            (GrantOp::Replace, Some(value)) => json!({"op": "replace", "path": self.place, "value": value}),
            (_, Some(value)) => json!({"op": "add", "path": self.place, "value": value}),
        }
    }
}

fn below(place: &Pointer, token: &str) -> PointerBuf {
    place.with_trailing_token(token)
}

/// Returns the steps from one known value to another.
fn values(place: &PointerBuf, old: &Value, new: &Value, granted: &GrantCheck<'_>) -> Vec<DiffOp> {
    if old == new {
        return Vec::new();
    }
    let whole = || vec![DiffOp::new(GrantOp::Replace, place.clone(), new)];
    let steps = match (old, new) {
        (Value::Object(old), Value::Object(new)) => members(place, old, new, granted),
        (Value::Array(old), Value::Array(new)) => elements(place, old, new, granted),
        _ => return whole(),
    };
    let is_granted = |step: &DiffOp| granted(&step.place, step.kind);
    if !steps.iter().all(is_granted) && granted(place, GrantOp::Replace) { whole() } else { steps }
}

fn members(
    place: &PointerBuf,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    granted: &GrantCheck<'_>,
) -> Vec<DiffOp> {
    let mut steps = Vec::new();
    for (name, value) in old {
        match new.get(name) {
            Some(now) => steps.extend(values(&below(place, name), value, now, granted)),
            None => steps.push(DiffOp::remove(below(place, name))),
        }
    }
    let added = new.iter().filter(|(name, _)| !old.contains_key(*name));
    steps.extend(added.map(|(name, value)| DiffOp::new(GrantOp::Add, below(place, name), value)));
    steps
}

fn elements(place: &PointerBuf, old: &[Value], new: &[Value], granted: &GrantCheck<'_>) -> Vec<DiffOp> {
    let at = |index: usize| below(place, &index.to_string());
    let same_before = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (&old[same_before..], &new[same_before..]);
    let same_after = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (&old_rest[..old_rest.len() - same_after], &new_rest[..new_rest.len() - same_after]);
    let common = old_rest.len().min(new_rest.len());
    let mut steps = Vec::new();
    for (index, (old, new)) in old_rest.iter().zip(new_rest).enumerate() {
        steps.extend(values(&at(same_before + index), old, new, granted));
    }
    steps.extend((common..old_rest.len()).rev().map(|index| DiffOp::remove(at(same_before + index))));
    for (index, value) in new_rest.iter().enumerate().skip(common) {
        steps.push(match same_after {
            0 => DiffOp::new(GrantOp::Add, below(place, "-"), value),
            _ => DiffOp::new(GrantOp::Insert, at(same_before + index), value),
        });
    }
    steps
}

/// State of a comparison between shown values and an answer.
struct Differ<'a> {
    granted: &'a GrantCheck<'a>,
    steps: Vec<DiffOp>,
    violations: Vec<Violation>,
}

impl Differ<'_> {
    /// Compares `new` with `shown`, the shown part of `node`, if any part was shown.
    fn compare(&mut self, place: &PointerBuf, shown: Option<&Projection<'_>>, node: Option<&Node>, new: &Value) {
        match (shown, node, new) {
            (Some(Projection::Whole(old)), _, new) => {
                self.steps.extend(values(place, &old.to_value(), new, self.granted));
            }
            (Some(Projection::Object(members)), Some(node), Value::Object(new)) => {
                for (name, part) in members {
                    match new.get(name) {
                        Some(now) => self.compare(&below(place, name), Some(part), node.child(name), now),
                        None => self.remove_shown(below(place, name), part),
                    }
                }
                for (name, value) in new.iter().filter(|(name, _)| !members.contains_key(*name)) {
                    self.compare(&below(place, name), None, node.child(name), value);
                }
            }
            (Some(Projection::Array { elements, len }), Some(_), Value::Array(new)) if elements.len() == *len => {
                if elements.values().all(|part| matches!(part, Projection::Whole(_))) {
                    let old: Vec<Value> = elements.values().map(Projection::to_value).collect();
                    self.steps.extend(values(place, &old.into(), &Value::Array(new.clone()), self.granted));
                    return;
                }
                for (index, now) in new.iter().enumerate().take(*len) {
                    let node = node.and_then(|node| node.child(&index.to_string()));
                    self.compare(&below(place, &index.to_string()), elements.get(&index), node, now);
                }
                for (index, part) in elements.iter().rev().filter(|(index, _)| **index >= new.len()) {
                    self.remove_shown(below(place, &index.to_string()), part);
                }
                self.append(place, new.get(*len..).unwrap_or_default());
            }
            (Some(Projection::Array { elements, .. }), Some(node), Value::Object(new)) => {
                for (index, part) in elements.iter().rev() {
                    let name = index.to_string();
                    match new.get(&name) {
                        Some(now) => self.compare(&below(place, &name), Some(part), node.child(&name), now),
                        None => self.remove_shown(below(place, &name), part),
                    }
                }
                let is_new = |name: &str| name.parse().ok().is_none_or(|index: usize| !elements.contains_key(&index));
                for (name, value) in new.iter().filter(|(name, _)| is_new(name)) {
                    self.compare(&below(place, name), None, node.child(name), value);
                }
            }
            (Some(Projection::Array { elements, .. }), Some(_), Value::Array(new)) if elements.is_empty() => {
                self.append(place, new);
            }
            // Nothing of it was shown: the existing content stays, and the answer is added.
            (None, Some(Node::Array(_)), Value::Array(new)) => self.append(place, new),
            (None, Some(node @ Node::Object(_)), Value::Object(new)) => {
                for (name, value) in new {
                    self.compare(&below(place, name), None, node.child(name), value);
                }
            }
            (None, Some(_), new) => self.steps.push(DiffOp::new(GrantOp::Replace, place.clone(), new)),
            (None, None, new) => self.steps.push(DiffOp::new(GrantOp::Add, place.clone(), new)),
            (Some(Projection::Object(_) | Projection::Array { .. }), _, _) => {
                let message = "only parts of it were shown, as an object: answer with an object";
                self.violations.push(Violation::new(Code::NotAnObject, place.as_str(), message));
            }
        }
    }

    fn append(&mut self, place: &PointerBuf, new: &[Value]) {
        self.steps.extend(new.iter().map(|value| DiffOp::new(GrantOp::Add, below(place, "-"), value)));
    }

    /// Removes the shown parts of a place that the answer leaves out. Unshown parts stay.
    fn remove_shown(&mut self, place: PointerBuf, part: &Projection<'_>) {
        match part {
            Projection::Whole(_) => self.steps.push(DiffOp::remove(place)),
            Projection::Object(members) => {
                for (name, part) in members {
                    self.remove_shown(below(&place, name), part);
                }
            }
            Projection::Array { elements, .. } => {
                for (index, part) in elements.iter().rev() {
                    self.remove_shown(below(&place, &index.to_string()), part);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
