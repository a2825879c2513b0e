//! Requests to an endpoint: TLS, time limits, bounded bodies, and errors that keep what the server said.
//!
//! async-openai's own path is not used past its request types: it has no time limits, repeats requests as long as a
//! server asks it to, forgets the status of errors whose body it does not expect, and writes bodies it cannot read into
//! the log. [`connect`] replaces it with a service of our own. Repetition is the business of [`super`].
//!
//! TLS is rustls with ring as its provider. reqwest offers two ways without aws-lc: the platform's verifier or roots
//! handed to it. The platform's is used (on Linux: the system's certificate files, or `SSL_CERT_FILE`), because
//! operators can add their own authorities there. A plain `http://` endpoint needs no certificates on the machine.

use std::time::{Duration, SystemTime};

use async_openai::Client;
use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, StatusCode, Url, redirect};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::config::Model;

/// Time to reach a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of an answer that are read.
const ANSWER_MAX: usize = 4 * 1024 * 1024;

/// The most bytes of an error that are read.
const ERROR_MAX: usize = 4 * 1024;

/// Why there is no answer to read. Messages are as strangers wrote them.
#[derive(Debug, thiserror::Error)]
pub enum HttpFailure {
    /// No connection was made: nothing was spent.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// An answer with another status than success.
    #[error("{}", status_text(*.status, .body))]
    Status {
        /// The HTTP status.
        status: u16,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
        /// The body, at most 4 KiB of it.
        body: String,
    },
    /// Success, with something else than an answer.
    #[error("{0}")]
    Form(String),
}

/// Installs ring as the process's TLS provider, unless there already is one. May be called any number of times.
pub fn install_tls_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails only if another thread was faster, and then there is a provider.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

/// A client for the model's endpoint.
///
/// # Errors
/// What is wrong with the key, a header or the machine's certificates; without values that may be secret.
pub fn connect(model: &Model, key: Option<&SecretString>) -> Result<Client<Endpoint>, String> {
    let endpoint = Endpoint::new(model, key)?;
    let http = client(&model.url)?;
    let sender = http.clone();
    let service = tower::service_fn(move |request: HttpRequestFactory| {
        let http = sender.clone();
        async move { exchange(&http, &request).await }
    });
    Ok(Client::build(http, endpoint).with_http_service(service))
}

/// What speaks HTTP to an endpoint.
pub(super) fn client(url: &str) -> Result<reqwest::Client, String> {
    install_tls_provider();
    let url = Url::parse(url).map_err(|error| format!("not an address: {error}"))?;
    let mut builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        // A key goes to the address it was configured for and to no other.
        .redirect(redirect::Policy::none())
        .user_agent(concat!("patchboard/", env!("CARGO_PKG_VERSION")));
    if url.scheme() == "http" {
        builder = builder.tls_certs_only([]);
    }
    if is_loopback(&url) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| {
        format!("no TLS client: {}; are the system's CA certificates installed (or SSL_CERT_FILE set)?", chain(&error))
    })
}

/// Where requests go and what proves who sends them.
pub struct Endpoint {
    base: String,
    headers: HeaderMap,
    key: SecretString,
}

impl Endpoint {
    pub(super) fn new(model: &Model, key: Option<&SecretString>) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        if let Some(key) = key {
            let mut value = HeaderValue::try_from(format!("Bearer {}", key.expose_secret()))
                .map_err(|_| "the key holds characters that no header may hold".to_owned())?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        for (name, value) in &model.headers {
            let mut value = HeaderValue::try_from(value).map_err(|_| format!("the value of header {name} is none"))?;
            value.set_sensitive(true);
            let name = HeaderName::try_from(name).map_err(|_| format!("{name:?} is no name for a header"))?;
            headers.insert(name, value);
        }
        Ok(Self { base: model.url.clone(), headers, key: key.cloned().unwrap_or_else(|| String::new().into()) })
    }
}

// Our own, because async-openai's reads the process's environment and panics at a key that no header may hold.
impl async_openai::config::Config for Endpoint {
    fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn query(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    fn api_base(&self) -> &str {
        &self.base
    }

    fn api_key(&self) -> &SecretString {
        &self.key
    }
}

/// Sends a request and checks the whole answer, so that nothing is left that async-openai could fail at.
async fn exchange(http: &reqwest::Client, request: &HttpRequestFactory) -> Result<Response, OpenAIError> {
    let request = request.build().await?;
    let (bytes, _) = answer(http, request).await.map_err(|failure| OpenAIError::Boxed(Box::new(failure)))?;
    Ok(Response::from(http::Response::new(bytes)))
}

/// Sends a request; the whole answer, as it came and as JSON.
pub(super) async fn answer(http: &reqwest::Client, request: reqwest::Request) -> Result<(Vec<u8>, Value), HttpFailure> {
    let response = http.execute(request).await.map_err(network_failure)?;
    let status = response.status();
    if !status.is_success() {
        let retry_after = retry_after(response.headers(), SystemTime::now());
        let location =
            response.headers().get(http::header::LOCATION).and_then(|to| to.to_str().ok()).map(str::to_owned);
        let (bytes, _) = read(response, ERROR_MAX).await.unwrap_or_default();
        let mut body = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(to) = location.filter(|_| status.is_redirection()) {
            body = format!("it redirects to {to}; put that into the configuration");
        }
        return Err(HttpFailure::Status { status: status.as_u16(), retry_after, body });
    }
    let (bytes, whole) = read(response, ANSWER_MAX).await.map_err(network_failure)?;
    if !whole {
        return Err(HttpFailure::Form(format!("the answer is longer than {ANSWER_MAX} bytes")));
    }
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| {
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(ERROR_MAX)]).into_owned();
        HttpFailure::Form(format!("the answer is not JSON ({error}): {}", readable(&start)))
    })?;
    if let (Some(error), None) = (value.get("error").filter(|error| !error.is_null()), value.get("choices")) {
        // Gateways report a provider's failure so; the status is in the body, if anywhere.
        let status = error["code"].as_u64().and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400);
        return Err(match status {
            Some(status) => HttpFailure::Status { status, retry_after: None, body: value.to_string() },
            None => HttpFailure::Form(format!("the answer is an error: {}", message(&value.to_string()))),
        });
    }
    Ok((bytes, value))
}

