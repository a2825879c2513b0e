//! File locks: sets are acquired as a whole, in order and without deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::{Dice, name};
use crate::disk::DiskCode;
use crate::disk::locks::{GLOBS_MAX, LockError, Locks, PATHS_MAX, PathSet, WAITING_MAX};

fn set(members: &[&str]) -> PathSet {
    PathSet::parse(members.iter().copied()).expect("a set")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(20)
}

fn late() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[test]
fn sets_overlap_where_a_file_may_be_in_both() {
    let cases: &[(&[&str], &[&str], bool)] = &[
        (&["a"], &["a"], true),
        (&["a"], &["b"], false),
        (&["a", "b"], &["c", "b"], true),
        (&["a/b"], &["a"], false),
        (&["src/*.py"], &["src/a.py"], true),
        (&["src/*.py"], &["src/d/a.py"], false),
        (&["src/**"], &["src/d/a.py"], true),
        (&["src/**"], &["tests/a.py"], false),
        (&["**/*.py"], &["src/a.py"], true),
        (&["src/*.py"], &["tests/*.py"], false),
        (&["src/**"], &["src/d/*.py"], true),
        (&["src/*.py"], &["src/*.rs"], true),
        (&["{a,b}.py"], &["b.py"], true),
        (&["**"], &["x/y/z"], true),
        (&[], &["**"], false),
    ];
    for (one, other, expected) in cases {
        assert_eq!(set(one).overlaps(&set(other)), *expected, "{one:?} {other:?}");
        assert_eq!(set(other).overlaps(&set(one)), *expected, "{other:?} {one:?}");
    }
    assert!(set(&["src/**"]).contains(&name("src/a")) && !set(&["src/*"]).contains(&name("src/a/b")));
    let many: Vec<String> = (0..=PATHS_MAX).map(|at| format!("f{at}")).collect();
    let patterns: Vec<String> = (0..=GLOBS_MAX).map(|at| format!("f{at}*")).collect();
    let long = format!("{}*", "x".repeat(2_000));
    for bad in [vec!["../x"], vec!["[a"], vec!["/abs"], vec![long.as_str()]]
        .into_iter()
        .chain([many.iter().map(String::as_str).collect(), patterns.iter().map(String::as_str).collect()])
    {
        let error = PathSet::parse(bad.iter().copied()).expect_err("it is none");
        assert_eq!(error.code(), DiskCode::BadPathSet);
    }
    assert!(PathSet::from_paths(many.iter().map(|path| name(path))).is_err());
}

#[tokio::test(start_paused = true)]
async fn locks_on_the_same_files_are_granted_in_order() {
    let locks = Locks::default();
    let first = locks.acquire(set(&["a"]), "x", soon()).await.expect("it is free");
    let apart = locks.acquire(set(&["c"]), "x", soon()).await.expect("nobody has it");
    assert_eq!(
        locks.acquire(set(&["a", "b"]), "x", soon()).await.expect_err("it is taken").code(),
        DiskCode::LockTimeout
    );

    let order = Arc::new(AtomicUsize::new(0));
    let queue = |members: &'static [&'static str], locks: &Locks| {
        let (locks, order) = (locks.clone(), Arc::clone(&order));
        tokio::spawn(async move {
            let turn = locks.acquire(set(members), "x", late()).await.expect("it comes");
            let at = order.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            drop(turn);
            at
        })
    };
    let mut waiting = Vec::new();
    for members in [&["a", "b"] as &[_], &["b"], &["a"]] {
        waiting.push(queue(members, &locks));
        tokio::task::yield_now().await;
    }
    // `b` is free, but reserved for the first waiter.
    assert_eq!(
        locks.acquire(set(&["b"]), "x", soon()).await.expect_err("two wait for it").code(),
        DiskCode::LockTimeout
    );
    drop(first);
    let mut places = Vec::new();
    for task in waiting {
        places.push(task.await.expect("no panic"));
    }
    assert_eq!(places[0], 0, "who wanted both came first: {places:?}");
    drop(apart);
    drop(locks.acquire(set(&["**"]), "x", soon()).await.expect("all is free again"));
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_lock_request_frees_its_place_in_the_queue() {
    let locks = Locks::default();
    let held = locks.acquire(set(&["a"]), "x", soon()).await.expect("free");
    for _ in 0..10 {
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { locks.acquire(set(&["a", "b"]), "x", late()).await.map(drop) }
        });
        tokio::task::yield_now().await;
        waiting.abort();
        assert!(waiting.await.is_err(), "it was aborted");
    }
    drop(locks.acquire(set(&["b"]), "x", soon()).await.expect("nobody waits for it any more"));

    let full: Vec<_> = (1..WAITING_MAX)
        .map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move { locks.acquire(set(&["a"]), "x", late()).await.map(drop) })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(locks.acquire(set(&["z"]), "x", soon()).await.map(drop), Err(LockError::TooManyWaiting));
    drop(held);
    for task in full {
        task.await.expect("no panic").expect("its turn came");
    }
    drop(locks.acquire(set(&["**"]), "x", soon()).await.expect("free"));
}

#[tokio::test(start_paused = true)]
async fn a_lock_timeout_names_the_holder() {
    let locks = Locks::default();
    let held = locks.acquire(set(&["a"]), "ada, running format,", soon()).await.expect("it is free");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire(set(&["a", "b"]), "an edit", late()).await.map(drop) }
    });
    tokio::task::yield_now().await;
    // The edit that wants `b` waits for the one that waits for `a`.
    for wanted in ["a", "b"] {
        let refused = locks.acquire(set(&[wanted]), "an edit", soon()).await.expect_err("it is taken");
        let said = "ada, running format, has been at work on the same files for 30 s";
        assert!(refused.to_string().starts_with(said), "{refused}");
    }
    drop(held);
    waiting.await.expect("no panic").expect("its turn came");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_with_random_sets_never_share_and_all_come_to_their_turn() {
    let locks = Locks::default();
    let taken: Arc<Vec<AtomicBool>> = Arc::new((0..10).map(|_| AtomicBool::new(false)).collect());
    let tasks: Vec<_> = (1..=40_u64)
        .map(|seed| {
            let (locks, taken) = (locks.clone(), Arc::clone(&taken));
            tokio::spawn(async move {
                let mut dice = Dice(seed * 0x9e37_79b9_7f4a);
                for _ in 0..50 {
                    let mut files: Vec<usize> = (0..=dice.below(3)).map(|_| dice.below(10)).collect();
                    files.sort_unstable();
                    files.dedup();
                    let names: Vec<String> = files.iter().map(|file| format!("d/f{file}")).collect();
                    let all = dice.below(10) == 0;
                    let members = if all { vec!["d/*"] } else { names.iter().map(String::as_str).collect() };
                    let turn = locks.acquire(set(&members), "x", late()).await.expect("it comes");
                    let mine: Vec<usize> = if all { (0..10).collect() } else { files };
                    for file in &mine {
                        assert!(!taken[*file].swap(true, Ordering::SeqCst), "two have f{file}");
                    }
                    tokio::task::yield_now().await;
                    mine.iter().for_each(|file| taken[*file].store(false, Ordering::SeqCst));
                    drop(turn);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}
