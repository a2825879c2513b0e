//! Power loss: synced operations survive; any part of the others may be lost, in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use patchboard_faults::random::Random;

use super::shim::{How, Operation, RUN, each, reported, run, sampled, sandbox, survives, trace};

/// Bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// Number of moments at which the power fails.
const MOMENTS: u64 = 240;

/// One of this many moments is tried, unless `PATCHBOARD_CRASHES=all`.
const EVERY: usize = 5;

#[test]
fn a_run_that_loses_power_keeps_what_it_reported() {
    let whole = sandbox();
    run(&whole, RUN, How::Nothing, 0).expect_exit(0);
    let operations = trace(&whole);
    let (partial, acknowledged) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let moments = sampled(&(0..MOMENTS).collect::<Vec<_>>(), EVERY);
    each(&moments, |moment| {
        let mut random = Random::from_parts(7, &[*moment]);
        let end = 1 + random.index(operations.len());
        let (files, is_partial) = image(&operations[..end], &mut random);
        partial.fetch_add(usize::from(is_partial), Ordering::Relaxed);
        let sandbox = sandbox();
        let directory = sandbox.path().join(".patchboard");
        fs::create_dir_all(&directory).expect("a directory can be made");
        for (name, bytes) in &files {
            sandbox.write(&format!(".patchboard/{name}"), bytes);
        }
        let said = operations[..end].iter().filter_map(|operation| match operation {
            Operation::Said(words) => Some(words.as_str()),
            _ => None,
        });
        let reported = reported(&said.collect::<String>());
        acknowledged.fetch_add(usize::from(reported > Some(0)), Ordering::Relaxed);
        survives(&sandbox, reported, &format!("moment {moment}, after {end} of {} operations", operations.len()));
    });
    let (partial, acknowledged) = (partial.into_inner(), acknowledged.into_inner());
    eprintln!("something was lost at {partial} moments, commits were told at {acknowledged}");
    assert!(partial * 3 > moments.len(), "something was lost at {partial} moments only");
    // The number depends on thread scheduling; a tenth is enough to be meaningful.
    assert!(acknowledged * 10 > moments.len(), "commits had been told at {acknowledged} moments only");
}

/// Returns the files after these operations and a power loss, and whether anything was lost.
fn image(operations: &[Operation], random: &mut Random) -> (BTreeMap<String, Vec<u8>>, bool) {
    let last_sync = |file: &str| {
        operations.iter().rposition(|one| matches!(one, Operation::Sync { file: synced } if synced == file))
    };
    let mut files = BTreeMap::<String, Vec<u8>>::new();
    let mut nameless = BTreeSet::new();
    let mut is_partial = false;
    for (index, operation) in operations.iter().enumerate() {
        let (Operation::Create { file }
        | Operation::Write { file, .. }
        | Operation::Truncate { file, .. }
        | Operation::Unlink { file }) = operation
        else {
            continue;
        };
        // The directory's sync makes names durable.
        let is_name = matches!(operation, Operation::Create { .. } | Operation::Unlink { .. });
        let is_durable = last_sync(if is_name { "." } else { file }).is_some_and(|sync| sync > index);
        if nameless.contains(file) && !matches!(operation, Operation::Create { .. }) {
            continue;
        }
        match operation {
            Operation::Create { file } if is_durable || random.percent(50) => {
                nameless.remove(file);
                files.entry(file.clone()).or_default();
            }
            // The file's name is lost, so its content is unreachable even if it was synced.
            Operation::Create { file } => {
                nameless.insert(file);
                is_partial = true;
            }
            Operation::Write { file, offset, bytes } => {
                let content = files.entry(file.clone()).or_default();
                for (nth, sector) in bytes.chunks(SECTOR).enumerate() {
                    if is_durable || random.percent(50) {
                        let from = offset + nth * SECTOR;
                        content.resize(content.len().max(from + sector.len()), 0);
                        content[from..from + sector.len()].copy_from_slice(sector);
                    } else {
                        is_partial = true;
                    }
                }
            }
            Operation::Truncate { file, size } if is_durable || random.percent(50) => {
                files.entry(file.clone()).or_default().resize(*size, 0);
            }
            // Otherwise the removed name may reappear.
            Operation::Unlink { file } if is_durable || random.percent(50) => drop(files.remove(file)),
            _ => is_partial = true,
        }
    }
    (files, is_partial)
}
