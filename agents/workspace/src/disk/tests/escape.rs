//! No file outside the directory is read or written, even if names change meanwhile.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags};

use super::{
    Disk, Stop, UnservedReason, change, directory, fast_directory, hash, name, open, read, refused, text, write,
};
use crate::disk::{DiskError, dir_fd};

#[test]
fn links_are_not_served_wherever_they_lead() {
    let (root, outside) = (directory(), directory());
    let at = |name: &str| root.path().join(name);
    write(outside.path().join("secret"), "secret");
    write(at("real/a.txt"), "a");
    symlink(outside.path().join("secret"), at("file")).expect("a link");
    symlink(outside.path(), at("dir")).expect("a link");
    symlink("real/a.txt", at("inside")).expect("a link");
    symlink("real", at("inside-dir")).expect("a link");
    symlink("nowhere", at("dangling")).expect("a link");
    symlink("../..", at("real/up")).expect("a link");
    let disk = open(root.path());
    for path in ["file", "dir/secret", "inside", "inside-dir/a.txt", "dangling", "real/up/x", "dir/new/deep"] {
        assert_eq!(refused(&disk, path), Some(UnservedReason::Symlink), "{path}");
        let staged = disk.stage(&name(path), None, Some("x"));
        assert_eq!(staged.err().and_then(|error| error.reason()), Some(UnservedReason::Symlink), "{path}");
    }
    assert_eq!(fs::read_dir(outside.path()).expect("listed").count(), 1);
    assert_eq!(text(outside.path().join("secret")), "secret");
    let scan = disk.scan().expect("scanned");
    assert_eq!(scan.files.keys().map(|path| path.as_str()).collect::<Vec<_>>(), ["real/a.txt"]);
    assert_eq!(scan.left[&UnservedReason::Symlink].count, 6);
}

#[test]
fn the_disk_opens_only_regular_files() {
    let root = directory();
    let at = |name: &str| root.path().join(name);
    rustix::fs::mkfifoat(CWD, at("pipe"), rustix::fs::Mode::RWXU).expect("a pipe");
    let _listener = UnixListener::bind(at("socket")).expect("a socket");
    assert!(fs::metadata(at("socket")).expect("it is there").file_type().is_socket());
    fs::create_dir(at("folder")).expect("a directory");
    write(at("plain"), "text");
    symlink("plain", at("link")).expect("a link");
    let disk = open(root.path());
    // Also refused if it was an ordinary file when it was checked.
    for name in ["pipe", "socket", "folder", "link"] {
        assert!(dir_fd::open(&disk.root, name).expect("no error").is_none(), "{name}");
    }
    assert!(dir_fd::open(&disk.root, "plain").expect("no error").is_some());
    for path in ["pipe", "socket", "folder", "plain/below"] {
        assert_eq!(refused(&disk, path), Some(UnservedReason::NotRegular), "{path}");
        let staged = disk.stage(&name(path), None, Some("x"));
        assert_eq!(staged.err().and_then(|error| error.reason()), Some(UnservedReason::NotRegular), "{path}");
    }
    assert_eq!(disk.scan().expect("scanned").left[&UnservedReason::NotRegular].count, 2);
}

#[test]
fn a_name_of_the_same_file_elsewhere_is_not_written_through() {
    let (root, outside) = (directory(), directory());
    write(outside.path().join("other"), "shared");
    fs::hard_link(outside.path().join("other"), root.path().join("a.txt")).expect("a second name");
    let disk = open(root.path());
    assert_eq!(read(&disk, "a.txt").as_deref(), Some("shared"), "a second name cannot be told from a first");
    change(&disk, "a.txt", Some("shared"), Some("ours"));
    assert_eq!(text(outside.path().join("other")), "shared");
    assert_eq!(text(root.path().join("a.txt")), "ours");
}

/// Exchanges two names repeatedly until `is_over` is set.
fn swapping(one: &Path, other: &Path, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).ok();
    }
}

/// Returns whether an error is one of those expected while names change.
fn is_refusal(error: &DiskError) -> bool {
    matches!(error.reason(), Some(UnservedReason::Symlink | UnservedReason::NotRegular))
        || matches!(error, DiskError::Busy { .. })
}

