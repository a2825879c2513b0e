//! Checks golden journals: boards in each journal format that was ever written. This version must read, recover,
//! replay, verify and export all of them unchanged.
//!
//! `tests/golden/format-N` holds those of format N. They are written once, by `cargo xtask golden`, before the format
//! changes, and never again. [`store`] is their form on the disk, [`facts`] the values that must stay equal. The other
//! modules play the boards.

mod altered;
mod ends;
mod facts;
mod files;
mod play;
mod provider;
mod shipped;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use patchboard_kernel::record::{FORMAT, Kind};
use serde_json::Value;

use self::facts::Facts;
use self::play::House;
use self::store::Golden;

/// Variable that makes the test keep the boards of the present format. `cargo xtask golden` sets it.
const WRITE: &str = "PATCHBOARD_WRITE_GOLDEN";

/// Maximum bytes of the golden journals of a format.
const BYTES_MAX: u64 = 4 << 20;

/// Function that plays a board on a journal.
type Play = for<'a> fn(&'a House) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

macro_rules! boards {
    ($($name:literal: $play:path,)*) => { &[$(($name, |house| Box::pin($play(house)))),*] };
}

/// Boards that are played on a paused clock.
const PLAYED: &[(&str, Play)] = boards![
    "alfworld": shipped::alfworld,
    "approval-room": shipped::approval_room,
    "architect": ends::architect,
    "blackboard": shipped::blackboard,
    "bounded": ends::bounded,
    "by-hand": ends::by_hand,
    "callers": ends::callers,
    "clipboard": shipped::clipboard,
    "elements": ends::elements,
    "etl": shipped::etl,
    "evidence-review": shipped::evidence_review,
    "gave-up": ends::gave_up,
    "handoff": shipped::handoff,
    "mode-ablated": ends::mode_ablated,
    "mode-plain": ends::mode_plain,
    "mode-structured": ends::mode_structured,
    "negotiation": shipped::negotiation,
    "parts": ends::parts,
    "provider": provider::provider_waits,
    "redacted": ends::redacted,
    "redacted-open": ends::redacted_open,
    "retried": provider::retried,
    "rounds": ends::rounds,
    "salt-destroyed": ends::salt_destroyed,
    "snapshots": ends::snapshots,
    "stockroom": shipped::stockroom,
    "stopped": ends::stopped,
    "taken-over": ends::taken_over,
    "taken-up": ends::taken_up,
    "undecided": ends::undecided,
    "waiting": ends::waiting,
];

/// Boards that run programs, on the machine's clock.
const AT_FILES: &[(&str, Play)] = boards![
    "storm": files::storm,
    "workspace": files::workspace,
];

/// Plays a board, and writes it and its nested boards into a directory.
fn played(name: &'static str, play: Play, is_paused: bool, directory: &Path) -> BTreeMap<String, Facts> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(is_paused).build();
    runtime.expect("a runtime").block_on(async {
        let house = House::new(name);
        play(&house).await;
        store::write(&house.journal, name, directory)
    })
}

fn expected_of(golden: &Golden) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (_data, journal, board) = runtime.block_on(golden.restored())?;
    let found = Facts::of(&journal, &board)?;
    if found == golden.expected { Ok(()) } else { Err(format!("found {found:#?}, expected {:#?}", golden.expected)) }
}

/// The quick tier reads one of so many journals of an earlier format: others in each format, so that every board of four
/// formats is read in one of them.
const STRIDE: usize = 4;

#[test]
fn golden_journals_are_what_they_were() {
    let read = check(|age, name| age == 0 || (age + name.bytes().map(usize::from).sum::<usize>()) % STRIDE == 0);
    assert!(read >= 120, "{read} journals were read");
}

#[test]
#[ignore = "full tier: more than a minute"]
fn every_golden_journal_is_what_it_was() {
    let read = check(|_, _| true);
    assert!(read >= 420, "{read} journals were read");
}

