//! A full disk, a read-only directory and another file system, each in a child process and only where this is harmless.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::{
    ApplyOutcome, CHILD, Disk, DiskOptions, UnservedReason, again, change, directory, displaced, hash, is_child, name,
    open, own, read, text, write,
};
use crate::disk::{DiskCode, StagedOutcome, watch};

/// Reruns a test in its own namespaces after `setup`; returns false if that is not possible here.
fn apart(test: &str, root: &Path, flags: &str, setup: &str) -> bool {
    let script = format!("cd \"$1\" && {{ {setup}; }} && echo apart && shift && exec \"$@\"");
    let root_text = root.to_str().expect("a plain path");
    let output = again(&["unshare", flags, "sh", "-c", &script, "sh", root_text], test, root).output();
    let said = output.map(|output| (output.status.success(), [output.stdout, output.stderr].concat()));
    let (is_well, said) = said.unwrap_or((false, b"unshare cannot be run".to_vec()));
    let said = String::from_utf8_lossy(&said);
    if !said.contains("apart\n") {
        println!("SKIPPED: no namespaces of our own here: {said}");
        return false;
    }
    assert!(is_well && said.contains("1 passed"), "{said}");
    println!("{said}");
    true
}

fn child() -> PathBuf {
    PathBuf::from(std::env::var_os(CHILD).expect("it is set"))
}

#[test]
fn a_full_disk_is_reported_and_nothing_is_half_written() {
    if !is_child() {
        let root = directory();
        apart(
            "limits::a_full_disk_is_reported_and_nothing_is_half_written",
            root.path(),
            "-Urm",
            "mount -t tmpfs -o size=256k tmpfs .",
        );
        return;
    }
    let root = child();
    let disk = open(&root);
    change(&disk, "a", None, Some("small\n"));
    let early = disk.stage(&name("a"), hash("small\n"), Some("staged before\n")).expect("staged");
    let large = "x".repeat(180_000);
    change(&disk, "large", None, Some(&large));
    let error = disk.stage(&name("a"), hash("small\n"), Some(&large)).expect_err("there is no space");
    assert_eq!(error.code(), DiskCode::DiskFull, "{error}");
    assert_eq!(text(root.join("a")), "small\n");
    assert_eq!(own(&root, "staged").len(), 2, "what could not be staged is gone, what was staged is there");
    // Fill the remaining space; staged changes need no more.
    let mut filler = fs::File::create(root.join("filler.bin")).expect("made");
    std::io::Write::write_all(&mut filler, &[0; 300_000]).expect_err("it is full");
    assert_eq!(disk.apply(&early).expect("put"), ApplyOutcome::Done);
    assert_eq!(text(root.join("a")), "staged before\n");
    assert_eq!(change(&disk, "large", Some(&large), None), ApplyOutcome::Done);
}

#[test]
fn a_directory_that_cannot_be_written_is_reported() {
    if !is_child() {
        let root = directory();
        let test = "limits::a_directory_that_cannot_be_written_is_reported";
        apart(
            test,
            root.path(),
            "-Urm",
            "mount -t tmpfs tmpfs . && cd \"$PWD\" && mkdir w && echo x > w/a && mount -o remount,ro .",
        );
        return;
    }
    let error = Disk::open(child().join("w"), DiskOptions::default()).expect_err("it is read-only");
    assert_eq!(error.code(), DiskCode::BadDirectory);
    assert!(error.to_string().contains("ead-only"), "{error}");
}

