//! Shared by all routes: authentication, and strict parsing of requests.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body as AnswerBody, Bytes, HttpBody as _};
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Path, Query, RawPathParams, Request};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use patchboard_kernel::digest::sha256;
use patchboard_kernel::id::{BoardId, IdempotencyKey, WorkerName};
use patchboard_kernel::json::{self, Limits};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::access::{Permission, Scope};
use super::caller::{Caller, unauthorized};
use super::connections::ConnectionSlot;
use super::idempotency_keys::{KeyBoardIds, ScopedKey};
use super::limits::{MemoryPermit, Peer};
use super::problem::{ApiResult, Code, Problem};
use super::processor_quota::{MeteredCaller, MeteredConnection};
use super::rate_key::RateKey;
use super::service::Daemon;
use super::tokens::Holder;

pub(crate) const BODY_BYTES_MAX: usize = 8 << 20;

const DRAINED_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

const DRAIN_TIME: Duration = Duration::from_secs(2);

/// Maximum bytes of a body that holds names, numbers and short texts.
const SMALL_BODY_BYTES_MAX: usize = 64 << 10;

/// Maximum nesting of a body: a board's document may be 64 deep, and a patch in an MCP call adds the rest.
const BODY_DEPTH_MAX: usize = 72;

/// Maximum characters of an `Idempotency-Key`.
const KEY_MAX: usize = 128;

/// Form of an `Idempotency-Key`, for error messages.
pub const KEY_FORM: &str = "1 to 128 printable ASCII characters, without spaces";

