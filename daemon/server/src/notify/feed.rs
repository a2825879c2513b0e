//! Marks boards as their records become durable, and tracks undelivered notices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::serve::storage_health::StorageHealth;
use parking_lot::Mutex;
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_kernel::record::Kind;
use patchboard_runtime::error::RuntimeError;
use patchboard_runtime::observer::{DurableStep, Observer, RestartScope};
use tokio::sync::Notify;

use super::notice::matters;

/// Boards for a receiver's dispatcher to visit. Holds no records: the journal does.
pub(crate) struct ChangeFeed {
    pub(crate) receiver: &'static str,
    marks: Mutex<Marks>,
    changed: Notify,
}

#[derive(Default)]
struct Marks {
    marked: BTreeSet<BoardId>,
    /// Boards for which every record marks the board.
    waiting: BTreeSet<BoardId>,
    undelivered: BTreeMap<BoardId, Timestamp>,
    heads: Option<Timestamp>,
}

impl ChangeFeed {
    pub(crate) fn new(receiver: &'static str) -> Self {
        Self { receiver, marks: Mutex::default(), changed: Notify::new() }
    }

    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn take(&self) -> BTreeSet<BoardId> {
        std::mem::take(&mut self.marks.lock().marked)
    }

    /// Sets whether every record marks the board, unless unread records decide otherwise.
    pub(crate) fn set_waiting(&self, board: &BoardId, waits: bool) {
        let mut marks = self.marks.lock();
        if waits {
            marks.waiting.insert(board.clone());
        } else if !marks.marked.contains(board) {
            marks.waiting.remove(board);
        }
    }

    /// Sets the time of a board's first undelivered notice; `None` if all are delivered.
    pub(crate) fn set_undelivered(&self, board: &BoardId, since: Option<Timestamp>) {
        let undelivered = &mut self.marks.lock().undelivered;
        match since {
            Some(since) => drop(undelivered.insert(board.clone(), since)),
            None => drop(undelivered.remove(board)),
        }
    }

    pub(crate) fn set_heads_undelivered(&self, since: Option<Timestamp>) {
        self.marks.lock().heads = since;
    }

    pub(crate) fn oldest_undelivered(&self) -> Option<Timestamp> {
        let marks = self.marks.lock();
        marks.undelivered.values().copied().chain(marks.heads).min()
    }

    fn mark(&self, step: &DurableStep<'_>) {
        let mut marks = self.marks.lock();
        let is_change = step.records.iter().any(|record| matters(record.kind)) || marks.waiting.contains(step.board);
        if !is_change {
            return;
        }
        if step.records.iter().any(|record| matches!(record.kind, Kind::Deferred | Kind::Paused)) {
            marks.waiting.insert(step.board.clone());
        }
        marks.marked.insert(step.board.clone());
        drop(marks);
        self.changed.notify_one();
    }
}

/// Observer that also marks feeds and tracks storage failures.
pub(crate) struct WithFeeds<O> {
    pub(crate) observer: O,
    pub(crate) feeds: Vec<Arc<ChangeFeed>>,
    pub(crate) disk: Arc<StorageHealth>,
}

impl<O: Observer> Observer for WithFeeds<O> {
    fn on_durable_step(&self, step: &DurableStep<'_>) {
        self.observer.on_durable_step(step);
        self.disk.on_durable_step(step);
        self.feeds.iter().for_each(|feed| feed.mark(step));
    }

    fn on_duplicate(&self, board: &BoardId) {
        self.observer.on_duplicate(board);
    }

    fn on_restart(&self, what: RestartScope) {
        self.observer.on_restart(what);
    }

    fn on_board_closed(&self, board: &BoardId, why: &RuntimeError) {
        self.observer.on_board_closed(board, why);
        self.disk.on_board_closed(board, why);
    }
}
