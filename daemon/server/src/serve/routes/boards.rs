//! Boards: creation, listing, and lifecycle commands.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use patchboard_kernel::id::BoardId;
use patchboard_kernel::money::Money;
use patchboard_kernel::record::{End, Ended, PauseCause};
use patchboard_llm::gate::BoardOutage;
use patchboard_runtime::clock::{Clock as _, SystemClock};
use patchboard_runtime::handle::RequestEffect;
use patchboard_runtime::status::{BoardStatus, WorkerWait};
use patchboard_storage::journal::BoardSummary;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::blueprints::BlueprintInput;
use crate::describe::UnshownInfo;
use crate::outages::awaited_model;
use crate::queries::parts::HeadInfo;
use crate::queries::retry::RetryRequest;
use crate::serve::access::Permission;
use crate::serve::caller::Caller;
use crate::serve::http::{IdempotencyHeader, OnBoard, StrictJson, StrictQuery, page_size, request_body};
use crate::serve::idempotency_status::IdempotencyStatus;
use crate::serve::json::Json;
use crate::serve::problem::{ApiResult, Code, Problem};
use crate::serve::service::Daemon;

/// Summary of a board.
#[derive(Serialize, ToSchema)]
pub(crate) struct BoardInfo {
    /// Board id.
    board: String,
    /// Name of the blueprint.
    name: String,
    /// `running`, `paused`, `waiting` for a person, `interrupted`, `damaged`, or the end: `done`, `quiescent`,
    /// `stopped`, `failed`, `cancelled`.
    status: &'static str,
    /// Cause of the end, or of a pause by the kernel: `provider_unavailable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    /// Number of commits.
    version: u64,
    /// Last record.
    head: HeadInfo,
    /// Number of ownership changes.
    epoch: u64,
    /// Time of creation, in milliseconds since 1970.
    created_at: i64,
    /// Time of the last record.
    updated_at: i64,
    /// Parent board, if the board is nested.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    /// Current activity, if the board is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<LiveInfo>,
    /// Places omitted from views for lack of budget, for the first such call of each worker. In lists, only for running
    /// boards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unshown: Vec<UnshownInfo>,
}

/// Current activity of a board.
#[derive(Serialize, ToSchema)]
pub(crate) struct LiveInfo {
    /// Invocations under way, those that wait for people included.
    open: usize,
    /// Queued invocations.
    queued: usize,
    /// Open questions to people.
    questions: usize,
    /// Tokens spent and reserved.
    tokens: u64,
    /// Money spent and reserved, in the currency of the prices.
    #[schema(value_type = f64)]
    money: Money,
    /// First wait for an unavailable provider, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<ProviderInfo>,
}

/// Wait for a provider that accepts no requests.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProviderInfo {
    /// Reason: a code of docs/codes.md, like `rate_limited`.
    reason: &'static str,
    /// Operator's name of the preferred model; absent if a nested board waits, or no request was sent yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// Earliest time of the next request to the provider, in milliseconds since 1970.
    not_before: i64,
    /// Time at which the board is paused if the provider is still unavailable, in milliseconds since 1970. Absent if
    /// the board has sent no request since the outage began.
    #[serde(skip_serializing_if = "Option::is_none")]
    patience: Option<i64>,
    /// Number of waiting invocations.
    waiting: usize,
}

impl ProviderInfo {
    fn first_wait(daemon: &Daemon, snapshot: &BoardStatus) -> Option<Self> {
        let waits = &snapshot.provider_waits;
        let held = daemon.held(&snapshot.board);
        // The gate retries for all boards together, so its next try can be later than the board's own.
        let next_try = held.as_ref().map(|held| {
            let next_try = held.outage.next_try.unwrap_or_default().as_millis();
            SystemClock.now().plus_ms(u64::try_from(next_try).unwrap_or(u64::MAX))
        });
        if let Some(WorkerWait { worker, wait: first }) = waits.iter().min_by_key(|of| of.wait.not_before) {
            return Some(Self {
                reason: first.reason.as_str(),
                model: awaited_model(&snapshot.blueprint, worker),
                not_before: next_try.map_or(first.not_before, |next_try| first.not_before.max(next_try)).0,
                patience: Some(first.patience.0),
                waiting: waits.len(),
            });
        }
        // Calls held by the gate were never sent, so the journal does not have them.
        let BoardOutage { outage, calls, .. } = held?;
        Some(Self {
            reason: outage.reason.as_str(),
            model: None,
            not_before: next_try.unwrap_or_default().0,
            patience: None,
            waiting: calls,
        })
    }
}

