//! Files: a process outside that has leased a call sees and changes the files of the board's directory.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use patchboard_agents::workspace::session::{Asked, Order};
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
use crate::serve::http::{BODY_BYTES_MAX, Body, Caller, Gate, Key, Posted, Segments};
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
    /// Characters that the answer's text may have, between 1,000 and 64,000, which is what it may have if nothing is said. What
    /// is in the answer counts as read, so whoever shows less of it to somebody says so here.
    room: Option<usize>,
    /// Whether this agent has read something before under another lease, which is not known under this one. It is told so,
    /// and its first edit is refused (`reads_lost`), unless it looks at something first. Counts with its first command. If
    /// nothing is said, it is so in every attempt of a call but the first.
    anew: Option<bool>,
    /// When this was asked for, for an agent that asks for several things before it is answered: `number` is this command's,
    /// larger than those of all before it; `heard` is that of the last whose answer it had heard by then, so that it is not held
    /// to know more; `unheard` are those before it whose answers it will not hear, of which nothing counts as read. If nothing
    /// is said, it knows what was answered before this is received.
    #[schema(value_type = Option<Object>)]
    order: Option<Order>,
    /// `command` is `view`, `list`, `search`, `create`, `str_replace`, `insert`, `delete` or `rename`; the rest goes with it.
    #[schema(value_type = Object)]
    arguments: Value,
}

impl Posted for Commanded {
    const GATE: Gate = Gate::Join;
    const BYTES_MAX: usize = BODY_BYTES_MAX;
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
    let Commanded { worker, name, room, anew, order, arguments } = commanded;
    let worker = WorkerName::from(worker);
    caller.needs(&Need::Sit(board.clone(), worker.clone()))?;
    let (invocation, attempt) = attempt_of(&lease)?;
    let of = EditAttempt { invocation, attempt };
    let key = key.token().map(|key| key.to_string());
    let principal = Some(caller.principal());
    let asked = Asked { key, room: files::room(room)?, order, principal, ..Asked::from(arguments) };
    let wanted = files::Wanted { worker, of, name, is_anew: anew, asked };
    let (told, is_repeated) = files::call(&daemon, &board, wanted).await?;
    if let Some(problem) = files::problem(&told) {
        return Err(problem);
    }
    Ok((replayed(is_repeated), Json(json!({"text": told.text, "data": told.data}))))
}
