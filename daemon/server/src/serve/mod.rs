//! `patchboard serve`: runs many boards, and serves them to people, programs and other agents.
//!
//! Owns the daemon's side: addresses, tokens, limits, and the translation between requests and the runtime. Makes no
//! decision about a board.
//!
//! * `service`: running boards and boards at rest, independent of the transport.
//! * [`agui`]: AG-UI events of a board; [`mcp`]: the MCP server of a worker.
//! * `files`: file access to a board's directory, for HTTP and MCP.
//! * `tls`: TLS, a feature.
//! * `retention`: retention of ended boards; `reload`: configuration reload.
//! * [`instance_lock`]: instance lock of a data directory; [`host`]: a daemon for the agents that share one directory.
//! * `middleware`, `http`, `problem`, `routes`: the API; `idempotency_keys`, `idempotency_status`: idempotency keys.
//! * `caller`, `origins`, [`access`], [`tokens`]: authorization; `limits`, `processor_quota`: limits.
//! * `metrics`, `access_log`: metrics and request log.

pub mod access;
mod access_log;
pub mod agui;
mod caller;
mod connections;
mod files;
pub mod host;
mod http;
mod idempotency_keys;
mod idempotency_status;
pub mod instance_lock;
mod json;
mod limits;
mod long_poll;
pub mod mcp;
mod metrics;
mod middleware;
mod origins;
pub(crate) mod problem;
pub(crate) mod processor_quota;
mod rate_key;
mod reload;
mod request_ids;
pub(crate) mod retention;
mod routes;
pub(crate) mod service;
pub mod settings;
pub(crate) mod storage_health;
mod storage_recovery;
#[cfg(feature = "tls")]
mod tls;
pub mod tokens;
mod unread_body;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use clap::Args;
use patchboard_agents::registry::InlinePrograms;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::connections::{ConnectionAcceptor, Connections};
pub use self::http::{KEY_FORM, is_key};
use self::middleware::Requests;
use self::origins::{OriginGuard, OriginPolicy};
use self::problem::{Code, Problem};
use self::reload::Reload;
use self::retention::Retention;
use self::service::Daemon;
use self::settings::{Flags, Settings};
use crate::failure::{Exit, Failure, Outcome};
use crate::interrupts::{Interrupt, Interrupts};
use crate::model_arguments::ModelArguments;
use crate::notify::Notifier;
use crate::notify::feed::ChangeFeed;
use crate::notify::settings::Settings as NotifySettings;

/// Time limit for requests under way at shutdown.
const DRAIN: Duration = Duration::from_secs(20);

const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// Run boards as a daemon, reached over HTTP
///
/// Resumes every board of the data directory that has not ended. SIGTERM or Ctrl-C shuts the daemon down: committed
/// steps are durable, and calls under way are repeated after the next start. SIGHUP reloads the configuration.
///
/// On a loopback address callers need no token and have all permissions, unless tokens are required. On any other
/// address the daemon starts only if there are tokens (`patchboard token create`). Settings come from the table `serve`
/// of patchboard.toml, the environment, and flags, in rising precedence.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard serve
  patchboard serve --listen 127.0.0.1:8080 --data-dir /var/lib/patchboard
  curl -s localhost:7733/v1/openapi.json | jq '.paths | keys'
  curl -s localhost:7733/v1/boards -H 'Content-Type: application/json' -d @board.json")]
pub struct Arguments {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    models: ModelArguments,
}

/// Runs a daemon until it is stopped. Calls `announce` once requests are accepted, with scheme and address.
pub async fn run(
    arguments: &Arguments,
    data_dir: &Path,
    config: Option<&Path>,
    announce: impl FnOnce(&str, SocketAddr) -> Result<(), Failure>,
) -> Outcome {
    let registry = arguments.models.build_registry(config, InlinePrograms::Denied)?;
    let settings = Settings::read(registry.config().serve.clone(), &arguments.flags)?;
    let retention = Retention::read(registry.config().retention.clone())?;
    let notify = NotifySettings::configured(config)?;
    let receivers = notify.iter().flat_map(|notify| &notify.receivers);
    let feeds = receivers.map(|receiver| Arc::new(ChangeFeed::new(receiver.kind()))).collect();
    let mut interrupts = Interrupts::new()?;
    let is_open = settings.is_open();
    let daemon = Arc::new(Daemon::start(data_dir, registry, is_open, settings.limits, feeds).await?);
    if !is_open && daemon.tokens.is_empty(daemon.clock.now()).await? {
        let message = format!("{} is reached by tokens, and there are none", settings.listen);
        return Err(Failure::invalid_input("no_tokens", message)
            .help("make one with `patchboard token create --scope admin`, or listen on 127.0.0.1"));
    }
    let notifier = Notifier::begin(&daemon, notify, data_dir).await?;
    let RunningServer { scheme, address, origin_policy, handle, serving, _threads } = listen(&daemon, &settings)?;
    let reload = Reload {
        arguments,
        config,
        initial_registry: daemon.registry.current(),
        address,
        origin_policy,
        rest_after: watch::Sender::new(settings.rest_after),
        retention: watch::Sender::new(retention),
        settings,
    };
    // Printed before the recovery: health checks are answered, and a request waits only for its own board.
    announce(scheme, address)?;
    let recovering = async {
        let recovered = daemon.recover().await?;
        if recovered.boards + recovered.failed > 0 {
            tracing::info!(boards = recovered.boards, failed = recovered.failed, "boards are recovered");
        }
        tokio::join!(
            retention::run_retention(Arc::clone(&daemon), reload.retention.subscribe()),
            daemon.evict_idle_boards(reload.rest_after.subscribe()),
            daemon.log_outages(),
            daemon.tokens.watch(),
            daemon.expire_leases(),
            daemon.log_damaged_boards(),
            daemon.resume_interrupted_boards(),
            notifier.run()
        );
        Ok::<_, Failure>(())
    };
    let mut recovering = pin!(recovering);
    loop {
        tokio::select! {
            failed = &mut recovering => {
                failed?;
                break;
            }
            interrupt = interrupts.next() => match interrupt {
                Interrupt::Stop => break,
                Interrupt::HangUp => reload.reload(&daemon),
            },
        }
    }
    tracing::info!("shutting down: interrupt again to force");
    daemon.begin_shutdown();
    handle.graceful_shutdown(Some(DRAIN));
    let stopping = async {
        // Requests under way keep their boards until they are answered.
        let served = serving.await;
        daemon.stop().await;
        served
    };
    tokio::select! {
        served = stopping => match served {
            Ok(Err(error)) => Err(unreachable_address(address, &error)),
            _ => Ok(Exit::Done),
        },
        // Durable steps are safe.
        () = interrupts.stop() => Ok(Exit::Done),
    }
}

