//! The library that counts what a process does to its files, and runs under it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use tempfile::TempDir;

use crate::sandbox::{Ran, Sandbox};

/// A blueprint of scripts: fifteen notes, each checked; thirty commits and as many calls.
pub(crate) const CHAIN: &str = r#"
blueprint: 1
name: chain
state:
  schema:
    type: object
    properties:
      links: {type: array, items: {type: object, properties: {length: {type: integer}, checked: {type: boolean}}}}
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

/// What happens at the so-manieth operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// Nothing; operations are only told.
    Nothing,
    /// The process dies before it.
    Kill,
    /// Half of a write is done, and the process dies.
    Torn,
    /// Writes from then on find the disk full.
    Full,
    /// Writes from then on find it read-only.
    ReadOnly,
    /// Syncs from then on fail.
    Unsynced,
}

impl How {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Kill => "kill",
            Self::Torn => "torn",
            Self::Full => "full",
            Self::ReadOnly => "readonly",
            Self::Unsynced => "unsynced",
        }
    }
}

/// Something that a process did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
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
    /// It said something on standard error.
    Said(String),
}

impl Operation {
    /// Whether it is one of those that are counted.
    pub(crate) const fn is_counted(&self) -> bool {
        !matches!(self, Self::Said(_))
    }
}

/// Runs the binary with something happening at its so-manieth operation.
pub(crate) fn run(sandbox: &Sandbox, arguments: &[&str], how: How, at: usize) -> Ran {
    let directory = sandbox.path().canonicalize().expect("it is there").join(".patchboard");
    let mut command = sandbox.command(arguments);
    command
        .env("LD_PRELOAD", &LIBRARY.1)
        .env("CRASH_DIR", directory)
        .env("CRASH_HOW", how.as_str())
        .env("CRASH_AT", at.to_string())
        .env("CRASH_TRACE", trace_file(sandbox));
    Ran::from(command.output().expect("the binary can be run"))
}

fn trace_file(sandbox: &Sandbox) -> PathBuf {
    sandbox.path().join("trace")
}

/// What the processes in this sandbox have done, in order.
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
            "sync" => Operation::Sync { file },
            "truncate" => Operation::Truncate { file, size: number(offset) },
            "unlink" => Operation::Unlink { file },
            "said" => Operation::Said(String::from_utf8_lossy(data).into_owned()),
            other => panic!("no operation: {other}"),
        });
    }
    operations
}

/// The highest version that these words told of; 0 if none.
pub(crate) fn told(words: &str) -> u64 {
    let versions = words.lines().filter(|line| line.contains("committed")).filter_map(|line| {
        let rest = line.split("version ").nth(1)?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    });
    versions.max().unwrap_or_default()
}

/// A sandbox with the blueprint.
pub(crate) fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("chain.yaml", CHAIN);
    sandbox
}

pub(crate) const RUN: &[&str] = &["run", "chain.yaml"];

/// What is there after something happened is whole, holds all that was told, and the board can be run to its end.
pub(crate) fn survives(sandbox: &Sandbox, told: u64, after: &str) {
    let resumed = sandbox.run(&["resume", "last", "--output", "json"]);
    for words in [&resumed.stderr, &resumed.stdout] {
        assert!(!words.contains("panicked"), "{after}: {words}");
    }
    if resumed.code != 0 {
        // There is no board yet, if nobody was told of one; or all was done.
        let is_over = resumed.stderr.contains("board_over") || resumed.stderr.contains("over");
        let is_none = told == 0 && resumed.code == 2;
        assert!(is_none || is_over, "{after}: {}{}", resumed.stdout, resumed.stderr);
        if is_none && !is_over {
            return;
        }
    }
    let state = sandbox.run(&["state", "last", "--output", "json"]).exits(0).json();
    let version = state["version"].as_u64().expect("a version is a number");
    assert_eq!(version, 6, "{after}: the board was run to its end");
    assert!(version >= told, "{after}: version {told} was told");
    sandbox.run(&["verify", "last"]).exits(0);
    sandbox.run(&["replay", "last"]).exits(0);
}
