//! Mapping between a board and an inner board: the input request, the output patch, and the inner board's id.
//!
//! All functions depend only on the declaration ([`NestedBoardSpec`]) and on values; no other data is exchanged. Inputs
//! are values shown in full by the worker's view, so that freshness protects them like any other read.

use jsonptr::Pointer;
use serde_json::{Map, Value, json};

use crate::blueprint::{FailureOutput, NestedBoardSpec};
use crate::call_context::{CallContext, Truncated};
use crate::digest::{Digest, sha256};
use crate::id::BoardId;
use crate::record::Parent;
use crate::tree::Node;

/// Returns the id of the `nth` board, from 0, for a request of an invocation; a further board is created only after a
/// failed one. A resumed invocation, even after a crash, thus finds the board that was created for it. If the request
/// has changed, the id differs and the old result is not used.
///
/// The id is a UUIDv7 like that of other boards, with the time of the parent's.
pub fn inner_id(parent: &Parent, request: Digest, nth: u32) -> BoardId {
    let Parent { board, invocation } = parent;
    let text = format!("patchboard inner board\n{board}\n{}\n{request}\n{nth}", invocation.0);
    let mut digits: Vec<u8> = sha256(text.as_bytes()).to_string().into_bytes();
    let own: Vec<u8> = board.as_str().bytes().filter(|byte| *byte != b'-').collect();
    if own.len() == 32 && own.iter().all(u8::is_ascii_hexdigit) {
        digits[..12].copy_from_slice(&own[..12]);
    }
    (digits[12], digits[16]) = (b'7', b'8');
    let digits = String::from_utf8_lossy(&digits);
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..32]].join("-").into()
}

/// Error of mapping the input.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct NestedInputError {
    /// Human-readable message; names places, not values.
    pub message: String,
}

/// Returns the request of the inner board: the declared members, from the values shown to the worker. Missing and
/// currently unreadable values are omitted. Names in places are replaced by their bindings. Fails for a readable value
/// that did not fit into the view.
pub fn request(inner: &NestedBoardSpec, shown: &CallContext) -> Result<Value, NestedInputError> {
    let mut request = Map::new();
    for (member, from) in &inner.input {
        let wrong = |why: &str| NestedInputError { message: format!("input {member}: {why} {from}") };
        let place = shown.worker_plan().bound().resolve(from).ok_or_else(|| wrong("no JSON Pointer:"))?;
        let value = shown.value_at(&place).map_err(|Truncated| wrong("the view has no room for all of"))?;
        // Omitting the member reveals nothing: absent and hidden values look the same.
        let Some(value) = value else { continue };
        request.insert(member.clone(), value.to_value());
    }
    Ok(Value::Object(request))
}

/// Returns the patch that results from the document of a completed inner board.
pub fn patch(inner: &NestedBoardSpec, document: &Node) -> Value {
    let found = inner.output.iter().filter_map(|(path, from)| {
        let value = document.get(Pointer::parse(from).ok()?)?.to_value();
        Some(json!({"op": "add", "path": path, "value": value}))
    });
    found.collect()
}

/// Returns the patch for an inner board that ended otherwise. `value` is that of `failed`, with names replaced.
pub fn failure_patch(failed: &FailureOutput, mut value: Map<String, Value>, message: &str) -> Value {
    if let Some(member) = &failed.message {
        value.insert(member.clone(), message.into());
    }
    json!([{"op": "add", "path": failed.path, "value": value}])
}