/// Returns true if a text is a valid `Idempotency-Key`.
pub fn is_key(text: &str) -> bool {
    (1..=KEY_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Authenticates the caller and applies its rate limit.
pub(crate) async fn authenticate(daemon: Arc<Daemon>, peer: Peer, mut request: Request, next: Next) -> Response {
    let changes = daemon.tokens.changes();
    let address_caller = MeteredCaller::new(Arc::clone(&daemon.limits.shares), RateKey::Address(peer.address()));
    let headers = request.headers();
    let admitting = async {
        let caller = caller_of(&daemon, headers, peer).await?;
        daemon.limits.request(caller.rate_key).map(|()| caller)
    };
    let caller = if daemon.is_open && !headers.contains_key(AUTHORIZATION) {
        // An administrator, who is not metered.
        admitting.await
    } else {
        let mut admitting = Box::pin(admitting);
        let is_free = |polled: &_| matches!(polled, Poll::Ready(Ok(Caller { scope: Scope::Admin, .. })));
        poll_fn(|context| address_caller.run_charged_unless(is_free, || admitting.as_mut().poll(context))).await
    };
    let is_administrator = matches!(caller, Ok(Caller { scope: Scope::Admin, .. }));
    if let Some(line) = request.extensions().get::<Arc<MeteredConnection>>() {
        line.set_administrator(is_administrator);
    }
    match caller {
        Ok(caller) => {
            let metered_caller = MeteredCaller::new(Arc::clone(&daemon.limits.shares), caller.rate_key);
            if let (Some(connection), RateKey::Token(_)) =
                (request.extensions().get::<ConnectionSlot>(), caller.rate_key)
            {
                connection.mark_authenticated();
            }
            let place = BodyMemory::default();
            let holder = caller.holder.clone();
            request.extensions_mut().insert(caller);
            request.extensions_mut().insert(place.clone());
            let streaming = (!is_administrator).then(|| metered_caller.clone());
            let handling = async move {
                let response = next.run(request).await;
                if let Some(payer) = streaming { response.map(|body| payer.paced_body(body)) } else { response }
            };
            let guarded = async {
                match holder {
                    Some(holder) => while_token_valid(daemon, holder, changes, handling).await,
                    None => handling.await,
                }
            };
            let response = if is_administrator { guarded.await } else { metered_caller.run_paced(guarded).await };
            drop(place);
            response
        }
        Err(problem) => {
            address_caller.wait_turn().await;
            problem.into_response()
        }
    }
}

/// Runs a request while its token is valid; revocation or expiry ends the response.
async fn while_token_valid(
    daemon: Arc<Daemon>,
    holder: Arc<Holder>,
    changes: watch::Receiver<u64>,
    handling: impl Future<Output = Response>,
) -> Response {
    let ended = async move { daemon.ended(&holder, changes).await };
    let mut ended = Box::pin(ended);
    let response = tokio::select! {
        biased;
        () = &mut ended => return unauthorized().into_response(),
        response = handling => response,
    };
    // A body of known size is already complete.
    match response.body().size_hint().exact() {
        Some(_) => response,
        None => response.map(|body| AnswerBody::from_stream(body.into_data_stream().take_until(ended))),
    }
}

async fn caller_of(daemon: &Daemon, headers: &HeaderMap, peer: Peer) -> ApiResult<Caller> {
    let from = peer.address();
    let authorization = headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
    let Some(authorization) = authorization else {
        let caller = Caller { scope: Scope::Admin, rate_key: RateKey::Address(from), holder: None };
        return if daemon.is_open { Ok(caller) } else { Err(unauthorized()) };
    };
    let (kind, token) = authorization.split_once(' ').unwrap_or_default();
    let token = token.trim();
    let known = if kind.eq_ignore_ascii_case("bearer") { daemon.holder(token).await? } else { None };
    let Some((scope, holder)) = known else {
        // Valid tokens are checked first: failures from an address do not block its token holders.
        return Err(daemon.limits.failed(from).err().unwrap_or_else(unauthorized));
    };
    Ok(Caller { scope, rate_key: RateKey::Token(sha256(token.as_bytes())), holder: holder.map(Arc::new) })
}

/// Limits the time of a request. Does not apply to a stream once its response head is sent.
pub(crate) async fn limit_time(limit: Duration, handling: impl Future<Output = Response>) -> Response {
    match tokio::time::timeout(limit, handling).await {
        Ok(response) => response,
        Err(_) => Problem::from_code(Code::TimedOut, format!("a request may take {} s", limit.as_secs()))
            .help("the request may have taken effect: repeat it with the same Idempotency-Key")
            .into_response(),
    }
}

/// Permission required before the body is read. The handler checks the rest, by the contents of the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RoutePermission {
    Administer,
    ViewAll,
    /// Read the board in the path.
    View,
    Operate,
    OperateOrActAs,
    /// Act as the worker in the path; without one, any valid token.
    ActAs,
}

impl RoutePermission {
    fn need(self, params: &RawPathParams) -> Permission {
        let param = |name: &str| params.iter().find(|(param, _)| *param == name).map(|(_, value)| value);
        let board = || BoardId::from(param("board").unwrap_or_default());
        match (self, param("worker")) {
            (Self::Administer, _) => Permission::Administer,
            (Self::ViewAll, _) => Permission::ViewAll,
            (Self::View, _) => Permission::View(board()),
            (Self::Operate, _) => Permission::Operate(board()),
            (Self::OperateOrActAs, _) => Permission::OperateOrActAs(board()),
            (Self::ActAs, Some(worker)) => Permission::ActAs(board(), WorkerName::from(worker)),
            (Self::ActAs, None) => Permission::Authenticated,
        }
    }
}

/// Request body of a route, with its permission and size limit.
pub(crate) trait RequestBody: DeserializeOwned {
    const PERMISSION: RoutePermission;
    /// Maximum bytes, at most [`BODY_BYTES_MAX`].
    const BYTES_MAX: usize = SMALL_BODY_BYTES_MAX;
    /// True if the body may be an array; otherwise it must be an object.
    const ALLOWS_ARRAY: bool = false;
}

/// Makes a type the body of a route; a `large` one may have [`BODY_BYTES_MAX`] bytes.
macro_rules! request_body {
    ($body:ty: $permission:ident $(, $large:ident)?) => {
        impl $crate::serve::http::RequestBody for $body {
            const PERMISSION: $crate::serve::http::RoutePermission = $crate::serve::http::RoutePermission::$permission;
            $(const BYTES_MAX: usize = $crate::serve::http::request_body!(@$large);)?
        }
    };
    (@large) => { $crate::serve::http::BODY_BYTES_MAX };
}
pub(crate) use request_body;

/// JSON body, parsed strictly: no duplicate names, no number that would lose precision. It is read once the caller is
/// authorised and the daemon has memory for it.
pub(crate) struct StrictJson<T>(pub(crate) T);

impl<T: RequestBody> FromRequest<Arc<Daemon>> for StrictJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, daemon: &Arc<Daemon>) -> ApiResult<Self> {
        let (mut parts, body) = request.into_parts();
        let (text, caller) = match admit_body::<T>(&mut parts, daemon).await {
            Ok(admitted) => admitted,
            Err(problem) => {
                drain(body, DRAINED_BYTES_MAX, DRAIN_TIME).await;
                return Err(problem);
            }
        };
        let Ok(memory) = BodyMemory::from_request_parts(&mut parts, daemon).await;
        let mut request = Request::from_parts(parts, body);
        DefaultBodyLimit::max(T::BYTES_MAX).apply(&mut request);
        let bytes = Bytes::from_request(request, daemon).await.map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => too_large(T::BYTES_MAX),
            _ => Problem::from_code(Code::BadBody, "the body could not be read"),
        })?;
        daemon.limits.body(caller.rate_key, bytes.len())?;
        let value = daemon.limits.try_memory(caller.rate_key, json::footprint(&bytes))?;
        *memory.0.lock() = Some((text, value));
        let limits = Limits { bytes: BODY_BYTES_MAX, depth: BODY_DEPTH_MAX };
        let value = json::parse(&bytes, limits).map_err(|error| {
            let code = error.code.as_str();
            Problem::new(StatusCode::BAD_REQUEST, code, error.message).detail("offset", error.offset.into())
        })?;
        let bad = |why: &dyn Display| {
            Problem::from_code(Code::BadBody, format!("the body does not match this request: {why}"))
        };
        // Serde would read the members of a struct from an array, by position.
        if value.is_array() && !T::ALLOWS_ARRAY {
            return Err(bad(&"an object is wanted, and no list"));
        }
        serde_json::from_value(value).map(Self).map_err(|error| bad(&error))
    }
}

