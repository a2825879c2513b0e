//! Lets the boards share commits to disk.
//!
//! A board that is alone appends at once, on the spot. Where several append, each queues its batch, and the journal
//! writer (`actors::journal_writer`) then appends all that is queued with one commit, on a thread of its own, while
//! boards go on. So a lone board pays for no hop, and many boards pay for one sync together, however few threads serve
//! them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use patchboard_kernel::id::BoardId;
use tokio::sync::{OwnedMutexGuard, Semaphore, oneshot};

use super::{Batch, Head, Journal, JournalError};

/// Batches that may wait; further ones wait before they are queued.
const QUEUE_MAX: usize = 1024;

/// Batches that one commit takes at most.
const GROUP_MAX: usize = 256;

/// A board is alone if no other's append has begun or ended for so long. Who goes on comes again much sooner.
const ALONE_AFTER: Duration = Duration::from_millis(2);

/// The journal as all boards of a runtime share it.
pub(crate) struct GroupCommit {
    journal: Arc<dyn Journal>,
    /// Held by whoever is appending.
    turn: Arc<tokio::sync::Mutex<()>>,
    queue: Mutex<VecDeque<Waiting>>,
    latest: Mutex<Option<Latest>>,
    places: Semaphore,
    /// Tells the journal writer that something is queued.
    wake: Box<dyn Fn() + Send + Sync>,
}

/// Nobody else appends while it is held.
pub(crate) type Turn = OwnedMutexGuard<()>;

/// When who appended last; beginning and ending count.
struct Latest {
    board: BoardId,
    at: Instant,
    /// When another board did, if one ever has.
    others_at: Option<Instant>,
}

struct Waiting {
    batch: Batch,
    answer: oneshot::Sender<Result<Head, JournalError>>,
}

