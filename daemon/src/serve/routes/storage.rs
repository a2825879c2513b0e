//! What is kept on disk, and what is not: erasing values, giving space back.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use patchboard_runtime::archive;
use patchboard_runtime::journal::{BoardSummary, Journal as _};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::ProblemDocument;
use super::boards::replayed;
use crate::commands::{redact, vacuum};
use crate::reader::storage;
use crate::serve::access::Need;
use crate::serve::http::{BoardPath, Body, Caller, Gate, Key, Posted};
use crate::serve::problem::Answered;
use crate::serve::service::Daemon;

/// What is to be erased.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redaction {
    /// JSON Pointers into the document: everything that ever stood there or below.
    #[serde(default)]
    places: Vec<String>,
    /// Numbers of records: everything of value in them, and what they brought, wherever it stood.
    #[serde(default)]
    records: Vec<u64>,
    /// A value to commit first, in place of the one at the only place named, and to keep.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Object)]
    replace: Option<Value>,
    /// Whether to keep what stands at the places now, and what stood there since it was put there as a whole.
    #[serde(default)]
    keep: bool,
    /// Whether other values go, too, in which the text of an erased one stands.
    #[serde(default)]
    everywhere: bool,
    /// Whether to destroy the board's salt: then nothing but the chain can be verified.
    #[serde(default)]
    forget_salt: bool,
    /// Whether rows of departments in which the text of an erased value stands are erased or kept; needed where there are any.
    #[serde(default)]
    departments: Option<redact::Rows>,
}

impl Posted for Redaction {
    const GATE: Gate = Gate::Administer;
}

/// A value that is given, also if it is `null`.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Erase values of a board from every file
///
/// A board that runs stands still for it, and calls under way are made again. `still` lists where the same text stands in
/// values that were not asked for, `departments` their rows with such a text, `related` the boards that it is inside of or that are inside of it: they may hold the same.
#[utoipa::path(post, path = "/v1/boards/{board}/redactions", tag = "storage", request_body = Redaction,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = Object),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn redact(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    BoardPath(board): BoardPath,
    key: Key,
    Body(asked): Body<Redaction>,
) -> Answered<impl IntoResponse> {
    caller.needs(&Need::Administer)?;
    let targets: Vec<String> = asked.places.into_iter().chain(asked.records.iter().map(ToString::to_string)).collect();
    let mut request = redact::request(&targets)?;
    request.keep = asked.keep;
    request.everywhere = asked.everywhere;
    request.forget_salt = asked.forget_salt;
    request.token = key.token();
    let done = daemon.redact(&board, request, asked.replace, asked.departments, caller.principal()).await?;
    match &done.unscrubbed {
        Some(error) => Err(redact::unscrubbed(error).into()),
        None => {
            let boards = daemon.boards_and_archived().await?;
            let related = BoardSummary::related(&boards, &board);
            Ok((replayed(done.is_repeated), Json(redact::told(&board, &done, &related))))
        }
    }
}

/// Give back the space that boards do not need any more
///
/// Removes views and prompts that no record names, and writes the file anew. Boards wait meanwhile, readers do not.
#[utoipa::path(post, path = "/v1/vacuum", tag = "storage",
    params(("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = Object),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn vacuum(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    // Once more does no harm.
    _: Key,
) -> Answered<Json<Value>> {
    caller.needs(&Need::Administer)?;
    Ok(Json(vacuum::told(daemon.vacuum_by(&caller.principal()).await?)))
}

/// Take a board that has ended out of the live journal, into a file from which it comes back
#[utoipa::path(post, path = "/v1/boards/{board}/archive", tag = "storage",
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = Object),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn to_archive(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    BoardPath(board): BoardPath,
    // It goes once: then there is no such board.
    _: Key,
) -> Answered<Json<Value>> {
    caller.needs(&Need::Administer)?;
    let path = daemon.archive(&board, Some(caller.principal())).await?;
    Ok(Json(json!({"board": board, "archive": path})))
}

/// Bring a board back from its archive
#[utoipa::path(post, path = "/v1/boards/{board}/restore", tag = "storage",
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = Object),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn restore(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    BoardPath(board): BoardPath,
    _: Key,
) -> Answered<Json<Value>> {
    caller.needs(&Need::Administer)?;
    daemon.restore(&board, &caller.principal()).await?;
    Ok(Json(json!({"board": board})))
}

/// Delete a board that has ended, for good
///
/// What is left is its id, its last record, and when.
#[utoipa::path(delete, path = "/v1/boards/{board}", tag = "storage", params(("board" = String, Path)),
    responses((status = 200, body = Object),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    BoardPath(board): BoardPath,
) -> Answered<Json<Value>> {
    caller.needs(&Need::Administer)?;
    let tombstone = daemon.delete(&board, Some(caller.principal())).await?;
    daemon.vacuum().await?;
    Ok(Json(archive::told(&tombstone)))
}

/// List the boards that were taken out and are not back
#[utoipa::path(get, path = "/v1/archive", tag = "storage",
    responses((status = 200, body = Object),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn archived(State(daemon): State<Arc<Daemon>>, caller: Caller) -> Answered<Json<Value>> {
    caller.needs(&Need::SeeAll)?;
    let tombstones = daemon.ask(|reader| reader.journal.tombstones().map_err(storage)).await?;
    let told: Vec<Value> = tombstones.iter().map(archive::told).collect();
    Ok(Json(json!({"boards": told})))
}