#[test]
fn parts_that_may_not_be_read_or_written_are_reported() {
    let root = directory();
    let at = |name: &str| root.path().join(name);
    let test = "limits::parts_that_may_not_be_read_or_written_are_reported";
    if !is_child() {
        write(at("locked/a"), "a");
        write(at("closed/a"), "a");
        write(at("secret"), "a");
        write(at("rules/a"), "a");
        write(at("rules/.gitignore"), "b");
        write(at("open"), "a");
        // Without a user mapping, file permissions bind every process, even one that is root outside.
        apart(test, root.path(), "-U", "chmod 555 locked && chmod 0 closed secret rules/.gitignore");
        for name in ["locked", "closed"] {
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).expect("changed");
        }
        return;
    }
    let root = child();
    let disk = open(&root);
    let scan = disk.scan().expect("scanned");
    assert_eq!(scan.files.keys().map(ToString::to_string).collect::<Vec<_>>(), ["locked/a", "open"]);
    assert_eq!(scan.left[&UnservedReason::Unreadable].first, ["closed", "secret"]);
    assert_eq!(disk.read(&name("rules/a")).expect_err("nobody knows").reason(), Some(UnservedReason::Ignored));
    assert_eq!(disk.read(&name("closed/a")).expect_err("closed").reason(), Some(UnservedReason::Unreadable));
    assert_eq!(disk.read(&name("secret")).expect_err("closed").reason(), Some(UnservedReason::Unreadable));
    let locked = |mode| fs::set_permissions(root.join("locked"), fs::Permissions::from_mode(mode)).expect("changed");
    for (path, from, to) in [("a", Some("a"), Some("b")), ("a", Some("a"), None), ("new/b", None, Some("b"))] {
        let path = name(&format!("locked/{path}"));
        let error = disk.stage(&path, from.and_then(hash), to).expect_err("it may not be written");
        assert_eq!(error.code(), DiskCode::WriteForbidden, "{error}");
        // The directory may become read-only after staging.
        locked(0o755);
        let staged = disk.stage(&path, from.and_then(hash), to).expect("staged");
        locked(0o555);
        let error = disk.apply(&staged).expect_err("it may not be written");
        assert_eq!(error.code(), DiskCode::WriteForbidden, "{error}");
        let outcome = disk.settle(&staged, true).expect("it keeps nobody from working");
        assert!(matches!(outcome, StagedOutcome::Failed(_)), "{outcome:?}");
        assert_eq!(read(&disk, path.as_str()).as_deref(), from);
    }
    assert_eq!((displaced(&root), own(&root, "staged")), (vec!["b".to_owned(); 2], Vec::new()));
    locked(0o755);
    let staged = disk.stage(&name("locked/new/b"), None, Some("b")).expect("staged");
    locked(0o555);
    assert_eq!(disk.apply(&staged).expect_err("it may not be written").code(), DiskCode::WriteForbidden);
    // The staged change waits until it can be put.
    locked(0o755);
    assert_eq!(disk.apply(&staged).expect("put"), ApplyOutcome::Done);
    assert_eq!(text(root.join("locked/new/b")), "b");
}

#[test]
fn mounts_below_the_directory_are_unserved() {
    if !is_child() {
        let root = directory();
        let setup = "mkdir other same && mount -t tmpfs tmpfs other && echo a > other/a && mount --bind . same";
        apart("limits::mounts_below_the_directory_are_unserved", root.path(), "-Urm", setup);
        return;
    }
    let disk = open(&child());
    assert_eq!(disk.read(&name("other/a")).expect_err("elsewhere").reason(), Some(UnservedReason::Outside));
    assert_eq!(
        disk.stage(&name("other/b"), None, Some("b")).expect_err("elsewhere").reason(),
        Some(UnservedReason::Outside)
    );
    assert_eq!(disk.scan().expect("scanned").left[&UnservedReason::Outside].count, 1);
    // Another mount of the same file system can be read, but not written to.
    assert_eq!(
        disk.stage(&name("same/b"), None, Some("b")).expect_err("elsewhere").reason(),
        Some(UnservedReason::Outside)
    );
}

#[test]
fn when_nothing_more_can_be_watched_that_is_reported() {
    if !is_child() {
        let root = directory();
        for at in 0..20 {
            fs::create_dir(root.path().join(format!("d{at}"))).expect("made");
        }
        let setup = "echo 10 > /proc/sys/user/max_inotify_watches";
        apart("limits::when_nothing_more_can_be_watched_that_is_reported", root.path(), "-Ur", setup);
        return;
    }
    let root = child();
    let disk = std::sync::Arc::new(open(&root));
    assert_eq!(watch::watch(&disk).expect_err("more than ten").code(), DiskCode::TooManyWatches);
    // The limit also applies later, when too many directories appear.
    for at in 5..20 {
        fs::remove_dir(root.join(format!("d{at}"))).expect("removed");
    }
    let mut watch = watch::watch(&disk).expect("six are few enough");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    for at in 5..20 {
        fs::create_dir(root.join(format!("d{at}"))).expect("made");
    }
    runtime.block_on(async {
        let reported = tokio::time::timeout(std::time::Duration::from_secs(20), async {
            while let Some(noticed) = watch.next().await {
                if noticed == watch::ChangeNotice::TooManyWatches {
                    return true;
                }
            }
            false
        });
        assert!(reported.await.expect("in time"), "it is told before the end");
        assert_eq!(watch.next().await, None);
    });
}
