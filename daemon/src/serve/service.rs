//! What the daemon is, apart from how it is reached: boards that run, boards at rest, and what is asked of both.

mod questions;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use dashmap::DashMap;
use patchboard_agents::departments::storage::Storage;
use patchboard_agents::gate::{Change, Held, ModelState};
use patchboard_agents::inner::Inner;
use patchboard_agents::lease::Leases;
use patchboard_agents::seats::{Replaceable, Seats};
use patchboard_agents::workspace::boards::{TakingUp, Workspaces};
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::{Body, End, Ended, Kind, Principal, Record, Retried};
use patchboard_kernel::redaction::Request;
use patchboard_runtime::agent::Agent as _;
use patchboard_runtime::archive::{self, ArchiveError};
use patchboard_runtime::clock::{Clock, SystemClock};
use patchboard_runtime::journal::sqlite::SqliteJournal;
use patchboard_runtime::journal::{BoardSummary, Journal as _, JournalError, Tombstone, Vacuumed};
use patchboard_runtime::runtime::{BoardHandle, Founding, Heard, Options, Runtime, RuntimeError};
use patchboard_runtime::subscription::Subscription;
use patchboard_runtime::{audit, redaction};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::access::Scope;
use super::alone::only_one;
use super::disk::Disk;
use super::http::Caller;
use super::keys::Made;
use super::limits::{LimitSettings, Limits};
use super::metrics::{Counting, Metrics};
use super::problem::{Answered, Code, Problem};
use super::tokens::{Action, Holder, Intended, Tokens};
use crate::commands::{redact, storage as storage_command};
use crate::drive::failure;
use crate::failure::Failure;
use crate::notify::feed::{ChangeFeed, WithFeeds};
use crate::outages;
use crate::reader::{Reader, storage};

/// Time that calls of models wait for all boards to be taken up, at most: their journals say which models are away.
const SHUT: Duration = Duration::from_secs(30);

/// Boards that are recovered at the same time.
const RECOVERED_AT_ONCE: usize = 8;

/// How many records are looked at for the end of a board: owners that came after it are few.
const LAST_RECORDS: u64 = 256;

/// How often it is looked for boards that may rest.
const REST_LOOK_MIN: Duration = Duration::from_millis(100);
const REST_LOOK_MAX: Duration = Duration::from_secs(15);

/// Longest time until it is looked whether a token has expired that keeps something open.
const EXPIRY_LOOK: Duration = Duration::from_secs(30);

/// Questions to the journal that are answered at the same time; further ones wait.
const READS_AT_ONCE: usize = 8;

/// The daemon.
pub(crate) struct Daemon {
    runtime: Runtime,
    reader: Reader,
    data_dir: PathBuf,
    /// What fills the seats of boards.
    pub(crate) seats: Arc<Replaceable>,
    workspaces: Arc<Workspaces>,
    /// The calls of remote workers.
    pub(crate) leases: Leases,
    /// Who may come in...
    pub(crate) tokens: Tokens,
    /// ...beside whoever reaches the address, who may do everything, if this is so...
    pub(crate) is_open: bool,
    /// ...and who has the token of this hash, who may as well, as long as the process lives.
    own: Option<Digest>,
    /// How much one caller may take.
    pub(crate) limits: Limits,
    is_ready: AtomicBool,
    /// No other daemon runs on the directory, and nobody writes its file anew.
    _lock: File,
    /// What is counted.
    pub(crate) metrics: Arc<Metrics>,
    /// Boards with new records, for each receiver of notices.
    pub(crate) feeds: Vec<Arc<ChangeFeed>>,
    /// State of the storage.
    pub(crate) disk: Arc<Disk>,
    pub(crate) clock: Arc<dyn Clock>,
    reads: Arc<Semaphore>,
    /// Boards that are being opened or made, so that none is opened twice.
    opening: DashMap<BoardId, Arc<Mutex<()>>>,
    /// Counts boards that were taken up; gone once the daemon stops.
    taken_up: std::sync::Mutex<Option<watch::Sender<u64>>>,
}

