//! Delivers the notices of boards to a receiver: reads journals from their cursors, and retries with backoff.
//!
//! Notices are not queued. If a delivery fails, the board's cursor stays before the record, and the journal is read
//! again later. Each board has at most one visit at a time, so its notices stay in order; other boards are not delayed.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::{Kind, Record};
use patchboard_storage::blocking::wait;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::backoff;
use super::cursors::Cursors;
use super::feed::ChangeFeed;
use super::heads::HeadSender;
use super::notice::{Context, Cursor, Notice, Topic};
use super::receiver::{DeliveryError, Receiver, outcome_of};
use super::settings::Settings;
use crate::failure::Failure;
use crate::reader::storage;
use crate::serve::problem::{ApiResult, Problem};
use crate::serve::service::Daemon;

/// Maximum number of concurrent visits.
const AT_ONCE: usize = 4;

/// Records per read.
const PAGE: usize = 64;

/// Number of records without a notice after which a cursor is stored anyway.
const UNSAVED_MAX: u64 = 512;

/// Interval of the comparison of all boards with their cursors. Finds boards that another process runs.
const SWEEP: Duration = Duration::from_secs(60);

/// Minimum interval of checks for boards with calls that the gate holds back.
const HELD_MIN: Duration = Duration::from_secs(1);

pub(crate) struct Notifier {
    dispatchers: Vec<Arc<Dispatcher>>,
    heads: Vec<HeadSender>,
}

impl Notifier {
    /// Prepares the cursors; must run before any board does. The daemon has the `feeds` of the receivers.
    pub(crate) async fn begin(
        daemon: &Arc<Daemon>,
        settings: Option<Settings>,
        data_dir: &Path,
    ) -> Result<Self, Failure> {
        let Some(settings) = settings else {
            return Ok(Self { dispatchers: Vec::new(), heads: Vec::new() });
        };
        settings.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let settings = Arc::new(settings);
        let (mut dispatchers, mut heads) = (Vec::new(), Vec::new());
        for (receiver, feed) in settings.receivers.iter().zip(&daemon.feeds) {
            let cursors = Cursors::new(data_dir, receiver.kind());
            let beginning = cursors.clone();
            let begun = daemon.query(move |reader| {
                beginning.begin(reader)?;
                beginning.sweep(reader)
            });
            begun.await.map_err(|problem| Failure::failed("journal_io", problem.detail))?;
            heads.extend(settings.heads.map(|every| HeadSender {
                daemon: Arc::clone(daemon),
                receiver: receiver.clone(),
                feed: Arc::clone(feed),
                every: Duration::from_millis(every.as_ms()),
            }));
            dispatchers.push(Arc::new(Dispatcher {
                daemon: Arc::clone(daemon),
                settings: Arc::clone(&settings),
                receiver: receiver.clone(),
                cursors,
                feed: Arc::clone(feed),
            }));
        }
        Ok(Self { dispatchers, heads })
    }

    /// Delivers notices while the daemon runs. Never returns.
    pub(crate) async fn run(self) {
        let heads = join_all(self.heads.into_iter().map(HeadSender::run));
        tokio::join!(join_all(self.dispatchers.into_iter().map(Dispatcher::run)), heads);
        std::future::pending().await
    }
}

struct Dispatcher {
    daemon: Arc<Daemon>,
    settings: Arc<Settings>,
    receiver: Receiver,
    cursors: Cursors,
    feed: Arc<ChangeFeed>,
}

struct Tracked {
    blueprint: String,
    cursor: Cursor,
    saved: Option<Seq>,
}

impl Tracked {
    fn new(blueprint: String, cursor: Option<Cursor>) -> Self {
        let cursor = cursor.unwrap_or_default();
        Self { blueprint, saved: cursor.after, cursor }
    }
}

/// Reason that a visit ended before the end of the journal.
enum Interruption {
    Undelivered(String, DeliveryError),
    Unreadable(Problem),
    Gone,
}

struct VisitResult {
    tracked: Option<Tracked>,
    outcome: Result<(), Interruption>,
}

