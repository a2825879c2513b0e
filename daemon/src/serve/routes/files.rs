//! Files: a process outside that has leased a call sees and changes the files of the board's directory.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use patchboard_kernel::files::EditAttempt;
use patchboard_kernel::id::{BoardId, WorkerName};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::ProblemDocument;
use super::boards::replayed;
use super::leases::attempt_of;
use crate::serve::access::Need;
use crate::serve::files;
use crate::serve::http::{Body, Caller, Key, Segments};
use crate::serve::problem::Answered;
use crate::serve::service::Daemon;

/// A command of an editor.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Commanded {
    /// Whose call is leased.
    worker: String,
    /// Who edits, where several share a seat: letters, digits, `.`, `_` and `-`; the worker if absent. Each name has read
    /// what it has read.
    name: Option<String>,
    /// `command` is `view`, `list`, `search`, `create`, `str_replace`, `insert`, `delete` or `rename`; the rest goes with it.
    #[schema(value_type = Object)]
    arguments: Value,
}

/// See or change the files of the board's directory
///
/// For as long as the lease is held. What is shown counts as read, and an edit is refused if something of that has changed:
/// then `told` has what is there now, which counts as read as well.
#[utoipa::path(post, path = "/v1/boards/{board}/leases/{lease}/files", tag = "leases", request_body = Commanded,
    params(("board" = String, Path), ("lease" = String, Path, pattern = r"^(0|[1-9][0-9]{0,17}):(0|[1-9][0-9]{0,8})$"), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, body = Object), (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn command(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Segments((board, lease)): Segments<(BoardId, String)>,
    key: Key,
    Body(commanded): Body<Commanded>,
) -> Answered<impl IntoResponse> {
    let Commanded { worker, name, arguments } = commanded;
    let worker = WorkerName::from(worker);
    caller.needs(&Need::Sit(board.clone(), worker.clone()))?;
    let (invocation, attempt) = attempt_of(&lease)?;
    let of = EditAttempt { invocation, attempt };
    let key = key.token(&caller).map(|key| key.to_string());
    let (told, is_repeated) = files::call(&daemon, &board, files::Wanted { worker, of, name, key, arguments }).await?;
    if let Some(problem) = files::problem(&told) {
        return Err(problem);
    }
    Ok((replayed(is_repeated), Json(json!({"text": told.text, "data": told.data}))))
}