/// What came of the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Recovered {
    /// Boards that go on.
    pub(crate) boards: usize,
    /// Boards that cannot.
    pub(crate) failed: usize,
}

impl Daemon {
    /// Starts on a data directory; nothing runs yet.
    pub(crate) async fn start(
        data_dir: &Path,
        seats: Seats,
        is_open: bool,
        limits: LimitSettings,
        feeds: Vec<Arc<ChangeFeed>>,
    ) -> Result<Self, Failure> {
        let leases = Leases::default();
        let seats = seats.with_leases(leases.clone()).with_storage(Storage::at(data_dir));
        let workspaces = Arc::clone(seats.workspaces());
        let seats = Arc::new(Replaceable::new(seats));
        let journal = SqliteJournal::open(data_dir).map_err(storage)?;
        let lock = only_one(data_dir)?;
        let metrics = Arc::new(Metrics::new());
        let mut options = Options::new(Arc::new(Inner::around(seats.clone())));
        let observer = Counting::new(Arc::clone(&metrics));
        let disk = Arc::new(Disk::default());
        options.observer = Arc::new(WithFeeds { observer, feeds: feeds.clone(), disk: Arc::clone(&disk) });
        let runtime = Runtime::start(Arc::new(journal.clone()), options).await.map_err(failure)?;
        Ok(Self {
            runtime,
            reader: Reader { journal },
            data_dir: data_dir.to_owned(),
            seats,
            workspaces,
            leases,
            tokens: Tokens::open(data_dir)?,
            is_open,
            own: None,
            limits: Limits::new(limits),
            is_ready: AtomicBool::new(false),
            _lock: lock,
            metrics,
            feeds,
            disk,
            clock: Arc::new(SystemClock),
            reads: Arc::new(Semaphore::new(READS_AT_ONCE)),
            opening: DashMap::new(),
            taken_up: std::sync::Mutex::new(Some(watch::Sender::new(0))),
        })
    }

    /// The same for a token that opens everything and is in no file of the daemon's.
    pub(crate) fn opened_by(self, token: &str) -> Self {
        Self { own: Some(sha256(token.as_bytes())), ..self }
    }

    /// Returns what the holder of a token may do, and the holder if the token is stored; none if it opens nothing.
    pub(crate) fn holder(&self, token: &str) -> Result<Option<(Scope, Option<Holder>)>, Failure> {
        if self.own == Some(sha256(token.as_bytes())) {
            return Ok(Some((Scope::Admin, None)));
        }
        let holder = self.tokens.holder(token, self.clock.now())?;
        Ok(holder.map(|holder| (holder.scope.clone(), Some(holder))))
    }

