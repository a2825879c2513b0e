//! HTTP requests to an endpoint: TLS, timeouts, bounded bodies, and errors that keep the server's message.
//!
//! Requests go through reqwest alone; async-openai provides only types. Its own client has no timeouts and retries as
//! long as a server asks for it. It drops the status of errors with an unexpected body, and logs bodies it cannot
//! read. Retries are the task of [`super`].
//!
//! TLS is rustls with ring as its provider. reqwest offers two ways without aws-lc: the platform's verifier or roots
//! passed to it. The platform's is used (on Linux: the system's certificate files, or `SSL_CERT_FILE`), because
//! operators can add their own authorities there. A plain `http://` endpoint needs no certificates on the machine.

use std::time::{Duration, SystemTime};

use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Method, Request, Response, Url, redirect};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

mod body;

use self::body::read_answer;
use super::credentials::{Credentials, Variables};
use super::keys::KeyError;
use super::{api, http_body, provider_errors, retry_after};
use crate::config::{Api, Model};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Redirects within a server per request, at most.
const REDIRECTS_MAX: usize = 3;

/// Size limit of an error body in bytes.
const ERROR_MAX: usize = 16 * 1024;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// Failure of an exchange. Messages contain untrusted text.
#[derive(Debug, thiserror::Error)]
pub enum HttpFailure {
    /// No key is available: nothing was sent.
    #[error("{0}")]
    Key(KeyError),
    /// The gate admitted no request in time: nothing was sent.
    #[error("the model is away, or its limits leave no room in time")]
    NotAdmitted,
    /// No connection was made: nothing was spent.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The connection broke.
    #[error("the connection broke: {why}")]
    ConnectionLost {
        /// The error of the connection.
        why: String,
        /// Bytes of an answer had arrived.
        received: bool,
    },
    /// The call timed out.
    #[error("no answer in time")]
    NoAnswer {
        /// Bytes that had arrived.
        received: Received,
    },
    /// An answer with a status other than success, or an error inside a successful one.
    #[error("{}", provider_errors::status_text(*.status, "", .body))]
    Status {
        /// HTTP status, or the status of the error inside.
        status: u16,
        /// Pause that the server asks for.
        wait: Option<Duration>,
        /// The body, at most 16 KiB of it.
        body: String,
        /// Cause of the failure, as far as another request has shown it.
        cause: FailureCause,
    },
    /// The operator's limits of the model leave no room for a further request of the call; nothing was sent.
    #[error("the model's limits, requests_per_minute or tokens_per_minute, are used up")]
    Limited {
        /// Time until they leave room.
        wait: Duration,
    },
    /// Success, with an unexpected body.
    #[error("{0}")]
    InvalidBody(String),
    /// Success, with a body of no API: empty, or a page of HTML.
    #[error("{}", provider_errors::format_failure(.why, "", .said))]
    NotAnApi {
        /// Kind of the body, in words.
        why: String,
        /// Text of a page.
        said: String,
    },
}

/// Cause of a failure with an ambiguous status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureCause {
    /// No other request was tried.
    Unknown,
    /// Another request failed as well.
    Server,
    /// Another request was answered.
    Request,
}

/// Bytes of a body that arrived before a timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// None.
    Nothing,
    /// Only keep-alives: comments of a stream, white space.
    KeepAlives,
    /// A part of an answer.
    Part,
}

/// Callback for the first part of a streamed reply.
pub(super) type OnReplyStart<'a> = &'a (dyn Fn() + Send + Sync);

pub(super) struct HttpAnswer {
    pub(super) value: Value,
    pub(super) is_stream: bool,
}

/// Installs ring as the process's TLS provider, unless one is installed already. May be called any number of times.
pub fn install_tls_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails only if another thread was faster, and then a provider is installed.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

/// Builds the HTTP client for an address: no redirects, no proxy on this machine.
pub fn client(url: &str) -> Result<reqwest::Client, String> {
    install_tls_provider();
    let url = Url::parse(url).map_err(|error| format!("not an address: {error}"))?;
    let mut builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        // A key goes only to the server that it was configured for; `answer` follows redirects within it.
        .redirect(redirect::Policy::none())
        .user_agent(concat!("patchboard/", env!("CARGO_PKG_VERSION")));
    if url.scheme() == "http" {
        builder = builder.tls_certs_only([]);
    }
    if is_loopback(&url) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| {
        format!(
            "no TLS client: {}; are the system's CA certificates installed (or SSL_CERT_FILE set)?",
            error_chain(&error)
        )
    })
}

