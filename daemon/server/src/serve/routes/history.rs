//! Reads of a board: its document, views, journal, and explanations.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use futures_util::stream;
use patchboard_kernel::board::Board;
use patchboard_kernel::id::{BoardId, IdempotencyKey, Seq, WorkerName};
use patchboard_kernel::plan::WorkerPlan;
use patchboard_kernel::record::{self, Kind, Record, RecordError};
use patchboard_kernel::view::OutcomeReason;
use patchboard_protocols::PLANS;
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::recovery;
use patchboard_runtime::subscription::Subscription;
use patchboard_storage::journal::JournalError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::{IntoParams, ToSchema};

use crate::failure::{Exit, Failure};
use crate::queries::cost::CostReport;
use crate::queries::rejections::RejectionReport;
use crate::queries::state::StateResponse;
use crate::queries::view::{self as views, ViewResponse};
use crate::queries::why::{ProvenanceReport, explain};
use crate::reader::storage;
use crate::serve::access::{Permission, Scope};
use crate::serve::http::{OnBoard, OnPart, StrictQuery, bind_key, page_size};
use crate::serve::json::{Json, SortedJson};
use crate::serve::limits::CallerShare;
use crate::serve::problem::{ApiResult, Code, Problem};
use crate::serve::service::Daemon;

/// Records per read.
const READ_AT_ONCE: usize = 100;

/// Maximum bytes of a page's records, the last one excluded.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// Maximum records scanned for one page, if most are filtered out.
const SCANNED_RECORDS_MAX: usize = 20_000;

/// Interval of keep-alive messages on an idle stream.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// Version of a document.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AtVersion {
    /// Version: 0 is the initial state, each commit makes the next; default: the newest.
    at: Option<u64>,
}

/// Show the document of a board, current or at a version
///
/// The `ETag` is the digest of the state.
#[utoipa::path(get, operation_id = "getState", path = "/v1/boards/{board}/state", tag = "history", params(("board" = String, Path), AtVersion),
    responses((status = 200, description = "The document and its version", body = StateResponse), (status = 304, description = "The document has the version of `If-None-Match`")))]
pub(crate) async fn state(
    OnBoard { daemon, caller, board }: OnBoard,
    StrictQuery(AtVersion { at }): StrictQuery<AtVersion>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    caller.require(&Permission::View(board.clone()))?;
    let live = daemon.running(&board).map(|board| board.status());
    let (version, state, is_exact) = match live.filter(|live| at.is_none_or(|at| at == live.version.0)) {
        Some(live) => (live.version, live.state.clone(), live.is_exact),
        None => {
            let snapshot = |board: &Board| Ok((board.version(), board.state().clone(), board.is_exact()));
            daemon.query_board(&board, at, snapshot).await?
        }
    };
    let tag = format!("\"{}\"", state.digest());
    let known = headers.get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok()).unwrap_or_default();
    if known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag || known.trim() == "*") {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, tag)]).into_response());
    }
    Ok(([(ETAG, tag)], SortedJson(StateResponse::new(&board, version, &state, is_exact))).into_response())
}

/// Selection of a view.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ViewQuery {
    /// Version; default: the newest.
    at: Option<u64>,
    /// Places to expand, as if the worker had requested them: JSON Pointers separated by commas, or a JSON array of
    /// pointers and of `{"at": place, "from": name, index or number of characters}`.
    expand: Option<String>,
    /// Names to bind in the worker's paths: `NAME=TOKEN`, separated by commas. A path with an unbound name covers
    /// nothing.
    #[param(pattern = r"^[^=,]+=[^,]*(,[^=,]+=[^,]*)*$")]
    bind: Option<String>,
}

/// Preview the view of a worker, and the read set of a proposal based on it
///
/// For a token of this worker alone, `items` omits places that the worker may not read. An older version then shows
/// nothing that a condition hides from the worker now.
#[utoipa::path(get, operation_id = "previewView", path = "/v1/boards/{board}/views/{worker}", tag = "history",
    params(("board" = String, Path), ("worker" = String, Path), ViewQuery),
    responses((status = 200, description = "The view and its read set", body = ViewResponse)))]
