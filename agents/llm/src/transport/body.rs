//! Reads the bodies of successful answers: one JSON value, or a stream of events.

use reqwest::Response;
use tokio::time::{Instant, timeout_at};

use super::{HttpAnswer, HttpFailure, OnReplyStart, Received, network_failure};
use crate::config::Api;
use crate::stream::StreamParser;
use crate::{http_body, provider_errors};

/// Size limit of an answer in bytes.
const ANSWER_MAX: usize = 4 * 1024 * 1024;

/// Bytes of an unreadable answer that its error shows.
const SHOWN_MAX: usize = 4 * 1024;

/// Reads the body of a successful answer. A complete one counts even if the connection breaks afterwards.
pub(super) async fn read_answer(
    mut response: Response,
    (api, kind, encoding): (Api, &str, &str),
    deadline: Instant,
    begun: OnReplyStart<'_>,
) -> Result<HttpAnswer, HttpFailure> {
    let mut stream = kind.to_ascii_lowercase().contains("text/event-stream").then(|| StreamParser::new(api));
    let mut bytes = Vec::new();
    let mut received = Received::Nothing;
    let mut has_begun = false;
    let ended = loop {
        let chunk = match timeout_at(deadline, response.chunk()).await {
            Err(_) => break Some(HttpFailure::NoAnswer { received }),
            Ok(Err(error)) => break Some(network_failure(error, received == Received::Part)),
            Ok(Ok(None)) => break None,
            Ok(Ok(Some(chunk))) => chunk,
        };
        // A compressed stream is read as a whole.
        let is_plain = !bytes.is_empty() || !chunk.starts_with(&[0x1f, 0x8b]);
        match &mut stream {
            Some(stream) if is_plain && bytes.is_empty() => {
                if stream.feed(&chunk).map_err(HttpFailure::InvalidBody)? {
                    received = Received::Part;
                    break None;
                }
            }
            _ if bytes.len() + chunk.len() > ANSWER_MAX => {
                return Err(HttpFailure::InvalidBody(format!("the answer is longer than {ANSWER_MAX} bytes")));
            }
            _ => bytes.extend_from_slice(&chunk),
        }
        let is_part = match &stream {
            Some(stream) if bytes.is_empty() => stream.has_data(),
            _ => !chunk.trim_ascii_start().is_empty(),
        };
        received = if is_part || received == Received::Part { Received::Part } else { Received::KeepAlives };
        if !has_begun && stream.as_ref().is_some_and(StreamParser::has_content) {
            has_begun = true;
            begun();
        }
    };
    let is_silent = received == Received::KeepAlives || (received == Received::Nothing && stream.is_some());
    if is_silent && ended.is_none() {
        return Err(HttpFailure::ConnectionLost {
            why: "the server closed it before it answered".to_owned(),
            received: false,
        });
    }
    if !bytes.is_empty() {
        match http_body::inflate(bytes, Some(encoding), ANSWER_MAX) {
            Ok(plain) => bytes = plain,
            Err(why) => return Err(ended.unwrap_or(HttpFailure::InvalidBody(why))),
        }
        if stream.is_some() || StreamParser::is_stream(&bytes) {
            let mut whole = StreamParser::new(api);
            whole.feed(&bytes).map_err(HttpFailure::InvalidBody)?;
            stream = Some(whole);
        }
    }
    match (stream, ended) {
        (Some(stream), Some(failure)) if !stream.is_finished() => Err(failure),
        (Some(stream), _) => {
            stream.finish().map(|value| HttpAnswer { value, is_stream: true }).map_err(HttpFailure::InvalidBody)
        }
        (None, ended) => {
            let text = http_body::text(&bytes, kind);
            let value = http_body::json(&text).map_err(|error| {
                let shown = provider_errors::error_message(&text[..text.floor_char_boundary(SHOWN_MAX)]);
                let no_api = |why: &str| HttpFailure::NotAnApi { why: why.to_owned(), said: shown.trim().to_owned() };
                ended.unwrap_or_else(|| match text.trim_start() {
                    "" => no_api("the answer is empty"),
                    page if page.starts_with('<') => no_api("the answer is a web page"),
                    _ => HttpFailure::InvalidBody(provider_errors::format_failure(
                        &format!("the answer is not JSON ({error})"),
                        "",
                        &shown,
                    )),
                })
            })?;
            Ok(HttpAnswer { value, is_stream: false })
        }
    }
}
