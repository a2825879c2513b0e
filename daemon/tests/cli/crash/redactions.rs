//! The process dies while it redacts a value, before every file operation and in the middle of every write. The value
//! is unchanged, or the next start removes it from every file.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::shim::{How, Operation, each, run, sampled, trace};
use crate::redact::{finished, holding};

/// One of this many moments is tried, unless `PATCHBOARD_CRASHES=all`.
const EVERY: usize = 4;

const REDACT: &[&str] = &["redact", "last", "/request/topic"];

#[test]
fn a_redaction_killed_at_every_operation_on_its_files_is_not_done_or_done_to_its_end() {
    let whole = finished();
    run(&whole, REDACT, How::Nothing, 0).expect_exit(0);
    let operations: Vec<Operation> = trace(&whole).into_iter().filter(Operation::is_counted).collect();
    let mut cases = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        cases.push((index + 1, How::Kill));
        if matches!(operation, Operation::Write { bytes, .. } if bytes.len() > 1) {
            cases.push((index + 1, How::Torn));
        }
        cases.push((index + 1, How::Full));
    }
    let cases = sampled(&cases, EVERY);
    let (undone, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    each(&cases, |(at, how)| {
        let sandbox = finished();
        let ran = run(&sandbox, REDACT, *how, *at);
        let after = format!("{how:?} at {at}: {}{}", ran.stdout, ran.stderr);
        assert!(!ran.stderr.contains("panicked"), "{after}");
        // The next start with write access completes the redaction.
        sandbox.run(&["token", "list"]).expect_exit(0);
        let log = sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
        let is_recorded = log.iter().any(|record| record["kind"] == "redacted");
        assert!(is_recorded || ran.code != 0, "{after}: it was told to be done");
        if is_recorded {
            done.fetch_add(1, Ordering::Relaxed);
        } else {
            undone.fetch_add(1, Ordering::Relaxed);
            assert!(log.iter().any(|record| record.to_string().contains("Quisquilius")), "{after}: half of it is done");
            sandbox.run(REDACT).expect_exit(0);
        }
        assert_eq!(holding(&sandbox.path().join(".patchboard")), Vec::<PathBuf>::new(), "{after}");
        sandbox.run(&["verify", "last"]).expect_exit(0);
        sandbox.run(&["replay", "last"]).expect_exit(0);
    });
    let (undone, done) = (undone.into_inner(), done.into_inner());
    eprintln!("not done {undone} times, done {done} times, at {} operations", operations.len());
    assert!(undone > 3 && done > 3, "not done {undone} times, done {done} times");
}
