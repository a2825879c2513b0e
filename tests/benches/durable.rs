//! Measures a durable commit: latency of one client, throughput of many, bytes stored.
//!
//! The board's side uses the whole runtime: handle, kernel actor, journal in SQLite. Two baselines run interleaved with
//! it. One appends the same bytes to a plain file, with one sync each. The other inserts the same rows into a plain
//! SQLite file with the same settings. Times are wall-clock times.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use patchboard_kernel::board::Outcome;
use patchboard_kernel::digest::Salt;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::Record;
use patchboard_protocols::PLANS;
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal;
use patchboard_storage::sqlite::{FILE, SqliteJournal};
use patchboard_tests::boards::{self, Across, Work, Writer};
use patchboard_tests::measure::{Bench, Goal, Laps, Row, on_wall, run};
use serde_json::Value;

#[path = "durable/counted.rs"]
mod counted;
#[path = "durable/raw.rs"]
mod raw;

use counted::{Counted, Transaction};
use raw::{RawFile, RawSqlite, length};

#[path = "shared/silent_agent.rs"]
mod silent_agent;

use silent_agent::SilentAgent;

/// Duration of the measurement of one client, for each size.
const TIME: Duration = Duration::from_secs(6);
/// Duration of one round of many clients; there are [`ROUNDS`].
const ROUND: Duration = Duration::from_millis(1500);
const ROUNDS: usize = 3;
const SEED: u64 = 11;
/// Number of boards in the second case, each with one client.
const BOARDS: usize = 64;

/// Goal for one client's commit beyond a raw append, in microseconds.
const GOAL_OVER_APPEND: f64 = 100.0;
/// Goal for many clients against the rate of sequential raw appends.
const GOAL_AGAINST_APPENDS: f64 = 7.0;
/// Goal for many clients against raw inserts in the same batches, in percent.
const GOAL_AGAINST_INSERTS: f64 = 70.0;
/// Goal for the bytes of a record beyond those of its patch.
const GOAL_BYTES: f64 = 400.0;

fn main() -> ExitCode {
    let threads = tokio::runtime::Runtime::new().expect("threads can be started");
    run("durable", |bench| {
        for (size, bytes) in bench.options.sizes() {
            if bytes <= 1_000_000 && bench.wants("one client", size) {
                threads.block_on(one_client(bench, size, bytes));
            }
        }
        if bench.wants("64 clients", "1 KB") {
            threads.block_on(many_clients(bench, "1 KB", 1_000));
        }
        if bench.wants("64 clients", "10 KB") {
            threads.block_on(many_clients(bench, "10 KB", 10_000));
        }
    })
}

/// Creates a directory on the disk of the build, because the system's temporary directory may be in memory.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory can be made")
}

async fn start(journal: Arc<dyn Journal>) -> Runtime {
    Runtime::start(journal, Options::new(Arc::new(SilentAgent)), PLANS).await.expect("the runtime starts")
}

/// Creates a board and its writer. All boards share one blueprint, as in most daemons; their patches differ.
async fn create(runtime: &Runtime, bytes: usize, writer_seed: u64) -> (BoardHandle, Writer) {
    let (document, writer) = boards::document(bytes, SEED);
    let writer = writer.with_seed(writer_seed);
    let blueprint = boards::blueprint(boards::schema(Across::Nothing), document);
    (runtime.create(blueprint, Value::Null, Some(Salt::ZERO)).await.expect("created"), writer)
}

async fn commit(board: &BoardHandle, text: String, token: u64) {
    let outcome = board.propose(boards::proposal(text, Some(token))).await.expect("answered");
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
}