impl BoardInfo {
    pub(crate) async fn from_summary(daemon: &Daemon, summary: &BoardSummary) -> Self {
        let snapshot = daemon.running(&summary.id).map(|board| board.status());
        let mut info = Self {
            board: summary.id.to_string(),
            name: summary.name.clone(),
            status: summary.ended.map_or("running", End::as_str),
            cause: None,
            version: summary.version.0,
            head: HeadInfo::new(summary.head.seq, summary.head.hash),
            epoch: summary.epoch,
            created_at: summary.created_at.0,
            updated_at: summary.updated_at.0,
            parent: summary.parent.as_ref().map(ToString::to_string),
            live: None,
            unshown: Vec::new(),
        };
        if daemon.is_damaged(&summary.id).await {
            info.status = "damaged";
        } else if let Some(snapshot) = &snapshot {
            info.live(daemon, snapshot);
        } else if summary.ended.is_none() {
            // A nested board is opened by the call of its parent, which may be paused.
            let outer = summary.parent.as_ref().and_then(|outer| Some(daemon.running(outer)?.status()));
            let paused = outer.filter(|outer| outer.paused);
            info.status = if paused.is_some() { "paused" } else { "interrupted" };
            info.cause = paused.and_then(|outer| outer.pause_cause).map(|cause| cause.to_string());
        }
        info
    }

    /// Overwrites the listed values by those of the newer snapshot.
    fn live(&mut self, daemon: &Daemon, snapshot: &BoardStatus) {
        self.status = status(snapshot);
        let paused = snapshot.pause_cause.map(|cause: PauseCause| cause.to_string());
        self.cause = snapshot.ended.map(|ended| ended.cause.to_string()).or(paused);
        self.version = snapshot.version.0;
        self.head = HeadInfo::new(snapshot.head.seq, snapshot.head.hash);
        self.epoch = snapshot.epoch;
        self.live = Some(LiveInfo {
            open: snapshot.open,
            queued: snapshot.queued,
            questions: snapshot.pending.len(),
            tokens: snapshot.account.committed(),
            money: Money(snapshot.account.committed_money()),
            provider: ProviderInfo::first_wait(daemon, snapshot),
        });
        self.unshown = UnshownInfo::of(&snapshot.shortages);
    }
}

pub(super) const fn status(snapshot: &BoardStatus) -> &'static str {
    match snapshot.ended {
        Some(Ended { end, .. }) => end.as_str(),
        None if snapshot.paused => "paused",
        None if snapshot.waits_for_persons => "waiting",
        None => "running",
    }
}

/// Selection of boards.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listing {
    /// Only boards with this status.
    status: Option<String>,
    /// Only boards after this id.
    after: Option<String>,
    /// Maximum boards, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Page of boards.
#[derive(Serialize, ToSchema)]
pub(crate) struct BoardPage {
    /// Boards, the oldest first.
    boards: Vec<BoardInfo>,
    /// Value of `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List the boards that the caller may see, the oldest first
#[utoipa::path(get, operation_id = "listBoards", path = "/v1/boards", tag = "boards", params(Listing),
    responses((status = 200, description = "A page of boards", body = BoardPage)))]
pub(crate) async fn list(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    StrictQuery(listing): StrictQuery<Listing>,
) -> ApiResult<Json<BoardPage>> {
    caller.require(&Permission::Authenticated)?;
    let limit = page_size(listing.limit)?;
    let boards = daemon.boards().await?;
    let seen: Vec<&BoardSummary> =
        boards.iter().filter(|board| caller.scope.allows(&Permission::View(board.id.clone()))).collect();
    // An id that the caller may not see is treated like an unknown one.
    let from = listing.after.and_then(|after| seen.iter().position(|board| board.id.as_str() == after));
    let seen = seen.into_iter().skip(from.map_or(0, |position| position + 1));
    let mut page: Vec<BoardInfo> = Vec::new();
    for board in seen {
        let info = BoardInfo::from_summary(&daemon, board).await;
        if listing.status.as_ref().is_none_or(|status| info.status == status) {
            page.push(info);
        }
        if page.len() > limit {
            break;
        }
    }
    let has_more = page.len() > limit;
    page.truncate(limit);
    let next = page.last().filter(|_| has_more).map(|last| last.board.clone());
    Ok(Json(BoardPage { boards: page, next }))
}

/// Input of a new board.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateBoardRequest {
    /// Blueprint.
    #[serde(flatten)]
    written: BlueprintInput,
    /// User's request; stored at `/request` of the document.
    #[serde(default)]
    request: Value,
    /// Random seed for model selection; overrides the blueprint's seed.
    seed: Option<u64>,
}

request_body!(CreateBoardRequest: Administer, large);

/// Create a board from a blueprint and a request, and run it
#[utoipa::path(post, operation_id = "createBoard", path = "/v1/boards", tag = "boards", request_body = CreateBoardRequest,
    params(("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$", description = "With it a repetition finds the board that the first request made")),
    responses((status = 201, description = "The board", body = BoardInfo), (status = 200, description = "The board", body = BoardInfo, description = "The board that an earlier request with this key made")))]
