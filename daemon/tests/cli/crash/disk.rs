//! Disks that are full, read-only, that fail to sync; files that are locked, damaged, cut.

use std::fs;

use patchboard_faults::random::Random;
use rusqlite::Connection;
use serde_json::Value;

use super::shim::{How, Operation, RUN, run, sandbox, survives, told, trace};
use crate::sandbox::Sandbox;

/// Of how many operations one is tried.
const EVERY: usize = 3;

/// Damages that are tried.
const DAMAGES: u64 = 150;

#[test]
fn a_disk_that_takes_no_more_ends_the_run_with_its_error_and_loses_nothing() {
    let whole = sandbox();
    run(&whole, RUN, How::Nothing, 0).exits(0);
    let count = trace(&whole).into_iter().filter(Operation::is_counted).count();
    let mut codes = std::collections::BTreeMap::<String, usize>::new();
    for how in [How::Full, How::ReadOnly, How::Unsynced] {
        for at in (1..=count).step_by(EVERY) {
            let sandbox = sandbox();
            let ran = run(&sandbox, &[RUN, &["--output", "json"]].concat(), how, at);
            let after = format!("{how:?} from {at}");
            assert!(!ran.stderr.contains("panicked"), "{after}: {}", ran.stderr);
            if ran.code != 0 {
                let error = ran.stderr.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
                let code = error.as_ref().and_then(|error| error["error"]["code"].as_str());
                let code = code.unwrap_or_else(|| panic!("{after}: no error that can be read: {}", ran.stderr));
                *codes.entry(format!("{how:?} {code}")).or_default() += 1;
            }
            survives(&sandbox, told(&ran.stderr), &after);
        }
    }
    eprintln!("{codes:?}");
    for (how, known) in [("Full", "disk_full"), ("ReadOnly", "journal_io"), ("Unsynced", "journal_io")] {
        let all = codes.iter().filter(|(told, _)| told.starts_with(how));
        let wrong: Vec<_> = all.clone().filter(|(told, _)| !told.ends_with(known)).collect();
        assert!(wrong.is_empty(), "{how} is told as something else: {codes:?}");
        assert!(all.count() > 0, "{how} was never told: {codes:?}");
    }
}

#[test]
fn a_journal_that_another_program_holds_is_an_error_that_says_so() {
    let sandbox = sandbox();
    sandbox.run(RUN).exits(0);
    let holder = Connection::open(sandbox.path().join(".patchboard/patchboard.db")).expect("it can be opened");
    holder.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE;").expect("nobody else holds it");
    let ran = sandbox.run(&[RUN, &["--output", "json"]].concat());
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("locked"), "{}", ran.stderr);
    holder.execute_batch("ROLLBACK;").expect("it is held");
    drop(holder);
    sandbox.run(RUN).exits(0);
}

/// What commands say of the finished board: its records, its state, and whether it verifies.
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
fn a_damaged_journal_is_never_told_to_be_whole() {
    let whole = sandbox();
    whole.run(RUN).exits(0);
    // All in one file.
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
    for damage in 0..DAMAGES {
        let mut random = Random::of(11, &[damage]);
        let mut damaged = bytes.clone();
        let told = match random.below(4) {
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
            // Nothing that matters was hit: all that is told is as it was.
            assert_eq!(found, right, "{told}: it verifies, and is not what it was");
            harmless += 1;
        } else {
            noticed += 1;
        }
    }
    eprintln!("{noticed} damages were noticed, {harmless} hit nothing that matters");
    assert!(noticed > DAMAGES / 4, "{noticed} of {DAMAGES} noticed");
}
