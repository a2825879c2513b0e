//! AG-UI 1.0 endpoint of a board: a run streams the events from the client's document to the board's rest.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::{Stream, stream};
use patchboard_kernel::id::{BoardId, Seq, Timestamp};
use patchboard_kernel::record::{Answer, Body as Said, Ended, Kind};
use patchboard_kernel::state::State as Document;
use patchboard_storage::blocking::wait;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::history::{HEARTBEAT, RecordFollower, last_event};
use super::people;
use crate::reader::storage;
use crate::serve::access::Permission;
use crate::serve::agui::{Event, EventEncoder, RestReason, RunIds, parse_interrupt_id, resume_point};
use crate::serve::caller::Caller;
use crate::serve::http::{OnBoard, StrictJson, request_body};
use crate::serve::limits::CallerShare;
use crate::serve::problem::{ApiResult, Code, Problem};
use crate::serve::service::Daemon;

/// Maximum number of missed records that are replayed to a reader; beyond it, the current document is sent.
const BEHIND_MAX: u64 = 1000;

/// Run request of an AG-UI client (`RunAgentInput`); other members are ignored.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunInput {
    /// Client's name for the conversation.
    thread_id: String,
    /// Client's name for the run.
    run_id: String,
    /// Document that the client holds.
    state: Option<Value>,
    /// Answers to the questions that ended the previous run.
    #[serde(default)]
    resume: Vec<ResumeEntry>,
}

request_body!(RunInput: View, large);

/// Answer to a question.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResumeEntry {
    /// Interrupt's `id`.
    interrupt_id: String,
    /// `cancelled` counts as a rejection.
    status: ResumeStatus,
    /// Answer, if `resolved`.
    payload: Option<Value>,
}

/// Status of a question.
#[derive(Deserialize, ToSchema, PartialEq, Eq, Clone, Copy)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ResumeStatus {
    /// Answered.
    Resolved,
    /// Declined by the person.
    Cancelled,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    agrees: bool,
    reason: Option<String>,
    text: Option<String>,
}

/// Follow a board as an AG-UI 1.0 run
///
/// Begins with the full document, or after the event of `Last-Event-ID`. Ends when the board has ended, or waits only
/// for people.
#[utoipa::path(get, operation_id = "followRun", path = "/v1/boards/{board}/agui", tag = "history",
    params(("board" = String, Path), ("Last-Event-ID" = Option<u64>, Header)),
    responses((status = 200, description = "Events of the run", body = String, content_type = "text/event-stream")))]
pub(crate) async fn follow(
    OnBoard { daemon, caller, board }: OnBoard,
    headers: HeaderMap,
) -> ApiResult<Sse<impl Stream<Item = Result<sse::Event, Infallible>> + use<>>> {
    caller.require(&Permission::View(board.clone()))?;
    let last = last_event(&headers)?;
    let place = daemon.limits.stream(caller.rate_key)?;
    let begun = begin(&daemon, &board, last, None).await?;
    let run = RunIds { thread: board.to_string(), run: format!("{board}.{}", begun.after) };
    Ok(stream_of(daemon, board, run, begun, place))
}

/// Run a board as an AG-UI 1.0 agent
///
/// Begins from the `state` that the client sends, if that is the document of a recent version, or after
/// `Last-Event-ID`, or with the full document. Entries of `resume` answer questions to people; the token must allow it.
/// Ends when the board has ended, or waits only for people.
#[utoipa::path(post, operation_id = "startRun", path = "/v1/boards/{board}/agui", tag = "history", request_body = RunInput,
    params(("board" = String, Path), ("Last-Event-ID" = Option<u64>, Header)),
    responses((status = 200, description = "Events of the run", body = String, content_type = "text/event-stream")))]
