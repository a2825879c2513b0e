//! Disks that are full, read-only or fail to sync; files that are locked, damaged or cut.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use patchboard_faults::random::Random;
use rusqlite::Connection;

use super::shim::{How, Operation, RUN, each, reported, run, sampled, sandbox, survives, trace};
use crate::sandbox::Sandbox;

/// One of this many operations is tried, unless `PATCHBOARD_CRASHES=all`.
const EVERY: usize = 16;

/// Number of damages; every second one is tried, unless `PATCHBOARD_CRASHES=all`.
const DAMAGES: u64 = 150;

#[test]
fn a_disk_that_takes_no_more_ends_the_run_with_its_error_and_loses_nothing() {
    let whole = sandbox();
    run(&whole, RUN, How::Nothing, 0).expect_exit(0);
    let operations: Vec<_> = trace(&whole).into_iter().filter(Operation::is_counted).collect();
    let cases = [How::Full, How::Filling, How::ReadOnly, How::Unsynced, How::Short].map(|how| {
        let cases: Vec<_> = (1..=operations.len()).map(|at| (how, at)).collect();
        sampled(&cases, EVERY)
    });
    let (codes, acknowledged) = (Mutex::new(BTreeMap::<String, usize>::new()), AtomicUsize::new(0));
    let shortened = AtomicUsize::new(0);
    each(&cases.concat(), |(how, at)| {
        let sandbox = sandbox();
        let ran = run(&sandbox, &[RUN, &["--output", "json"]].concat(), *how, *at);
        let after = format!("{how:?} from {at}");
        assert!(!ran.stderr.contains("panicked"), "{after}: {}", ran.stderr);
        let reported = reported(&ran.stderr);
        if ran.code != 0 {
            let code = ran.error()["code"].as_str().expect("a code is a text").to_owned();
            // SQLite does not report why it could not create a file.
            let is_new = matches!(operations[at - 1], Operation::Create { .. });
            let entry = if is_new { format!("New {code}") } else { format!("{how:?} {code}") };
            *codes.lock().expect("nobody panicked").entry(entry).or_default() += 1;
            acknowledged.fetch_add(usize::from(reported > Some(0)), Ordering::Relaxed);
        }
        if *how == How::Short {
            let count = trace(&sandbox).iter().filter(|operation| operation.is_counted()).count();
            shortened.fetch_add(usize::from(count > operations.len() * 5 / 4), Ordering::Relaxed);
        }
        survives(&sandbox, reported, &after);
    });
    let (codes, acknowledged) = (codes.into_inner().expect("nobody panicked"), acknowledged.into_inner());
    eprintln!("{codes:?}, {acknowledged} with commits told");
    for (how, known) in [
        ("Full", ["disk_full"].as_slice()),
        ("Filling", &["disk_full"]),
        // SQLite reports only an I/O error for a file that is already open.
        ("ReadOnly", &["journal_io", "journal_read_only"]),
        ("Unsynced", &["journal_io"]),
    ] {
        let all = codes.keys().filter(|case| case.starts_with(how));
        let right: Vec<_> = known.iter().map(|code| format!("{how} {code}")).collect();
        let wrong: Vec<_> = all.filter(|case| !right.contains(case)).collect();
        assert!(wrong.is_empty(), "{how} is told as something else: {codes:?}");
        assert!(codes.contains_key(&right[0]), "{how} was never told: {codes:?}");
    }
    let of_new = ["disk_full", "journal_io", "journal_read_only"].map(|code| format!("New {code}"));
    assert!(codes.keys().all(|case| !case.starts_with("New") || of_new.contains(case)), "{codes:?}");
    // SQLite writes the rest of a short write again.
    let (shortened, short) = (shortened.into_inner(), cases[4].len());
    assert!(shortened * 2 > short, "{shortened} of {short} runs had to write more often");
    assert!(!codes.keys().any(|case| case.starts_with("Short")), "{codes:?}");
    let failed: usize = codes.values().sum();
    assert!(acknowledged * 4 >= failed, "{acknowledged} of {failed} had told of a commit");
}

#[test]
fn a_journal_that_another_program_holds_is_an_error_that_says_so() {
    let sandbox = sandbox();
    sandbox.run(RUN).expect_exit(0);
    let holder = Connection::open(sandbox.path().join(".patchboard/patchboard.db")).expect("it can be opened");
    holder.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE;").expect("nobody else holds it");
    let ran = sandbox.run(&[RUN, &["--output", "json"]].concat());
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("locked"), "{}", ran.stderr);
    holder.execute_batch("ROLLBACK;").expect("it is held");
    drop(holder);
    sandbox.run(RUN).expect_exit(0);
}

