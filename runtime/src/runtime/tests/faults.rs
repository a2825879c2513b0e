//! Failing agents, actors and journals.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use patchboard_kernel::digest::Digest;
use patchboard_kernel::record::Cause;
use patchboard_kernel::snapshot::SnapshotPart;
use patchboard_protocols::PLANS;
use tokio::sync::Semaphore;

use super::*;
use patchboard_kernel::driver::{Batch, Head};
use patchboard_storage::journal::{Answer, BoxFuture, NewParts};
use patchboard_storage::testing::Around;

#[tokio::test(start_paused = true)]
async fn an_agent_that_panics_is_a_failed_attempt_and_is_asked_again() {
    let dir = dir();
    let agent = agent(|call| {
        assert!(call.attempt > 1, "the first attempt of each invocation panics");
        replies(STEP)
    });
    let journal = sqlite(dir.path());
    let runtime = runtime(journal.clone(), agent).await;
    let board = create(&runtime, five_steps()).await;
    assert_eq!(board.wait_for_end().await.expect("ended").end, End::Done);
    let records = assert_sound(&journal, board.id());
    let failed: Vec<_> = records.iter().filter(|record| record.kind == Kind::Failed).collect();
    assert_eq!(failed.len(), 5);
    assert!(failed.iter().all(|record| record.header.contains(r#""code":"crashed""#)));
    assert_eq!(count(&records, Kind::Epoch), 0, "no actor was restarted");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_times_out_and_is_given_up() {
    let dir = dir();
    let agent = agent(|call| if call.attempt == 1 { never() } else { replies(STEP) });
    let journal = sqlite(dir.path());
    let runtime = runtime(journal.clone(), agent).await;
    let start = tokio::time::Instant::now();
    let board = create(&runtime, five_steps()).await;
    assert_eq!(board.wait_for_end().await.expect("ended").end, End::Done);
    assert_eq!(start.elapsed().as_secs(), 5 * 60, "each step waits for one deadline");
    let records = assert_sound(&journal, board.id());
    assert_eq!(count(&records, Kind::Failed), 5);
    assert_eq!(count(&records, Kind::Late), 0);
}

#[tokio::test(start_paused = true)]
async fn a_board_with_a_crashed_kernel_continues_to_the_same_state() {
    let undisturbed = {
        let dir = dir();
        let runtime = runtime(sqlite(dir.path()), counting()).await;
        let board = create(&runtime, five_steps()).await;
        board.wait_for_end().await.expect("ended");
        board.status().state.digest()
    };
    let dir = dir();
    let reached = Arc::new(Notify::new());
    let agent = {
        let reached = Arc::clone(&reached);
        agent(move |call| {
            // The third step hangs until the crash cancels its call.
            if call.occurrence == 2 && call.attempt == 1 {
                reached.notify_one();
                return never();
            }
            replies(STEP)
        })
    };
    let journal = sqlite(dir.path());
    let runtime = runtime(journal.clone(), agent).await;
    let board = create(&runtime, five_steps()).await;
    let mut subscription = board.subscribe(None);
    reached.notified().await;
    board.crash();
    assert_eq!(board.wait_for_end().await.expect("ended").end, End::Done);
    assert_eq!(board.status().state.digest(), undisturbed);

    let records = assert_sound(&journal, board.id());
    assert_eq!((count(&records, Kind::Epoch), count(&records, Kind::Failed)), (1, 1));
    for record in &records {
        let seen = subscription.next().await.expect("published").expect("read");
        assert_eq!(*seen, *record);
    }
}

#[tokio::test(start_paused = true)]
async fn a_board_that_is_held_back_from_calls_stays_so_when_its_kernel_crashes() {
    let dir = dir();
    let calls = Arc::new(AtomicUsize::new(0));
    let agent = {
        let calls = Arc::clone(&calls);
        agent(move |_| replies(if calls.fetch_add(1, Ordering::Relaxed) == 0 { "no patch" } else { STEP }))
    };
    let journal = sqlite(dir.path());
    let runtime = runtime(journal.clone(), agent).await;
    let mut blueprint = five_steps();
    blueprint.workers.get_mut("walker").expect("a worker").limits.attempts = 1;
    let board = create(&runtime, blueprint).await;
    let id = board.id().clone();
    assert_eq!(board.wait_for_end().await.expect("ended").end, End::Quiescent);
    runtime.close(&id).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1);

    let board = runtime.resume_paused(&id, None).await.expect("resumed");
    let mut subscription = board.subscribe(None);
    until(&mut subscription, Kind::Epoch).await;
    board.crash();
    until(&mut subscription, Kind::Epoch).await;
    board.retry(Retried::default()).await.expect("taken");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1, "no call was made");

    runtime.close(&id).await;
    let board = runtime.resume(&id).await.expect("resumed");
    assert_eq!(board.wait_for_end().await.expect("ended").end, End::Done);
    assert_sound(&journal, &id);
}

/// Returns an agent that crashes the kernel of its own board whenever it is called.
fn crashing(board: &Arc<Mutex<Option<BoardHandle>>>) -> Arc<dyn Agent> {
    let board = Arc::clone(board);
    agent(move |_| {
        if let Some(board) = &*board.lock().expect("not poisoned") {
            board.crash();
        }
        never()
    })
}

#[tokio::test(start_paused = true)]
async fn a_board_that_keeps_crashing_fails_and_another_one_is_not_touched() {
    let dir = dir();
    let handle = Arc::new(Mutex::new(None));
    let journal = sqlite(dir.path());
    let agent = {
        let crashing = crashing(&handle);
        agent(move |call| {
            if call.worker_config().role == "crash" {
                let crashing = Arc::clone(&crashing);
                return Box::pin(async move { crashing.call(&call).await });
            }
            replies(STEP)
        })
    };
    let runtime = runtime(journal.clone(), agent).await;
    let mut bad = five_steps();
    let walker = bad.workers.get_mut("walker").expect("a worker");
    walker.role = "crash".to_owned();
    walker.limits.attempts = 100;
    let good = create(&runtime, steps(50)).await;
    let bad = create(&runtime, bad).await;
    *handle.lock().expect("not poisoned") = Some(bad.clone());
    bad.crash();

    assert_eq!(bad.wait_for_end().await.expect("ended"), Ended { end: End::Failed, cause: Cause::Meltdown });
    assert_eq!(good.wait_for_end().await.expect("ended").end, End::Done);
    let bad = assert_sound(&journal, bad.id());
    assert_eq!(count(&bad, Kind::Epoch), 6, "five restarts, and one to end it");
    assert_eq!(count(&assert_sound(&journal, good.id()), Kind::Epoch), 0);
}

/// Journal that fails or waits on demand.
#[derive(Clone)]
pub(super) struct Faulty {
    inner: SqliteJournal,
    /// Errors of the next appends.
    errors: Arc<Mutex<Vec<JournalError>>>,
    /// Returns errors after a successful append if set, otherwise instead of it.
    after: bool,
    /// Blocks appends while its one permit is held.
    gate: Arc<Semaphore>,
    /// Delays the report that records are durable while its one permit is held.
    telling: Arc<Semaphore>,
    /// Number of the next appends that panic.
    panics: Arc<AtomicUsize>,
    /// Number of records read.
    pub(super) read: Arc<AtomicUsize>,
    /// Number of the next stores of parts that fail.
    pub(super) lost_stores: Arc<AtomicUsize>,
    /// Makes reads of snapshot parts fail.
    pub(super) are_parts_unread: Arc<AtomicBool>,
}

impl Faulty {
    pub(super) fn new(inner: SqliteJournal) -> Self {
        Self {
            inner,
            errors: Arc::default(),
            after: false,
            gate: Arc::new(Semaphore::new(1)),
            telling: Arc::new(Semaphore::new(1)),
            panics: Arc::default(),
            read: Arc::default(),
            lost_stores: Arc::default(),
            are_parts_unread: Arc::default(),
        }
    }

    fn fail(&self, error: JournalError, times: usize) {
        *self.errors.lock().expect("not poisoned") = vec![error; times];
    }
}

impl Around for Faulty {
    fn inner(&self) -> &dyn Journal {
        &self.inner
    }

    fn append_all(&self, batches: Vec<Batch>) -> BoxFuture<'_, Vec<Result<Head, JournalError>>> {
        Box::pin(async move {
            let _passing = self.gate.acquire().await.expect("never closed");
            let left = self.panics.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            assert!(left.is_err(), "told to panic");
            let count = batches.len();
            let error = self.errors.lock().expect("not poisoned").pop();
            let appended = match error {
                None => self.inner.append_all(batches).await,
                Some(error) => {
                    if self.after {
                        drop(self.inner.append_all(batches).await);
                    }
                    vec![Err(error); count]
                }
            };
            let _telling = self.telling.acquire().await.expect("never closed");
            appended
        })
    }

    fn records<'a>(&'a self, board: &'a BoardId, after: Option<Seq>, limit: usize) -> Answer<'a, Vec<Record>> {
        Box::pin(async move {
            let records = self.inner.records(board, after, limit).await?;
            self.read.fetch_add(records.len(), Ordering::SeqCst);
            Ok(records)
        })
    }

    fn part<'a>(&'a self, board: &'a BoardId, hash: Digest) -> Answer<'a, Option<String>> {
        if self.are_parts_unread.load(Ordering::SeqCst) {
            return Box::pin(async { Err(JournalError::Unreadable("disk I/O error".to_owned())) });
        }
        self.inner.part(board, hash)
    }

    fn store_parts<'a>(&'a self, board: &'a BoardId, epoch: u64, parts: Vec<SnapshotPart>) -> Answer<'a, NewParts> {
        let left = self.lost_stores.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_ok() {
            return Box::pin(async { Err(JournalError::DiskFull) });
        }
        self.inner.store_parts(board, epoch, parts)
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_append_the_board_goes_on_from_what_is_stored() {
    for after in [false, true] {
        let dir = dir();
        let journal = Faulty { after, ..Faulty::new(sqlite(dir.path())) };
        let runtime = runtime(journal.clone(), agent(|_| never())).await;
        let board = create(&runtime, five_steps()).await;
        let before = board.status();
        let mut subscription = board.subscribe(Some(before.head.seq));
        let nothing = tokio::time::timeout(Duration::from_secs(1), subscription.next()).await;
        assert!(nothing.is_err());
        journal.fail(JournalError::Io("pulled out".to_owned()), 1);
        let failed = board.propose(proposal("t", STEP)).await.expect_err("not acknowledged");
        assert_eq!(failed.code(), "journal_io");
        assert_eq!(before.version, Version(0));
        // The retry counts once, whether the first proposal was stored or not.
        let again = board.propose(proposal("t", STEP)).await.expect("answered");
        match after {
            true => assert!(matches!(again, Outcome::Duplicate(_)), "{again:?}"),
            false => assert!(matches!(again, Outcome::Committed { .. }), "{again:?}"),
        }
        assert_eq!(board.status().version, Version(1));
        let records = assert_sound(&journal, board.id());
        for record in records.iter().filter(|record| record.seq > before.head.seq) {
            // Includes the record that was stored but not acknowledged.
            assert_eq!(*subscription.next().await.expect("published").expect("read"), *record);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_board_on_a_full_disk_stops_and_can_be_resumed() {
    let dir = dir();
    let journal = Faulty::new(sqlite(dir.path()));
    let runtime = runtime(journal.clone(), agent(|_| never())).await;
    let board = create(&runtime, five_steps()).await;
    journal.fail(JournalError::DiskFull, usize::from(u16::MAX));
    drop(board.propose(proposal("t", STEP)).await.expect_err("not acknowledged"));
    assert_eq!(board.wait_for_end().await, Err(JournalError::DiskFull.into()));
    assert_eq!(count(&records(&journal, board.id()), Kind::Ended), 0, "the board itself has not failed");
    assert_eq!(board.propose(proposal("t", STEP)).await.expect_err("gone").code(), "disk_full");

    journal.fail(JournalError::DiskFull, 0);
    let board = runtime.resume(board.id()).await.expect("resumed");
    let outcome = board.propose(proposal("t", STEP)).await.expect("answered");
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    assert_sound(&journal, board.id());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_seen_before_it_is_durable() {
    let dir = dir();
    let called = Arc::new(AtomicUsize::new(0));
    let agent = {
        let called = Arc::clone(&called);
        agent(move |_| {
            called.fetch_add(1, Ordering::SeqCst);
            never()
        })
    };
    let journal = Faulty::new(sqlite(dir.path()));
    let runtime = runtime(journal.clone(), agent).await;
    let board = create(&runtime, five_steps()).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let before = board.status();
    let mut subscription = board.subscribe(Some(before.head.seq));

    let closed = journal.gate.acquire().await.expect("never closed");
    let mut outcome = tokio::spawn({
        let board = board.clone();
        async move { board.propose(proposal("t", STEP)).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!outcome.is_finished());
    assert_eq!(board.status().head, before.head);
    assert_eq!(called.load(Ordering::SeqCst), 1);
    let next = tokio::time::timeout(Duration::from_secs(1), subscription.next()).await;
    assert!(next.is_err(), "no record is published");

    drop(closed);
    let outcome = (&mut outcome).await.expect("no panic").expect("answered");
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    assert_eq!(board.status().version, Version(1));
    let next = tokio::time::timeout(Duration::from_secs(1), subscription.next()).await.expect("published at once");
    assert_eq!(next.expect("the board goes on").expect("read").kind, Kind::Committed);
}

/// Returns the records that a subscriber receives now, and whether the stream has ended. Fails if a record arrives
/// before `shown` includes it.
async fn received(subscription: &mut Subscription, shown: impl Fn() -> Seq) -> (Vec<Record>, bool) {
    let mut received = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_secs(1), subscription.next()).await {
            Ok(Some(record)) => {
                let record = record.expect("read");
                assert!(record.seq <= shown(), "{} is told of before it is shown", record.seq);
                received.push(Record::clone(&record));
            }
            Ok(None) => return (received, true),
            Err(_) => return (received, false),
        }
    }
}

/// Fate of a board while a record is durable but not published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Published,
    Crashed,
    Closed,
}

#[tokio::test(start_paused = true)]
async fn a_durable_record_is_reported_once_it_is_published_or_the_board_is_closed() {
    for then in [Then::Published, Then::Crashed, Then::Closed] {
        let dir = dir();
        let journal = Faulty::new(sqlite(dir.path()));
        let options = Options { subscription_buffer: 1, ..options(agent(|_| never())) };
        let runtime = Runtime::start(Arc::new(journal.clone()), options, PLANS).await.expect("started");
        let board = create(&runtime, five_steps()).await;
        // This subscription falls behind.
        let idle = board.subscribe(None);
        board.propose(proposal("t", STEP)).await.expect("answered");
        let published = records(&journal, board.id());
        let keeping_up = board.subscribe(Some(board.status().head.seq));

        let kept_back = journal.telling.acquire().await.expect("never closed");
        let asked = tokio::spawn({
            let board = board.clone();
            async move { board.propose(proposal("u", STEP)).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let durable = records(&journal, board.id());
        assert!(durable.len() > published.len(), "it is durable");
        let late = board.subscribe(None);
        let mut subscriptions = [(idle, 0), (late, 0), (keeping_up, published.len())];
        for (subscription, from) in &mut subscriptions {
            let received = received(subscription, || board.status().head.seq).await;
            assert_eq!(received, (published[*from..].to_vec(), false), "and nothing more: {then:?}");
        }
        assert_eq!(board.status().head.seq, published.last().expect("there are some").seq);

        match then {
            Then::Published => drop(kept_back),
            Then::Crashed => {
                board.crash();
                tokio::time::sleep(Duration::from_secs(1)).await;
                let taken_over = records(&journal, board.id());
                assert_eq!(count(&taken_over, Kind::Epoch), 1, "that is durable, too");
                for (subscription, _) in &mut subscriptions {
                    assert_eq!(received(subscription, || Seq(0)).await, (Vec::new(), false));
                }
                drop(kept_back);
            }
            Then::Closed => {
                // Closing waits for the kernel, but not for ever.
                runtime.close(board.id()).await;
                drop(kept_back);
            }
        }
        drop(asked.await.expect("no panic"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let durable = records(&journal, board.id());
        let last = durable.last().expect("there are some").seq;
        // A closed board's snapshot is no longer updated.
        let is_gone = then == Then::Closed;
        assert_eq!(board.status().head.seq == last, !is_gone, "{then:?}");
        let shown = || if is_gone { last } else { board.status().head.seq };
        for (mut subscription, _) in subscriptions {
            let received = received(&mut subscription, shown).await;
            assert_eq!(received, (durable[published.len()..].to_vec(), is_gone), "{then:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_recovering_board_publishes_records_only_once_it_can_show_them() {
    let dir = dir();
    let journal = Faulty::new(sqlite(dir.path()));
    let runtime = Arc::new(runtime(journal.clone(), agent(|_| never())).await);
    let board = create(&runtime, five_steps()).await.id().clone();
    runtime.close(&board).await;

    let kept_back = journal.telling.acquire().await.expect("never closed");
    let resumed = tokio::spawn({
        let (runtime, board) = (Arc::clone(&runtime), board.clone());
        async move { runtime.resume(&board).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(count(&records(&journal, &board), Kind::Epoch), 1, "it is taken over");
    let mut subscription = runtime.subscribe(&board, None);
    assert_eq!(received(&mut subscription, || Seq(0)).await, (Vec::new(), false));
    drop(kept_back);
    let resumed = resumed.await.expect("no panic").expect("resumed");
    let received = received(&mut subscription, || resumed.status().head.seq).await;
    assert_eq!(received, (records(&journal, &board), false));
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_panics_costs_no_more_than_a_restart() {
    let dir = dir();
    let journal = Faulty::new(sqlite(dir.path()));
    let runtime = runtime(journal.clone(), agent(|_| never())).await;
    let boards = [create(&runtime, five_steps()).await, create(&runtime, five_steps()).await];
    tokio::time::sleep(Duration::from_millis(1)).await;
    // The last board runs alone and appends by itself; the other uses the journal writer. Both panic.
    let closed = journal.gate.acquire().await.expect("never closed");
    journal.panics.store(2, Ordering::SeqCst);
    let mut asked = tokio::task::JoinSet::new();
    for board in boards.iter().rev() {
        let board = board.clone();
        asked.spawn(async move { board.propose(proposal("t", STEP)).await });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(closed);
    while let Some(answer) = asked.join_next().await {
        assert!(answer.expect("no panic").is_err());
    }
    assert_eq!(journal.panics.load(Ordering::SeqCst), 0);
    for board in boards {
        let outcome = board.propose(proposal("t", STEP)).await.expect("answered");
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    }
}