    /// Waits until a token opens nothing any more; `changes` counts changes of the tokens since before it was looked up.
    pub(crate) async fn ended(&self, holder: &Holder, mut changes: watch::Receiver<u64>) {
        loop {
            let left = holder
                .expires_at
                .map(|at| Duration::from_millis(at.0.saturating_sub(self.clock.now().0).max(0).unsigned_abs()));
            let over = async {
                match left {
                    // Looked at again by then: timers know nothing of a clock that is set, or of sleep of the machine.
                    Some(left) => tokio::time::sleep(left.min(EXPIRY_LOOK)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Ok(()) = changes.changed() => {}
                () = over => {}
            }
            // Tokens that cannot be read open nothing to whoever asks next.
            if !self.tokens.opens(holder.id, self.clock.now()).unwrap_or(true) {
                return;
            }
        }
    }

    /// Takes up every board that has not ended, and lets it go on where it was. One inside another is taken up by the call
    /// that wants it. If there can be none any more, it is cancelled, unless an operator has retried it.
    pub(crate) async fn recover(self: &Arc<Self>) -> Result<Recovered, Failure> {
        let boards = self.reader.journal.boards().map_err(storage)?;
        let open: BTreeSet<BoardId> =
            boards.iter().filter(|board| board.ended.is_none()).map(|board| board.id.clone()).collect();
        let is_left = |board: &BoardSummary| board.parent.as_ref().is_some_and(|parent| !open.contains(parent));
        let is_final = |board: &BoardSummary| matches!(board.ended, Some(End::Done | End::Cancelled));
        let over: BTreeSet<BoardId> =
            boards.iter().filter(|board| is_final(board)).map(|board| board.id.clone()).collect();
        let mut left = boards
            .iter()
            .filter(|board| board.ended.is_none() && (board.parent.is_none() || is_left(board)))
            .map(|board| {
                let may_be_retried = board.parent.as_ref().is_some_and(|parent| !over.contains(parent));
                (board.id.clone(), is_left(board).then_some(may_be_retried))
            });
        let (mut going, mut recovered) = (JoinSet::new(), Recovered::default());
        self.seats.now().gate().shut(SHUT);
        loop {
            while going.len() < RECOVERED_AT_ONCE
                && let Some((board, is_left)) = left.next()
            {
                let daemon = Arc::clone(self);
                going.spawn(async move {
                    let opened = daemon.open(&board).await;
                    let done = match opened {
                        Ok(opened) => match is_left {
                            Some(may_be_retried) => end_left(&opened, may_be_retried).await,
                            None => Ok(()),
                        },
                        Err(problem) => Err(problem),
                    };
                    (board, done)
                });
            }
            match going.join_next().await {
                None => {
                    self.seats.now().gate().open();
                    self.is_ready.store(true, Ordering::Release);
                    return Ok(recovered);
                }
                Some(Ok((_, Ok(_)))) => recovered.boards += 1,
                Some(Ok((board, Err(problem)))) => {
                    tracing::error!(%board, code = problem.code, "the board cannot go on: {}", problem.json()["detail"]);
                    recovered.failed += 1;
                }
                Some(Err(error)) => {
                    tracing::error!(%error, "a board could not be taken up");
                    recovered.failed += 1;
                }
            }
        }
    }

    /// Ends what has no end by itself: readers that follow boards.
    pub(crate) fn stops(&self) {
        drop(self.taken_up().take());
    }

    /// Closes all boards: what is decided is durable, calls under way are given up and made again after the next start.
    pub(crate) async fn stop(&self) {
        self.runtime.shutdown().await;
    }

    /// All boards, the oldest first.
    pub(crate) fn boards(&self) -> Answered<Vec<BoardSummary>> {
        Ok(self.reader.journal.boards()?)
    }

    /// Returns what the list of boards has of a board. Compares it with the last records of one that does not run here.
    pub(crate) fn summary(&self, board: &BoardId) -> Answered<BoardSummary> {
        let summary = self.reader.journal.summary(board)?.ok_or_else(|| no_such_board(board))?;
        if self.running(board).is_none() {
            audit::check_listed(&self.reader.journal, board)?;
        }
        Ok(summary)
    }

    /// Returns true if the list of boards says something else of a board than the records do.
    pub(crate) fn is_damaged(&self, board: &BoardId) -> bool {
        self.running(board).is_none() && audit::check_listed(&self.reader.journal, board).is_err()
    }

    /// A board that runs here now.
    pub(crate) fn running(&self, board: &BoardId) -> Option<BoardHandle> {
        self.runtime.board(board)
    }

    /// The boards that run here now.
    pub(crate) fn running_boards(&self) -> impl Iterator<Item = BoardHandle> {
        self.runtime.boards().into_iter().filter_map(|board| self.runtime.board(&board))
    }

    /// Sets view budgets of a blueprint by the contexts of this daemon's models, as a board of it gets them.
    pub(crate) fn fit_views(&self, blueprint: &mut Blueprint) {
        let seats = self.seats.now();
        blueprint.fit_views(&|model| seats.context(model));
    }

    /// The directories that boards share with their workers.
    pub(crate) const fn workspaces(&self) -> &Arc<Workspaces> {
        &self.workspaces
    }

    /// How many steps wait for the journal writer.
    pub(crate) fn journal_queue(&self) -> usize {
        self.runtime.journal_queue()
    }

    /// Closes a board until somebody wants something of it, and lets its directory go.
    pub(crate) async fn let_go(&self, board: &BoardId) {
        self.alone(board, self.runtime.close(board)).await;
    }

    /// A board to act on: one that does not run is taken up for it, also one that has ended for good, as it alone knows
    /// which requests it has heard before.
    pub(crate) async fn open(&self, board: &BoardId) -> Answered<BoardHandle> {
        if let Some(running) = self.runtime.board(board) {
            return Ok(running);
        }
        let opened = async {
            if let Some(running) = self.runtime.board(board) {
                return Ok(running);
            }
            self.summary(board)?;
            self.take_up(board).await
        };
        self.alone(board, opened).await
    }

    /// The same for what a caller does: records of it name the caller.
    pub(crate) async fn open_for(self: &Arc<Self>, board: &BoardId, caller: &Caller) -> Answered<BoardHandle> {
        Ok(self.open(board).await?.by(caller.principal()))
    }

    /// Takes up again what a board gave up. The directory of one that was over is opened again.
    pub(crate) async fn retry(self: &Arc<Self>, board: &BoardId, caller: &Caller, retried: Retried) -> Answered<Heard> {
        let running = self.open_for(board, caller).await?;
        let (daemon, id) = (Arc::clone(self), board.clone());
        // A task of its own completes the retry if the caller leaves; retries of one board run in turn.
        let done = tokio::spawn(async move {
            let retry = async {
                let is_over = running.snapshot().ended.is_some_and(Ended::is_final);
                // From the retry on, workers wait for the directory.
                let taking_up = is_over.then(|| daemon.workspaces().taking_up());
                let heard = running.retry(retried).await?;
                if let Some(taking_up) = taking_up.filter(|_| heard == Heard::Now) {
                    attach(taking_up, &running);
                }
                Ok(heard)
            };
            daemon.alone(&id, retry).await
        });
        to_its_end(done).await
    }

    /// Finds out whether storage takes writes.
    pub(crate) fn try_to_write(&self) -> Result<(), JournalError> {
        self.reader.journal.try_to_write()
    }

    /// Notes it where storage has failed.
    fn noting<T>(&self, done: Result<T, RuntimeError>) -> Result<T, RuntimeError> {
        if let Err(RuntimeError::Journal(why)) = &done {
            self.disk.failed(why);
        }
        done
    }

    /// Takes up a board that does not run, and tells those who wait for it.
    async fn take_up(&self, board: &BoardId) -> Answered<BoardHandle> {
        let taking_up = self.workspaces().taking_up();
        // One inside another may just be taken up by the call that wants it.
        let board = self.noting(self.runtime.attach(board).await)?;
        attach(taking_up, &board);
        if let Some(taken_up) = &*self.taken_up() {
            taken_up.send_modify(|count| *count += 1);
        }
        Ok(board)
    }

    /// Does something with a board that does not run meanwhile, to its end, whoever stops waiting for it. `may` says whether
    /// it is closed for that at all. If the board can go on afterwards, it does.
    async fn at_rest<T: Send + 'static, F: Future<Output = Answered<T>> + Send>(
        self: &Arc<Self>,
        board: &BoardId,
        may: impl FnOnce(&Self) -> Answered<()> + Send + 'static,
        work: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) -> Answered<T> {
        let (daemon, board) = (Arc::clone(self), board.clone());
        let done = tokio::spawn(async move {
            let work = async {
                may(&daemon)?;
                daemon.runtime.close(&board).await;
                let done = work(Arc::clone(&daemon)).await;
                // Somebody may have woken it in the last moment, or what was done has.
                if daemon.reader.journal.summary(&board)?.is_some_and(|board| board.ended.is_none()) {
                    daemon.take_up(&board).await?;
                }
                done
            };
            daemon.alone(&board, work).await
        });
        to_its_end(done).await
    }

    /// Whether a board has ended for good.
    pub(crate) fn is_over(&self, board: &BoardId) -> Answered<bool> {
        let summary = self.summary(board)?;
        match summary.ended {
            None | Some(End::Quiescent) => Ok(false),
            Some(End::Done | End::Failed | End::Cancelled) => Ok(true),
            // It depends on what stopped it. Only owners can have come after that.
            Some(End::Stopped) => {
                let after = summary.head.seq.0.checked_sub(LAST_RECORDS).map(Seq);
                let last = self.reader.journal.records(board, after, LAST_RECORDS as usize)?;
                let bodies = last.iter().rev().filter_map(|record| record.body().ok());
                let ended = bodies.filter_map(|body| if let Body::Ended(ended) = body { Some(ended) } else { None });
                Ok(ended.take(1).any(Ended::is_final))
            }
        }
    }

    /// Does something with a board that nobody else does at the same time.
    async fn alone<T>(&self, board: &BoardId, work: impl Future<Output = T>) -> T {
        let gate = Arc::clone(&self.opening.entry(board.clone()).or_default());
        let done = {
            let _only_one = gate.lock().await;
            work.await
        };
        drop(gate);
        self.opening.remove_if(board, |_, gate| Arc::strong_count(gate) == 1);
        done
    }

    /// Where archives go.
    fn archives(&self) -> PathBuf {
        self.data_dir.join(archive::DIRECTORY)
    }

    /// Erases values of a board. One that runs stands still for it, and goes on afterwards.
    pub(crate) async fn redact(
        self: &Arc<Self>,
        board: &BoardId,
        request: Request,
        replacement: Option<Value>,
        rows: Option<redact::Rows>,
        principal: Principal,
    ) -> Answered<redact::Redaction> {
        let (id, asked) = (board.clone(), board.clone());
        let may = move |daemon: &Self| daemon.summary(&asked).map(drop);
        let work = async move |daemon: Arc<Self>| {
            let journal = daemon.reader.journal.clone();
            let _claim = journal.claim(&id, false)?;
            let now = daemon.clock.now();
            let principal = Some(principal);
            let (beside, shared) = (redact::beside(&daemon.data_dir, rows), Arc::new(journal.clone()));
            let redacted = redaction::redact(shared, id.clone(), request, replacement, principal, now, beside).await;
            let redacted = redacted.map_err(redact::failure)?;
            let directory = daemon.archives();
            let renewed = daemon
                .ask(move |_| archive::renew(&journal, &directory, &id).map_err(|error| redact::archived(&error)));
            renewed.await?;
            Ok(redacted)
        };
        self.at_rest(board, may, work).await
    }

    /// Returns the boards of the journal, and those of the archives.
    pub(crate) async fn boards_and_archived(self: &Arc<Self>) -> Answered<Vec<BoardSummary>> {
        let data_dir = self.data_dir.clone();
        self.ask(move |reader| redact::boards_and_archived(&reader.journal, &data_dir)).await
    }

    /// Takes a board that has ended out of the journal into a file.
    pub(crate) async fn archive(self: &Arc<Self>, board: &BoardId, by: Option<Principal>) -> Answered<PathBuf> {
        let (id, now, directory) = (board.clone(), self.clock.now(), self.archives());
        let take = move |journal: &SqliteJournal| archive::archive(journal, &directory, &id, now);
        self.taken_out(board, (Action::BoardArchived, by), take).await
    }

    /// Takes a board that has ended out of the journal for good; its bytes go when the file is written anew.
    pub(crate) async fn delete(self: &Arc<Self>, board: &BoardId, by: Option<Principal>) -> Answered<Tombstone> {
        let (id, now, directory) = (board.clone(), self.clock.now(), self.archives());
        let take = move |journal: &SqliteJournal| archive::delete(journal, &directory, &id, now);
        self.taken_out(board, (Action::BoardDeleted, by), take).await
    }

    async fn taken_out<T: Send + 'static>(
        self: &Arc<Self>,
        board: &BoardId,
        (action, by): (Action, Option<Principal>),
        take: impl FnOnce(&SqliteJournal) -> Result<T, ArchiveError> + Send + 'static,
    ) -> Answered<T> {
        let (id, asked) = (board.clone(), board.clone());
        // One that goes on is not even closed.
        let may = move |daemon: &Self| match daemon.summary(&asked)?.ended {
            Some(_) => Ok(()),
            None => Err(storage_command::failure(ArchiveError::NotEnded(asked)).into()),
        };
        let work = async move |daemon: Arc<Self>| {
            let _claim = daemon.reader.journal.claim(&id, false)?;
            let (tokens, now) = (daemon.tokens.clone(), daemon.clock.now());
            let recorded = move |reader: &Reader| {
                let intended = Intended { action, subject: Some(id.as_str()), by: by.as_ref() };
                tokens.act(&intended, now, || take(&reader.journal).map_err(storage_command::failure))
            };
            daemon.ask(recorded).await
        };
        self.at_rest(board, may, work).await
    }

