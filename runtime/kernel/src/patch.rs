//! RFC 6902 documents: strict parsing and serialisation.
//!
//! Defines the syntax of a patch. [`crate::state`] applies operations to a document; [`crate::contract`] decides if a
//! worker may use them.

use json_patch::PatchOperation;
use jsonptr::{ParseError, Pointer};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::blueprint::PatchLimits;
use crate::json;
use crate::rejection::{Code, VIOLATIONS_MAX, Violation};

/// Operations of RFC 6902 section 4.
const OPS: [&str; 6] = ["add", "copy", "move", "remove", "replace", "test"];

/// One operation (RFC 6902 section 4). Borrows from the parsed patch, so that a value is copied only once, into the
/// tree.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Op<'a> {
    /// Puts a value at a new place, or over a member.
    Add {
        /// Target place.
        path: &'a Pointer,
        /// New value.
        value: &'a Value,
    },
    /// Removes a value.
    Remove {
        /// Place of the value.
        path: &'a Pointer,
    },
    /// Replaces an existing value.
    Replace {
        /// Place of the value.
        path: &'a Pointer,
        /// New value.
        value: &'a Value,
    },
    /// Moves a value to another place.
    Move {
        /// Source place.
        from: &'a Pointer,
        /// Target place.
        path: &'a Pointer,
    },
    /// Copies a value to another place.
    Copy {
        /// Source place.
        from: &'a Pointer,
        /// Target place.
        path: &'a Pointer,
    },
    /// Rejects the patch unless this value is there.
    Test {
        /// Place of the value.
        path: &'a Pointer,
        /// Expected value.
        value: &'a Value,
    },
}

impl<'a> Op<'a> {
    /// Returns its place; for a move or a copy, the target.
    pub const fn path(&self) -> &'a Pointer {
        match self {
            Self::Add { path, .. }
            | Self::Remove { path }
            | Self::Replace { path, .. }
            | Self::Move { path, .. }
            | Self::Copy { path, .. }
            | Self::Test { path, .. } => path,
        }
    }
}

/// Converts an operation of the crate `json_patch`. Its values must be normalised ([`json::normalise`]).
impl<'a> From<&'a PatchOperation> for Op<'a> {
    fn from(op: &'a PatchOperation) -> Self {
        match op {
            PatchOperation::Add(op) => Self::Add { path: &op.path, value: &op.value },
            PatchOperation::Remove(op) => Self::Remove { path: &op.path },
            PatchOperation::Replace(op) => Self::Replace { path: &op.path, value: &op.value },
            PatchOperation::Move(op) => Self::Move { from: &op.from, path: &op.path },
            PatchOperation::Copy(op) => Self::Copy { from: &op.from, path: &op.path },
            PatchOperation::Test(op) => Self::Test { path: &op.path, value: &op.value },
        }
    }
}

/// Parses a patch. Every operation is checked, so that all violations are reported together (the first
/// [`VIOLATIONS_MAX`]).
///
/// Members that an operation does not define are ignored (RFC 6902 section 4). The operations borrow the patch's
/// values, so its numbers must be canonical already ([`json::normalise`], SPEC section 2). Only `max_ops` of `limits`
/// applies here: bytes are counted where the text is read. Violations of `not_a_patch`, `unknown_op`, `bad_pointer` and
/// `too_large` point into the patch.
pub fn parse<'a>(value: &'a Value, limits: &PatchLimits) -> Result<Vec<Op<'a>>, Vec<Violation>> {
    let Value::Array(elements) = value else {
        let message = format!("a patch is an array of operations, this is {}", kind_of(value));
        return Err(vec![Violation::new(Code::NotAPatch, "", message)]);
    };
    let mut ops = Vec::new();
    let mut violations = Vec::new();
    let ops_max = usize::try_from(limits.max_ops).unwrap_or(usize::MAX);
    if elements.len() > ops_max {
        let message = format!("the patch has {} operations, at most {ops_max} are allowed", elements.len());
        violations.push(Violation::new(Code::TooLarge, "", message).with_expected(limits.max_ops.into()));
    }
    for (index, element) in elements.iter().take(ops_max).enumerate() {
        match operation(element, &mut ElementViolations { index, violations: &mut violations }) {
            Some(op) => ops.push(op),
            None if violations.len() >= VIOLATIONS_MAX => break,
            None => {}
        }
    }
    violations.truncate(VIOLATIONS_MAX);
    if violations.is_empty() { Ok(ops) } else { Err(violations) }
}

