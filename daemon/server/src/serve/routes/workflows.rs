//! Workflows: check, status, and resume.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use patchboard_kernel::board::Board;
use patchboard_kernel::id::{BoardId, IdempotencyKey};
use patchboard_kernel::record::Body as Recorded;
use patchboard_protocols::Role;
use patchboard_protocols::workflow::engine::{self, TurnError, WorkflowEvent};
use patchboard_protocols::workflow::{self, Definition, WorkflowArgs, WorkflowCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::proposals::send;
use super::protocols::check_readable;
use crate::queries::signals::SignalReport;
use crate::queries::workflow::{WorkflowReport, WorkflowStatus};
use crate::reader::Reader;
use crate::serve::http::{IdempotencyHeader, OnBoard, StrictJson, StrictQuery, request_body};
use crate::serve::json::SortedJson;
use crate::serve::long_poll;
use crate::serve::problem::{ApiResult, Code, Problem};
use crate::serve::service::Daemon;

/// Workflow: `nodes`, by their ids.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckWorkflowRequest {
    /// Definition.
    #[schema(value_type = Object)]
    workflow: Map<String, Value>,
}

request_body!(CheckWorkflowRequest: ViewAll, large);

/// Check the order of a workflow, like `patchboard workflow check`
///
/// Returns `valid` with `stages`, `order` and `warnings` about likely mistakes, or `error_code` and the `cycle`. A
/// blueprint with `workflow:` passes the same check before its board is created.
#[utoipa::path(post, operation_id = "checkWorkflow", path = "/v1/workflows/check", tag = "protocols", request_body = CheckWorkflowRequest,
    responses((status = 200, description = "The findings", body = WorkflowReport)))]
pub(crate) async fn check(
    StrictJson(defined): StrictJson<CheckWorkflowRequest>,
) -> ApiResult<SortedJson<WorkflowReport>> {
    let definition = Definition::parse(Value::Object(defined.workflow))
        .map_err(|error| Problem::from_code(Code::BadBody, format!("workflow is no definition: {error}")))?;
    Ok(SortedJson(WorkflowReport::new(&workflow::check(&definition))))
}

/// Wait options.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Waited {
    /// Seconds to wait for COMPLETED or FAILED, at most 60; default: 0.
    #[serde(default)]
    #[param(maximum = 60)]
    wait: u64,
    /// Worker to read as; its contract must let it read the workflow's status, nodes and data. For callers with a token
    /// for only that worker.
    worker: Option<String>,
}

/// Paths that a reader needs.
const READ: &[&str] = &["/workflow/status", "/workflow/nodes", "/workflow/data"];

/// Show the status of a board's workflow
///
/// Returns the `status`, the `nodes`, each with `status` and, if FAILED, `error`, and the workflow's `data`. With
/// `wait`, responds when the workflow is over, or on timeout.
#[utoipa::path(get, operation_id = "getWorkflow", path = "/v1/boards/{board}/workflow", tag = "protocols", params(("board" = String, Path), Waited),
    responses((status = 200, description = "The workflow", body = WorkflowStatus)))]
pub(crate) async fn show(
    OnBoard { daemon, caller, board }: OnBoard,
    StrictQuery(waited): StrictQuery<Waited>,
) -> ApiResult<SortedJson<WorkflowStatus>> {
    check_readable(&daemon, &caller, &board, waited.worker, READ).await?;
    let status = long_poll::wait_while(&daemon, &board, waited.wait, WorkflowStatus::read, |status| {
        status.as_ref().is_some_and(WorkflowStatus::is_running)
    });
    status.await?.map(SortedJson).ok_or_else(no_workflow)
}

fn no_workflow() -> Problem {
    Problem::from_code(Code::NoWorkflow, "the board has no workflow")
        .help("a blueprint has one by `workflow:`: docs/workflows.md")
}

/// Start of a resumed workflow.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResumeWorkflowRequest {
    /// Node to run again, with all nodes that depend on it.
    node: String,
}

request_body!(ResumeWorkflowRequest: Operate);

/// Resume a board's workflow from a node
///
/// Sends the signal `resume` of docs/workflows.md. 404 (`no_workflow`) on a board without a workflow, 409
/// (`workflow_illegal_move`) while the node, or one that depends on it, is RUNNING.
#[utoipa::path(post, operation_id = "resumeWorkflow", path = "/v1/boards/{board}/workflow/resume", tag = "protocols", request_body = ResumeWorkflowRequest,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 202, body = SignalReport, description = "It is recorded")))]
pub(crate) async fn resume(
    OnBoard { daemon, caller, board }: OnBoard,
    key: IdempotencyHeader,
    StrictJson(resumed): StrictJson<ResumeWorkflowRequest>,
) -> ApiResult<impl IntoResponse> {
    let node = resumed.node.clone();
    let asked = daemon.query_board(&board, None, move |board| Ok(resume_rejection(board, &node))).await?;
    if let Some(why) = asked.ok_or_else(no_workflow)?
        && !was_sent(&daemon, &board, key.token()).await?
    {
        return Err(Problem::new(status_of(why.code), why.code.as_str(), why.message));
    }
    send(&daemon, &caller, &board, key, "resume", json!({"node": resumed.node})).await
}

/// Returns the reason that the workflow cannot resume from a node now, if any; `None` if the board has no workflow.
fn resume_rejection(board: &Board, node: &str) -> Option<Option<TurnError>> {
    let seat = board.blueprint().workers.values().find(|seat| seat.agent.is_builtin(Role::Workflow.as_str()))?;
    let with: WorkflowArgs = serde_json::from_value(seat.with.clone()?.into()).ok()?;
    Some(engine::compute_turn(&with.definition(), board.state().root(), WorkflowEvent::Resume(node)).err())
}

/// Returns true if a signal with a token is recorded. Scans all records, so it is called only before a rejection.
async fn was_sent(daemon: &Arc<Daemon>, board: &BoardId, token: Option<IdempotencyKey>) -> ApiResult<bool> {
    let Some(token) = token else { return Ok(false) };
    let board = board.clone();
    let is_it =
        move |body: &Recorded| matches!(body, Recorded::Signal(signal) if signal.token.as_ref() == Some(&token));
    let look =
        move |reader: &Reader| Ok(reader.records(&board)?.iter().filter_map(|record| record.body().ok()).any(is_it));
    daemon.query(look).await
}

/// Returns 409 for conflicts with the current state, 422 for invalid requests.
const fn status_of(code: WorkflowCode) -> StatusCode {
    if let WorkflowCode::IllegalTransition = code { StatusCode::CONFLICT } else { StatusCode::UNPROCESSABLE_ENTITY }
}
