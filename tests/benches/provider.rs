//! Measures work behind a model that is rate-limited or unavailable. Cases: forty items at a rate limit, the fairness
//! between boards that share a model, and the cost of boards that wait for one. Times are wall-clock times, against a
//! server in this process.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use patchboard_agents::config::{Config, Environment, Model};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_endpoint::{Endpoint, ScriptedResponse};
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::record::Kind;
use patchboard_protocols::PLANS;
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal as _;
use patchboard_storage::sqlite::SqliteJournal;
use patchboard_tests::measure::{Bench, Goal, Row, run};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Number of concurrent requests that counts as a stampede, of 10,000 boards that wait for one model.
const AT_ONCE: f64 = 1000.0;

/// Items of a board behind a rate limit.
const ITEMS: usize = 40;
/// Factor by which a board may exceed the time that the rate limit requires.
const SLACK: f64 = 1.3;
/// Number of boards that share one model, and the items of each.
const SHARING: (usize, usize) = (30, 6);
/// Number of boards that wait for one model.
const WAITING: usize = 10_000;
/// Duration of the measurement of waiting boards.
const IDLE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    run("provider", |bench| {
        for (rate, after) in [(4, 1), (4, 2), (4, 25), (2, 1), (2, 2), (2, 25)] {
            let size = format!("{rate}/s, Retry-After {after}");
            if bench.wants("limit", &size) && (after < 25 || !bench.options.quick) {
                limited(bench, &size, rate, after);
            }
        }
        if bench.wants("share", "30 boards") {
            shared(bench);
        }
        if bench.wants("idle", "10,000 boards") && !bench.options.quick {
            idle(bench);
        }
    })
}

/// Measures one board with items that all need the model at once.
fn limited(bench: &mut Bench, size: &str, rate: u32, after: u32) {
    let server = Server::limited(rate, after);
    let (took, lost) = block_on(async {
        let place = Place::new(&server.endpoint.url);
        let began = Instant::now();
        let board = place.board(ITEMS).await;
        board.wait_for_end().await.expect("the board ends");
        let results = results(&board);
        (began.elapsed().as_secs_f64(), ITEMS - results)
    });
    let most = SLACK * (ITEMS as f64 / f64::from(rate) + f64::from(after));
    bench.add(Row::number("limit", size, "40 items, one request each", took, "s").goal(Goal::at_most(most, took, "s")));
    bench.add(Row::number("limit", size, "items lost", lost as f64, "").goal(Goal::at_most(0.0, lost as f64, "")));
    let refused = server.refused.load(Ordering::Relaxed);
    bench.add(Row::number("limit", size, "requests refused", refused as f64, ""));
}

/// Measures boards that share a model of ten requests per second. All are waiting when it becomes available.
fn shared(bench: &mut Bench) {
    let server = Server::away(10, 1);
    let (boards, items) = SHARING;
    let waits: Vec<f64> = block_on(async {
        let place = Place::new(&server.endpoint.url);
        let mut waiting = Vec::with_capacity(boards);
        for _ in 0..boards {
            waiting.push(place.board(items).await);
        }
        while waiting.iter().any(|board| board.status().awaiting == 0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server.is_away.store(false, Ordering::Relaxed);
        let began = Instant::now();
        let mut running = tokio::task::JoinSet::new();
        for board in waiting {
            running.spawn(async move {
                board.wait_for_end().await.expect("the board ends");
                assert_eq!(results(&board), items);
                began.elapsed().as_secs_f64()
            });
        }
        running.join_all().await
    });
    let longest = waits.iter().copied().fold(0.0, f64::max);
    let shortest = waits.iter().copied().fold(f64::MAX, f64::min);
    let share = longest / shortest;
    bench.add(
        Row::number("share", "30 boards", "the longest wait beside the shortest", share, "×")
            .goal(Goal::at_most(3.0, share, "×")),
    );
    bench.add(Row::number("share", "30 boards", "180 items at 10/s", longest, "s"));
}

/// Measures boards that wait for an unavailable model, and their progress once it is back.
fn idle(bench: &mut Bench) {
    let count = WAITING.min(usize::try_from(files()).unwrap_or(usize::MAX).saturating_sub(256));
    let size = "10,000 boards";
    if count < WAITING {
        let why = format!("only {count} boards can be open: raise the limit of open files");
        bench.add(Row::skipped("idle", size, "boards that wait for one model", why));
        return;
    }
    // The retry interval is short, so that the measured time includes several probes.
    let server = Server::away(u32::MAX, 4);
    let (made, idle, back, records) = block_on(async {
        let place = Place::new(&server.endpoint.url);
        let began = Instant::now();
        let mut boards = Vec::with_capacity(count);
        for _ in 0..count {
            boards.push(place.board(1).await);
        }
        let made = began.elapsed().as_secs_f64();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = processor();
        tokio::time::sleep(IDLE).await;
        let idle = processor() - before;
        server.is_away.store(false, Ordering::Relaxed);
        let began = Instant::now();
        for board in &boards {
            board.wait_for_end().await.expect("the board ends");
        }
        let back = began.elapsed().as_secs_f64();
        let records: usize = boards.iter().map(|board| place.not_taken(board)).sum();
        (made, idle, back, records)
    });
    let share = 100.0 * idle / IDLE.as_secs_f64();
    bench.add(Row::number("idle", size, "made", made, "s"));
    bench
        .add(Row::number("idle", size, "processor while they wait", share, " %").goal(Goal::at_most(1.0, share, " %")));
    let refused = server.refused.load(Ordering::Relaxed);
    bench.add(Row::number("idle", size, "requests while the model was away", refused as f64, ""));
    let each = records as f64 / refused.max(1) as f64;
    bench.add(
        Row::number("idle", size, "records for a request that was not taken", each, "")
            .goal(Goal::at_most(2.0, each, "")),
    );
    bench.add(Row::number("idle", size, "until all are done, once it is back", back, "s"));
    let most = server.most.load(Ordering::Relaxed);
    let goal = Goal::at_most(AT_ONCE, most as f64, "");
    bench.add(Row::number("idle", size, "requests at once, at most", most as f64, "").goal(goal));
}

/// Returns the processor time of this process, in seconds.
fn processor() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Raises the limit of open files as far as allowed, and returns it.
fn files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // A failed call leaves the limit unchanged.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads can be started");
    threads.block_on(future)
}

