//! A panic in each actor in turn, at each kind of message: the board goes on to the same state, and another one beside it
//! notices nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use patchboard_kernel::breaker::Change;
use patchboard_kernel::record::{Body, Cause};
use tokio::sync::Semaphore;

use super::*;
use crate::actors::probe::Probe;
use crate::ids::Ids;
use crate::keeping::SnapshotPolicy;

/// An actor and a kind of message.
type Site = (&'static str, &'static str);

/// How often each was reached.
type Reached = Arc<Mutex<BTreeMap<Site, u32>>>;

/// Panics where `struck` says so, given the board's number, the site and how often it was reached before; counts.
fn probe(reached: &Reached, struck: impl Fn(Option<&BoardId>, Site, u32) -> bool + Send + Sync + 'static) -> Probe {
    let reached = Arc::clone(reached);
    Probe::new(Arc::new(move |board, actor, message| {
        let site = (actor, message);
        let nth = {
            let mut reached = reached.lock().expect("nothing panics while it is held");
            let count = reached.entry(site).or_default();
            *count += 1;
            *count - 1
        };
        assert!(!struck(board, site, nth), "struck at {actor}, {message}");
    }))
}

/// Ids that are the same for the same boards, in the order of their making.
struct Numbered(AtomicUsize);

impl Ids for Numbered {
    fn board(&self) -> BoardId {
        BoardId::from(format!("board-{}", self.0.fetch_add(1, Ordering::SeqCst)))
    }

    fn salt(&self) -> Salt {
        Salt([9; 32])
    }

    fn writer(&self) -> String {
        "writer".to_owned()
    }
}

fn quiet(probe: Probe, agent: Arc<dyn Agent>) -> Options {
    let snapshots = SnapshotPolicy { records: 6, ..SnapshotPolicy::default() };
    Options { probe, snapshots, ids: Arc::new(Numbered(AtomicUsize::new(0))), ..options(agent) }
}

/// Answers all calls but the first of the third step, which is withdrawn when its time is over.
fn once_late() -> Arc<dyn Agent> {
    agent(|call| if call.occurrence == 2 && call.attempt == 1 { never() } else { replies(STEP) })
}

/// The state and the records of a board of ten steps.
async fn ten_steps(probe: Probe) -> (String, Vec<Record>) {
    let dir = dir();
    let journal = sqlite(dir.path());
    let started = Runtime::start(Arc::new(journal.clone()), quiet(probe, once_late())).await;
    let runtime = started.expect("started");
    let board = create(&runtime, steps(10)).await;
    let ended = board.ended().await.unwrap_or_else(|error| panic!("the board did not end: {error}"));
    assert_eq!(ended.end, End::Done);
    let state = board.snapshot().state.digest().to_string();
    runtime.shutdown().await;
    (state, assert_sound(&journal, board.id()))
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_any_actor_at_any_message_leaves_the_same_state() {
    let reached = Reached::default();
    let (undisturbed, records) = ten_steps(probe(&reached, |_, _, _| false)).await;
    assert_eq!(count(&records, Kind::Epoch), 0);
    let sites = reached.lock().expect("not poisoned").clone();
    let all: BTreeSet<Site> = sites.keys().copied().collect();
    for site in [
        ("board", "restart"),
        ("board", "close"),
        ("kernel", "begin"),
        ("kernel", "decide"),
        ("kernel", "taken"),
        ("scheduler", "durable"),
        ("breaker", "durable"),
        ("worker", "call"),
        ("worker", "answered"),
        ("worker", "withdraw"),
        ("journal_writer", "flush"),
        ("root", "child_ended"),
    ] {
        assert!(all.contains(&site), "{site:?} was never reached: {all:?}");
    }
    let mut struck = 0;
    for (site, times) in sites {
        // One that is not opened has no board that could go on: that is a test of its own.
        if site == ("root", "open") {
            continue;
        }
        for nth in BTreeSet::from([0, times / 2, times.saturating_sub(1)]) {
            let (state, _) =
                ten_steps(probe(&Reached::default(), move |_, at, before| at == site && before == nth)).await;
            assert_eq!(state, undisturbed, "struck at {site:?}, the {nth}th time");
            struck += 1;
        }
    }
    eprintln!("struck {struck} times at {} places", all.len());
}

#[tokio::test(start_paused = true)]
async fn a_board_that_could_not_be_opened_can_be_resumed() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let probe = probe(&Reached::default(), |_, site, nth| site == ("root", "open") && nth == 0);
    let runtime = Runtime::start(Arc::new(journal.clone()), quiet(probe, counting())).await.expect("started");
    let failed = runtime.create(five_steps(), Value::Null, Some(Salt([3; 32]))).await;
    let board = BoardId::from("board-0");
    if let Ok(board) = failed {
        let error = board.ended().await.expect_err("it was not opened");
        assert_eq!(error.code(), "crashed");
    }
    let board = runtime.resume(&board).await.expect("it is durable");
    assert_eq!(board.ended().await.expect("ended").end, End::Done);
    assert_sound(&journal, board.id());
}

