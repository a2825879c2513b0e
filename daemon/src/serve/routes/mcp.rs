//! MCP over streamable HTTP.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use patchboard_kernel::id::{BoardId, WorkerName};
use serde::Deserialize;
use serde_json::Value;

use super::{ProblemDocument, people};
use crate::serve::access::Scope;
use crate::serve::files;
use crate::serve::http::{BODY_BYTES_MAX, Body, Caller, Gate, Posted, Segments};
use crate::serve::mcp;
use crate::serve::mcp::seat::Seat;
use crate::serve::problem::{Answered, Code, Problem};
use crate::serve::service::Daemon;

/// JSON-RPC message.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Message(Value);

impl Posted for Message {
    const GATE: Gate = Gate::Sit;
    const BYTES_MAX: usize = BODY_BYTES_MAX;
    // A batch is rejected with a JSON-RPC error.
    const MAY_BE_A_LIST: bool = true;
}

/// Speak MCP as the worker of the token
///
/// A JSON-RPC message is answered with one, or with a stream if there are several. docs/mcp.md lists the tools.
#[utoipa::path(post, operation_id = "callOwnSeat", path = "/mcp", tag = "mcp", request_body = Object,
    responses((status = 200, description = "A JSON-RPC response, or a stream of them", body = Object), (status = 202, description = "A notification; nothing is answered"),
        (status = "default", description = "A problem, or a JSON-RPC error", content((ProblemDocument = "application/problem+json"), (Object = "application/json")))))]
pub(crate) async fn own_seat(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    headers: HeaderMap,
    message: Body<Message>,
) -> Answered<Response> {
    let Scope::Seat(board, worker) = caller.scope.clone() else {
        let problem = Problem::of(Code::BadPath, "the token does not say whose seat it is");
        return Err(problem.help("call /mcp/BOARD/WORKER, or have a token for seat:BOARD/WORKER"));
    };
    speak(daemon, &caller, board, worker, &headers, message).await
}

/// Speak MCP as a worker
///
/// For tokens that cover more than one worker.
#[utoipa::path(post, operation_id = "callSeat", path = "/mcp/{board}/{worker}", tag = "mcp", request_body = Object,
    params(("board" = String, Path), ("worker" = String, Path)),
    responses((status = 200, description = "A JSON-RPC response, or a stream of them", body = Object), (status = 202, description = "A notification; nothing is answered"),
        (status = "default", description = "A problem, or a JSON-RPC error", content((ProblemDocument = "application/problem+json"), (Object = "application/json")))))]
pub(crate) async fn seat(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Segments((board, worker)): Segments<(BoardId, WorkerName)>,
    headers: HeaderMap,
    message: Body<Message>,
) -> Answered<Response> {
    speak(daemon, &caller, board, worker, &headers, message).await
}

async fn speak(
    daemon: Arc<Daemon>,
    caller: &Caller,
    board: BoardId,
    worker: WorkerName,
    headers: &HeaderMap,
    Body(Message(message)): Body<Message>,
) -> Answered<Response> {
    people::may_act_as(&daemon, caller, &board, &worker).await?;
    daemon.summary(&board)?;
    let room = headers.get(mcp::ROOM).map(|room| room.to_str().ok().and_then(|room| room.parse().ok()).unwrap_or(0));
    let seat =
        Seat::find(daemon, board, worker, caller.clone(), files::room(room.or(Some(mcp::editor::USUAL_ROOM)))?).await?;
    Ok(mcp::answer(seat, headers, &message).await)
}
