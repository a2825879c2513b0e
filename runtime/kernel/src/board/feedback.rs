//! Rejections in later views: complete for the author, places and codes for other workers.

use jsonptr::PointerBuf;
use serde_json::{Map, Value, json};

use crate::bindings::Bindings;
use crate::contract::{Contract, Readable};
use crate::expressions::BOUND;
use crate::id::WorkerName;
use crate::record::Rejected;
use crate::rejection::{Rejection, Stage};

/// Maximum places of one rejection shown to another worker.
const PLACES_MAX: usize = 3;

/// Builds a rejection for its author's next view under the same bindings.
pub(super) fn for_author(rejected: &Rejected, bound: &Bindings) -> Value {
    let Rejection { violations, allowed, .. } = &rejected.rejection;
    let mut shown =
        json!({"stage": rejected.stage, "code": rejected.code, "violations": violations, "allowed": allowed});
    if !bound.is_empty() {
        shown[BOUND] = bound.to_value();
    }
    shown
}

/// Returns true if a rejection was of an invocation with these bindings.
pub(super) fn has_bindings(shown: &Value, bound: &Bindings) -> bool {
    match shown.get(BOUND) {
        None => bound.is_empty(),
        Some(recorded) => *recorded == bound.to_value(),
    }
}

/// Builds a rejection of `author`'s proposal for the view of another worker; `None` if no place in it lies within that
/// worker's grants. Values and messages are omitted: they may contain data that only the author may read. Places that a
/// condition hides are omitted too.
pub(super) fn for_other(
    contract: &Contract,
    readable: &Readable<'_>,
    author: &WorkerName,
    shown: &Value,
) -> Option<Value> {
    // A conflict teaches other workers nothing.
    if shown["stage"] == Stage::Freshness.as_str() {
        return None;
    }
    let reduced = |violation: &Value| {
        let pointer = PointerBuf::parse(violation["pointer"].as_str()?).ok()?;
        let is_common = !pointer.is_root() && contract.writes_around(&pointer) && !readable.may_hide_at(&pointer);
        let mut members = Map::new();
        for member in ["code", "pointer", "rule"] {
            members.extend(violation.get(member).map(|value| (member.to_owned(), value.clone())));
        }
        is_common.then_some(Value::Object(members))
    };
    let violations = shown["violations"].as_array().into_iter().flatten().filter_map(reduced);
    let violations: Vec<Value> = violations.take(PLACES_MAX).collect();
    let (stage, code) = (&shown["stage"], &shown["code"]);
    (!violations.is_empty()).then(|| json!({"by": author, "stage": stage, "code": code, "violations": violations}))
}