fn results(board: &BoardHandle) -> usize {
    board.status().state.root().to_value()["results"].as_array().map_or(0, Vec::len)
}

/// Model endpoint with a rate limit, or unavailable.
struct Server {
    endpoint: Endpoint,
    is_away: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
    /// Highest number of concurrent requests.
    most: Arc<AtomicUsize>,
}

impl Server {
    /// Starts a server that accepts `rate` requests per second, with a token bucket of one second. It rejects the
    /// others, and all while it is away, with a `retry-after` of `after` seconds.
    fn limited(rate: u32, after: u32) -> Self {
        let (refused, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let is_away = Arc::new(AtomicBool::new(false));
        let (now, counters) = (AtomicUsize::new(0), (Arc::clone(&refused), Arc::clone(&most), Arc::clone(&is_away)));
        let bucket = Mutex::new((f64::from(rate), Instant::now()));
        let headers: &'static str = format!("retry-after: {after}\r\n").leak();
        let endpoint = Endpoint::serving(move |_| {
            let (refused, most, is_away) = &counters;
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let act = if is_away.load(Ordering::Relaxed) || !takes(&bucket, f64::from(rate)) {
                refused.fetch_add(1, Ordering::Relaxed);
                ScriptedResponse::Say(429, headers, r#"{"error":{"message":"Rate limit reached"}}"#.into())
            } else {
                std::thread::sleep(Duration::from_millis(50));
                ScriptedResponse::answer(r#"[{"op":"add","path":"/results/-","value":"done"}]"#, 10, 5)
            };
            now.fetch_sub(1, Ordering::Relaxed);
            act
        });
        Self { endpoint, is_away, refused, most }
    }

    /// Starts a server that is away until the flag is cleared.
    fn away(rate: u32, after: u32) -> Self {
        let server = Self::limited(rate, after);
        server.is_away.store(true, Ordering::Relaxed);
        server
    }
}

/// Takes a request from a bucket that is filled with `rate` per second.
fn takes(bucket: &Mutex<(f64, Instant)>, rate: f64) -> bool {
    let mut bucket = bucket.lock().expect("no thread has failed");
    let now = Instant::now();
    let filled = bucket.0 + (now - bucket.1).as_secs_f64() * rate;
    *bucket = (filled.min(rate), now);
    let is_taken = bucket.0 >= 1.0;
    if is_taken {
        bucket.0 -= 1.0;
    }
    is_taken
}

/// A runtime in a directory of its own.
struct Place {
    journal: Arc<SqliteJournal>,
    runtime: Runtime,
    blueprint: Value,
    _directory: tempfile::TempDir,
}

impl Place {
    fn new(url: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let journal = Arc::new(SqliteJournal::open(directory.path()).expect("a journal can be made"));
        let mut config = Config::default();
        config.models.insert("default".into(), Model::new(url, "m"));
        let seats = Arc::new(AgentRegistry::new(config, &Environment::default(), InlinePrograms::Denied));
        let started = Runtime::start(Arc::clone(&journal) as _, Options::new(seats), PLANS);
        let runtime = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(started));
        let runtime = runtime.expect("the runtime starts");
        let blueprint = json!({
            "blueprint": 1, "name": "fan", "concurrency": 8, "limits": {"wall": "1h"},
            "state": {
                "schema": {"type": "object", "properties": {
                    "items": {"type": "array"}, "results": {"type": "array", "items": {"type": "string"}}}},
                "initial": {"items": [], "results": []}},
            "workers": {
                "splitter": {"agent": "script", "writes": [{"path": "/items/-", "ops": ["add"]}], "patch": {"max_ops": 64}},
                "mapper": {"agent": "llm", "writes": [{"path": "/results/-", "ops": ["add"]}],
                    "limits": {"attempts": 2, "concurrency": 8}}},
            "rules": [
                {"name": "begin", "trigger": "start", "run": "splitter"},
                {"name": "map", "trigger": {"op": "add", "path": "/items/*"}, "run": "mapper"}],
        });
        Self { journal, runtime, blueprint, _directory: directory }
    }

    /// Creates a board of `items` items.
    async fn board(&self, items: usize) -> BoardHandle {
        let mut blueprint = self.blueprint.clone();
        let add = json!({"op": "add", "path": "/items/-", "value": 1});
        blueprint["workers"]["splitter"]["script"] = json!([vec![add; items]]);
        blueprint["done"] = json!({"when": format!("size(state.results) >= {items}")});
        let blueprint: Blueprint = serde_json::from_value(blueprint).expect("a blueprint");
        self.runtime.create(blueprint, json!({}), None).await.expect("the board is made")
    }

    /// Counts the records of rejected requests of a board: all of its calls except the script's and the last one.
    fn not_taken(&self, board: &BoardHandle) -> usize {
        let records = wait(self.journal.records(board.id(), None, 1024)).expect("its records can be read");
        let of_call = records.iter().filter(|record| matches!(record.kind, Kind::Invoked | Kind::Deferred));
        of_call.count().saturating_sub(2)
    }
}
