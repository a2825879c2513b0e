//! Negotiation rooms: what is proposed, voted and decided over an artefact.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jsonptr::Token;
use patchboard_kernel::id::{BoardId, WorkerName};
use patchboard_kernel::room::{Told, Vote};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::ProblemDocument;
use super::protocols::{self, By};
use crate::rooms::{NotThere, READ, Standing, standing};
use crate::serve::http::{Asked, BODY_BYTES_MAX, BoardPath, Body, Caller, Gate, Key, Posted, Segments};
use crate::serve::problem::{Answered, Code, Problem};
use crate::serve::service::Daemon;
use crate::serve::waiting;

/// For what is waited.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Waited {
    /// How many seconds to wait for the decision, at most 60; not at all if absent.
    #[serde(default)]
    #[param(maximum = 60)]
    wait: u64,
    /// Where the votes do not decide, wait for the person who does.
    #[serde(default)]
    ruled: bool,
    /// As which worker: one whose contract lets it read the room's decisions, rulings and votes. For who sits in its seat alone.
    worker: Option<String>,
}

/// What is decided over an artefact in a board's negotiation room
///
/// `decision` never changes; `ruling` is what a person has said where the votes do not decide, or that none has in time;
/// `outcome` is the last word, and `late_votes` are who voted after it. Where nothing is decided in time, the answer is 204; where
/// nothing is even proposed by then, `no_such_artifact`.
#[utoipa::path(get, path = "/v1/boards/{board}/room/decisions/{artifact}", tag = "protocols",
    params(("board" = String, Path), ("artifact" = String, Path), Waited),
    responses((status = 200, body = Object), (status = 204, description = "Nothing is decided yet"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn decision(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Segments((board, artifact)): Segments<(BoardId, String)>,
    Asked(waited): Asked<Waited>,
) -> Answered<Response> {
    protocols::sees(&daemon, &caller, &board, waited.worker, READ).await?;
    let patience = waiting::patience(waited.wait)?;
    let ruled = waited.ruled;
    let wanted = artifact.clone();
    let decided = waiting::until(&daemon, &board, patience, move |document| match standing(document, &wanted, ruled) {
        // It may still be proposed.
        Ok(Standing::Open) | Err(NotThere::Artifact(_)) => None,
        other => Some(other),
    });
    let standing = match decided.await? {
        Some(standing) => standing,
        None => waiting::now(&daemon, &board, move |document| standing(document, &artifact, ruled)).await?,
    };
    match standing {
        Ok(Standing::Decided(told)) => Ok(Json(told).into_response()),
        Ok(Standing::Open) => Ok(StatusCode::NO_CONTENT.into_response()),
        Err(why @ NotThere::Room) => Err(Problem::of(Code::NoRoom, why.to_string())),
        Err(why @ NotThere::Artifact(_)) => Err(Problem::of(Code::NoSuchArtifact, why.to_string())),
    }
}

/// In whose name something is said: `worker` here, and a name of SW4RM's for the same.
pub(super) fn named(worker: Option<String>, named: Option<String>, name: &str) -> Answered<String> {
    match (worker, named) {
        (Some(worker), Some(named)) if worker != named => Err(Problem::of(
            Code::BadBody,
            format!("`worker` is {worker}, and `{name}` is {named}; they mean the same"),
        )),
        (worker, named) => worker.or(named).ok_or_else(|| Problem::of(Code::BadBody, "missing field `worker`")),
    }
}

/// An artefact that is proposed. Members that are not known are left out of account.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Artifact {
    /// In whose name: a worker that may add to `/room/proposals`. Required, unless `producer_id` says it.
    worker: Option<String>,
    /// The same as `worker`.
    producer_id: Option<String>,
    /// The call that this answers, if it is one: a lease of the worker's.
    lease: Option<String>,
    /// Its id, which is new in the room.
    #[schema(min_length = 1, max_length = 200)]
    artifact_id: String,
    /// REQUIREMENTS, PLAN, CODE, DEPLOYMENT or OTHER: how long votes are waited for goes by it.
    artifact_type: String,
    /// What is proposed. Bytes are their base64, which `artifact_content_type` says.
    artifact: Value,
    /// A media type.
    artifact_content_type: Option<String>,
    /// Who is to vote; all critics if absent.
    requested_critics: Option<Vec<String>>,
    /// The id of the artefact that it is to replace.
    revises: Option<String>,
}

impl Posted for Artifact {
    const GATE: Gate = Gate::Join;
    const BYTES_MAX: usize = BODY_BYTES_MAX;
}

/// Propose an artefact in a board's negotiation room
///
/// It is a patch like any other: what the worker may not write is refused.
#[utoipa::path(post, path = "/v1/boards/{board}/room/proposals", tag = "protocols", request_body = Artifact,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, body = Object, description = "What became of it: `outcome`, and the record's `seq`"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn propose(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    BoardPath(board): BoardPath,
    key: Key,
    Body(artifact): Body<Artifact>,
) -> Answered<impl IntoResponse> {
    let Artifact { worker, producer_id, lease, artifact_id, .. } = artifact;
    let worker = named(worker, producer_id, "producer_id")?;
    let members = [
        ("artifact_type", Some(json!(artifact.artifact_type))),
        ("artifact", Some(artifact.artifact)),
        ("artifact_content_type", artifact.artifact_content_type.map(Value::from)),
        ("requested_critics", artifact.requested_critics.map(Value::from)),
        ("revises", artifact.revises.map(Value::from)),
        ("producer", Some(json!(worker))),
    ];
    let value: Map<String, Value> =
        members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let path = format!("/room/proposals/{}", Token::new(&artifact_id).encoded());
    let by = By { worker: WorkerName::from(worker), lease, key };
    protocols::propose(&daemon, &caller, &board, by, json!([{"op": "add", "path": path, "value": value}])).await
}

