//! The process dies before every operation on its files, and in the middle of every write.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::shim::{How, Operation, RUN, run, sandbox, survives, told, trace};

#[test]
fn a_run_killed_at_every_operation_on_its_files_loses_nothing_it_told_of() {
    let whole = sandbox();
    run(&whole, RUN, How::Nothing, 0).exits(0);
    let operations: Vec<Operation> = trace(&whole).into_iter().filter(Operation::is_counted).collect();
    let mut cases = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        cases.push((index + 1, How::Kill));
        if matches!(operation, Operation::Write { bytes, .. } if bytes.len() > 1) {
            cases.push((index + 1, How::Torn));
        }
    }
    assert!(cases.len() > 60, "{} operations are too few", operations.len());
    let (next, killed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((at, how)) = cases.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
                    let sandbox = sandbox();
                    let ran = run(&sandbox, RUN, how, at);
                    // Now and then a run does a little less, and is over before.
                    killed.fetch_add(usize::from(ran.code == -1), Ordering::Relaxed);
                    survives(
                        &sandbox,
                        told(&ran.stderr),
                        &format!("{how:?} at {at} ({:?})", kind(&operations[at - 1])),
                    );
                }
            });
        }
    });
    let killed = killed.into_inner();
    eprintln!("killed {killed} times, at {} operations", operations.len());
    assert!(killed * 10 >= cases.len() * 9, "killed {killed} times in {} cases", cases.len());
}

/// An operation without its bytes.
fn kind(operation: &Operation) -> String {
    match operation {
        Operation::Write { file, offset, bytes } => format!("write of {} bytes at {offset} of {file}", bytes.len()),
        other => format!("{other:?}"),
    }
}