impl GroupCommit {
    /// `wake` must lead to a call of [`GroupCommit::flush`], soon.
    pub(crate) fn new(journal: Arc<dyn Journal>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            journal,
            turn: Arc::default(),
            queue: Mutex::new(VecDeque::new()),
            latest: Mutex::default(),
            places: Semaphore::new(QUEUE_MAX),
            wake: Box::new(wake),
        }
    }

    /// The journal, for reading.
    pub(crate) fn journal(&self) -> &Arc<dyn Journal> {
        &self.journal
    }

    /// Appends one batch; answers when it is durable.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub(crate) async fn append(&self, batch: Batch) -> Result<Head, JournalError> {
        let board = batch.board.clone();
        let is_alone = self.is_alone(&board);
        self.note(&board);
        let appended = if is_alone && let Ok(_turn) = self.turn.try_lock() {
            // Whoever queues while this one is writing wakes the writer, which waits for the turn.
            self.journal.append(batch).await
        } else {
            self.append_queued(batch).await
        };
        self.note(&board);
        appended
    }

    /// Leaves a batch to the writer.
    async fn append_queued(&self, batch: Batch) -> Result<Head, JournalError> {
        let ended = || JournalError::Io("the journal writer has ended".to_owned());
        let Ok(_place) = self.places.acquire().await else { return Err(ended()) };
        let (answer, answered) = oneshot::channel();
        let is_first = {
            let mut queue = self.queue();
            queue.push_back(Waiting { batch, answer });
            queue.len() == 1
        };
        // Whoever queued before has woken the writer, which goes on until nothing is queued.
        if is_first {
            (self.wake)();
        }
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Whether no other board has appended of late.
    fn is_alone(&self, board: &BoardId) -> bool {
        let latest = self.latest();
        let others_at =
            latest.as_ref().and_then(|latest| if latest.board == *board { latest.others_at } else { Some(latest.at) });
        others_at.is_none_or(|at| at.elapsed() >= ALONE_AFTER)
    }

    /// Notes that a board has.
    fn note(&self, board: &BoardId) {
        let mut latest = self.latest();
        let at = Instant::now();
        match &mut *latest {
            Some(latest) if latest.board == *board => latest.at = at,
            other => {
                let others_at = other.as_ref().map(|other| other.at);
                *other = Some(Latest { board: board.clone(), at, others_at });
            }
        }
    }

    fn latest(&self) -> MutexGuard<'_, Option<Latest>> {
        // Nothing that can panic happens while it is held.
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something is queued.
    pub(crate) fn has_queued(&self) -> bool {
        self.queued() > 0
    }

    /// How many batches are queued.
    pub(crate) fn queued(&self) -> usize {
        self.queue().len()
    }

    /// Waits until nobody is appending, and keeps others from it.
    pub(crate) async fn turn(&self) -> Turn {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// Appends what is queued, until nothing is.
    pub(crate) async fn flush(&self, _turn: Turn) {
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

    /// Tells whoever has queued something that it will not be appended.
    pub(crate) fn refuse_queued(&self, reason: &str) {
        let refused = self.queue().split_off(0);
        for waiting in refused {
            drop(waiting.answer.send(Err(JournalError::Io(format!("the journal writer fails: {reason}")))));
        }
    }

    /// The next batches for one commit, in the order they came. What nobody waits for any more is dropped: its board may
    /// have another owner by now.
    fn take_group(&self) -> (Vec<Batch>, Vec<oneshot::Sender<Result<Head, JournalError>>>) {
        let mut queue = self.queue();
        queue.retain(|waiting| !waiting.answer.is_closed());
        let count = queue.len().min(GROUP_MAX);
        queue.drain(..count).map(|waiting| (waiting.batch, waiting.answer)).unzip()
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        // Nothing that can panic happens while it is held.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::sqlite::SqliteJournal;
    use crate::journal::testing::Writer;

    #[tokio::test]
    async fn what_queues_while_one_writes_is_appended_together() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let journal = Arc::new(SqliteJournal::open(dir.path()).expect("opened"));
        let woken = Arc::new(tokio::sync::Notify::new());
        let wake = Arc::clone(&woken);
        let group = Arc::new(GroupCommit::new(journal.clone(), move || wake.notify_one()));
        // As if a slow append were under way.
        let turn = group.turn().await;
        let mut appends = tokio::task::JoinSet::new();
        for number in 0..10 {
            let group = Arc::clone(&group);
            appends.spawn(async move { group.append(Writer::new(&format!("b{number}")).created()).await });
        }
        woken.notified().await;
        while group.queue().len() < 10 {
            tokio::task::yield_now().await;
        }
        assert!(journal.boards().expect("read").is_empty());
        let (batches, answers) = group.take_group();
        assert_eq!(batches.len(), 10, "one commit takes all");
        for (batch, answer) in batches.into_iter().zip(answers) {
            group.queue().push_back(Waiting { batch, answer });
        }
        group.flush(turn).await;
        while let Some(append) = appends.join_next().await {
            append.expect("no panic").expect("appended");
        }
        assert_eq!(journal.boards().expect("read").len(), 10);
    }

    #[tokio::test]
    async fn a_board_that_is_not_alone_leaves_its_append_to_the_writer() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let journal = Arc::new(SqliteJournal::open(dir.path()).expect("opened"));
        let group = Arc::new(GroupCommit::new(journal.clone(), || {}));
        let (mut first, mut second) = (Writer::new("b1"), Writer::new("b2"));
        group.append(first.created()).await.expect("appended");
        // However long this thread is kept from going on.
        let soon = Instant::now() + Duration::from_secs(3600);
        group.latest().as_mut().expect("noted").at = soon;
        // Nothing holds the journal, but another board has just appended; one thread serves both.
        let other = Arc::clone(&group);
        let created = second.created();
        let waiting = tokio::spawn(async move { other.append(created).await });
        while !group.has_queued() {
            tokio::task::yield_now().await;
        }
        group.flush(group.turn().await).await;
        waiting.await.expect("no panic").expect("appended");
        // Its own appends do not make it alone; time does.
        assert!(!group.is_alone(&"b2".into()));
        group.note(&"b2".into());
        assert!(!group.is_alone(&"b2".into()));
        group.latest().as_mut().expect("noted").others_at = Instant::now().checked_sub(ALONE_AFTER);
        group.append(second.signal("x")).await.expect("appended");
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_not_appended() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let journal = Arc::new(SqliteJournal::open(dir.path()).expect("opened"));
        let group = Arc::new(GroupCommit::new(journal.clone(), || {}));
        let turn = group.turn().await;
        let mut appends = Vec::new();
        for board in ["b1", "b2"] {
            let group = Arc::clone(&group);
            appends.push(tokio::spawn(async move { group.append(Writer::new(board).created()).await }));
        }
        while group.queue().len() < 2 {
            tokio::task::yield_now().await;
        }
        appends[0].abort();
        while !appends[0].is_finished() {
            tokio::task::yield_now().await;
        }
        group.flush(turn).await;
        let listed: Vec<_> = journal.boards().expect("read").into_iter().map(|board| board.id).collect();
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