/// Connection to a model's server, with the address and the headers of its requests.
pub(super) struct Endpoint {
    http: reqwest::Client,
    base: Url,
    api: Api,
    pub(super) access: Credentials,
    headers: HeaderMap,
}

impl Endpoint {
    /// Reads the address and the credentials of a model.
    /// An error omits values that may be secret.
    pub(super) fn new(model: &Model, variables: &Variables) -> Result<Self, String> {
        let access = Credentials::new(model, variables)?;
        let base = Url::parse(&model.url).map_err(|error| format!("not an address: {error}"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in access.headers() {
            let value = HeaderValue::try_from(value).map_err(|_| format!("the value of header {name} is none"))?;
            let name = HeaderName::try_from(name).map_err(|_| format!("{name:?} is no name for a header"))?;
            headers.insert(name, sensitive(value));
        }
        Ok(Self { http: client(&model.url)?, base, api: model.api, access, headers })
    }

    /// Sends a JSON body and reads the whole answer, one JSON value or a stream of events. If the server rejects the
    /// key of a program, the program is run again. Calls `begun` at the first part of a streamed reply.
    pub(super) async fn post(
        &self,
        path: &str,
        body: Vec<u8>,
        deadline: Instant,
        begun: OnReplyStart<'_>,
    ) -> Result<HttpAnswer, HttpFailure> {
        let key = self.key(None, deadline).await?;
        let request = self.request(Method::POST, path, key.as_ref(), body.clone())?;
        let mut answered = answer(&self.http, self.api, request, deadline, begun).await;
        if self.access.keys.can_renew() && matches!(answered, Err(HttpFailure::Status { status: 401, .. })) {
            let renewed = self.key(key.as_ref(), deadline).await?;
            let request = self.request(Method::POST, path, renewed.as_ref(), body)?;
            answered = answer(&self.http, self.api, request, deadline, begun).await;
        }
        answered.map_err(|failure| match failure {
            // Masks before any part of it is truncated.
            HttpFailure::Status { status, wait, body, cause: fault } => {
                HttpFailure::Status { status, wait, body: self.access.mask(&body), cause: fault }
            }
            failure => failure,
        })
    }

    pub(super) async fn get(&self, path: &str, deadline: Instant) -> Result<Response, HttpFailure> {
        let key = self.key(None, deadline).await?;
        sent(&self.http, self.request(Method::GET, path, key.as_ref(), Vec::new())?, deadline).await
    }

    /// Returns the key to send. A failure of the program that prints it may be temporary.
    async fn key(
        &self,
        refused: Option<&SecretString>,
        deadline: Instant,
    ) -> Result<Option<SecretString>, HttpFailure> {
        let key = timeout_at(deadline, self.access.keys.get(refused)).await;
        key.unwrap_or_else(|_| Err(KeyError::transient("api_key_command gave no key in time")))
            .map_err(HttpFailure::Key)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        key: Option<&SecretString>,
        body: Vec<u8>,
    ) -> Result<Request, HttpFailure> {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
        if self.access.query().next().is_some() {
            url.query_pairs_mut().extend_pairs(self.access.query());
        }
        let mut request = Request::new(method, url);
        *request.headers_mut() = self.headers.clone();
        if let Some(key) = key {
            let (name, value) = match self.api {
                Api::Chat | Api::Responses => (AUTHORIZATION, format!("Bearer {}", key.expose_secret())),
                Api::Anthropic => (X_API_KEY, key.expose_secret().to_owned()),
            };
            let value = HeaderValue::try_from(value).map_err(|_| {
                HttpFailure::Key(KeyError::permanent("the key holds characters that no header may hold"))
            })?;
            request.headers_mut().entry(name).or_insert(sensitive(value));
        }
        if self.api == Api::Anthropic {
            request.headers_mut().entry(ANTHROPIC_VERSION).or_insert(HeaderValue::from_static("2023-06-01"));
        }
        if !body.is_empty() {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(body.into());
        }
        Ok(request)
    }
}

fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Sends a request and reads the whole answer, one JSON value or a stream of events.
async fn answer(
    http: &reqwest::Client,
    api: Api,
    request: Request,
    deadline: Instant,
    begun: OnReplyStart<'_>,
) -> Result<HttpAnswer, HttpFailure> {
    let mut url = request.url().clone();
    let mut next = request.try_clone();
    let mut response = sent(http, request, deadline).await?;
    for _ in 0..REDIRECTS_MAX {
        let Some(within) = same_server_redirect(&url, &response) else { break };
        let Some(mut again) = next.take() else { break };
        *again.url_mut() = within.clone();
        url = within;
        next = again.try_clone();
        response = sent(http, again, deadline).await?;
    }
    let (status, headers) = (response.status(), response.headers().clone());
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let refused = |status: u16, body: String| {
        let wait = retry_after::requested_pause(status, &headers, &body, SystemTime::now());
        HttpFailure::Status { status, wait, body, cause: FailureCause::Unknown }
    };
    if !status.is_success() {
        let read = timeout_at(deadline, read(response, ERROR_MAX)).await;
        let (bytes, _) = read.map(Result::unwrap_or_default).unwrap_or_default();
        let bytes = http_body::inflate(bytes, Some(header(CONTENT_ENCODING)), ERROR_MAX).unwrap_or_default();
        let mut body = http_body::text(&bytes, header(CONTENT_TYPE));
        if status.is_redirection() && !header(LOCATION).is_empty() {
            body = redirected(&url, api, header(LOCATION));
        }
        return Err(refused(status.as_u16(), body));
    }
    let (kind, encoding) = (header(CONTENT_TYPE), header(CONTENT_ENCODING));
    let answered = read_answer(response, (api, kind, encoding), deadline, begun).await;
    let answered = answered.map_err(|failure| match failure {
        HttpFailure::NotAnApi { said, .. } if status != 200 => {
            HttpFailure::NotAnApi { why: format!("the server answered {status} without an answer of a model"), said }
        }
        failure => failure,
    })?;
    let Some(status) = provider_errors::embedded_error_status(&answered.value) else { return Ok(answered) };
    let body = answered.value.to_string();
    Err(match status {
        Some(status) => refused(status, body),
        None => HttpFailure::InvalidBody(format!("the answer is an error: {}", provider_errors::error_message(&body))),
    })
}

async fn sent(http: &reqwest::Client, request: Request, deadline: Instant) -> Result<Response, HttpFailure> {
    let response = timeout_at(deadline, http.execute(request)).await;
    let response = response.map_err(|_| HttpFailure::NoAnswer { received: Received::Nothing })?;
    response.map_err(|error| network_failure(error, false))
}

/// Returns the target of a redirect within the same server.
fn same_server_redirect(url: &Url, response: &Response) -> Option<Url> {
    let is_same_request = matches!(response.status().as_u16(), 301 | 302 | 307 | 308);
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    url.join(location).ok().filter(|target| is_same_request && target.origin() == url.origin() && target != url)
}

/// Describes a redirect: another base of the endpoint, or no endpoint. Omits its query.
fn redirected(url: &Url, api: Api, location: &str) -> String {
    let Ok(mut target) = url.join(location) else { return "it redirects to what is no address".to_owned() };
    target.set_query(None);
    target.set_fragment(None);
    match target.as_str().trim_end_matches('/').strip_suffix(api::path(api)) {
        Some(base) => format!("it redirects to {base}: put that as url into the configuration"),
        None => format!("it redirects to {target}, which serves no model: is a login needed, or a proxy between?"),
    }
}

/// Reads a body up to `max` bytes; returns true if that is the whole body.
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

fn network_failure(error: reqwest::Error, received: bool) -> HttpFailure {
    let connect = error.is_connect();
    let why = error_chain(&error.without_url());
    if connect { HttpFailure::Connect(why) } else { HttpFailure::ConnectionLost { why, received } }
}

/// Formats an error with its causes, which reqwest's own text omits.
pub fn error_chain(error: &dyn std::error::Error) -> String {
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

/// Returns true if an address is on this machine.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
