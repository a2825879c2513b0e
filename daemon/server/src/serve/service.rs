//! Daemon core, independent of the transport: running boards, boards at rest, and operations on both.

mod queries;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use dashmap::DashMap;
use patchboard_agents::lease::Leases;
use patchboard_agents::nested_boards::NestedBoards;
use patchboard_agents::registry::{AgentRegistry, ReloadableRegistry};
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::{Body, End, Ended, Kind, Principal, Record, Retried};
use patchboard_kernel::redaction::Request;
use patchboard_llm::gate::{Availability, BoardOutage, ModelState};
use patchboard_roles::departments::storage::Storage;
use patchboard_runtime::agent::Agent as _;
use patchboard_runtime::archive::{self, ArchiveError};
use patchboard_runtime::audit;
use patchboard_runtime::clock::{Clock, SystemClock};
use patchboard_runtime::redaction::redact;
use patchboard_runtime::runtime::{BoardHandle, CreateOptions, Options, RequestEffect, Runtime, RuntimeError};
use patchboard_runtime::subscription::Subscription;
use patchboard_storage::archives::Archives;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::{BoardSummary, Journal, JournalError, Tombstone, VacuumStats};
use patchboard_workspace::boards::{ActivationGuard, Workspaces};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::access::Scope;
use super::http::Caller;
use super::idempotency_keys::KeyBoardIds;
use super::instance_lock::lock_instance;
use super::limits::{LimitSettings, Limits};
use super::metrics::{Counting, Metrics};
use super::problem::{ApiResult, Code, Problem};
use super::storage_recovery::StorageHealth;
use super::tokens::{Action, AuditedAction, Holder, TokenStore};
use crate::failure::Failure;
use crate::notify::feed::{ChangeFeed, WithFeeds};
use crate::outages;
use crate::queries::redaction::{self, Redaction, Rows, search_departments};
use crate::queries::storage::{self as stored, boards_and_archived};
use crate::reader::{Reader, storage};

/// Maximum time that model calls wait for the recovery of all boards. The journals record which models are unavailable.
const RECOVERY_GATE_TIMEOUT: Duration = Duration::from_secs(30);

/// Boards recovered concurrently.
const RECOVERED_AT_ONCE: usize = 8;

/// Records searched for the end of a board; few ownership records can follow it.
const LAST_RECORDS: u64 = 256;

/// Bounds of the interval at which idle boards are evicted.
const REST_LOOK_MIN: Duration = Duration::from_millis(100);
const REST_LOOK_MAX: Duration = Duration::from_secs(15);

/// Maximum interval at which tokens of open streams and leases are checked for expiry.
const EXPIRY_LOOK: Duration = Duration::from_secs(30);

/// Concurrent journal reads; further ones queue.
const READS_AT_ONCE: usize = 8;

/// The daemon.
pub(crate) struct Daemon {
    runtime: Runtime,
    reader: Reader,
    data_dir: PathBuf,
    /// Agents of the boards' workers.
    pub(crate) registry: Arc<ReloadableRegistry>,
    workspaces: Arc<Workspaces>,
    /// Calls of remote workers.
    pub(crate) leases: Leases,
    /// API tokens.
    pub(crate) tokens: TokenStore,
    /// True if callers without a token are administrators.
    pub(crate) is_open: bool,
    /// Hash of an administrator's token that exists only in this process.
    own: Option<Digest>,
    /// Limits per caller.
    pub(crate) limits: Limits,
    is_ready: AtomicBool,
    /// Instance lock: excludes other daemons, and commands that rewrite the journal.
    _lock: File,
    /// Metrics.
    pub(crate) metrics: Arc<Metrics>,
    /// Boards with new records, one feed per receiver of notices.
    pub(crate) feeds: Vec<Arc<ChangeFeed>>,
    /// State of the storage.
    pub(crate) disk: Arc<StorageHealth>,
    pub(crate) clock: Arc<dyn Clock>,
    reads: Arc<Semaphore>,
    /// Locks of boards that are being opened or created, so that none is opened twice.
    opening: DashMap<BoardId, Arc<Mutex<()>>>,
    /// Number of boards opened so far; `None` once the daemon stops.
    activation_count: std::sync::Mutex<Option<watch::Sender<u64>>>,
}

