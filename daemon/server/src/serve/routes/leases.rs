//! Leases: an external process leases a call of a `remote` worker, and replies to it.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use patchboard_agents::lease::{LEASE_SECONDS, Lease, LeaseHolder, OpenCall};
use patchboard_kernel::blueprint::AgentKind;
use patchboard_kernel::board::{Outcome, Proposal, ProposalSource, ReplyBody};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, IdempotencyKey, InvocationId, WorkerName};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::Ended;
use patchboard_roles::blackboard;
use patchboard_runtime::agent::Failure;
use patchboard_runtime::error::RuntimeError;
use patchboard_runtime::handle::BoardHandle;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use utoipa::ToSchema;

use super::boards::replayed;
use super::proposal_outcome::ProposalOutcome;
use crate::queries::leases::{FailureReport, LeaseList, LeaseRenewal, LeasedCall, OpenCallInfo};
use crate::serve::access::Permission;
use crate::serve::caller::Caller;
use crate::serve::http::{BodyMemory, IdempotencyHeader, OnBoard, OnPart, StrictJson, request_body};
use crate::serve::json::SortedJson;
use crate::serve::long_poll::wait_time;
use crate::serve::problem::{ApiResult, Code, Problem, no_such_worker};
use crate::serve::service::Daemon;

/// Invocation and number of an attempt.
type AttemptId = (InvocationId, u32);

/// Default duration of a lease, in seconds.
const SECONDS: u64 = 60;

/// Maximum characters of a failure message.
const MESSAGE_MAX: usize = 2000;

const FAILED: &str = "the process that leased the call could not do it";

/// Lease request.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseRequest {
    /// Worker.
    worker: String,
    /// Duration unless renewed, 1 to 3600 seconds; default: 60.
    seconds: Option<u64>,
    /// Time to wait for a call, at most 60 seconds; default: 0.
    #[serde(default)]
    wait: u64,
}

request_body!(LeaseRequest: OperateOrActAs);

/// Lease of the next call, in the request that replies to the last one.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NextCallRequest {
    /// Duration unless renewed, 1 to 3600 seconds; default: 60.
    seconds: Option<u64>,
    /// Time to wait for a call, at most 60 seconds; default: 0.
    #[serde(default)]
    wait: u64,
}

/// Lease renewal.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewLeaseRequest {
    /// Worker of the call.
    worker: String,
    /// Duration from now on, in seconds; default: 60.
    seconds: Option<u64>,
}

request_body!(RenewLeaseRequest: OperateOrActAs);

/// Reply to a call.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerCallRequest {
    /// Worker of the call.
    worker: String,
    /// Patch (RFC 6902), or an envelope with one. For a worker with a `format`, its reply of that form, as an object or
    /// a string.
    patch: Value,
    /// Tokens used.
    usage: Option<TokenUsage>,
    /// Leases the worker's next call, too, unless the reply is rejected.
    next: Option<NextCallRequest>,
}

request_body!(AnswerCallRequest: OperateOrActAs, large);

/// Outcome of a reply, with the next call if it was requested.
#[derive(Serialize, ToSchema)]
pub(crate) struct AnswerOutcome {
    /// Outcome of the proposal.
    #[serde(flatten)]
    outcome: ProposalOutcome,
    /// Next call, if requested; null if none came in time, or the board has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Option<LeasedCall>>,
}

/// Failure of a call.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailCallRequest {
    /// Worker of the call.
    worker: String,
    /// Kind of failure: `crashed`, `unreachable`, `refused`, `rate_limited`, `truncated`, `empty` or `protocol`.
    #[serde(default = "crashed")]
    #[schema(value_type = String)]
    code: FailureCode,
    /// Message; the journal keeps it.
    #[serde(default)]
    message: String,
    /// Tokens used.
    usage: Option<TokenUsage>,
}

request_body!(FailCallRequest: OperateOrActAs);

const fn crashed() -> FailureCode {
    FailureCode::Crashed
}

/// Tokens used by a call.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenUsage {
    /// Prompt tokens, cached ones included.
    prompt: u64,
    /// Completion tokens.
    completion: u64,
    /// Prompt tokens that the provider had cached.
    #[serde(default)]
    cached: u64,
}

impl TokenUsage {
    const fn usage(self) -> Usage {
        Usage { prompt: self.prompt, completion: self.completion, cached: self.cached, estimated: false, money: 0 }
    }
}

