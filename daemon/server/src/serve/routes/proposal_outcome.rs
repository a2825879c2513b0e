//! Outcomes of proposals, replies and answers, as responses.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use patchboard_kernel::board::{Outcome, RememberedOutcome};
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{Seq, Version};
use patchboard_kernel::rejection::Rejection;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::boards::replayed;
use crate::serve::idempotency_status::IdempotencyStatus;
use crate::serve::json::SortedJson;
use crate::serve::problem::{ApiResult, Problem, rejection_status};

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

const AWAITING_APPROVAL: &str = "awaiting_approval";

impl ProposalOutcome {
    /// Returns an outcome other than a commit.
    pub(super) const fn new(outcome: &'static str, seq: Seq) -> Self {
        Self { outcome, seq, version: None, state: None }
    }

    const fn committed(seq: Seq, version: Version, state: Digest) -> Self {
        Self { outcome: "committed", seq, version: Some(version), state: Some(state) }
    }

    /// Returns the outcome of a proposal, and the status of its key.
    pub(crate) fn read(outcome: Outcome) -> ApiResult<(IdempotencyStatus, Self)> {
        let new = match outcome {
            Outcome::Committed { seq, version, state } => Self::committed(seq, version, state),
            Outcome::NoOp { seq } => Self::new("no_op", seq),
            Outcome::Expanded { seq } => Self::new("expanded", seq),
            Outcome::AwaitingApproval { seq } => Self::new(AWAITING_APPROVAL, seq),
            Outcome::Continued { seq } => Self::new("continued", seq),
            Outcome::Answered { seq } => Self::new("answered", seq),
            Outcome::Duplicate(earlier) => {
                let earlier = Self::remembered(earlier)?;
                let status = match earlier.outcome == AWAITING_APPROVAL {
                    true => IdempotencyStatus::InProgress,
                    false => IdempotencyStatus::Replayed,
                };
                return Ok((status, earlier));
            }
            Outcome::Rejected { seq, rejection } => {
                return Err(rejection_problem(&rejection).detail("seq", json!(seq)));
            }
            Outcome::RejectedUnrecorded(rejection) => return Err(rejection_problem(&rejection)),
        };
        Ok((IdempotencyStatus::New, new))
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

pub(crate) fn outcome_response(outcome: Outcome) -> ApiResult<impl IntoResponse> {
    let (repetition, outcome) = ProposalOutcome::read(outcome)?;
    Ok((StatusCode::OK, replayed(repetition), SortedJson(outcome)))
}

fn rejection_problem(rejection: &Rejection) -> Problem {
    let code = rejection.code.as_str();
    let message = rejection.violations.first().map_or(code, |violation| violation.message.as_str());
    Problem::new(rejection_status(rejection.code), code, message)
        .detail("stage", json!(rejection.stage))
        .detail("violations", json!(rejection.violations))
        .detail("allowed", json!(rejection.allowed))
}