/// Result of the recovery at start-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Recovered {
    /// Resumed boards.
    pub(crate) boards: usize,
    /// Boards that failed to resume.
    pub(crate) failed: usize,
}

impl Daemon {
    /// Creates the daemon on a data directory; no board runs yet.
    pub(crate) async fn start(
        data_dir: &Path,
        registry: AgentRegistry,
        is_open: bool,
        limits: LimitSettings,
        feeds: Vec<Arc<ChangeFeed>>,
    ) -> Result<Self, Failure> {
        let leases = Leases::default();
        let registry = registry.with_leases(leases.clone()).with_storage(Storage::in_dir(data_dir));
        let workspaces = Arc::clone(registry.workspaces());
        let registry = Arc::new(ReloadableRegistry::new(registry));
        let journal = patchboard_storage::open(data_dir).map_err(storage)?;
        let lock = lock_instance(data_dir)?;
        let metrics = Arc::new(Metrics::new());
        let mut options = Options::new(Arc::new(NestedBoards::new(registry.clone())));
        let observer = Counting::new(Arc::clone(&metrics));
        let disk = Arc::new(StorageHealth::default());
        options.observer = Arc::new(WithFeeds { observer, feeds: feeds.clone(), disk: Arc::clone(&disk) });
        let runtime = Runtime::start(Arc::clone(&journal), options).await?;
        Ok(Self {
            runtime,
            reader: Reader { journal },
            data_dir: data_dir.to_owned(),
            registry,
            workspaces,
            leases,
            tokens: TokenStore::open(data_dir)?,
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
            activation_count: std::sync::Mutex::new(Some(watch::Sender::new(0))),
        })
    }

    /// Accepts an administrator's token that is stored in no file of the daemon.
    pub(crate) fn with_own_token(self, token: &str) -> Self {
        Self { own: Some(sha256(token.as_bytes())), ..self }
    }

    /// Returns the scope of a token, and its holder if the token is stored; `None` if it is invalid.
    pub(crate) async fn holder(&self, token: &str) -> Result<Option<(Scope, Option<Holder>)>, Failure> {
        if self.own == Some(sha256(token.as_bytes())) {
            return Ok(Some((Scope::Admin, None)));
        }
        let holder = self.tokens.holder(token, self.clock.now()).await?;
        Ok(holder.map(|holder| (holder.scope.clone(), Some(holder))))
    }

