//! Host names of the daemon, and origins of browser pages that may call it.

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::sync::watch;
use tower::{Layer as _, ServiceExt as _};
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer, ExposeHeaders};

use super::problem::{ApiResult, Code, Problem};

/// Response headers exposed to cross-origin pages.
const EXPOSED_HEADERS: [&str; 6] =
    ["correlation-id", "message-id", "in-reply-to", "idempotency-status", "idempotency-replayed", "retry-after"];

/// Lifetime of a preflight result in the browser.
const PREFLIGHT_TIME: Duration = Duration::from_secs(600);

#[derive(Clone, Debug)]
pub(crate) struct OriginPolicy {
    /// Host names of the daemon, without ports.
    pub(crate) hosts: Vec<String>,
    pub(crate) origins: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct OriginGuard {
    policy: watch::Receiver<OriginPolicy>,
    /// CORS for the origins that the operator has listed.
    pages: CorsLayer,
}

impl OriginGuard {
    pub(crate) fn new(policy: watch::Receiver<OriginPolicy>) -> Self {
        let named = policy.clone();
        let is_named = move |origin: &HeaderValue, _: &Parts| {
            let origin = origin.to_str().unwrap_or_default();
            named.borrow().origins.iter().any(|known| known == origin)
        };
        let pages = CorsLayer::new()
            .allow_origin(AllowOrigin::predicate(is_named))
            .allow_methods(AllowMethods::mirror_request())
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(ExposeHeaders::list(EXPOSED_HEADERS.map(HeaderName::from_static)))
            .max_age(PREFLIGHT_TIME);
        Self { policy, pages }
    }
}

/// Rejects a request for another host name or from a foreign page. A browser would send it with the rights
/// of its user.
pub(crate) async fn check_origin(guard: &OriginGuard, request: Request, next: Next) -> Response {
    let entered = check_host_and_origin(&guard.policy.borrow(), request.headers(), request.uri());
    match entered {
        Ok(()) if request.headers().contains_key(ORIGIN) => {
            guard.pages.layer(next).oneshot(request).await.unwrap_or_else(|never| match never {})
        }
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check_host_and_origin(policy: &OriginPolicy, headers: &HeaderMap, uri: &Uri) -> ApiResult<()> {
    let named = headers.get(HOST).and_then(|host| host.to_str().ok()).or_else(|| uri.authority().map(|it| it.as_str()));
    let host = named.map(without_port).unwrap_or_default();
    if !policy.hosts.iter().any(|known| known.eq_ignore_ascii_case(host)) {
        let problem = Problem::from_code(Code::UnknownHost, "this daemon has another name");
        return Err(problem.help("the operator names further hosts under [serve] hosts in patchboard.toml"));
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let is_own = origin.split_once("://").is_some_and(|(_, authority)| Some(authority) == named);
    if is_own || policy.origins.iter().any(|known| known == origin) {
        return Ok(());
    }
    let problem = Problem::from_code(Code::UnknownOrigin, "pages of this origin may not call");
    Err(problem.help("the operator names origins under [serve] origins in patchboard.toml"))
}

/// Returns the host of an authority: `::1` for `[::1]:80`.
fn without_port(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

pub(crate) fn names_of(address: SocketAddr) -> Vec<String> {
    let mut names = vec![address.ip().to_string()];
    if address.ip().is_loopback() || address.ip().is_unspecified() {
        names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    }
    names
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, Uri};

    use super::{OriginPolicy, check_host_and_origin, without_port};

    #[test]
    fn only_requests_by_a_known_name_and_of_a_known_page_come_in() {
        let door = OriginPolicy {
            hosts: vec!["localhost".into(), "::1".into()],
            origins: vec!["https://board.example".into()],
        };
        for (host, origin, code) in [
            ("localhost:7733", None, None),
            ("LOCALHOST", None, None),
            ("[::1]:7733", None, None),
            ("localhost:7733", Some("http://localhost:7733"), None),
            ("localhost:7733", Some("https://board.example"), None),
            ("evil.example", None, Some("unknown_host")),
            ("", None, Some("unknown_host")),
            ("localhost:7733", Some("http://localhost:8000"), Some("unknown_origin")),
            ("localhost:7733", Some("https://evil.example"), Some("unknown_origin")),
            ("localhost:7733", Some("null"), Some("unknown_origin")),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("host", HeaderValue::from_str(host).expect("a header"));
            if let Some(origin) = origin {
                headers.insert("origin", HeaderValue::from_static(origin));
            }
            let entered = check_host_and_origin(&door, &headers, &Uri::from_static("/v1/boards"));
            assert_eq!(entered.err().map(|problem| problem.code), code, "{host} {origin:?}");
        }
    }

    #[test]
    fn a_port_is_no_part_of_a_name() {
        for (authority, host) in [("a", "a"), ("a:1", "a"), ("[::1]:1", "::1"), ("[::1]", "::1"), ("", "")] {
            assert_eq!(without_port(authority), host);
        }
    }
}
