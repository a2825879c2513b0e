//! What crosses the border between a board and one inside it: the request that goes in, the patch that comes out, and the
//! inner board's name.
//!
//! All are functions of what is declared ([`InnerBoard`]) and of values; nothing else crosses. What goes in are values
//! that the worker's view showed whole, so that freshness watches over them like over anything else that was read.

use jsonptr::Pointer;
use serde_json::{Map, Value, json};

use crate::blueprint::{FailedBoard, InnerBoard};
use crate::digest::{Digest, sha256};
use crate::id::BoardId;
use crate::record::Parent;
use crate::shown::{NotWhole, Shown};
use crate::tree::Node;

/// The id of the `nth` board, from 0, that works on this request for an invocation: a further one is made only after one
/// that failed. So whoever takes the invocation up again, also after a crash, finds the board that was made for it; and one
/// whose request has changed meanwhile does not take over what came of the old one.
///
/// It is an id like that of others (UUIDv7), with the time of the parent's.
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

/// Why no request can be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct BorderError {
    /// For people; names places, not values.
    pub message: String,
}

/// The request of the inner board: the members that are declared, from what the worker was shown. What is not there, and
/// what it may not read as things are, is left out. A name in a place is what the trigger binds it to.
///
/// # Errors
/// A value that is there and may be read, but did not fit into the view.
pub fn request(inner: &InnerBoard, shown: &Shown) -> Result<Value, BorderError> {
    let mut request = Map::new();
    for (member, from) in &inner.input {
        let wrong = |why: &str| BorderError { message: format!("input {member}: {why} {from}") };
        let place = shown.seat().bound().place(from).ok_or_else(|| wrong("no JSON Pointer:"))?;
        let value = shown.value_at(&place).map_err(|NotWhole| wrong("the view has no room for all of"))?;
        // Nothing is told by leaving out what is not there, or hidden.
        let Some(value) = value else { continue };
        request.insert(member.clone(), value.to_value());
    }
    Ok(Value::Object(request))
}

/// The patch that an inner board leads to that is done, from its document.
pub fn patch(inner: &InnerBoard, document: &Node) -> Value {
    let found = inner.output.iter().filter_map(|(path, from)| {
        let value = document.get(Pointer::parse(from).ok()?)?.to_value();
        Some(json!({"op": "add", "path": path, "value": value}))
    });
    found.collect()
}

/// Returns the patch that a board leads to that ended otherwise. `value`: that of `failed`, its names filled in.
pub fn patch_of_failure(failed: &FailedBoard, mut value: Map<String, Value>, message: &str) -> Value {
    if let Some(member) = &failed.message {
        value.insert(member.clone(), message.into());
    }
    json!([{"op": "add", "path": failed.path, "value": value}])
}