    /// Brings a board back from its archive.
    pub(crate) async fn restore(&self, board: &BoardId, by: &Principal) -> Answered<()> {
        let restored = async {
            let known = self.reader.journal.tombstones()?.into_iter().find(|tombstone| tombstone.board == *board);
            let path = known.and_then(|tombstone| tombstone.archive).ok_or_else(|| no_such_board(board))?;
            let journal = Arc::new(self.reader.journal.clone());
            let intended = Intended { action: Action::BoardRestored, subject: Some(board.as_str()), by: Some(by) };
            let begun = self.tokens.begin(&intended, self.clock.now())?;
            archive::restore(journal, path.into()).await.map_err(storage_command::failure)?;
            self.tokens.finish(begun);
            Ok(())
        };
        self.alone(board, restored).await
    }

    /// Writes the journal's file anew in the name of a caller.
    pub(crate) async fn vacuum_by(self: &Arc<Self>, by: &Principal) -> Answered<Vacuumed> {
        let intended = Intended { action: Action::JournalVacuumed, subject: None, by: Some(by) };
        let begun = self.tokens.begin(&intended, self.clock.now())?;
        let vacuumed = self.vacuum().await?;
        self.tokens.finish(begun);
        Ok(vacuumed)
    }

    /// Writes the journal's file anew. Boards wait meanwhile, readers do not.
    pub(crate) async fn vacuum(self: &Arc<Self>) -> Answered<Vacuumed> {
        self.ask(|reader| reader.journal.vacuum().map_err(storage)).await
    }

