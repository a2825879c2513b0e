//! Identifiers of a request and its response (SW4RM section 3.11.4, requirement rows W71 to W76).
//!
//! | header | |
//! |---|---|
//! | `Message-Id` | UUID of one transmission; the response has its own, and the request's in `In-Reply-To` |
//! | `Correlation-Id` | copied from the request to the response |
//! | `Idempotency-Key` | key that identifies a retry of the same work, like `{agent}:{task}:{hash}` |
//!
//! The response to a retry has an `Idempotency-Status`. `DUPLICATE_DETECTED`: the body is the result of the first
//! transmission. `ALREADY_IN_PROGRESS`: the result is pending, because a person has yet to decide.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use uuid::Uuid;

use super::problem::{Code, Problem};

const MESSAGE_ID: HeaderName = HeaderName::from_static("message-id");
const IN_REPLY_TO: HeaderName = HeaderName::from_static("in-reply-to");
const CORRELATION_ID: HeaderName = HeaderName::from_static("correlation-id");
/// Maximum characters of an identifier that is echoed.
const CHARS_MAX: usize = 128;

/// Adds the identifiers to every response. Rejects a request with an identifier that cannot be echoed.
pub(crate) async fn identify<F: Future<Output = Response>>(
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let (answered, correlation) =
        (read_identifier(request.headers(), &MESSAGE_ID), read_identifier(request.headers(), &CORRELATION_ID));
    let refused = [("Message-Id", &answered), ("Correlation-Id", &correlation)].into_iter().find(|(_, id)| id.is_err());
    let mut response = match refused {
        Some((name, _)) => {
            let detail = format!("{name} has 1 to {CHARS_MAX} printable ASCII characters, without spaces");
            Problem::from_code(Code::BadIdentifier, detail).into_response()
        }
        None => next(request).await,
    };
    let own = HeaderValue::from_str(&Uuid::new_v4().to_string()).ok();
    let (answered, correlation) = (answered.unwrap_or_default(), correlation.unwrap_or_default());
    let headers = [(MESSAGE_ID, own), (IN_REPLY_TO, answered), (CORRELATION_ID, correlation)];
    response.headers_mut().extend(headers.into_iter().filter_map(|(name, value)| Some((name, value?))));
    response
}

/// Error: an identifier that cannot be echoed.
struct InvalidIdentifier;

/// Returns an identifier of a request, if present; an error if it is malformed.
fn read_identifier(headers: &HeaderMap, name: &HeaderName) -> Result<Option<HeaderValue>, InvalidIdentifier> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let is_one = (1..=CHARS_MAX).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic);
    if is_one { Ok(Some(value.clone())) } else { Err(InvalidIdentifier) }
}
