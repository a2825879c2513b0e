//! Measures rebuilding a board from its records: recovery, replay, and the start of a long board.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use patchboard_kernel::board::{Board, Step};
use patchboard_kernel::digest::Digest;
use patchboard_kernel::driver::{Batch, Head};
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_kernel::record::Record;
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::journal::Journal;
use patchboard_storage::sqlite::SqliteJournal;
use patchboard_tests::boards::{self, Across, Work};
use patchboard_tests::measure::{Bench, Row, Stats, on_cpu, run};

#[path = "shared/silent_agent.rs"]
mod silent_agent;

use silent_agent::SilentAgent;

const SEED: u64 = 17;
/// Minimum number of samples of each.
const TIMES: u32 = 3;
/// Time limit for making the records of one board.
const PATIENCE: Duration = Duration::from_secs(15);
/// Records stored per batch, before any measurement.
const STORED_AT_ONCE: usize = 1000;

/// Boards: size, bytes of the first document, records.
const BOARDS: [(&str, usize, usize); 4] = [
    ("10 KB, 1,000 records", 10_000, 1_000),
    ("10 KB, 10,000 records", 10_000, 10_000),
    ("100 KB, 1,000 records", 100_000, 1_000),
    ("1 MB, 200 records", 1_000_000, 200),
];

fn main() -> ExitCode {
    let threads = tokio::runtime::Runtime::new().expect("threads can be started");
    run("replay", |bench| {
        for (size, bytes, count) in BOARDS {
            let is_short = bytes * count <= 10_000_000;
            if bench.options.quick && !is_short {
                continue;
            }
            if bench.wants("recovery", size) || bench.wants("replay", size) || bench.wants("start", size) {
                measure(bench, size, &history(bytes, count), &threads);
            }
        }
    })
}

/// Makes the records of a board of constant size.
fn history(bytes: usize, count: usize) -> Vec<Record> {
    let (document, mut writer) = boards::document(bytes, SEED);
    let (mut board, Step { mut records, .. }) = boards::board(boards::schema(Across::Nothing), document);
    let handles = writer.handles();
    let began = Instant::now();
    for number in 1.. {
        if records.len() >= count || began.elapsed() > PATIENCE {
            break;
        }
        let text = writer.trim(handles).unwrap_or_else(|| writer.patch(Work::Mix));
        let token = u64::try_from(number).unwrap_or_default();
        records.extend(board.step(Timestamp(number), boards::input(text, Some(token))).records);
    }
    records
}

fn measure(bench: &mut Bench, size: &str, records: &[Record], threads: &tokio::runtime::Runtime) {
    let count = records.len();
    let state = Board::recover(records, &PLANS).expect("what was recorded can be recovered").state().digest();
    let rate = |stats: &Stats| count as f64 / stats.median.as_secs_f64();
    if bench.wants("recovery", size) {
        let stats = often(|| on_cpu(|| Board::recover(records, &PLANS).expect("what was recorded can be recovered")).1);
        bench.add(Row::time("recovery", size, &format!("Board::recover of {count}"), stats));
        bench.add(Row::number("recovery", size, "records", rate(&stats), "/s"));
    }
    if bench.wants("replay", size) {
        let stats = often(|| {
            let (replayed, time) = on_cpu(|| replay::replay(records, None, &PLANS));
            assert_eq!(replayed.map(|replayed| replayed.records), Ok(count as u64));
            time
        });
        bench.add(Row::time("replay", size, &format!("replay of {count}"), stats));
        bench.add(Row::number("replay", size, "records", rate(&stats), "/s"));
    }
    if bench.wants("start", size) {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory can be made");
        let journal = SqliteJournal::open(dir.path()).expect("the journal opens");
        let stats = threads.block_on(async {
            store(&journal, records).await;
            let mut samples = Vec::new();
            for _ in 0..TIMES {
                samples.push(start(&journal, state).await);
            }
            Stats::of(&samples).expect("samples were taken")
        });
        bench.add(Row::time("start", size, &format!("Runtime::resume after {count}, on the wall"), stats));
    }
}

fn often(mut work: impl FnMut() -> Duration) -> Stats {
    let samples: Vec<_> = (0..TIMES).map(|_| work()).collect();
    Stats::of(&samples).expect("samples were taken")
}

async fn store(journal: &SqliteJournal, records: &[Record]) {
    let mut expected = None;
    for some in records.chunks(STORED_AT_ONCE) {
        let last = some.last().expect("a chunk is not empty");
        let batch =
            Batch { board: BoardId::from("measured"), epoch: 0, expected, records: some.to_vec(), blobs: Vec::new() };
        journal.append(batch).await.expect("there is room");
        expected = Some(Head { seq: last.seq, hash: last.hash });
    }
}

/// Measures the time until a board that exists only in the journal runs again.
async fn start(journal: &SqliteJournal, state: Digest) -> Duration {
    let runtime =
        Runtime::start(Arc::new(journal.clone()), Options::new(Arc::new(SilentAgent)), PLANS).await.expect("it starts");
    let began = Instant::now();
    let board = runtime.resume(&BoardId::from("measured")).await.expect("it can be recovered");
    let time = began.elapsed();
    assert_eq!(board.status().state.digest(), state, "it is where it was");
    runtime.shutdown().await;
    time
}
