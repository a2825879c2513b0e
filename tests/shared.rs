//! Finds the conformance data, which lives beside the workspace and is not part of it.
//!
//! The directory is the one that `PATCHBOARD_SHARED` names, else `shared` beside the workspace. A test whose data is
//! missing says so on the terminal and passes; one whose data is there must find the number of cases that it expects.

use std::io::Write;
use std::path::{Path, PathBuf};

/// A file or directory of the conformance data; `None`, and a visible line, if it is not there.
pub fn find(relative: &str) -> Option<PathBuf> {
    let root = match std::env::var_os("PATCHBOARD_SHARED") {
        Some(directory) => PathBuf::from(directory),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
    };
    let path = root.join(relative);
    if path.exists() {
        return Some(path);
    }
    report(&format!("SKIPPED: no {} (set PATCHBOARD_SHARED to the directory of the conformance data)", path.display()));
    None
}

/// The files directly in a directory, sorted by name.
pub fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the directory was found");
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("its entries can be read").path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Says on the terminal how many cases of a suite were run.
///
/// # Panics
/// If they are fewer than `at_least`, as when a directory is empty or a format has changed.
pub fn ran(suite: &str, cases: usize, at_least: usize) {
    report(&format!("{suite}: {cases} cases"));
    assert!(cases >= at_least, "{suite} has {cases} cases, at least {at_least} were expected");
}

/// Past the capturing of output by the test harness, because a skipped test must not look like one that ran.
fn report(line: &str) {
    // A closed terminal is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{line}");
}
