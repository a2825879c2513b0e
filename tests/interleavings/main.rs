//! Agents at shared files. An independent oracle checks every decision (docs/workspace-evidence.md).
//!
//! * `history.rs`, `oracle.rs`: the rules, derived from line identities and earlier rejections;
//! * `shop.rs`: a board of the kernel, with a check of every decision;
//! * `agents.rs`: eight agents at twenty files, in random order;
//! * `planted.rs`: planted bugs that the tests must find;
//! * `adversaries.rs`: writers that invalidate each other; `rates.rs`: rates of false rejections.
//!
//! * `sessions.rs`: sessions at real files, compared with what each agent was shown (`shown.rs`, `page.rs`);
//! * `forgotten.rs`: minimal cases of the read set; `histories.rs`: recorded human editing histories.
//!
//! A failure names its seed; `INTERLEAVINGS_SEED=n` runs that board alone, `INTERLEAVINGS=n` as many interleavings.

mod adversaries;
mod agents;
mod forgotten;
mod histories;
mod history;
mod oracle;
mod page;
mod planted;
mod rates;
mod sessions;
mod shop;
mod shown;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use self::agents::Crowd;
use self::shop::Figures;

/// Interleavings per run, and per board.
const INTERLEAVINGS: u64 = 2_000;
pub(crate) const EACH: u64 = 50;

/// Prints the progress of a long run at each tenth of it.
pub(crate) fn say_progress(what: &str, done: u64, of: u64, begun: Instant) {
    let tenth = |done: u64| done * 10 / of.max(1);
    if done > 0 && tenth(done) > tenth(done - 1) {
        eprintln!("{what}: {done} of {of} after {:.0?}", begun.elapsed());
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_decision_on_files_is_the_oracles() {
    let begun = Instant::now();
    let only = number("INTERLEAVINGS_SEED");
    let asked = number("INTERLEAVINGS");
    let boards = asked.unwrap_or(INTERLEAVINGS).div_ceil(EACH);
    let seeds: Vec<u64> = only.map_or_else(|| (0..boards).collect(), |seed| vec![seed]);
    let done = AtomicU64::new(0);
    let run = |part: &[u64]| {
        let mut figures = Figures::default();
        for seed in part {
            let played = Crowd::play(*seed, EACH);
            figures.add(&played.unwrap_or_else(|doubt| panic!("INTERLEAVINGS_SEED={seed}: {doubt}")));
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if asked.is_some() {
                say_progress("interleavings: boards", done, boards, begun);
            }
        }
        figures
    };
    // Boards are independent, so two threads share them.
    let half = seeds.len() / 2;
    let figures = std::thread::scope(|scope| {
        let first = scope.spawn(|| run(&seeds[..half]));
        let mut figures = run(&seeds[half..]);
        figures.add(&first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        figures
    });
    eprintln!("interleavings: {:.1?}: {figures:#?}", begun.elapsed());
    if only.is_none() {
        for code in ["stale_read", "stale_target", "unseen_target", "reserved", "test_failed", "path_not_found"] {
            let is_there = figures.refusals.keys().any(|codes| codes.contains(code));
            assert!(is_there, "nothing was ever refused for {code}");
        }
        assert!(figures.forgotten > 0 && figures.back > 0 && figures.replays > 0 && figures.buried > 0);
    }
}
