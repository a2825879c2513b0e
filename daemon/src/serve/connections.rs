//! Connections at once. One that waits for its next request gives its place to a new one where there is none left.
//!
//! [`Registry`] decides, as plain data with the time as an argument; [`Connections`] ends what it names.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::middleware::{AddExtension, Next};
use axum::response::Response;
use axum_server::accept::Accept;
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};
use tower::Layer as _;

use super::limits::Peer;
use super::share::{Line, Shares};

/// A connection, as far as it matters who gives up a place.
#[derive(Clone, Copy, Debug)]
struct Connection {
    /// Requests under way, whose answers are not sent.
    busy: u32,
    /// True once it has brought a valid token.
    is_known: bool,
    /// When it was made, or its last answer was sent.
    idle_since: Duration,
}

/// Connections by number.
#[derive(Debug)]
struct Registry {
    most: usize,
    next: u64,
    open: BTreeMap<u64, Connection>,
}

impl Registry {
    const fn new(most: usize) -> Self {
        Self { most, next: 0, open: BTreeMap::new() }
    }

    /// Returns the number of a new connection, and that of the one which gives up its place; none if all places are taken
    /// by requests under way.
    fn admit(&mut self, now: Duration) -> Option<(u64, Option<u64>)> {
        let mut given_up = None;
        if self.open.len() >= self.most {
            let idle = self.open.iter().filter(|(_, connection)| connection.busy == 0);
            let longest = idle.min_by_key(|(number, it)| (it.is_known, it.idle_since, **number));
            given_up = Some(*longest?.0);
        }
        if let Some(number) = given_up {
            self.open.remove(&number);
        }
        let number = self.next;
        self.next += 1;
        self.open.insert(number, Connection { busy: 0, is_known: false, idle_since: now });
        Some((number, given_up))
    }
}

/// Connections to the daemon.
#[derive(Clone)]
pub(crate) struct Connections {
    since: Instant,
    registry: Arc<Mutex<Registry>>,
    /// Ends a connection when it is dropped.
    ends: Arc<Mutex<BTreeMap<u64, oneshot::Sender<()>>>>,
}

impl Connections {
    /// No connections; there may be so many.
    pub(crate) fn new(most: usize) -> Self {
        Self { since: Instant::now(), registry: Arc::new(Mutex::new(Registry::new(most))), ends: Arc::default() }
    }

    fn admit(&self) -> Option<(Place, oneshot::Receiver<()>)> {
        let (number, given_up) = locked(&self.registry).admit(self.since.elapsed())?;
        let (end, ended) = oneshot::channel();
        let mut ends = locked(&self.ends);
        ends.insert(number, end);
        if let Some(number) = given_up {
            ends.remove(&number);
        }
        Some((Place(Arc::new(Kept { number, connections: self.clone() })), ended))
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Connection)) {
        if let Some(connection) = locked(&self.registry).open.get_mut(&number) {
            change(connection);
        }
    }
}

fn locked<T>(counts: &Mutex<T>) -> MutexGuard<'_, T> {
    // A count that a panic left half done is off by one.
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of a connection, for as long as it is open.
#[derive(Clone)]
pub(crate) struct Place(Arc<Kept>);

struct Kept {
    number: u64,
    connections: Connections,
}

impl Drop for Kept {
    fn drop(&mut self) {
        locked(&self.connections.registry).open.remove(&self.number);
        locked(&self.connections.ends).remove(&self.number);
    }
}

impl Place {
    /// Notes that the connection has brought a valid token.
    pub(crate) fn known(&self) {
        self.0.connections.change(self.0.number, |connection| connection.is_known = true);
    }

    fn busy(self) -> Busy {
        self.0.connections.change(self.0.number, |connection| connection.busy += 1);
        Busy(self)
    }
}

/// A request of a connection, until its answer is sent.
struct Busy(Place);