pub(crate) async fn view(
    OnPart { daemon, caller, board: id, part: worker }: OnPart<String>,
    StrictQuery(viewed): StrictQuery<ViewQuery>,
) -> ApiResult<SortedJson<ViewResponse>> {
    let name = WorkerName::from(worker.as_str());
    caller.require(&Permission::ViewAs(id.clone(), name.clone()))?;
    let expand = viewed.expand.as_deref().map_or(Ok(Vec::new()), parse_expansions)?;
    let bind = viewed.bind.iter().flat_map(|names| names.split(',')).map(|text| {
        views::binding(text).map_err(|_| Problem::from_code(Code::BadQuery, "bind is NAME=TOKEN, separated by commas"))
    });
    let bind = bind.collect::<ApiResult<Vec<_>>>()?;
    let is_seat = matches!(caller.scope, Scope::Seat(..));
    let now = match (&caller.scope, viewed.at) {
        (Scope::Seat(..), Some(_)) => {
            let bind = bind.clone();
            let places = move |board: &Board| {
                let seat = seat_for(board, name.as_str(), &bind, true)?;
                Ok(board.readable_by(&seat).places().to_vec())
            };
            Some(daemon.query_board(&id, None, places).await?)
        }
        _ => None,
    };
    let response = daemon.query_board(&id, viewed.at, move |board| {
        // For an older version, the binding was checked on the newest.
        let seat = seat_for(board, &worker, &bind, is_seat && now.is_none())?;
        let mut view = views::preview(board, &seat, &expand, now.as_deref())?;
        if is_seat {
            view.items.retain(|item| item.why != OutcomeReason::NotReadable);
        }
        Ok(ViewResponse::new(board, &seat, &view))
    });
    Ok(SortedJson(response.await?))
}

fn parse_expansions(text: &str) -> ApiResult<Vec<Value>> {
    if text.starts_with('[') {
        let refuse =
            |_| Problem::from_code(Code::BadQuery, "expand is no JSON array, and no places separated by commas");
        serde_json::from_str(text).map_err(refuse)
    } else {
        Ok(text.split(',').map(Value::from).collect())
    }
}

/// Returns a worker with names bound. A caller with the worker's own token may only use bindings of calls under way.
fn seat_for(board: &Board, worker: &str, bind: &[(String, String)], is_seat: bool) -> Result<Arc<WorkerPlan>, Failure> {
    let seat = views::worker_with_bindings(board, worker, bind)?;
    if is_seat && !bind.is_empty() && !board.is_called(&seat) {
        let message = format!("no call of {worker} with these bindings is under way");
        return Err(Failure::invalid_input("bad_binding", message).help("look at a view while its call is leased"));
    }
    Ok(seat)
}

/// Selection of records.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paging {
    /// Only records after this number.
    after: Option<u64>,
    /// Maximum records, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Only records of these kinds, separated by commas.
    #[param(schema_with = kinds_schema)]
    kind: Option<String>,
    /// Only records of requests that the caller sent with this `Idempotency-Key`.
    #[param(pattern = r"^[!-~]{1,128}$")]
    key: Option<String>,
}

/// Page of records.
#[derive(Serialize, ToSchema)]
pub(crate) struct RecordPage {
    /// Records in journal order, each with all its values and its hash.
    #[schema(value_type = Vec<Object>)]
    records: Vec<Map<String, Value>>,
    /// Value of `after` for the next page; absent at the current end of the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// List the records of a board's journal, page by page
#[utoipa::path(get, operation_id = "listRecords", path = "/v1/boards/{board}/journal", tag = "history", params(("board" = String, Path), Paging),
    responses((status = 200, description = "A page of records", body = RecordPage)))]
