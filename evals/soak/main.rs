//! Soak test of many boards under random faults. Checks that memory stays flat, no board is stuck, every journal
//! verifies, and every document is valid.
//!
//! The boards are those of the fault-injection harness, run by the real runtime on a journal on disk and in real time.
//! Each board is checked when it ends, and another one is started.
//!
//! `cargo run --release --package patchboard-evals --bin soak -- --boards 200 --seconds 600`

mod disturbance;
mod faulty_agents;
mod memory;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use patchboard_faults::random::Random;
use patchboard_faults::scenario::{self, Scenario};
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::id::BoardId;
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use patchboard_runtime::audit;
use patchboard_runtime::error::RuntimeError;
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal;
use serde_json::Value;

use crate::memory::Memory;

/// Time after which a board counts as stuck, twice its limit of running time.
const STUCK_AFTER: Duration = Duration::from_secs(240);

/// Growth that counts as flat: caches fill, and an allocator does not return all memory.
const GROWTH_MAX: f64 = 1.25;

/// Run many boards at once under random faults, and check each when it ends
#[derive(Parser, Debug)]
struct Arguments {
    /// Number of concurrent boards
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    boards: u32,
    /// Duration of the test; boards still running at the end are waited for
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Random seed for tasks and faults; their timing is not deterministic
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Directory of the journal [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

#[derive(Default)]
struct Tally {
    ends: Mutex<BTreeMap<String, u64>>,
    troubles: Mutex<Vec<String>>,
    ended: AtomicU64,
    records: AtomicU64,
    done: AtomicU64,
}

impl Tally {
    fn add_failure(&self, board: &BoardId, what: impl std::fmt::Display) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        // The first errors are sufficient.
        if troubles.len() < 20 {
            troubles.push(format!("{board}: {what}"));
        }
    }

    fn end(&self, how: String) {
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner).entry(how).or_default() += 1;
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    // Panics of agents are part of the test.
    std::panic::set_hook(Box::new(|_| {}));
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match &arguments.data_dir {
        Some(directory) => {
            std::fs::create_dir_all(directory)?;
            threads.block_on(soak(&arguments, directory))
        }
        None => {
            let directory = tempfile::tempdir()?;
            threads.block_on(soak(&arguments, directory.path()))
        }
    }
}

async fn soak(arguments: &Arguments, directory: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let journal = patchboard_storage::open(directory)?;
    let agent = Arc::new(faulty_agents::FaultyAgents::new(arguments.seed));
    let options = Options::new(Arc::clone(&agent) as Arc<dyn patchboard_runtime::agent::Agent>);
    let runtime = Arc::new(Runtime::start(Arc::clone(&journal), options, PLANS).await?);
    agent.runs_in(&runtime);
    let (tally, begun) = (Arc::new(Tally::default()), Instant::now());
    let until = begun + Duration::from_secs(arguments.seconds.into());
    let numbers = Arc::new(AtomicU64::new(0));
    let mut seats = tokio::task::JoinSet::new();
    for _ in 0..arguments.boards {
        let (runtime, tally, numbers) = (Arc::clone(&runtime), Arc::clone(&tally), Arc::clone(&numbers));
        let (journal, seed) = (journal.clone(), arguments.seed);
        seats.spawn(async move {
            while Instant::now() < until {
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                one(&runtime, Arc::clone(&journal), &tally, seed, number).await;
            }
        });
    }
    let memory = watch(&mut seats, &tally, begun, arguments).await;
    agent.runs_in_none();
    if let Some(runtime) = Arc::into_inner(runtime) {
        runtime.shutdown().await;
    }
    let size = std::fs::metadata(directory.join("patchboard.db")).map_or(0, |file| file.len());
    Ok(report(&tally, &memory, begun.elapsed(), size))
}

/// Shows progress until all boards have ended.
async fn watch(seats: &mut tokio::task::JoinSet<()>, tally: &Tally, begun: Instant, arguments: &Arguments) -> Memory {
    let bar = if std::io::stderr().is_terminal() {
        let style = ProgressStyle::with_template("{elapsed_precise} {bar:30} {msg}");
        ProgressBar::new(arguments.seconds.into()).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    } else {
        ProgressBar::hidden()
    };
    let mut memory = Memory::default();
    let mut second = tokio::time::interval(Duration::from_secs(1));
    while !seats.is_empty() {
        tokio::select! {
            _ = seats.join_next() => {}
            _ = second.tick() => {
                let elapsed = begun.elapsed();
                // While the last boards run out, memory is not representative.
                if elapsed.as_secs() < arguments.seconds.into() {
                    memory.sample();
                }
                bar.set_position(elapsed.as_secs());
                bar.set_message(format!("{} ended, {}", tally.ended.load(Ordering::Relaxed), memory.now()));
            }
        }
    }
    bar.finish_and_clear();
    memory
}

/// Runs a board to its end and checks it.
async fn one(runtime: &Arc<Runtime>, journal: Arc<dyn Journal>, tally: &Tally, seed: u64, number: u64) {
    let scenario = scenario::ALL[number as usize % scenario::ALL.len()];
    let mut random = Random::from_parts(seed, &[number]);
    let request = scenario.request(&mut random, None);
    let board = match runtime.create(with_short_timeouts(scenario.blueprint()), request.clone(), None).await {
        Ok(board) => board,
        Err(error) => return tally.add_failure(&BoardId::from("none"), format!("it was not made: {error}")),
    };
    let id = board.id().clone();
    let last = tokio::time::timeout(STUCK_AFTER, disturbance::disturb(runtime, board, random)).await;
    match last {
        Err(_) => {
            tally.add_failure(&id, "it is stuck");
            tally.end("stuck".to_owned());
        }
        Ok(Err(error)) => {
            tally.add_failure(&id, &error);
            tally.end(format!("lost: {}", error.code()));
        }
        Ok(Ok((board, ended))) => {
            tally.end(format!("{} ({})", ended.end, ended.cause));
            judge(scenario, &board, &request, tally);
        }
    }
    runtime.close(&id).await;
    let checked = tokio::task::spawn_blocking(move || check(&*journal, &id).map_err(|what| (id, what))).await;
    match checked {
        Ok(Ok(records)) => drop(tally.records.fetch_add(records, Ordering::Relaxed)),
        Ok(Err((id, what))) => tally.add_failure(&id, what),
        Err(error) => tally.add_failure(&BoardId::from("none"), error),
    }
}

fn with_short_timeouts(blueprint: &Blueprint) -> Blueprint {
    let mut blueprint = blueprint.clone();
    let mut value = serde_json::to_value(&blueprint).unwrap_or_default();
    for worker in value["workers"].as_object_mut().into_iter().flat_map(|workers| workers.values_mut()) {
        worker["limits"]["timeout"] = "3s".into();
    }
    value["limits"]["wall"] = "2m".into();
    if let Ok(hurried) = serde_json::from_value(value) {
        blueprint = hurried;
    }
    blueprint
}

/// Checks the document, whatever the agents did: within their grants they write no wrong data.
fn judge(scenario: &dyn Scenario, board: &BoardHandle, request: &Value, tally: &Tally) {
    let document = board.status().state.root().to_value();
    let wrongs = scenario::document_errors(scenario, request, &document);
    if !wrongs.is_empty() {
        tally.add_failure(board.id(), wrongs.join("; "));
    }
    tally.done.fetch_add(u64::from(scenario.is_done(&document)), Ordering::Relaxed);
}

/// Verifies a board's journal and replays it. Returns the number of records.
fn check(journal: &dyn Journal, board: &BoardId) -> Result<u64, String> {
    audit::verify(journal, board, None, &PLANS).map_err(|fault| fault.to_string())?;
    let records = wait(journal.records(board, None, usize::MAX)).map_err(|error| error.to_string())?;
    replay::replay(&records, None, &PLANS).map_err(|difference| difference.to_string())?;
    Ok(records.len() as u64)
}

fn report(tally: &Tally, memory: &Memory, took: Duration, size: u64) -> ExitCode {
    let ended = tally.ended.load(Ordering::Relaxed);
    println!("{ended} boards in {} s, {} of them done", took.as_secs(), tally.done.load(Ordering::Relaxed));
    for (how, count) in &*tally.ends.lock().unwrap_or_else(PoisonError::into_inner) {
        println!("  {count:>7} {how}");
    }
    println!(
        "{} records verified and derived again; {} MB of journal",
        tally.records.load(Ordering::Relaxed),
        size >> 20
    );
    println!("memory: {memory}");
    let mut troubles = std::mem::take(&mut *tally.troubles.lock().unwrap_or_else(PoisonError::into_inner));
    if memory.growth().is_some_and(|growth| growth > GROWTH_MAX) {
        troubles.push(format!("memory grew by more than a factor of {GROWTH_MAX}"));
    }
    for trouble in &troubles {
        println!("wrong: {trouble}");
    }
    match troubles.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

type Ending = Result<(BoardHandle, patchboard_kernel::record::Ended), RuntimeError>;