    /// Lets go of boards that have ended, or stand still, and of which nobody has wanted anything for so long: whoever does
    /// has them taken up again.
    pub(crate) async fn lets_rest(self: &Arc<Self>, after: watch::Receiver<Duration>) {
        let mut quiet = Quiet::default();
        loop {
            let after = *after.borrow();
            tokio::time::sleep((after / 4).clamp(REST_LOOK_MIN, REST_LOOK_MAX)).await;
            let boards: Vec<BoardHandle> = self.running_boards().collect();
            let ended = boards.iter().filter_map(|board| Some((board.id(), ended_with(board)?)));
            let resting = quiet.look(ended, after, self.clock.steady_ms());
            for board in boards.into_iter().filter(|board| resting.contains_key(board.id())) {
                let (asked, last) = (board.clone(), resting[board.id()]);
                let may = move |_: &Self| match ended_with(&asked) == Some(last) {
                    true => Ok(()),
                    false => Err(no_such_board(asked.id())),
                };
                match self.at_rest(board.id(), may, async |_| Ok(())).await {
                    Err(problem) if problem.status.is_server_error() => {
                        tracing::warn!(board = %board.id(), code = problem.code, "the board was not let go");
                    }
                    _ => {}
                }
            }
        }
    }

    /// The models that were used lately: whether they are available, and how many calls wait for them.
    pub(crate) fn models(&self) -> Vec<ModelState> {
        self.seats.now().gate().state()
    }

