//! Negotiations: events, and status.

use axum::response::IntoResponse;
use patchboard_kernel::id::WorkerName;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::proposal_outcome::ProposalOutcome;
use super::protocols::{MessageAuthor, check_readable, propose};
use crate::queries::negotiation::NegotiationStatus;
use crate::serve::http::{IdempotencyHeader, OnBoard, StrictJson, StrictQuery, request_body};
use crate::serve::json::SortedJson;
use crate::serve::long_poll;
use crate::serve::problem::{ApiResult, Code, Problem};

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

request_body!(NegotiationEventRequest: OperateOrActAs, large);

/// Add an event to a board's negotiation
///
/// The event is a draft (`propose`, `counter`), an evaluation, the opening, or the end (`abort`). Proposes a patch,
/// which is rejected if the worker lacks permission. Accepted events without effect are listed in the document's
/// `/negotiation/refused`.
#[utoipa::path(post, operation_id = "addNegotiationEvent", path = "/v1/boards/{board}/negotiation/events", tag = "protocols", request_body = NegotiationEventRequest,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "Outcome of the proposal", body = ProposalOutcome)))]
pub(crate) async fn say(
    OnBoard { daemon, caller, board }: OnBoard,
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
    responses((status = 200, description = "The negotiation", body = NegotiationStatus)))]
pub(crate) async fn show(
    OnBoard { daemon, caller, board }: OnBoard,
    StrictQuery(waited): StrictQuery<Waited>,
) -> ApiResult<SortedJson<NegotiationStatus>> {
    check_readable(&daemon, &caller, &board, waited.worker.clone(), READ).await?;
    let reads_events = check_readable(&daemon, &caller, &board, waited.worker, &["/negotiation/events"]).await.is_ok();
    // After an `abort`, the next commit adds the reason.
    let status = long_poll::wait_while(&daemon, &board, waited.wait, NegotiationStatus::read, |status| {
        status.as_ref().is_some_and(|status| !status.is_complete())
    });
    let seen = |status: NegotiationStatus| match reads_events {
        true => SortedJson(status),
        false => SortedJson(status.without_end()),
    };
    status.await?.map(seen).ok_or_else(|| {
        Problem::from_code(Code::NoNegotiation, "the board has no negotiation")
            .help("a blueprint has one by fragments/negotiation.yaml: docs/negotiation.md")
    })
}