/// Checks a request before its body is read. Returns the memory for the text of the body.
async fn admit_body<T: RequestBody>(parts: &mut Parts, daemon: &Arc<Daemon>) -> ApiResult<(MemoryPermit, Caller)> {
    let caller = Caller::from_request_parts(parts, daemon).await?;
    let params = RawPathParams::from_request_parts(parts, daemon).await;
    let params = params.map_err(|_| Problem::from_code(Code::BadPath, "the path cannot be read"))?;
    caller.require(&T::PERMISSION.need(&params))?;
    let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = header(CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let problem = Problem::from_code(Code::NotJson, "the body must be JSON");
        return Err(problem.help("send it with `Content-Type: application/json`"));
    }
    let bytes = header(CONTENT_LENGTH).parse().unwrap_or(T::BYTES_MAX);
    if bytes > T::BYTES_MAX {
        return Err(too_large(T::BYTES_MAX));
    }
    Ok((daemon.limits.memory(caller.rate_key, bytes).await?, caller))
}

/// Reads and discards a body, up to a number of bytes and a time. A client that is still sending would see no response.
pub(crate) async fn drain(body: AnswerBody, bytes_max: usize, time: Duration) {
    let mut chunks = body.into_data_stream();
    let read = async {
        let mut left = bytes_max;
        while let Some(Ok(chunk)) = chunks.next().await
            && let Some(rest) = left.checked_sub(chunk.len())
        {
            left = rest;
        }
    };
    // The rest is dropped with the connection.
    let _ = tokio::time::timeout(time, read).await;
}

fn too_large(bytes_max: usize) -> Problem {
    Problem::from_code(Code::BodyTooLarge, format!("the body of this request may have {bytes_max} bytes"))
}

/// Memory of a request body, held until the request is answered or its handler releases it.
#[derive(Clone, Default)]
pub(crate) struct BodyMemory(Arc<Mutex<Option<(MemoryPermit, MemoryPermit)>>>);