pub(crate) async fn run(
    OnBoard { daemon, caller, board }: OnBoard,
    headers: HeaderMap,
    StrictJson(input): StrictJson<RunInput>,
) -> ApiResult<Sse<impl Stream<Item = Result<sse::Event, Infallible>> + use<>>> {
    let last = last_event(&headers)?;
    daemon.summary(&board).await?;
    let place = daemon.limits.stream(caller.rate_key)?;
    for entry in input.resume {
        answer(&daemon, &caller, &board, entry).await?;
    }
    let begun = begin(&daemon, &board, last, input.state.as_ref()).await?;
    let run = RunIds { thread: input.thread_id, run: input.run_id };
    Ok(stream_of(daemon, board, run, begun, place))
}

/// Answers a question like [`people::answer`], as the person addressed by it.
async fn answer(daemon: &Arc<Daemon>, caller: &Caller, board: &BoardId, entry: ResumeEntry) -> ApiResult<()> {
    let wrong = |detail: &str| Problem::from_code(Code::BadBody, format!("resume: {detail}"));
    let (of, digest) = parse_interrupt_id(&entry.interrupt_id).ok_or_else(|| wrong("there is no such interrupt"))?;
    let payload = match (entry.status, entry.payload) {
        (ResumeStatus::Cancelled, _) => Payload { agrees: false, reason: None, text: None },
        (ResumeStatus::Resolved, payload) => serde_json::from_value(payload.unwrap_or_default())
            .map_err(|error| wrong(&format!("the payload does not match the interrupt: {error}")))?,
    };
    let by = people::addressed_person(daemon, caller, board, of).await?;
    let answer = Answer { of, by, digest, agrees: payload.agrees, reason: payload.reason, text: payload.text };
    people::submit_answer(daemon, caller, board, answer).await.map(drop)
}

struct StreamStart {
    /// Document that the reader already holds.
    has: Option<Document>,
    /// Document to send first, and its time.
    given: Option<(Document, Timestamp)>,
    /// Record after which the stream begins.
    after: Seq,
    ended: Option<Ended>,
}

async fn begin(
    daemon: &Arc<Daemon>,
    board: &BoardId,
    last: Option<Seq>,
    has: Option<&Value>,
) -> ApiResult<StreamStart> {
    let now = CurrentBoard::read(daemon, board).await?;
    let digest = has.map(|has| now.document.digest_of(has));
    if last.is_some() || digest.is_some() {
        let (id, head) = (board.clone(), now.head);
        let before = head.0.checked_sub(BEHIND_MAX).map(Seq);
        let mut recent = daemon
            .query(move |reader| {
                let most = usize::try_from(BEHIND_MAX).unwrap_or(usize::MAX).saturating_add(1);
                wait(reader.journal.records(&id, before, most)).map_err(storage)
            })
            .await?;
        recent.retain(|record| record.seq <= head);
        if let Some((version, after)) = resume_point(&recent, now.document.version(), last, digest) {
            let document = match now.document.version() == version {
                true => now.document.clone(),
                false => daemon.query_board(board, Some(version.0), |board| Ok(board.state().clone())).await?,
            };
            if digest.is_none_or(|digest| digest == document.digest()) {
                return Ok(StreamStart { has: Some(document), given: None, after, ended: now.ended });
            }
        }
    }
    Ok(StreamStart { has: None, given: Some((now.document, now.at)), after: now.head, ended: now.ended })
}

struct CurrentBoard {
    document: Document,
    head: Seq,
    at: Timestamp,
    ended: Option<Ended>,
}

impl CurrentBoard {
    async fn read(daemon: &Arc<Daemon>, board: &BoardId) -> ApiResult<Self> {
        if let Some(live) = daemon.running(board).map(|board| board.status()) {
            return Ok(Self { document: live.state.clone(), head: live.head.seq, at: live.at, ended: live.ended });
        }
        let summary = daemon.summary(board).await?;
        let at = summary.updated_at;
        let asked = daemon.query_board(board, None, move |board| {
            Ok(Self { document: board.state().clone(), head: board.head().0, at, ended: board.ended() })
        });
        asked.await
    }
}

struct EventStream {
    daemon: Arc<Daemon>,
    board: BoardId,
    follow: RecordFollower,
    reader: EventEncoder,
    last: Seq,
    ready: VecDeque<Event>,
    /// Most recent end of the board.
    ended: Option<Ended>,
    _place: CallerShare,
}

