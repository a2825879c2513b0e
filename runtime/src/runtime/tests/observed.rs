//! Observers receive every record once, when it is durable, and every restart. A failing observer does not stop boards.

use std::sync::Mutex;

use patchboard_protocols::PLANS;

use super::*;
use crate::observer::{DurableStep, Observer, RestartScope};

/// Observer that keeps all notices.
#[derive(Default)]
struct NoticeRecorder {
    records: Mutex<Vec<Record>>,
    restarts: Mutex<Vec<RestartScope>>,
    duplicates: AtomicUsize,
    gone: AtomicUsize,
}

impl Observer for NoticeRecorder {
    fn on_durable_step(&self, step: &DurableStep<'_>) {
        self.records.lock().expect("no panic").extend(step.records.iter().cloned());
    }

    fn on_duplicate(&self, _: &BoardId) {
        self.duplicates.fetch_add(1, Ordering::SeqCst);
    }

    fn on_restart(&self, what: RestartScope) {
        self.restarts.lock().expect("no panic").push(what);
    }

    fn on_board_closed(&self, _: &BoardId, _: &RuntimeError) {
        self.gone.fetch_add(1, Ordering::SeqCst);
    }
}

async fn watched(journal: &SqliteJournal, observer: Arc<dyn Observer>) -> Runtime {
    let options = Options { observer, ..options(counting()) };
    Runtime::start(Arc::new(journal.clone()), options, PLANS).await.expect("started")
}

#[tokio::test]
async fn every_record_is_reported_once_also_over_a_restart_and_a_recovery() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let observer = Arc::new(NoticeRecorder::default());
    let runtime = watched(&journal, observer.clone()).await;
    let board = create(&runtime, five_steps()).await;
    board.wait_for_end().await.expect("it ends");
    let id = board.id().clone();
    // An ended board is recovered to answer repeated requests.
    board.crash();
    let mut taken_over = board.subscribe(Some(board.status().head.seq));
    until(&mut taken_over, Kind::Epoch).await;
    let once = board.propose(proposal("t", STEP)).await.expect("answered");
    assert!(!matches!(once, Outcome::Duplicate(_)), "{once:?}");
    let recorded = records(&journal, &id);
    assert_eq!(*observer.records.lock().expect("no panic"), recorded);
    assert_eq!(*observer.restarts.lock().expect("no panic"), [RestartScope::Board]);
    runtime.close(&id).await;
    assert!(observer.gone.load(Ordering::SeqCst) > 0);
    runtime.shutdown().await;

    // Another process reads all records and reports only new ones.
    let later = Arc::new(NoticeRecorder::default());
    let runtime = watched(&journal, later.clone()).await;
    runtime.resume(&id).await.expect("taken over");
    let new = records(&journal, &id).split_off(recorded.len());
    assert_eq!(new.iter().map(|record| record.kind).collect::<Vec<_>>(), [Kind::Epoch]);
    assert_eq!(*later.records.lock().expect("no panic"), new);
    runtime.shutdown().await;
}

#[tokio::test]
async fn a_repetition_is_reported_as_such_and_not_as_records() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let observer = Arc::new(NoticeRecorder::default());
    let runtime = watched(&journal, observer.clone()).await;
    let mut blueprint = steps(100);
    blueprint.rules.clear();
    let board = create(&runtime, blueprint).await;
    for _ in 0..3 {
        board.propose(proposal("t", STEP)).await.expect("answered");
    }
    assert_eq!(observer.duplicates.load(Ordering::SeqCst), 2);
    assert_eq!(*observer.records.lock().expect("no panic"), records(&journal, board.id()));
    runtime.shutdown().await;
}

/// Observer that panics at every notice.
struct Nervous;

impl Observer for Nervous {
    fn on_durable_step(&self, _: &DurableStep<'_>) {
        panic!("at a record");
    }

    fn on_board_closed(&self, _: &BoardId, _: &RuntimeError) {
        panic!("at an end");
    }
}

#[tokio::test]
async fn a_board_does_not_fail_at_being_watched() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let runtime = watched(&journal, Arc::new(Nervous)).await;
    let board = create(&runtime, five_steps()).await;
    assert_eq!(board.wait_for_end().await.expect("it ends").end, End::Done);
    runtime.shutdown().await;
    let records = assert_sound(&journal, board.id());
    assert_eq!(count(&records, Kind::Epoch), 0, "nothing was restarted");
}