#[derive(Default)]
struct Boards {
    tracked: BTreeMap<BoardId, Tracked>,
    ready: VecDeque<BoardId>,
    is_ready: BTreeSet<BoardId>,
    /// Boards with a visit in progress.
    busy: HashMap<Id, BoardId>,
    is_busy: BTreeSet<BoardId>,
    /// Times of further visits: after a failure, or when a provider wait becomes overdue.
    timers: BTreeSet<(Instant, BoardId)>,
    timer_of: BTreeMap<BoardId, Instant>,
    /// Consecutive failed visits, with the notice that was reported as refused.
    failures: BTreeMap<BoardId, (u32, Option<String>)>,
}

impl Boards {
    fn add(&mut self, board: BoardId) {
        if self.is_ready.insert(board.clone()) {
            self.ready.push_back(board);
        }
    }

    /// Adds a board unless it waits after a failure.
    fn mark(&mut self, board: BoardId) {
        if !self.failures.contains_key(&board) {
            self.add(board);
        }
    }

    /// Takes the next board without a visit in progress.
    fn next(&mut self) -> Option<BoardId> {
        let place = self.ready.iter().position(|board| !self.is_busy.contains(board))?;
        let board = self.ready.remove(place)?;
        self.is_ready.remove(&board);
        self.set_timer(&board, None);
        Some(board)
    }

    fn set_timer(&mut self, board: &BoardId, at: Option<Instant>) {
        if let Some(before) = self.timer_of.remove(board) {
            self.timers.remove(&(before, board.clone()));
        }
        if let Some(at) = at {
            self.timer_of.insert(board.clone(), at);
            self.timers.insert((at, board.clone()));
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some((at, board)) = self.timers.first().cloned()
            && at <= now
        {
            self.set_timer(&board, None);
            self.add(board);
        }
    }

    fn forget(&mut self, board: &BoardId) {
        self.tracked.remove(board);
        self.failures.remove(board);
        self.set_timer(board, None);
    }
}

impl Dispatcher {
    async fn run(self: Arc<Self>) {
        let mut boards = Boards::default();
        let mut visits: JoinSet<VisitResult> = JoinSet::new();
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let provider_after = Duration::from_millis(self.settings.provider_after.as_ms());
        let mut held = interval(provider_after.clamp(HELD_MIN, SWEEP));
        held.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while visits.len() < AT_ONCE
                && let Some(board) = boards.next()
            {
                let tracked = boards.tracked.remove(&board);
                let id = visits.spawn(Arc::clone(&self).visit(board.clone(), tracked)).id();
                boards.is_busy.insert(board.clone());
                boards.busy.insert(id, board);
            }
            let timer = boards.timers.first().map(|(at, _)| *at);
            tokio::select! {
                () = self.feed.changed() => self.feed.take().into_iter().for_each(|board| boards.mark(board)),
                Some(visited) = visits.join_next_with_id(), if !visits.is_empty() => {
                    let (id, visited) = match visited {
                        Ok((id, visited)) => (id, visited),
                        Err(error) => {
                            tracing::error!(%error, "a visit of a board broke off");
                            let outcome = Err(Interruption::Unreadable(Failure::failed("internal", "a visit broke off").into()));
                            (error.id(), VisitResult { tracked: None, outcome })
                        }
                    };
                    if let Some(board) = boards.busy.remove(&id) {
                        boards.is_busy.remove(&board);
                        self.finish_visit(&mut boards, board, visited);
                    }
                }
                () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => boards.expire(Instant::now()),
                _ = sweep.tick() => self.sweep(&mut boards).await,
                _ = held.tick() => self.mark_held(&mut boards),
            }
        }
    }

    /// Marks boards with calls that the gate holds back. Boards with an open outage are skipped, so that they cost no
    /// further visits.
    fn mark_held(&self, boards: &mut Boards) {
        let is_reported = |board: &BoardId| boards.tracked.get(board).is_some_and(|tracked| tracked.cursor.waits());
        let mut held = self.daemon.registry.current().gate().boards_waiting();
        held.retain(|board| !is_reported(board));
        held.into_iter().for_each(|board| boards.mark(board));
    }

