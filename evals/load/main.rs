//! Load test of the daemon as a separate process, over HTTP. Measures how fast it resumes boards, the commit rate of
//! remote workers, the delay until readers see commits, the memory of an idle board, and losses after kills.
//!
//! ```sh
//! cargo build --release -p patchboard-daemon
//! cargo run --release -p patchboard-evals --bin load -- --boards 100 --seconds 60
//! ```

mod baselines;
mod daemon;
mod work;

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use mimalloc::MiMalloc;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_lint::source::Source;
use tokio::task::JoinSet;

use crate::daemon::Daemon;
use crate::work::{Observations, Requests};

/// The daemon's allocator, so that boards in this process are compared with those of the daemon.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const BLUEPRINT: &str = include_str!("blueprint.yaml");

/// Rounds of commits in this process and over HTTP.
const ROUNDS: u32 = 4;

/// Number of boards created concurrently.
const MADE_AT_ONCE: usize = 16;

/// Put a daemon under load, kill it, and check for losses
#[derive(Parser, Debug)]
struct Arguments {
    /// Number of active boards
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=2000))]
    boards: u32,
    /// Remote workers, each at one of the boards
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=2000))]
    workers: u32,
    /// Number of unfinished, idle boards that the daemon resumes at its start
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    unfinished: u32,
    /// Duration of the commit measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Number of kills under load
    #[arg(long, value_name = "N", default_value_t = 3)]
    kills: u32,
    /// The daemon's program [default: `patchboard` beside this program]
    #[arg(long, value_name = "FILE")]
    patchboard: Option<PathBuf>,
    /// Print the figures as one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Default)]
struct Figures(Vec<(&'static str, f64, &'static str)>);

impl Figures {
    fn add(&mut self, name: &'static str, value: f64, unit: &'static str) {
        self.0.push((name, value, unit));
    }

