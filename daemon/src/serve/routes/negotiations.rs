//! Negotiations: events, and status.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::tree::Node;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::protocols::{MessageAuthor, check_readable, propose};
use crate::serve::http::{
    BODY_BYTES_MAX, BoardPath, Caller, IdempotencyHeader, RequestBody, RoutePermission, StrictJson, StrictQuery,
};
use crate::serve::long_poll;
use crate::serve::problem::{ApiResult, Code, Problem};
use crate::serve::service::Daemon;

/// Event of a negotiation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NegotiationEventRequest {
    /// Author: a worker that may add to `/negotiation/events`.
    worker: String,
    /// Lease of the worker's call that this replies to, if any.
    #[schema(pattern = r"^(0|[1-9][0-9]{0,17}):(0|[1-9][0-9]{0,8})$")]
    lease: Option<String>,
    /// Event of docs/negotiation.md: a draft, an evaluation, `open` or `abort`. Unknown members are kept.
    #[schema(value_type = Object)]
    event: Map<String, Value>,
}

impl RequestBody for NegotiationEventRequest {
    const PERMISSION: RoutePermission = RoutePermission::OperateOrActAs;
    const BYTES_MAX: usize = BODY_BYTES_MAX;
}

/// Add an event to a board's negotiation
///
/// The event is a draft (`propose`, `counter`), an evaluation, the opening, or the end (`abort`). Proposes a patch,
/// which is rejected if the worker lacks permission. Accepted events without effect are listed in the document's
/// `/negotiation/refused`.
#[utoipa::path(post, operation_id = "addNegotiationEvent", path = "/v1/boards/{board}/negotiation/events", tag = "protocols", request_body = NegotiationEventRequest,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "The outcome of the proposal", body = Object, description = "What became of it: `outcome`, and the record's `seq`")))]
pub(crate) async fn say(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    BoardPath(board): BoardPath,
    key: IdempotencyHeader,
    StrictJson(saying): StrictJson<NegotiationEventRequest>,
) -> ApiResult<impl IntoResponse> {
    let NegotiationEventRequest { worker, lease, event } = saying;
    let patch = json!([{"op": "add", "path": "/negotiation/events/-", "value": event}]);
    propose(&daemon, &caller, &board, MessageAuthor { worker: WorkerName::from(worker), lease, key }, patch).await
}

/// Wait options.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Waited {
    /// Seconds to wait for the end of the negotiation, at most 60; default: 0.
    #[serde(default)]
    #[param(maximum = 60)]
    wait: u64,
    /// Worker to read as; its contract must let it read the negotiation's policy, rounds, versions and reports. For
    /// callers with a token for only that worker.
    worker: Option<String>,
}

/// Paths that a reader needs; the `end` also requires read access to the events.
const READ: &[&str] = &["/negotiation/policy", "/negotiation/rounds", "/negotiation/versions", "/negotiation/reports"];

/// Show the status of a board's negotiation
///
/// `status` is NEW, OPEN, DECIDED or ABORTED; `policy` the rules in force; `round` the last one begun, with its `turn`;
/// `version` the current draft of it. `end` is the event that ended the negotiation, for callers that may read the
/// events; `decision` the report with the reason. With `wait`, responds once the negotiation and its report are
/// complete, or on timeout.
#[utoipa::path(get, operation_id = "getNegotiation", path = "/v1/boards/{board}/negotiation", tag = "protocols", params(("board" = String, Path), Waited),
    responses((status = 200, description = "The negotiation", body = Object)))]
pub(crate) async fn show(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    BoardPath(board): BoardPath,
    StrictQuery(waited): StrictQuery<Waited>,
) -> ApiResult<Json<Value>> {
    check_readable(&daemon, &caller, &board, waited.worker.clone(), READ).await?;
    let reads_events = check_readable(&daemon, &caller, &board, waited.worker, &["/negotiation/events"]).await.is_ok();
    let patience = long_poll::wait_time(waited.wait)?;
    // After an `abort`, the next commit adds the reason.
    let over = long_poll::wait_for(&daemon, &board, patience, |document| match negotiation_status(document) {
        Some(told) if told["end"].is_null() || told["decision"].is_null() => None,
        over => Some(over),
    });
    let told = match over.await? {
        Some(told) => told,
        // Timeout, with the negotiation still open.
        None => long_poll::now(&daemon, &board, negotiation_status).await?,
    };
    let seen = |mut told: Value| {
        if !reads_events {
            told["end"] = Value::Null;
        }
        Json(told)
    };
    told.map(seen).ok_or_else(|| {
        Problem::from_code(Code::NoNegotiation, "the board has no negotiation")
            .help("a blueprint has one by fragments/negotiation.yaml: docs/negotiation.md")
    })
}

/// Returns the status of the negotiation in a document, if there is one.
fn negotiation_status(document: &Node) -> Option<Value> {
    let negotiation = document.child("negotiation")?;
    let events = negotiation.child("events")?.as_array()?;
    let last = |list: &str| negotiation.child(list)?.as_array()?.iter().last().map(Node::to_value);
    let ending = |event: &Node| match event.child("kind").and_then(Node::as_str) {
        Some("decide") => Some("DECIDED"),
        Some("abort") => Some("ABORTED"),
        _ => None,
    };
    // Events after the end have no effect.
    let end = events.iter().find_map(|event| Some((ending(event)?, event.to_value())));
    let policy = negotiation.child("policy").map(Node::to_value);
    let status = match (&end, &policy) {
        (Some((status, _)), _) => status,
        (None, Some(_)) => "OPEN",
        (None, None) => "NEW",
    };
    let round = last("rounds");
    let version = last("versions").filter(|version| round.as_ref().is_some_and(|round| round["n"] == version["n"]));
    Some(json!({
        "status": status,
        "policy": policy,
        "round": round,
        "version": version,
        "end": end.map(|(_, event)| event),
        // A report that continues the round is no decision.
        "decision": last("reports").filter(|report| report["kind"] == "decision" && report["outcome"] != "continue"),
    }))
}
