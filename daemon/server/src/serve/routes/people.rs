//! Questions to people, and their answers.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use patchboard_kernel::blueprint::AgentKind;
use patchboard_kernel::board::Outcome;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, Seq, WorkerName};
use patchboard_kernel::record::{Answer, Body as Said};
use patchboard_kernel::rejection;
use patchboard_storage::blocking::wait;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::proposal_outcome::{ProposalOutcome, outcome_response};
use crate::queries::questions::InboxQuestion;
use crate::reader::storage;
use crate::serve::access::Permission;
use crate::serve::caller::Caller;
use crate::serve::http::{IdempotencyHeader, OnPart, StrictJson, request_body};
use crate::serve::json::SortedJson;
use crate::serve::problem::{ApiResult, Code, Problem, no_such_board};
use crate::serve::service::Daemon;

/// Open questions to people.
#[derive(Serialize, ToSchema)]
pub(crate) struct Inbox {
    /// Questions.
    questions: Vec<InboxQuestion>,
}

/// List the open questions on all boards, as far as the caller may see or answer them
#[utoipa::path(get, operation_id = "listQuestions", path = "/v1/inbox", tag = "people",
    responses((status = 200, description = "The open questions", body = Inbox)))]
pub(crate) async fn inbox(State(daemon): State<Arc<Daemon>>, caller: Caller) -> ApiResult<SortedJson<Inbox>> {
    caller.require(&Permission::Authenticated)?;
    let mut questions = Vec::new();
    for board in daemon.running_boards() {
        let snapshot = board.status();
        for (seq, question) in snapshot.pending.iter() {
            let (id, person) = (board.id().clone(), question.approver.clone());
            if caller.scope.allows(&Permission::ViewAs(id.clone(), person.clone()))
                || caller.scope.allows(&Permission::ActAsPerson(id, person))
            {
                questions.push(InboxQuestion::new(board.id(), *seq, question));
            }
        }
    }
    Ok(SortedJson(Inbox { questions }))
}

/// Answer of a person.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerQuestionRequest {
    /// True if the person agrees.
    agrees: bool,
    /// `digest` of the question: identifies the content that was answered.
    #[schema(pattern = r"^[0-9a-f]{64}$")]
    digest: String,
    /// Reason; passed to the worker, and kept in the journal.
    reason: Option<String>,
    /// Answer to a `clarify` question; one of its `choices`, if it has some.
    text: Option<String>,
}

request_body!(AnswerQuestionRequest: OperateOrActAs);

/// Answer a question, once, as the person it is addressed to
///
/// The token determines the person: `person:NAME`, or `seat:BOARD/NAME`. A daemon that requires no tokens accepts any
/// caller.
///
/// An approved proposal is checked again, and committed if its author's read set is unchanged. A worker that asked a
/// question is called again, with the answer.
#[utoipa::path(post, operation_id = "answerQuestion", path = "/v1/boards/{board}/approvals/{seq}", tag = "people", request_body = AnswerQuestionRequest,
    params(("board" = String, Path), ("seq" = u64, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "The outcome", body = ProposalOutcome)))]
pub(crate) async fn answer(
    OnPart { daemon, caller, board, part: seq }: OnPart<u64>,
    // Idempotent without a key, as a question is answered once.
    _: IdempotencyHeader,
    StrictJson(given): StrictJson<AnswerQuestionRequest>,
) -> ApiResult<impl IntoResponse> {
    let by = addressed_person(&daemon, &caller, &board, Seq(seq)).await?;
    let digest: Digest = given.digest.parse().map_err(|_| Problem::from_code(Code::BadBody, "digest is none"))?;
    let answer = Answer { of: Seq(seq), by, digest, agrees: given.agrees, reason: given.reason, text: given.text };
    submit_answer(&daemon, &caller, &board, answer).await
}

/// Submits an answer. Returns its outcome, or the earlier outcome of the same answer.
pub(crate) async fn submit_answer(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    board: &BoardId,
    answer: Answer,
) -> ApiResult<Response> {
    let outcome = daemon.open_for(board, caller).await?.answer(answer.clone()).await?;
    if matches!(&outcome, Outcome::RejectedUnrecorded(refused) if refused.code == rejection::Code::NotPending)
        && let Some(before) = earlier_outcome(daemon, board, answer).await?
    {
        return Ok(SortedJson(before).into_response());
    }
    Ok(outcome_response(outcome)?.into_response())
}

/// Returns the person that a record addresses, if the caller is that person.
pub(crate) async fn addressed_person(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    board: &BoardId,
    seq: Seq,
) -> ApiResult<WorkerName> {
    caller.require(&Permission::OperateOrActAs(board.clone()))?;
    knows_of(daemon, caller, board).await?;
    let person = approver_of(daemon, board, seq).await?;
    caller.require(&Permission::ActAsPerson(board.clone(), person.clone()))?;
    Ok(person)
}

/// Checks that the caller may act as a worker; only the person may act as a human worker.
pub(crate) async fn may_act_as(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    board: &BoardId,
    worker: &WorkerName,
) -> ApiResult<()> {
    caller.require(&Permission::OperateOrActAs(board.clone()))?;
    knows_of(daemon, caller, board).await?;
    let is_person = caller.holder.is_some() && {
        let blueprint = daemon.blueprint(board).await?;
        blueprint.workers.get(worker).is_some_and(|worker| worker.agent == AgentKind::Human)
    };
    let need = if is_person { Permission::ActAsPerson } else { Permission::ActAs };
    caller.require(&need(board.clone(), worker.clone()))
}

/// Hides a board from persons that it does not have, unless the token grants access to it.
async fn knows_of(daemon: &Arc<Daemon>, caller: &Caller, board: &BoardId) -> ApiResult<()> {
    let Some(person) = caller.scope.person().filter(|_| !caller.scope.may_know(board)) else { return Ok(()) };
    let blueprint = daemon.blueprint(board).await?;
    match blueprint.workers.get(person).is_some_and(|worker| worker.agent == AgentKind::Human) {
        true => Ok(()),
        false => Err(no_such_board(board)),
    }
}

async fn approver_of(daemon: &Arc<Daemon>, board: &BoardId, seq: Seq) -> ApiResult<WorkerName> {
    match daemon.body(board, seq).await? {
        Some(Said::Approval(approval)) => Ok(approval.approver),
        _ => {
            let detail = format!("record {seq} is no question to a person");
            Err(Problem::new(StatusCode::CONFLICT, rejection::Code::NotPending.as_str(), detail))
        }
    }
}

/// Returns the outcome of an earlier identical answer, if there is one.
async fn earlier_outcome(daemon: &Arc<Daemon>, board: &BoardId, answer: Answer) -> ApiResult<Option<ProposalOutcome>> {
    let board = board.clone();
    daemon
        .query(move |reader| {
            let mut after = Some(answer.of);
            loop {
                let records = wait(reader.journal.records(&board, after, 1000)).map_err(storage)?;
                let Some(last) = records.last() else { return Ok(None) };
                after = Some(last.seq);
                for record in &records {
                    if matches!(record.body(), Ok(Said::Answer(said)) if *said == answer) {
                        if answer.text.is_some() {
                            return Ok(Some(ProposalOutcome::new("answered", record.seq)));
                        }
                        // The record after the answer is its outcome.
                        let next = wait(reader.journal.records(&board, Some(record.seq), 1)).map_err(storage)?;
                        let came = next.first();
                        return Ok(came.map(|came| ProposalOutcome::new(came.kind.as_str(), came.seq)));
                    }
                }
            }
        })
        .await
}
