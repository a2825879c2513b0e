//! Exports traces to an OpenTelemetry collector: OTLP over HTTP with protobuf.
//!
//! The standard's environment variables (`OTEL_EXPORTER_OTLP_ENDPOINT` and others) configure everything; without an
//! endpoint nothing is exported. Requests use our own client, so the program has only one TLS implementation.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use patchboard_llm::install_tls_provider;
use reqwest::redirect;
use tokio::runtime::{Builder, Handle, Runtime};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

const SERVICE: &str = "patchboard";

const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time to export pending spans at the end of the process.
const FLUSH: Duration = Duration::from_secs(5);

/// Maximum bytes of a collector's response.
const ANSWER_MAX: usize = 64 * 1024;

/// Exporter of traces; exports the remaining spans when dropped.
pub(crate) struct Exporter {
    provider: SdkTracerProvider,
    /// Runtime for the requests.
    threads: Option<Runtime>,
}

/// Starts exporting, if the environment names an endpoint.
pub(crate) fn start() -> Result<Option<Exporter>, String> {
    let either = |name: &str| {
        let all = [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
        all.into_iter().find_map(set)
    };
    let is_off = set("OTEL_SDK_DISABLED".into()).is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || set("OTEL_TRACES_EXPORTER".into()).is_some_and(|exporter| exporter != "otlp");
    let Some(endpoint) = either("ENDPOINT").filter(|_| !is_off) else { return Ok(None) };
    if let Some(protocol) = either("PROTOCOL").filter(|protocol| protocol != "http/protobuf") {
        return Err(format!("OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}: only http/protobuf is spoken"));
    }
    let timeout = either("TIMEOUT").and_then(|timeout| timeout.parse().ok()).map_or(TIMEOUT, Duration::from_millis);
    let threads = Builder::new_multi_thread().worker_threads(1).thread_name("otlp").enable_all().build();
    let threads = threads.map_err(|error| format!("no thread to export on: {error}"))?;
    let client = Client { http: connect(&endpoint, timeout)?, threads: threads.handle().clone() };
    let exporter = SpanExporter::builder().with_http().with_http_client(client).build();
    let exporter = exporter.map_err(|error| error.to_string())?;
    let provider = SdkTracerProvider::builder().with_resource(resource()).with_batch_exporter(exporter).build();
    Ok(Some(Exporter { provider, threads: Some(threads) }))
}

impl Exporter {
    /// Returns the layer that exports the spans of agents and models, independent of the log level.
    pub(crate) fn layer<S: Subscriber + for<'span> LookupSpan<'span>>(&self) -> impl Layer<S> + use<S> {
        let ours =
            Targets::new().with_targets(["patchboard_agents", "patchboard_llm"].map(|name| (name, LevelFilter::INFO)));
        tracing_opentelemetry::layer().with_tracer(self.provider.tracer(SERVICE)).with_filter(ours)
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // The exporter logs an unreachable collector; the process waits for it no longer than `FLUSH`.
        drop(self.provider.shutdown_with_timeout(FLUSH));
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

/// Returns an environment variable; an empty one counts as unset.
fn set(name: String) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the exporting service: from the environment, or our own name and version.
fn resource() -> Resource {
    let is_named = set("OTEL_SERVICE_NAME".into()).is_some()
        || set("OTEL_RESOURCE_ATTRIBUTES".into()).is_some_and(|all| all.contains("service.name="));
    let resource =
        Resource::builder().with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if is_named { resource.build() } else { resource.with_service_name(SERVICE).build() }
}

fn connect(endpoint: &str, timeout: Duration) -> Result<reqwest::Client, String> {
    install_tls_provider();
    let mut builder = reqwest::Client::builder().timeout(timeout).redirect(redirect::Policy::none());
    if endpoint.starts_with("http://") {
        // HTTP needs no certificates on the machine.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| format!("no TLS client: {error}"))
}

/// HTTP client for the exporter's own thread, which has no tokio runtime.
#[derive(Debug)]
struct Client {
    http: reqwest::Client,
    threads: Handle,
}

impl HttpClient for Client {
    fn send_bytes<'life, 'future>(
        &'life self,
        request: http::Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<http::Response<Bytes>, HttpError>> + Send + 'future>>
    where
        'life: 'future,
        Self: 'future,
    {
        let http = self.http.clone();
        let sent = self.threads.spawn(exchange(http, request));
        Box::pin(async move { sent.await? })
    }
}

async fn exchange(http: reqwest::Client, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
    let mut answer = http.execute(request.try_into()?).await?;
    let mut built = http::Response::builder().status(answer.status());
    if let Some(headers) = built.headers_mut() {
        headers.extend(answer.headers().clone());
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if body.len() + chunk.len() > ANSWER_MAX {
            return Err("the collector's answer is too long".into());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(built.body(body.into())?)
}