#[test]
fn a_disk_that_cannot_be_read_is_not_called_damaged() {
    let sandbox = sandbox();
    sandbox.run(RUN).expect_exit(0);
    let mut refused = 0;
    for command in [
        &["verify", "last"][..],
        &["replay", "last"],
        &["state", "last"],
        &["log", "last"],
        &["export", "last"],
        &["why", "last", "/links/0"],
        &["cost", "last"],
        &["boards"],
        &["doctor", "--offline"],
    ] {
        let right = sandbox.run(command).expect_exit(0);
        let mut at = 1;
        // Continues until no read is left to fail.
        loop {
            let ran = run(&sandbox, &[command, &["--output", "json"]].concat(), How::Unread, at);
            let after = format!("{command:?} from read {at}: {}{}", ran.stdout, ran.stderr);
            let printed = format!("{}{}", ran.stdout, ran.stderr);
            assert!(
                !printed.contains("panicked")
                    && !printed.contains("from a backup")
                    && !printed.contains("cannot be trusted"),
                "{after}"
            );
            if ran.code == 0 {
                let again = run(&sandbox, command, How::Unread, at).expect_exit(0);
                assert!(command[0] == "doctor" || again.stdout == right.stdout, "{after}");
                break;
            }
            assert!(printed.contains("disk_unreadable") && printed.contains("dmesg"), "{after}");
            refused += 1;
            at += 1 + at / 8;
        }
        assert!(at > 4, "{command:?} reads {at} times only");
    }
    assert!(refused > 60, "refused {refused} times only");
}

/// Returns the output of `verify`, `log` and `state` for the finished board.
fn said(sandbox: &Sandbox) -> [(i32, String); 3] {
    let commands: [&[&str]; 3] =
        [&["verify", "last"], &["log", "last", "--output", "json"], &["state", "last", "--output", "json"]];
    commands.map(|command| {
        let ran = sandbox.run(command);
        assert!(!ran.stderr.contains("panicked"), "{command:?}: {}", ran.stderr);
        (ran.code, ran.stdout)
    })
}

#[test]
fn a_damaged_journal_is_never_reported_to_be_whole() {
    let whole = sandbox();
    whole.run(RUN).expect_exit(0);
    // Moves the whole log into the database file.
    let file = whole.path().join(".patchboard/patchboard.db");
    let connection = Connection::open(&file).expect("it can be opened");
    connection.pragma_update(None, "journal_mode", "DELETE").expect("nobody else holds it");
    drop(connection);
    let bytes = fs::read(&file).expect("it can be read");
    let right = {
        let copy = sandbox();
        copy.write(".patchboard/patchboard.db", &bytes);
        said(&copy)
    };
    assert_eq!(right[0].0, 0);
    let (mut noticed, mut harmless) = (0, 0);
    let damages = sampled(&(0..DAMAGES).collect::<Vec<_>>(), 2);
    for damage in &damages {
        let mut random = Random::from_parts(11, &[*damage]);
        let mut damaged = bytes.clone();
        let change = match random.below(4) {
            0 => {
                damaged.truncate(random.index(bytes.len()));
                format!("cut to {}", damaged.len())
            }
            1 => {
                let (from, length) = (random.index(bytes.len()), 1 + random.index(4096));
                let end = (from + length).min(bytes.len());
                damaged[from..end].fill(0);
                format!("zeros from {from} to {end}")
            }
            _ => {
                let (place, bit) = (random.index(bytes.len()), random.below(8));
                damaged[place] ^= 1 << bit;
                format!("bit {bit} of byte {place}")
            }
        };
        let sandbox = sandbox();
        sandbox.write(".patchboard/patchboard.db", &damaged);
        let found = said(&sandbox);
        if found[0].0 == 0 {
            // The damage hit no relevant byte: the output is unchanged.
            assert_eq!(found, right, "{change}: it verifies, and is not what it was");
            harmless += 1;
        } else {
            noticed += 1;
        }
    }
    eprintln!("{noticed} damages were noticed, {harmless} hit nothing that matters");
    assert!(noticed * 4 > damages.len(), "{noticed} of {} noticed", damages.len());
}
