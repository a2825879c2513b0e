//! Seeded board simulations: scripted workers that answer well, wrongly, late, twice or never, on a virtual clock.
//!
//! After every step, code independent of the kernel checks the design's invariants (`invariants.rs`). A second,
//! independent model predicts the kernel's decisions (`model.rs`). A failure names its seed and the fewest inputs
//! that reproduce it (`shrink.rs`). `SIMULATOR_SEED=n` runs that board alone and prints its trace,
//! `SIMULATOR_BOARDS=n` runs as many. Failing seeds are kept in `seeds.txt` and run first.

mod checks;
mod comparison;
mod disk;
mod forgeries;
mod invariants;
mod journal;
mod model;
mod operator;
mod orders;
mod outages;
mod plans;
mod planted;
mod protocols;
mod redactions;
mod seen;
mod shrink;
mod stored;
mod world;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use patchboard_kernel::breaker::{BreakerTransition, Reason};
use patchboard_kernel::id::RuleName;
use patchboard_kernel::record::{Body, Cause, Kind};

use self::disk::Appends;
use self::seen::Interruptions;
use self::shrink::simulate;
use self::world::Simulation;

/// Boards per run of the suite, beside the kept seeds.
const BOARDS: u64 = 500;

/// One board in this many runs twice more: once for determinism, once with restores from snapshots.
const AGAIN: u64 = 8;

