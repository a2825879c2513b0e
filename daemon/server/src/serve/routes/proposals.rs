//! Unsolicited patches, and signals.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use patchboard_kernel::board::{Outcome, Proposal, ProposalSource, RememberedOutcome, ReplyBody};
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, Seq, Version, WorkerName};
use patchboard_kernel::rejection::Rejection;
use patchboard_runtime::runtime::RequestEffect;
use serde::{Deserialize, Serialize};
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
    responses((status = 200, description = "Outcome of the proposal", body = ProposalOutcome)))]
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

/// Outcome of a proposal, a reply or an answer.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProposalOutcome {
    /// Outcome: `committed`, `no_op`, `expanded`, `awaiting_approval`, `continued` or `answered`. The repetition of an
    /// answer may have the kind of another record.
    pub(crate) outcome: &'static str,
    /// Number of the record.
    #[schema(value_type = u64)]
    seq: Seq,
    /// Version that the commit made, if one was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    version: Option<Version>,
    /// Digest of the document after the commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    state: Option<Digest>,
}

/// Outcome of a proposal that waits for a person.
const AWAITING_APPROVAL: &str = "awaiting_approval";

impl ProposalOutcome {
    /// Returns an outcome other than a commit.
    pub(super) const fn new(outcome: &'static str, seq: Seq) -> Self {
        Self { outcome, seq, version: None, state: None }
    }

    const fn committed(seq: Seq, version: Version, state: Digest) -> Self {
        Self { outcome: "committed", seq, version: Some(version), state: Some(state) }
    }

    /// Returns the outcome of a proposal, and true if it is a replay.
    pub(crate) fn read(outcome: Outcome) -> ApiResult<(bool, Self)> {
        Ok(match outcome {
            Outcome::Committed { seq, version, state } => (false, Self::committed(seq, version, state)),
            Outcome::NoOp { seq } => (false, Self::new("no_op", seq)),
            Outcome::Expanded { seq } => (false, Self::new("expanded", seq)),
            Outcome::AwaitingApproval { seq } => (false, Self::new(AWAITING_APPROVAL, seq)),
            Outcome::Continued { seq } => (false, Self::new("continued", seq)),
            Outcome::Answered { seq } => (false, Self::new("answered", seq)),
            Outcome::Duplicate(earlier) => (true, Self::remembered(earlier)?),
            Outcome::Rejected { seq, rejection } => {
                return Err(rejection_problem(&rejection).detail("seq", json!(seq)));
            }
            Outcome::RejectedUnrecorded(rejection) => return Err(rejection_problem(&rejection)),
        })
    }

    /// Returns the outcome of an earlier proposal with the same key.
    fn remembered(earlier: RememberedOutcome) -> ApiResult<Self> {
        Ok(match earlier {
            RememberedOutcome::Committed { seq, version, state } => Self::committed(seq, version, state),
            RememberedOutcome::NoOp { seq } => Self::new("no_op", seq),
            RememberedOutcome::Expanded { seq } => Self::new("expanded", seq),
            RememberedOutcome::AwaitingApproval { seq } => Self::new(AWAITING_APPROVAL, seq),
            RememberedOutcome::Recorded { seq } => Self::new("heard", seq),
            RememberedOutcome::Rejected { seq, stage, code } => {
                let detail = "the proposal was refused before, under the same key";
                let problem = Problem::new(rejection_status(code), code.as_str(), detail);
                return Err(problem
                    .detail("seq", json!(seq))
                    .detail("stage", json!(stage))
                    .with_idempotency_status(IdempotencyStatus::Replayed));
            }
        })
    }
}

/// Converts an outcome into a response.
pub(crate) fn outcome_response(outcome: Outcome) -> ApiResult<impl IntoResponse> {
    let (is_repeated, outcome) = ProposalOutcome::read(outcome)?;
    let repetition = match is_repeated {
        true if outcome.outcome == AWAITING_APPROVAL => IdempotencyStatus::InProgress,
        is_repeated => IdempotencyStatus::from(is_repeated),
    };
    Ok((StatusCode::OK, replayed(repetition), SortedJson(outcome)))
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
