//! The process dies before every operation on its files, and in the middle of every write.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::shim::{How, Operation, RUN, each, reported, run, sampled, sandbox, survives, trace};

/// One of this many moments is tried, unless `PATCHBOARD_CRASHES=all`.
const EVERY: usize = 5;

#[test]
fn a_run_killed_at_every_operation_on_its_files_loses_nothing_that_it_reported() {
    let whole = sandbox();
    run(&whole, RUN, How::Nothing, 0).expect_exit(0);
    let operations: Vec<Operation> = trace(&whole).into_iter().filter(Operation::is_counted).collect();
    let mut cases = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        cases.push((index + 1, How::Kill));
        if matches!(operation, Operation::Write { bytes, .. } if bytes.len() > 1) {
            cases.push((index + 1, How::Torn));
        }
    }
    assert!(cases.len() > 60, "{} operations are too few", operations.len());
    let cases = sampled(&cases, EVERY);
    let (killed, acknowledged) = (AtomicUsize::new(0), AtomicUsize::new(0));
    each(&cases, |(at, how)| {
        let sandbox = sandbox();
        let ran = run(&sandbox, RUN, *how, *at);
        // Some runs perform fewer operations and end before the fault.
        let is_killed = ran.code == -1;
        killed.fetch_add(usize::from(is_killed), Ordering::Relaxed);
        let reported = reported(&ran.stderr);
        acknowledged.fetch_add(usize::from(is_killed && reported > Some(0)), Ordering::Relaxed);
        survives(&sandbox, reported, &format!("{how:?} at {at} ({})", kind(&operations[at - 1])));
    });
    let (killed, acknowledged) = (killed.into_inner(), acknowledged.into_inner());
    eprintln!("killed {killed} times, {acknowledged} of them with commits told, at {} operations", operations.len());
    assert!(killed * 10 >= cases.len() * 9, "killed {killed} times in {} cases", cases.len());
    assert!(acknowledged * 4 >= cases.len(), "{acknowledged} of {} had told of a commit", cases.len());
}

/// Describes an operation without its bytes.
fn kind(operation: &Operation) -> String {
    match operation {
        Operation::Write { file, offset, bytes } => format!("write of {} bytes at {offset} of {file}", bytes.len()),
        other => format!("{other:?}"),
    }
}
