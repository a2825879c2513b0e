//! Proves that the tests find planted bugs within few boards.

use std::collections::BTreeSet;

use patchboard_kernel::mutants::{Mutant, activate};

use super::EACH;
use super::agents::Crowd;

/// Number of boards within which each bug must be found, of 50 interleavings each.
const BOARDS: u64 = 15;

#[test]
fn every_planted_bug_of_files_is_found() {
    let mut sound = BTreeSet::new();
    for &bug in Mutant::OF_FILES {
        activate(Some(bug));
        let found = (1..=BOARDS).find_map(|seed| Some((seed, Crowd::play(seed, EACH).err()?)));
        activate(None);
        let (seed, doubt) = found.unwrap_or_else(|| panic!("{bug:?} is not found by {BOARDS} boards"));
        let line: String = doubt.lines().next().unwrap_or_default().chars().take(120).collect();
        eprintln!("{bug:?}: board {seed}: {line}");
        // Proves that the bug causes the failure: the same board passes without it.
        if sound.insert(seed) {
            assert!(Crowd::play(seed, EACH).is_ok(), "{bug:?}: board {seed} fails without it");
        }
    }
}
