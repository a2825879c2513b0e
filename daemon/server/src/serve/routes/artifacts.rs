//! Append-only artefacts of a board.

use axum::response::IntoResponse;
use patchboard_kernel::id::WorkerName;
use patchboard_protocols::handoff::Context;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::proposal_outcome::ProposalOutcome;
use super::protocols::{MessageAuthor, propose};
use crate::serve::http::{IdempotencyHeader, OnBoard, StrictJson, request_body};
use crate::serve::problem::{ApiResult, Code, Problem};

/// Artefact to append.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AppendArtifactRequest {
    /// Author: a worker that may add to `/artifacts`.
    worker: String,
    /// Lease of the worker's call that this replies to, if any.
    #[schema(pattern = r"^(0|[1-9][0-9]{0,17}):(0|[1-9][0-9]{0,8})$")]
    lease: Option<String>,
    /// Kind of artefact, like `contract`, `diff` or `report`.
    #[schema(min_length = 1, max_length = 100)]
    kind: String,
    /// Name, like `contract_v2.json`.
    #[schema(min_length = 1, max_length = 200)]
    name: String,
    /// Media type.
    content_type: String,
    /// Content: any value for `application/json` and `…+json`, a string for `text/…`, else a Base64 string.
    content: Value,
}

request_body!(AppendArtifactRequest: OperateOrActAs, large);

/// Append an artefact (`AppendArtifact`)
///
/// Proposes a patch that adds the artefact to the board's `/artifacts`, if the blueprint has it. Content that does not
/// match its type is rejected (`bad_content`).
#[utoipa::path(post, operation_id = "appendArtifact", path = "/v1/boards/{board}/artifacts", tag = "protocols", request_body = AppendArtifactRequest,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "Outcome of the proposal", body = ProposalOutcome)))]
pub(crate) async fn append(
    OnBoard { daemon, caller, board }: OnBoard,
    key: IdempotencyHeader,
    StrictJson(artifact): StrictJson<AppendArtifactRequest>,
) -> ApiResult<impl IntoResponse> {
    let AppendArtifactRequest { worker, lease, kind, name, content_type, content } = artifact;
    let content = Context { content_type, content };
    content.bytes().map_err(|why| Problem::from_code(Code::BadContent, why.message))?;
    let Context { content_type, content } = content;
    let value = json!({"by": worker, "kind": kind, "name": name, "content_type": content_type, "content": content});
    let patch = json!([{"op": "add", "path": "/artifacts/-", "value": value}]);
    propose(&daemon, &caller, &board, MessageAuthor { worker: WorkerName::from(worker), lease, key }, patch).await
}