/// A vote on an artefact. Members that are not known are left out of account.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Ballot {
    /// Who votes: a worker that may add to `/room/votes`. Required, unless `critic_id` says it.
    worker: Option<String>,
    /// The same as `worker`.
    critic_id: Option<String>,
    /// The call that this answers, if it is one: a lease of the worker's.
    lease: Option<String>,
    /// On what.
    artifact_id: String,
    /// How good it is, 0 to 10. Required, unless the critic abstains.
    score: Option<f64>,
    /// How sure the critic is, 0 to 1. Required, unless the critic abstains.
    confidence: Option<f64>,
    /// Whether it meets what the critic looks for. Required, unless the critic abstains.
    passed: Option<bool>,
    /// What is good about it.
    #[serde(default)]
    strengths: Vec<String>,
    /// What is not.
    #[serde(default)]
    weaknesses: Vec<String>,
    /// What should be done; "escalate" and "needs human review" ask for a person.
    #[serde(default)]
    recommendations: Vec<String>,
    /// It is no vote, whatever the numbers are.
    #[serde(default)]
    abstain: bool,
}

impl Posted for Ballot {
    const GATE: Gate = Gate::Join;
}

/// Vote on an artefact in a board's negotiation room
///
/// A vote of somebody who was not asked, a second one and one that comes after the decision are recorded, and not counted.
#[utoipa::path(post, path = "/v1/boards/{board}/room/votes", tag = "protocols", request_body = Ballot,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, body = Object, description = "What became of it: `outcome`, and the record's `seq`"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn vote(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    BoardPath(board): BoardPath,
    key: Key,
    Body(ballot): Body<Ballot>,
) -> Answered<impl IntoResponse> {
    let Ballot { worker, critic_id, lease, artifact_id, .. } = ballot;
    let worker = named(worker, critic_id, "critic_id")?;
    let told = Told {
        critic_id: worker.clone(),
        score: ballot.score,
        confidence: ballot.confidence,
        passed: ballot.passed,
        strengths: ballot.strengths,
        weaknesses: ballot.weaknesses,
        recommendations: ballot.recommendations,
        abstain: ballot.abstain,
    };
    let vote = Vote::try_from(told).map_err(|bad| Problem::of(Code::BadBody, bad.to_string()))?;
    let mut value = json!(vote);
    value["artifact_id"] = artifact_id.into();
    let by = By { worker: WorkerName::from(worker), lease, key };
    let patch = json!([{"op": "add", "path": "/room/votes/-", "value": value}]);
    protocols::propose(&daemon, &caller, &board, by, patch).await
}
