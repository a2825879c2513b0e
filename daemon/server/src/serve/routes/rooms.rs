//! Negotiation rooms: proposals, votes and decisions on artefacts.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jsonptr::Token;
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::tree::Node;
use patchboard_protocols::room::{Vote, WireVote};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::proposal_outcome::ProposalOutcome;
use super::protocols::{self, MessageAuthor};
use crate::queries::rooms::{DecisionError, DecisionInfo, DecisionStatus, READ, decision_status};
use crate::serve::http::{IdempotencyHeader, OnBoard, OnPart, StrictJson, StrictQuery, request_body};
use crate::serve::json::SortedJson;
use crate::serve::long_poll;
use crate::serve::problem::{ApiResult, Code, Problem};

/// Wait options.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Waited {
    /// Seconds to wait for the decision, at most 60; default: 0.
    #[serde(default)]
    #[param(maximum = 60)]
    wait: u64,
    /// Also wait for the ruling of a person, if the votes do not decide.
    #[serde(default)]
    ruled: bool,
    /// Worker to read as; its contract must let it read the room's decisions, rulings and votes. For callers with a
    /// token for only that worker.
    worker: Option<String>,
}

/// Show the decision on an artefact in a board's negotiation room
///
/// `decision` never changes; `ruling` is the ruling of a person, or its timeout, if the votes do not decide; `outcome`
/// is the final result; `late_votes` are the workers that voted after the decision. 204 if there is no decision in
/// time; `no_such_artifact` if the artefact is not proposed by then.
#[utoipa::path(get, operation_id = "getDecision", path = "/v1/boards/{board}/room/decisions/{artifact}", tag = "protocols",
    params(("board" = String, Path), ("artifact" = String, Path), Waited),
    responses((status = 200, description = "The decision", body = DecisionInfo), (status = 204, description = "Nothing is decided yet")))]
pub(crate) async fn decision(
    OnPart { daemon, caller, board, part: artifact }: OnPart<String>,
    StrictQuery(waited): StrictQuery<Waited>,
) -> ApiResult<Response> {
    protocols::check_readable(&daemon, &caller, &board, waited.worker, READ).await?;
    let look = move |document: &Node| decision_status(document, &artifact, waited.ruled);
    let standing = long_poll::wait_while(&daemon, &board, waited.wait, look, |standing| {
        // The artefact may still be proposed.
        matches!(standing, Ok(DecisionStatus::Open) | Err(DecisionError::Artifact(_)))
    });
    match standing.await? {
        Ok(DecisionStatus::Decided(decision)) => Ok(SortedJson(decision).into_response()),
        Ok(DecisionStatus::Open) => Ok(StatusCode::NO_CONTENT.into_response()),
        Err(why @ DecisionError::Room) => Err(Problem::from_code(Code::NoRoom, why.to_string())),
        Err(why @ DecisionError::Artifact(_)) => Err(Problem::from_code(Code::NoSuchArtifact, why.to_string())),
    }
}

/// Returns the author of a message, from `worker` or its SW4RM alias. An error if both are given and differ.
pub(super) fn resolve_author(worker: Option<String>, named: Option<String>, name: &str) -> ApiResult<String> {
    match (worker, named) {
        (Some(worker), Some(named)) if worker != named => Err(Problem::from_code(
            Code::BadBody,
            format!("`worker` is {worker}, and `{name}` is {named}; they mean the same"),
        )),
        (worker, named) => worker.or(named).ok_or_else(|| Problem::from_code(Code::BadBody, "missing field `worker`")),
    }
}

/// Proposed artefact. Unknown members are ignored.
#[derive(Deserialize, ToSchema)]
pub(crate) struct ProposeArtifactRequest {
    /// Author: a worker that may add to `/room/proposals`. Required, unless `producer_id` is given.
    worker: Option<String>,
    /// Alias of `worker`.
    producer_id: Option<String>,
    /// Lease of the worker's call that this replies to, if any.
    #[schema(pattern = r"^(0|[1-9][0-9]{0,17}):(0|[1-9][0-9]{0,8})$")]
    lease: Option<String>,
    /// Id, new in the room.
    #[schema(min_length = 1, max_length = 200)]
    artifact_id: String,
    /// REQUIREMENTS, PLAN, CODE, DEPLOYMENT or OTHER; determines the voting period.
    artifact_type: String,
    /// Content. Bytes as Base64, as stated by `artifact_content_type`.
    artifact: Value,
    /// Media type.
    artifact_content_type: Option<String>,
    /// Critics that are asked to vote; default: all.
    requested_critics: Option<Vec<String>>,
    /// Id of the artefact that this one replaces.
    revises: Option<String>,
}

