//! Group commit: boards share commits to disk.
//!
//! A board alone appends at once, on the thread that serves it. If several append, each queues its batch, and the
//! journal writer (`actors::journal_writer`) appends the whole queue with one commit, on a blocking thread. Boards
//! continue meanwhile. So a lone board pays for no thread switch, and many boards share one sync, even if few threads
//! serve them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use patchboard_kernel::id::BoardId;
use tokio::sync::{OwnedMutexGuard, Semaphore, oneshot};

use patchboard_kernel::driver::{Batch, Head};
use patchboard_storage::journal::{Journal, JournalError};

/// Limit of queued batches; further ones wait before they are queued.
const QUEUE_MAX: usize = 1024;

/// Limit of batches per commit.
const GROUP_MAX: usize = 256;

/// Time without an append of another board after which a board is alone. Busy boards append much more often.
const ALONE_AFTER: Duration = Duration::from_millis(2);

/// Journal shared by all boards of a runtime.
pub(crate) struct GroupCommit {
    journal: Arc<dyn Journal>,
    /// Held during an append.
    turn: Arc<tokio::sync::Mutex<()>>,
    queue: Mutex<VecDeque<QueuedBatch>>,
    latest: Mutex<Option<Latest>>,
    places: Semaphore,
    /// Notifies the journal writer of queued batches.
    wake: Box<dyn Fn() + Send + Sync>,
}

/// Guard that excludes other appends.
pub(crate) type AppendGuard = OwnedMutexGuard<()>;

/// Last append: its board and time. Both begin and end count.
struct Latest {
    board: BoardId,
    at: Instant,
    /// Time of the last append of another board, if there was one.
    others_at: Option<Instant>,
}

struct QueuedBatch {
    batch: Batch,
    answer: oneshot::Sender<Result<Head, JournalError>>,
}

impl GroupCommit {
    /// Creates a group commit. `wake` must soon lead to a call of [`GroupCommit::flush`].
    pub(crate) fn new(journal: Arc<dyn Journal>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let (turn, queue, latest) = Default::default();
        Self { journal, turn, queue, latest, places: Semaphore::new(QUEUE_MAX), wake: Box::new(wake) }
    }

    pub(crate) fn journal(&self) -> &Arc<dyn Journal> {
        &self.journal
    }

    /// Appends one batch; returns when it is durable.
    pub(crate) async fn append(&self, batch: Batch) -> Result<Head, JournalError> {
        let board = batch.board.clone();
        let is_alone = self.is_alone(&board);
        self.note(&board);
        let appended = if is_alone && let Ok(_turn) = self.turn.try_lock() {
            // Batches queued during this append notify the writer, which waits for the turn.
            self.journal.append(batch).await
        } else {
            self.append_queued(batch).await
        };
        self.note(&board);
        appended
    }

