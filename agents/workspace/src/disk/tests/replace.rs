//! Replacement of files, and the reported previous content.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::time::Instant;

use super::{
    ApplyOutcome, Disk, DiskOptions, SWAPS, UnservedReason, change, directory, displaced, hash, name, open, open_with,
    own, read, text, write,
};
use crate::disk::DiskCode;

#[test]
fn files_are_made_replaced_and_taken_away() {
    for swap in SWAPS {
        let root = directory();
        let disk = open_with(root.path(), swap);
        assert_eq!(change(&disk, "src/deep/a.py", None, Some("one\n")), ApplyOutcome::Done);
        let contents = disk.read(&name("src/deep/a.py")).expect("read").expect("it is there");
        assert_eq!((contents.text.as_str(), Some(contents.hash)), ("one\n", hash("one\n")));
        assert_eq!(change(&disk, "src/deep/a.py", Some("one\n"), Some("two\n")), ApplyOutcome::Done);
        assert_eq!(text(root.path().join("src/deep/a.py")), "two\n");
        assert_eq!(change(&disk, "src/deep/a.py", Some("two\n"), None), ApplyOutcome::Done);
        assert_eq!(read(&disk, "src/deep/a.py"), None);
        assert!(own(root.path(), "staged").is_empty() && own(root.path(), "displaced").is_empty());
    }
}

#[test]
fn displaced_external_writes_are_kept_and_reported() {
    for swap in SWAPS {
        let root = directory();
        let at = |name: &str| root.path().join(name);
        let disk = open_with(root.path(), swap);

        write(at("a"), "theirs");
        let ApplyOutcome::Displaced(found) = change(&disk, "a", Some("expected"), Some("ours")) else {
            panic!("{swap:?}")
        };
        assert_eq!((found.hash, found.text.as_deref()), (hash("theirs"), Some("theirs")));
        assert_eq!(found.kept, hash("theirs").map(|hash| hash.to_string()));
        assert_eq!((text(at("a")), displaced(root.path())), ("ours".into(), vec!["theirs".to_owned()]));

        // Equal content is kept a second time, beside the first.
        write(at("a"), "theirs");
        assert!(matches!(change(&disk, "a", Some("ours"), Some("ours 2")), ApplyOutcome::Displaced(_)));
        assert_eq!(displaced(root.path()), ["theirs", "theirs"]);

        write(at("new"), "theirs too");
        assert!(matches!(change(&disk, "new", None, Some("ours")), ApplyOutcome::Displaced(_)), "nothing was expected");
        assert_eq!(change(&disk, "gone", Some("expected"), Some("ours")), ApplyOutcome::Missing);
        assert_eq!(text(at("gone")), "ours");
        // The new content is already there, so nothing is displaced.
        assert_eq!(change(&disk, "gone", Some("expected"), Some("ours")), ApplyOutcome::Done);

        write(at("b"), "changed");
        let ApplyOutcome::Kept(found) = change(&disk, "b", Some("expected"), None) else { panic!("{swap:?}") };
        assert_eq!((found.text.as_deref(), text(at("b"))), (Some("changed"), "changed".into()));
        assert_eq!(change(&disk, "nothing", Some("expected"), None), ApplyOutcome::Missing);
        assert_eq!(change(&disk, "no/where", Some("expected"), None), ApplyOutcome::Missing);

        // Binary content and a link are kept as they are.
        write(at("c"), b"\xff\0");
        let ApplyOutcome::Displaced(found) = change(&disk, "c", Some("expected"), Some("ours")) else {
            panic!("{swap:?}")
        };
        assert_eq!((found.hash.is_some(), found.text), (true, None));
        fs::remove_file(at("c")).expect("removed");
        let staged = disk.stage(&name("c"), hash("ours"), Some("ours 2")).expect("staged");
        symlink("/etc/passwd", at("c")).expect("a link");
        let ApplyOutcome::Displaced(found) = disk.apply(&staged).expect("put") else { panic!("{swap:?}") };
        let kept = found.kept.expect("kept");
        assert!(fs::symlink_metadata(at(".patchboard/displaced").join(kept)).expect("it is there").is_symlink());
        assert_eq!(text(at("c")), "ours 2");
        assert!(own(root.path(), "staged").is_empty());
    }
}

