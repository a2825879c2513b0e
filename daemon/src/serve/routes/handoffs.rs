//! Handoffs: asked for, answered, and those that wait for an agent.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use jsonptr::{PointerBuf, Token};
use patchboard_kernel::board::Board;
use patchboard_kernel::handoff::{self, Handoff};
use patchboard_kernel::id::{BoardId, WorkerName};
use patchboard_kernel::tree::Node;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::ProblemDocument;
use super::protocols::{By, propose};
use crate::serve::access::Need;
use crate::serve::http::{Asked, BoardPath, Body, Caller, Key, Segments};
use crate::serve::problem::Answered;
use crate::serve::service::Daemon;

/// What is known of the work.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    /// A media type. Of `application/json` the content is any value, of `text/…` a text, of any other a text in Base64.
    content_type: String,
    /// The content.
    content: Value,
}

/// Work that is to be handed over.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Requested {
    /// Whose work it is.
    worker: String,
    /// The call that this answers, if it is one: a lease of the worker's.
    lease: Option<String>,
    /// Its id, which is new: letters, digits, `_` and `-`.
    #[schema(min_length = 1, max_length = 90)]
    request_id: String,
    /// Who is to take it; empty or absent: whoever can.
    #[serde(default)]
    to_agent: String,
    /// Why.
    reason: String,
    /// What whoever takes it must be able to do.
    #[serde(default)]
    capabilities_required: Vec<String>,
    /// The higher, the more urgent.
    #[serde(default)]
    priority: i32,
    /// After so many milliseconds it expires.
    timeout_ms: u64,
    /// What is known of the work.
    context: Context,
    /// The piece of work: its name in `/tasks`.
    task: String,
}

/// Ask for somebody to take over a piece of work
///
/// It is a patch like any other: of work that is not the worker's own it is refused.
#[utoipa::path(post, path = "/v1/boards/{board}/handoffs", tag = "protocols", request_body = Requested,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, body = Object, description = "What became of it: `outcome`, and the record's `seq`"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn request(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    BoardPath(board): BoardPath,
    key: Key,
    Body(requested): Body<Requested>,
) -> Answered<impl IntoResponse> {
    let Requested { worker, lease, request_id, .. } = requested;
    let value = json!({
        "request_id": request_id,
        "from_agent": worker,
        "to_agent": requested.to_agent,
        "reason": requested.reason,
        "capabilities_required": requested.capabilities_required,
        "priority": requested.priority,
        "timeout_ms": requested.timeout_ms,
        "context": {"content_type": requested.context.content_type, "content": requested.context.content},
        "task": requested.task,
        "state": handoff::State::Pending,
    });
    let patch = json!([{"op": "add", "path": place(&request_id, ""), "value": value}]);
    propose(&daemon, &caller, &board, By { worker: WorkerName::from(worker), lease, key }, patch).await
}

/// Who answers.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Accepted {
    /// Who is asked.
    worker: String,
    /// The call that this answers, if it is one: a lease of the worker's.
    lease: Option<String>,
}

/// Take over a piece of work
///
/// Only who is asked can, and as long as nobody else has answered. With the next commit the work is the worker's.
#[utoipa::path(post, path = "/v1/boards/{board}/handoffs/{handoff}/accept", tag = "protocols", request_body = Accepted,
    params(("board" = String, Path), ("handoff" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, body = Object, description = "What became of it: `outcome`, and the record's `seq`"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn accept(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Segments((board, handoff)): Segments<(BoardId, String)>,
    key: Key,
    Body(accepted): Body<Accepted>,
) -> Answered<impl IntoResponse> {
    let patch = json!([{"op": "replace", "path": place(&handoff, "/state"), "value": handoff::State::Accepted}]);
    let by = By { worker: WorkerName::from(accepted.worker), lease: accepted.lease, key };
    propose(&daemon, &caller, &board, by, patch).await
}

/// Why somebody does not take it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rejected {
    /// Who is asked.
    worker: String,
    /// The call that this answers, if it is one: a lease of the worker's.
    lease: Option<String>,
    /// Why.
    #[schema(min_length = 1, max_length = 4000)]
    reason: String,
}

/// Say that one does not take over a piece of work, and why
///
/// Then somebody else is asked, or a person.
#[utoipa::path(post, path = "/v1/boards/{board}/handoffs/{handoff}/reject", tag = "protocols", request_body = Rejected,
    params(("board" = String, Path), ("handoff" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, body = Object, description = "What became of it: `outcome`, and the record's `seq`"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn reject(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Segments((board, handoff)): Segments<(BoardId, String)>,
    key: Key,
    Body(rejected): Body<Rejected>,
) -> Answered<impl IntoResponse> {
    let Rejected { worker, lease, reason } = rejected;
    let patch = json!([
        {"op": "replace", "path": place(&handoff, "/state"), "value": handoff::State::Rejected},
        {"op": "add", "path": place(&handoff, "/rejection"), "value": {"by": worker, "reason": reason}},
    ]);
    propose(&daemon, &caller, &board, By { worker: WorkerName::from(worker), lease, key }, patch).await
}

/// Whose handoffs.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pending {
    /// Who is asked to take them.
    agent: String,
}

/// What an agent is asked to take over and has not answered yet
///
/// The more urgent first, then the older. An agent that comes back after a crash asks for them.
#[utoipa::path(get, path = "/v1/boards/{board}/handoffs", tag = "protocols",
    params(("board" = String, Path), Pending),
    responses((status = 200, body = Object, description = "`handoffs`, each as it stands in the document"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn pending(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    BoardPath(board): BoardPath,
    Asked(Pending { agent }): Asked<Pending>,
) -> Answered<Json<Value>> {
    let worker = WorkerName::from(agent.as_str());
    caller.needs(&Need::SeeSeat(board.clone(), worker.clone()))?;
    let found = daemon.ask_board(&board, None, move |board| Ok(pending_of(board, &worker)));
    Ok(Json(json!({"handoffs": found.await?})))
}

/// What a worker is asked to take over, of what it may read.
fn pending_of(board: &Board, worker: &WorkerName) -> Vec<Handoff> {
    let root = board.state().root();
    let Some((readable, there)) = board.readable_by(worker).zip(root.child("handoffs").and_then(Node::as_object))
    else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (name, node) in there.iter() {
        let place = PointerBuf::from_tokens(["handoffs", &**name]);
        // Its id is written once, with the rest of it.
        let since = root.last_changed(&place.with_trailing_token("request_id"));
        let handoff = serde_json::from_value::<Handoff>(node.to_value()).ok().filter(|_| readable.may_read(&place));
        found.extend(handoff.map(|handoff| (since, handoff)));
    }
    found.sort_by_key(|(since, _)| *since);
    let handoffs: Vec<Handoff> = found.into_iter().map(|(_, handoff)| handoff).collect();
    handoff::pending(&handoffs, worker.as_str()).into_iter().cloned().collect()
}

/// Where a handoff stands, or something of it.
fn place(handoff: &str, within: &str) -> String {
    format!("/handoffs/{}{within}", Token::new(handoff).encoded())
}