#[test]
fn a_directory_that_becomes_a_link_in_between_leads_nowhere() {
    let (root, outside) = (fast_directory(), fast_directory());
    let at = |name: &str| root.path().join(name);
    write(at("d/e/f"), "inside");
    write(outside.path().join("e/f"), "secret");
    symlink(outside.path(), at("link")).expect("a link");
    let disk: Disk = open(root.path());
    let (is_over, refusals, reads) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _stop = Stop(&is_over);
        scope.spawn(|| swapping(&at("d"), &at("link"), &is_over));
        let reader = scope.spawn(|| {
            for _ in 0..10_000 {
                match disk.read(&name("d/e/f")) {
                    Ok(found) => {
                        let found = found.expect("it is never away").text;
                        assert!(found.starts_with("inside"), "{found}");
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => {
                        assert!(is_refusal(&error), "{error}");
                        refusals.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        let writer = scope.spawn(|| {
            let mut puts = 0;
            for count in 0..10_000 {
                let made = disk
                    .stage(&name("d/e/f"), hash("inside"), Some(&format!("inside {count}")))
                    .and_then(|staged| disk.apply(&staged).inspect_err(|_| disk.discard(&staged).expect("discarded")));
                match made {
                    Ok(_) => puts += 1,
                    Err(error) => assert!(is_refusal(&error), "{error}"),
                }
            }
            puts
        });
        reader.join().expect("no read led outside");
        let puts = writer.join().expect("no write led outside");
        let (reads, refusals) = (reads.load(Ordering::Relaxed), refusals.load(Ordering::Relaxed));
        println!("{reads} reads, {refusals} refusals, {puts} puts");
        assert!(
            reads > 0 && refusals > 0 && puts > 0,
            "both were met: {reads} reads, {refusals} refusals, {puts} puts"
        );
    });
    assert_eq!(text(outside.path().join("e/f")), "secret");
    assert_eq!(fs::read_dir(outside.path().join("e")).expect("listed").count(), 1);
    assert_eq!(fs::read_dir(outside.path()).expect("listed").count(), 1);
}

#[test]
fn a_file_that_becomes_a_link_in_between_is_neither_read_nor_written_through() {
    let (root, outside) = (fast_directory(), fast_directory());
    let at = |name: &str| root.path().join(name);
    write(at("f"), "inside");
    write(outside.path().join("secret"), "secret");
    symlink(outside.path().join("secret"), at("link")).expect("a link");
    let disk = open(root.path());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&is_over);
        scope.spawn(|| swapping(&at("f"), &at("link"), &is_over));
        let reader = scope.spawn(|| {
            let (mut reads, mut refusals) = (0, 0);
            let begun = Instant::now();
            for count in 0.. {
                let is_met = reads > 0 && refusals > 0;
                if count >= 10_000 && (is_met || begun.elapsed() > Duration::from_secs(10)) {
                    break;
                }
                match disk.read(&name("f")) {
                    Ok(Some(found)) => {
                        assert!(found.text.starts_with("inside"), "{}", found.text);
                        reads += 1;
                    }
                    Ok(None) => panic!("it is never away"),
                    Err(error) => {
                        assert!(is_refusal(&error), "{error}");
                        refusals += 1;
                    }
                }
            }
            (reads, refusals)
        });
        // The exchange replaces the file even if it is a link. Soon no link is left to swap, so a new one is made.
        let writer = scope.spawn(|| {
            for count in 0..2_000 {
                let made = disk
                    .stage(&name("f"), hash("inside"), Some(&format!("inside {count}")))
                    .and_then(|staged| disk.apply(&staged).inspect_err(|_| disk.discard(&staged).expect("discarded")));
                if let Err(error) = made {
                    assert!(is_refusal(&error), "{error}");
                }
                if !at("f").is_symlink() && !at("link").is_symlink() {
                    fs::remove_file(at("link")).ok();
                    symlink(outside.path().join("secret"), at("link")).ok();
                }
                // A swap at that moment leaves two links.
                if at("f").is_symlink() && at("link").is_symlink() {
                    write(at("new"), "inside");
                    fs::rename(at("new"), at("link")).expect("renamed");
                }
            }
        });
        let (reads, refusals) = reader.join().expect("no read led outside");
        writer.join().expect("no write led outside");
        println!("{reads} reads, {refusals} refusals");
        assert!(reads > 0 && refusals > 0, "both were met: {reads} reads, {refusals} refusals");
    });
    assert_eq!(text(outside.path().join("secret")), "secret");
}
