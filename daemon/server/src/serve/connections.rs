//! Connection limit. When all places are taken, an idle connection is evicted for a new one.
//!
//! [`ConnectionTable`] decides on plain data, with the time as an argument; [`Connections`] closes the evicted ones.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::middleware::AddExtension;
use axum::response::Response;
use axum_server::accept::Accept;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};
use tower::Layer as _;

use super::limits::Peer;
use super::processor_quota::{MeteredConnection, ProcessorQuota};

/// Connection state that decides eviction.
#[derive(Clone, Copy, Debug)]
struct Connection {
    /// Requests under way, up to the end of their responses.
    busy: u32,
    /// True once a request on it had a valid token.
    is_known: bool,
    /// Time of its accept, or of the end of its last response.
    idle_since: Duration,
}

#[derive(Debug)]
struct ConnectionTable {
    most: usize,
    next: u64,
    open: BTreeMap<u64, Connection>,
}

impl ConnectionTable {
    const fn new(most: usize) -> Self {
        Self { most, next: 0, open: BTreeMap::new() }
    }

    /// Returns the number of a new connection, and that of the connection evicted for it. `None` if every connection
    /// has a request under way.
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

#[derive(Clone)]
pub(crate) struct Connections {
    since: Instant,
    registry: Arc<Mutex<ConnectionTable>>,
    /// Dropping a sender closes its connection.
    ends: Arc<Mutex<BTreeMap<u64, oneshot::Sender<()>>>>,
}

impl Connections {
    pub(crate) fn new(most: usize) -> Self {
        Self { since: Instant::now(), registry: Arc::new(Mutex::new(ConnectionTable::new(most))), ends: Arc::default() }
    }

    fn admit(&self) -> Option<(ConnectionSlot, oneshot::Receiver<()>)> {
        let (number, given_up) = self.registry.lock().admit(self.since.elapsed())?;
        let (end, ended) = oneshot::channel();
        let mut ends = self.ends.lock();
        ends.insert(number, end);
        if let Some(number) = given_up {
            ends.remove(&number);
        }
        Some((ConnectionSlot(Arc::new(SlotInner { number, connections: self.clone() })), ended))
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Connection)) {
        if let Some(connection) = self.registry.lock().open.get_mut(&number) {
            change(connection);
        }
    }
}

#[derive(Clone)]
pub(crate) struct ConnectionSlot(Arc<SlotInner>);

struct SlotInner {
    number: u64,
    connections: Connections,
}

impl Drop for SlotInner {
    fn drop(&mut self) {
        self.connections.registry.lock().open.remove(&self.number);
        self.connections.ends.lock().remove(&self.number);
    }
}

impl ConnectionSlot {
    /// Records that the connection has presented a valid token.
    pub(crate) fn mark_authenticated(&self) {
        self.0.connections.change(self.0.number, |connection| connection.is_known = true);
    }

    fn busy(self) -> BusyGuard {
        self.0.connections.change(self.0.number, |connection| connection.busy += 1);
        BusyGuard(self)
    }
}

/// Request under way on a connection, until its response is sent.
struct BusyGuard(ConnectionSlot);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        let kept = &self.0.0;
        let now = kept.connections.since.elapsed();
        kept.connections.change(kept.number, |connection| {
            connection.busy = connection.busy.saturating_sub(1);
            connection.idle_since = now;
        });
    }
}

/// Marks the connection as busy while one of its requests is under way.
pub(crate) async fn mark_busy<F: Future<Output = Response>>(
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let busy = request.extensions().get::<ConnectionSlot>().cloned().map(ConnectionSlot::busy);
    next(request).await.map(|body| Body::new(BusyBody { body, _busy: busy }))
}

struct BusyBody {
    body: Body,
    _busy: Option<BusyGuard>,
}

impl HttpBody for BusyBody {
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

/// Acceptor that admits each connection, or closes it.
#[derive(Clone)]
pub(crate) struct ConnectionAcceptor {
    pub(crate) connections: Connections,
    pub(crate) shares: Arc<ProcessorQuota>,
}

impl<S> Accept<TcpStream, S> for ConnectionAcceptor {
    type Stream = EvictableStream;
    type Service = AddExtension<AddExtension<AddExtension<S, ConnectionSlot>, Peer>, Arc<MeteredConnection>>;
    type Future = std::future::Ready<io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        // Closed without a response: a client that holds all places must cost no more than the close.
        let full = || io::Error::other("there are too many connections");
        let admitted = stream.peer_addr().and_then(|peer| {
            let line = MeteredConnection::new(Arc::clone(&self.shares), Peer(peer).address());
            line.start_serving();
            Ok((Peer(peer), line, self.connections.admit().ok_or_else(full)?))
        });
        std::future::ready(admitted.map(|(peer, line, (place, ended))| {
            let service = Extension(peer).layer(Extension(place.clone()).layer(service));
            let service = Extension(Arc::clone(&line)).layer(service);
            (EvictableStream { stream, line, wait: None, ended: Some(ended), _place: place }, service)
        }))
    }
}

/// Stream that reads as closed once its connection is evicted.
pub(crate) struct EvictableStream {
    stream: TcpStream,
    line: Arc<MeteredConnection>,
    wait: Option<Pin<Box<Sleep>>>,
    ended: Option<oneshot::Receiver<()>>,
    _place: ConnectionSlot,
}

impl AsyncRead for EvictableStream {
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
        this.line.start_serving();
        if let Some(wait) = &mut this.wait {
            ready!(wait.as_mut().poll(context));
            // Waits once per read, however much other callers use meanwhile.
            this.wait = None;
        } else if let Some(wait) = this.line.wait() {
            // A closed or silent connection does not wait.
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

impl AsyncWrite for EvictableStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.line.start_serving();
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
        self.line.start_serving();
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::ConnectionTable;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_longest_idle_connection_without_a_token_gives_up_its_place() {
        let mut registry = ConnectionTable::new(3);
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