    async fn append_queued(&self, batch: Batch) -> Result<Head, JournalError> {
        let ended = || JournalError::Io("the journal writer has ended".to_owned());
        let Ok(_place) = self.places.acquire().await else { return Err(ended()) };
        let (answer, answered) = oneshot::channel();
        let is_first = {
            let mut queue = self.queue.lock();
            queue.push_back(QueuedBatch { batch, answer });
            queue.len() == 1
        };
        // An earlier batch has notified the writer, which continues until the queue is empty.
        if is_first {
            (self.wake)();
        }
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Returns true if no other board has appended recently.
    fn is_alone(&self, board: &BoardId) -> bool {
        let latest = self.latest.lock();
        let others_at =
            latest.as_ref().and_then(|latest| if latest.board == *board { latest.others_at } else { Some(latest.at) });
        others_at.is_none_or(|at| at.elapsed() >= ALONE_AFTER)
    }

    /// Notes an append of a board.
    fn note(&self, board: &BoardId) {
        let mut latest = self.latest.lock();
        let at = Instant::now();
        match &mut *latest {
            Some(latest) if latest.board == *board => latest.at = at,
            other => {
                let others_at = other.as_ref().map(|other| other.at);
                *other = Some(Latest { board: board.clone(), at, others_at });
            }
        }
    }

    /// Returns true if batches are queued.
    pub(crate) fn has_queued(&self) -> bool {
        self.queued() > 0
    }

    /// Returns the number of queued batches.
    pub(crate) fn queued(&self) -> usize {
        self.queue.lock().len()
    }

    /// Waits for the turn to append, and excludes other appends.
    pub(crate) async fn turn(&self) -> AppendGuard {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// Appends all queued batches, until the queue is empty.
    pub(crate) async fn flush(&self, _turn: AppendGuard) {
        loop {
            let (batches, answers) = self.take_group();
            if batches.is_empty() {
                return;
            }
            tracing::trace!(batches = batches.len(), "group commit");
            let appended = self.journal.append_all(batches).await;
            for (answer, appended) in answers.into_iter().zip(appended) {
                // A kernel that was stopped meanwhile needs no answer.
                drop(answer.send(appended));
            }
        }
    }

    pub(crate) fn fail_queued(&self, reason: &str) {
        let refused = self.queue.lock().split_off(0);
        for waiting in refused {
            drop(waiting.answer.send(Err(JournalError::Io(format!("the journal writer fails: {reason}")))));
        }
    }

    /// Takes the next batches for one commit, in order of arrival. Drops batches with a cancelled caller: their board
    /// may have another owner by now.
    fn take_group(&self) -> (Vec<Batch>, Vec<oneshot::Sender<Result<Head, JournalError>>>) {
        let mut queue = self.queue.lock();
        queue.retain(|waiting| !waiting.answer.is_closed());
        let count = queue.len().min(GROUP_MAX);
        queue.drain(..count).map(|waiting| (waiting.batch, waiting.answer)).unzip()
    }
}

#[cfg(test)]
mod tests {
    use patchboard_storage::blocking::wait;

    use super::*;
    use patchboard_storage::sqlite::SqliteJournal;
    use patchboard_storage::testing::Writer;

    #[tokio::test]
    async fn appends_queued_during_a_write_form_one_batch() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let journal = Arc::new(SqliteJournal::open(dir.path()).expect("opened"));
        let woken = Arc::new(tokio::sync::Notify::new());
        let wake = Arc::clone(&woken);
        let group = Arc::new(GroupCommit::new(journal.clone(), move || wake.notify_one()));
        // Simulates a slow append.
        let turn = group.turn().await;
        let mut appends = tokio::task::JoinSet::new();
        for number in 0..10 {
            let group = Arc::clone(&group);
            appends.spawn(async move { group.append(Writer::new(&format!("b{number}")).created()).await });
        }
        woken.notified().await;
        while group.queue.lock().len() < 10 {
            tokio::task::yield_now().await;
        }
        assert!(wait(journal.boards()).expect("read").is_empty());
        let (batches, answers) = group.take_group();
        assert_eq!(batches.len(), 10, "one commit takes all");
        for (batch, answer) in batches.into_iter().zip(answers) {
            group.queue.lock().push_back(QueuedBatch { batch, answer });
        }
        group.flush(turn).await;
        while let Some(append) = appends.join_next().await {
            append.expect("no panic").expect("appended");
        }
        assert_eq!(wait(journal.boards()).expect("read").len(), 10);
    }

    #[tokio::test]
    async fn a_board_that_is_not_alone_leaves_its_append_to_the_writer() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let journal = Arc::new(SqliteJournal::open(dir.path()).expect("opened"));
        let group = Arc::new(GroupCommit::new(journal.clone(), || {}));
        let (mut first, mut second) = (Writer::new("b1"), Writer::new("b2"));
        group.append(first.created()).await.expect("appended");
        // Independent of how long this thread is delayed.
        let soon = Instant::now() + Duration::from_secs(3600);
        group.latest.lock().as_mut().expect("noted").at = soon;
        // The journal is free, but another board has just appended; one thread serves both.
        let other = Arc::clone(&group);
        let created = second.created();
        let waiting = tokio::spawn(async move { other.append(created).await });
        while !group.has_queued() {
            tokio::task::yield_now().await;
        }
        group.flush(group.turn().await).await;
        waiting.await.expect("no panic").expect("appended");
        // Only time makes it alone, not its own appends.
        assert!(!group.is_alone(&"b2".into()));
        group.note(&"b2".into());
        assert!(!group.is_alone(&"b2".into()));
        group.latest.lock().as_mut().expect("noted").others_at = Instant::now().checked_sub(ALONE_AFTER);
        group.append(second.signal("x")).await.expect("appended");
    }

    #[tokio::test]
    async fn abandoned_appends_are_dropped() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let journal = Arc::new(SqliteJournal::open(dir.path()).expect("opened"));
        let group = Arc::new(GroupCommit::new(journal.clone(), || {}));
        let turn = group.turn().await;
        let mut appends = Vec::new();
        for board in ["b1", "b2"] {
            let group = Arc::clone(&group);
            appends.push(tokio::spawn(async move { group.append(Writer::new(board).created()).await }));
        }
        while group.queue.lock().len() < 2 {
            tokio::task::yield_now().await;
        }
        appends[0].abort();
        while !appends[0].is_finished() {
            tokio::task::yield_now().await;
        }
        group.flush(turn).await;
        let listed: Vec<_> = wait(journal.boards()).expect("read").into_iter().map(|board| board.id).collect();
        assert_eq!(listed, ["b2".into()]);
    }

    #[tokio::test]
    async fn a_lone_append_needs_no_writer() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let journal = Arc::new(SqliteJournal::open(dir.path()).expect("opened"));
        let group = GroupCommit::new(journal, || panic!("nobody is woken"));
        group.append(Writer::new("b").created()).await.expect("appended");
    }
}