fn stream_of(
    daemon: Arc<Daemon>,
    board: BoardId,
    run: RunIds,
    begun: StreamStart,
    place: CallerShare,
) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>> + use<>> {
    let follow = RecordFollower::new(Arc::clone(&daemon), board.clone(), Some(begun.after));
    let mut reader = EventEncoder::new(run, begun.has);
    let mut ready = VecDeque::from([reader.run_started()]);
    ready.extend(begun.given.into_iter().flat_map(|(document, at)| reader.send_document(&document, begun.after, at)));
    let telling =
        EventStream { daemon, board, follow, reader, last: begun.after, ready, ended: begun.ended, _place: place };
    let events = stream::unfold(Some(telling), |telling| async move {
        let mut telling = telling?;
        let event = telling.next().await;
        let sent = Ok(sent(&event));
        Some((sent, (!event.is_last()).then_some(telling)))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT))
}

fn sent(event: &Event) -> sse::Event {
    let data = serde_json::to_string(event).expect("an event has string keys and finite numbers");
    let sent = sse::Event::default().data(data);
    event.id.map(|seq| sent.clone().id(seq.to_string())).unwrap_or(sent)
}

impl EventStream {
    /// Returns the next event; the last one satisfies [`Event::is_last`].
    async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event;
            }
            self.rest().await;
            if !self.ready.is_empty() {
                continue;
            }
            let encoded = match self.follow.next().await {
                Some(Ok(record)) => {
                    self.last = record.seq;
                    if record.kind == Kind::Ended {
                        self.ended = record.body().ok().and_then(|body| match body {
                            Said::Ended(ended) => Some(*ended),
                            _ => None,
                        });
                    }
                    self.reader.encode_record(&record)
                }
                Some(Err(error)) => {
                    self.end_with_error(&Problem::from(error));
                    continue;
                }
                None => {
                    self.rest().await;
                    if self.ready.is_empty() {
                        let detail = "the stream was interrupted: run the board again to continue";
                        self.ready.extend(self.reader.fail("interrupted", detail.to_owned()));
                    }
                    continue;
                }
            };
            self.ready.extend(encoded.events);
            if encoded.needs_document
                && let Err(problem) = self.catch_up().await
            {
                self.end_with_error(&problem);
            }
            if let Some(live) = self.daemon.running(&self.board) {
                self.reader.share_document(&live.status().state);
            }
        }
    }

    fn end_with_error(&mut self, problem: &Problem) {
        self.ready.extend(self.reader.fail(problem.code, problem.detail.clone()));
    }

    /// Sends the current document, and continues from its record.
    async fn catch_up(&mut self) -> ApiResult<()> {
        let now = CurrentBoard::read(&self.daemon, &self.board).await?;
        self.ready.extend(self.reader.send_document(&now.document, now.head, now.at));
        (self.last, self.ended) = (now.head, now.ended);
        self.follow = RecordFollower::new(Arc::clone(&self.daemon), self.board.clone(), Some(now.head));
        Ok(())
    }

    /// Ends the run if the board is at rest and all its records are encoded.
    async fn rest(&mut self) {
        let Some(live) = self.daemon.running(&self.board).map(|board| board.status()) else {
            // Not open: the board has ended, or is about to resume.
            if let Ok(summary) = self.daemon.summary(&self.board).await
                && summary.ended.is_some()
                && summary.head.seq <= self.last
                && let Some(ended) = self.ended
            {
                self.ready.extend(self.reader.finish_at_rest(RestReason::Ended(ended), summary.updated_at));
            }
            return;
        };
        let rest = match live.ended {
            _ if live.head.seq > self.last => return,
            Some(ended) => RestReason::Ended(ended),
            None if live.waits_for_persons => RestReason::AwaitsAnswers(&live.pending),
            None => return,
        };
        self.ready.extend(self.reader.finish_at_rest(rest, live.at));
    }
}
