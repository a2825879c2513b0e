//! Handoffs: requests, answers, and the pending ones of an agent.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use jsonptr::{PointerBuf, Token};
use patchboard_kernel::board::Board;
use patchboard_kernel::contract::Readable;
use patchboard_kernel::id::{BoardId, WorkerName};
use patchboard_kernel::tree::Node;
use patchboard_protocols::handoff::{self, Handoff, HandoffCode, HandoffError};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::proposal_outcome::ProposalOutcome;
use super::protocols::{MessageAuthor, propose};
use super::rooms::resolve_author;
use crate::queries::handoffs::{HandoffContext, HandoffInfo, HandoffList};
use crate::serve::access::Permission;
use crate::serve::http::{IdempotencyHeader, OnBoard, OnPart, StrictJson, StrictQuery, request_body};
use crate::serve::json::{Json, SortedJson};
use crate::serve::problem::{ApiResult, Code, Problem, no_such_worker};
use crate::serve::service::Daemon;

/// Handoff request. Unknown members are ignored.
#[derive(Deserialize, ToSchema)]
pub(crate) struct HandoffRequest {
    /// Worker that hands over its work. Required, unless `from_agent` is given.
    worker: Option<String>,
    /// Alias of `worker`.
    from_agent: Option<String>,
    /// Lease of the worker's call that this replies to, if any.
    #[schema(pattern = r"^(0|[1-9][0-9]{0,17}):(0|[1-9][0-9]{0,8})$")]
    lease: Option<String>,
    /// New id: letters, digits, `_` and `-`.
    #[schema(min_length = 1, max_length = 90)]
    request_id: String,
    /// Requested agent; empty or absent: any capable agent.
    #[serde(default)]
    to_agent: String,
    /// Reason.
    reason: String,
    /// Capabilities that the accepting agent needs.
    #[serde(default)]
    capabilities_required: Vec<String>,
    /// Priority; higher is more urgent.
    #[serde(default)]
    priority: i32,
    /// Expiry, in milliseconds from the request.
    timeout_ms: u64,
    /// Context of the work; alias `context_snapshot`.
    #[serde(alias = "context_snapshot")]
    context: HandoffContext,
    /// Task: its name in `/tasks`.
    task: String,
}

request_body!(HandoffRequest: OperateOrActAs, large);

/// Request the handoff of a task
///
/// Proposes a patch. It is rejected for a task of another worker, and for an unknown one (`handoff_unknown_task`).
#[utoipa::path(post, operation_id = "requestHandoff", path = "/v1/boards/{board}/handoffs", tag = "protocols", request_body = HandoffRequest,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "Outcome of the proposal", body = ProposalOutcome)))]
pub(crate) async fn request(
    OnBoard { daemon, caller, board }: OnBoard,
    key: IdempotencyHeader,
    StrictJson(requested): StrictJson<HandoffRequest>,
) -> ApiResult<impl IntoResponse> {
    let HandoffRequest { worker, from_agent, lease, request_id, .. } = requested;
    let worker = resolve_author(worker, from_agent, "from_agent")?;
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
        "state": handoff::HandoffState::Pending,
    });
    let patch = json!([{"op": "add", "path": place(&request_id, ""), "value": value}]);
    let worker = WorkerName::from(worker);
    let proposed = propose(&daemon, &caller, &board, MessageAuthor { worker: worker.clone(), lease, key }, patch).await;
    with_handoff_error(&daemon, &board, worker, proposed, move |document, readable| {
        // Values that do not parse are left to the board's own rejection.
        let Ok(request) = serde_json::from_value::<handoff::Request>(value) else { return Ok(()) };
        let tasks = document.child("tasks").and_then(Node::as_object).map(|tasks| tasks.iter());
        let tasks: BTreeSet<String> = tasks.into_iter().flatten().map(|(name, _)| name.to_string()).collect();
        // Existence of a task is disclosed only to workers that may read it.
        if !readable.may_read(&PointerBuf::from_tokens(["tasks", &request.task])) {
            return Ok(());
        }
        let there = find_handoff(document, readable, &request.request_id).ok();
        handoff::check_request(&request, there.as_slice(), &tasks)
    })
    .await
}

/// Acceptance of a handoff.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcceptHandoffRequest {
    /// Worker that is asked.
    worker: String,
    /// Lease of the worker's call that this replies to, if any.
    #[schema(pattern = r"^(0|[1-9][0-9]{0,17}):(0|[1-9][0-9]{0,8})$")]
    lease: Option<String>,
}

request_body!(AcceptHandoffRequest: OperateOrActAs);

/// Accept a handoff
///
/// Only the agent that is asked can accept (`handoff_not_addressed`), while the handoff is open (`handoff_terminal`).
/// The next commit assigns the task to the worker.
#[utoipa::path(post, operation_id = "acceptHandoff", path = "/v1/boards/{board}/handoffs/{handoff}/accept", tag = "protocols", request_body = AcceptHandoffRequest,
    params(("board" = String, Path), ("handoff" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "Outcome of the proposal", body = ProposalOutcome)))]