/// Measures the latency and the bytes of the commits of one client on one board.
async fn one_client(bench: &mut Bench, size: &'static str, bytes: usize) {
    const CASE: &str = "one client";
    let dir = directory();
    let journal = SqliteJournal::open(dir.path()).expect("the journal opens");
    let runtime = start(Arc::new(journal.clone())).await;
    let (board, mut writer) = create(&runtime, bytes, SEED).await;
    let mut stream = board.subscribe(Some(board.status().head.seq));
    let time = bench.options.time(TIME);
    // The client runs on one of the runtime's threads, as in a program that uses the runtime.
    let path = dir.path().to_owned();
    let client = tokio::spawn(async move {
        let mut file = RawFile::create(&path.join("raw"));
        let mut sqlite = RawSqlite::create(&path.join("raw.db"));
        let mut laps = Laps::default();
        let (mut patches, mut records, mut commits, mut all_commits) = (0, 0, 0_u64, 0_u64);
        let handles = writer.handles();
        let began = Instant::now();
        while began.elapsed() < time || commits < 20 {
            if let Some(trim) = writer.trim(handles) {
                all_commits += 1;
                commit(&board, trim, all_commits).await;
                drop(stream.next().await);
            }
            let text = writer.patch(Work::Mix);
            let patch = text.len();
            all_commits += 1;
            let before = Instant::now();
            commit(&board, text, all_commits).await;
            let waited = before.elapsed();
            let record = stream.next().await.expect("it goes on").expect("read");
            // The first commits are not counted: they grow the tables and warm the caches.
            let id = board.id();
            let ((), appended) = on_wall(|| file.append([&*record]));
            let ((), inserted) = on_wall(|| sqlite.insert([(id, &*record)], true));
            let ((), bare) = on_wall(|| sqlite.insert([(id, &*record)], false));
            commits += 1;
            if commits <= 10 {
                continue;
            }
            patches += patch;
            records += length(&record);
            for (what, time) in [("commit", waited), ("append", appended), ("rows", inserted), ("bare", bare)] {
                laps.note(what, time);
            }
        }
        (laps, patches, records, commits - 10, all_commits)
    });
    let (laps, patches, records, commits, all_commits) = client.await.expect("the client does not panic");
    let of = |what| laps.stats(what).expect("samples were taken");
    let [committed, appended, rows, bare] = ["commit", "append", "rows", "bare"].map(of);
    let over = committed.median.saturating_sub(appended.median).as_secs_f64() * 1e6;
    bench.add(Row::time(CASE, size, "commit", committed).ratio(appended.times_as_long(&committed), "raw append"));
    bench.add(Row::time(CASE, size, "raw append + fdatasync", appended));
    bench.add(Row::time(CASE, size, "raw SQLite, record", bare).ratio_of("commit", bare.times_as_long(&committed)));
    bench.add(
        Row::time(CASE, size, "raw SQLite, record and board", rows).ratio_of("commit", rows.times_as_long(&committed)),
    );
    let row = Row::number(CASE, size, "commit over raw append", over, " µs");
    bench.add(row.goal(Goal::at_most(GOAL_OVER_APPEND, over, " µs")));

    let (patch, record) = (patches as f64 / commits as f64, records as f64 / commits as f64);
    bench.add(Row::number("bytes", size, "patch", patch, " B"));
    let row = Row::number("bytes", size, "record over patch (header, payload, hash)", record - patch, " B");
    bench.add(row.goal(Goal::at_most(GOAL_BYTES, record - patch, " B")));
    let first = first_record_bytes(&journal);
    runtime.shutdown().await;
    // Closing the last connection checkpoints the write-ahead log into the file.
    drop(journal);
    let file = std::fs::metadata(dir.path().join(FILE)).map_or(0, |file| file.len());
    let growth = (file as f64 - first as f64) / all_commits as f64;
    bench.add(Row::number("bytes", size, "growth of the file", growth, " B"));
}

/// Returns about how many bytes the file held before the first commit: the record with the blueprint.
fn first_record_bytes(journal: &SqliteJournal) -> usize {
    let boards = wait(journal.boards()).expect("read");
    boards
        .iter()
        .flat_map(|board| wait(journal.records(&board.id, None, 1)).expect("read"))
        .map(|first| length(&first))
        .sum()
}

