//! Remote workers that count, and readers that follow the counts: records acknowledged commits and their delays.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;

/// Commit, identified by its board and record.
type Commit = (usize, u64);

#[derive(Default)]
pub(crate) struct Observations {
    /// Acknowledged commits, with the version that the daemon returned.
    acknowledged: Mutex<HashMap<Commit, u64>>,
    /// Times at which the answers of commits were sent.
    sent: Mutex<HashMap<Commit, Instant>>,
    /// Times at which readers saw commits.
    seen: Mutex<HashMap<Commit, Instant>>,
    /// Last record seen by the reader of a board.
    last_seen: Mutex<HashMap<usize, u64>>,
    is_over: AtomicBool,
    refused: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Observations {
    /// Returns the number of acknowledged commits.
    pub(crate) fn commits(&self) -> usize {
        lock(&self.acknowledged).len()
    }

    /// Returns the number of answers that were neither committed nor lost with the daemon.
    pub(crate) fn rejected(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the acknowledged commits of a board: records with their versions.
    pub(crate) fn of_board(&self, board: usize) -> HashMap<u64, u64> {
        let all = lock(&self.acknowledged);
        all.iter().filter(|((of, _), _)| *of == board).map(|((_, seq), version)| (*seq, *version)).collect()
    }

    /// Returns the delays from sending a proposal to its event at a reader, in milliseconds, sorted.
    pub(crate) fn delays(&self) -> Vec<f64> {
        let (sent, seen) = (lock(&self.sent), lock(&self.seen));
        let delay = |(commit, sent): (&Commit, &Instant)| {
            seen.get(commit).map(|seen| seen.saturating_duration_since(*sent).as_secs_f64() * 1000.0)
        };
        let mut delays: Vec<f64> = sent.iter().filter_map(delay).collect();
        delays.sort_by(f64::total_cmp);
        delays
    }

    /// Lets workers and readers run until [`Observations::stop`].
    pub(crate) fn resume(&self) {
        self.is_over.store(false, Ordering::Release);
    }

    /// Signals workers and readers to end.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    fn is_running(&self) -> bool {
        !self.is_over.load(Ordering::Acquire)
    }
}

/// Starts workers and readers of boards; they run until [`Observations::stop`] or until the daemon is gone.
pub(crate) fn begin(
    http: &Client,
    url: &str,
    boards: &[String],
    workers: usize,
    requests: Requests,
    done: &Arc<Observations>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for number in 0..workers {
        let at = number % boards.len();
        let path = format!("{url}/v1/boards/{}/leases", boards[at]);
        tasks.spawn(count(http.clone(), path, at, requests, Arc::clone(done)));
    }
    for (at, board) in boards.iter().enumerate() {
        let path = format!("{url}/v1/boards/{board}/events");
        tasks.spawn(read(http.clone(), path, at, Arc::clone(done)));
    }
    tasks
}

/// Leased call, as far as the workers use it.
#[derive(Deserialize)]
struct Lease {
    lease: String,
    shown: Shown,
}

/// Values of the view.
#[derive(Deserialize)]
struct Shown {
    #[serde(rename = "/count")]
    count: u64,
}

/// Response to a reply.
#[derive(Deserialize)]
struct Answer {
    outcome: String,
    seq: u64,
    version: Option<u64>,
    #[serde(default)]
    next: Option<Lease>,
}

/// Requests of a worker per commit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Requests {
    /// The reply leases the next call.
    One,
    /// A lease, and a reply.
    Two,
}

/// Leases and answers calls, one after the other.
async fn count(http: Client, path: String, board: usize, requests: Requests, done: Arc<Observations>) {
    let mut next = None;
    // A leased call is answered before the end.
    while done.is_running() || next.is_some() {
        let Ok(leased) = (match next.take() {
            Some(lease) => Ok(Some(lease)),
            None => lease(&http, &path).await,
        }) else {
            return;
        };
        let Some(Lease { lease: named, shown: Shown { count: now } }) = leased else { continue };
        let patch = json!([
            {"op": "replace", "path": "/count", "value": now + 1},
            {"op": "replace", "path": "/label", "value": format!("the count of {named}")},
        ]);
        let mut body = json!({"worker": "counter", "patch": patch});
        if matches!(requests, Requests::One) && done.is_running() {
            body["next"] = json!({"wait": 2, "seconds": 30});
        }
        let sent = Instant::now();
        let Ok(answer) = http.post(format!("{path}/{named}/answer")).json(&body).send().await else { return };
        let Ok(answer) = answer.bytes().await else { return };
        match serde_json::from_slice(&answer) {
            Ok(Answer { outcome, seq, version: Some(version), next: leased }) if outcome == "committed" => {
                lock(&done.acknowledged).insert((board, seq), version);
                lock(&done.sent).insert((board, seq), sent);
                next = leased;
            }
            _ => drop(done.refused.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// Leases the next call; `None` if none came in time.
async fn lease(http: &Client, path: &str) -> reqwest::Result<Option<Lease>> {
    let wanted = json!({"worker": "counter", "wait": 2, "seconds": 30});
    let answer = http.post(path).json(&wanted).send().await?.error_for_status()?;
    if answer.status() == StatusCode::NO_CONTENT {
        return Ok(None);
    }
    answer.json().await.map(Some)
}

/// Reads the events of a board, from the last one seen.
async fn read(http: Client, path: String, board: usize, done: Arc<Observations>) {
    let last = lock(&done.last_seen).get(&board).copied();
    let mut request = http.get(&path);
    if let Some(last) = last {
        request = request.header("last-event-id", last.to_string());
    }
    let Ok(mut stream) = request.send().await else { return };
    let mut text = String::new();
    while done.is_running() {
        let Ok(more) = tokio::time::timeout(Duration::from_millis(200), chunk(&mut stream)).await else { continue };
        let Some(more) = more else { return };
        let now = Instant::now();
        text.push_str(&more);
        while let Some(end) = text.find("\n\n") {
            let event: String = text.drain(..end + 2).collect();
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            let Some(seq) = field("id:").and_then(|id| id.parse().ok()) else { continue };
            lock(&done.last_seen).insert(board, seq);
            if field("event:") == Some("committed") {
                lock(&done.seen).insert((board, seq), now);
            }
        }
    }
}

async fn chunk(stream: &mut Response) -> Option<String> {
    stream.chunk().await.ok().flatten().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