pub(crate) async fn journal(
    OnBoard { daemon, caller, board }: OnBoard,
    StrictQuery(paging): StrictQuery<Paging>,
) -> ApiResult<Json<RecordPage>> {
    caller.require(&Permission::View(board.clone()))?;
    daemon.summary(&board).await?;
    let kinds = kinds(paging.kind.as_deref())?;
    let key = paging.key.map(|key| bind_key(&daemon, &caller, &key)).transpose()?.map(|key| key.idempotency_key());
    let limit = page_size(paging.limit)?;
    if paging.after.is_some_and(|after| i64::try_from(after).is_err()) {
        return Err(Problem::from_code(Code::BadQuery, "no record has a number as large as after"));
    }
    // A running board was built from all its records, so none is missing.
    let is_running = daemon.running(&board).is_some();
    let page = daemon.query(move |reader| {
        let (mut after, mut page, mut looked_at, mut bytes) = (paging.after.map(Seq), Vec::new(), 0, 0);
        let mut reading = reader.reading(&board, after)?;
        loop {
            let records = reading.next(READ_AT_ONCE).map_err(storage)?;
            if records.is_empty() {
                let whole = if is_running { Ok(Exit::Done) } else { reader.exit_after_listing(&board) };
                let next = match whole {
                    Ok(_) => None,
                    // This page has the existing records; the next one reports that others are missing.
                    Err(_) if !page.is_empty() => after.map(|seq| seq.0),
                    Err(failure) => return Err(failure),
                };
                return Ok(RecordPage { records: page, next });
            }
            for record in records {
                after = Some(record.seq);
                looked_at += 1;
                if kinds.is_empty() || kinds.contains(&record.kind) {
                    let json = record_json(&record)?;
                    if key.as_ref().is_none_or(|key| has_token(&json, key)) {
                        bytes += record.header.len() + record.payload.len();
                        page.push(json);
                    }
                }
                if page.len() == limit || bytes >= PAGE_BYTES_MAX || looked_at == SCANNED_RECORDS_MAX {
                    return Ok(RecordPage { records: page, next: after.map(|seq| seq.0) });
                }
            }
        }
    });
    Ok(Json(page.await?))
}

/// Describes names of kinds, separated by commas.
fn kinds_schema() -> Object {
    let kinds = Kind::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join("|");
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(format!("^({kinds})(,({kinds}))*$"))).build()
}

fn kinds(names: Option<&str>) -> ApiResult<Vec<Kind>> {
    let names = names.into_iter().flat_map(|names| names.split(','));
    names
        .map(|name| {
            let kind = Kind::from_name(name);
            kind.ok_or_else(|| Problem::from_code(Code::BadQuery, "there is no such kind of record"))
        })
        .collect()
}

/// Returns true if the record belongs to the request with this token.
fn has_token(record: &Map<String, Value>, token: &IdempotencyKey) -> bool {
    let of = record.get("by").and_then(|by| by.get("token")).or_else(|| record.get("token"));
    of.and_then(Value::as_str) == Some(token.as_str())
}

/// Returns a record with its values and hash.
pub(crate) fn record_json(record: &Record) -> Result<Map<String, Value>, Failure> {
    record::merge_fields(record).map_err(|error| bad_record(record, &error))
}

fn bad_record(record: &Record, error: &RecordError) -> Failure {
    Failure::failed("bad_record", format!("record {}: {error}", record.seq)).detail("seq", record.seq.0.into())
}

/// Stream the records of a board as they become durable, as server-sent events
///
/// The event's `id` is the record's number, `event` the kind, `data` the record. The stream resumes after
/// `Last-Event-ID`, or begins with the first record. A slow reader delays no other client and misses no record. The
/// stream continues while the board is at rest. It ends when the board has ended for good, or the daemon stops.
#[utoipa::path(get, operation_id = "followRecords", path = "/v1/boards/{board}/events", tag = "history",
    params(("board" = String, Path), ("Last-Event-ID" = Option<u64>, Header)),
    responses((status = 200, description = "Records as server-sent events", body = String, content_type = "text/event-stream")))]