/// Measures the commits per second of many clients, each on its own board, against raw appends and inserts.
async fn many_clients(bench: &mut Bench, size: &'static str, bytes: usize) {
    const CASE: &str = "64 clients";
    let dir = directory();
    let stored = SqliteJournal::open(dir.path()).expect("the journal opens");
    let journal = Arc::new(Counted::new(stored.clone()));
    let runtime = start(Arc::clone(&journal) as Arc<dyn Journal>).await;
    let mut clients = Vec::new();
    for seed in 0..BOARDS as u64 {
        let (board, writer) = create(&runtime, bytes, seed).await;
        clients.push(Client { board, writer, token: 0 });
    }
    let mut file = RawFile::create(&dir.path().join("raw"));
    let mut sqlite = RawSqlite::create(&dir.path().join("raw.db"));
    let round = bench.options.time(ROUND);
    let (mut ours, mut appends, mut inserts, mut bares, mut batches) = (vec![], vec![], vec![], vec![], vec![]);
    let mut laps = Laps::default();
    for number in 0..=ROUNDS {
        journal.take();
        let (spent, taken) = work(&mut clients, round).await;
        let transactions = journal.take();
        let records = load(&stored, &transactions);
        let count: usize = records.iter().map(Vec::len).sum();
        // The first round warms up.
        if number == 0 {
            continue;
        }
        taken.into_iter().for_each(|time| laps.note("commit", time));
        ours.push(count as f64 / spent.as_secs_f64());
        batches.push(count as f64 / records.len() as f64);
        let serial = records.iter().flatten().map(|(_, record)| record);
        appends.push(rate(round / 2, serial, |record| {
            file.append([record]);
            1
        }));
        for (rates, with_board) in [(&mut inserts, true), (&mut bares, false)] {
            rates.push(rate(round, &records, |batch| {
                sqlite.insert(batch.iter().map(|(board, record)| (board, record)), with_board);
                batch.len()
            }));
        }
    }
    runtime.shutdown().await;
    let [ours, appends, inserts, bares, batch] = [ours, appends, inserts, bares, batches].map(middle);
    let waited = laps.stats("commit").expect("samples were taken");
    bench.add(Row::time(CASE, size, "commit", waited));
    bench.add(Row::number(CASE, size, "commits", ours, "/s"));
    bench.add(Row::number(CASE, size, "records per transaction", batch, ""));
    let row = Row::number(CASE, size, "raw appends, serial", appends, "/s").ratio_of("commits", ours / appends);
    bench.add(row.goal(Goal::at_least(GOAL_AGAINST_APPENDS, ours / appends, "×")));
    let share = ours / bares;
    let row = Row::number(CASE, size, "raw SQLite batched alike, record", bares, "/s").ratio_of("commits", share);
    bench.add(row.goal(Goal::at_least(GOAL_AGAINST_INSERTS / 100.0, share, "×")));
    let row = Row::number(CASE, size, "raw SQLite batched alike, record and board", inserts, "/s");
    bench.add(row.ratio_of("commits", ours / inserts));
}

struct Client {
    board: BoardHandle,
    writer: Writer,
    token: u64,
}

/// Runs all clients; each commits again as soon as it is answered. Returns the elapsed time and the latencies.
async fn work(clients: &mut Vec<Client>, time: Duration) -> (Duration, Vec<Duration>) {
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for mut client in clients.drain(..) {
        tasks.spawn(async move {
            let mut waited = Vec::new();
            let handles = client.writer.handles();
            while began.elapsed() < time {
                let text = match client.writer.trim(handles) {
                    Some(trim) => trim,
                    None => client.writer.patch(Work::Mix),
                };
                client.token += 1;
                let before = Instant::now();
                commit(&client.board, text, client.token).await;
                waited.push(before.elapsed());
            }
            (client, waited)
        });
    }
    let mut all = Vec::new();
    while let Some(done) = tasks.join_next().await {
        let (client, waited) = done.expect("no client panics");
        clients.push(client);
        all.extend(waited);
    }
    (began.elapsed(), all)
}

/// Reads the records of the transactions back from the journal.
fn load(journal: &SqliteJournal, transactions: &[Transaction]) -> Vec<Vec<(BoardId, Record)>> {
    let read = |(board, first, count): &(BoardId, Seq, usize)| -> Vec<(BoardId, Record)> {
        let after = first.0.checked_sub(1).map(Seq);
        let records = wait(journal.records(board, after, *count)).expect("read");
        records.into_iter().map(|record| (board.clone(), record)).collect()
    };
    transactions.iter().map(|transaction| transaction.iter().flat_map(read).collect()).collect()
}

/// Runs pieces of work in sequence for at most `time` and returns records per second. `store` returns how many records
/// it stored.
fn rate<T>(time: Duration, work: impl IntoIterator<Item = T>, mut store: impl FnMut(T) -> usize) -> f64 {
    let began = Instant::now();
    let mut stored = 0;
    for piece in work {
        stored += store(piece);
        if began.elapsed() >= time {
            break;
        }
    }
    stored as f64 / began.elapsed().as_secs_f64()
}

fn middle(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

/// Removes the raw files.
fn remove(path: &Path) {
    drop(std::fs::remove_file(path));
}