request_body!(ProposeArtifactRequest: OperateOrActAs, large);

/// Propose an artefact in a board's negotiation room
///
/// Proposes a patch, which is rejected if the worker lacks permission.
#[utoipa::path(post, operation_id = "proposeArtifact", path = "/v1/boards/{board}/room/proposals", tag = "protocols", request_body = ProposeArtifactRequest,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "Outcome of the proposal", body = ProposalOutcome)))]
pub(crate) async fn propose(
    OnBoard { daemon, caller, board }: OnBoard,
    key: IdempotencyHeader,
    StrictJson(artifact): StrictJson<ProposeArtifactRequest>,
) -> ApiResult<impl IntoResponse> {
    let ProposeArtifactRequest { worker, producer_id, lease, artifact_id, .. } = artifact;
    let worker = resolve_author(worker, producer_id, "producer_id")?;
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
    let by = MessageAuthor { worker: WorkerName::from(worker), lease, key };
    protocols::propose(&daemon, &caller, &board, by, json!([{"op": "add", "path": path, "value": value}])).await
}

/// Vote on an artefact. Unknown members are ignored.
#[derive(Deserialize, ToSchema)]
pub(crate) struct VoteRequest {
    /// Voter: a worker that may add to `/room/votes`. Required, unless `critic_id` is given.
    worker: Option<String>,
    /// Alias of `worker`.
    critic_id: Option<String>,
    /// Lease of the worker's call that this replies to, if any.
    #[schema(pattern = r"^(0|[1-9][0-9]{0,17}):(0|[1-9][0-9]{0,8})$")]
    lease: Option<String>,
    /// Artefact.
    artifact_id: String,
    /// Quality, 0 to 10. Required, unless the critic abstains.
    score: Option<f64>,
    /// Confidence, 0 to 1. Required, unless the critic abstains.
    confidence: Option<f64>,
    /// True if the artefact meets the critic's requirements. Required, unless the critic abstains.
    passed: Option<bool>,
    /// Strengths.
    #[serde(default)]
    strengths: Vec<String>,
    /// Weaknesses.
    #[serde(default)]
    weaknesses: Vec<String>,
    /// Recommendations; "escalate" and "needs human review" request a person.
    #[serde(default)]
    recommendations: Vec<String>,
    /// Abstention: the vote does not count, whatever its numbers.
    #[serde(default)]
    abstain: bool,
}

request_body!(VoteRequest: OperateOrActAs);

/// Vote on an artefact in a board's negotiation room
///
/// Votes by critics that were not asked, second votes, and votes after the decision are recorded, but not counted.
#[utoipa::path(post, operation_id = "vote", path = "/v1/boards/{board}/room/votes", tag = "protocols", request_body = VoteRequest,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "Outcome of the proposal", body = ProposalOutcome)))]
pub(crate) async fn vote(
    OnBoard { daemon, caller, board }: OnBoard,
    key: IdempotencyHeader,
    StrictJson(ballot): StrictJson<VoteRequest>,
) -> ApiResult<impl IntoResponse> {
    let VoteRequest { worker, critic_id, lease, artifact_id, .. } = ballot;
    let worker = resolve_author(worker, critic_id, "critic_id")?;
    let wire = WireVote {
        critic_id: worker.clone(),
        score: ballot.score,
        confidence: ballot.confidence,
        passed: ballot.passed,
        strengths: ballot.strengths,
        weaknesses: ballot.weaknesses,
        recommendations: ballot.recommendations,
        abstain: ballot.abstain,
    };
    let vote = Vote::try_from(wire).map_err(|bad| Problem::from_code(Code::BadBody, bad.to_string()))?;
    let mut value = json!(vote);
    value["artifact_id"] = artifact_id.into();
    let by = MessageAuthor { worker: WorkerName::from(worker), lease, key };
    let patch = json!([{"op": "add", "path": "/room/votes/-", "value": value}]);
    protocols::propose(&daemon, &caller, &board, by, patch).await
}