pub(crate) async fn create(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    key: IdempotencyHeader,
    StrictJson(founding): StrictJson<CreateBoardRequest>,
) -> ApiResult<impl IntoResponse> {
    let mut blueprint = founding.written.read_valid()?;
    if let Some(seed) = founding.seed {
        blueprint.draw_by(seed);
    }
    let (board, is_new) = daemon.create(blueprint, founding.request, key.board_ids(), caller.principal()).await?;
    let info = BoardInfo::from_summary(&daemon, &daemon.summary(&board).await?).await;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let location = [(LOCATION, format!("/v1/boards/{board}"))];
    Ok((status, location, replayed(!is_new), Json(info)))
}

/// Returns the headers that mark a replayed response.
pub(crate) fn replayed(repetition: impl Into<IdempotencyStatus>) -> HeaderMap {
    repetition.into().headers()
}

/// Show a board
#[utoipa::path(get, operation_id = "getBoard", path = "/v1/boards/{board}", tag = "boards", params(("board" = String, Path)),
    responses((status = 200, description = "The board", body = BoardInfo)))]
pub(crate) async fn show(OnBoard { daemon, caller, board }: OnBoard) -> ApiResult<Json<BoardInfo>> {
    caller.require(&Permission::View(board.clone()))?;
    let mut info = BoardInfo::from_summary(&daemon, &daemon.summary(&board).await?).await;
    if info.live.is_none() {
        let unshown = daemon.query_board(&board, None, |board| Ok(UnshownInfo::of(board.shortages()))).await;
        // Ignores an unreadable journal here; the journal routes report it.
        info.unshown = unshown.unwrap_or_default();
    }
    Ok(Json(info))
}

/// Pause dispatch; calls under way may still reply
#[utoipa::path(post, operation_id = "pauseBoard", path = "/v1/boards/{board}/pause", tag = "boards",
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "The board", body = BoardInfo)))]
pub(crate) async fn pause(
    OnBoard { daemon, caller, board }: OnBoard,
    key: IdempotencyHeader,
) -> ApiResult<impl IntoResponse> {
    caller.require(&Permission::Operate(board.clone()))?;
    let heard = daemon.open_for(&board, &caller).await?.pause(key.token()).await?;
    control_response(&daemon, &board, heard).await
}

/// Resume dispatch
#[utoipa::path(post, operation_id = "resumeBoard", path = "/v1/boards/{board}/resume", tag = "boards",
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "The board", body = BoardInfo)))]
pub(crate) async fn resume(
    OnBoard { daemon, caller, board }: OnBoard,
    key: IdempotencyHeader,
) -> ApiResult<impl IntoResponse> {
    caller.require(&Permission::Operate(board.clone()))?;
    let heard = daemon.open_for(&board, &caller).await?.resume(key.token()).await?;
    daemon.registry.current().probe_unavailable();
    control_response(&daemon, &board, heard).await
}

request_body!(RetryRequest: Operate);

/// Retry the work that a board gave up
///
/// Queues exhausted invocations again with their triggers, and grants stopped branches one attempt. 409 with
/// `nothing_given_up`, `limit_reached`, `bad_limit`, or `board_over` for a board that is done or cancelled.
#[utoipa::path(post, operation_id = "retryBoard", path = "/v1/boards/{board}/retry", tag = "boards", request_body = RetryRequest,
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "The board", body = BoardInfo)))]
pub(crate) async fn retry(
    OnBoard { daemon, caller, board }: OnBoard,
    key: IdempotencyHeader,
    StrictJson(request): StrictJson<RetryRequest>,
) -> ApiResult<impl IntoResponse> {
    if request.worker.is_some() && request.invocation.is_some() {
        return Err(Problem::from_code(Code::BadBody, "the body names a worker and an invocation: name one of them"));
    }
    let heard = daemon.retry(&board, &caller, request.retried(key.token())).await?;
    control_response(&daemon, &board, heard).await
}

/// End a board permanently
#[utoipa::path(post, operation_id = "cancelBoard", path = "/v1/boards/{board}/cancel", tag = "boards",
    params(("board" = String, Path), ("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 200, description = "The board", body = BoardInfo)))]
pub(crate) async fn cancel(
    OnBoard { daemon, caller, board }: OnBoard,
    // Idempotent without a key, as a board ends once.
    _: IdempotencyHeader,
) -> ApiResult<impl IntoResponse> {
    caller.require(&Permission::Operate(board.clone()))?;
    let heard = daemon.open_for(&board, &caller).await?.cancel().await?;
    control_response(&daemon, &board, heard).await
}

async fn control_response(
    daemon: &Daemon,
    board: &BoardId,
    heard: RequestEffect,
) -> ApiResult<impl IntoResponse + use<>> {
    Ok((
        replayed(heard == RequestEffect::AlreadyApplied),
        Json(BoardInfo::from_summary(daemon, &daemon.summary(board).await?).await),
    ))
}