pub(crate) async fn accept(
    OnPart { daemon, caller, board, part: handoff }: OnPart<String>,
    key: IdempotencyHeader,
    StrictJson(accepted): StrictJson<AcceptHandoffRequest>,
) -> ApiResult<impl IntoResponse> {
    let patch = json!([{"op": "replace", "path": place(&handoff, "/state"), "value": handoff::HandoffState::Accepted}]);
    let worker = WorkerName::from(accepted.worker);
    let by = MessageAuthor { worker: worker.clone(), lease: accepted.lease, key };
    let proposed = propose(&daemon, &caller, &board, by, patch).await;
    with_handoff_error(&daemon, &board, worker.clone(), proposed, move |document, readable| {
        let capabilities = document.child("agents").and_then(|agents| agents.child(worker.as_str()));
        let capabilities = capabilities.map(Node::to_value).and_then(|there| serde_json::from_value(there).ok());
        find_handoff(document, readable, &handoff)?.accept(worker.as_str(), &capabilities.unwrap_or_default()).map(drop)
    })
    .await
}

/// Rejection of a handoff.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RejectHandoffRequest {
    /// Worker that is asked.
    worker: String,
    /// Lease of the worker's call that this replies to, if any.
    #[schema(pattern = r"^(0|[1-9][0-9]{0,17}):(0|[1-9][0-9]{0,8})$")]
    lease: Option<String>,
    /// Reason; required (`handoff_reason_missing`).
    #[serde(default)]
    #[schema(required, min_length = 1, max_length = 4000)]
    reason: String,
}

request_body!(RejectHandoffRequest: OperateOrActAs);

/// Reject a handoff, with a reason
///
/// Another agent is asked next, or a person.
#[utoipa::path(post, operation_id = "rejectHandoff", path = "/v1/boards/{board}/handoffs/{handoff}/reject", tag = "protocols", request_body = RejectHandoffRequest,
    params(("board" = String, Path), ("handoff" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "Outcome of the proposal", body = ProposalOutcome)))]
pub(crate) async fn reject(
    OnPart { daemon, caller, board, part: handoff }: OnPart<String>,
    key: IdempotencyHeader,
    StrictJson(rejected): StrictJson<RejectHandoffRequest>,
) -> ApiResult<impl IntoResponse> {
    let RejectHandoffRequest { worker, lease, reason } = rejected;
    let patch = json!([
        {"op": "replace", "path": place(&handoff, "/state"), "value": handoff::HandoffState::Rejected},
        {"op": "add", "path": place(&handoff, "/rejection"), "value": {"by": worker, "reason": reason}},
    ]);
    let worker = WorkerName::from(worker);
    let proposed = propose(&daemon, &caller, &board, MessageAuthor { worker: worker.clone(), lease, key }, patch).await;
    with_handoff_error(&daemon, &board, worker.clone(), proposed, move |document, readable| {
        find_handoff(document, readable, &handoff)?.reject(worker.as_str(), &reason).map(drop)
    })
    .await
}

/// Replaces the rejection of a proposal by a more specific handoff error, if there is one.
///
/// The board decides first: it recognises replays. A look before its decision could be outdated by another answer.
async fn with_handoff_error<T>(
    daemon: &Arc<Daemon>,
    board: &BoardId,
    worker: WorkerName,
    proposed: ApiResult<T>,
    look: impl FnOnce(&Node, &Readable<'_>) -> Result<(), HandoffError> + Send + 'static,
) -> ApiResult<T> {
    let refused = match proposed {
        Err(refused) if refused.status == StatusCode::UNPROCESSABLE_ENTITY => refused,
        other => return other,
    };
    let why = move |board: &Board| {
        Ok(readable_handoffs(board, &worker)
            .and_then(|readable| look(board.state().root(), &readable).map_err(|why| problem(why.code, why.message))))
    };
    match daemon.query_board(board, None, why).await? {
        Ok(()) => Err(refused),
        Err(why) => Err(refused.explained_by(why)),
    }
}

/// Returns the readable part of a board with handoffs, for a worker.
fn readable_handoffs<'b>(board: &'b Board, worker: &WorkerName) -> ApiResult<Readable<'b>> {
    let seat = board.plan().workers.get(worker).ok_or_else(|| no_such_worker(worker))?;
    match board.state().root().child("handoffs").and_then(Node::as_object) {
        Some(_) => Ok(board.readable_by(seat)),
        None => Err(no_handoffs()),
    }
}

fn no_handoffs() -> Problem {
    let detail = "the board has no handoffs: a blueprint has them by fragments/handoff.yaml";
    Problem::from_code(Code::NoHandoffs, detail)
}

/// Returns the handoff with an id, if it exists and is readable.
fn find_handoff(document: &Node, readable: &Readable<'_>, id: &str) -> Result<Handoff, HandoffError> {
    let may_read = readable.may_read(&PointerBuf::from_tokens(["handoffs", id]));
    let there = document.child("handoffs").and_then(|handoffs| handoffs.child(id)).filter(|_| may_read);
    let there: Option<Handoff> = there.and_then(|there| serde_json::from_value(there.to_value()).ok());
    handoff::find(there.as_slice(), id).cloned()
}

