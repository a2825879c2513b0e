//! Invariants of the text module, checked with real tools and real texts.

mod apply;
mod cost;
mod edits;
mod intents;
mod parsers;
mod payloads;
mod trace;

use std::io::Write as _;
use std::path::PathBuf;

use patchboard_kernel::files::{FilePath, LineRange};

use super::language::Language;

fn path(name: &str) -> FilePath {
    FilePath::parse(name).expect("a name")
}

fn language(name: &str) -> Language {
    Language::for_path(&path(name)).expect("a language with comments")
}

/// Prints past the test harness's capture, so that a skipped test is visible.
fn report(line: &str) {
    // A closed terminal must not fail the test.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Returns a file of the conformance data; prints a line and returns none if it is missing.
fn shared(relative: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PATCHBOARD_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let file = root.join(relative);
    if !file.exists() {
        report(&format!("SKIPPED: no {relative} (set PATCHBOARD_SHARED to the directory of the conformance data)"));
        return None;
    }
    Some(file)
}

/// Pseudo-random numbers that are equal in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % end.max(1)
    }

    /// Returns some blocks of a text of `lines` lines, sorted and disjoint.
    fn blocks(&mut self, lines: usize) -> Vec<LineRange> {
        let mut blocks = Vec::new();
        let mut at = self.below(lines.min(40));
        while at < lines {
            let end = (at + 1 + self.below(5)).min(lines);
            blocks.push((u32::try_from(at + 1).expect("a line"), u32::try_from(end).expect("a line")));
            at = end + 1 + self.below(60);
        }
        blocks
    }
}