    fn print(&self, as_json: bool) {
        if as_json {
            let all: HashMap<&str, f64> = self.0.iter().map(|(name, value, _)| (*name, *value)).collect();
            println!("{}", serde_json::json!(all));
            return;
        }
        for (name, value, unit) in &self.0 {
            println!("{name:<44} {value:>12.1} {unit}");
        }
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let program = match &arguments.patchboard {
        Some(program) => program.canonicalize()?,
        None => std::env::current_exe()?.with_file_name("patchboard"),
    };
    if !program.is_file() {
        return Err(format!("{} is not there: build it, or name it with --patchboard", program.display()).into());
    }
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let directory = tempfile::tempdir()?;
    threads.block_on(measure(&arguments, &program, directory.path()))
}

async fn measure(arguments: &Arguments, program: &Path, directory: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let mut figures = Figures::default();
    let idle = directory.join("idle");
    std::fs::create_dir(&idle)?;
    measure_resume(arguments, program, &idle, &mut figures).await?;
    let busy = directory.join("busy");
    std::fs::create_dir(&busy)?;
    let is_whole = measure_commits(arguments, program, &busy, &mut figures).await?;
    figures.print(arguments.json);
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Measures boards that wait for remote workers: their memory, and how fast they are resumed after a kill.
async fn measure_resume(
    arguments: &Arguments,
    program: &Path,
    directory: &Path,
    figures: &mut Figures,
) -> Result<(), Box<dyn Error>> {
    let daemon = Daemon::start(program, directory)?;
    daemon.wait_until_ready().await?;
    let count = arguments.unfinished as usize;
    let begun = Instant::now();
    // Fills the caches, whose size does not depend on the number of boards.
    let first = count.div_ceil(2);
    boards(&daemon, first).await?;
    let before = daemon.memory();
    boards(&daemon, count - first).await?;
    figures.add("boards made over HTTP", count as f64 / begun.elapsed().as_secs_f64(), "per second");
    if let (Some(before), Some(after)) = (before, daemon.memory()) {
        let each = after.saturating_sub(before) as f64 / (count - first).max(1) as f64;
        figures.add("memory of a further idle board", each / 1024.0, "KiB");
    }
    let begun = Instant::now();
    let daemon = daemon.kill_and_restart()?;
    daemon.wait_until_ready().await?;
    let elapsed = begun.elapsed().as_secs_f64();
    figures.add("start after a kill until all are taken up", elapsed * 1000.0, "ms");
    figures.add("boards taken up", count as f64 / elapsed, "per second");
    let (mut running, mut after) = (0, String::new());
    loop {
        let listed = daemon.get(&format!("/v1/boards?status=running&limit=1000{after}")).await?;
        running += listed["boards"].as_array().map_or(0, Vec::len);
        match listed["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    if running != count {
        return Err(format!("{running} of {count} boards run after the start").into());
    }
    Ok(())
}

/// Creates boards and returns their ids.
async fn boards(daemon: &Daemon, count: usize) -> Result<Vec<String>, Box<dyn Error>> {
    let mut made = Vec::with_capacity(count);
    while made.len() < count {
        let some = (count - made.len()).min(MADE_AT_ONCE);
        for board in futures_util::future::join_all((0..some).map(|_| daemon.board(BLUEPRINT))).await {
            made.push(board?);
        }
    }
    Ok(made)
}

/// Measures the commits of remote workers, and their losses after kills. Returns true if nothing is lost.
async fn measure_commits(
    arguments: &Arguments,
    program: &Path,
    directory: &Path,
    figures: &mut Figures,
) -> Result<bool, Box<dyn Error>> {
    let lasts = Duration::from_secs(arguments.seconds.into());
    let short = lasts / 4;
    let mut daemon = Daemon::start(program, directory)?;
    daemon.wait_until_ready().await?;
    let floor = baselines::requests(&daemon, arguments.workers as usize, short).await;
    let boards = boards(&daemon, arguments.boards as usize).await?;
    let done = Arc::new(Observations::default());
    let read = Source::read("blueprint.yaml", BLUEPRINT).map_err(|finding| finding.message)?;
    let blueprint: Blueprint = serde_json::from_value(read.value().clone())?;
    let start = |daemon: &Daemon, requests: Requests| {
        done.resume();
        work::begin(&daemon.http, &daemon.url, &boards, arguments.workers as usize, requests, &done)
    };
    // Alternates, because the speed of a machine changes from minute to minute.
    let (mut alone, mut over_http) = (0.0, [0.0; 2]);
    for round in 0..ROUNDS {
        let inside = directory.join(format!("inside-{round}"));
        alone += baselines::commits(&blueprint, arguments.boards as usize, &inside, short / ROUNDS).await?;
        for (requests, rate) in [Requests::One, Requests::Two].into_iter().zip(&mut over_http) {
            let (begun, before) = (Instant::now(), done.commits());
            let tasks = start(&daemon, requests);
            tokio::time::sleep(lasts / ROUNDS / 2).await;
            *rate += (done.commits() - before) as f64 / begun.elapsed().as_secs_f64();
            done.stop();
            ended(Some(tasks)).await;
        }
    }
    let alone = alone / f64::from(ROUNDS);
    let [one, two] = over_http.map(|rate| rate / f64::from(ROUNDS));
    let delays = done.delays();
    let mut tasks = Some(start(&daemon, Requests::One));
    for _ in 0..arguments.kills {
        // Kills the daemon while workers are active.
        daemon = daemon.kill_and_restart()?;
        ended(tasks.take()).await;
        tasks = Some(start(&daemon, Requests::One));
        tokio::time::sleep(short).await;
    }
    done.stop();
    ended(tasks.take()).await;
    let lost = lost(&daemon, &boards, &done).await?;
    let commits = done.commits();
    figures.add("requests that do nothing", floor, "per second");
    figures.add("commits of as many boards in one process", alone, "per second");
    figures.add("commits over HTTP, one request each", one, "per second");
    figures.add("one request each, share of one process", one / alone * 100.0, "%");
    figures.add("commits over HTTP, two requests each", two, "per second");
    figures.add("two requests each, share of one process", two / alone * 100.0, "%");
    figures.add("requests for commits beside those for nothing", two * 2.0 / floor * 100.0, "%");
    for (name, part) in [("proposal to event, p50", 0.5), ("proposal to event, p99", 0.99)] {
        let at = (delays.len() as f64 * part) as usize;
        figures.add(name, delays.get(at.min(delays.len().saturating_sub(1))).copied().unwrap_or(f64::NAN), "ms");
    }
    figures.add("commits acknowledged, kills included", commits as f64, "");
    figures.add("acknowledged and lost", lost as f64, "");
    figures.add("answers refused otherwise", done.rejected() as f64, "");
    Ok(lost == 0)
}

async fn ended(tasks: Option<JoinSet<()>>) {
    if let Some(mut tasks) = tasks {
        while tasks.join_next().await.is_some() {}
    }
}

/// Counts the acknowledged commits that are missing in the journals; all journals must verify.
async fn lost(daemon: &Daemon, boards: &[String], done: &Observations) -> Result<usize, Box<dyn Error>> {
    let mut lost = 0;
    for (at, board) in boards.iter().enumerate() {
        let mut acknowledged = done.of_board(at);
        let mut after = None;
        loop {
            let from = after.map(|seq: u64| format!("&after={seq}")).unwrap_or_default();
            let page = daemon.get(&format!("/v1/boards/{board}/journal?kind=committed&limit=1000{from}")).await?;
            for record in page["records"].as_array().into_iter().flatten() {
                let (seq, version) = (record["seq"].as_u64(), record["version"].as_u64());
                if let Some(seq) = seq
                    && acknowledged.get(&seq).copied() == version
                {
                    acknowledged.remove(&seq);
                }
            }
            match page["next"].as_u64() {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        lost += acknowledged.len();
        if !daemon.verifies(board)? {
            return Err(format!("the journal of {board} does not verify").into());
        }
    }
    Ok(lost)
}
