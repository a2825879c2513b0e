//! A scan returns all files in one order, and counts those it leaves out.

use std::ffi::OsStr;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Instant;

use super::{Disk, DiskOptions, UnservedReason, change, directory, hash, name, open, read, refused, write};
use crate::disk::{ApplyOutcome, Contents, DEPTH_MAX, DiskCode, DiskError};

#[test]
fn five_thousand_files_are_read_in_order() {
    let root = directory();
    let line = "def function(argument):  # a line of forty\n";
    for at in 0..5_000 {
        write(root.path().join(format!("d{}/e{}/f{at}.py", at % 10, at % 50)), line.repeat(at % 200));
    }
    let disk = open(root.path());
    let begun = Instant::now();
    let scan = disk.scan().expect("scanned");
    let bytes: u64 = scan.files.values().map(|file| file.bytes).sum();
    println!("5,000 files, {bytes} bytes: {:?}", begun.elapsed());
    assert_eq!(scan.files.len(), 5_000);
    let file = scan.files[&name("d9/e49/f199.py")];
    assert_eq!((Some(file.hash), file.lines), (hash(&line.repeat(199)), 199));
    assert_eq!(disk.scan().expect("scanned"), scan);
    drop(disk);

    let few = |max_files| Disk::open(root.path(), DiskOptions { max_files, ..DiskOptions::default() }).expect("opened");
    assert_eq!(few(5_000).scan().expect("that many are allowed").files.len(), 5_000);
    assert_eq!(few(4_999).scan().expect_err("one too many").code(), DiskCode::TooManyFiles);
    // Names that are not served are not scanned without limit either.
    assert_eq!(few(10).scan().expect_err("far too many").code(), DiskCode::TooManyFiles);
}

#[test]
fn names_of_all_scripts_are_served_and_those_that_cannot_be_written_are_counted() {
    let root = directory();
    let served = ["naïve.txt", "日本語/ファイル.py", "🦀.rs", "a b/c d", "-rf", "e\u{301}.txt", "é.txt"];
    let line_end = OsStr::from_bytes(b"a\nb");
    for path in served {
        write(root.path().join(path), path);
    }
    for odd in [line_end, OsStr::from_bytes(b"back\\slash"), OsStr::from_bytes(b"latin\xe9"), OsStr::new("C:x")] {
        write(root.path().join(odd), "x");
    }
    write(root.path().join(line_end).with_extension("d").join("below"), "x");
    let disk = open(root.path());
    let scan = disk.scan().expect("scanned");
    let mut sorted = served;
    sorted.sort_unstable();
    assert_eq!(scan.files.keys().map(|path| path.as_str()).collect::<Vec<_>>(), sorted);
    assert_eq!(scan.left[&UnservedReason::Name].count, 5, "{:?}", scan.left);
    assert!(scan.left[&UnservedReason::Name].first.iter().any(|name| name == "latin\u{fffd}"));
    for path in served {
        assert_eq!(read(&disk, path).as_deref(), Some(path));
        assert_eq!(change(&disk, path, Some(path), Some("new")), ApplyOutcome::Done);
        assert_eq!(read(&disk, path).as_deref(), Some("new"));
    }
    // A name that the file system cannot have is not a disk error.
    let long = "x".repeat(300);
    assert_eq!(refused(&disk, &long), Some(UnservedReason::Name));
    assert_eq!(refused(&disk, &format!("{long}/a")), Some(UnservedReason::Name));
}

#[test]
fn directories_are_not_followed_down_for_ever() {
    let root = directory();
    let deep = |depth: usize| format!("{}f", "d/".repeat(depth));
    fs::create_dir_all(root.path().join("d/".repeat(DEPTH_MAX + 1))).expect("directories can be made");
    write(root.path().join(deep(DEPTH_MAX)), "x");
    write(root.path().join(deep(DEPTH_MAX + 1)), "x");
    let disk = open(root.path());
    let scan = disk.scan().expect("scanned");
    assert_eq!(scan.files.keys().map(ToString::to_string).collect::<Vec<_>>(), [deep(DEPTH_MAX)]);
    assert_eq!(scan.left[&UnservedReason::TooDeep].count, 1);
    assert_eq!(refused(&disk, &deep(DEPTH_MAX)), None);
    assert_eq!(refused(&disk, &deep(DEPTH_MAX + 1)), Some(UnservedReason::TooDeep));
}

#[test]
fn a_series_reads_what_each_reads_alone() {
    let root = directory();
    for (path, text) in [
        (".gitignore", "*.o\n/out/\n"),
        ("a", "a"),
        ("a.o", "o"),
        ("d/.gitignore", "!x.o\nlocal\n"),
        ("d/x.o", "x"),
        ("d/y.o", "y"),
        ("d/local/z", "z"),
        ("d/e/local", "l"),
        ("d/e/f/g", "g"),
        ("d-e/f", "f"),
        ("out/a", "a"),
    ] {
        write(root.path().join(path), text);
    }
    std::os::unix::fs::symlink("d", root.path().join("link")).expect("linked");
    let disk = open(root.path());
    let mut paths: Vec<_> = [
        "a",
        "a.o",
        "a/b",
        "d",
        "d/x.o",
        "d/y.o",
        "d/local/z",
        "d/e/local",
        "d/e/f/g",
        "d/e/none/g",
        "d/e/none",
        "d-e/f",
        "link/x.o",
        "none/a",
        "out/a",
        "d/e/f/h",
    ]
    .map(name)
    .into();
    let shown = |read: Result<Option<Contents>, DiskError>| format!("{:?}", read.map_err(|error| error.to_string()));
    for _ in 0..paths.len() {
        // In every order of neighbours: rotated, forwards and backwards.
        paths.rotate_left(5);
        for paths in [paths.clone(), paths.iter().rev().cloned().collect()] {
            let mut seen = Vec::new();
            let read = disk.read_each(&paths, |path, read| {
                seen.push((path.clone(), shown(read)));
                ControlFlow::Continue(())
            });
            assert_eq!(read.expect("read"), paths.len());
            let alone: Vec<_> = paths.iter().map(|path| (path.clone(), shown(disk.read(path)))).collect();
            assert_eq!(seen, alone);
        }
    }
    let mut count = 0;
    let some = disk.read_each(&paths, |_, _| {
        count += 1;
        if count == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((some.expect("read"), count), (3, 3));
}
