//! Tests with real directories, real git and real races.

mod escape;
mod limits;
mod locks;
mod races;
mod recovery;
mod replace;
mod rules;
mod scan;
mod watch;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::FilePath;
use tempfile::TempDir;

use super::replace::Swap;
use super::{ApplyOutcome, Disk, DiskOptions, UnservedReason};

/// Both ways of replacing a file's content.
const SWAPS: [Swap; 2] = [Swap::Exchange, Swap::TakeAndLink];

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory can be made")
}

/// Returns a directory in memory, if there is one, for tests that would wait for the disk thousands of times.
fn fast_directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| directory())
}

fn open(path: &Path) -> Disk {
    Disk::open(path, DiskOptions::default()).expect("the directory can be opened")
}

fn open_with(path: &Path, swap: Swap) -> Disk {
    Disk { swap, ..open(path) }
}

fn name(path: &str) -> FilePath {
    FilePath::parse(path).expect("a name")
}

fn hash(text: &str) -> Option<Digest> {
    Some(sha256(text.as_bytes()))
}

fn write(at: impl AsRef<Path>, text: impl AsRef<[u8]>) {
    if let Some(parent) = at.as_ref().parent() {
        fs::create_dir_all(parent).expect("a directory can be made");
    }
    fs::write(&at, text).expect("a file can be written");
}

fn text(at: impl AsRef<Path>) -> String {
    fs::read_to_string(&at).unwrap_or_else(|error| panic!("{}: {error}", at.as_ref().display()))
}

/// Returns the text of a file as the workspace reads it.
fn read(disk: &Disk, path: &str) -> Option<String> {
    disk.read(&name(path)).unwrap_or_else(|error| panic!("{path}: {error}")).map(|contents| contents.text)
}

fn refused(disk: &Disk, path: &str) -> Option<UnservedReason> {
    disk.read(&name(path)).err().map(|error| error.reason().unwrap_or_else(|| panic!("{path}: {error}")))
}

/// Runs both phases, staging and putting.
fn change(disk: &Disk, path: &str, from: Option<&str>, to: Option<&str>) -> ApplyOutcome {
    let staged = disk.stage(&name(path), from.and_then(hash), to).expect("it can be staged");
    disk.apply(&staged).expect("it can be put")
}

/// Returns the names below one of the workspace's own directories.
fn own(root: &Path, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(root.join(".patchboard").join(directory)).expect("it can be listed");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns the texts of external writes that were displaced and kept.
fn displaced(root: &Path) -> Vec<String> {
    let names = own(root, "displaced");
    names.iter().map(|name| text(root.join(".patchboard/displaced").join(name))).collect()
}

/// Returns whether this process was started by a test to run itself.
fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

const CHILD: &str = "PATCHBOARD_DISK_CHILD";

/// Returns a command that reruns one test of this program; `child` passes a word or path to it.
fn again(wrapper: &[&str], test: &str, child: &Path) -> Command {
    let program = std::env::current_exe().expect("a test is a program");
    let mut command = match wrapper.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => Command::new(program),
    };
    let test = format!("disk::tests::{test}");
    command.args(["--exact", &test, "--nocapture"]).env(CHILD, child);
    command
}

/// Stops other threads when dropped, also if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Pseudo-random numbers that are equal in every run (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).expect("an address has 64 bits") % end
    }

    fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}