pub(crate) async fn events(
    OnBoard { daemon, caller, board }: OnBoard,
    headers: HeaderMap,
) -> ApiResult<Sse<impl Stream<Item = Result<Event, Infallible>> + use<>>> {
    caller.require(&Permission::View(board.clone()))?;
    let last = last_event(&headers)?;
    daemon.summary(&board).await?;
    let place = daemon.limits.stream(caller.rate_key)?;
    let follow = RecordFollower::new(daemon, board, last);
    Ok(Sse::new(follow.into_stream(place)).keep_alive(KeepAlive::new().interval(HEARTBEAT)))
}

/// Returns the record of the `Last-Event-ID`, if the request has one.
pub(crate) fn last_event(headers: &HeaderMap) -> ApiResult<Option<Seq>> {
    let Some(last) = headers.get("last-event-id") else { return Ok(None) };
    let last = last.to_str().ok().and_then(|last| last.parse().ok());
    last.map(|last| Some(Seq(last)))
        .ok_or_else(|| Problem::from_code(Code::BadEventId, "Last-Event-ID is the number of a record"))
}

/// Follows the records of a board, also while the board is at rest.
pub(crate) struct RecordFollower {
    daemon: Arc<Daemon>,
    board: BoardId,
    last: Option<Seq>,
    subscription: Subscription,
    /// `None` once the daemon stops.
    activations: Option<watch::Receiver<u64>>,
    /// True once the end of the journal was checked while the board was at rest.
    is_checked: bool,
}

impl RecordFollower {
    pub(crate) fn new(daemon: Arc<Daemon>, board: BoardId, last: Option<Seq>) -> Self {
        // Subscribed before the first check of the board, so that no opening is missed.
        let activations = daemon.activations();
        let subscription = daemon.watch(&board, last);
        Self { daemon, board, last, subscription, activations, is_checked: false }
    }

    /// Returns the next record; `None` once no more can follow, or the daemon stops.
    pub(crate) async fn next(&mut self) -> Option<Result<Arc<Record>, JournalError>> {
        loop {
            let running = self.daemon.running(&self.board);
            let activations = self.activations.as_mut()?;
            let next = tokio::select! {
                biased;
                next = self.subscription.next() => Some(next),
                () = until_closed(activations) => return None,
                // A board that has ended may stay open to answer retries of requests.
                () = until_over(running.as_ref()) => None,
            };
            let next = match next {
                Some(next) => next,
                None if self.last >= Some(running?.status().head.seq) => return None,
                // The last records arrived after the subscription was polled.
                None => self.subscription.next().await,
            };
            match next {
                Some(Ok(record)) => {
                    self.last = Some(record.seq);
                    return Some(Ok(record));
                }
                Some(Err(error)) => return Some(Err(error)),
                None => {}
            }
            if let Err(error) = self.check_end().await {
                return Some(Err(error));
            }
            // If the end cannot be read, the board counts as not over.
            if self.daemon.is_over(&self.board).await.unwrap_or(false) {
                return None;
            }
            // The board is at rest: checks again whenever any board is opened.
            self.activations.as_mut()?.changed().await.ok()?;
            self.subscription = self.daemon.watch(&self.board, self.last);
        }
    }

    /// Checks once that the journal of a board at rest does not end within a step.
    async fn check_end(&mut self) -> Result<(), JournalError> {
        if self.is_checked || self.daemon.running(&self.board).is_some() {
            return Ok(());
        }
        let board = self.board.clone();
        // A stopping daemon ends the stream anyway.
        let checked = self.daemon.query(move |reader| Ok(recovery::check_end(&*reader.journal, &board, &PLANS))).await;
        self.is_checked = true;
        checked.unwrap_or(Ok(()))
    }

