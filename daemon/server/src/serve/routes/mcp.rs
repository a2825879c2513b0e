//! MCP over streamable HTTP.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use patchboard_kernel::id::{BoardId, WorkerName};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{ProblemDocument, people};
use crate::serve::access::Scope;
use crate::serve::caller::Caller;
use crate::serve::files;
use crate::serve::http::{BODY_BYTES_MAX, OnPart, RequestBody, RoutePermission, StrictJson};
use crate::serve::mcp;
use crate::serve::mcp::worker_server::WorkerServer;
use crate::serve::problem::{ApiResult, Code, Problem};
use crate::serve::service::Daemon;

/// JSON-RPC message of MCP.
#[derive(Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(as = JsonRpcMessage, value_type = Object)]
pub(crate) struct Message(Value);

impl RequestBody for Message {
    const PERMISSION: RoutePermission = RoutePermission::ActAs;
    const BYTES_MAX: usize = BODY_BYTES_MAX;
    // A batch is rejected with a JSON-RPC error.
    const ALLOWS_ARRAY: bool = true;
}

/// Speak MCP as the worker of the token
///
/// A JSON-RPC message is answered with one, or with a stream if there are several. docs/mcp.md lists the tools.
#[utoipa::path(post, operation_id = "callOwnSeat", path = "/mcp", tag = "mcp", request_body = Message,
    responses((status = 200, description = "A JSON-RPC response, or a stream of them", body = Message), (status = 202, description = "A notification; nothing is answered"),
        (status = "default", description = "A problem, or a JSON-RPC error", content((ProblemDocument = "application/problem+json"), (Message = "application/json")))))]
pub(crate) async fn own_seat(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    headers: HeaderMap,
    message: StrictJson<Message>,
) -> ApiResult<Response> {
    let Scope::Seat(board, worker) = caller.scope.clone() else {
        let problem = Problem::from_code(Code::BadPath, "the token names no seat");
        return Err(problem.help("call /mcp/BOARD/WORKER, or have a token for seat:BOARD/WORKER"));
    };
    speak(daemon, &caller, board, worker, &headers, message).await
}

/// Speak MCP as a worker
///
/// For tokens that cover more than one worker.
#[utoipa::path(post, operation_id = "callSeat", path = "/mcp/{board}/{worker}", tag = "mcp", request_body = Message,
    params(("board" = String, Path), ("worker" = String, Path)),
    responses((status = 200, description = "A JSON-RPC response, or a stream of them", body = Message), (status = 202, description = "A notification; nothing is answered"),
        (status = "default", description = "A problem, or a JSON-RPC error", content((ProblemDocument = "application/problem+json"), (Message = "application/json")))))]
pub(crate) async fn seat(
    OnPart { daemon, caller, board, part: worker }: OnPart<WorkerName>,
    headers: HeaderMap,
    message: StrictJson<Message>,
) -> ApiResult<Response> {
    speak(daemon, &caller, board, worker, &headers, message).await
}

async fn speak(
    daemon: Arc<Daemon>,
    caller: &Caller,
    board: BoardId,
    worker: WorkerName,
    headers: &HeaderMap,
    StrictJson(Message(message)): StrictJson<Message>,
) -> ApiResult<Response> {
    people::may_act_as(&daemon, caller, &board, &worker).await?;
    daemon.summary(&board).await?;
    let room = headers.get(mcp::ROOM).map(|room| room.to_str().ok().and_then(|room| room.parse().ok()).unwrap_or(0));
    let seat = WorkerServer::find(
        daemon,
        board,
        worker,
        caller.clone(),
        files::response_chars(room.or(Some(mcp::editor::DEFAULT_CHARS)))?,
    )
    .await?;
    Ok(mcp::answer(seat, headers, &message).await)
}