/// List the calls of remote workers that are under way
///
/// Calls without `expires` can be leased.
#[utoipa::path(get, operation_id = "listLeases", path = "/v1/boards/{board}/leases", tag = "leases", params(("board" = String, Path)),
    responses((status = 200, description = "The calls", body = LeaseList)))]
pub(crate) async fn list(OnBoard { daemon, caller, board }: OnBoard) -> ApiResult<SortedJson<LeaseList>> {
    caller.require(&Permission::View(board.clone()))?;
    daemon.summary(&board).await?;
    let now = daemon.clock.now();
    let calls = daemon.leases.open_calls(&board);
    Ok(SortedJson(LeaseList { calls: calls.iter().map(|call| OpenCallInfo::new(call, now)).collect() }))
}

/// Lease the oldest waiting call of a remote worker
///
/// Returns everything needed for a reply: the worker's view, and the schema of the reply. 204 if no call arrives in
/// time. A board that has ended has no more calls: `board_over`.
#[utoipa::path(post, operation_id = "leaseCall", path = "/v1/boards/{board}/leases", tag = "leases", request_body = LeaseRequest,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "The call", body = LeasedCall), (status = 204, description = "No call waits")))]
pub(crate) async fn lease(
    OnBoard { daemon, caller, board }: OnBoard,
    key: IdempotencyHeader,
    StrictJson(wanted): StrictJson<LeaseRequest>,
) -> ApiResult<Response> {
    let worker = WorkerName::from(wanted.worker);
    caller.require(&Permission::ActAs(board.clone(), worker.clone()))?;
    let (lasts, patience) = (seconds(wanted.seconds)?, wait_time(wanted.wait, Code::BadBody)?);
    match acquire(&daemon, &board, &worker, lasts, patience, holder(&caller, &key)).await? {
        Some(lease) => Ok(SortedJson(LeasedCall::new(&lease, daemon.clock.now())).into_response()),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

fn holder(caller: &Caller, key: &IdempotencyHeader) -> LeaseHolder {
    LeaseHolder { key: key.token().map(|key| key.to_string()), api_token: caller.token() }
}

/// Returns the call leased under this key, or leases the oldest waiting call, or waits for one.
pub(crate) async fn acquire(
    daemon: &Arc<Daemon>,
    board: &BoardId,
    worker: &WorkerName,
    lasts: Duration,
    patience: Duration,
    taker: LeaseHolder,
) -> ApiResult<Option<Lease>> {
    let until = Instant::now() + patience;
    if !is_active(daemon, board, until).await? {
        return Ok(None);
    }
    let handle = remote(daemon, board, worker).await?;
    let left = until.saturating_duration_since(Instant::now());
    let leased = tokio::select! {
        leased = daemon.leases.lease(board, worker, lasts, left, taker) => leased,
        // Waits for the final end, because a stalled board may continue.
        _ = handle.wait_for_final_end() => None,
        () = daemon.stopping() => None,
    };
    match leased {
        None if handle.status().ended.is_some_and(Ended::is_final) => {
            Err(RuntimeError::BoardEnded(board.clone()).into())
        }
        leased => Ok(leased),
    }
}

/// Returns true if a board runs, or can be opened. A stalled or stopped board is not opened only to wait for its calls;
/// waits until another request opens it, and returns false on timeout.
async fn is_active(daemon: &Arc<Daemon>, board: &BoardId, until: Instant) -> ApiResult<bool> {
    let Some(mut activations) = daemon.activations() else { return Ok(false) };
    loop {
        if daemon.running(board).is_some() || daemon.summary(board).await?.ended.is_none() {
            return Ok(true);
        }
        if daemon.is_over(board).await? {
            return Err(RuntimeError::BoardEnded(board.clone()).into());
        }
        match timeout_at(until, activations.changed()).await {
            Ok(Ok(())) => {}
            // Timeout, or the daemon stops.
            Ok(Err(_)) | Err(_) => return Ok(false),
        }
    }
}

/// Renew a lease
///
/// Counts from now, and never beyond the deadline of the attempt.
#[utoipa::path(post, operation_id = "renewLease", path = "/v1/boards/{board}/leases/{lease}/renew", tag = "leases", request_body = RenewLeaseRequest,
    params(("board" = String, Path), ("lease" = String, Path, pattern = r"^(0|[1-9][0-9]{0,17}):(0|[1-9][0-9]{0,8})$"), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "The new expiry of the lease", body = LeaseRenewal)))]
