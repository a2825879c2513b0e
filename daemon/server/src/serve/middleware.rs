//! Middleware: the steps around the handler of each request.
//!
//! Functions that take the next step, and not layers of the router, which cost an allocation each per request.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::Fuse;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use http_body::Body as _;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::access_log::log_request;
use super::connections::mark_busy;
use super::http::{BODY_BYTES_MAX, authenticate, limit_time};
use super::limits::Peer;
use super::origins::{OriginGuard, check_origin};
use super::problem::{Code, Problem};
use super::request_ids::identify;
use super::service::Daemon;
use super::unread_body::drain_unread;

/// State of the middleware.
#[derive(Clone)]
pub(crate) struct Requests {
    daemon: Arc<Daemon>,
    origins: OriginGuard,
    /// Threads of the boards.
    threads: Handle,
}

impl Requests {
    /// Creates the state on a thread of the boards.
    pub(crate) fn new(daemon: Arc<Daemon>, origins: OriginGuard) -> Self {
        Self { daemon, origins, threads: Handle::current() }
    }
}

/// Middleware of every request, the outermost step first. The log counts rejected requests, too.
pub(crate) async fn every_request(
    State(Requests { daemon, origins, .. }): State<Requests>,
    mut request: Request,
    next: Next,
) -> Response {
    DefaultBodyLimit::max(BODY_BYTES_MAX).apply(&mut request);
    let checked = |request| limit_time(daemon.limits.request_time(), check_origin(&origins, request, next));
    let caught = |request| catch_panic(checked(request));
    let identified = |request| identify(request, caught);
    let drained = |request| drain_unread(request, identified);
    mark_busy(request, |request| log_request(&daemon.metrics, request, drained)).await
}

/// Middleware: authenticates the caller and handles the request, on the threads of the boards.
pub(crate) async fn authenticated(
    State(Requests { daemon, threads, .. }): State<Requests>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    run_on(&threads, authenticate(daemon, peer, request, next)).await
}

/// Middleware: handles a request on the threads of the boards.
pub(crate) async fn on_board_threads(
    State(Requests { threads, .. }): State<Requests>,
    request: Request,
    next: Next,
) -> Response {
    run_on(&threads, next.run(request)).await
}

/// Handles a request on these threads. Cancels it if the client disconnects.
async fn run_on(threads: &Handle, handling: impl Future<Output = Response> + Send + 'static) -> Response {
    let mut tasks = JoinSet::new();
    tasks.spawn_on(handling, threads);
    match tasks.join_next().await {
        Some(Ok(response)) => response.map(|body| stream_on(threads, body)),
        Some(Err(_)) | None => internal_error(),
    }
}

/// Responds to a request after a panic of its handler; other requests are unaffected.
async fn catch_panic(handling: impl Future<Output = Response>) -> Response {
    AssertUnwindSafe(handling).catch_unwind().await.unwrap_or_else(|_| internal_error())
}

fn internal_error() -> Response {
    Problem::from_code(Code::Internal, "the request was interrupted by a fault").into_response()
}

/// Groups of response parts produced ahead of the one being sent.
const PARTS_AHEAD: usize = 1;

/// Bytes of ready response parts from which they are sent without a further one.
const JOINED_BYTES: usize = 64 << 10;

/// Produces the rest of a streamed response on these threads too, at the pace of the reader.
fn stream_on(threads: &Handle, body: Body) -> Body {
    if body.size_hint().exact().is_some() {
        return body;
    }
    let (parts, to_send) = mpsc::channel(PARTS_AHEAD);
    let mut body = body.into_data_stream().fuse();
    threads.spawn(async move {
        loop {
            let part = tokio::select! {
                part = body.next() => part,
                () = parts.closed() => None,
            };
            let Some(part) = part else { break };
            let (part, error) = match part {
                Ok(part) => join_ready(part, &mut body),
                Err(error) => (Bytes::new(), Some(error)),
            };
            let part = (!part.is_empty()).then_some(Ok(part));
            for part in part.into_iter().chain(error.map(Err)) {
                if parts.send(part).await.is_err() {
                    return;
                }
            }
        }
    });
    Body::from_stream(stream::unfold(to_send, |mut to_send| async move { Some((to_send.recv().await?, to_send)) }))
}

/// Joins a part with the following parts that are ready, so that one write sends them. Returns an error that ends them
/// apart.
fn join_ready(first: Bytes, rest: &mut Fuse<BodyDataStream>) -> (Bytes, Option<axum::Error>) {
    let mut joined = None;
    loop {
        let length = joined.as_ref().map_or(first.len(), Vec::len);
        let next = if length < JOINED_BYTES { rest.next().now_or_never().flatten() } else { None };
        match next {
            Some(Ok(next)) => joined.get_or_insert_with(|| first.to_vec()).extend_from_slice(&next),
            Some(Err(error)) => return (joined.map_or(first, Bytes::from), Some(error)),
            None => return (joined.map_or(first, Bytes::from), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::thread;

    use axum::body::Body;
    use futures_util::{StreamExt as _, stream};
    use tokio::runtime::Builder;

    use super::{JOINED_BYTES, stream_on};

    #[test]
    fn a_stream_is_made_on_the_threads_of_boards() {
        let name = || thread::current().name().unwrap_or_default().to_owned();
        let threads = |name: &str| {
            Builder::new_multi_thread().worker_threads(1).thread_name(name).build().expect("threads can be started")
        };
        let (boards, serving) = (threads("boards"), threads("serving"));
        let parts = stream::iter(0..3).map(move |_| Ok::<_, Infallible>(name()));
        let body = stream_on(boards.handle(), Body::from_stream(parts));
        let read = serving.block_on(axum::body::to_bytes(body, 1000)).expect("it is read");
        assert_eq!(read, "boardsboardsboards");
        let whole = stream_on(boards.handle(), Body::from("whole"));
        assert_eq!(serving.block_on(axum::body::to_bytes(whole, 1000)).expect("it is read"), "whole");
    }

    #[test]
    fn parts_that_are_ready_are_sent_together() {
        let threads = Builder::new_multi_thread().worker_threads(1).build().expect("threads can be started");
        let sent = |parts: Vec<Result<Vec<u8>, &'static str>>| {
            let body = stream_on(threads.handle(), Body::from_stream(stream::iter(parts)));
            let sizes = body.into_data_stream().map(|part| part.map(|part| part.len()).map_err(|_| "failed"));
            threads.block_on(sizes.collect::<Vec<_>>())
        };
        let part = |bytes: usize| Ok(vec![b'x'; bytes]);
        assert_eq!(sent(vec![part(1), part(2), part(3)]), [Ok(6)]);
        assert_eq!(sent(vec![part(1), part(JOINED_BYTES), part(2), part(3)]), [Ok(1 + JOINED_BYTES), Ok(5)]);
        assert_eq!(sent(vec![part(1), part(2), Err("broken"), part(3)])[..2], [Ok(3), Err("failed")]);
        assert_eq!(sent(vec![Err("broken")]), [Err("failed")]);
    }
}
