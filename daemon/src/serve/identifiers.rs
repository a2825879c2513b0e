//! The three identifiers of a request and its answer (SW4RM section 3.11.4, requirement rows W71 to W76).
//!
//! | header | |
//! |---|---|
//! | `Message-Id` | a UUID that every transmission has for itself, a repetition too: the caller's in the request, ours in the answer, where `In-Reply-To` names the caller's |
//! | `Correlation-Id` | what belongs together: copied from the request to the answer |
//! | `Idempotency-Key` | the token by which the same work is known again, like `{agent}:{task}:{hash}` |
//!
//! Of a repetition the answer says `Idempotency-Status`: `DUPLICATE_DETECTED`, and what stands in it came of the first
//! transmission; `ALREADY_IN_PROGRESS`, where that is not decided yet, as a person is asked.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use uuid::Uuid;

use super::problem::{Code, Problem};

const MESSAGE_ID: HeaderName = HeaderName::from_static("message-id");
const IN_REPLY_TO: HeaderName = HeaderName::from_static("in-reply-to");
const CORRELATION_ID: HeaderName = HeaderName::from_static("correlation-id");
const STATUS: HeaderName = HeaderName::from_static("idempotency-status");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Characters of an identifier that is sent back.
const CHARS_MAX: usize = 128;

/// How a request stands to one with the same key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repetition {
    /// It is the first.
    None,
    /// The first one has an outcome, which is told again.
    Done,
    /// The first one waits for a person.
    UnderWay,
}

impl From<bool> for Repetition {
    fn from(is_repeated: bool) -> Self {
        if is_repeated { Self::Done } else { Self::None }
    }
}

impl Repetition {
    /// What an answer says of it.
    pub(crate) fn headers(self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let is_repeated = if self == Self::None { "false" } else { "true" };
        headers.insert(REPLAYED, HeaderValue::from_static(is_repeated));
        let status = match self {
            Self::None => return headers,
            Self::Done => "DUPLICATE_DETECTED",
            Self::UnderWay => "ALREADY_IN_PROGRESS",
        };
        headers.insert(STATUS, HeaderValue::from_static(status));
        headers
    }
}

/// Gives every answer an id of its own, and what the request is known by. Refuses what cannot be sent back.
pub(crate) async fn identify(request: Request, next: Next) -> Response {
    let (answered, correlation) = (given(request.headers(), &MESSAGE_ID), given(request.headers(), &CORRELATION_ID));
    let refused = [("Message-Id", &answered), ("Correlation-Id", &correlation)].into_iter().find(|(_, id)| id.is_err());
    let mut response = match refused {
        Some((name, _)) => {
            let detail = format!("{name} has 1 to {CHARS_MAX} printable ASCII characters, without spaces");
            Problem::of(Code::BadIdentifier, detail).into_response()
        }
        None => next.run(request).await,
    };
    let own = HeaderValue::from_str(&Uuid::new_v4().to_string()).ok();
    let (answered, correlation) = (answered.unwrap_or_default(), correlation.unwrap_or_default());
    let told = [(MESSAGE_ID, own), (IN_REPLY_TO, answered), (CORRELATION_ID, correlation)];
    response.headers_mut().extend(told.into_iter().filter_map(|(name, value)| Some((name, value?))));
    response
}

/// A header that cannot be sent back.
struct NoIdentifier;

/// Returns an identifier of a request, if it has one; an error if what it has is none.
fn given(headers: &HeaderMap, name: &HeaderName) -> Result<Option<HeaderValue>, NoIdentifier> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let is_one = (1..=CHARS_MAX).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic);
    if is_one { Ok(Some(value.clone())) } else { Err(NoIdentifier) }
}
