//! Checks freshness against an oracle that was written independently (SPEC section 5).
//!
//! * `history.rs`, `place.rs`, `trace.rs`, `oracle.rs`: the rules, from whole documents and pointers alone;
//! * `driver.rs`, `patches.rs`: boards with random answers in random order;
//! * `check.rs`: comparison of every decision of the kernel;
//! * `adversaries.rs`: writers that invalidate each other;
//! * `cases.rs`: former disagreements of the two.
//!
//! A failure names its seed; `FRESHNESS_SEED=n` runs that one alone and prints its trace.

mod adversaries;
mod cases;
mod check;
mod driver;
mod history;
mod oracle;
mod patches;
mod place;
mod trace;

use self::check::Figures;
use self::driver::Driver;

/// Number of boards, and of interleavings on each.
const BOARDS: u64 = 25;
const ROUNDS: u64 = 100;

#[test]
fn every_decision_on_freshness_is_the_oracles() {
    let only = std::env::var("FRESHNESS_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let boards = std::env::var("FRESHNESS_BOARDS").ok().and_then(|boards| boards.parse::<u64>().ok());
    let seeds: Vec<u64> = match only {
        Some(seed) => vec![seed],
        None => (0..boards.unwrap_or(BOARDS)).collect(),
    };
    let run = |seeds: &[u64]| {
        let mut figures = Figures::default();
        for seed in seeds {
            let mut driver = Driver::new(*seed, only.is_some());
            driver.run(ROUNDS);
            figures.add(&driver.figures);
        }
        figures
    };
    // Boards are independent of each other.
    let half = seeds.len() / 2;
    let figures = std::thread::scope(|scope| {
        let first = scope.spawn(|| run(&seeds[..half]));
        let mut figures = run(&seeds[half..]);
        figures.add(&first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        figures
    });
    eprintln!("freshness: {figures:#?}");
    let ours = figures.refused_stale + figures.refused_reserved + figures.refused_unseen;
    eprintln!(
        "freshness: of {} proposals, versions of the whole document would have refused {}, without a cause {}; this way {ours}",
        figures.reached, figures.refused_by_version, figures.refused_falsely_by_version
    );
    if only.is_none() {
        assert!(figures.refused_stale < figures.refused_by_version);
        for code in ["stale_read", "stale_target", "unseen_target", "reserved"] {
            let is_there = figures.refusals.keys().any(|codes| codes.contains(code));
            assert!(is_there, "nothing was ever refused for {code}");
        }
    }
}