    /// Waits until a token is invalid. `changes` must have been subscribed before the token was looked up.
    pub(crate) async fn ended(&self, holder: &Holder, mut changes: watch::Receiver<u64>) {
        loop {
            let left = holder
                .expires_at
                .map(|at| Duration::from_millis(at.0.saturating_sub(self.clock.now().0).max(0).unsigned_abs()));
            let over = async {
                match left {
                    // Bounded, because timers ignore changes of the clock and sleep of the machine.
                    Some(left) => tokio::time::sleep(left.min(EXPIRY_LOOK)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Ok(()) = changes.changed() => {}
                () = over => {}
            }
            // On a read error the request continues; new requests fail at their own check.
            if !self.tokens.is_valid(holder.id, self.clock.now()).await.unwrap_or(true) {
                return;
            }
        }
    }

    /// Resumes every board that has not ended. A nested board is resumed by the call of its parent. If its parent has
    /// ended, it is cancelled, unless the parent can be retried and an operator has retried the nested board.
    pub(crate) async fn recover(self: &Arc<Self>) -> Result<Recovered, Failure> {
        let boards = self.reader.journal.boards().await.map_err(storage)?;
        let open: BTreeSet<BoardId> =
            boards.iter().filter(|board| board.ended.is_none()).map(|board| board.id.clone()).collect();
        let is_orphan = |board: &BoardSummary| board.parent.as_ref().is_some_and(|parent| !open.contains(parent));
        let is_final = |board: &BoardSummary| matches!(board.ended, Some(End::Done | End::Cancelled));
        let over: BTreeSet<BoardId> =
            boards.iter().filter(|board| is_final(board)).map(|board| board.id.clone()).collect();
        let mut left = boards
            .iter()
            .filter(|board| board.ended.is_none() && (board.parent.is_none() || is_orphan(board)))
            .map(|board| {
                let may_be_retried = board.parent.as_ref().is_some_and(|parent| !over.contains(parent));
                (board.id.clone(), is_orphan(board).then_some(may_be_retried))
            });
        let (mut going, mut recovered) = (JoinSet::new(), Recovered::default());
        self.registry.current().gate().shut(RECOVERY_GATE_TIMEOUT);
        loop {
            while going.len() < RECOVERED_AT_ONCE
                && let Some((board, orphan)) = left.next()
            {
                let daemon = Arc::clone(self);
                going.spawn(async move {
                    let opened = daemon.open(&board).await;
                    let done = match opened {
                        Ok(opened) => match orphan {
                            Some(may_be_retried) => cancel_orphan(&opened, may_be_retried).await,
                            None => Ok(()),
                        },
                        Err(problem) => Err(problem),
                    };
                    (board, done)
                });
            }
            match going.join_next().await {
                None => {
                    self.registry.current().gate().open();
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

    /// Ends the streams of readers that follow boards, which have no end of their own.
    pub(crate) fn begin_shutdown(&self) {
        drop(self.activation_count().take());
    }

    /// Closes all boards. Decided steps are durable; calls under way are cancelled, and repeated after the next start.
    pub(crate) async fn stop(&self) {
        self.runtime.shutdown().await;
    }

    /// Lists all boards, the oldest first.
    pub(crate) async fn boards(&self) -> ApiResult<Vec<BoardSummary>> {
        Ok(self.reader.journal.boards().await?)
    }

    /// Returns the list entry of a board. Checks it against the last records of a board that does not run here.
    pub(crate) async fn summary(&self, board: &BoardId) -> ApiResult<BoardSummary> {
        let summary = self.reader.journal.summary(board).await?.ok_or_else(|| no_such_board(board))?;
        self.check_listed(board).await?;
        Ok(summary)
    }

    /// Checks the list entry of a board that does not run here against its records.
    async fn check_listed(&self, board: &BoardId) -> Result<(), JournalError> {
        if self.running(board).is_some() {
            return Ok(());
        }
        let (journal, board) = (Arc::clone(&self.reader.journal), board.clone());
        let checked = tokio::task::spawn_blocking(move || audit::check_listed(&*journal, &board)).await;
        checked.unwrap_or_else(|error| Err(JournalError::Io(error.to_string())))
    }

    /// Returns true if the list entry of a board contradicts its records.
    pub(crate) async fn is_damaged(&self, board: &BoardId) -> bool {
        self.check_listed(board).await.is_err()
    }

    /// Returns a board that is running.
    pub(crate) fn running(&self, board: &BoardId) -> Option<BoardHandle> {
        self.runtime.board(board)
    }

    /// Returns the running boards.
    pub(crate) fn running_boards(&self) -> impl Iterator<Item = BoardHandle> {
        self.runtime.boards().into_iter().filter_map(|board| self.runtime.board(&board))
    }

    /// Sets the view budgets of a blueprint from the context sizes of this daemon's models, as for a board of it.
    pub(crate) fn fit_views(&self, blueprint: &mut Blueprint) {
        let registry = self.registry.current();
        blueprint.fit_views(&|model| registry.context_window(model));
    }

    /// Returns the directories that boards share with their workers.
    pub(crate) const fn workspaces(&self) -> &Arc<Workspaces> {
        &self.workspaces
    }

    /// Returns the number of steps queued for the journal writer.
    pub(crate) fn journal_queue(&self) -> usize {
        self.runtime.journal_queue()
    }

    /// Closes a board until it is next requested, and releases its directory.
    pub(crate) async fn evict(&self, board: &BoardId) {
        self.with_board_lock(board, self.runtime.close(board)).await;
    }

    /// Returns a board to act on, and opens it if it does not run. Boards that have ended for good are opened too,
    /// because only the board knows the requests that it has accepted before.
    pub(crate) async fn open(&self, board: &BoardId) -> ApiResult<BoardHandle> {
        if let Some(running) = self.runtime.board(board) {
            return Ok(running);
        }
        let opened = async {
            if let Some(running) = self.runtime.board(board) {
                return Ok(running);
            }
            self.summary(board).await?;
            self.activate(board).await
        };
        self.with_board_lock(board, opened).await
    }

    /// Like [`Daemon::open`], for actions of a caller: their records name the caller.
    pub(crate) async fn open_for(self: &Arc<Self>, board: &BoardId, caller: &Caller) -> ApiResult<BoardHandle> {
        Ok(self.open(board).await?.with_principal(caller.principal()))
    }

    /// Retries the work that a board gave up. The directory of a board that was over is opened again.
    pub(crate) async fn retry(
        self: &Arc<Self>,
        board: &BoardId,
        caller: &Caller,
        retried: Retried,
    ) -> ApiResult<RequestEffect> {
        let running = self.open_for(board, caller).await?;
        let (daemon, id) = (Arc::clone(self), board.clone());
        // A separate task completes the retry if the caller leaves; retries of one board are serialised.
        let done = tokio::spawn(async move {
            let retry = async {
                let is_over = running.status().ended.is_some_and(Ended::is_final);
                // From the retry on, workers wait for the directory.
                let activation = is_over.then(|| daemon.workspaces().begin_activation());
                let effect = running.retry(retried).await?;
                if let Some(activation) = activation.filter(|_| effect == RequestEffect::Applied) {
                    attach(activation, &running);
                }
                Ok(effect)
            };
            daemon.with_board_lock(&id, retry).await
        });
        join_task(done).await
    }

    /// Tests whether the storage accepts writes.
    pub(crate) async fn try_to_write(&self) -> Result<(), JournalError> {
        self.reader.journal.check_writable().await
    }

    /// Records a failure of the storage, if the result is one.
    fn track_storage<T>(&self, done: Result<T, RuntimeError>) -> Result<T, RuntimeError> {
        if let Err(RuntimeError::Journal(why)) = &done {
            self.disk.failed(why);
        }
        done
    }

    /// Opens a board that does not run, and notifies its followers.
    async fn activate(&self, board: &BoardId) -> ApiResult<BoardHandle> {
        let activation = self.workspaces().begin_activation();
        // Gets or resumes: the parent's call may open a nested board at the same time.
        let board = self.track_storage(self.runtime.get_or_resume(board).await)?;
        attach(activation, &board);
        if let Some(counter) = &*self.activation_count() {
            counter.send_modify(|count| *count += 1);
        }
        Ok(board)
    }

    /// Closes a board and runs `work` on it to completion, even if the caller leaves. `may` decides whether to close it
    /// at all. Reopens the board afterwards, unless it has ended.
    async fn while_closed<T: Send + 'static, M, F>(
        self: &Arc<Self>,
        board: &BoardId,
        may: impl FnOnce(Arc<Self>) -> M + Send + 'static,
        work: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) -> ApiResult<T>
    where
        M: Future<Output = ApiResult<()>> + Send,
        F: Future<Output = ApiResult<T>> + Send,
    {
        let (daemon, board) = (Arc::clone(self), board.clone());
        let done = tokio::spawn(async move {
            let work = async {
                may(Arc::clone(&daemon)).await?;
                daemon.runtime.close(&board).await;
                let done = work(Arc::clone(&daemon)).await;
                // The board may have been resumed just before the close, or by `work`.
                if daemon.reader.journal.summary(&board).await?.is_some_and(|board| board.ended.is_none()) {
                    daemon.activate(&board).await?;
                }
                done
            };
            daemon.with_board_lock(&board, work).await
        });
        join_task(done).await
    }

    /// Returns true if a board has ended for good.
    pub(crate) async fn is_over(&self, board: &BoardId) -> ApiResult<bool> {
        let summary = self.summary(board).await?;
        match summary.ended {
            None | Some(End::Quiescent) => Ok(false),
            Some(End::Done | End::Failed | End::Cancelled) => Ok(true),
            // Depends on the cause of the stop. Only ownership records can follow the end.
            Some(End::Stopped) => {
                let after = summary.head.seq.0.checked_sub(LAST_RECORDS).map(Seq);
                let last = self.reader.journal.records(board, after, LAST_RECORDS as usize).await?;
                let bodies = last.iter().rev().filter_map(|record| record.body().ok());
                let ended = bodies.filter_map(|body| if let Body::Ended(ended) = body { Some(*ended) } else { None });
                Ok(ended.take(1).any(Ended::is_final))
            }
        }
    }

    /// Runs `work` while holding the board's lock.
    async fn with_board_lock<T>(&self, board: &BoardId, work: impl Future<Output = T>) -> T {
        let gate = Arc::clone(&self.opening.entry(board.clone()).or_default());
        let done = {
            let _only_one = gate.lock().await;
            work.await
        };
        drop(gate);
        self.opening.remove_if(board, |_, gate| Arc::strong_count(gate) == 1);
        done
    }

    /// Returns the archives.
    fn archives(&self) -> Arc<dyn Archives> {
        patchboard_storage::archives(&self.data_dir)
    }

    /// Redacts values of a board. A running board is closed meanwhile, and resumes afterwards.
    pub(crate) async fn redact(
        self: &Arc<Self>,
        board: &BoardId,
        request: Request,
        replacement: Option<Value>,
        rows: Option<Rows>,
        principal: Principal,
    ) -> ApiResult<Redaction> {
        let (id, asked) = (board.clone(), board.clone());
        let may = async move |daemon: Arc<Self>| daemon.summary(&asked).await.map(drop);
        let work = async move |daemon: Arc<Self>| {
            let journal = Arc::clone(&daemon.reader.journal);
            let _claim = journal.claim(&id, false).await?;
            let now = daemon.clock.now();
            let principal = Some(principal);
            let (beside, shared) = (search_departments(&daemon.data_dir, rows), Arc::clone(&journal));
            let redacted = redact(shared, id.clone(), request, replacement, principal, now, beside).await;
            let redacted = redacted.map_err(redaction::failure)?;
            let archives = daemon.archives();
            let renewed = daemon.query(move |_| {
                archive::rewrite(&*journal, &*archives, &id).map_err(|error| redaction::archived(&error))
            });
            renewed.await?;
            Ok(redacted)
        };
        self.while_closed(board, may, work).await
    }

    /// Lists the boards of the journal and of the archives.
    pub(crate) async fn boards_and_archived(self: &Arc<Self>) -> ApiResult<Vec<BoardSummary>> {
        let data_dir = self.data_dir.clone();
        self.query(move |reader| boards_and_archived(&*reader.journal, &data_dir)).await
    }

    /// Moves an ended board from the journal into an archive file.
    pub(crate) async fn archive(self: &Arc<Self>, board: &BoardId, by: Option<Principal>) -> ApiResult<String> {
        let (id, now, archives) = (board.clone(), self.clock.now(), self.archives());
        let take = move |journal: &dyn Journal| archive::archive(journal, &*archives, &id, now);
        self.remove_board(board, (Action::BoardArchived, by), take).await
    }

    /// Deletes an ended board from the journal permanently; its bytes are destroyed by the next vacuum.
    pub(crate) async fn delete(self: &Arc<Self>, board: &BoardId, by: Option<Principal>) -> ApiResult<Tombstone> {
        let (id, now, archives) = (board.clone(), self.clock.now(), self.archives());
        let take = move |journal: &dyn Journal| archive::delete(journal, &*archives, &id, now);
        self.remove_board(board, (Action::BoardDeleted, by), take).await
    }

    async fn remove_board<T: Send + 'static>(
        self: &Arc<Self>,
        board: &BoardId,
        (action, by): (Action, Option<Principal>),
        take: impl FnOnce(&dyn Journal) -> Result<T, ArchiveError> + Send + 'static,
    ) -> ApiResult<T> {
        let (id, asked) = (board.clone(), board.clone());
        // A board that has not ended is not closed.
        let may = async move |daemon: Arc<Self>| match daemon.summary(&asked).await?.ended {
            Some(_) => Ok(()),
            None => Err(stored::failure(ArchiveError::NotEnded(asked)).into()),
        };
        let work = async move |daemon: Arc<Self>| {
            let _claim = daemon.reader.journal.claim(&id, false).await?;
            let (tokens, now) = (daemon.tokens.clone(), daemon.clock.now());
            let recorded = move |reader: &Reader| {
                let intended = AuditedAction { action, subject: Some(id.as_str()), by: by.as_ref() };
                tokens.audited(&intended, now, || take(&*reader.journal).map_err(stored::failure))
            };
            daemon.query(recorded).await
        };
        self.while_closed(board, may, work).await
    }

    /// Restores a board from its archive.
    pub(crate) async fn restore(&self, board: &BoardId, by: &Principal) -> ApiResult<()> {
        let restored = async {
            let known = self.reader.journal.tombstones().await?.into_iter().find(|tombstone| tombstone.board == *board);
            known.and_then(|tombstone| tombstone.archive).ok_or_else(|| no_such_board(board))?;
            let journal = Arc::clone(&self.reader.journal);
            let intended = AuditedAction { action: Action::BoardRestored, subject: Some(board.as_str()), by: Some(by) };
            let entry = self.tokens.begin(&intended, self.clock.now()).await?;
            archive::restore(journal, self.archives(), board.clone()).await.map_err(stored::failure)?;
            self.tokens.finish(entry).await;
            Ok(())
        };
        self.with_board_lock(board, restored).await
    }

    /// Vacuums the journal on behalf of a caller.
    pub(crate) async fn vacuum_by(self: &Arc<Self>, by: &Principal) -> ApiResult<VacuumStats> {
        let intended = AuditedAction { action: Action::JournalVacuumed, subject: None, by: Some(by) };
        let entry = self.tokens.begin(&intended, self.clock.now()).await?;
        let vacuumed = self.vacuum().await?;
        self.tokens.finish(entry).await;
        Ok(vacuumed)
    }

    /// Vacuums the journal. Boards wait meanwhile, readers do not.
    pub(crate) async fn vacuum(self: &Arc<Self>) -> ApiResult<VacuumStats> {
        self.query(|reader| wait(reader.journal.vacuum()).map_err(storage)).await
    }

    /// Evicts boards that have ended or stalled, and were idle for the given time. They are reopened on demand.
    pub(crate) async fn evict_idle_boards(self: &Arc<Self>, after: watch::Receiver<Duration>) {
        let mut quiet = IdleBoards::default();
        loop {
            let after = *after.borrow();
            tokio::time::sleep((after / 4).clamp(REST_LOOK_MIN, REST_LOOK_MAX)).await;
            let boards: Vec<BoardHandle> = self.running_boards().collect();
            let ended = boards.iter().filter_map(|board| Some((board.id(), ended_with(board)?)));
            let resting = quiet.update(ended, after, self.clock.steady_ms());
            for board in boards.into_iter().filter(|board| resting.contains_key(board.id())) {
                let (asked, last) = (board.clone(), resting[board.id()]);
                let may = async move |_| match ended_with(&asked) == Some(last) {
                    true => Ok(()),
                    false => Err(no_such_board(asked.id())),
                };
                match self.while_closed(board.id(), may, async |_| Ok(())).await {
                    Err(problem) if problem.status.is_server_error() => {
                        tracing::warn!(board = %board.id(), code = problem.code, "the board was not let go");
                    }
                    _ => {}
                }
            }
        }
    }

    /// Returns the recently used models, with their availability and number of waiting calls.
    pub(crate) fn models(&self) -> Vec<ModelState> {
        self.registry.current().gate().state()
    }

    /// Returns the unsent requests of a board that wait for unavailable models.
    pub(crate) fn held(&self, board: &BoardId) -> Option<BoardOutage> {
        self.registry.current().gate().board_outage(board)
    }

    /// Makes unavailable models be tried again at once.
    pub(crate) fn try_models_again(&self) {
        self.registry.current().probe_unavailable();
    }

    /// Returns the boards with requests that wait for unavailable models.
    pub(crate) fn boards_held(&self) -> BTreeSet<BoardId> {
        self.registry.current().gate().boards_waiting()
    }

    /// Logs a warning when a model becomes unavailable, and a notice when it is back. Never returns.
    pub(crate) async fn log_outages(&self) {
        let mut transitions = self.registry.current().gate().subscribe();
        loop {
            match transitions.recv().await {
                Ok(transition) => {
                    let told = outages::sentence(&transition);
                    match transition.change {
                        Availability::Unavailable { .. } => tracing::warn!(url = transition.key.url(), "{told}"),
                        Availability::Recovered { .. } => tracing::info!(url = transition.key.url(), "{told}"),
                    }
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    }

    /// Logs, once, boards that are listed as ended against their records; no other code path opens them.
    pub(crate) async fn log_damaged_boards(self: &Arc<Self>) {
        let looked = self.query(|reader| {
            for board in wait(reader.journal.boards()).map_err(storage)?.iter().filter(|board| board.ended.is_some()) {
                if let Err(error) = audit::check_listed(&*reader.journal, &board.id) {
                    tracing::error!(board = %board.id, %error, "the board is damaged");
                }
            }
            Ok(())
        });
        if let Err(problem) = looked.await {
            tracing::error!(code = problem.code, "the boards cannot be listed");
        }
    }

    /// Ends leases when their tokens become invalid. Never returns.
    pub(crate) async fn expire_leases(&self) {
        let mut changes = self.tokens.changes();
        loop {
            let now = self.clock.now();
            for token in self.leases.holder_tokens() {
                // On a read error the token is checked again later.
                if !self.tokens.is_valid(token, now).await.unwrap_or(true) {
                    self.leases.expire_for_token(token);
                }
            }
            drop(tokio::time::timeout(EXPIRY_LOOK, changes.changed()).await);
        }
    }

    /// Checks that all boards are recovered and the journal is usable.
    pub(crate) async fn ready(&self) -> ApiResult<()> {
        if !self.is_ready.load(Ordering::Acquire) {
            let detail = "boards are still being taken up";
            return Err(Problem::from_code(Code::NotReady, detail));
        }
        if let Some(why) = self.disk.write_error() {
            return Err(Problem::from_code(Code::NotReady, format!("boards cannot be written: {why}")));
        }
        self.reader.journal.summary(&BoardId::from("")).await.map(drop).map_err(Problem::from)
    }

    /// Creates a board, and returns true if it is new. If the key has created a board from the same input, returns that
    /// board; `token_conflict` if the input differs.
    pub(crate) async fn create(
        self: &Arc<Self>,
        blueprint: Blueprint,
        request: Value,
        board_ids: Option<KeyBoardIds>,
        principal: Principal,
    ) -> ApiResult<(BoardId, bool)> {
        let problems = self.registry.current().check(&blueprint);
        if !problems.is_empty() {
            let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not_configured", all.join("; "))
                .help("the operator names models and programs in patchboard.toml")
                .detail("problems", json!(all)));
        }
        let Some(board_ids) = board_ids else {
            let activation = self.workspaces().begin_activation();
            let options = CreateOptions { principal: Some(principal), ..CreateOptions::default() };
            let board = self.track_storage(self.runtime.create_with(blueprint, request, options).await)?;
            attach(activation, &board);
            return Ok((board.id().clone(), true));
        };
        let is_legacy = self.reader.journal.summary(&board_ids.legacy_id).await?.is_some()
            || self.is_gone(&board_ids.legacy_id).await?;
        let id = if is_legacy { board_ids.legacy_id } else { board_ids.id };
        let making = async {
            if self.reader.journal.summary(&id).await?.is_some() {
                return self.check_same_input(&id, &blueprint, &request).await.map(|()| false);
            }
            // The key's board is archived or deleted: it is not created twice.
            if self.is_gone(&id).await? {
                return Err(RuntimeError::IdempotencyConflict(id.clone()).into());
            }
            let options =
                CreateOptions { id: Some(id.clone()), principal: Some(principal), ..CreateOptions::default() };
            let activation = self.workspaces().begin_activation();
            let board = self.track_storage(self.runtime.create_with(blueprint, request, options).await)?;
            attach(activation, &board);
            Ok(true)
        };
        let is_new = self.with_board_lock(&id, making).await?;
        Ok((id, is_new))
    }

    /// Returns true if a board was archived or deleted.
    async fn is_gone(&self, board: &BoardId) -> ApiResult<bool> {
        Ok(self.reader.journal.tombstones().await?.iter().any(|tombstone| tombstone.board == *board))
    }

    /// Subscribes to the records of a board after one, in order. For a board that is not open, yields the stored ones.
    pub(crate) fn watch(&self, board: &BoardId, after: Option<Seq>) -> Subscription {
        self.runtime.subscribe(board, after)
    }

    /// Subscribes to the number of boards opened so far; closed once the daemon stops.
    pub(crate) fn activations(&self) -> Option<watch::Receiver<u64>> {
        self.activation_count().as_ref().map(watch::Sender::subscribe)
    }

    /// Waits until the daemon stops.
    pub(crate) async fn stopping(&self) {
        let Some(mut activations) = self.activations() else { return };
        while activations.changed().await.is_ok() {}
    }

    fn activation_count(&self) -> MutexGuard<'_, Option<watch::Sender<u64>>> {
        // No update under this lock can panic half way.
        self.activation_count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the last record of a board that has ended or stalled.
fn ended_with(board: &BoardHandle) -> Option<Seq> {
    let status = board.status();
    status.ended.map(|_| status.head.seq)
}

/// Ended boards, with their last record and the time it was first seen. Times are steady milliseconds, so that changes
/// of the wall clock do not affect the eviction.
#[derive(Default)]
struct IdleBoards(BTreeMap<BoardId, (Seq, u64)>);

impl IdleBoards {
    /// Updates the ended boards, and returns those with a last record first seen at least `after` ago.
    fn update<'a>(
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

/// Cancels a nested board of an ended parent, unless the parent can be retried and an operator has retried the board.
async fn cancel_orphan(board: &BoardHandle, may_be_retried: bool) -> ApiResult<()> {
    let is_retried = |is: &mut bool, record: &Record| *is |= record.kind == Kind::Retried;
    if !may_be_retried || !board.read(None, false, is_retried).await? {
        board.cancel().await?;
    }
    Ok(())
}

/// Waits for a task that continues even if the caller leaves.
async fn join_task<T>(done: JoinHandle<ApiResult<T>>) -> ApiResult<T> {
    done.await.unwrap_or_else(|error| {
        Err(Failure::failed("internal", format!("it was not brought to its end: {error}")).into())
    })
}

/// Opens the directory of a board, if it has one; its workers wait for that.
fn attach(activation: ActivationGuard, board: &BoardHandle) {
    let (attached, board) = (activation.attach(board), board.id().clone());
    tokio::spawn(async move {
        if let Err(error) = attached.await {
            tracing::error!(%board, %error, "the board's directory cannot be used");
        }
    });
}

/// Returns the error for a missing board, and for one that the caller may not know of.
pub(crate) fn no_such_board(board: &BoardId) -> Problem {
    Problem::from_code(Code::NoSuchBoard, format!("there is no board {board}"))
        .help("GET /v1/boards lists those you may see")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_rests_when_steady_time_has_passed_since_its_last_record() {
        let mut quiet = IdleBoards::default();
        let (board, after) = (BoardId::from("b"), Duration::from_secs(60));
        let mut look = |last: Option<u64>, now| {
            let ended = last.map(|last| (&board, Seq(last)));
            quiet.update(ended.into_iter(), after, now).len()
        };
        assert_eq!((look(Some(7), 1_000_000), look(Some(7), 1_059_999), look(Some(7), 1_060_000)), (0, 0, 1));
        // A new record restarts the time, and so does a resumed board.
        assert_eq!((look(Some(9), 1_070_000), look(Some(9), 1_129_999), look(Some(9), 1_130_000)), (0, 0, 1));
        assert_eq!((look(None, 1_140_000), look(Some(9), 1_150_000), look(Some(9), 1_210_000)), (0, 0, 1));
    }
}