/// Returns the patch as JSON.
pub fn to_value(ops: &[Op<'_>]) -> Value {
    serde_json::to_value(ops).expect("operations hold only texts and JSON values")
}

/// Collects the violations of one element of the patch.
struct ElementViolations<'a> {
    index: usize,
    violations: &'a mut Vec<Violation>,
}

impl ElementViolations<'_> {
    /// Adds a violation. `member` is the location within the element, e.g. `/op`; empty for the element itself.
    fn add(&mut self, code: Code, member: &str, message: impl Into<String>) -> &mut Violation {
        let pointer = format!("/{}{member}", self.index);
        self.violations.push(Violation::new(code, pointer, message).with_op(self.index));
        self.violations.last_mut().expect("one was just added")
    }
}

/// Parses one operation and adds its violations to `faults`; at least one if it returns `None`.
fn operation<'a>(element: &'a Value, faults: &mut ElementViolations<'_>) -> Option<Op<'a>> {
    let Value::Object(members) = element else {
        faults.add(Code::NotAPatch, "", format!("an operation is an object, this is {}", kind_of(element)));
        return None;
    };
    let name = match members.get("op") {
        Some(Value::String(name)) if OPS.contains(&name.as_str()) => Some(name.as_str()),
        Some(Value::String(name)) => {
            let message = format!("RFC 6902 has no operation {:?}", json::shortened(name));
            let violation = faults.add(Code::UnknownOp, "/op", message);
            violation.expected = Some(OPS.as_slice().into());
            violation.found = Some(name.as_str().into());
            None
        }
        other => {
            missing(faults, "op", "a string", other).expected = Some(OPS.as_slice().into());
            None
        }
    };
    // Each member is parsed before any is required, so that all violations of the operation are reported together.
    let path = pointer(members, "path", faults);
    Some(match name? {
        "add" => {
            let value = value(members, faults);
            Op::Add { path: path?, value: value? }
        }
        "replace" => {
            let value = value(members, faults);
            Op::Replace { path: path?, value: value? }
        }
        "test" => {
            let value = value(members, faults);
            Op::Test { path: path?, value: value? }
        }
        "move" => {
            let from = pointer(members, "from", faults);
            Op::Move { from: from?, path: path? }
        }
        "copy" => {
            let from = pointer(members, "from", faults);
            Op::Copy { from: from?, path: path? }
        }
        _ => Op::Remove { path: path? },
    })
}

fn pointer<'a>(members: &'a Map<String, Value>, name: &str, faults: &mut ElementViolations<'_>) -> Option<&'a Pointer> {
    let text = match members.get(name) {
        Some(Value::String(text)) => text,
        other => {
            missing(faults, name, "a string with a JSON Pointer (RFC 6901)", other);
            return None;
        }
    };
    match Pointer::parse(text) {
        Ok(pointer) => Some(pointer),
        Err(error) => {
            let reason = match error {
                ParseError::NoLeadingSlash => "it is neither empty nor begins with \"/\"",
                ParseError::InvalidEncoding { .. } => {
                    "\"~\" is only allowed in \"~0\" (for \"~\") and \"~1\" (for \"/\")"
                }
            };
            let message = format!("{:?} is no JSON Pointer (RFC 6901): {reason}", json::shortened(text));
            faults.add(Code::BadPointer, &format!("/{name}"), message).found = Some(text.as_str().into());
            None
        }
    }
}

fn value<'a>(members: &'a Map<String, Value>, faults: &mut ElementViolations<'_>) -> Option<&'a Value> {
    let value = members.get("value");
    if value.is_none() {
        missing(faults, "value", "a JSON value (null, if nothing is meant)", None);
    }
    value
}

fn missing<'a>(
    faults: &'a mut ElementViolations<'_>,
    name: &str,
    wanted: &str,
    found: Option<&Value>,
) -> &'a mut Violation {
    match found {
        None => faults.add(Code::NotAPatch, "", format!("the operation lacks {name:?}, {wanted}")),
        Some(value) => {
            let message = format!("{name:?} is {wanted}, this is {}", kind_of(value));
            faults.add(Code::NotAPatch, &format!("/{name}"), message)
        }
    }
}

/// Describes the type of a value without its contents.
pub(crate) fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "a boolean".to_owned(),
        Value::Number(_) => "a number".to_owned(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(members) => format!("an object of {}", members.len()),
    }
}

#[cfg(test)]
mod tests;
