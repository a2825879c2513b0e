//! Unsolicited patches, and signals.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use patchboard_kernel::board::{Outcome, Proposal, ProposalSource, RememberedOutcome, ReplyBody};
use patchboard_kernel::id::{BoardId, Version, WorkerName};
use patchboard_kernel::rejection::Rejection;
use patchboard_runtime::runtime::RequestEffect;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::boards::replayed;
use super::people;
use crate::queries::parts::HeadInfo;
use crate::queries::signals::{SignalReport, SignalTargets};
use crate::serve::access::Permission;
use crate::serve::http::{
    BODY_BYTES_MAX, BoardPath, Caller, IdempotencyHeader, RequestBody, RoutePermission, StrictJson,
};
use crate::serve::problem::{ApiResult, Problem, rejection_status};
use crate::serve::request_ids::IdempotencyStatus;
use crate::serve::service::Daemon;
use crate::serve::sorted_json::SortedJson;

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

impl RequestBody for ProposeRequest {
    const PERMISSION: RoutePermission = RoutePermission::OperateOrActAs;
    const BYTES_MAX: usize = BODY_BYTES_MAX;
}

/// Propose a patch as a worker
///
/// Passes the same stages as a worker's reply. A rejected patch is a 422 with the rejection, and has no effect.
#[utoipa::path(post, operation_id = "propose", path = "/v1/boards/{board}/proposals", tag = "proposals", request_body = ProposeRequest,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "The outcome of the proposal", body = Object, description = "What became of it: `outcome`, and the record's `seq`")))]
pub(crate) async fn propose(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    BoardPath(board): BoardPath,
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

/// Converts an outcome into a response.
pub(crate) fn outcome_response(outcome: Outcome) -> ApiResult<impl IntoResponse> {
    let (is_repeated, value) = outcome_json(outcome)?;
    let repetition = match is_repeated {
        true if value["outcome"] == "awaiting_approval" => IdempotencyStatus::InProgress,
        is_repeated => IdempotencyStatus::from(is_repeated),
    };
    Ok((StatusCode::OK, replayed(repetition), Json(value)))
}

/// Returns the outcome of a proposal, and true if it is a replay.
pub(crate) fn outcome_json(outcome: Outcome) -> ApiResult<(bool, Value)> {
    Ok(match outcome {
        Outcome::Committed { seq, version, state } => {
            (false, json!({"outcome": "committed", "seq": seq, "version": version, "state": state}))
        }
        Outcome::NoOp { seq } => (false, json!({"outcome": "no_op", "seq": seq})),
        Outcome::Expanded { seq } => (false, json!({"outcome": "expanded", "seq": seq})),
        Outcome::AwaitingApproval { seq } => (false, json!({"outcome": "awaiting_approval", "seq": seq})),
        Outcome::Continued { seq } => (false, json!({"outcome": "continued", "seq": seq})),
        Outcome::Answered { seq } => (false, json!({"outcome": "answered", "seq": seq})),
        Outcome::Duplicate(RememberedOutcome::Rejected { seq, stage, code }) => {
            let detail = "the proposal was refused before, under the same key";
            let problem = Problem::new(rejection_status(code), code.as_str(), detail);
            return Err(problem
                .detail("seq", json!(seq))
                .detail("stage", json!(stage))
                .with_idempotency_status(IdempotencyStatus::Replayed));
        }
        Outcome::Duplicate(verdict) => (true, json!(verdict)),
        Outcome::Rejected { seq, rejection } => {
            return Err(rejection_problem(&rejection).detail("seq", json!(seq)));
        }
        Outcome::RejectedUnrecorded(rejection) => return Err(rejection_problem(&rejection)),
    })
}

/// Converts a rejection into a problem.
fn rejection_problem(rejection: &Rejection) -> Problem {
    let code = rejection.code.as_str();
    let message = rejection.violations.first().map_or(code, |violation| violation.message.as_str());
    Problem::new(rejection_status(rejection.code), code, message)
        .detail("stage", json!(rejection.stage))
        .detail("violations", json!(rejection.violations))
        .detail("allowed", json!(rejection.allowed))
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

impl RequestBody for SignalRequest {
    const PERMISSION: RoutePermission = RoutePermission::Operate;
    const BYTES_MAX: usize = BODY_BYTES_MAX;
}

/// Send a signal, or trigger a manual rule by its name
///
/// A stalled board continues if a rule matches. `wakes` lists the rules that the name triggers. A name without such a
/// rule is rejected, unless the blueprint declares it in `signals`.
#[utoipa::path(post, operation_id = "sendSignal", path = "/v1/boards/{board}/signals", tag = "proposals", request_body = SignalRequest,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 202, body = SignalReport, description = "It is recorded")))]
pub(crate) async fn signal(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    BoardPath(board): BoardPath,
    key: IdempotencyHeader,
    StrictJson(signalled): StrictJson<SignalRequest>,
) -> ApiResult<impl IntoResponse> {
    send(&daemon, &caller, &board, key, &signalled.name, signalled.value).await
}

/// Sends a signal for a caller that may operate the board.
pub(crate) async fn send(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    board: &BoardId,
    key: IdempotencyHeader,
    name: &str,
    value: Value,
) -> ApiResult<impl IntoResponse + use<>> {
    caller.require(&Permission::Operate(board.clone()))?;
    let handle = daemon.open_for(board, caller).await?;
    let heard = handle.signal(name, value, key.token()).await?;
    let snapshot = handle.status();
    let head = HeadInfo::new(snapshot.head.seq, snapshot.head.hash);
    let report = SignalReport::new(board, name, head, SignalTargets::find(&snapshot.blueprint, name));
    Ok((StatusCode::ACCEPTED, replayed(heard == RequestEffect::AlreadyApplied), SortedJson(report)))
}