/// Counts over all boards.
#[derive(Default)]
struct Seen {
    kinds: BTreeMap<Kind, u64>,
    /// Invocations by rule.
    rules: BTreeMap<RuleName, u64>,
    moves: BTreeMap<(Reason, BreakerTransition), u64>,
    ends: BTreeMap<Cause, u64>,
    appends: Appends,
    snapshots: u64,
    commits_most: u64,
    redactions: redactions::Tried,
    interruptions: Interruptions,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Returns the number of random cases of a test that plays `usual` by default; scales with `SIMULATOR_BOARDS`.
fn cases(usual: u64) -> u64 {
    usual * (number("SIMULATOR_BOARDS").unwrap_or(BOARDS) / BOARDS).max(1)
}

#[test]
fn seeded_boards_keep_every_invariant() {
    let only = number("SIMULATOR_SEED");
    let kept = include_str!("seeds.txt").lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
    let seeds: Vec<u64> = match only {
        Some(seed) => vec![seed],
        None => kept.chain(0..number("SIMULATOR_BOARDS").unwrap_or(BOARDS)).collect(),
    };
    let begun = Instant::now();
    let (next, seen, failure) = (AtomicUsize::new(0), Mutex::new(Seen::default()), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(report) = check(*seed, only.is_some(), &seen) {
                        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(report);
                        // One failure is enough: the other threads stop.
                        next.store(seeds.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    if let Some(report) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        panic!("{report}");
    }
    let Seen { kinds, rules, moves, ends, appends, snapshots, commits_most, redactions, interruptions } =
        seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    let summary = format!(
        "simulated {} boards in {:.0} s, {snapshots} restored, up to {commits_most} commits",
        seeds.len(),
        begun.elapsed().as_secs_f64(),
    );
    say(&summary);
    eprintln!("{kinds:?}\n{rules:?}\n{moves:?}\n{ends:?}\n{appends:?}\n{redactions:?}\n{interruptions:?}");
    if seeds.len() as u64 >= BOARDS {
        // A simulation in which an event never happens proves nothing about it.
        for kind in Kind::ALL.iter().filter(|kind| **kind != Kind::Redacted) {
            assert!(kinds.contains_key(kind), "no simulated board ever recorded {kind}");
        }
        for rule in ["all-hands", "named", "minutely", "reminded"] {
            assert!(rules.contains_key(&RuleName::from(rule)), "no simulated board ever had an invocation by {rule}");
        }
        for due in moves_there_are() {
            assert!(moves.contains_key(&due), "no breaker of a simulated board ever {} for {}", due.1, due.0);
        }
        // `tests/interleavings` plays boards that edit files; full journals are in the kernel's tests.
        for cause in Cause::ALL.iter().filter(|cause| !matches!(cause, Cause::Edits | Cause::Journal)) {
            assert!(ends.contains_key(cause), "no simulated board ever ended by {cause}");
        }
        interruptions.assert_all_seen();
        let redactions::Tried { over, going, in_use } = redactions;
        assert!(over.min(going).min(in_use) > 0, "not everything was erased of: {redactions:?}");
        let Appends { waited_for, refused, refused_and_written, lost, outlived } = appends;
        let least = waited_for.min(refused).min(refused_and_written).min(lost).min(outlived);
        assert!(least > 0, "appends of simulated boards never came to all they can: {appends:?}");
    }
}

/// Returns the possible causes and moves of breakers. The blueprint's actions for faults reduce a view or stop a
/// branch.
fn moves_there_are() -> Vec<(Reason, BreakerTransition)> {
    let wrong = [Reason::Rejections, Reason::NoOps, Reason::Passes, Reason::Crashes, Reason::Cycles, Reason::Budget];
    let of_actions = wrong
        .into_iter()
        .flat_map(|reason| [(reason, BreakerTransition::Reduced), (reason, BreakerTransition::Opened)]);
    let others = [
        (Reason::Cooldown, BreakerTransition::HalfOpened),
        (Reason::ProbeCommitted, BreakerTransition::Closed),
        (Reason::ProbeFailed, BreakerTransition::Opened),
        (Reason::Retried, BreakerTransition::HalfOpened),
    ];
    of_actions.chain(others).collect()
}

/// Prints to stderr even if the test passes, since the harness captures only `eprintln!`.
pub(crate) fn say(text: &str) {
    // A closed stderr is no failure.
    drop(std::io::stderr().write_all(format!("{text}\n").as_bytes()));
}

/// Runs the board of a seed.
fn check(seed: u64, trace: bool, seen: &Mutex<Seen>) -> Result<(), String> {
    let simulation = simulate(seed, trace).map_err(|failure| failure.describe())?;
    let (mut snapshots, mut tried) = (0, redactions::Tried::default());
    if seed.is_multiple_of(AGAIN) {
        let again = simulate(seed, false).map_err(|failure| failure.describe())?;
        if simulation.records() != again.records() {
            return Err(format!("SEED={seed}: the same inputs gave other bytes"));
        }
        snapshots = shrink::caught(|| {
            let mut restored = Simulation::restoring(seed);
            restored.run();
            assert_eq!(simulation.records(), restored.records(), "SEED={seed}: a restored board went on otherwise");
            restored.stored().taken
        })?;
        tried = shrink::caught(|| redactions::tried(seed, simulation.records()))?;
    }
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let mut commits = 0;
    for record in simulation.records() {
        *seen.kinds.entry(record.kind).or_default() += 1;
        commits += u64::from(record.kind == Kind::Committed);
        if !matches!(record.kind, Kind::Scheduled | Kind::Breaker | Kind::Ended) {
            continue;
        }
        match record.body() {
            Ok(Body::Scheduled(scheduled)) => {
                scheduled.rule.iter().cloned().for_each(|rule| *seen.rules.entry(rule).or_default() += 1);
            }
            Ok(Body::Breaker(moved)) => *seen.moves.entry((moved.reason, moved.change)).or_default() += 1,
            Ok(Body::Ended(ended)) => *seen.ends.entry(ended.cause).or_default() += 1,
            _ => {}
        }
    }
    seen.appends += simulation.appends();
    seen.interruptions.add(simulation.met(), simulation.records());
    seen.snapshots += snapshots;
    seen.redactions.over += tried.over;
    seen.redactions.going += tried.going;
    seen.redactions.in_use += tried.in_use;
    seen.commits_most = seen.commits_most.max(commits);
    Ok(())
}
