//! Daemon core, independent of the transport: running boards, boards at rest, and operations on both.

mod callers;
mod eviction;
mod models;
mod queries;
mod recovery;
mod storage;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::StatusCode;
use dashmap::DashMap;
use patchboard_agents::lease::Leases;
use patchboard_agents::nested_boards::NestedBoards;
use patchboard_agents::registry::{AgentRegistry, ReloadableRegistry};
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::{Body, End, Ended, Principal, Retried};
use patchboard_roles::departments::storage::Storage;
use patchboard_runtime::audit;
use patchboard_runtime::clock::{Clock, SystemClock};
use patchboard_runtime::error::RuntimeError;
use patchboard_runtime::handle::{BoardHandle, RequestEffect};
use patchboard_runtime::options::{CreateOptions, Options};
use patchboard_runtime::runtime::Runtime;
use patchboard_runtime::subscription::Subscription;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::{BoardSummary, JournalError};
use patchboard_workspace::boards::{ActivationGuard, Workspaces};
use serde_json::{Value, json};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::JoinHandle;

use super::caller::Caller;
use super::idempotency_keys::KeyBoardIds;
use super::instance_lock::lock_instance;
use super::limits::{LimitSettings, Limits};
use super::metrics::{Counting, Metrics};
use super::problem::{ApiResult, Code, Problem, no_such_board};
use super::storage_health::StorageHealth;
use super::tokens::TokenStore;
use crate::failure::Failure;
use crate::notify::feed::{ChangeFeed, WithFeeds};
use crate::reader::{Reader, storage};

/// Records searched for the end of a board; few ownership records can follow it.
const LAST_RECORDS: u64 = 256;

/// Concurrent journal reads; further ones queue.
const READS_AT_ONCE: usize = 8;

pub(crate) struct Daemon {
    runtime: Runtime,
    reader: Reader,
    data_dir: PathBuf,
    pub(crate) registry: Arc<ReloadableRegistry>,
    pub(crate) workspaces: Arc<Workspaces>,
    pub(crate) leases: Leases,
    pub(crate) tokens: TokenStore,
    /// True if callers without a token are administrators.
    pub(crate) is_open: bool,
    /// Hash of an administrator's token that exists only in this process.
    own: Option<Digest>,
    pub(crate) limits: Limits,
    is_ready: AtomicBool,
    /// Instance lock: excludes other daemons, and commands that rewrite the journal.
    _lock: File,
    pub(crate) metrics: Arc<Metrics>,
    /// Boards with new records, one feed per receiver of notices.
    pub(crate) feeds: Vec<Arc<ChangeFeed>>,
    pub(crate) disk: Arc<StorageHealth>,
    pub(crate) clock: Arc<dyn Clock>,
    reads: Arc<Semaphore>,
    /// Locks of boards that are being opened or created, so that none is opened twice.
    opening: DashMap<BoardId, Arc<Mutex<()>>>,
    /// Number of boards opened so far; `None` once the daemon stops.
    activation_count: parking_lot::Mutex<Option<watch::Sender<u64>>>,
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
        let agent = Arc::new(NestedBoards::new(registry.clone()));
        let mut options = Options::new(agent.clone());
        let observer = Counting::new(Arc::clone(&metrics));
        let disk = Arc::new(StorageHealth::default());
        options.observer = Arc::new(WithFeeds { observer, feeds: feeds.clone(), disk: Arc::clone(&disk) });
        let runtime = agent.start(Arc::clone(&journal), options).await?;
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
            activation_count: parking_lot::Mutex::new(Some(watch::Sender::new(0))),
        })
    }

    /// Ends the streams of readers that follow boards, which have no end of their own.
    pub(crate) fn begin_shutdown(&self) {
        drop(self.activation_count.lock().take());
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
    async fn check_listed(&self, board: &BoardId) -> ApiResult<()> {
        if self.running(board).is_some() {
            return Ok(());
        }
        let (journal, board) = (Arc::clone(&self.reader.journal), board.clone());
        Ok(self.run_read(move || audit::check_listed(&*journal, &board)).await??)
    }

    pub(crate) async fn is_damaged(&self, board: &BoardId) -> bool {
        self.check_listed(board).await.is_err()
    }

    pub(crate) fn running(&self, board: &BoardId) -> Option<BoardHandle> {
        self.runtime.board(board)
    }

    pub(crate) fn running_boards(&self) -> impl Iterator<Item = BoardHandle> {
        self.runtime.boards().into_iter().filter_map(|board| self.runtime.board(&board))
    }

    pub(crate) fn journal_queue(&self) -> usize {
        self.runtime.journal_queue()
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
                let activation = is_over.then(|| daemon.workspaces.begin_activation());
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

    /// Starts a board and opens its directory. Records a failure of the storage, if that is why it does not start.
    async fn launch(&self, start: impl Future<Output = Result<BoardHandle, RuntimeError>>) -> ApiResult<BoardHandle> {
        let activation = self.workspaces.begin_activation();
        let started = start.await;
        if let Err(RuntimeError::Journal(why)) = &started {
            self.disk.failed(why);
        }
        let board = started?;
        attach(activation, &board);
        Ok(board)
    }

    /// Opens a board that does not run, and notifies its followers.
    async fn activate(&self, board: &BoardId) -> ApiResult<BoardHandle> {
        // Gets or resumes: the parent's call may open a nested board at the same time.
        let board = self.launch(self.runtime.get_or_resume(board)).await?;
        if let Some(counter) = &*self.activation_count.lock() {
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

    /// Checks that all boards are recovered and the journal is usable.
    pub(crate) async fn ready(&self) -> ApiResult<()> {
        if !self.is_ready.load(Ordering::Acquire) {
            let detail = "boards are still being recovered";
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
        let mut options = CreateOptions { principal: Some(principal), ..CreateOptions::default() };
        let Some(board_ids) = board_ids else {
            let board = self.launch(self.runtime.create_with(blueprint, request, options)).await?;
            return Ok((board.id().clone(), true));
        };
        let is_legacy = self.reader.journal.summary(&board_ids.legacy_id).await?.is_some()
            || self.is_gone(&board_ids.legacy_id).await?;
        let id = if is_legacy { board_ids.legacy_id } else { board_ids.id };
        options.id = Some(id.clone());
        let making = async {
            if self.reader.journal.summary(&id).await?.is_some() {
                return self.check_same_input(&id, &blueprint, &request).await.map(|()| false);
            }
            // The key's board is archived or deleted: it is not created twice.
            if self.is_gone(&id).await? {
                return Err(RuntimeError::IdempotencyConflict(id.clone()).into());
            }
            self.launch(self.runtime.create_with(blueprint, request, options)).await.map(|_| true)
        };
        let is_new = self.with_board_lock(&id, making).await?;
        Ok((id, is_new))
    }

    async fn is_gone(&self, board: &BoardId) -> ApiResult<bool> {
        Ok(self.reader.journal.tombstones().await?.iter().any(|tombstone| tombstone.board == *board))
    }

    /// Subscribes to the records of a board after one, in order. For a board that is not open, yields the stored ones.
    pub(crate) fn watch(&self, board: &BoardId, after: Option<Seq>) -> Subscription {
        self.runtime.subscribe(board, after)
    }

    /// Subscribes to the number of boards opened so far; closed once the daemon stops.
    pub(crate) fn activations(&self) -> Option<watch::Receiver<u64>> {
        self.activation_count.lock().as_ref().map(watch::Sender::subscribe)
    }

    pub(crate) async fn stopping(&self) {
        let Some(mut activations) = self.activations() else { return };
        while activations.changed().await.is_ok() {}
    }
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
