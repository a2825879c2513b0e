//! Negotiations: what is said in one, and how it stands.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::tree::Node;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::ProblemDocument;
use super::protocols::{By, propose, sees};
use crate::serve::http::{Asked, BODY_BYTES_MAX, BoardPath, Body, Caller, Gate, Key, Posted};
use crate::serve::problem::{Answered, Code, Problem};
use crate::serve::service::Daemon;
use crate::serve::waiting;

/// What somebody says in a negotiation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Saying {
    /// In whose name: a worker that may add to `/negotiation/events`.
    worker: String,
    /// The call that this answers, if it is one: a lease of the worker's.
    lease: Option<String>,
    /// The event, as docs/negotiation.md has it: a draft, an evaluation, `open` or `abort`. Members that are not known are kept.
    #[schema(value_type = Object)]
    event: Map<String, Value>,
}

impl Posted for Saying {
    const GATE: Gate = Gate::Join;
    const BYTES_MAX: usize = BODY_BYTES_MAX;
}

/// Say something in a board's negotiation
///
/// A draft (`propose`, `counter`), an evaluation, its opening, or its end (`abort`). It is a patch like any other: what the worker may
/// not say is refused. What may be said and does not count is in the document's `/negotiation/refused`.
#[utoipa::path(post, path = "/v1/boards/{board}/negotiation/events", tag = "protocols", request_body = Saying,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, body = Object, description = "What became of it: `outcome`, and the record's `seq`"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn say(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    BoardPath(board): BoardPath,
    key: Key,
    Body(saying): Body<Saying>,
) -> Answered<impl IntoResponse> {
    let Saying { worker, lease, event } = saying;
    let patch = json!([{"op": "add", "path": "/negotiation/events/-", "value": event}]);
    propose(&daemon, &caller, &board, By { worker: WorkerName::from(worker), lease, key }, patch).await
}

/// For what is waited.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Waited {
    /// How many seconds to wait until it is over, at most 60; not at all if absent.
    #[serde(default)]
    #[param(maximum = 60)]
    wait: u64,
    /// As which worker: one whose contract lets it read the negotiation's policy, rounds, versions and reports. For who sits in its
    /// seat alone.
    worker: Option<String>,
}

/// What of a document is told; the end only to who may read the events as well.
const READ: &[&str] = &["/negotiation/policy", "/negotiation/rounds", "/negotiation/versions", "/negotiation/reports"];

/// How a board's negotiation stands
///
/// `status` is NEW, OPEN, DECIDED or ABORTED; `policy` what it goes by; `round` the last that has begun, with whose `turn` it is;
/// `version` the draft that counts in it; `end` the event that ended it, for who may read the events, and `decision` the report of
/// why. With `wait` the answer comes when it is over, which is once that report is there, or the time is.
#[utoipa::path(get, path = "/v1/boards/{board}/negotiation", tag = "protocols", params(("board" = String, Path), Waited),
    responses((status = 200, body = Object), (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn show(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    BoardPath(board): BoardPath,
    Asked(waited): Asked<Waited>,
) -> Answered<Json<Value>> {
    sees(&daemon, &caller, &board, waited.worker.clone(), READ).await?;
    let reads_events = sees(&daemon, &caller, &board, waited.worker, &["/negotiation/events"]).await.is_ok();
    let patience = waiting::patience(waited.wait)?;
    // Who says `abort` does not say why it is over: that is the next commit.
    let over = waiting::until(&daemon, &board, patience, |document| match standing(document) {
        Some(told) if told["end"].is_null() || told["decision"].is_null() => None,
        over => Some(over),
    });
    let told = match over.await? {
        Some(told) => told,
        // The time is over, and the negotiation is not.
        None => waiting::now(&daemon, &board, standing).await?,
    };
    let seen = |mut told: Value| {
        if !reads_events {
            told["end"] = Value::Null;
        }
        Json(told)
    };
    told.map(seen).ok_or_else(|| {
        Problem::of(Code::NoNegotiation, "the board has no negotiation")
            .help("a blueprint has one by fragments/negotiation.yaml: docs/negotiation.md")
    })
}

/// How the negotiation of a document stands, if it has one.
fn standing(document: &Node) -> Option<Value> {
    let negotiation = document.child("negotiation")?;
    let events = negotiation.child("events")?.as_array()?;
    let last = |list: &str| negotiation.child(list)?.as_array()?.iter().last().map(Node::to_value);
    let ending = |event: &Node| match event.child("kind").and_then(Node::as_str) {
        Some("decide") => Some("DECIDED"),
        Some("abort") => Some("ABORTED"),
        _ => None,
    };
    // What was said after the end does not count.
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
        // That a round went on is no reason why it is over.
        "decision": last("reports").filter(|report| report["kind"] == "decision" && report["outcome"] != "continue"),
    }))
}