/// The records of a board that runs beside another, which is struck.
async fn beside(
    strike: impl Fn(Site) -> bool + Send + Sync + Clone + 'static,
) -> (Vec<Record>, Result<Ended, RuntimeError>) {
    let dir = dir();
    let journal = sqlite(dir.path());
    let probe = probe(&Reached::default(), move |board, site, _| {
        board.is_some_and(|board| board.as_str() == "board-1") && strike(site)
    });
    // A snapshot is taken beside the board, by a thread of its own, which no clock orders.
    let options = Options { snapshots: SnapshotPolicy::default(), ..quiet(probe, counting()) };
    let runtime = Runtime::start(Arc::new(journal.clone()), options).await.expect("started");
    let good = create(&runtime, steps(20)).await;
    let bad = runtime.create(steps(20), Value::Null, Some(Salt([3; 32]))).await;
    assert_eq!(good.ended().await.expect("ended").end, End::Done);
    let ended = match bad {
        Ok(bad) => bad.ended().await,
        Err(error) => Err(error),
    };
    // The daemon goes on.
    let third = create(&runtime, five_steps()).await;
    assert_eq!(third.ended().await.expect("ended").end, End::Done);
    runtime.shutdown().await;
    (records(&journal, good.id()), ended)
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_always_panics_ends_its_board_and_no_other() {
    let (alone, done) = beside(|_| false).await;
    assert_eq!(done.expect("ended").end, End::Done);
    for site in [
        ("worker", "call"),
        ("worker", "answered"),
        ("scheduler", "durable"),
        ("breaker", "durable"),
        ("kernel", "begin"),
        ("kernel", "decide"),
        ("board", "restart"),
        ("board", "child_ended"),
    ] {
        let (records, ended) = beside(move |at| at == site).await;
        for (now, before) in records.iter().zip(&alone) {
            assert_eq!(now, before, "a board was disturbed by one whose {site:?} panics");
        }
        assert_eq!(records.len(), alone.len(), "{site:?}");
        match (site, ended) {
            // Nobody else of it ever panics.
            (("board", "child_ended"), ended) => assert_eq!(ended.expect("ended").end, End::Done),
            // Even its end cannot be recorded.
            (("kernel", "begin") | ("board", _), ended) => {
                assert_eq!(ended.expect_err("it is given up").code(), "crashed", "{site:?}")
            }
            (_, ended) => {
                let ended = ended.expect("ended");
                assert_eq!((ended.end, ended.cause), (End::Failed, Cause::Meltdown), "{site:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_journal_writer_that_always_panics_is_not_waited_for_for_ever() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let (reached, is_broken) = (Reached::default(), Arc::new(AtomicBool::new(false)));
    let strikes = Arc::clone(&is_broken);
    let probe =
        probe(&reached, move |_, site, _| site == ("journal_writer", "flush") && strikes.load(Ordering::SeqCst));
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&gate);
    let agent = agent(move |_| {
        let gate = Arc::clone(&waiting);
        Box::pin(async move {
            let _open = gate.acquire().await;
            replies(STEP).await
        })
    });
    let runtime = Runtime::start(Arc::new(journal.clone()), quiet(probe, agent)).await.expect("started");
    // Two that append by turns are not alone, and leave it to the writer.
    let boards = [create(&runtime, steps(200)).await, create(&runtime, steps(200)).await];
    is_broken.store(true, Ordering::SeqCst);
    gate.add_permits(10);
    let mut given_up = 0;
    for board in &boards {
        // It stops as it is on the disk, like one whose disk is full.
        if let Err(error) = board.ended().await {
            assert_eq!(error.code(), "journal_io", "{error}");
            given_up += 1;
        }
    }
    assert!(given_up > 0, "nobody needed the writer");
    let panics = reached.lock().expect("not poisoned")[&("journal_writer", "flush")];
    assert!((1..100).contains(&panics), "{panics} times");
    is_broken.store(false, Ordering::SeqCst);
    for board in boards {
        let board = board.id().clone();
        match runtime.resume(&board).await {
            Ok(resumed) => assert_eq!(resumed.ended().await.expect("ended").end, End::Done),
            Err(error) => assert_eq!(error.code(), "over", "{error}"),
        }
    }
    runtime.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_always_panics_stops_its_branch_and_nothing_else() {
    let panicking = || {
        agent(|call| {
            assert!(call.seat().role != "panic", "always");
            replies(STEP)
        })
    };
    let run = async |is_bad: bool| {
        let dir = dir();
        let journal = sqlite(dir.path());
        let options = Options { snapshots: SnapshotPolicy::default(), ..quiet(Probe::default(), panicking()) };
        let runtime = Runtime::start(Arc::new(journal.clone()), options).await.expect("started");
        let good = create(&runtime, steps(10)).await;
        let mut blueprint = steps(10);
        let mut bad = blueprint.workers["walker"].clone();
        bad.role = if is_bad { "panic" } else { "" }.to_owned();
        bad.writes.clear();
        blueprint.workers.insert("bad".into(), bad);
        let mut rule = blueprint.rules[1].clone();
        rule.name = "wake-the-bad-one".into();
        rule.run = "bad".into();
        blueprint.rules.push(rule);
        let other = create(&runtime, blueprint).await;
        assert_eq!(good.ended().await.expect("ended").end, End::Done);
        assert_eq!(other.ended().await.expect("ended").end, End::Done);
        runtime.shutdown().await;
        (records(&journal, good.id()), assert_sound(&journal, other.id()))
    };
    let (alone, _) = run(false).await;
    let (beside, bad) = run(true).await;
    assert_eq!(beside, alone);
    let moved = bad.iter().filter_map(|record| match record.body() {
        Ok(Body::Breaker(moved)) => Some((moved.worker.to_string(), moved.change)),
        _ => None,
    });
    let moved: Vec<_> = moved.collect();
    assert_eq!(moved.first(), Some(&("bad".to_owned(), Change::Opened)), "{moved:?}");
    assert!(moved.iter().all(|(worker, _)| worker == "bad"), "{moved:?}");
    assert_eq!(count(&bad, Kind::Epoch), 0, "no actor was restarted");
}
