//! Helpers of builtin roles: reading the view, and building the reply.

use jsonptr::{Pointer, PointerBuf};
use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::call_context::Truncated;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::tree::Node;
use patchboard_runtime::agent::{Call, CallResult, Failure, Reply};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Reason that a role returns no patch.
pub(crate) enum NoPatch {
    /// The view must contain all of this place first.
    NotInView(String),
    /// There is no work to do.
    Pass(String),
    /// A person must answer a question first.
    Ask {
        question: String,
        /// Answers to choose from; empty if any answer is possible.
        choices: Vec<String>,
    },
    Failed(Failure),
}

impl<F: Into<Failure>> From<F> for NoPatch {
    fn from(why: F) -> Self {
        Self::Failed(why.into())
    }
}

pub(crate) fn not_configured(why: impl Into<String>) -> Failure {
    Failure::new(FailureCode::NotConfigured, why)
}

pub(crate) fn role_config<T: DeserializeOwned>(worker: &Worker) -> Result<T, String> {
    let with = Value::Object(worker.with.clone().unwrap_or_default());
    serde_json::from_value(with).map_err(|why| format!("its `with` cannot be used: {why}"))
}

/// Checks that a text of a configuration names a place.
pub(crate) fn is_place(text: &str) -> Result<(), String> {
    let is_place = text.starts_with('/') && Pointer::parse(text).is_ok();
    if is_place { Ok(()) } else { Err("its `with` names places, like /messages".to_owned()) }
}

/// Builds the answer from patch operations, or from the reason that there are none.
pub(crate) fn respond(call: &Call, work: impl FnOnce() -> Result<Vec<Value>, NoPatch>) -> CallResult {
    let refused = |why: String| Failure::new(FailureCode::Refused, why);
    let reply = match work() {
        Ok(patch) => json!({"patch": patch}),
        Err(NoPatch::NotInView(place)) if call.context.may_expand() => json!({"patch": [], "expand": [place]}),
        Err(NoPatch::NotInView(place)) => {
            let why = "its `reads` lack it, or its view.budget is too small";
            return Err(not_configured(format!("the seat is not shown all of {place}: {why}")));
        }
        Err(NoPatch::Pass(why)) if call.worker_config().pass => json!({"pass": why}),
        Err(NoPatch::Pass(why)) => return Err(refused(format!("{why}, and the seat may not pass"))),
        Err(NoPatch::Ask { question, choices }) if call.context.may_clarify() => match choices.is_empty() {
            true => json!({"clarify": {"question": question}}),
            false => json!({"clarify": {"question": question, "choices": choices}}),
        },
        Err(NoPatch::Ask { question, .. }) => {
            return Err(refused(format!("a person would have to be asked, and the seat may not: {question}")));
        }
        Err(NoPatch::Failed(why)) => return Err(why),
    };
    Ok(Reply::new(reply.to_string(), None))
}

/// Builds a patch that adds a value at a place.
pub(crate) fn put(place: &str, value: &impl Serialize) -> Result<Vec<Value>, NoPatch> {
    let value = serde_json::to_value(value).map_err(|why| not_configured(format!("{place}: {why}")))?;
    Ok(vec![json!({"op": "add", "path": place, "value": value})])
}

/// Returns the value at a place in the view; `None` if there is none.
pub(crate) fn value_at(call: &Call, place: &str) -> Result<Option<Value>, NoPatch> {
    let shown = call.context.value_at(&pointer(place)?);
    Ok(shown.map_err(|Truncated| NoPatch::NotInView(place.to_owned()))?.map(Node::to_value))
}

/// Returns the value at a place in the document; `None` if there is none. The view need not have room for it, since a
/// function uses no tokens. Values outside the worker's `reads` stay hidden.
pub(crate) fn document_node<'c>(call: &'c Call, place: &str) -> Result<Option<&'c Node>, NoPatch> {
    let pointer = pointer(place)?;
    match call.context.value_at(&pointer) {
        Ok(value) => Ok(value),
        Err(Truncated) => {
            let document = call.context.basis().state.root();
            let may_read = call.context.worker_plan().contract.readable(document).may_read(&pointer);
            if may_read { Ok(document.get(&pointer)) } else { Err(NoPatch::NotInView(place.to_owned())) }
        }
    }
}

fn pointer(place: &str) -> Result<PointerBuf, Failure> {
    PointerBuf::parse(place).map_err(|_| not_configured(format!("no JSON Pointer: {place}")))
}

/// Reads the value at a place in the view as a `T`.
pub(crate) fn read<T: DeserializeOwned>(call: &Call, place: &str) -> Result<Option<T>, NoPatch> {
    Ok(value_at(call, place)?.map(|value| deserialize_at(place, value)).transpose()?)
}

/// Reads the value at a place in the document as a `T`.
pub(crate) fn read_document<T: DeserializeOwned>(call: &Call, place: &str) -> Result<Option<T>, NoPatch> {
    Ok(document_node(call, place)?.map(|node| deserialize_at(place, node.to_value())).transpose()?)
}

fn deserialize_at<T: DeserializeOwned>(place: &str, value: Value) -> Result<T, Failure> {
    serde_json::from_value(value).map_err(|why| not_configured(format!("{place}: {why}")))
}

/// Like [`read`], but a missing value is a failure.
pub(crate) fn read_required<T: DeserializeOwned>(call: &Call, place: &str) -> Result<T, NoPatch> {
    Ok(read(call, place)?.ok_or_else(|| not_configured(format!("there is nothing at {place}")))?)
}