pub(crate) async fn renew(
    OnPart { daemon, caller, board, part: lease }: OnPart<String>,
    // Renewal is idempotent.
    _: IdempotencyHeader,
    StrictJson(renewed): StrictJson<RenewLeaseRequest>,
) -> ApiResult<SortedJson<LeaseRenewal>> {
    let worker = WorkerName::from(renewed.worker);
    caller.require(&Permission::ActAs(board.clone(), worker.clone()))?;
    let (invocation, attempt) = attempt_of(&lease)?;
    let lasts = seconds(renewed.seconds)?;
    remote(&daemon, &board, &worker).await?;
    let renewed = daemon.leases.renew(&board, &worker, invocation, attempt, lasts, caller.token());
    let renewed = renewed.ok_or_else(|| lease_over(&lease))?;
    Ok(SortedJson(LeaseRenewal::new(lease, &renewed, daemon.clock.now())))
}

/// Reply to a call with a patch
///
/// Passes the same stages as the reply of any worker. The lease is the idempotency key: a retry gets the first outcome,
/// a different reply is rejected. A late reply is recorded and rejected (`invocation_closed`). With `next`, a retry gets
/// the same next call only if both requests have the same `Idempotency-Key`.
#[utoipa::path(post, operation_id = "answerCall", path = "/v1/boards/{board}/leases/{lease}/answer", tag = "leases", request_body = AnswerCallRequest,
    params(("board" = String, Path), ("lease" = String, Path, pattern = r"^(0|[1-9][0-9]{0,17}):(0|[1-9][0-9]{0,8})$"), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "Outcome of the proposal", body = AnswerOutcome)))]
pub(crate) async fn answer(
    OnPart { daemon, caller, board, part: lease }: OnPart<String>,
    key: IdempotencyHeader,
    body_memory: BodyMemory,
    StrictJson(answer): StrictJson<AnswerCallRequest>,
) -> ApiResult<impl IntoResponse> {
    let worker = WorkerName::from(answer.worker);
    caller.require(&Permission::ActAs(board.clone(), worker.clone()))?;
    let wanted = match answer.next {
        Some(next) => Some((seconds(next.seconds)?, wait_time(next.wait, Code::BadBody)?)),
        None => None,
    };
    let usage = answer.usage.map(TokenUsage::usage);
    let outcome = submit_reply(&daemon, &caller, &board, &worker, &lease, answer.patch, usage).await?;
    let (repetition, outcome) = ProposalOutcome::read(outcome)?;
    let next = match wanted {
        Some((lasts, patience)) => {
            body_memory.release();
            // The outcome is decided: an error of the next lease does not replace it.
            let leased =
                acquire(&daemon, &board, &worker, lasts, patience, holder(&caller, &key)).await.unwrap_or(None);
            Some(leased.map(|lease| LeasedCall::new(&lease, daemon.clock.now())))
        }
        None => None,
    };
    Ok((replayed(repetition), SortedJson(AnswerOutcome { outcome, next })))
}

pub(crate) async fn submit_reply(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    board: &BoardId,
    worker: &WorkerName,
    lease: &str,
    reply: Value,
    usage: Option<Usage>,
) -> ApiResult<Outcome> {
    let (invocation, attempt) = attempt_of(lease)?;
    let handle = remote(daemon, board, worker).await?;
    let from = ProposalSource::Attempt { invocation, attempt };
    let reply = match handle.status().blueprint.workers.get(worker) {
        Some(seat) if seat.format.is_some() => read(open_call(daemon, board, worker, (invocation, attempt)), reply),
        _ => ReplyBody::Json(reply),
    };
    let proposal = Proposal { from, worker: worker.clone(), reply, usage, raw: None };
    let outcome = handle.with_principal(caller.principal()).propose(proposal).await?;
    daemon.leases.close(board, worker, invocation, attempt);
    Ok(outcome)
}

/// Converts the reply of a worker with a `format` into a patch.
fn read(open: Option<OpenCall>, reply: Value) -> ReplyBody {
    // A formatted reply is a string, or a JSON object.
    let (text, said) = match reply {
        Value::String(text) => (text.clone(), ReplyBody::Text(text)),
        reply => (reply.to_string(), ReplyBody::Json(reply)),
    };
    match open.and_then(|open| blackboard::envelope(&open.call, &text)) {
        Some(reply) => ReplyBody::Derived { reply, source: text },
        // The call is closed: its reply is recognised by its text.
        None => said,
    }
}

