//! A panic in each actor, at each kind of message: the board reaches an equal state, and another board is not affected.

use patchboard_storage::blocking::wait;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use patchboard_kernel::blueprint;
use patchboard_kernel::breaker::BreakerTransition;
use patchboard_kernel::record::{Body, Cause};
use patchboard_protocols::PLANS;
use tokio::sync::Semaphore;

use super::*;
use crate::failpoints::Failpoints;
use crate::ids::Ids;
use crate::snapshotter::SnapshotPolicy;

/// Actor, and kind of message.
type Site = (&'static str, &'static str);

/// Number of times each site was reached.
type Reached = Arc<Mutex<BTreeMap<Site, u32>>>;

/// Returns a probe that counts, and panics where `struck` holds for the board, the site and its previous count.
fn probe(
    reached: &Reached,
    struck: impl Fn(Option<&BoardId>, Site, u32) -> bool + Send + Sync + 'static,
) -> Failpoints {
    let reached = Arc::clone(reached);
    Failpoints::new(Arc::new(move |board, actor, message| {
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

/// Ids that are equal in every run, in order of creation.
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

fn quiet(probe: Failpoints, agent: Arc<dyn Agent>) -> Options {
    let snapshots = SnapshotPolicy { records: 6, ..SnapshotPolicy::default() };
    Options { failpoints: probe, snapshots, ids: Arc::new(Numbered(AtomicUsize::new(0))), ..options(agent) }
}

/// Answers all calls but the first of the third step, which times out.
fn once_late() -> Arc<dyn Agent> {
    agent(|call| {
        if call.occurrence == 2 && call.attempt == 1 {
            return never();
        }
        Box::pin(async {
            // No virtual time passes while a thread stores a snapshot, so it is done before the next step on any
            // machine.
            tokio::time::sleep(Duration::from_millis(1)).await;
            replies(STEP).await
        })
    })
}

/// Result of a board of ten steps.
struct Walked {
    state: String,
    records: Vec<Record>,
    /// Set if the board was given up and ended after it was resumed.
    is_resumed: bool,
}

async fn ten_steps(probe: Failpoints) -> Walked {
    let dir = dir();
    let journal = sqlite(dir.path());
    let started = Runtime::start(Arc::new(journal.clone()), quiet(probe, once_late()), PLANS).await;
    let runtime = started.expect("started");
    let id = BoardId::from("board-0");
    let created = runtime.create(steps(10), Value::Null, Some(Salt([3; 32]))).await;
    let ended = async |board: BoardHandle| {
        let ended = board.wait_for_end().await?;
        Ok((ended, board.status().state.digest().to_string()))
    };
    let first = match created {
        Ok(board) => ended(board).await,
        Err(error) => Err(error),
    };
    let is_resumed = first.is_err();
    let (end, state) = match first {
        Ok(reached) => reached,
        Err(error) => {
            assert_eq!(error.code(), "crashed", "{error}");
            ended(runtime.resume(&id).await.expect("it is durable")).await.expect("it ends")
        }
    };
    assert_eq!(end.end, End::Done);
    runtime.shutdown().await;
    Walked { state, records: assert_sound(&journal, &id), is_resumed }
}

/// Site, and how often it was reached before the panic.
type Strike = (Site, u32);

/// Runs ten steps with panics at these moments; returns the result, the sites reached and the number of panics.
async fn struck_ten_steps(strikes: Vec<Strike>) -> (Walked, BTreeMap<Site, u32>, usize) {
    let (reached, panics) = (Reached::default(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&panics);
    let probe = probe(&reached, move |_, site, nth| {
        let is_struck = strikes.contains(&(site, nth));
        counted.fetch_add(usize::from(is_struck), Ordering::SeqCst);
        is_struck
    });
    let walked = ten_steps(probe).await;
    let reached = reached.lock().expect("not poisoned").clone();
    (walked, reached, panics.load(Ordering::SeqCst))
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_any_actor_at_any_message_leaves_the_same_state() {
    let (undisturbed, calm, _) = struck_ten_steps(Vec::new()).await;
    assert_eq!((count(&undisturbed.records, Kind::Epoch), undisturbed.is_resumed), (0, false));
    for site in [
        ("root", "close"),
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
        assert!(calm.contains_key(&site), "{site:?} was never reached: {calm:?}");
    }
    let mut struck = 0;
    // Sites reached only because of a panic: after which panic, and how often.
    let mut aftermath = BTreeMap::<Site, BTreeMap<Strike, u32>>::new();
    for (&site, &times) in &calm {
        // A root that never opens the board has no board to continue; another test covers that.
        if site == ("root", "open") {
            continue;
        }
        for nth in BTreeSet::from([0, times / 2, times.saturating_sub(1)]) {
            let strike = (site, nth);
            let (walked, reached, panics) = struck_ten_steps(vec![strike]).await;
            assert_eq!(walked.state, undisturbed.state, "struck at {strike:?}");
            assert!(!walked.is_resumed, "given up after one panic, at {strike:?}");
            assert_eq!(panics, 1, "struck at {strike:?}");
            struck += 1;
            for (&site, &times) in reached.iter().filter(|(site, _)| !calm.contains_key(*site)) {
                aftermath.entry(site).or_default().insert(strike, times);
            }
        }
    }
    for site in [("root", "restart"), ("root", "replace_writer"), ("kernel", "child_ended")] {
        assert!(aftermath.contains_key(&site), "{site:?} was never reached: {aftermath:?}");
    }
    let (mut struck_again, mut resumed) = (0, 0);
    for (&site, firsts) in &aftermath {
        for (&first, &times) in firsts {
            for nth in BTreeSet::from([0, times - 1]) {
                let strikes = vec![first, (site, nth)];
                let (walked, _, panics) = struck_ten_steps(strikes.clone()).await;
                assert_eq!(walked.state, undisturbed.state, "struck at {strikes:?}");
                // If the root fails at the restart, the board is given up, and is intact. It may have ended before.
                assert!(!walked.is_resumed || site == ("root", "restart"), "struck at {strikes:?}");
                resumed += usize::from(walked.is_resumed);
                assert_eq!(panics, 2, "struck at {strikes:?}");
                struck_again += 1;
            }
        }
    }
    assert!(resumed > 0, "no board was given up");
    eprintln!("{struck} panics at {} places; {struck_again} second ones at {}", calm.len(), aftermath.len());
}

/// Lets actors run as far as they can; no time passes.
async fn until_reached(reached: &Reached, site: Site, times: u32) {
    while reached.lock().expect("not poisoned").get(&site).is_none_or(|reached| *reached < times) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_board_that_is_closed_in_the_pause_before_its_restart_is_not_restarted() {
    for is_shutdown in [false, true] {
        let dir = dir();
        let journal = sqlite(dir.path());
        let reached = Reached::default();
        let probe = probe(&reached, |_, _, _| false);
        let restarts = RestartPolicy { backoff: Duration::from_secs(10), ..RestartPolicy::default() };
        let options = Options { restarts, ..quiet(probe, agent(|_| never())) };
        let runtime = Runtime::start(Arc::new(journal.clone()), options, PLANS).await.expect("started");
        let board = create(&runtime, steps(10)).await;
        // The first restart is immediate, the second after a pause.
        board.crash();
        until_reached(&reached, ("root", "child_ended"), 1).await;
        until_reached(&reached, ("kernel", "begin"), 2).await;
        board.crash();
        until_reached(&reached, ("root", "child_ended"), 2).await;
        if is_shutdown {
            runtime.shutdown().await;
        } else {
            runtime.close(board.id()).await;
            assert!(runtime.boards().is_empty());
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        let ended = tokio::time::timeout(Duration::from_secs(60), board.wait_for_end()).await;
        assert_eq!(ended.expect("who waits for it is told").expect_err("closed").code(), "board_closed");
        assert_eq!(reached.lock().expect("not poisoned")[&("kernel", "begin")], 2, "it was restarted");
        let free = wait(journal.claim(board.id(), false)).map(drop);
        assert_eq!(free, Ok(()), "nobody holds it");
    }
}

/// Agent that panics when a board ends.
struct Clinging;

impl Agent for Clinging {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        if call.worker_config().role == "never" { never() } else { replies(STEP) }
    }

    fn on_board_ended(&self, board: &BoardId) {
        panic!("{board} has ended");
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_are_notified_though_an_agent_panics_at_the_end_of_a_board() {
    let ended = async |board: &BoardHandle| {
        let ended = tokio::time::timeout(Duration::from_secs(600), board.wait_for_end()).await;
        ended.expect("who waits for it is told")
    };
    for (strike, code) in [
        // The board reaches its end, or is closed.
        (None, "board_closed"),
        // The board's actors are given up.
        (Some(("kernel", "begin")), "crashed"),
    ] {
        let dir = dir();
        let journal = sqlite(dir.path());
        let is_broken = Arc::new(AtomicBool::new(false));
        let strikes = Arc::clone(&is_broken);
        let probe = probe(&Reached::default(), move |board, site, _| {
            let is_second = board.is_some_and(|board| board.as_str() == "board-1");
            is_second && Some(site) == strike && strikes.load(Ordering::SeqCst)
        });
        let options = quiet(probe, Arc::new(Clinging));
        let runtime = Runtime::start(Arc::new(journal.clone()), options, PLANS).await.expect("started");
        let done = create(&runtime, five_steps()).await;
        assert_eq!(ended(&done).await.expect("it reached its end").end, End::Done);
        assert_eq!(count(&assert_sound(&journal, done.id()), Kind::Epoch), 0, "nothing was restarted");

        let mut blueprint = five_steps();
        blueprint.workers.get_mut("walker").expect("there is one").role = "never".to_owned();
        let board = create(&runtime, blueprint).await;
        is_broken.store(true, Ordering::SeqCst);
        match strike {
            None => runtime.close(board.id()).await,
            // The kernel fails, and panics at each restart.
            Some(_) => board.crash(),
        }
        assert_eq!(ended(&board).await.expect_err("it did not reach its end").code(), code, "{strike:?}");
        assert_eq!(runtime.boards(), [done.id().clone()], "{strike:?}");
        is_broken.store(false, Ordering::SeqCst);
        runtime.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_board_that_could_not_be_opened_can_be_resumed() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let probe = probe(&Reached::default(), |_, site, nth| site == ("root", "open") && nth == 0);
    let runtime = Runtime::start(Arc::new(journal.clone()), quiet(probe, counting()), PLANS).await.expect("started");
    let failed = runtime.create(five_steps(), Value::Null, Some(Salt([3; 32]))).await;
    let board = BoardId::from("board-0");
    if let Ok(board) = failed {
        let error = board.wait_for_end().await.expect_err("it was not opened");
        assert_eq!(error.code(), "crashed");
    }
    let board = runtime.resume(&board).await.expect("it is durable");
    assert_eq!(board.wait_for_end().await.expect("ended").end, End::Done);
    assert_sound(&journal, board.id());
}

/// Returns the records of a board that runs beside one with panics, and the other's end.
async fn beside(
    strike: impl Fn(Site) -> bool + Send + Sync + Clone + 'static,
) -> (Vec<Record>, Result<Ended, RuntimeError>) {
    let dir = dir();
    let journal = sqlite(dir.path());
    let probe = probe(&Reached::default(), move |board, site, _| {
        board.is_some_and(|board| board.as_str() == "board-1") && strike(site)
    });
    // Each step of the other board cancels a call first.
    let agent = agent(|call| match (call.board.as_str(), call.attempt) {
        ("board-1", 1) => never(),
        _ => replies(STEP),
    });
    // A separate thread takes snapshots, in an order that no clock determines.
    let options = Options { snapshots: SnapshotPolicy::default(), ..quiet(probe, agent) };
    let runtime = Runtime::start(Arc::new(journal.clone()), options, PLANS).await.expect("started");
    let good = create(&runtime, steps(20)).await;
    let mut slow = steps(20);
    slow.workers.get_mut("walker").expect("a worker").limits.timeout = blueprint::Duration::from_secs(1);
    let bad = runtime.create(slow, Value::Null, Some(Salt([3; 32]))).await;
    assert_eq!(good.wait_for_end().await.expect("ended").end, End::Done);
    let ended = match bad {
        Ok(bad) => bad.wait_for_end().await,
        Err(error) => Err(error),
    };
    // The runtime still works.
    let third = create(&runtime, five_steps()).await;
    assert_eq!(third.wait_for_end().await.expect("ended").end, End::Done);
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
        ("kernel", "child_ended"),
    ] {
        let (records, ended) = beside(move |at| at == site).await;
        for (now, before) in records.iter().zip(&alone) {
            assert_eq!(now, before, "a board was disturbed by one whose {site:?} panics");
        }
        assert_eq!(records.len(), alone.len(), "{site:?}");
        match (site, ended) {
            // No other actor of the board panics.
            (("kernel", "child_ended"), ended) => assert_eq!(ended.expect("ended").end, End::Done),
            // The end of the board cannot be recorded, either.
            (("kernel", "begin"), ended) => {
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
    let (panics, is_broken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, strikes) = (Arc::clone(&panics), Arc::clone(&is_broken));
    let probe = probe(&Reached::default(), move |_, site, _| {
        let is_struck = site == ("journal_writer", "flush") && strikes.load(Ordering::SeqCst);
        counted.fetch_add(usize::from(is_struck), Ordering::SeqCst);
        is_struck
    });
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&gate);
    let agent = agent(move |_| {
        let gate = Arc::clone(&waiting);
        Box::pin(async move {
            let _open = gate.acquire().await;
            replies(STEP).await
        })
    });
    let runtime = Runtime::start(Arc::new(journal.clone()), quiet(probe, agent), PLANS).await.expect("started");
    // Boards that take turns at appending are not alone, so the journal writer appends.
    let mut boards = Vec::new();
    for _ in 0..6 {
        boards.push(create(&runtime, steps(200)).await);
    }
    is_broken.store(true, Ordering::SeqCst);
    gate.add_permits(10);
    let mut given_up = Vec::new();
    for board in &boards {
        // A board stops in its state on disk, as with a full disk. On a slow machine it may have appended alone often
        // enough to end.
        if let Err(error) = board.wait_for_end().await {
            assert_eq!(error.code(), "journal_io", "{error}");
            given_up.push(board.id().clone());
        }
    }
    let panics = panics.load(Ordering::SeqCst);
    let too_often = RestartPolicy::default().max as usize + 1;
    assert!((too_often..100).contains(&panics), "nobody waited for the writer until it was given up: {panics} panics");
    is_broken.store(false, Ordering::SeqCst);
    for board in given_up {
        let resumed = runtime.resume(&board).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(resumed.wait_for_end().await.expect("ended").end, End::Done);
    }
    runtime.shutdown().await;
}

/// Returns an agent that panics at every call of a worker with the role `panic`.
fn panicking() -> Arc<dyn Agent> {
    agent(|call| {
        assert!(call.worker_config().role != "panic", "always");
        replies(STEP)
    })
}

/// Adds a second worker with this role, triggered by each step; it may write nothing.
fn with_another(mut blueprint: Blueprint, role: &str) -> Blueprint {
    let mut other = blueprint.workers["walker"].clone();
    other.role = role.to_owned();
    other.writes.clear();
    blueprint.workers.insert("bad".into(), other);
    let mut rule = blueprint.rules[1].clone();
    rule.name = "wake-the-bad-one".into();
    rule.run = "bad".into();
    blueprint.rules.push(rule);
    blueprint
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_always_panics_stops_its_branch_and_then_the_board_that_cannot_do_without_it() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let runtime = Runtime::start(Arc::new(journal.clone()), quiet(Failpoints::default(), panicking()), PLANS)
        .await
        .expect("started");
    // The first worker makes half of the steps; the rest depends on the other one.
    let mut blueprint = with_another(steps(10), "panic");
    blueprint.rules[1].when = Some("size(state.steps) < 5".to_owned());
    let bad = create(&runtime, blueprint).await;
    let ended = bad.wait_for_end().await.expect("it stands still");
    assert_eq!((ended.end, ended.cause), (End::Stopped, Cause::Breaker));
    // The runtime still works.
    let good = create(&runtime, steps(10)).await;
    assert_eq!(good.wait_for_end().await.expect("ended").end, End::Done);
    runtime.shutdown().await;
    let records = assert_sound(&journal, bad.id());
    let place = |kind| records.iter().position(|record| record.kind == kind);
    let (stopped, ended) = (place(Kind::Breaker), place(Kind::Ended));
    assert!(stopped.is_some() && stopped < ended, "the branch at {stopped:?}, the board at {ended:?}");
    assert_eq!(count(&records, Kind::Epoch), 0, "no actor was restarted");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_always_panics_stops_its_branch_and_nothing_else() {
    let run = async |is_bad: bool| {
        let dir = dir();
        let journal = sqlite(dir.path());
        let options = Options { snapshots: SnapshotPolicy::default(), ..quiet(Failpoints::default(), panicking()) };
        let runtime = Runtime::start(Arc::new(journal.clone()), options, PLANS).await.expect("started");
        let good = create(&runtime, steps(10)).await;
        let other = create(&runtime, with_another(steps(10), if is_bad { "panic" } else { "" })).await;
        assert_eq!(good.wait_for_end().await.expect("ended").end, End::Done);
        assert_eq!(other.wait_for_end().await.expect("ended").end, End::Done);
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
    assert_eq!(moved.first(), Some(&("bad".to_owned(), BreakerTransition::Opened)), "{moved:?}");
    assert!(moved.iter().all(|(worker, _)| worker == "bad"), "{moved:?}");
    assert_eq!(count(&bad, Kind::Epoch), 0, "no actor was restarted");
}
