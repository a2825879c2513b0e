//! Proves that the simulator finds planted bugs within few boards. `SIMULATOR_BUG=name` tries one alone.

use patchboard_kernel::mutants::{Mutant, activate};

use super::shrink::simulate;

/// Number of boards within which each bug must be found.
const BOARDS: u64 = 4 * super::BOARDS;

#[test]
#[ignore = "full tier: plays boards until each bug is found, and shortens them"]
fn every_planted_bug_is_found() {
    let only = std::env::var("SIMULATOR_BUG").ok();
    let is_meant = |bug: &Mutant| only.as_ref().is_none_or(|only| *only == format!("{bug:?}"));
    for bug in Mutant::ALL.iter().copied().filter(is_meant) {
        activate(Some(bug));
        let found = (0..BOARDS).find_map(|seed| simulate(seed, false).err());
        activate(None);
        let failure = found.unwrap_or_else(|| panic!("{bug:?} is not found by {BOARDS} boards"));
        let line = failure.message.lines().next().unwrap_or_default();
        let line: String = line.chars().take(160).collect();
        let shortest = failure.shortest.as_ref().unwrap_or_else(|| panic!("{bug:?}: {}", failure.describe()));
        eprintln!("{bug:?}: board {}, {} of {} inputs: {line}", failure.seed, shortest.len(), failure.of);
        // The trace is short, and the bug causes the failure: the same board passes without it.
        assert!(shortest.len() <= failure.of.min(60), "{}", failure.describe());
        assert!(simulate(failure.seed, false).is_ok(), "{bug:?}: board {} fails without it", failure.seed);
    }
}