    fn finish_visit(&self, boards: &mut Boards, board: BoardId, visited: VisitResult) {
        let receiver = self.receiver.name();
        match visited.outcome {
            Ok(()) => {
                if boards.failures.remove(&board).is_some() {
                    tracing::info!(%board, %receiver, "notices of the board are delivered again");
                }
                let Some(tracked) = &visited.tracked else { return };
                self.feed.set_waiting(&board, tracked.cursor.waits());
                let now = self.daemon.clock.now();
                let due = tracked.cursor.due(self.settings.provider_after);
                let due = due.map(|due| Instant::now() + Duration::from_millis(due.ms_since(now)));
                boards.set_timer(&board, due);
            }
            Err(Interruption::Gone) => {
                self.feed.set_undelivered(&board, None);
                return boards.forget(&board);
            }
            Err(Interruption::Unreadable(problem)) => {
                let failures = boards.failures.entry(board.clone()).or_default();
                failures.0 += 1;
                let wait = backoff::after(failures.0, None, backoff::random());
                tracing::warn!(%board, code = problem.code, "notices of the board wait: its journal cannot be read");
                boards.set_timer(&board, Some(Instant::now() + wait));
            }
            Err(Interruption::Undelivered(notice, undelivered)) => {
                let failures = boards.failures.entry(board.clone()).or_default();
                failures.0 += 1;
                let wait = backoff::after(failures.0, Some(&undelivered), backoff::random());
                let (why, wait_s) = (&undelivered.why, wait.as_secs());
                if undelivered.is_rejected && failures.1.as_ref() != Some(&notice) {
                    tracing::warn!(%board, %receiver, %notice, wait_s, "a notice is rejected, fix [notify] or the receiver: {why}");
                    failures.1 = Some(notice);
                } else if !undelivered.is_rejected && failures.0 == 1 {
                    tracing::warn!(%board, %receiver, %notice, wait_s, "a notice is not delivered yet: {why}");
                } else {
                    tracing::debug!(%board, %receiver, %notice, wait_s, "a notice is not delivered yet: {why}");
                }
                boards.set_timer(&board, Some(Instant::now() + wait));
            }
        }
        if let Some(tracked) = visited.tracked {
            boards.tracked.insert(board, tracked);
        }
    }

    async fn sweep(&self, boards: &mut Boards) {
        let summaries = match self.daemon.query(|reader| wait(reader.journal.boards()).map_err(storage)).await {
            Ok(summaries) => summaries,
            Err(problem) => return tracing::warn!(code = problem.code, "boards cannot be listed for notices"),
        };
        let listed: BTreeSet<&BoardId> = summaries.iter().map(|summary| &summary.id).collect();
        let gone: Vec<BoardId> = boards.tracked.keys().filter(|board| !listed.contains(board)).cloned().collect();
        for board in &gone {
            self.feed.set_undelivered(board, None);
            boards.forget(board);
        }
        let is_new = |board: &BoardId| !boards.tracked.contains_key(board) && !boards.is_busy.contains(board);
        let new: Vec<(BoardId, String)> = summaries
            .iter()
            .filter(|summary| is_new(&summary.id))
            .map(|summary| (summary.id.clone(), summary.name.clone()))
            .collect();
        let cursors = self.cursors.clone();
        let is_any_gone = !gone.is_empty();
        let loaded = self.daemon.query(move |reader| {
            if is_any_gone {
                cursors.sweep(reader)?;
            }
            let tracked = new.into_iter().map(|(board, name)| {
                let cursor = cursors.load(&board);
                (board, Tracked::new(name, cursor))
            });
            Ok(tracked.collect::<Vec<_>>())
        });
        match loaded.await {
            Ok(loaded) => boards.tracked.extend(loaded),
            Err(problem) => return tracing::warn!(code = problem.code, "cursors of notices cannot be read"),
        }
        for summary in summaries {
            let tracked = boards.tracked.get(&summary.id);
            let is_behind = tracked.is_some_and(|tracked| {
                let cursor = &tracked.cursor;
                cursor.after.is_none_or(|after| after < summary.head.seq)
                    || !cursor.questions.is_empty()
                    || cursor.waits()
            });
            if is_behind {
                boards.mark(summary.id);
            }
        }
    }

    /// Delivers the notices of a board, up to the end of its journal.
    async fn visit(self: Arc<Self>, board: BoardId, tracked: Option<Tracked>) -> VisitResult {
        let tracked = match tracked {
            Some(tracked) => Some(tracked),
            None => match self.load(&board).await {
                Ok(tracked) => tracked,
                Err(problem) => return VisitResult { tracked: None, outcome: Err(Interruption::Unreadable(problem)) },
            },
        };
        let Some(mut tracked) = tracked else { return VisitResult { tracked: None, outcome: Err(Interruption::Gone) } };
        let outcome = self.catch_up(&board, &mut tracked).await;
        VisitResult { tracked: Some(tracked), outcome }
    }