/// Threads that read requests and send responses.
const SERVING_THREADS: usize = 2;

/// Threads for network I/O. Requests are handled on the threads of the boards, so that a health check never waits for a
/// board.
struct IoThreads(Option<Runtime>);

impl IoThreads {
    fn new() -> io::Result<Self> {
        let mut threads = Builder::new_multi_thread();
        threads.worker_threads(SERVING_THREADS).thread_name("serving").enable_all();
        Ok(Self(Some(threads.build()?)))
    }

    fn spawn<F: Future<Output: Send> + Send + 'static>(&self, serving: F) -> JoinHandle<F::Output> {
        self.0.as_ref().expect("they are there until they are dropped").spawn(serving)
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        if let Some(threads) = self.0.take() {
            threads.shutdown_background();
        }
    }
}

/// Daemon with an open listener.
struct RunningServer {
    scheme: &'static str,
    address: SocketAddr,
    origin_policy: watch::Sender<OriginPolicy>,
    handle: axum_server::Handle<SocketAddr>,
    serving: JoinHandle<io::Result<()>>,
    _threads: IoThreads,
}

/// Binds the address of the settings and starts to serve.
fn listen(daemon: &Arc<Daemon>, settings: &Settings) -> Result<RunningServer, Failure> {
    let unreachable = |error: io::Error| unreachable_address(settings.listen, &error);
    let listener = std::net::TcpListener::bind(settings.listen).map_err(unreachable)?;
    let address = listener.local_addr().map_err(unreachable)?;
    let threads = IoThreads::new().map_err(unreachable)?;
    let handle = axum_server::Handle::new();
    let mut server = axum_server::from_tcp(listener)
        .map_err(unreachable)?
        .handle(handle.clone())
        .first_request_timeout(HEAD_TIMEOUT)
        // One request at a time per connection, so that the connection limit bounds the requests under way.
        .http1_only();
    server.http_builder().http1().header_read_timeout(HEAD_TIMEOUT).max_buf_size(settings.limits.head_bytes);
    let origin_policy = watch::Sender::new(settings.origin_policy(address));
    let app = app(Arc::clone(daemon), origin_policy.subscribe());
    let connections = Connections::new(settings.limits.connections);
    let admission = ConnectionAcceptor { connections, shares: Arc::clone(&daemon.limits.shares) };
    let make = app.into_make_service();
    #[cfg(feature = "tls")]
    let (scheme, serving) = match &settings.tls {
        Some(files) => {
            let config = files.read()?;
            files.clone().follow(config.clone()).map_err(|error| unreachable_address(address, &error))?;
            let acceptor = axum_server::tls_rustls::RustlsAcceptor::new(config).acceptor(admission);
            ("https", threads.spawn(server.acceptor(acceptor).serve(make)))
        }
        None => ("http", threads.spawn(server.acceptor(admission).serve(make))),
    };
    #[cfg(not(feature = "tls"))]
    let (scheme, serving) = ("http", threads.spawn(server.acceptor(admission).serve(make)));
    Ok(RunningServer { scheme, address, origin_policy, handle, serving, _threads: threads })
}

fn unreachable_address(address: SocketAddr, error: &io::Error) -> Failure {
    Failure::failed("listen_failed", format!("{address} cannot be listened on: {error}"))
        .help("name another address with --listen, or end the process that has this one")
}

fn app(daemon: Arc<Daemon>, origin_policy: watch::Receiver<OriginPolicy>) -> Router {
    let (api, description) = routes::all();
    let description = Arc::new(LazyLock::new(move || {
        Bytes::from(serde_json::to_vec(&description).expect("a description has string keys"))
    }));
    let api = api.route(
        "/v1/openapi.json",
        get(move || async move { ([(CONTENT_TYPE, "application/json")], Bytes::clone(&description)) }),
    );
    let requests = Requests::new(Arc::clone(&daemon), OriginGuard::new(origin_policy));
    Router::new()
        .route("/healthz", get(routes::alive))
        .route("/readyz", get(routes::ready).layer(from_fn_with_state(requests.clone(), middleware::on_board_threads)))
        .merge(api.layer(from_fn_with_state(requests.clone(), middleware::authenticated)))
        .fallback(no_such_route)
        .method_not_allowed_fallback(|| async {
            Problem::from_code(Code::NoSuchMethod, "this path takes other methods")
        })
        .with_state(daemon)
        .layer(from_fn_with_state(requests, middleware::every_request))
}

async fn no_such_route() -> Problem {
    Problem::from_code(Code::NoSuchRoute, "nothing is served under this path")
        .help("GET /v1/openapi.json lists what is")
}