impl BodyMemory {
    /// Releases the memory: the handler has dropped the body, and waits.
    pub(crate) fn release(&self) {
        self.0.lock().take();
    }
}

impl<S: Send + Sync> FromRequestParts<S> for BodyMemory {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

/// Request about the board in its path.
pub(crate) struct OnBoard {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) caller: Caller,
    pub(crate) board: BoardId,
}

impl FromRequestParts<Arc<Daemon>> for OnBoard {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, daemon: &Arc<Daemon>) -> ApiResult<Self> {
        /// Path segment shared by all these routes.
        #[derive(serde::Deserialize)]
        struct Named {
            board: String,
        }
        let caller = Caller::from_request_parts(parts, daemon).await?;
        let named = Path::<Named>::from_request_parts(parts, daemon).await;
        let Path(named) = named.map_err(|_| Problem::from_code(Code::BadPath, "the path names no board"))?;
        Ok(Self { daemon: Arc::clone(daemon), caller, board: BoardId::from(named.board) })
    }
}

/// Request about a part of a board, such as a worker or a lease: the last segment of its path.
pub(crate) struct OnPart<T> {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) caller: Caller,
    pub(crate) board: BoardId,
    pub(crate) part: T,
}

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<Daemon>> for OnPart<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, daemon: &Arc<Daemon>) -> ApiResult<Self> {
        let caller = Caller::from_request_parts(parts, daemon).await?;
        let StrictPath((board, part)) = StrictPath::from_request_parts(parts, daemon).await?;
        Ok(Self { daemon: Arc::clone(daemon), caller, board, part })
    }
}

pub(crate) struct StrictPath<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for StrictPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
        let read = Path::<T>::from_request_parts(parts, state).await;
        read.map(|Path(read)| Self(read)).map_err(|error| Problem::from_code(Code::BadPath, error.body_text()))
    }
}

pub(crate) struct StrictQuery<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for StrictQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
        let read = Query::<T>::from_request_parts(parts, state).await;
        read.map(|Query(read)| Self(read)).map_err(|error| Problem::from_code(Code::BadQuery, error.body_text()))
    }
}

/// Default page size.
const PAGE: usize = 100;

const PAGE_MAX: usize = 1000;

/// Returns the page size: the given one, checked, or the default.
pub(crate) fn page_size(requested: Option<usize>) -> ApiResult<usize> {
    match requested.unwrap_or(PAGE) {
        size @ 1..=PAGE_MAX => Ok(size),
        _ => Err(Problem::from_code(Code::BadQuery, format!("limit is 1 to {PAGE_MAX}"))),
    }
}

/// The `Idempotency-Key` of a request, if any: a retry gets the first response.
pub(crate) struct IdempotencyHeader(Option<ScopedKey>);

impl FromRequestParts<Arc<Daemon>> for IdempotencyHeader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, daemon: &Arc<Daemon>) -> ApiResult<Self> {
        let Some(key) = parts.headers.get("idempotency-key").cloned() else { return Ok(Self(None)) };
        let caller = Caller::from_request_parts(parts, daemon).await?;
        bind_key(daemon, &caller, key.to_str().unwrap_or_default()).map(|key| Self(Some(key)))
    }
}

/// Validates a key and binds it to the caller's scope.
pub(crate) fn bind_key(daemon: &Daemon, caller: &Caller, key: &str) -> ApiResult<ScopedKey> {
    if !is_key(key) {
        return Err(Problem::from_code(Code::BadKey, format!("an Idempotency-Key has {KEY_FORM}")));
    }
    Ok(daemon.tokens.secret.bind(&caller.scope, key))
}

impl IdempotencyHeader {
    pub(crate) fn token(&self) -> Option<IdempotencyKey> {
        self.0.as_ref().map(ScopedKey::idempotency_key)
    }

    /// Returns the ids of the boards that a request with this key may have created.
    pub(crate) fn board_ids(&self) -> Option<KeyBoardIds> {
        self.0.as_ref().map(ScopedKey::board_ids)
    }
}
