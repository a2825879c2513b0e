//! File access for holders of a lease.

use axum::response::IntoResponse;
use patchboard_kernel::files::EditAttempt;
use patchboard_kernel::id::WorkerName;
use patchboard_workspace::session::{Order, SessionRequest};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::boards::replayed;
use super::leases::attempt_of;
use crate::serve::access::Permission;
use crate::serve::files;
use crate::serve::http::{IdempotencyHeader, OnPart, StrictJson, request_body};
use crate::serve::json::SortedJson;
use crate::serve::problem::ApiResult;

/// File command.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileCommandRequest {
    /// Worker of the leased call.
    worker: String,
    /// Author name, where several share a worker: letters, digits, `.`, `_` and `-`; default: the worker. Each name has
    /// its own read set.
    name: Option<String>,
    /// Maximum characters of the answer's text, 1,000 to 64,000 (the default). The whole answer counts as read, so a
    /// client that shows less of it must pass its limit here.
    room: Option<usize>,
    /// True if the agent has read files under an earlier lease, unknown to this one. The agent is notified, and if its
    /// first command is an edit, that is rejected (`reads_lost`). Only the first command of a lease sets it. Default:
    /// true for every attempt but the first.
    #[serde(alias = "anew")]
    has_earlier_reads: Option<bool>,
    /// Position of a command of a client that pipelines commands. `number` is its own number, larger than all before.
    /// `heard` is the number of the last answer that the client had received; later answers do not count as read for
    /// this command. `unheard` lists earlier commands with answers that it will never receive; nothing in those counts
    /// as read. If absent, the client is assumed to know every answer sent before this command arrived.
    #[schema(value_type = Option<Object>)]
    order: Option<Order>,
    /// Arguments: `command` is `view`, `list`, `search`, `create`, `str_replace`, `insert`, `delete` or `rename`, with
    /// its own further members.
    #[schema(value_type = Object)]
    arguments: Value,
}

/// Result of a file command.
#[derive(Serialize, ToSchema)]
pub(crate) struct FileCommandResult {
    /// Text for the agent.
    text: String,
    /// The same as data, in a form that depends on the command.
    data: Value,
}

request_body!(FileCommandRequest: OperateOrActAs, large);

/// Read or edit files of the board's directory
///
/// Requires a current lease. Everything shown counts as read, and an edit is rejected if content that it rests on has
/// changed. Then `told` has the current content, which counts as read too.
#[utoipa::path(post, operation_id = "runFileCommand", path = "/v1/boards/{board}/leases/{lease}/files", tag = "leases", request_body = FileCommandRequest,
    params(("board" = String, Path), ("lease" = String, Path, pattern = r"^(0|[1-9][0-9]{0,17}):(0|[1-9][0-9]{0,8})$"), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "The result of the command", body = FileCommandResult)))]
pub(crate) async fn command(
    OnPart { daemon, caller, board, part: lease }: OnPart<String>,
    key: IdempotencyHeader,
    StrictJson(commanded): StrictJson<FileCommandRequest>,
) -> ApiResult<impl IntoResponse> {
    let FileCommandRequest { worker, name, room, has_earlier_reads, order, arguments } = commanded;
    let worker = WorkerName::from(worker);
    caller.require(&Permission::ActAs(board.clone(), worker.clone()))?;
    let (invocation, attempt) = attempt_of(&lease)?;
    let of = EditAttempt { invocation, attempt };
    let key = key.token().map(|key| key.to_string());
    let principal = Some(caller.principal());
    let asked =
        SessionRequest { key, room: files::response_chars(room)?, order, principal, ..SessionRequest::from(arguments) };
    let wanted = files::LeasedFileCommand { worker, of, name, has_earlier_reads, asked };
    let (result, is_repeated) = files::call(&daemon, &board, wanted).await?;
    if let Some(problem) = files::problem(&result) {
        return Err(problem);
    }
    Ok((replayed(is_repeated), SortedJson(FileCommandResult { text: result.text, data: result.data })))
}
