//! Values about to be written, and what the `value` schema of a grant has against them.

use std::borrow::Cow;
use std::sync::Arc;

use jsonptr::Pointer;
use serde_json::Value;

use super::Write;
use crate::rejection::{Code, Violation};
use crate::schema::{Schema, shorten};
use crate::tree::Node;

/// What a grant says of the values that are written.
pub(super) struct ValueGrant {
    /// As the blueprint has it.
    pub(super) written: Value,
    pub(super) schema: Arc<Schema>,
}

/// A value about to be written.
#[derive(Clone, Copy)]
pub(super) enum Written<'a> {
    /// The worker wrote it, so it may be shown to it.
    Own(&'a Value),
    /// It is in the document, where the worker may not read it.
    Found(&'a Node),
}

impl<'a> Written<'a> {
    /// The value, as schemas judge it.
    pub(super) fn value(self) -> Cow<'a, Value> {
        match self {
            Self::Own(value) => Cow::Borrowed(value),
            Self::Found(node) => Cow::Owned(node.to_value()),
        }
    }
}

/// That the `value` of a grant refuses what is about to be written.
pub(super) fn value_not_granted(path: &Pointer, write: &Write, reason: Violation, written: Written<'_>) -> Violation {
    let inside = if reason.pointer.is_empty() { String::new() } else { format!(" at `{}` in it", reason.pointer) };
    let message = format!("the grant on `{}` refuses this value:{inside} {}", write.pattern, reason.message);
    let found = match written {
        Written::Own(value) => value.pointer(&reason.pointer).map(shorten),
        Written::Found(_) => None,
    };
    // What a value from the document lacks or has too much of is told by its names, which are its content too.
    let message = match written {
        Written::Own(_) => message,
        Written::Found(_) => format!(
            "the grant on `{}` refuses this value: it breaks `{}`",
            write.pattern,
            reason.rule.as_deref().unwrap_or("its schema")
        ),
    };
    Violation { code: Code::ValueNotGranted, pointer: path.to_string(), message, found, ..reason }
}
