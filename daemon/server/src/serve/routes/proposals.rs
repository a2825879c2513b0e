//! Unsolicited patches, and signals.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use patchboard_kernel::board::{Proposal, ProposalSource, ReplyBody};
use patchboard_kernel::id::{BoardId, Version, WorkerName};
use patchboard_runtime::handle::RequestEffect;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::boards::replayed;
use super::people;
use super::proposal_outcome::{ProposalOutcome, outcome_response};
use crate::queries::parts::HeadInfo;
use crate::queries::signals::{SignalReport, SignalTargets};
use crate::serve::caller::Caller;
use crate::serve::http::{IdempotencyHeader, OnBoard, StrictJson, request_body};
use crate::serve::json::SortedJson;
use crate::serve::problem::ApiResult;
use crate::serve::service::Daemon;

/// Unsolicited patch.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProposeRequest {
    /// Author: a worker of the blueprint; its contract applies.
    worker: String,
    /// Patch (RFC 6902), or an envelope with one.
    patch: Value,
    /// Version that the patch is based on; default: the current one.
    base: Option<u64>,
}

request_body!(ProposeRequest: OperateOrActAs, large);

/// Propose a patch as a worker
///
/// Passes the same stages as a worker's reply. A rejected patch is a 422 with the rejection, and has no effect.
#[utoipa::path(post, operation_id = "propose", path = "/v1/boards/{board}/proposals", tag = "proposals", request_body = ProposeRequest,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "Outcome of the proposal", body = ProposalOutcome)))]
pub(crate) async fn propose(
    OnBoard { daemon, caller, board }: OnBoard,
    key: IdempotencyHeader,
    StrictJson(proposed): StrictJson<ProposeRequest>,
) -> ApiResult<impl IntoResponse> {
    let worker = WorkerName::from(proposed.worker);
    people::may_act_as(&daemon, &caller, &board, &worker).await?;
    let handle = daemon.open_for(&board, &caller).await?;
    let proposal = Proposal {
        from: ProposalSource::Direct { key: key.token(), base: proposed.base.map(Version) },
        worker,
        reply: ReplyBody::Json(proposed.patch),
        usage: None,
        raw: None,
    };
    outcome_response(handle.propose(proposal).await?)
}

/// Signal to a board.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignalRequest {
    /// Name of the signal, or of a rule with `trigger: manual`.
    name: String,
    /// Payload.
    #[serde(default)]
    value: Value,
}

request_body!(SignalRequest: Operate, large);

/// Send a signal, or trigger a manual rule by its name
///
/// A stalled board continues if a rule matches. `wakes` lists the rules that the name triggers. A name without such a
/// rule is rejected, unless the blueprint declares it in `signals`.
#[utoipa::path(post, operation_id = "sendSignal", path = "/v1/boards/{board}/signals", tag = "proposals", request_body = SignalRequest,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 202, body = SignalReport, description = "It is recorded")))]
pub(crate) async fn signal(
    OnBoard { daemon, caller, board }: OnBoard,
    key: IdempotencyHeader,
    StrictJson(signalled): StrictJson<SignalRequest>,
) -> ApiResult<impl IntoResponse> {
    send(&daemon, &caller, &board, key, &signalled.name, signalled.value).await
}

/// Sends a signal for a caller whose permission to operate the board was checked.
pub(crate) async fn send(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    board: &BoardId,
    key: IdempotencyHeader,
    name: &str,
    value: Value,
) -> ApiResult<impl IntoResponse + use<>> {
    let handle = daemon.open_for(board, caller).await?;
    let heard = handle.signal(name, value, key.token()).await?;
    let snapshot = handle.status();
    let head = HeadInfo::new(snapshot.head.seq, snapshot.head.hash);
    let report = SignalReport::new(board, name, head, SignalTargets::find(&snapshot.blueprint, name));
    Ok((StatusCode::ACCEPTED, replayed(heard == RequestEffect::AlreadyApplied), SortedJson(report)))
}