    fn into_stream(self, place: CallerShare) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(Some((self, place)), |follow| async move {
            let (mut follow, place) = follow?;
            match follow.next().await? {
                Ok(record) => Some((Ok(event(&record)), Some((follow, place)))),
                Err(error) => {
                    let problem = Problem::from(error);
                    Some((Ok(Event::default().event("problem").data(problem.json().to_string())), None))
                }
            }
        })
    }
}

async fn until_over(running: Option<&BoardHandle>) {
    let ended = if let Some(board) = running { board.wait_for_final_end().await.is_ok() } else { false };
    if !ended {
        std::future::pending::<()>().await;
    }
}

async fn until_closed(activations: &mut watch::Receiver<u64>) {
    while activations.changed().await.is_ok() {}
}

fn event(record: &Record) -> Event {
    let event = Event::default().id(record.seq.to_string()).event(record.kind.as_str());
    match record.merged_text() {
        Ok(text) => event.data(text),
        Err(error) => event.data(Problem::from(bad_record(record, &error)).json().to_string()),
    }
}

/// Selection of a place.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlaceQuery {
    /// JSON Pointer; the empty string is the whole document.
    #[param(pattern = r"^(/([^/~]|~[01])*)*$")]
    pointer: String,
}

/// Explain a place of the document: its writer, trigger, view, and earlier rejections
#[utoipa::path(get, operation_id = "explainValue", path = "/v1/boards/{board}/why", tag = "history", params(("board" = String, Path), PlaceQuery),
    responses((status = 200, description = "The writer, trigger and view of the value", body = ProvenanceReport)))]
pub(crate) async fn why(
    OnBoard { daemon, caller, board }: OnBoard,
    StrictQuery(place): StrictQuery<PlaceQuery>,
) -> ApiResult<SortedJson<ProvenanceReport>> {
    caller.require(&Permission::View(board.clone()))?;
    let summary = daemon.summary(&board).await?;
    let report = daemon.query(move |reader| explain(reader, &summary, &place.pointer, |write| write.report()));
    Ok(SortedJson(report.await?))
}

/// Show the cost of a board by worker, retry and part of the prompt
#[utoipa::path(get, operation_id = "getCost", path = "/v1/boards/{board}/cost", tag = "history", params(("board" = String, Path)),
    responses((status = 200, description = "Tokens and money", body = CostReport)))]
pub(crate) async fn cost(OnBoard { daemon, caller, board }: OnBoard) -> ApiResult<SortedJson<CostReport>> {
    caller.require(&Permission::View(board.clone()))?;
    let summary = daemon.summary(&board).await?;
    Ok(SortedJson(daemon.query(move |reader| CostReport::read(reader, &summary)).await?))
}

/// Count the rejections on a board by worker, stage and code
#[utoipa::path(get, operation_id = "countRejections", path = "/v1/boards/{board}/rejections", tag = "history", params(("board" = String, Path)),
    responses((status = 200, description = "The counts", body = RejectionReport)))]
pub(crate) async fn rejections(OnBoard { daemon, caller, board }: OnBoard) -> ApiResult<SortedJson<RejectionReport>> {
    caller.require(&Permission::View(board.clone()))?;
    daemon.summary(&board).await?;
    let id = board.clone();
    let is_running = daemon.running(&board).is_some();
    let rejections = daemon.query(move |reader| {
        let rejections = RejectionReport::read(reader, &id)?;
        if !is_running {
            reader.exit_after_listing(&id)?;
        }
        Ok(rejections)
    });
    Ok(SortedJson(rejections.await?))
}

/// Answers under the earlier name of [`rejections`], with the earlier name of its member.
pub(crate) async fn denials(request: OnBoard) -> ApiResult<SortedJson<Value>> {
    let SortedJson(RejectionReport { board, rejections }) = self::rejections(request).await?;
    Ok(SortedJson(json!({"board": board, "denials": rejections})))
}
