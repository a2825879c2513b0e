//! Finds the conformance data, which is kept beside the workspace and is not part of it.
//!
//! `PATCHBOARD_SHARED` names its directory; the default is `shared` beside the workspace. A test without its data
//! prints so on the terminal and passes; a test with its data must find the number of cases that it expects.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Returns a file or directory of the conformance data. If it is missing, prints a visible line and returns `None`.
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

/// Returns the files directly in a directory, sorted by name.
pub fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the directory was found");
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("its entries can be read").path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Prints on the terminal how many cases of a suite were run.
///
/// # Panics
/// If they are fewer than `at_least`, as when a directory is empty or a format has changed.
pub fn ran(suite: &str, cases: usize, at_least: usize) {
    report(&format!("{suite}: {cases} cases"));
    assert!(cases >= at_least, "{suite} has {cases} cases, at least {at_least} were expected");
}

/// Prints a line past the test harness's capture, because a skipped test must not look like one that ran.
fn report(line: &str) {
    // A closed terminal must not fail the test.
    let _ = writeln!(std::io::stderr(), "{line}");
}
