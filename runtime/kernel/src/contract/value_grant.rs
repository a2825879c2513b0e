//! Values about to be written, and their rejection by the `value` schema of a grant.

use std::borrow::Cow;
use std::sync::Arc;

use jsonptr::Pointer;
use serde_json::Value;

use super::CompiledGrant;
use crate::rejection::{Code, Violation};
use crate::schema::{Schema, shorten};
use crate::tree::Node;

/// Value constraint of a grant.
pub(super) struct ValueGrant {
    /// The schema as the blueprint has it.
    pub(super) written: Value,
    pub(super) schema: Arc<Schema>,
}

#[derive(Clone, Copy)]
pub(super) enum WrittenValue<'a> {
    /// Written by the worker, so it may be shown to the worker.
    Own(&'a Value),
    /// Taken from the document, where the worker may not read it.
    Found(&'a Node),
}

impl<'a> WrittenValue<'a> {
    /// Returns the value in the form that schemas validate.
    pub(super) fn value(self) -> Cow<'a, Value> {
        match self {
            Self::Own(value) => Cow::Borrowed(value),
            Self::Found(node) => Cow::Owned(node.to_value()),
        }
    }
}

/// Builds the violation for a value that the `value` schema of a grant rejects.
pub(super) fn value_not_granted(
    path: &Pointer,
    write: &CompiledGrant,
    reason: Violation,
    written: WrittenValue<'_>,
) -> Violation {
    let inside = if reason.pointer.is_empty() { String::new() } else { format!(" at `{}` in it", reason.pointer) };
    let message = format!("the grant on `{}` refuses this value:{inside} {}", write.pattern, reason.message);
    let found = match written {
        WrittenValue::Own(value) => value.pointer(&reason.pointer).map(shorten),
        WrittenValue::Found(_) => None,
    };
    // The schema's message about a value from the document can contain its member names, which are hidden content.
    let message = match written {
        WrittenValue::Own(_) => message,
        WrittenValue::Found(_) => format!(
            "the grant on `{}` refuses this value: it breaks `{}`",
            write.pattern,
            reason.rule.as_deref().unwrap_or("its schema")
        ),
    };
    Violation { code: Code::ValueNotGranted, pointer: path.to_string(), message, found, ..reason }
}
