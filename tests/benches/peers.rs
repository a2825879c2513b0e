//! Runs two other systems with shared state on the same work: LangGraph with checkpoints in SQLite, and a handmade
//! blackboard of Python packages.
//!
//! Their programs are not part of this repository. If they or the packages they need are missing, the row says so.
//! `PATCHBOARD_PEERS_PYTHON` names the Python that has the packages (default: `python3`).

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use patchboard_tests::measure::{Bench, Goal, Row, Stats, run};
use patchboard_tests::shared;
use serde_json::Value;

#[path = "peers/ours.rs"]
mod ours;

use ours::Task;

/// Rounds of each side, interleaved because the speed of disks changes within seconds.
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    let threads = tokio::runtime::Runtime::new().expect("threads can be started");
    run("peers", |bench| {
        for peer in PEERS {
            for (size, bytes) in bench.options.sizes() {
                // LangGraph takes half a second per step at that size.
                let is_too_large = bytes > peer.bytes_max;
                if !is_too_large && bench.wants(peer.name, size) {
                    compare(bench, peer, size, bytes, &threads);
                }
            }
        }
    })
}

/// A system to compare with.
struct Peer {
    name: &'static str,
    /// Path of its program in the shared data.
    program: &'static str,
    arguments: &'static [&'static str],
    /// Argument that takes the number of steps.
    count: &'static str,
    /// Statements that Python must be able to run, to check its packages.
    imports: &'static str,
    /// Members of its answer: median time of a step in milliseconds, and steps per second.
    median: &'static str,
    rate: &'static str,
    task: Task,
    bytes_max: usize,
    /// Goals: how many times as long as ours a step should take, by size. The last one holds for larger sizes.
    goals: &'static [(usize, f64)],
}

const PEERS: &[Peer] = &[
    Peer {
        name: "LangGraph, DeltaChannel",
        program: "bench/peers/langgraph_loop.py",
        arguments: &["--saver", "sqlite", "--channel", "delta", "--durability", "sync"],
        count: "--steps",
        imports: "import langgraph.graph, langgraph.checkpoint.sqlite, langgraph.channels",
        median: "step_p50_ms",
        rate: "steps_per_s",
        task: Task::Superstep,
        bytes_max: 10_000_000,
        goals: &[(usize::MAX, 2.5)],
    },
    Peer {
        name: "LangGraph, reducer",
        program: "bench/peers/langgraph_loop.py",
        arguments: &["--saver", "sqlite", "--channel", "reducer", "--durability", "sync"],
        count: "--steps",
        imports: "import langgraph.graph, langgraph.checkpoint.sqlite",
        median: "step_p50_ms",
        rate: "steps_per_s",
        task: Task::Superstep,
        bytes_max: 10_000_000,
        goals: &[(100_000, 3.0), (1_000_000, 15.0), (usize::MAX, 150.0)],
    },
    Peer {
        name: "Python, jsonschema-rs",
        program: "bench/peers/handrolled_blackboard.py",
        arguments: &["--validator", "jsonschema-rs", "--sync", "FULL"],
        count: "--commits",
        imports: "import jsonpatch, jsonschema_rs",
        median: "total_ms",
        rate: "commits_per_s",
        task: Task::Commit,
        bytes_max: 1_000_000,
        goals: &[(1_000, 1.2), (10_000, 1.2), (100_000, 12.0), (usize::MAX, 150.0)],
    },
];

/// Answer of a run of a peer's program.
struct Answer {
    median_ms: f64,
    per_second: f64,
}

fn compare(bench: &mut Bench, peer: &Peer, size: &str, bytes: usize, threads: &tokio::runtime::Runtime) {
    let skip = |why: String| Row::skipped(peer.name, size, "peer", why);
    let Some(program) = shared::find(peer.program) else {
        return bench.add(skip(format!("there is no {}", peer.program)));
    };
    if !can_import(peer.imports) {
        return bench.add(skip(format!("{} cannot {}", python().display(), peer.imports)));
    }
    let steps = steps(bytes, bench.options.quick);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory can be made");
    let rounds = if bench.options.quick { 2 } else { ROUNDS };
    let mut all = Vec::new();
    let (mut medians, mut times, mut rates, mut shares) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let own = || threads.block_on(ours::run(dir.path(), bytes, steps, peer.task));
        let other = || ask(peer, &program, dir.path(), bytes, steps);
        // The sides alternate in going first.
        let (ours, theirs) = if round % 2 == 0 {
            let ours = own();
            (ours, other())
        } else {
            let theirs = other();
            (own(), theirs)
        };
        let theirs = match theirs {
            Ok(theirs) => theirs,
            Err(why) => return bench.add(skip(why)),
        };
        let middle = Stats::of(&ours.samples).expect("samples were taken").median;
        times.push(theirs.median_ms / (middle.as_secs_f64() * 1e3));
        shares.push(ours.samples.len() as f64 / ours.seconds / theirs.per_second);
        medians.push(theirs.median_ms);
        rates.push(theirs.per_second);
        all.extend(ours.samples);
    }
    let [theirs, times, rate, share] = [medians, times, rates, shares].map(middle);
    let goal = peer.goals.iter().find(|(largest, _)| bytes <= *largest).map_or(1.0, |(_, goal)| *goal);
    bench.add(Row::time(peer.name, size, "ours, durable", Stats::of(&all).expect("samples were taken")));
    let row = Row::number(peer.name, size, "peer, median", theirs, " ms").ratio(times, "ours");
    bench.add(row.goal(Goal::at_least(goal, times, "×")));
    bench.add(Row::number(peer.name, size, "peer, all in all", rate, "/s").ratio_of("ours", share));
}

/// Returns the median of the rounds' numbers.
fn middle(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

/// Returns the number of steps: fewer if each takes long, otherwise enough for one of the snapshots that `DeltaChannel`
/// takes every hundred steps.
const fn steps(bytes: usize, quick: bool) -> usize {
    match (bytes, quick) {
        (_, true) => 60,
        (0..=1_000_000, false) => 120,
        (_, false) => 40,
    }
}

fn python() -> PathBuf {
    std::env::var_os("PATCHBOARD_PEERS_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from)
}

fn can_import(what: &str) -> bool {
    Command::new(python()).args(["-c", what]).output().is_ok_and(|output| output.status.success())
}

/// Runs a peer's program, which answers with one line of JSON.
fn ask(peer: &Peer, program: &Path, dir: &Path, bytes: usize, steps: usize) -> Result<Answer, String> {
    let mut command = Command::new(python());
    command.arg(program).args(["--size", &bytes.to_string(), peer.count, &steps.to_string()]);
    let output = command.args(peer.arguments).arg("--dir").arg(dir).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    let number = |name: &str| line.as_ref().and_then(|line| line[name].as_f64());
    match (number(peer.median), number(peer.rate)) {
        (Some(median_ms), Some(per_second)) => Ok(Answer { median_ms, per_second }),
        _ => {
            let trouble = String::from_utf8_lossy(&output.stderr);
            Err(format!("its program failed: {}", trouble.lines().last().unwrap_or("it said nothing")))
        }
    }
}