impl Drop for Busy {
    fn drop(&mut self) {
        let kept = &self.0.0;
        let now = kept.connections.since.elapsed();
        kept.connections.change(kept.number, |connection| {
            connection.busy = connection.busy.saturating_sub(1);
            connection.idle_since = now;
        });
    }
}

/// Keeps the place of a connection while a request of it is under way.
pub(crate) async fn keep(request: Request, next: Next) -> Response {
    let busy = request.extensions().get::<Place>().cloned().map(Place::busy);
    next.run(request).await.map(|body| Body::new(Answer { body, _busy: busy }))
}

/// The body of an answer.
struct Answer {
    body: Body,
    _busy: Option<Busy>,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Gives each connection its place, or refuses it.
#[derive(Clone)]
pub(crate) struct Admission {
    pub(crate) connections: Connections,
    pub(crate) shares: Arc<Shares>,
}

impl<S> Accept<TcpStream, S> for Admission {
    type Stream = Yielding;
    type Service = AddExtension<AddExtension<AddExtension<S, Place>, Peer>, Arc<Line>>;
    type Future = std::future::Ready<io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        // It is closed without a word: who holds all places must not cost more than the closing.
        let full = || io::Error::other("there are too many connections");
        let admitted = stream.peer_addr().and_then(|peer| {
            let line = Line::new(Arc::clone(&self.shares), Peer(peer).address());
            line.served();
            Ok((Peer(peer), line, self.connections.admit().ok_or_else(full)?))
        });
        std::future::ready(admitted.map(|(peer, line, (place, ended))| {
            let service = Extension(peer).layer(Extension(place.clone()).layer(service));
            let service = Extension(Arc::clone(&line)).layer(service);
            (Yielding { stream, line, wait: None, ended: Some(ended), _place: place }, service)
        }))
    }
}

/// A connection that ends, for who reads it, when it gives up its place.
pub(crate) struct Yielding {
    stream: TcpStream,
    line: Arc<Line>,
    /// Time until it may be read from.
    wait: Option<Pin<Box<Sleep>>>,
    ended: Option<oneshot::Receiver<()>>,
    _place: Place,
}

impl AsyncRead for Yielding {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(ended) = &mut self.ended
            && Pin::new(ended).poll(context).is_ready()
        {
            self.ended = None;
        }
        let this = &mut *self;
        if this.ended.is_none() {
            return Poll::Ready(Ok(()));
        }
        this.line.served();
        if let Some(wait) = &mut this.wait {
            ready!(wait.as_mut().poll(context));
            // It waits once, however much others have used meanwhile.
            this.wait = None;
        } else if let Some(wait) = this.line.wait() {
            // One that was closed, or has nothing to say, waits for nothing.
            let mut byte = [0];
            if ready!(this.stream.poll_peek(context, &mut ReadBuf::new(&mut byte)))? > 0 {
                let mut wait = Box::pin(sleep(wait));
                if wait.as_mut().poll(context).is_pending() {
                    this.wait = Some(wait);
                    return Poll::Pending;
                }
            }
        }
        Pin::new(&mut this.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Yielding {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.line.served();
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.line.served();
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Registry;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn who_has_waited_longest_without_a_token_gives_up_its_place() {
        let mut registry = Registry::new(3);
        for second in 0..3 {
            assert_eq!(registry.admit(at(second)), Some((second, None)));
        }
        registry.open.get_mut(&0).expect("it is open").is_known = true;
        assert_eq!(registry.admit(at(3)), Some((3, Some(1))));
        registry.open.get_mut(&2).expect("it is open").idle_since = at(9);
        assert_eq!(registry.admit(at(10)), Some((4, Some(3))));
        registry.open.get_mut(&2).expect("it is open").busy = 1;
        registry.open.get_mut(&4).expect("it is open").busy = 1;
        assert_eq!(registry.admit(at(11)), Some((5, Some(0))), "a token is worth less than a request under way");
        registry.open.get_mut(&5).expect("it is open").busy = 2;
        assert_eq!(registry.admit(at(12)), None);
        assert_eq!(registry.open.len(), 3);
    }
}