/// Checks the journals that are chosen by the age of their format and their names; returns their number.
fn check(is_chosen: impl Fn(usize, &str) -> bool) -> usize {
    let formats = store::formats();
    let mut read = 0;
    for (age, directory) in formats.iter().rev().enumerate() {
        let golden = store::read(directory);
        let mut wrong = Vec::new();
        for golden in golden.iter().filter(|golden| is_chosen(age, &golden.name)) {
            if let Err(why) = expected_of(golden) {
                wrong.push(format!("{}: {why}", golden.name));
            }
            read += 1;
        }
        assert_eq!(wrong, Vec::<String>::new(), "{}", directory.display());
        assert!(golden.iter().all(|golden| directory.ends_with(format!("format-{}", golden.expected.format))));
        let archives = fs::read_dir(directory).expect("a folder").map(|entry| entry.expect("a file").file_name());
        let archives = archives.filter_map(|name| Some(name.to_str()?.strip_suffix(".jsonl")?.to_owned()));
        let archives: BTreeSet<String> = archives.filter(|name| !name.ends_with(".parts")).collect();
        let names: BTreeSet<String> = golden.iter().map(|golden| golden.name.clone()).collect();
        assert_eq!(archives, names, "every archive has its facts");
    }
    read
}

#[test]
fn boards_of_the_present_format_can_be_kept_and_are_what_was_played() {
    let made = tempfile::tempdir().expect("a directory");
    let mut facts = BTreeMap::new();
    for (boards, is_paused) in [(PLAYED, true), (AT_FILES, false)] {
        for (name, play) in boards {
            facts.extend(played(name, *play, is_paused, made.path()));
        }
    }
    let text = serde_json::to_string_pretty(&facts).expect("facts are JSON");
    fs::write(made.path().join(store::EXPECTED), text + "\n").expect("written");
    for golden in store::read(made.path()) {
        assert_eq!(golden.expected.format, FORMAT);
        expected_of(&golden).unwrap_or_else(|why| panic!("{}: {why}", golden.name));
    }
    ends_differ(&facts);
    let due: BTreeSet<String> = Kind::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(kinds(made.path()), due, "records of all kinds");
    if std::env::var_os(WRITE).is_some() {
        keep(made.path());
    }
}

/// Checks that the boards cover all shipped blueprints and all ends.
fn ends_differ(facts: &BTreeMap<String, Facts>) {
    let blueprints: BTreeSet<&str> = facts.values().map(|facts| facts.blueprint.as_str()).collect();
    let shipped = fs::read_dir(play::blueprints()).expect("blueprints are shipped");
    for entry in shipped {
        let path = entry.expect("a file").path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
            assert!(blueprints.contains(name), "no board of {name} is kept: add one to the golden journals");
        }
    }
    let ends: BTreeSet<String> =
        facts.values().map(|facts| facts.ended.map_or("not ended".to_owned(), |ended| ended.end.to_string())).collect();
    assert_eq!(ends, ["cancelled", "done", "not ended", "quiescent", "stopped"].map(str::to_owned).into());
    assert!(facts.values().any(|facts| facts.verify.snapshots > 0), "one has snapshots");
    assert!(
        facts.values().any(|facts| facts.verify.erased_values > 0 && facts.replay.erased.is_some()),
        "one is erased"
    );
    assert!(facts.values().any(|facts| facts.verify.is_salt_gone), "one has no salt");
}

/// Returns the kinds of all records.
fn kinds(directory: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(directory).expect("a folder").map(|entry| entry.expect("a file").path());
    let texts: Vec<String> = files.map(|path| fs::read_to_string(path).expect("a text")).collect();
    let lines = texts.iter().flat_map(|text| text.lines()).filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter_map(|line| Some(line["record"]["kind"].as_str()?.to_owned())).collect()
}

/// Copies the played boards to the golden journals. Those of a format are written only once.
fn keep(made: &Path) {
    let directory = store::root().join(format!("format-{FORMAT}"));
    assert!(!directory.exists(), "{} is there, and golden journals are never written again", directory.display());
    fs::create_dir_all(&directory).expect("a directory");
    let mut bytes = 0;
    for entry in fs::read_dir(made).expect("a folder") {
        let path = entry.expect("a file").path();
        bytes += fs::copy(&path, directory.join(path.file_name().expect("a name"))).expect("copied");
    }
    assert!(bytes < BYTES_MAX, "{bytes} bytes are more than {BYTES_MAX}: play less");
}