/// The body up to `max` bytes, and whether that is all of it.
pub(super) async fn read(mut response: Response, max: usize) -> Result<(Vec<u8>, bool), reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = max - bytes.len();
        if chunk.len() > room {
            bytes.extend_from_slice(&chunk[..room]);
            return Ok((bytes, false));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok((bytes, true))
}

fn network_failure(error: reqwest::Error) -> HttpFailure {
    let connect = error.is_connect();
    let text = chain(&error.without_url());
    if connect { HttpFailure::Connect(text) } else { HttpFailure::Broken(text) }
}

/// An error with its causes, which reqwest's own text leaves out.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    text
}

/// How long a server asks to wait: `retry-after-ms`, or `Retry-After` in seconds or as a date (RFC 9110, 10.2.3).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok();
    if let Some(ms) = text("retry-after-ms").and_then(number) {
        return Duration::try_from_secs_f64(ms / 1000.0).ok();
    }
    let value = text("retry-after")?;
    if let Some(secs) = number(value) {
        return Duration::try_from_secs_f64(secs).ok();
    }
    let then = SystemTime::from(jiff::fmt::rfc2822::parse(value).ok()?.timestamp());
    Some(then.duration_since(now).unwrap_or(Duration::ZERO))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn status_text(status: u16, body: &str) -> String {
    let name = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("status");
    match message(body) {
        text if text.is_empty() => format!("{status} {name}"),
        text => format!("{status} {name}: {text}"),
    }
}

/// What a provider's error says, wherever it says it.
fn message(body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let places = ["/error/message", "/error", "/message", "/detail", "/0/error/message"];
    match places.iter().find_map(|place| value.pointer(place)?.as_str()) {
        Some(text) => text.to_owned(),
        None => readable(body),
    }
}

/// Text without HTML tags, for error pages of proxies.
fn readable(text: &str) -> String {
    if !text.trim_start().starts_with('<') {
        return text.to_owned();
    }
    let mut inside = false;
    text.chars()
        .filter_map(|c| match c {
            '<' => {
                inside = true;
                Some(' ')
            }
            '>' => {
                inside = false;
                None
            }
            c => (!inside).then_some(c),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_read_in_all_three_notations() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (name, value, expected) in [
            ("retry-after", "3", Some(Duration::from_secs(3))),
            ("retry-after", " 0.5", Some(Duration::from_millis(500))),
            ("retry-after-ms", "20", Some(Duration::from_millis(20))),
            ("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT", Some(Duration::from_secs(10))),
            ("retry-after", "Sun, 06 Nov 1994 08:49:27 GMT", Some(Duration::ZERO)),
            ("retry-after", "-1", None),
            ("retry-after", "1e400", None),
            ("retry-after", "NaN", None),
            ("retry-after", "soon", None),
            ("x", "3", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(retry_after(&headers, now), expected, "{name}: {value}");
        }
    }

    #[test]
    fn what_a_provider_says_is_found_in_every_usual_form() {
        for (body, expected) in [
            (r#"{"error": {"message": "m", "code": 429}}"#, "m"),
            (r#"{"error": "m"}"#, "m"),
            (r#"{"object": "error", "message": "m"}"#, "m"),
            (r#"{"detail": "m"}"#, "m"),
            (r#"[{"error": {"message": "m"}}]"#, "m"),
            ("plain", "plain"),
            (r#"{"other": 1}"#, r#"{"other": 1}"#),
        ] {
            assert_eq!(message(body), expected, "{body}");
        }
        let page = crate::one_line(&message("<html><h1>502</h1>Bad</html>"), 300);
        assert_eq!(page, "502 Bad");
    }

    #[test]
    fn a_key_that_no_header_may_hold_is_an_error_without_the_key() {
        let key = SecretString::from("sk-hush\nhush");
        let error = connect(&Model::new("http://localhost:1", "m"), Some(&key)).err().expect("refused");
        assert!(!error.contains("hush"), "{error}");
    }

    #[test]
    fn the_provider_is_installed_once_however_often_it_is_asked_for() {
        install_tls_provider();
        install_tls_provider();
        assert!(rustls::crypto::CryptoProvider::get_default().is_some());
        // Loads the system's certificates; says so if there are none, and never panics.
        if let Err(error) = connect(&Model::new("https://localhost:1", "m"), None) {
            assert!(error.contains("CA certificates"), "{error}");
        }
    }

    #[test]
    fn loopback_addresses_are_never_sent_through_a_proxy() {
        for (url, expected) in [
            ("http://localhost:1/v1", true),
            ("http://127.0.0.2/v1", true),
            ("http://[::1]:8/v1", true),
            ("http://localhost.example/v1", false),
            ("https://10.0.0.1", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).expect("an address")), expected, "{url}");
        }
    }
}
