//! Draining of unread request bodies: the rest of a small one is read, so that its connection can be reused.
//!
//! A connection with an unread body is closed, and a client that has already sent its next request would get no
//! response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::EXPECT;
use axum::response::Response;
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;

use super::http::drain;

const BYTES_MAX: usize = 64 << 10;

const TIME: Duration = Duration::from_secs(1);

/// Body shared with the route, so that its unread rest can be taken back.
#[derive(Clone)]
struct SharedBody(Arc<Mutex<Body>>);

impl SharedBody {
    /// Takes the unread rest of the body; `None` if it is fully read or too large to drain.
    fn rest(&self) -> Option<Body> {
        let rest = std::mem::take(&mut *self.0.lock());
        (!rest.is_end_stream() && rest.size_hint().lower() <= BYTES_MAX as u64).then_some(rest)
    }
}

impl http_body::Body for SharedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut *self.0.lock()).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().size_hint()
    }
}

/// Drains what the route has left unread. With `Expect: 100-continue` the body is not requested.
pub(crate) async fn drain_unread<F: Future<Output = Response>>(
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    if request.body().is_end_stream() || request.headers().contains_key(EXPECT) {
        return next(request).await;
    }
    let (parts, body) = request.into_parts();
    let shared = SharedBody(Arc::new(Mutex::new(body)));
    let response = next(Request::from_parts(parts, Body::new(shared.clone()))).await;
    if let Some(rest) = shared.rest() {
        drain(rest, BYTES_MAX, TIME).await;
    }
    response
}