/// Returns a problem: 404 for a missing handoff, 409 for conflicts with the current state, 422 for invalid requests.
fn problem(code: HandoffCode, message: String) -> Problem {
    let status = match code {
        HandoffCode::Unknown => StatusCode::NOT_FOUND,
        HandoffCode::IllegalTransition | HandoffCode::Terminal | HandoffCode::NotAddressed | HandoffCode::NoRoute => {
            StatusCode::CONFLICT
        }
        HandoffCode::ReasonMissing
        | HandoffCode::Incapable
        | HandoffCode::BadContext
        | HandoffCode::UnknownTask
        | HandoffCode::BadRequest => StatusCode::UNPROCESSABLE_ENTITY,
    };
    Problem::new(status, code.as_str(), message)
}

/// Selection of handoffs.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pending {
    /// Agent that is asked to take them.
    agent: String,
}

/// List the handoffs that an agent has yet to answer
///
/// Ordered by priority, then by age. An agent that restarts after a crash reads its open handoffs here. 404 if the
/// board has no handoffs, or no such worker.
#[utoipa::path(get, operation_id = "listHandoffs", path = "/v1/boards/{board}/handoffs", tag = "protocols",
    params(("board" = String, Path), Pending),
    responses((status = 200, description = "The handoffs", body = HandoffList)))]
pub(crate) async fn pending(
    OnBoard { daemon, caller, board }: OnBoard,
    StrictQuery(Pending { agent }): StrictQuery<Pending>,
) -> ApiResult<SortedJson<HandoffList>> {
    let worker = WorkerName::from(agent.as_str());
    caller.require(&Permission::ViewAs(board.clone(), worker.clone()))?;
    let found = daemon.query_board(&board, None, move |board| {
        Ok(readable_handoffs(board, &worker).map(|readable| pending_of(board, &worker, &readable)))
    });
    Ok(SortedJson(HandoffList { handoffs: found.await?? }))
}

/// Perspective of a read.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadAs {
    /// Worker to read as; its contract must let it read the handoff. For callers with a token for only that worker.
    agent: Option<String>,
}

/// Show a handoff
///
/// Returns it as stored in the document: the request, its `state`, the agent asked (`to`), and a `rejection`.
#[utoipa::path(get, operation_id = "getHandoff", path = "/v1/boards/{board}/handoffs/{handoff}", tag = "protocols",
    params(("board" = String, Path), ("handoff" = String, Path), ReadAs),
    responses((status = 200, description = "The handoff", body = HandoffInfo)))]
pub(crate) async fn show(
    OnPart { daemon, caller, board, part: handoff }: OnPart<String>,
    StrictQuery(ReadAs { agent }): StrictQuery<ReadAs>,
) -> ApiResult<Json<Value>> {
    let agent = agent.map(WorkerName::from);
    caller.require(&match &agent {
        Some(agent) => Permission::ViewAs(board.clone(), agent.clone()),
        None => Permission::View(board.clone()),
    })?;
    let found = daemon.query_board(&board, None, move |board| Ok(read_handoff(board, agent.as_ref(), &handoff)));
    found.await?.map(Json)
}

/// Returns a handoff as stored; for a worker, only if it may read it.
fn read_handoff(board: &Board, agent: Option<&WorkerName>, handoff: &str) -> ApiResult<Value> {
    let readable = agent.map(|agent| readable_handoffs(board, agent)).transpose()?;
    let place = PointerBuf::from_tokens(["handoffs", handoff]);
    let may_read = readable.is_none_or(|readable| readable.may_read(&place));
    let handoffs = board.state().root().child("handoffs").ok_or_else(no_handoffs)?;
    let found = handoffs.child(handoff).filter(|_| may_read).map(Node::to_value);
    found.ok_or_else(|| problem(HandoffCode::Unknown, format!("there is no handoff `{handoff}`")))
}

/// Returns the pending handoffs of a worker that it may read.
fn pending_of(board: &Board, worker: &WorkerName, readable: &Readable<'_>) -> Vec<Handoff> {
    let root = board.state().root();
    let Some(there) = root.child("handoffs").and_then(Node::as_object) else { return Vec::new() };
    let mut found = Vec::new();
    for (name, node) in there.iter() {
        let place = PointerBuf::from_tokens(["handoffs", &**name]);
        // The id is written once, at creation.
        let since = root.last_changed(&place.with_trailing_token("request_id"));
        let handoff = serde_json::from_value::<Handoff>(node.to_value()).ok().filter(|_| readable.may_read(&place));
        found.extend(handoff.map(|handoff| (since, handoff)));
    }
    found.sort_by_key(|(since, _)| *since);
    let handoffs: Vec<Handoff> = found.into_iter().map(|(_, handoff)| handoff).collect();
    handoff::pending(&handoffs, worker.as_str()).into_iter().cloned().collect()
}

/// Returns the JSON Pointer of a handoff, or of a member of it.
fn place(handoff: &str, within: &str) -> String {
    format!("/handoffs/{}{within}", Token::new(handoff).encoded())
}