/// Report that a call has failed
///
/// The attempt ends as `failed`; the code and the worker's limits decide on a retry.
#[utoipa::path(post, operation_id = "failCall", path = "/v1/boards/{board}/leases/{lease}/failure", tag = "leases", request_body = FailCallRequest,
    params(("board" = String, Path), ("lease" = String, Path, pattern = r"^(0|[1-9][0-9]{0,17}):(0|[1-9][0-9]{0,8})$"), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "The recorded failure", body = FailureReport)))]
pub(crate) async fn fail(
    OnPart { daemon, caller, board, part: lease }: OnPart<String>,
    // An attempt fails once.
    _: IdempotencyHeader,
    StrictJson(failed): StrictJson<FailCallRequest>,
) -> ApiResult<SortedJson<FailureReport>> {
    let worker = WorkerName::from(failed.worker);
    caller.require(&Permission::ActAs(board.clone(), worker.clone()))?;
    let (invocation, attempt) = attempt_of(&lease)?;
    use FailureCode as F;
    if matches!(
        failed.code,
        F::Timeout | F::Lost | F::LeaseExpired | F::CassetteMiss | F::BudgetExhausted | F::NotConfigured
    ) {
        return Err(Problem::from_code(Code::BadBody, format!("{} is not for a process to say", failed.code)));
    }
    let message = match failed.message.is_empty() {
        true => FAILED.to_owned(),
        false => failed.message.chars().take(MESSAGE_MAX).collect(),
    };
    let handle = remote(&daemon, &board, &worker).await?;
    // Only the holder of a lease may end its attempt.
    check_held(&daemon, &board, &worker, (invocation, attempt))?;
    let failure = Failure { code: failed.code, message, usage: failed.usage.map(TokenUsage::usage), deferral: None };
    let has_counted = handle.with_principal(caller.principal()).fail(invocation, attempt, failure).await?;
    daemon.leases.close(&board, &worker, invocation, attempt);
    if !has_counted { Err(lease_over(&lease)) } else { Ok(SortedJson(FailureReport { outcome: "failed", lease })) }
}

/// Checks that the call of an attempt is leased.
pub(crate) fn check_held(daemon: &Daemon, board: &BoardId, worker: &WorkerName, attempt: AttemptId) -> ApiResult<()> {
    match open_call(daemon, board, worker, attempt) {
        Some(OpenCall { expires_in: Some(_), .. }) => Ok(()),
        _ => Err(lease_over(IdempotencyKey::for_attempt(attempt.0, attempt.1).as_str())),
    }
}

fn open_call(daemon: &Daemon, board: &BoardId, worker: &WorkerName, attempt: AttemptId) -> Option<OpenCall> {
    let mut calls = daemon.leases.open_calls(board).into_iter();
    calls.find(|OpenCall { call, .. }| call.worker == *worker && (call.invocation, call.attempt) == attempt)
}

/// Opens a board, and checks that the worker is remote.
pub(crate) async fn remote(daemon: &Arc<Daemon>, board: &BoardId, worker: &WorkerName) -> ApiResult<BoardHandle> {
    let handle = daemon.open(board).await?;
    match handle.status().blueprint.workers.get(worker) {
        Some(seat) if seat.agent == AgentKind::Remote => Ok(handle),
        Some(seat) => {
            let detail = format!("{worker} is a {} worker; only calls of remote ones are leased", seat.agent);
            Err(Problem::from_code(Code::NotRemote, detail))
        }
        None => Err(no_such_worker(worker)),
    }
}

fn lease_over(lease: &str) -> Problem {
    Problem::from_code(Code::LeaseOver, format!("the lease {lease} is over, or never was"))
        .help("ask for another one; an answer may still be sent, and is recorded")
}

pub(crate) fn seconds(given: Option<u64>) -> ApiResult<Duration> {
    let seconds = given.unwrap_or(SECONDS);
    if LEASE_SECONDS.contains(&seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    let (least, most) = LEASE_SECONDS.into_inner();
    Err(Problem::from_code(Code::BadBody, format!("a lease lasts {least} to {most} seconds")))
}

/// Parses the name of a lease, the token of its attempt.
pub(crate) fn attempt_of(lease: &str) -> ApiResult<AttemptId> {
    let parts = lease.split_once(':').and_then(|(invocation, attempt)| {
        let (invocation, attempt) = (InvocationId(invocation.parse().ok()?), attempt.parse().ok()?);
        (IdempotencyKey::for_attempt(invocation, attempt).as_str() == lease).then_some((invocation, attempt))
    });
    parts.ok_or_else(|| Problem::from_code(Code::BadPath, "a lease is named INVOCATION:ATTEMPT"))
}
