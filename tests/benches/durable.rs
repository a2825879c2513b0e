//! What a durable commit costs: latency of one client, rate of many, bytes.
//!
//! The board's own way goes through the whole runtime: handle, kernel actor, journal in SQLite. Beside it, in the same
//! run and turn and turn about, the same bytes go to a plain file with one sync each, and the same rows into a plain
//! SQLite file with the same settings. Times are on the wall.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use patchboard_kernel::board::Outcome;
use patchboard_kernel::digest::Salt;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::Record;
use patchboard_runtime::journal::Journal;
use patchboard_runtime::journal::sqlite::{FILE, SqliteJournal};
use patchboard_runtime::runtime::{BoardHandle, Options, Runtime};
use patchboard_tests::boards::{self, Across, Work, Writer};
use patchboard_tests::measure::{Bench, Goal, Laps, Row, on_wall, run};
use serde_json::Value;

#[path = "durable/counted.rs"]
mod counted;
#[path = "durable/raw.rs"]
mod raw;

use counted::{Counted, Transaction};
use raw::{RawFile, RawSqlite, length};

#[path = "shared/nobody.rs"]
mod nobody;

use nobody::Nobody;

/// How long one client's commits are measured, for each size.
const TIME: Duration = Duration::from_secs(6);
/// How long one round of many clients lasts; there are [`ROUNDS`].
const ROUND: Duration = Duration::from_millis(1500);
const ROUNDS: usize = 3;
const SEED: u64 = 11;
/// Boards and clients of the second case.
const BOARDS: usize = 64;

/// Goals: one client's commit over a raw append, in microseconds.
const GOAL_OVER_APPEND: f64 = 100.0;
/// Many clients against the rate of raw appends, one after the other.
const GOAL_AGAINST_APPENDS: f64 = 7.0;
/// Many clients against raw inserts in the same batches, in percent.
const GOAL_AGAINST_INSERTS: f64 = 70.0;
/// A record's own bytes over those of its patch.
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

/// A directory on the disk that the build is on: a temporary one may be memory.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory can be made")
}

async fn start(journal: Arc<dyn Journal>) -> Runtime {
    Runtime::start(journal, Options::new(Arc::new(Nobody))).await.expect("the runtime starts")
}

/// Boards are of one blueprint, as those of a daemon mostly are; what is written to them differs.
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

/// One client on one board: how long it waits, and how many bytes its commits take.
async fn one_client(bench: &mut Bench, size: &'static str, bytes: usize) {
    const CASE: &str = "one client";
    let dir = directory();
    let journal = SqliteJournal::open(dir.path()).expect("the journal opens");
    let runtime = start(Arc::new(journal.clone())).await;
    let (board, mut writer) = create(&runtime, bytes, SEED).await;
    let mut stream = board.subscribe(Some(board.snapshot().head.seq));
    let time = bench.options.time(TIME);
    // As a program that uses the runtime would: on one of its threads, not beside them.
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
            // The first commits make the tables grow and the caches warm.
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
    // The last connection folds the log into the file.
    drop(journal);
    let file = std::fs::metadata(dir.path().join(FILE)).map_or(0, |file| file.len());
    let growth = (file as f64 - first as f64) / all_commits as f64;
    bench.add(Row::number("bytes", size, "growth of the file", growth, " B"));
}

/// About what the file held before the first commit: the record with the blueprint.
fn first_record_bytes(journal: &SqliteJournal) -> usize {
    let boards = journal.boards().expect("read");
    boards.iter().flat_map(|board| journal.records(&board.id, None, 1).expect("read")).map(|first| length(&first)).sum()
}

/// Many clients, each on its own board: how many commits a second, and what raw appends and inserts manage.
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

/// Lets all clients commit, each its next as soon as its last is answered; the time that took and that each waited.
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

/// What the transactions stored, read again.
fn load(journal: &SqliteJournal, transactions: &[Transaction]) -> Vec<Vec<(BoardId, Record)>> {
    let read = |(board, first, count): &(BoardId, Seq, usize)| -> Vec<(BoardId, Record)> {
        let after = first.0.checked_sub(1).map(Seq);
        let records = journal.records(board, after, *count).expect("read");
        records.into_iter().map(|record| (board.clone(), record)).collect()
    };
    transactions.iter().map(|transaction| transaction.iter().flat_map(read).collect()).collect()
}

/// Does one piece of work after the other for at most `time`; records a second. `store` says how many it stored.
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

/// For the raw files.
fn remove(path: &Path) {
    drop(std::fs::remove_file(path));
}
