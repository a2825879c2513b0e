//! External changes are noticed soon.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Disk, DiskOptions, change, directory, name, open, write};
use crate::disk::watch::{ChangeNotice, PendingChanges, Watch, watch};

/// Waits until `path` may have changed.
async fn noticed(watch: &mut Watch, path: &str) {
    let arrival = async {
        loop {
            match watch.next().await.expect("somebody watches") {
                ChangeNotice::All => return,
                ChangeNotice::Files(files) if files.contains(&name(path)) => return,
                ChangeNotice::Files(_) => {}
                ChangeNotice::TooManyWatches => panic!("there are few directories"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), arrival).await.unwrap_or_else(|_| panic!("{path} was not noticed"));
}

/// Collects all notices until none arrives for two seconds.
async fn all(watch: &mut Watch) -> (BTreeSet<String>, bool) {
    let (mut files, mut is_all) = (BTreeSet::new(), false);
    while let Ok(change) = tokio::time::timeout(Duration::from_millis(2_000), watch.next()).await {
        match change.expect("somebody watches") {
            ChangeNotice::Files(some) => files.extend(some.iter().map(ToString::to_string)),
            ChangeNotice::All => is_all = true,
            ChangeNotice::TooManyWatches => panic!("there are few directories"),
        }
    }
    (files, is_all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn changes_of_files_are_noticed_wherever_they_are() {
    let root = directory();
    let at = |name: &str| root.path().join(name);
    write(at("a"), "a");
    write(at("d/e/b"), "b");
    write(at(".gitignore"), "ignored/\n");
    write(at("ignored/x"), "x");
    write(at(".git/index"), "x");
    let disk = Arc::new(open(root.path()));
    let mut watch = watch(&disk).expect("watched");

    write(at("a"), "a2");
    noticed(&mut watch, "a").await;
    fs::remove_file(at("d/e/b")).expect("removed");
    noticed(&mut watch, "d/e/b").await;
    write(at("d/tmp"), "b2");
    fs::rename(at("d/tmp"), at("d/e/b")).expect("moved");
    noticed(&mut watch, "d/e/b").await;
    all(&mut watch).await;

    // Files that are not served, and the workspace's own reads, cause no notice.
    write(at(".git/index"), "y");
    write(at("ignored/x"), "y");
    disk.scan().expect("scanned");
    assert_eq!(all(&mut watch).await, (BTreeSet::new(), false));

    // The workspace's own change is noticed like any other; its staged file is not.
    change(&disk, "a", Some("a2"), Some("a3"));
    let (files, is_all) = all(&mut watch).await;
    assert_eq!((files, is_all), (BTreeSet::from(["a".to_owned()]), false));

    // A new directory: all may have changed, and it is watched from then on, as is one that was moved here.
    fs::create_dir_all(at("new/deep")).expect("made");
    noticed(&mut watch, "new/deep/c").await;
    all(&mut watch).await;
    write(at("new/deep/c"), "c");
    noticed(&mut watch, "new/deep/c").await;
    fs::rename(at("new"), at("moved")).expect("moved");
    assert!(all(&mut watch).await.1, "all may have changed");
    write(at("moved/deep/c"), "c2");
    noticed(&mut watch, "moved/deep/c").await;

    // A changed ignore rule changes the files served.
    all(&mut watch).await;
    write(at(".gitignore"), "");
    assert!(all(&mut watch).await.1, "all may have changed");
    write(at("ignored/x"), "z");
    noticed(&mut watch, "ignored/x").await;
}

#[test]
fn many_changes_become_one_word_and_a_slow_listener_loses_none() {
    let file = |number: usize| name(&format!("f{number}"));
    let (sender, mut notices) = mpsc::channel(2);
    let mut news = PendingChanges::default();
    assert!(news.send(&sender) && notices.try_recv().is_err(), "there is nothing to tell");
    for number in 0..40 {
        news.note(file(number));
        assert!(news.send(&sender));
    }
    let mut heard = Vec::new();
    while let Ok(word) = notices.try_recv() {
        heard.push(word);
        assert!(news.send(&sender));
    }
    let those = |numbers: std::ops::Range<usize>| ChangeNotice::Files(numbers.map(file).collect());
    assert_eq!(heard, [those(0..1), those(1..2), those(2..40)]);
    // Too many to name one by one.
    (0..1_001).for_each(|number| news.note(file(number)));
    assert!(news.send(&sender));
    assert_eq!(notices.try_recv(), Ok(ChangeNotice::All));
    news.note(file(0));
    assert!(news.send(&sender));
    assert_eq!(notices.try_recv(), Ok(those(0..1)), "and from then on they are told by name again");
    drop(notices);
    news.note(file(0));
    assert!(!news.send(&sender), "nobody listens");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_late_watcher_learns_of_all_changed_files() {
    let root = directory();
    let disk = Arc::new(open(root.path()));
    let mut watch = watch(&disk).expect("watched");
    let mut missed: BTreeSet<_> = (0..300).map(|number| format!("f{number}")).collect();
    missed.iter().for_each(|file| write(root.path().join(file), "x"));
    let arrival = async {
        while !missed.is_empty() {
            match watch.next().await.expect("somebody watches") {
                ChangeNotice::All => missed.clear(),
                ChangeNotice::Files(files) => missed.retain(|file| !files.contains(&name(file))),
                ChangeNotice::TooManyWatches => panic!("there are few directories"),
            }
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), arrival).await.is_ok(), "not noticed: {missed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn dropping_a_watch_frees_the_directory() {
    let root = directory();
    let disk = Arc::new(open(root.path()));
    let watch = watch(&disk).expect("watched");
    drop(watch);
    drop(disk);
    let reopened = |path: &Path| Disk::open(path, DiskOptions::default()).is_ok();
    for _ in 0..100 {
        if reopened(root.path()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the directory is still held");
}
