//! The process ends between two steps, and the next process recovers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use patchboard_kernel::digest::Digest;
use rustix::fs::{CWD, RenameFlags};

use super::{
    ApplyOutcome, CHILD, Dice, SWAPS, Swap, again, directory, displaced, hash, is_child, name, open, open_with, own,
    text, write,
};
use crate::disk::{Disk, StagedChange, StagedOutcome};

/// Opens the directory as after a crash, with `state` expected in the file `f`.
fn recover(root: &Path, swap: Swap, state: Option<&str>) -> Vec<StagedOutcome> {
    let disk = open_with(root, swap);
    let recovery = disk.recover(|path| if path.as_str() == "f" { state.and_then(hash) } else { None });
    let outcomes = recovery.expect("recovered").changes.into_iter().map(|change| change.outcome).collect();
    assert!(own(root, "staged").is_empty(), "nothing is left");
    // A second recovery has no work left.
    assert!(disk.recover(|_| None).expect("recovered").changes.is_empty());
    outcomes
}

fn at(root: &Path) -> Option<String> {
    fs::read_to_string(root.join("f")).ok()
}

/// Returns a directory in which `f` has `before`, and the change to `after` is staged.
fn staged(swap: Swap, before: Option<&str>, after: Option<&str>) -> (tempfile::TempDir, Disk, StagedChange) {
    let root = directory();
    if let Some(before) = before {
        write(root.path().join("f"), before);
    }
    let disk = open_with(root.path(), swap);
    let staged = disk.stage(&name("f"), before.and_then(hash), after).expect("staged");
    (root, disk, staged)
}

fn is_put(outcomes: &[StagedOutcome]) -> bool {
    matches!(outcomes, [StagedOutcome::Applied(ApplyOutcome::Done)])
}

#[test]
fn recovery_applies_recorded_changes_and_discards_the_rest() {
    let changes = [(Some("old"), Some("new")), (None, Some("new")), (Some("old"), None)];
    for (swap, (before, after)) in SWAPS.into_iter().flat_map(|swap| changes.map(|change| (swap, change))) {
        let case = format!("{swap:?} {before:?} {after:?}");
        // Staged, and recorded in the state.
        let (root, disk, _) = staged(swap, before, after);
        drop(disk);
        assert!(is_put(&recover(root.path(), swap, after)), "{case}");
        assert_eq!(at(root.path()).as_deref(), after, "{case}");

        // Staged, and not recorded in the state.
        let (root, disk, _) = staged(swap, before, after);
        drop(disk);
        assert!(matches!(recover(root.path(), swap, before)[..], [StagedOutcome::Discarded]), "{case}");
        assert_eq!(at(root.path()).as_deref(), before, "{case}");

        // Put, but not cleaned up.
        let (root, disk, staged_here) = staged(swap, before, after);
        let put = if after.is_some() { disk.place(&staged_here) } else { disk.apply_removal(&staged_here) };
        assert_eq!(put.expect("put"), ApplyOutcome::Done, "{case}");
        drop(disk);
        assert!(is_put(&recover(root.path(), swap, after)), "{case}");
        assert_eq!(at(root.path()).as_deref(), after, "{case}");

        // Put and cleaned up except for the note; a later state must not be undone.
        let (root, disk, staged_here) = staged(swap, before, after);
        disk.apply(&staged_here).expect("put");
        let note = serde_json::to_vec(&staged_here.plan).expect("it is written");
        write(root.path().join(".patchboard/staged").join(staged_here.note()), note);
        write(root.path().join("f"), "later");
        drop(disk);
        recover(root.path(), swap, Some("later"));
        assert_eq!(at(root.path()).as_deref(), Some("later"), "{case}");
        assert!(own(root.path(), "displaced").is_empty(), "{case}");
    }
}