    async fn load(&self, board: &BoardId) -> ApiResult<Option<Tracked>> {
        let (board, cursors) = (board.clone(), self.cursors.clone());
        let loaded = self.daemon.query(move |reader| {
            let summary = wait(reader.journal.summary(&board)).map_err(storage)?;
            Ok(summary.map(|summary| Tracked::new(summary.name, cursors.load(&board))))
        });
        loaded.await
    }

    async fn catch_up(&self, board: &BoardId, tracked: &mut Tracked) -> Result<(), Interruption> {
        let blueprint = tracked.blueprint.clone();
        let context = Context { board, blueprint: &blueprint, provider_after: self.settings.provider_after };
        while let Some(question) = tracked.cursor.questions.first().copied() {
            let records = self.records(board, question.0.checked_sub(1).map(Seq), 1).await?;
            let notice = records.first().and_then(|record| Cursor::question(record, &context).ok().flatten());
            self.deliver(board, notice).await?;
            tracked.cursor.questions.remove(0);
            self.save(board, tracked).await;
        }
        loop {
            let records = self.records(board, tracked.cursor.after, PAGE).await?;
            if records.is_empty() {
                break;
            }
            for record in records {
                let mut next = tracked.cursor.clone();
                let (notices, unreadable) = next.step(&record, &context);
                if let Some(error) = unreadable {
                    tracing::error!(%board, seq = %record.seq, %error, "a record has no notice, as it cannot be read");
                }
                let is_delivered = self.deliver(board, notices).await?;
                tracked.cursor = next;
                let unsaved = record.seq.0.saturating_sub(tracked.saved.map_or(0, |saved| saved.0));
                if is_delivered || record.kind == Kind::Ended || unsaved >= UNSAVED_MAX {
                    self.save(board, tracked).await;
                }
            }
        }
        let mut next = tracked.cursor.clone();
        let now = self.daemon.clock.now();
        let held = |next: &mut Cursor| self.daemon.held(board).and_then(|held| next.held(now, &held, &context));
        if let Some(notice) = next.overdue(now, &context).or_else(|| held(&mut next)) {
            self.deliver(board, Some(notice)).await?;
            tracked.cursor = next;
            self.save(board, tracked).await;
        }
        Ok(())
    }

    async fn records(&self, board: &BoardId, after: Option<Seq>, limit: usize) -> Result<Vec<Record>, Interruption> {
        let board = board.clone();
        let records =
            self.daemon.query(move |reader| wait(reader.journal.records(&board, after, limit)).map_err(storage));
        records.await.map_err(Interruption::Unreadable)
    }

    /// Delivers the notices with subscribed topics, in order. Returns true if there were any.
    async fn deliver(&self, board: &BoardId, notices: impl IntoIterator<Item = Notice>) -> Result<bool, Interruption> {
        let is_wanted = |topic: Topic| self.settings.topics.contains(&topic);
        let mut is_any = false;
        for notice in notices.into_iter().filter(|notice| is_wanted(notice.kind)) {
            self.feed.set_undelivered(board, Some(notice.since));
            let delivered = self.receiver.deliver(&notice.id, &notice.body()).await;
            self.daemon.metrics.count_delivery(self.feed.receiver, outcome_of(&delivered));
            delivered.map_err(|undelivered| Interruption::Undelivered(notice.id, undelivered))?;
            self.feed.set_undelivered(board, None);
            is_any = true;
        }
        Ok(is_any)
    }

    async fn save(&self, board: &BoardId, tracked: &mut Tracked) {
        let (cursors, id, cursor) = (self.cursors.clone(), board.clone(), tracked.cursor.clone());
        let saved = tokio::task::spawn_blocking(move || cursors.save(&id, &cursor)).await;
        match saved {
            Ok(Ok(())) => tracked.saved = tracked.cursor.after,
            Ok(Err(error)) => {
                tracing::warn!(%board, %error, "a cursor of notices is not stored; notices are repeated after a restart");
            }
            Err(error) => tracing::warn!(%board, %error, "a cursor of notices is not stored"),
        }
    }
}
