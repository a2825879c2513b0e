//! Counting and logging of requests.

use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::response::Response;

use super::metrics::Metrics;

/// Route label of requests that match no route.
const NO_ROUTE: &str = "none";

/// Counts and logs a request when its response begins. Headers and query strings are never logged.
pub(crate) async fn log_request<F: Future<Output = Response>>(
    metrics: &Metrics,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = method_name(request.method());
    let path = request.uri().path().to_owned();
    let response = next(request).await;
    let (status, seconds) = (response.status().as_u16(), began.elapsed().as_secs_f64());
    let route = route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
    metrics.count_request(route, method, status, seconds);
    tracing::debug!(method, path, status, seconds, "answered");
    response
}

/// Returns a method as a metric label. Unknown methods share one label, as clients can invent any number.
fn method_name(method: &Method) -> &'static str {
    let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    known.into_iter().find(|name| *name == method.as_str()).unwrap_or("other")
}
