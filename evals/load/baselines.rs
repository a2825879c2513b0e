//! Baselines for the daemon: requests that do nothing, and the same work without HTTP.

use std::error::Error;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use patchboard_kernel::blueprint::Blueprint;
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::{Agent, Call, CallResult, Reply};
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::daemon::Daemon;

/// Measures the requests per second of a number of clients that request nothing.
pub(crate) async fn requests(daemon: &Daemon, clients: usize, lasts: Duration) -> f64 {
    let (asked, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (http, url, asked) = (daemon.http.clone(), format!("{}/healthz", daemon.url), Arc::clone(&asked));
        tasks.spawn(async move {
            while begun.elapsed() < lasts {
                let answer = http.get(&url).send().await;
                if answer.is_ok_and(|answer| answer.status().is_success()) {
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    asked.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

/// Agent that answers like the remote workers, within the process.
#[derive(Default)]
struct Counter {
    answered: AtomicU64,
}

impl Agent for Counter {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        Box::pin(async move {
            let shown = |(place, value): (&jsonptr::Pointer, &patchboard_kernel::tree::Node)| {
                (place.as_str() == "/count").then(|| value.to_value())
            };
            let now = call.context.values().find_map(shown).and_then(|count| count.as_u64()).unwrap_or_default();
            self.answered.fetch_add(1, Ordering::Relaxed);
            let patch = json!([
                {"op": "replace", "path": "/count", "value": now + 1},
                {"op": "replace", "path": "/label", "value": format!("the count of {}", call.idempotency_key)},
            ]);
            Ok(Reply::new(patch.to_string(), None))
        })
    }
}

/// Measures the commits per second of a number of boards in this process, on a disk like the daemon's.
pub(crate) async fn commits(
    source: &Blueprint,
    boards: usize,
    directory: &Path,
    lasts: Duration,
) -> Result<f64, Box<dyn Error>> {
    let (journal, agent) = (patchboard_storage::open(directory)?, Arc::new(Counter::default()));
    let runtime = Runtime::start(journal, Options::new(agent.clone()), PLANS).await?;
    let begun = Instant::now();
    for _ in 0..boards {
        runtime.create(source.clone(), Value::Null, None).await?;
    }
    tokio::time::sleep(lasts).await;
    let rate = agent.answered.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    runtime.shutdown().await;
    Ok(rate)
}
