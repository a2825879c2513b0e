//! Builds the preloaded library that counts a process's file operations, and runs commands under it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use patchboard_faults::random::Random;
use serde_json::Value;
use tempfile::TempDir;

use crate::sandbox::{CommandResult, Sandbox};

/// A blueprint with one script worker and a chain of six links; each link is one call and one commit.
pub(crate) const CHAIN: &str = r#"
blueprint: 1
name: chain
state:
  schema:
    type: object
    properties:
      links: {type: array, items: {type: object, properties: {length: {type: integer}}}}
  initial: {links: []}
workers:
  smith:
    agent: script
    script:
      - [{op: add, path: /links/-, value: {length: 1}}]
    reads: [/links/*]
    writes: [{path: /links/-, ops: [add]}]
rules:
  - {name: begin, trigger: start, run: smith}
  - {name: next, trigger: {op: add, path: /links/*}, when: size(state.links) < 6, run: smith}
done: {when: size(state.links) >= 6}
"#;

static LIBRARY: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let library = directory.path().join("shim.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/crash/shim.c");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let made = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .arg(&library)
        .arg(&source)
        .args(["-ldl", "-lpthread"])
        .output()
        .expect("there is a C compiler: the journal's library is built with it, too");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (directory, library)
});

/// Fault injected at operation number `at`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// No fault; operations are only traced.
    Nothing,
    /// Kills the process before the operation.
    Kill,
    /// Performs half of a write, then kills the process.
    Torn,
    /// Every later write is short: half of the bytes are written, and the shorter count is returned.
    Short,
    /// Every later write or file creation fails with a full disk.
    Full,
    /// Like [`How::Full`], after half of a write.
    Filling,
    /// Every later write fails as on a read-only disk.
    ReadOnly,
    /// Every later sync fails.
    Unsynced,
    /// Every later read fails; reads are counted separately.
    Unread,
}

impl How {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Kill => "kill",
            Self::Torn => "torn",
            Self::Short => "short",
            Self::Full => "full",
            Self::Filling => "filling",
            Self::ReadOnly => "readonly",
            Self::Unsynced => "unsynced",
            Self::Unread => "unread",
        }
    }
}

/// Traced operation of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// Creation of a file.
    Create {
        file: String,
    },
    /// Creation of a directory.
    Directory {
        file: String,
    },
    Write {
        file: String,
        offset: usize,
        bytes: Vec<u8>,
    },
    Sync {
        file: String,
    },
    Truncate {
        file: String,
        size: usize,
    },
    Unlink {
        file: String,
    },
    /// Text written to standard error.
    Said(String),
}

impl Operation {
    /// Returns true if the operation counts towards `at`.
    pub(crate) const fn is_counted(&self) -> bool {
        !matches!(self, Self::Said(_))
    }
}

/// Runs the binary with the fault `how` at operation number `at`.
pub(crate) fn run(sandbox: &Sandbox, arguments: &[&str], how: How, at: usize) -> CommandResult {
    let directory = sandbox.path().canonicalize().expect("it is there").join(".patchboard");
    let mut command = sandbox.command(arguments);
    command
        .env("LD_PRELOAD", &LIBRARY.1)
        .env("CRASH_DIR", directory)
        .env("CRASH_HOW", how.as_str())
        .env("CRASH_AT", at.to_string())
        .env("CRASH_TRACE", trace_file(sandbox));
    CommandResult::from(command.output().expect("the binary can be run"))
}

fn trace_file(sandbox: &Sandbox) -> PathBuf {
    sandbox.path().join("trace")
}

/// Returns the operations of the processes in this sandbox, in order.
pub(crate) fn trace(sandbox: &Sandbox) -> Vec<Operation> {
    let bytes = fs::read(trace_file(sandbox)).expect("a trace was written");
    let mut operations = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let head = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = &rest[end + 1..];
        let parts: Vec<&str> = head.split('\t').collect();
        let [what, file, offset, size] = parts.as_slice() else { panic!("not a line of a trace: {head:?}") };
        let (file, number) = ((*file).to_owned(), |text: &str| text.parse::<usize>().expect("a number"));
        let size = number(size);
        let (data, after) = rest.split_at(if ["write", "said"].contains(what) { size } else { 0 });
        rest = after;
        operations.push(match *what {
            "write" => Operation::Write { file, offset: number(offset), bytes: data.to_vec() },
            "create" => Operation::Create { file },
            "mkdir" => Operation::Directory { file },
            "sync" => Operation::Sync { file },
            "truncate" => Operation::Truncate { file, size: number(offset) },
            "unlink" => Operation::Unlink { file },
            "said" => Operation::Said(String::from_utf8_lossy(data).into_owned()),
            // No file is ever renamed. To support renames, first define in `power` what a power loss leaves of one.
            other => panic!("no operation: {other}"),
        });
    }
    operations
}

/// Returns the highest version that these progress lines report; 0 for a created board, `None` before that.
pub(crate) fn reported(words: &str) -> Option<u64> {
    let version = |line: &str| {
        if line.starts_with("created ") {
            return Some(0);
        }
        let rest = line.strip_prefix("committed version ")?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    // A line that was cut off may end inside a number.
    let whole = words.rfind('\n').map_or("", |end| &words[..end]);
    whole.lines().filter_map(version).max()
}

/// Picks one case out of each `every`, by a fixed seed; returns all of them with `PATCHBOARD_CRASHES=all`.
pub(crate) fn sampled<T: Copy>(cases: &[T], every: usize) -> Vec<T> {
    if std::env::var("PATCHBOARD_CRASHES").is_ok_and(|which| which == "all") {
        return cases.to_vec();
    }
    let mut random = Random::from_parts(23, &[cases.len() as u64]);
    cases.chunks(every).map(|chunk| *random.pick(chunk)).collect()
}

/// Runs `work` on each case, on as many threads as the machine has.
pub(crate) fn each<T: Sync>(cases: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(case);
                }
            });
        }
    });
}

/// Returns a sandbox that holds the blueprint.
pub(crate) fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("chain.yaml", CHAIN);
    sandbox
}

pub(crate) const RUN: &[&str] = &["run", "chain.yaml"];

/// Journal content of the last board.
struct Found {
    version: u64,
    records: Vec<Value>,
}

/// Reads the last board; `None` if there is no board.
fn found(sandbox: &Sandbox, after: &str) -> Option<Found> {
    let log = sandbox.run(&["log", "last", "--output", "json"]);
    if log.code != 0 {
        assert!(is_none(&log), "{after}: {}{}", log.stdout, log.stderr);
        return None;
    }
    let state = sandbox.run(&["state", "last", "--output", "json"]).expect_exit(0).json();
    let version = state["version"].as_u64().expect("a version is a number");
    Some(Found { version, records: log.lines() })
}

/// Returns true if a command reported that there is no board.
fn is_none(ran: &CommandResult) -> bool {
    ran.code == 2 && ["no_journal", "no_such_board"].iter().any(|code| ran.error()["code"] == *code)
}

/// Copies the data directory, because a command that reads a journal may repair it.
pub(crate) fn copy(sandbox: &Sandbox) -> Sandbox {
    fn put(from: &Path, to: &Path) {
        fs::create_dir_all(to).expect("a directory can be made");
        for entry in fs::read_dir(from).expect("it can be read") {
            let from = entry.expect("it can be read").path();
            let to = to.join(from.file_name().expect("it has a name"));
            match from.is_dir() {
                true => put(&from, &to),
                false => drop(fs::copy(&from, &to).expect("a file can be copied")),
            }
        }
    }
    let (copy, directory) = (Sandbox::new(), sandbox.path().join(".patchboard"));
    if directory.exists() {
        put(&directory, &copy.path().join(".patchboard"));
    }
    copy
}

/// Checks a data directory after a fault. The journal holds every reported version before any resume; the board then
/// runs to its end, keeps its earlier records, and verifies.
pub(crate) fn survives(sandbox: &Sandbox, reported: Option<u64>, after: &str) {
    let Some(before) = found(&copy(sandbox), after) else {
        assert_eq!(reported, None, "{after}: this was told, and nothing is there");
        let resumed = sandbox.run(&["resume", "last", "--output", "json"]);
        assert!(is_none(&resumed), "{after}: {}{}", resumed.stdout, resumed.stderr);
        return;
    };
    assert!(Some(before.version) >= reported, "{after}: version {reported:?} was told, {} is there", before.version);
    let resumed = sandbox.run(&["resume", "last", "--output", "json"]);
    assert_eq!(resumed.code, 0, "{after}: {}{}", resumed.stdout, resumed.stderr);
    let now = found(sandbox, after).expect("it was there before");
    assert_eq!(now.version, 6, "{after}: the board was run to its end");
    assert!(now.records.starts_with(&before.records), "{after}: records that were there are not, or are others");
    sandbox.run(&["verify", "last"]).expect_exit(0);
    sandbox.run(&["replay", "last"]).expect_exit(0);
}