#[test]
fn recovery_discards_incompletely_staged_changes() {
    let half = |root: &Path, name: &str, text: &[u8]| write(root.join(".patchboard/staged").join(name), text);
    let (root, disk, staged_here) = staged(Swap::Exchange, Some("old"), Some("new"));
    fs::remove_file(root.path().join(".patchboard/staged").join(staged_here.note())).expect("removed");
    half(root.path(), "x.new", b"half");
    half(root.path(), "y.json", b"{\"path\":\"f\",\"fr");
    half(root.path(), "z.json", br#"{"path":"../f","from":null,"to":null}"#);
    half(root.path(), "probe-1", b"");
    drop(disk);
    let disk = open(root.path());
    let recovery = disk.recover(|_| hash("new")).expect("recovered");
    assert_eq!((recovery.changes.len(), recovery.strays), (0, 5));
    assert_eq!(at(root.path()).as_deref(), Some("old"));
}

#[test]
fn external_writes_before_a_crash_are_kept_at_every_step() {
    for swap in SWAPS {
        // Before the exchange.
        let (root, disk, _) = staged(swap, Some("old"), Some("new"));
        write(root.path().join("f"), "theirs");
        drop(disk);
        let outcomes = recover(root.path(), swap, Some("new"));
        assert!(matches!(&outcomes[..], [StagedOutcome::Applied(ApplyOutcome::Displaced(_))]), "{swap:?} {outcomes:?}");
        assert_eq!((at(root.path()).as_deref(), displaced(root.path())), (Some("new"), vec!["theirs".to_owned()]));

        // Right after the exchange, or after the file was taken out; its content has not been checked yet.
        let (root, disk, staged_here) = staged(swap, Some("old"), Some("new"));
        write(root.path().join("f"), "theirs");
        let slots = root.path().join(".patchboard/staged");
        match swap {
            Swap::Exchange => {
                let new = slots.join(staged_here.new_slot());
                rustix::fs::renameat_with(CWD, &new, CWD, root.path().join("f"), RenameFlags::EXCHANGE)
                    .expect("exchanged");
            }
            Swap::TakeAndLink => fs::rename(root.path().join("f"), slots.join(staged_here.old_slot())).expect("taken"),
        }
        drop(disk);
        let outcomes = recover(root.path(), swap, Some("new"));
        assert!(matches!(&outcomes[..], [StagedOutcome::Applied(ApplyOutcome::Displaced(_))]), "{swap:?} {outcomes:?}");
        assert_eq!((at(root.path()).as_deref(), displaced(root.path())), (Some("new"), vec!["theirs".to_owned()]));

        // A removal after its file was taken out with unexpected content.
        let (root, disk, staged_here) = staged(swap, Some("old"), None);
        write(root.path().join("f"), "theirs");
        fs::rename(root.path().join("f"), root.path().join(".patchboard/staged").join(staged_here.old_slot()))
            .expect("taken");
        drop(disk);
        let outcomes = recover(root.path(), swap, None);
        assert!(matches!(&outcomes[..], [StagedOutcome::Applied(ApplyOutcome::Kept(_))]), "{swap:?} {outcomes:?}");
        assert_eq!(at(root.path()).as_deref(), Some("theirs"));

        // A removal as above, with another file created in its place.
        let (root, disk, staged_here) = staged(swap, Some("old"), None);
        write(root.path().join("f"), "theirs");
        fs::rename(root.path().join("f"), root.path().join(".patchboard/staged").join(staged_here.old_slot()))
            .expect("taken");
        write(root.path().join("f"), "another");
        drop(disk);
        let outcomes = recover(root.path(), swap, None);
        assert!(matches!(&outcomes[..], [StagedOutcome::Applied(ApplyOutcome::Displaced(_))]), "{swap:?} {outcomes:?}");
        assert_eq!((at(root.path()).as_deref(), displaced(root.path())), (Some("another"), vec!["theirs".to_owned()]));
    }
}

#[test]
fn recovery_keeps_the_text_of_a_change_that_cannot_be_applied() {
    let (root, disk, _) = staged(Swap::Exchange, Some("old"), Some("new"));
    fs::remove_file(root.path().join("f")).expect("removed");
    write(root.path().join("f/below"), "theirs");
    drop(disk);
    let outcomes = recover(root.path(), Swap::Exchange, Some("new"));
    assert!(matches!(&outcomes[..], [StagedOutcome::Failed(_)]), "{outcomes:?}");
    assert_eq!((text(root.path().join("f/below")), displaced(root.path())), ("theirs".into(), vec!["new".to_owned()]));
}

#[test]
fn a_put_that_failed_behind_the_exchange_may_be_called_again() {
    for swap in SWAPS {
        let (root, disk, staged_here) = staged(swap, Some("old"), Some("new"));
        disk.place(&staged_here).expect("put");
        assert_eq!(disk.apply(&staged_here).expect("again"), ApplyOutcome::Done);
        assert_eq!(at(root.path()).as_deref(), Some("new"), "{swap:?}: and not exchanged back");
        assert!(own(root.path(), "displaced").is_empty());
    }
}

/// Runs in the process to be killed: edits for ever, and notes each in a journal file before it is put.
fn edit_for_ever(root: &Path) {
    let disk = open(root);
    disk.recover(|path| journal(root).get(path.as_str()).copied().flatten()).expect("recovered");
    let mut dice = Dice(u64::from(std::process::id()) * 7919 + 1);
    let mut journal =
        fs::OpenOptions::new().append(true).create(true).open(root.join("journal.git")).expect("a journal");
    println!("ready");
    for count in 0.. {
        let path = format!("d{}/f{}", dice.below(2), dice.below(4));
        let before = disk.read(&name(&path)).expect("read");
        let after = (dice.below(4) > 0).then(|| format!("{count} {path} {}", std::process::id()));
        let staged = disk.stage(&name(&path), before.map(|before| before.hash), after.as_deref()).expect("staged");
        // Some changes are discarded.
        if dice.below(5) == 0 {
            disk.discard(&staged).expect("discarded");
            continue;
        }
        let hash = staged.hash().map_or_else(|| "-".to_owned(), |hash| hash.to_string());
        journal.write_all(format!("{path} {hash}\n").as_bytes()).expect("written");
        assert!(matches!(disk.apply(&staged).expect("put"), ApplyOutcome::Done | ApplyOutcome::Missing));
    }
}

/// Returns the expected digest of each file; an unfinished line does not count.
fn journal(root: &Path) -> BTreeMap<String, Option<Digest>> {
    let lines = fs::read_to_string(root.join("journal.git")).unwrap_or_default();
    let whole = lines.rfind('\n').map_or("", |end| &lines[..=end]);
    let entries = whole.lines().map(|line| line.split_once(' ').expect("two words"));
    entries.map(|(path, hash)| (path.to_owned(), hash.parse().ok())).collect()
}

#[test]
fn killed_at_any_moment_the_directory_becomes_what_the_journal_says() {
    if is_child() {
        edit_for_ever(&PathBuf::from(std::env::var_os(CHILD).expect("it is set")));
        return;
    }
    let root = directory();
    let mut dice = Dice(42);
    let mut put = 0;
    for round in 0..40 {
        let test = "recovery::killed_at_any_moment_the_directory_becomes_what_the_journal_says";
        let mut child = again(&[], test, root.path()).stdout(Stdio::piped()).spawn().expect("started");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        assert!(said.lines().any(|line| line.is_ok_and(|line| line.contains("ready"))), "round {round}");
        thread::sleep(Duration::from_micros(u64::try_from(dice.below(30_000)).expect("small")));
        child.kill().expect("killed");
        child.wait().expect("it ends");
        let state = journal(root.path());
        let disk = open(root.path());
        let recovery = disk.recover(|path| state.get(path.as_str()).copied().flatten()).expect("recovered");
        put += recovery.changes.iter().filter(|change| matches!(change.outcome, StagedOutcome::Applied(_))).count();
        for (path, hash) in &state {
            let found = disk.read(&name(path)).expect("read").map(|contents| contents.hash);
            assert_eq!(found, *hash, "round {round}: {path}");
        }
        assert!(own(root.path(), "displaced").is_empty() && own(root.path(), "staged").is_empty(), "round {round}");
    }
    println!("{} files, {put} changes found unfinished", journal(root.path()).len());
    assert!(put > 0, "some were killed between the journal and the end of the change");
}