    /// The requests of a board that wait for models that are away, and were never sent.
    pub(crate) fn held(&self, board: &BoardId) -> Option<Held> {
        self.seats.now().gate().held(board)
    }

    /// Lets models that are away be tried at once.
    pub(crate) fn try_models_again(&self) {
        self.seats.now().try_again();
    }

    /// Boards with such requests.
    pub(crate) fn boards_held(&self) -> BTreeSet<BoardId> {
        self.seats.now().gate().boards_held()
    }

    /// Warns when a model begins to be away, and informs when it is back. Never ends.
    pub(crate) async fn tell_outages(&self) {
        let mut transitions = self.seats.now().gate().subscribe();
        loop {
            match transitions.recv().await {
                Ok(transition) => {
                    let told = outages::sentence(&transition);
                    match transition.change {
                        Change::Away { .. } => tracing::warn!(url = transition.key.url(), "{told}"),
                        Change::Back { .. } => tracing::info!(url = transition.key.url(), "{told}"),
                    }
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    }

    /// Logs boards that the list calls ended and their records do not, once: nothing takes them up.
    pub(crate) async fn logs_damaged_boards(self: &Arc<Self>) {
        let looked = self.ask(|reader| {
            for board in reader.journal.boards().map_err(storage)?.iter().filter(|board| board.ended.is_some()) {
                if let Err(error) = audit::check_listed(&reader.journal, &board.id) {
                    tracing::error!(board = %board.id, %error, "the board is damaged");
                }
            }
            Ok(())
        });
        if let Err(problem) = looked.await {
            tracing::error!(code = problem.code, "the boards cannot be listed");
        }
    }

    /// Ends leases with the tokens that hold them, for ever.
    pub(crate) async fn ends_leases(&self) {
        let mut changes = self.tokens.changes();
        loop {
            let now = self.clock.now();
            for token in self.leases.tokens() {
                // Tokens that cannot be read are looked at again.
                if !self.tokens.opens(token, now).unwrap_or(true) {
                    self.leases.end_with_token(token);
                }
            }
            drop(tokio::time::timeout(EXPIRY_LOOK, changes.changed()).await);
        }
    }

    /// Whether all boards are taken up, and the journal can be read.
    pub(crate) fn ready(&self) -> Answered<()> {
        if !self.is_ready.load(Ordering::Acquire) {
            let detail = "boards are still being taken up";
            return Err(Problem::of(Code::NotReady, detail));
        }
        if let Some(why) = self.disk.trouble() {
            return Err(Problem::of(Code::NotReady, format!("boards cannot be written: {why}")));
        }
        self.reader.journal.summary(&BoardId::from("")).map(drop).map_err(Problem::from)
    }

    /// Makes a board, and says whether it is new: with a key that has made one it is that board if that was made
    /// of the same, and `token_conflict` otherwise.
    pub(crate) async fn create(
        self: &Arc<Self>,
        blueprint: Blueprint,
        request: Value,
        made: Option<Made>,
        principal: Principal,
    ) -> Answered<(BoardId, bool)> {
        let problems = self.seats.now().check(&blueprint);
        if !problems.is_empty() {
            let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not_configured", all.join("; "))
                .help("the operator names models and programs in patchboard.toml")
                .detail("problems", json!(all)));
        }
        let Some(made) = made else {
            let taking_up = self.workspaces().taking_up();
            let founding = Founding { principal: Some(principal), ..Founding::default() };
            let board = self.noting(self.runtime.create_with(blueprint, request, founding).await)?;
            attach(taking_up, &board);
            return Ok((board.id().clone(), true));
        };
        let is_of_before = self.reader.journal.summary(&made.before)?.is_some() || self.is_gone(&made.before)?;
        let id = if is_of_before { made.before } else { made.id };
        let making = async {
            if self.reader.journal.summary(&id)?.is_some() {
                return self.same(&id, &blueprint, &request).await.map(|()| false);
            }
            // The board that the key made is in an archive, or deleted: it is not made twice.
            if self.is_gone(&id)? {
                return Err(RuntimeError::TokenConflict(id.clone()).into());
            }
            let founding = Founding { id: Some(id.clone()), principal: Some(principal), ..Founding::default() };
            let taking_up = self.workspaces().taking_up();
            let board = self.noting(self.runtime.create_with(blueprint, request, founding).await)?;
            attach(taking_up, &board);
            Ok(true)
        };
        let is_new = self.alone(&id, making).await?;
        Ok((id, is_new))
    }

    /// Returns true if a board was taken out of the journal.
    fn is_gone(&self, board: &BoardId) -> Answered<bool> {
        Ok(self.reader.journal.tombstones()?.iter().any(|tombstone| tombstone.board == *board))
    }

    /// Every record of a board after one, in order; of a board that is not taken up, those there are.
    pub(crate) fn watch(&self, board: &BoardId, after: Option<Seq>) -> Subscription {
        self.runtime.watch(board, after)
    }

    /// Changes whenever a board is taken up; closed once the daemon stops.
    pub(crate) fn takings_up(&self) -> Option<watch::Receiver<u64>> {
        self.taken_up().as_ref().map(watch::Sender::subscribe)
    }

    /// Comes to an end once the daemon stops.
    pub(crate) async fn stopping(&self) {
        let Some(mut takings_up) = self.takings_up() else { return };
        while takings_up.changed().await.is_ok() {}
    }

    fn taken_up(&self) -> MutexGuard<'_, Option<watch::Sender<u64>>> {
        // Nothing is done while it is held that could leave it half done.
        self.taken_up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the last record of a board that has ended, or stands still.
fn ended_with(board: &BoardHandle) -> Option<Seq> {
    let snapshot = board.snapshot();
    snapshot.ended.map(|_| snapshot.head.seq)
}

/// Boards that have ended, with their last records and when these were seen first, in steady milliseconds: a clock that is set
/// neither lets them rest early nor keeps them.
#[derive(Default)]
struct Quiet(BTreeMap<BoardId, (Seq, u64)>);

impl Quiet {
    /// Looks at the boards that have ended, and returns those whose last record was seen so long ago.
    fn look<'a>(
        &mut self,
        ended: impl Iterator<Item = (&'a BoardId, Seq)>,
        after: Duration,
        now: u64,
    ) -> BTreeMap<BoardId, Seq> {
        let mut before = std::mem::take(&mut self.0);
        for (board, last) in ended {
            let seen = before.remove(board).filter(|(seq, _)| *seq == last);
            self.0.insert(board.clone(), seen.unwrap_or((last, now)));
        }
        let is_due = |since: u64| u128::from(now.saturating_sub(since)) >= after.as_millis();
        let due = self.0.iter().filter(|(_, (_, since))| is_due(*since));
        due.map(|(board, (last, _))| (board.clone(), *last)).collect()
    }
}

/// Cancels a board inside one that has ended. If that may be retried, one that an operator has retried goes on.
async fn end_left(board: &BoardHandle, may_be_retried: bool) -> Answered<()> {
    let is_retried = |is: &mut bool, record: &Record| *is |= record.kind == Kind::Retried;
    if !may_be_retried || !board.read(None, false, is_retried).await? {
        board.cancel().await?;
    }
    Ok(())
}

/// Waits for work that goes on whoever stops waiting for it.
async fn to_its_end<T>(done: JoinHandle<Answered<T>>) -> Answered<T> {
    done.await.unwrap_or_else(|error| {
        Err(Failure::failed("internal", format!("it was not brought to its end: {error}")).into())
    })
}

/// Opens the directory of a board that has one; its workers wait for it.
fn attach(taking_up: TakingUp, board: &BoardHandle) {
    let (attached, board) = (taking_up.attach(board), board.id().clone());
    tokio::spawn(async move {
        if let Err(error) = attached.await {
            tracing::error!(%board, %error, "the board's directory cannot be used");
        }
    });
}

/// Nothing is said of boards that the caller may not know of.
pub(crate) fn no_such_board(board: &BoardId) -> Problem {
    Problem::of(Code::NoSuchBoard, format!("there is no board {board}")).help("GET /v1/boards lists those you may see")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_rests_when_steady_time_has_passed_since_its_last_record() {
        let mut quiet = Quiet::default();
        let (board, after) = (BoardId::from("b"), Duration::from_secs(60));
        let mut look = |last: Option<u64>, now| {
            let ended = last.map(|last| (&board, Seq(last)));
            quiet.look(ended.into_iter(), after, now).len()
        };
        assert_eq!((look(Some(7), 1_000_000), look(Some(7), 1_059_999), look(Some(7), 1_060_000)), (0, 0, 1));
        // A new record, and going on, begin the time again.
        assert_eq!((look(Some(9), 1_070_000), look(Some(9), 1_129_999), look(Some(9), 1_130_000)), (0, 0, 1));
        assert_eq!((look(None, 1_140_000), look(Some(9), 1_150_000), look(Some(9), 1_210_000)), (0, 0, 1));
    }
}
