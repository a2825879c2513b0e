//! Boards with new records, marked as the records become durable; and the notices that are not delivered yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::serve::disk::Disk;
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_kernel::record::Kind;
use patchboard_runtime::observer::{Durable, Observer, Restarted};
use patchboard_runtime::runtime::RuntimeError;
use tokio::sync::Notify;

use super::notice::matters;

/// Boards that a receiver's dispatcher should look at. Holds no records: the journal does.
pub(crate) struct ChangeFeed {
    /// Kind of the receiver.
    pub(crate) receiver: &'static str,
    marks: Mutex<Marks>,
    changed: Notify,
}

#[derive(Default)]
struct Marks {
    marked: BTreeSet<BoardId>,
    /// Boards of which every record matters.
    waiting: BTreeSet<BoardId>,
    /// Time of the first notice of a board that is not delivered.
    undelivered: BTreeMap<BoardId, Timestamp>,
    /// Time of the heads that are not delivered.
    heads: Option<Timestamp>,
}

impl ChangeFeed {
    pub(crate) fn new(receiver: &'static str) -> Self {
        Self { receiver, marks: Mutex::default(), changed: Notify::new() }
    }

    /// Waits until boards are marked.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes the boards that are marked.
    pub(crate) fn take(&self) -> BTreeSet<BoardId> {
        std::mem::take(&mut self.marks().marked)
    }

    /// Says whether every record of a board matters, as far as its records were read.
    pub(crate) fn set_waiting(&self, board: &BoardId, waits: bool) {
        let mut marks = self.marks();
        if waits {
            marks.waiting.insert(board.clone());
        } else if !marks.marked.contains(board) {
            marks.waiting.remove(board);
        }
    }

    /// Notes the first notice of a board that is to be delivered; none: all are.
    pub(crate) fn set_undelivered(&self, board: &BoardId, since: Option<Timestamp>) {
        let undelivered = &mut self.marks().undelivered;
        match since {
            Some(since) => drop(undelivered.insert(board.clone(), since)),
            None => drop(undelivered.remove(board)),
        }
    }

    /// Notes the time of heads that are to be delivered; none: all are.
    pub(crate) fn set_heads_undelivered(&self, since: Option<Timestamp>) {
        self.marks().heads = since;
    }

    /// Time of the oldest notice, or of heads, that are not delivered.
    pub(crate) fn oldest_undelivered(&self) -> Option<Timestamp> {
        let marks = self.marks();
        marks.undelivered.values().copied().chain(marks.heads).min()
    }

    fn mark(&self, step: &Durable<'_>) {
        let mut marks = self.marks();
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

    fn marks(&self) -> MutexGuard<'_, Marks> {
        // No change of it can stop half way.
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An observer that also marks feeds, and notes what storage does.
pub(crate) struct WithFeeds<O> {
    /// Observer that it stands before.
    pub(crate) observer: O,
    /// Marks of each receiver.
    pub(crate) feeds: Vec<Arc<ChangeFeed>>,
    /// State of the storage.
    pub(crate) disk: Arc<Disk>,
}

impl<O: Observer> Observer for WithFeeds<O> {
    fn durable(&self, step: &Durable<'_>) {
        self.observer.durable(step);
        self.disk.durable(step);
        self.feeds.iter().for_each(|feed| feed.mark(step));
    }

    fn duplicate(&self, board: &BoardId) {
        self.observer.duplicate(board);
    }

    fn restarted(&self, what: Restarted) {
        self.observer.restarted(what);
    }

    fn gone(&self, board: &BoardId, why: &RuntimeError) {
        self.observer.gone(board, why);
        self.disk.gone(board, why);
    }
}
