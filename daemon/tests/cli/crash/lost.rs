//! The process dies and a bit of SQLite's log flips: any lost commit is detected, and the board resumes once an
//! operator accepts the loss.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use patchboard_faults::random::Random;
use serde_json::{Value, json};

use super::shim::{CHAIN, How, Operation, RUN, copy, each, run, sampled, sandbox, trace};
use crate::sandbox::Sandbox;

/// Number of flips; one of every `EVERY` is tried, unless `PATCHBOARD_CRASHES=all`.
const FLIPS: u64 = 600;
const EVERY: usize = 15;

const LOG: &str = ".patchboard/patchboard.db-wal";

/// Returns the data directory of a process that died after the last commit, with all commits in the log.
fn killed() -> Sandbox {
    let whole = sandbox();
    run(&whole, RUN, How::Nothing, 0).expect_exit(0);
    let operations: Vec<Operation> = trace(&whole).into_iter().filter(Operation::is_counted).collect();
    let is_mark = |one: &Operation| matches!(one, Operation::Write { file, .. } if file == "patchboard.marks");
    let last = operations.iter().rposition(is_mark).expect("commits leave marks");
    let killed = sandbox();
    assert_eq!(run(&killed, RUN, How::Kill, last + 2).code, -1);
    killed
}

/// Returns a copy with a bit of the log flipped.
fn flipped(killed: &Sandbox, place: usize, bit: u64) -> Sandbox {
    let copy = copy(killed);
    let mut log = fs::read(copy.path().join(LOG)).expect("there is a log");
    log[place] ^= 1 << bit;
    copy.write(LOG, log);
    copy
}

fn asked(sandbox: &Sandbox, arguments: &[&str]) -> (i32, Value) {
    let ran = sandbox.run(&[arguments, &["--output", "json"]].concat());
    assert!(!ran.stderr.contains("panicked"), "{arguments:?}: {}", ran.stderr);
    let lines = if ran.code == 0 { ran.lines() } else { vec![ran.stderr.lines().last().map_or(Value::Null, read)] };
    (ran.code, lines.into())
}

fn read(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}

fn length(path: &Path) -> usize {
    usize::try_from(fs::metadata(path).expect("a file").len()).expect("a small file")
}

#[test]
fn no_flipped_bit_of_the_log_takes_a_commit_back_unnoticed() {
    let killed = killed();
    let length = length(&killed.path().join(LOG));
    let (whole, all) = (copy(&killed), ["log", "last"]);
    let right = asked(&whole, &all);
    assert_eq!((right.0, asked(&whole, &["verify", "last"]).0, asked(&whole, &["doctor", "--offline"]).0), (0, 0, 0));
    let (lost, harmless) = (AtomicUsize::new(0), AtomicUsize::new(0));
    each(&sampled(&(0..FLIPS).collect::<Vec<_>>(), EVERY), |flip| {
        let mut random = Random::from_parts(31, &[*flip]);
        let (place, bit) = (random.index(length), random.below(8));
        let after = format!("bit {bit} of byte {place} of {length}");
        let sandbox = flipped(&killed, place, bit);
        // In either order, because reading may repair the file.
        let (verified, examined) = match flip % 2 {
            0 => (asked(&sandbox, &["verify", "last"]), sandbox.run(&["doctor", "--offline"])),
            _ => {
                let examined = sandbox.run(&["doctor", "--offline"]);
                (asked(&sandbox, &["verify", "last"]), examined)
            }
        };
        if verified.0 == 0 && examined.code == 0 {
            assert_eq!(asked(&sandbox, &all), right, "{after}: it verifies, and is not what it was");
            harmless.fetch_add(1, Ordering::Relaxed);
            return;
        }
        lost.fetch_add(1, Ordering::Relaxed);
        assert_eq!(verified.1[0]["error"]["code"], "records_lost", "{after}: {verified:?}");
        assert!(examined.code == 1 && examined.stdout.contains("[records_lost]"), "{after}: {}", examined.stdout);
        for command in ["state", "log", "export", "replay", "resume"] {
            let refused = asked(&sandbox, &[command, "last"]);
            assert_eq!(
                (refused.0, &refused.1[0]["error"]["code"]),
                (1, &json!("records_lost")),
                "{after}: {command}: {refused:?}"
            );
        }
    });
    let (lost, harmless) = (lost.into_inner(), harmless.into_inner());
    eprintln!("{lost} flips lost commits, {harmless} changed nothing");
    assert!(lost > 20, "{lost} flips lost commits");
}

#[test]
fn an_operator_may_give_up_what_is_lost_and_go_on() {
    let killed = killed();
    let length = length(&killed.path().join(LOG));
    let heads = copy(&killed).run(&["heads"]).expect_exit(0).stdout;
    let sandbox = flipped(&killed, length * 2 / 3, 3);
    let lost = asked(&sandbox, &["verify", "last"]).1[0]["error"].clone();
    let board = lost["board"].as_str().expect("the board is named").to_owned();
    let (known, found) = (lost["known"].as_u64().expect("a number"), lost["found"].as_u64().expect("a number"));
    assert!(known > found, "{lost}");
    assert!(lost["help"].as_str().is_some_and(|help| help.contains("--accept-loss")), "{lost}");
    for (command, code) in [("boards", 0), ("heads", 1)] {
        let listed = sandbox.run(&[command, "--output", "json"]).expect_exit(code).lines();
        assert_eq!(listed[0]["status"], "damaged");
    }
    // Another board runs in the meantime.
    sandbox.write("chain.yaml", CHAIN);
    let began = sandbox.run(&[RUN, &["-q"]].concat());
    assert!(began.code == 0 && began.stderr.contains("are lost"), "{}", began.stderr);
    assert_eq!(asked(&sandbox, &["doctor", "--accept-loss", "another"]).0, 2);
    let accepted = asked(&sandbox, &["doctor", "--accept-loss", &board]);
    assert_eq!(accepted, (0, json!([{"board": board, "known": known, "found": found}])));
    assert_eq!(asked(&sandbox, &["doctor", "--offline"]).0, 0);
    sandbox.run(&["verify", &board]).expect_exit(0);
    sandbox.run(&["resume", &board, "-q"]).expect_exit(0);
    sandbox.run(&["verify", &board]).expect_exit(0);
    sandbox.run(&["replay", &board]).expect_exit(0);
    // A head that was noted elsewhere still reveals the loss.
    sandbox.write("heads.txt", heads);
    assert_eq!(asked(&sandbox, &["verify", "--heads", "heads.txt"]).1[0]["error"]["code"], "head_differs");
}

#[test]
fn a_board_that_the_log_has_lost_as_a_whole_is_missed() {
    let killed = killed();
    let board = copy(&killed).run(&["boards", "--output", "json"]).expect_exit(0).json()["board"]
        .as_str()
        .expect("an id")
        .to_owned();
    let sandbox = flipped(&killed, 0, 0);
    for wanted in ["last", &board, &board[..20]] {
        let lost = asked(&sandbox, &["verify", wanted]).1[0]["error"].clone();
        assert_eq!((&lost["code"], &lost["found"]), (&json!("records_lost"), &Value::Null), "{wanted}: {lost}");
    }
    let accepted = asked(&sandbox, &["doctor", "--accept-loss", &board]);
    assert_eq!((accepted.0, &accepted.1[0]["found"]), (0, &Value::Null));
    assert_eq!(asked(&sandbox, &["verify", &board]).1[0]["error"]["code"], "no_such_board");
}