#[test]
fn a_directory_in_the_place_of_a_file_is_left_alone() {
    let root = directory();
    let disk = open(root.path());
    for to in [Some("ours"), None] {
        let staged = disk.stage(&name("a/b"), hash("x"), to).expect("staged");
        write(root.path().join("a/b/c"), "theirs");
        assert_eq!(disk.apply(&staged).expect_err("a directory").reason(), Some(UnservedReason::NotRegular));
        assert_eq!(text(root.path().join("a/b/c")), "theirs");
        fs::remove_dir_all(root.path().join("a")).expect("removed");
        write(root.path().join("a"), "a file");
        assert_eq!(disk.apply(&staged).expect_err("not below a file").reason(), Some(UnservedReason::NotRegular));
        disk.discard(&staged).expect("discarded");
        fs::remove_file(root.path().join("a")).expect("removed");
    }
    assert!(own(root.path(), "staged").is_empty());
}

#[test]
fn permissions_stay_and_new_files_have_the_usual_ones() {
    for swap in SWAPS {
        let root = directory();
        let at = |name: &str| root.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).expect("it is there").mode() & 0o7777;
        for bits in [0o755, 0o600, 0o640, 0o444] {
            write(at("run.sh"), "one");
            fs::set_permissions(at("run.sh"), fs::Permissions::from_mode(bits)).expect("changed");
            let disk = open_with(root.path(), swap);
            assert_eq!(change(&disk, "run.sh", Some("one"), Some("two")), ApplyOutcome::Done);
            assert_eq!(mode("run.sh"), bits, "{swap:?}");
            fs::remove_file(at("run.sh")).expect("removed");
        }
        let disk = open_with(root.path(), swap);
        change(&disk, "d/new", None, Some("x"));
        // The umask of this process affects both alike.
        fs::File::create(at("usual")).expect("made");
        assert_eq!(mode("d/new"), mode("usual") & 0o644);
        fs::create_dir(at("usual-dir")).expect("made");
        assert_eq!(mode("d"), mode("usual-dir") & 0o755);
        assert_eq!(mode(".patchboard") & 0o077, 0);
    }
}

#[test]
fn one_process_has_a_directory_and_its_own_part_is_hidden_from_git() {
    let root = directory();
    let disk = open(root.path());
    let error = Disk::open(root.path(), DiskOptions::default()).expect_err("it is open already");
    assert_eq!(error.code(), DiskCode::DirectoryLocked);
    assert_eq!(text(root.path().join(".patchboard/.gitignore")), "*\n");
    drop(disk);
    drop(open(root.path()));

    fs::remove_dir_all(root.path().join(".patchboard")).expect("removed");
    let elsewhere = directory();
    symlink(elsewhere.path(), root.path().join(".patchboard")).expect("a link");
    let error = Disk::open(root.path(), DiskOptions::default()).expect_err("our own part is not a link");
    assert_eq!(error.code(), DiskCode::BadDirectory);
    assert_eq!(fs::read_dir(elsewhere.path()).expect("listed").count(), 0);
    let error = Disk::open(root.path().join("nowhere"), DiskOptions::default()).expect_err("there is none");
    assert_eq!(error.code(), DiskCode::BadDirectory);
}

#[test]
fn an_edit_takes_about_as_long_as_the_disk_needs() {
    let root = directory();
    let disk = open(root.path());
    let begun = Instant::now();
    let mut before: Option<String> = None;
    for count in 0..50 {
        let now = format!("content {count}\n");
        assert_eq!(change(&disk, "a", before.as_deref(), Some(&now)), ApplyOutcome::Done);
        before = Some(now);
    }
    println!("{:?} for each edit", begun.elapsed() / 50);
    assert_eq!(read(&disk, "a"), before);
}
