//! Storage: redaction, archives, deletion, vacuum.

use std::sync::Arc;

use axum::extract::State;
use axum::response::IntoResponse;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::BoardSummary;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::boards::replayed;
use crate::queries::redaction::{self, RedactionReport};
use crate::queries::storage::{ArchiveList, ArchiveReport, RestoreReport, TombstoneInfo, VacuumReport};
use crate::reader::storage;
use crate::serve::access::Permission;
use crate::serve::caller::Caller;
use crate::serve::http::{IdempotencyHeader, OnBoard, StrictJson, request_body};
use crate::serve::json::SortedJson;
use crate::serve::problem::ApiResult;
use crate::serve::service::Daemon;

/// Values to redact.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedactRequest {
    /// JSON Pointers into the document: all values that were ever at or below them.
    #[serde(default)]
    places: Vec<String>,
    /// Record numbers: all values of these records, and the values that they wrote, at any place.
    #[serde(default)]
    records: Vec<u64>,
    /// Replacement for the value at the only place given; committed first, and kept.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Object)]
    replace: Option<Value>,
    /// True to keep the current values at the places, and their history since they were last written as a whole.
    #[serde(default)]
    keep: bool,
    /// True to redact other values too if they contain the text of a redacted one.
    #[serde(default)]
    everywhere: bool,
    /// True to destroy the board's salt; afterwards only the hash chain can be verified.
    #[serde(default)]
    forget_salt: bool,
    /// Treatment of department rows that contain the text of a redacted value; required if there are any.
    #[serde(default)]
    departments: Option<redaction::Rows>,
}

request_body!(RedactRequest: Administer);

/// Deserialises a given value, so that `null` differs from an absent one.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Redact values of a board in every file
///
/// A running board is closed meanwhile, and calls under way are repeated. `still` lists other values that contain the
/// same text, `departments` the department rows with it. `related` lists the parent and nested boards, which may
/// contain it too.
#[utoipa::path(post, operation_id = "redact", path = "/v1/boards/{board}/redactions", tag = "storage", request_body = RedactRequest,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "The redacted places", body = RedactionReport)))]
pub(crate) async fn redact(
    OnBoard { daemon, caller, board }: OnBoard,
    key: IdempotencyHeader,
    StrictJson(asked): StrictJson<RedactRequest>,
) -> ApiResult<impl IntoResponse> {
    let targets: Vec<String> = asked.places.into_iter().chain(asked.records.iter().map(ToString::to_string)).collect();
    let mut request = redaction::request(&targets)?;
    request.keep = asked.keep;
    request.everywhere = asked.everywhere;
    request.forget_salt = asked.forget_salt;
    request.token = key.token();
    let done = daemon.redact(&board, request, asked.replace, asked.departments, caller.principal()).await?;
    match &done.purge_error {
        Some(error) => Err(redaction::erase_failure(error).into()),
        None => {
            let boards = daemon.boards_and_archived().await?;
            let related = BoardSummary::related(&boards, &board);
            Ok((replayed(done.is_repeated), SortedJson(RedactionReport::new(&board, &done, &related))))
        }
    }
}

/// Reclaim disk space
///
/// Removes views and prompts that no record references, and rewrites the journal's file. Boards wait meanwhile, readers
/// do not.
#[utoipa::path(post, operation_id = "vacuum", path = "/v1/vacuum", tag = "storage",
    params(("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "The reclaimed space", body = VacuumReport)))]
pub(crate) async fn vacuum(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    // Repeating it is harmless.
    _: IdempotencyHeader,
) -> ApiResult<SortedJson<VacuumReport>> {
    caller.require(&Permission::Administer)?;
    Ok(SortedJson(daemon.vacuum_by(&caller.principal()).await?.into()))
}

/// Move an ended board from the journal into an archive file, from which it can be restored
#[utoipa::path(post, operation_id = "archiveBoard", path = "/v1/boards/{board}/archive", tag = "storage",
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "The archive", body = ArchiveReport)))]
pub(crate) async fn to_archive(
    OnBoard { daemon, caller, board }: OnBoard,
    // Idempotent without a key: after the first time there is no such board.
    _: IdempotencyHeader,
) -> ApiResult<SortedJson<ArchiveReport>> {
    caller.require(&Permission::Administer)?;
    let archive = daemon.archive(&board, Some(caller.principal())).await?;
    Ok(SortedJson(ArchiveReport { board, archive }))
}

/// Restore a board from its archive
#[utoipa::path(post, operation_id = "restoreBoard", path = "/v1/boards/{board}/restore", tag = "storage",
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "The board", body = RestoreReport)))]
pub(crate) async fn restore(
    OnBoard { daemon, caller, board }: OnBoard,
    _: IdempotencyHeader,
) -> ApiResult<SortedJson<RestoreReport>> {
    caller.require(&Permission::Administer)?;
    daemon.restore(&board, &caller.principal()).await?;
    Ok(SortedJson(RestoreReport { board }))
}

/// Delete an ended board permanently
///
/// Keeps only its id, its last record, and the time.
#[utoipa::path(delete, operation_id = "deleteBoard", path = "/v1/boards/{board}", tag = "storage", params(("board" = String, Path)),
    responses((status = 200, description = "The tombstone of the board", body = TombstoneInfo)))]
pub(crate) async fn delete(OnBoard { daemon, caller, board }: OnBoard) -> ApiResult<SortedJson<TombstoneInfo>> {
    caller.require(&Permission::Administer)?;
    let tombstone = daemon.delete(&board, Some(caller.principal())).await?;
    daemon.vacuum().await?;
    Ok(SortedJson(TombstoneInfo::from(&tombstone)))
}

/// List the archived and the deleted boards
#[utoipa::path(get, operation_id = "listArchive", path = "/v1/archive", tag = "storage",
    responses((status = 200, description = "Archived and deleted boards", body = ArchiveList)))]
pub(crate) async fn archived(State(daemon): State<Arc<Daemon>>, caller: Caller) -> ApiResult<SortedJson<ArchiveList>> {
    caller.require(&Permission::ViewAll)?;
    let tombstones = daemon.query(|reader| wait(reader.journal.tombstones()).map_err(storage)).await?;
    Ok(SortedJson(ArchiveList { boards: tombstones.iter().map(TombstoneInfo::from).collect() }))
}
