//! Helpers that build file edits.

use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::{Edit, EditAttempt, FileChange, FilePath, FileRead, Hunk, LineRange, count};

use super::Played;

pub(crate) fn external() -> Edit {
    Edit { of: None, token: None, name: None, intent: None, reads: Vec::new(), changes: Vec::new() }
}

pub(crate) fn path(text: &str) -> FilePath {
    FilePath::parse(text).expect("a name")
}

pub(crate) fn hash(text: &str) -> Option<Digest> {
    Some(sha256(text.as_bytes()))
}

pub(crate) fn create(at: &str, text: &str) -> FileChange {
    let whole = Hunk { at: 1, was: String::new(), now: text.to_owned() };
    FileChange {
        path: path(at),
        from: None,
        hash: hash(text),
        lines: count(text),
        bytes: text.len() as u64,
        hunks: Some(vec![whole]),
    }
}

/// Returns a change that replaces the text `was` at line `line` of `text`, and the resulting text.
pub(crate) fn change(at: &str, text: &str, line: u32, was: &str, now: &str) -> (FileChange, String) {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let from = line as usize - 1;
    let behind = from + count(was) as usize;
    assert_eq!(lines[from..behind].concat(), was);
    let after = [&lines[..from].concat(), now, &lines[behind..].concat()].concat();
    let hunks = vec![Hunk { at: line, was: was.to_owned(), now: now.to_owned() }];
    let change = FileChange {
        path: path(at),
        from: hash(text),
        hash: hash(&after),
        lines: count(&after),
        bytes: after.len() as u64,
        hunks: Some(hunks),
    };
    (change, after)
}

pub(crate) fn read(at: &str, version: u64, lines: Option<LineRange>) -> FileRead {
    FileRead { path: path(at), version, lines }
}

/// Returns an edit by the worker's open call.
pub(crate) fn by(played: &Played, worker: &str, reads: &[FileRead], changes: Vec<FileChange>) -> Edit {
    let (invocation, attempt, _) = played.calls.iter().find(|call| call.2 == worker).expect("a call");
    let of = Some(EditAttempt { invocation: *invocation, attempt: *attempt });
    Edit { of, intent: Some("a reason".to_owned()), reads: reads.to_vec(), changes, ..external() }
}
