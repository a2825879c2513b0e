//! External processes write while files are put in place: everything written is found somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags};

use super::{ApplyOutcome, Dice, SWAPS, Stop, Swap, displaced, fast_directory, name, open_with, own, text, write};
use crate::disk::DiskError;

/// Writes like a careful external program: exchanges the file, and returns the previous content.
fn exchange(root: &Path, own: &str, content: &str) -> Option<String> {
    let (temporary, file) = (root.join(own), root.join("f"));
    write(&temporary, content);
    loop {
        match rustix::fs::renameat_with(CWD, &temporary, CWD, &file, RenameFlags::EXCHANGE) {
            Ok(()) => {
                let was = text(&temporary);
                fs::remove_file(&temporary).expect("removed");
                return Some(was);
            }
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => panic!("{error}"),
        }
        match rustix::fs::renameat_with(CWD, &temporary, CWD, &file, RenameFlags::NOREPLACE) {
            Ok(()) => return None,
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn nothing_that_is_written_beside_a_put_is_lost() {
    for swap in SWAPS {
        let root = fast_directory();
        let disk = open_with(root.path(), swap);
        let (written, seen) = (Mutex::new(BTreeSet::new()), Mutex::new(BTreeSet::new()));
        let note = |set: &Mutex<BTreeSet<String>>, text: String| set.lock().expect("no panic").insert(text);
        let is_over = AtomicBool::new(false);
        let counts: [AtomicUsize; 4] = Default::default();
        let busy = AtomicUsize::new(0);
        thread::scope(|scope| {
            let _stop = Stop(&is_over);
            for writer in 0..3 {
                let (root, is_over, written, seen, note) = (root.path(), &is_over, &written, &seen, &note);
                scope.spawn(move || {
                    let mut count = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let content = format!("theirs {writer} {count}");
                        note(written, content.clone());
                        if let Some(was) = exchange(root, &format!("temporary.{writer}"), &content) {
                            note(seen, was);
                        }
                        count += 1;
                        thread::sleep(Duration::from_micros(200));
                    }
                });
            }
            let mut dice = Dice(7);
            for count in 0..3_000 {
                let before = disk.read(&name("f")).expect("read");
                let content = (dice.below(4) > 0).then(|| format!("ours {count}"));
                if content.is_none() && before.is_none() {
                    continue;
                }
                let from = before.as_ref().map(|before| before.hash);
                let staged = disk.stage(&name("f"), from, content.as_deref()).expect("staged");
                if let Some(content) = content {
                    note(&written, content);
                }
                let put = loop {
                    match disk.apply(&staged) {
                        // Without an exchange, writers in a tight loop may win every race for a while.
                        Err(DiskError::Busy { .. }) => {
                            busy.fetch_add(1, Ordering::Relaxed);
                        }
                        put => break put.expect("put"),
                    }
                };
                // The replaced content is the one that was read. With `TakeAndLink`, others may write after the file
                // was taken out.
                if matches!(put, ApplyOutcome::Done)
                    || (matches!(put, ApplyOutcome::Displaced(_)) && swap == Swap::TakeAndLink)
                {
                    before.map(|before| note(&seen, before.text));
                }
                let at = match put {
                    ApplyOutcome::Done => 0,
                    ApplyOutcome::Missing => 1,
                    ApplyOutcome::Displaced(_) => 2,
                    ApplyOutcome::Kept(_) => 3,
                };
                counts[at].fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut seen = seen.into_inner().expect("no panic");
        seen.extend(displaced(root.path()));
        seen.extend(fs::read_to_string(root.path().join("f")).ok());
        let written = written.into_inner().expect("no panic");
        let lost: Vec<&String> = written.difference(&seen).collect();
        assert!(lost.is_empty(), "{swap:?}: {} of {} lost: {lost:?}", lost.len(), written.len());
        assert!(own(root.path(), "staged").is_empty());
        let [done, missing, displaced, kept] = counts.map(AtomicUsize::into_inner);
        println!(
            "{swap:?}: {} written, {done} done, {missing} missing, {displaced} displaced, {kept} kept",
            written.len()
        );
        assert!(done > 0 && displaced + kept > 0, "they met: {done} done, {displaced} displaced, {kept} kept");
    }
}

#[test]
fn concurrent_in_place_writes_are_kept() {
    for swap in SWAPS {
        let root = fast_directory();
        write(root.path().join("f"), "first");
        let disk = open_with(root.path(), swap);
        let mut met = 0;
        for count in 0..500 {
            let before = disk.read(&name("f")).expect("read").expect("it is there");
            let staged = disk.stage(&name("f"), Some(before.hash), Some(&format!("ours {count}"))).expect("staged");
            let content = format!("theirs {count}");
            // Like an editor that does not replace the file: it is emptied, and written a little later.
            let mut file = fs::File::create(root.path().join("f")).expect("opened");
            let put = thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    thread::yield_now();
                    file.write_all(content.as_bytes()).expect("written");
                });
                let put = disk.apply(&staged).expect("put");
                writer.join().expect("no panic");
                put
            });
            met += usize::from(matches!(put, ApplyOutcome::Displaced(_)));
            let in_place = text(root.path().join("f"));
            let is_found = in_place.contains(&content) || displaced(root.path()).contains(&content);
            assert!(is_found, "{swap:?}: {content} is neither in place ({in_place}) nor kept; {put:?}");
        }
        println!("{swap:?}: {met} of 500 were displaced");
    }
}
