//! Boards driven by seeds: scripted workers that answer well, wrongly, late, twice or never, on a virtual clock.
//!
//! After every step the invariants of the design are checked by code that shares nothing with the kernel's own checks
//! (`invariants.rs`). A failure names its seed; `SIMULATOR_SEED=n` runs that one alone and prints its trace.
//! Failing seeds are kept in `seeds.txt` and run first.

mod forgeries;
mod invariants;
mod model;
mod orders;
mod stored;
mod world;

use patchboard_kernel::record::Kind;

use self::world::Simulation;

/// Boards per run of the suite, beside the kept seeds.
const BOARDS: u64 = 200;

#[test]
fn seeded_boards_keep_every_invariant() {
    let only = std::env::var("SIMULATOR_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let kept = include_str!("seeds.txt").lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
    let seeds: Vec<u64> = match only {
        Some(seed) => vec![seed],
        None => kept.chain(0..BOARDS).collect(),
    };
    let mut kinds = std::collections::BTreeMap::<Kind, u64>::new();
    let mut snapshots = 0;
    for seed in &seeds {
        let mut world = Simulation::new(*seed, only.is_some());
        world.run();
        for record in world.records() {
            *kinds.entry(record.kind).or_default() += 1;
        }
        let mut again = Simulation::new(*seed, false);
        again.run();
        assert_eq!(world.records(), again.records(), "SEED={seed}: the same inputs gave other bytes");
        let mut restored = Simulation::restoring(*seed);
        restored.run();
        assert_eq!(world.records(), restored.records(), "SEED={seed}: a restored board went on otherwise");
        snapshots += restored.stored().taken;
    }
    eprintln!("simulated {} boards, {snapshots} restored: {kinds:?}", seeds.len());
    if only.is_none() {
        // A simulation in which something never happens proves nothing about it.
        for kind in Kind::ALL {
            assert!(kinds.contains_key(kind), "no simulated board ever recorded {kind}");
        }
    }
}
