//! Measures a burst of 10,000 commits: every subscriber must receive all of them, and the rate is reported.
//!
//! The runtime's own tests also check that none is lost; this benchmark adds SQLite and the wall clock.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use patchboard_kernel::board::Outcome;
use patchboard_kernel::id::Version;
use patchboard_kernel::record::{Body, Kind};
use patchboard_protocols::PLANS;
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::sqlite::SqliteJournal;
use patchboard_tests::boards::{self, Across};
use patchboard_tests::measure::{Goal, Row, run};
use serde_json::{Value, json};

#[path = "shared/silent_agent.rs"]
mod silent_agent;

use silent_agent::SilentAgent;

const CASE: &str = "burst";
const SIZE: &str = "1 KB";
const SUBSCRIBERS: usize = 16;
const SEED: u64 = 23;

fn main() -> ExitCode {
    let threads = tokio::runtime::Runtime::new().expect("threads can be started");
    run("events", |bench| {
        if !bench.wants(CASE, SIZE) {
            return;
        }
        let commits = if bench.options.quick { 1_000 } else { 10_000 };
        let (received, burst, all) = threads.block_on(burst(commits));
        let wanted = (commits * SUBSCRIBERS as u64) as f64;
        bench.add(Row::number(CASE, SIZE, "commits", commits as f64 / burst, "/s"));
        let what = format!("events that {SUBSCRIBERS} subscribers got, in order");
        let row = Row::number(CASE, SIZE, &what, received as f64, "");
        bench.add(row.goal(Goal::at_least(wanted, received as f64, "")));
        bench.add(Row::number(CASE, SIZE, "from the last commit to the last event", (all - burst) * 1e3, " ms"));
    })
}

/// Returns events received, seconds until the last commit was answered, and seconds until the last event was received.
async fn burst(commits: u64) -> (u64, f64, f64) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory can be made");
    let journal = SqliteJournal::open(dir.path()).expect("the journal opens");
    let runtime =
        Runtime::start(Arc::new(journal), Options::new(Arc::new(SilentAgent)), PLANS).await.expect("it starts");
    let (document, _) = boards::document(1_000, SEED);
    let blueprint = boards::blueprint(boards::schema(Across::Nothing), document);
    let board = runtime.create(blueprint, Value::Null, None).await.expect("created");
    let mut subscribers = tokio::task::JoinSet::new();
    for _ in 0..SUBSCRIBERS {
        subscribers.spawn(receive(board.clone(), commits));
    }
    let began = Instant::now();
    let mut proposed = tokio::task::JoinSet::new();
    for number in 0..commits {
        // Sent all at once and in any order: none depends on another, and each changes the document.
        let confidence = number as f64 / commits as f64;
        let text = json!([{"op": "replace", "path": "/claims/0/confidence", "value": confidence}]).to_string();
        let board = board.clone();
        proposed.spawn(async move { board.propose(boards::proposal(text, Some(number))).await.expect("answered") });
    }
    while let Some(outcome) = proposed.join_next().await {
        let outcome = outcome.expect("no proposer panics");
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    }
    let burst = began.elapsed().as_secs_f64();
    let mut received = 0;
    while let Some(count) = subscribers.join_next().await {
        received += count.expect("no subscriber panics");
    }
    let all = began.elapsed().as_secs_f64();
    runtime.shutdown().await;
    (received, burst, all)
}

/// Returns how many commits a subscriber receives, up to `commits`; each version must be exactly one above the last.
async fn receive(board: BoardHandle, commits: u64) -> u64 {
    let mut stream = board.subscribe(None);
    let mut version = Version(0);
    while version.0 < commits {
        let record = stream.next().await.expect("the board goes on").expect("read");
        if record.kind != Kind::Committed {
            continue;
        }
        let Ok(Body::Committed(committed)) = record.body() else { break };
        if committed.version != version.next() {
            break;
        }
        version = committed.version;
    }
    version.0
}
