//! Starts, finds and stops boards.
//!
//! The interface of this crate: all callers use a [`Runtime`] and its [`BoardHandle`]s, never an actor.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::admission::Admission;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Blob, Board, BoardError, Input, NewBoard, Outcome, Proposal};
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::files::Edit;
use patchboard_kernel::id::{BoardId, IdempotencyKey, InvocationId, Seq};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Answer, Architect, Body, End, Ended, Parent, Principal, Record, Retried};
use patchboard_kernel::rejection::{Code, Rejection, Stage, Violation};
use ractor::{Actor, ActorRef};
use serde_json::Value;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinError;

use crate::actors::Context;
use crate::actors::board::Arguments;
use crate::actors::failpoints::Failpoints;
use crate::actors::messages::{BoardMessage, InputResult, RootMessage, StartMode, WriterMessage};
use crate::actors::root::{self, Root, WriterSlot};
use crate::agent::{Agent, Failure};
use crate::board_channel::{BoardChannel, Boards, DispatchHold, Lifecycle};
use crate::clock::{Clock, SystemClock};
use crate::group_commit::GroupCommit;
use crate::ids::{Ids, SystemIds};
use crate::observer::{DurableStep, NoopObserver, Observer};
use crate::plan_cache::PlanCache;
use crate::recovery;
use crate::snapshotter::{self, SnapshotPolicy};
use crate::status::BoardStatus;
use crate::subscription::{PAGE, Subscription};
use patchboard_kernel::driver::Batch;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::{Claim, Journal, JournalError};

/// Tries of one request to resume a board that is closed meanwhile.
const RESUME_TRIES_MAX: u32 = 8;

/// Options of a runtime.
#[derive(Clone)]
pub struct Options {
    /// Agent of all seats of all boards.
    pub agent: Arc<dyn Agent>,
    /// Clock of all boards.
    pub clock: Arc<dyn Clock>,
    /// Source of ids, salts and writers' names.
    pub ids: Arc<dyn Ids>,
    /// Limit on failures of a board's actors.
    pub restarts: RestartPolicy,
    /// Limit of external requests queued per board; further ones wait for admission.
    pub request_queue_max: usize,
    /// Records that a subscriber may fall behind before it must catch up from the journal.
    pub subscription_buffer: usize,
    /// Snapshot policy.
    pub snapshots: SnapshotPolicy,
    /// Observer of the boards.
    pub observer: Arc<dyn Observer>,
    /// Failpoints of tests.
    pub(crate) failpoints: Failpoints,
}

/// Options of a new board. The default suits most callers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CreateOptions {
    /// Board id; generated if absent.
    pub id: Option<BoardId>,
    /// Salt; set only for reproducible runs.
    pub salt: Option<Salt>,
    /// Ablation: the enabled parts of PatchBoard.
    pub ablation: Mode,
    /// Usage of the architect that wrote the blueprint, charged to the board.
    pub architect: Option<ArchitectUsage>,
    /// Outer invocation, if the board is nested.
    pub parent: Option<Parent>,
    /// External caller that starts it; for a nested board, the one that started the outer board.
    pub principal: Option<Principal>,
}

/// Effect of an accepted request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestEffect {
    /// Applied now.
    Applied,
    /// Repeats an earlier request, or changes nothing.
    AlreadyApplied,
}

/// Usage of the model that wrote a board's blueprint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArchitectUsage {
    /// Calls of the model.
    pub calls: u32,
    /// Tokens of these calls.
    pub usage: Usage,
    /// Tokens of the calls after the first, included in `usage`.
    pub repairs: Usage,
    /// Prompts of the calls, in order, as [`Prompt::to_json`](patchboard_kernel::view::Prompt::to_json) writes them.
    pub prompts: Vec<Arc<str>>,
    /// Model of the calls, and its price.
    pub admitted: Option<Admission>,
}

impl Options {
    /// Creates options with the machine's clock and randomness, and the default limits.
    pub fn new(agent: Arc<dyn Agent>) -> Self {
        Self {
            agent,
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
            restarts: RestartPolicy::default(),
            request_queue_max: 64,
            subscription_buffer: 1024,
            snapshots: SnapshotPolicy::default(),
            observer: Arc::new(NoopObserver),
            failpoints: Failpoints::default(),
        }
    }
}

/// Limit on failures of a board's actors before the board is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestartPolicy {
    /// Restarts allowed within `window`.
    pub max: u32,
    /// Time window; one failure more than `max` within it ends the board.
    pub window: Duration,
    /// Pause before the second restart within the window; doubled for each further one. The first is immediate.
    pub backoff: Duration,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self { max: 5, window: Duration::from_secs(60), backoff: Duration::from_millis(20) }
    }
}

/// Error of running a board, or of a request to it.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// Storage error.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The kernel cannot create or recover the board.
    #[error(transparent)]
    Board(#[from] BoardError),
    /// The board is already running in this process.
    #[error("board {0} is already running here")]
    AlreadyRunning(BoardId),
    /// The board is not running.
    #[error("board {0} is not running: resume it first")]
    Closed(BoardId),
    /// A token was reused for another request.
    #[error("the token was used before on board {0}, for another request, or for a board that is not there any more")]
    IdempotencyConflict(BoardId),
    /// The value of a signal does not match the blueprint.
    #[error("the signal does not fit the blueprint of board {board}: {}", .violations.first().map_or("", |first| first.message.as_str()))]
    BadSignal {
        /// Board of the signal.
        board: BoardId,
        /// Violations of the schema.
        violations: Vec<Violation>,
    },
    /// A signal was rejected; it was not recorded.
    #[error("board {board} does not take the signal: {message}")]
    SignalRejected {
        /// Board of the signal.
        board: BoardId,
        /// Stable code of the reason: `backlog_full`, `journal_full` or `unknown_signal`.
        code: Code,
        /// Message for people.
        message: String,
    },
    /// A retry was rejected; nothing was recorded.
    #[error("board {board} cannot retry: {message}")]
    CannotRetry {
        /// Board of the retry.
        board: BoardId,
        /// Stable code of the reason.
        code: Code,
        /// Message for people.
        message: String,
    },
    /// The board has ended, so the request changes nothing.
    #[error("board {0} has ended")]
    BoardEnded(BoardId),
    /// The board's actors failed while they held the request.
    #[error("board {0} was interrupted; whether the request was recorded is not known: repeat it with the same token")]
    Interrupted(BoardId),
    /// The board's actors failed too often.
    #[error("board {board} was given up after repeated failures, the last one: {reason}")]
    Crashed {
        /// Board that was given up.
        board: BoardId,
        /// Last failure.
        reason: String,
    },
    /// The runtime itself could not be started.
    #[error("the runtime cannot start: {0}")]
    Start(String),
}

impl RuntimeError {
    /// Returns the error of a rejected retry.
    pub fn cannot_retry(board: &BoardId, rejection: Rejection) -> Self {
        let code = rejection.code;
        let message = rejection.violations.into_iter().next().map(|first| first.message).unwrap_or_default();
        Self::CannotRetry { board: board.clone(), code, message }
    }

    /// Returns the stable code; messages may change, codes may not.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Journal(error) => error.code(),
            Self::Board(BoardError::BadRequest(_)) | Self::BadSignal { .. } => "bad_request",
            Self::Board(BoardError::BadBlueprint(_)) => "bad_blueprint",
            Self::Board(BoardError::BadRecord { .. }) => "bad_record",
            Self::CannotRetry { code: Code::BoardNotRunning, .. } => "board_over",
            Self::CannotRetry { code, .. } | Self::SignalRejected { code, .. } => code.as_str(),
            Self::AlreadyRunning(_) => "already_running",
            Self::Closed(_) => "board_closed",
            Self::BoardEnded(_) => "board_over",
            Self::IdempotencyConflict(_) => "token_conflict",
            Self::Interrupted(_) => "interrupted",
            Self::Crashed { .. } => "crashed",
            Self::Start(_) => "start",
        }
    }
}

/// Runs boards. Dropped without [`Runtime::shutdown`], it ends as a crash would: nothing acknowledged is lost.
pub struct Runtime {
    running: Arc<RuntimeInner>,
}

/// Shared state of all boards.
struct RuntimeInner {
    context: Arc<Context>,
    boards: Arc<Boards>,
    root: ActorRef<RootMessage>,
}

/// Weak handle of a runtime, for agents that run boards themselves.
#[derive(Clone)]
pub struct WeakRuntime {
    running: Weak<RuntimeInner>,
}

impl WeakRuntime {
    /// Returns the runtime, unless it has ended. To be held only for one request.
    pub fn upgrade(&self) -> Option<Runtime> {
        self.running.upgrade().map(|running| Runtime { running })
    }
}

impl Runtime {
    /// Starts the actors shared by all boards.
    ///
    /// # Errors
    /// [`RuntimeError::Start`].
    pub async fn start(journal: Arc<dyn Journal>, options: Options) -> Result<Self, RuntimeError> {
        let writer: WriterSlot = Arc::new(ArcSwapOption::empty());
        let wake = {
            let writer = Arc::clone(&writer);
            move || {
                if let Some(writer) = &*writer.load() {
                    // A writer that has ended is replaced, and its successor begins with the queue.
                    drop(writer.cast(WriterMessage::Flush));
                }
            }
        };
        let context = Arc::new(Context {
            journal: GroupCommit::new(journal, wake),
            options,
            plans: PlanCache::default(),
            snapshot_permits: Arc::new(Semaphore::new(snapshotter::CONCURRENT_TASKS_MAX)),
        });
        let boards = Arc::new(Boards::default());
        let arguments = root::Arguments { context: Arc::clone(&context), boards: Arc::clone(&boards), writer };
        let spawned = Actor::spawn(None, Root, arguments).await;
        let (root, _) = spawned.map_err(|error| RuntimeError::Start(error.to_string()))?;
        let runtime = Self { running: Arc::new(RuntimeInner { context, boards, root }) };
        runtime.running.context.options.agent.on_runtime_started(&runtime.downgrade());
        Ok(runtime)
    }

    /// Returns a weak handle.
    pub fn downgrade(&self) -> WeakRuntime {
        WeakRuntime { running: Arc::downgrade(&self.running) }
    }

    /// Creates a new board and runs it. `salt` is set only for reproducible runs.
    ///
    /// # Errors
    /// [`RuntimeError::Board`] if blueprint or request is invalid; storage.
    pub async fn create(
        &self,
        blueprint: Blueprint,
        request: Value,
        salt: Option<Salt>,
    ) -> Result<BoardHandle, RuntimeError> {
        self.create_with(blueprint, request, CreateOptions { salt, ..CreateOptions::default() }).await
    }

    /// Like [`Runtime::create`], with options.
    ///
    /// # Errors
    /// As [`Runtime::create`].
    pub async fn create_with(
        &self,
        mut blueprint: Blueprint,
        request: Value,
        founding: CreateOptions,
    ) -> Result<BoardHandle, RuntimeError> {
        let CreateOptions { id, salt, ablation: mode, architect: designed, parent, principal } = founding;
        let options = &self.running.context.options;
        blueprint.fit_views(&|model| options.agent.context_window(model));
        let id = id.unwrap_or_else(|| options.ids.board());
        let salt = salt.unwrap_or_else(|| options.ids.salt());
        let (at, began) = (options.clock.now(), Instant::now());
        let (texts, hasher) = (designed.iter().flat_map(|designed| &designed.prompts), Hasher::new(&salt));
        let prompts: Vec<Blob> = texts.map(|text| Blob { hash: hasher.text(text), text: Arc::clone(text) }).collect();
        let architect = designed.as_ref().map(|ArchitectUsage { calls, usage, repairs, admitted, .. }| {
            let prompts = prompts.iter().map(|prompt| prompt.hash).collect();
            let (usage, repairs) = (usage.bounded(), repairs.bounded());
            Architect { calls: *calls, usage, repairs, prompts, admitted: admitted.clone() }
        });
        let genesis =
            NewBoard { mode, architect, parent, salt, principal, ..NewBoard::new(id.clone(), blueprint, request, at) };
        let (board, step) = Board::create(genesis, &self.running.context.plans)?;
        let opening = self.reserve(&id, None)?;
        let claim = self.running.context.journal.journal().claim(&id, false).await?;
        let batch = Batch {
            board: id.clone(),
            epoch: board.epoch(),
            expected: None,
            records: step.records.clone(),
            blobs: prompts.into_iter().chain(step.blobs).collect(),
        };
        self.running.context.journal.append(batch).await?;
        let made = DurableStep { board: &id, records: &step.records, took: began.elapsed() };
        self.running.context.observe(|observer| observer.on_durable_step(&made));
        tracing::info!(board = %id, name = board.blueprint().name.as_str(), "the board was made");
        opening.channel.publish(BoardStatus::new(&board, step.records.last()), step.records);
        let blueprint = Arc::clone(board.blueprint());
        self.open(opening, blueprint, StartMode::Created(Box::new(board), step.effects), claim).await
    }

    /// Takes a board over from its journal and runs it. Calls that were in progress are lost and repeated.
    ///
    /// # Errors
    /// [`JournalError::Owned`] if another process runs it; [`JournalError::NotFound`];
    /// [`RuntimeError::AlreadyRunning`]; [`RuntimeError::Board`] if the records are invalid; storage.
    pub async fn resume(&self, board: &BoardId) -> Result<BoardHandle, RuntimeError> {
        self.take_over(board, false, None).await
    }

    /// Like [`Runtime::resume`], but first pauses the board, in the name of `by`: it dispatches nothing until it is
    /// resumed. A board that has ended is not paused, but makes no calls either, even if a signal or a retry continues
    /// it.
    ///
    /// # Errors
    /// As [`Runtime::resume`].
    pub async fn resume_paused(&self, board: &BoardId, by: Option<Principal>) -> Result<BoardHandle, RuntimeError> {
        self.take_over(board, false, Some(DispatchHold { by })).await
    }

    /// Like [`Runtime::resume`], even if another process seems to run the board. That process is fenced off.
    ///
    /// # Errors
    /// As [`Runtime::resume`], but never [`JournalError::Owned`].
    pub async fn resume_forced(&self, board: &BoardId) -> Result<BoardHandle, RuntimeError> {
        self.take_over(board, true, None).await
    }

    async fn take_over(
        &self,
        board: &BoardId,
        force: bool,
        held: Option<DispatchHold>,
    ) -> Result<BoardHandle, RuntimeError> {
        match self.running.boards.get(board) {
            // The board was given up and is being closed.
            Some(published) if published.is_closed() => self.close_board(published).await,
            Some(_) => return Err(RuntimeError::AlreadyRunning(board.clone())),
            None => {}
        }
        let journal = self.running.context.journal.journal();
        let blueprint = Arc::new(blueprint_of(&**journal, board).await?);
        let opening = self.reserve(board, held)?;
        let claim = journal.claim(board, force).await?;
        self.open(opening, blueprint, StartMode::Recover, claim).await
    }

    /// Returns the running board, or resumes it as [`Runtime::resume`] does. Waits while another caller of this
    /// runtime creates or resumes it.
    ///
    /// # Errors
    /// As [`Runtime::resume`]; [`RuntimeError::AlreadyRunning`] only if it is repeatedly closed and opened meanwhile.
    pub async fn get_or_resume(&self, board: &BoardId) -> Result<BoardHandle, RuntimeError> {
        for _ in 0..RESUME_TRIES_MAX {
            match self.running.boards.get(board) {
                Some(published) if !published.is_closed() => match published.until_started().await {
                    // The caller that opened it has given up; the board may not exist.
                    Lifecycle::Closed(RuntimeError::Closed(_)) => {}
                    Lifecycle::Closed(reason) => return Err(reason),
                    Lifecycle::Starting | Lifecycle::Running | Lifecycle::Ended(_) => return Ok(self.handle(published)),
                },
                _ => match self.resume(board).await {
                    Err(RuntimeError::AlreadyRunning(_)) => {}
                    resumed => return resumed,
                },
            }
        }
        Err(RuntimeError::AlreadyRunning(board.clone()))
    }

    /// Reserves a board's id, so that no other caller opens it meanwhile.
    fn reserve(&self, board: &BoardId, held: Option<DispatchHold>) -> Result<BoardReservation<'_>, RuntimeError> {
        let published = Arc::new(BoardChannel::new(board.clone(), held, &self.running.context.options));
        self.running.boards.add(Arc::clone(&published))?;
        Ok(BoardReservation { boards: &self.running.boards, channel: published, is_handed_over: false })
    }

    /// Starts a board's actors and waits until they have taken it over, newly created or recovered.
    async fn open(
        &self,
        mut opening: BoardReservation<'_>,
        blueprint: Arc<Blueprint>,
        beginning: StartMode,
        claim: Claim,
    ) -> Result<BoardHandle, RuntimeError> {
        let (context, published) = (Arc::clone(&self.running.context), Arc::clone(&opening.channel));
        let arguments = Arguments { context, channel: Arc::clone(&published), blueprint, beginning, claim };
        if self.running.root.cast(RootMessage::Open(Box::new(arguments))).is_err() {
            return Err(RuntimeError::Closed(published.board().clone()));
        }
        opening.is_handed_over = true;
        match published.until_started().await {
            Lifecycle::Closed(reason) => Err(reason),
            Lifecycle::Starting | Lifecycle::Running | Lifecycle::Ended(_) => Ok(self.handle(published)),
        }
    }

    /// Returns a running board.
    pub fn board(&self, board: &BoardId) -> Option<BoardHandle> {
        // A board under recovery has no snapshot yet.
        self.running
            .boards
            .get(board)
            .filter(|published| published.status().is_some())
            .map(|published| self.handle(published))
    }

    /// Returns the ids of the running boards, sorted.
    pub fn boards(&self) -> Vec<BoardId> {
        let mut ids: Vec<_> = self.running.boards.all().iter().map(|published| published.board().clone()).collect();
        ids.sort();
        ids
    }

    /// Returns the boards created for invocations of a board, with the usage of their completed calls according to the
    /// journal. Skips boards with invalid records.
    ///
    /// # Errors
    /// Storage.
    pub async fn nested_boards(
        &self,
        outer: &BoardId,
        invocations: Vec<InvocationId>,
    ) -> Result<Vec<(BoardId, Usage)>, RuntimeError> {
        let (context, id) = (Arc::clone(&self.running.context), outer.clone());
        let read = tokio::task::spawn_blocking(move || {
            let journal = &**context.journal.journal();
            let boards = wait(journal.boards())?.into_iter().filter(|summary| summary.parent.as_ref() == Some(&id));
            let inside = boards.filter_map(|summary| {
                let first = wait(journal.records(&summary.id, None, 1)).ok()?.pop()?;
                let Ok(Body::Created(created)) = first.body() else { return None };
                created.parent.as_ref().filter(|parent| invocations.contains(&parent.invocation))?;
                let recovered = recovery::recover(journal, &summary.id, &context.plans);
                let recovered =
                    recovered.inspect_err(|error| tracing::warn!(board = %summary.id, %error, "not counted"));
                Some((summary.id, recovered.ok()?.board.ledger().board().usage()))
            });
            Ok(inside.collect())
        });
        let crashed = |error: JoinError| RuntimeError::Crashed { board: outer.clone(), reason: error.to_string() };
        read.await.map_err(crashed)?
    }

    /// Returns the number of batches queued for the journal writer.
    pub fn journal_queue(&self) -> usize {
        self.running.context.journal.queued()
    }

    /// Returns the last durable snapshot of a running board.
    pub fn status(&self, board: &BoardId) -> Option<Arc<BoardStatus>> {
        self.running.boards.get(board)?.status()
    }

    /// Subscribes to every record of a board after `after` (`None`: from the first), once [`Runtime::status`]
    /// includes it. Returns the existing records of a board that is not running.
    pub fn subscribe(&self, board: &BoardId, after: Option<Seq>) -> Subscription {
        let live = self.running.boards.get(board).and_then(|published| published.listen());
        Subscription::new(Arc::clone(self.running.context.journal.journal()), board.clone(), after, live)
    }

    /// Closes one board: the inputs its kernel has received are decided and made durable, calls in progress are
    /// cancelled. The board can be resumed.
    pub async fn close(&self, board: &BoardId) {
        if let Some(published) = self.running.boards.get(board) {
            self.close_board(published).await;
        }
    }

    /// Closes all boards and ends. From its start on, no board is created or resumed.
    pub async fn shutdown(&self) {
        self.running.boards.stop_accepting();
        for published in self.running.boards.all() {
            self.close_board(published).await;
        }
        // The journal writer is idle: every kernel has its answer.
        self.running.root.get_cell().stop_children_and_wait(None, None).await;
        if let Err(error) = self.running.root.stop_and_wait(None, None).await {
            tracing::debug!(%error, "the root actor had ended before");
        }
    }

    async fn close_board(&self, published: Arc<BoardChannel>) {
        published.request_close();
        if let Some(supervisor) = published.supervisor().await {
            let (done, closed) = oneshot::channel();
            if supervisor.cast(BoardMessage::Close(done)).is_ok() {
                // Without an answer it has ended on its own.
                drop(closed.await);
            }
            // The claim on the board ends with the supervisor.
            drop(supervisor.wait(None).await);
        }
        self.running.boards.remove(&published);
        // For a supervisor that failed meanwhile the root does this, but it may be ending, too.
        if !published.is_closed() {
            self.running.context.board_closed(&published, RuntimeError::Closed(published.board().clone()));
        }
    }

    fn handle(&self, published: Arc<BoardChannel>) -> BoardHandle {
        BoardHandle { context: Arc::clone(&self.running.context), channel: published, principal: None }
    }
}

/// Reservation of a board that is being opened. Released if opening fails or is cancelled.
struct BoardReservation<'a> {
    boards: &'a Boards,
    channel: Arc<BoardChannel>,
    /// The actors have taken over the reservation.
    is_handed_over: bool,
}

impl Drop for BoardReservation<'_> {
    fn drop(&mut self) {
        if !self.is_handed_over {
            self.boards.remove(&self.channel);
            self.channel.mark_closed(RuntimeError::Closed(self.channel.board().clone()));
        }
    }
}

impl Drop for RuntimeInner {
    fn drop(&mut self) {
        self.root.stop(None);
    }
}

/// Reads the blueprint from a board's first record.
async fn blueprint_of(journal: &dyn Journal, board: &BoardId) -> Result<Blueprint, RuntimeError> {
    let first = journal.records(board, None, 1).await?;
    let Some(first) = first.first() else { return Err(JournalError::NotFound(format!("board {board}")).into()) };
    let bad = |message: String| BoardError::BadRecord { seq: first.seq, message };
    match first.body().map_err(|error| bad(error.to_string()))? {
        Body::Created(created) => serde_json::from_value(created.blueprint.clone())
            .map_err(|error| bad(format!("this version cannot read its blueprint: {error}")).into()),
        other => Err(bad(format!("a journal begins with created, not {}", other.kind())).into()),
    }
}

/// Handle of a running board. Cheap to clone.
#[derive(Clone)]
pub struct BoardHandle {
    context: Arc<Context>,
    channel: Arc<BoardChannel>,
    /// Principal named in records of inputs through this handle.
    principal: Option<Principal>,
}

impl BoardHandle {
    /// Returns a handle of an external caller, which its records name.
    #[must_use]
    pub fn with_principal(&self, principal: Principal) -> Self {
        Self { principal: Some(principal), ..self.clone() }
    }

    async fn ask(&self, input: Input) -> Result<InputResult, RuntimeError> {
        self.channel.ask(input, self.principal.clone()).await
    }

    /// Returns the board's id.
    pub fn id(&self) -> &BoardId {
        self.channel.board()
    }

    /// Returns the last durable snapshot.
    pub fn status(&self) -> Arc<BoardStatus> {
        self.channel.status().expect("a handle is given out after the first snapshot")
    }

    /// Subscribes to every record after `after` (`None`: from the first), once [`BoardHandle::status`] includes it.
    /// If the board is gone, remaining durable records are delivered last.
    pub fn subscribe(&self, after: Option<Seq>) -> Subscription {
        let journal = Arc::clone(self.context.journal.journal());
        Subscription::new(journal, self.id().clone(), after, self.channel.listen())
    }

    /// Folds the records after `after` (`None`: from the first), up to the last one published, off the threads that
    /// serve boards.
    ///
    /// # Errors
    /// Storage.
    pub async fn read<T: Send + 'static>(
        &self,
        after: Option<Seq>,
        initial: T,
        mut fold: impl FnMut(&mut T, &Record) + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let (journal, board, head) =
            (Arc::clone(self.context.journal.journal()), self.id().clone(), self.status().head.seq);
        let read = tokio::task::spawn_blocking(move || {
            let (mut folded, mut last) = (initial, after);
            while last.is_none_or(|last| last < head) {
                let page = wait(journal.records(&board, last, PAGE))?;
                let Some(end) = page.last() else { break };
                last = Some(end.seq);
                page.iter().filter(|record| record.seq <= head).for_each(|record| fold(&mut folded, record));
            }
            Ok(folded)
        });
        let crashed = |error: JoinError| RuntimeError::Crashed { board: self.id().clone(), reason: error.to_string() };
        read.await.map_err(crashed)?
    }

    /// Sends a proposal to the kernel; returns once the outcome is durable.
    ///
    /// # Errors
    /// [`RuntimeError::Interrupted`], [`RuntimeError::Closed`]; after a storage error the proposal may have been
    /// recorded.
    pub async fn propose(&self, proposal: Proposal) -> Result<Outcome, RuntimeError> {
        let decided = self.ask(Input::Propose(proposal)).await?;
        decided.outcome.ok_or_else(|| RuntimeError::Interrupted(self.id().clone()))
    }

    /// Records an edit of workspace files, or an external change of them. Returns once the outcome is durable, or
    /// [`Outcome::RejectedUnrecorded`] if, for example, the attempt or the board is over. The caller changes the files
    /// themselves.
    ///
    /// # Errors
    /// As [`BoardHandle::propose`].
    pub async fn edit(&self, edit: Edit) -> Result<Outcome, RuntimeError> {
        let decided = self.ask(Input::Edit(edit)).await?;
        decided.outcome.ok_or_else(|| RuntimeError::Interrupted(self.id().clone()))
    }

    /// Asks to continue an attempt with another call of its model, which may take `reserve` tokens; `usage` is that of
    /// the previous call. Returns once the outcome is durable: [`Outcome::Continued`], or
    /// [`Outcome::RejectedUnrecorded`]. A refused attempt is over, either before or because the budgets do not suffice
    /// ([`Code::BudgetExhausted`]).
    ///
    /// [`Code::BudgetExhausted`]: patchboard_kernel::rejection::Code::BudgetExhausted
    ///
    /// # Errors
    /// As [`BoardHandle::propose`].
    pub async fn continue_attempt(
        &self,
        invocation: InvocationId,
        attempt: u32,
        usage: Option<Usage>,
        reserve: u64,
    ) -> Result<Outcome, RuntimeError> {
        let decided = self.ask(Input::Continue { invocation, attempt, usage, reserve }).await?;
        decided.outcome.ok_or_else(|| RuntimeError::Interrupted(self.id().clone()))
    }

    /// Ends an attempt without a proposal. Returns once that is durable; false if the attempt was over before.
    ///
    /// # Errors
    /// As [`BoardHandle::propose`].
    pub async fn fail(&self, invocation: InvocationId, attempt: u32, failure: Failure) -> Result<bool, RuntimeError> {
        let Failure { code, message, usage, deferral: _ } = failure;
        let decided = self.ask(Input::AgentFailed { invocation, attempt, code, message, usage }).await?;
        Ok(decided.recorded)
    }

    /// Sends a signal, or triggers a manual rule by its name. Returns once it is durable; a repetition with the same
    /// `token` gets the first answer.
    ///
    /// # Errors
    /// [`RuntimeError::BoardEnded`] if the board has ended for good; [`RuntimeError::IdempotencyConflict`];
    /// [`RuntimeError::BadSignal`] or [`RuntimeError::SignalRejected`], and then nothing is recorded; as
    /// [`BoardHandle::propose`].
    pub async fn signal(
        &self,
        name: &str,
        value: Value,
        token: Option<IdempotencyKey>,
    ) -> Result<RequestEffect, RuntimeError> {
        self.request(Input::Signal { name: name.to_owned(), value, key: token }).await
    }

    /// Sends a request that is recorded unless the board has ended for good, or received it before.
    async fn request(&self, input: Input) -> Result<RequestEffect, RuntimeError> {
        let decided = self.ask(input).await?;
        match decided.outcome {
            Some(Outcome::Duplicate(_)) => Ok(RequestEffect::AlreadyApplied),
            Some(Outcome::RejectedUnrecorded(rejection)) if rejection.stage == Stage::Schema => {
                Err(RuntimeError::BadSignal { board: self.id().clone(), violations: rejection.violations })
            }
            Some(Outcome::RejectedUnrecorded(rejection)) if rejection.code == Code::TokenConflict => {
                Err(RuntimeError::IdempotencyConflict(self.id().clone()))
            }
            Some(Outcome::RejectedUnrecorded(rejection)) => {
                let code = rejection.code;
                let message = rejection.violations.into_iter().next().map(|first| first.message).unwrap_or_default();
                Err(RuntimeError::SignalRejected { board: self.id().clone(), code, message })
            }
            _ if decided.recorded => Ok(RequestEffect::Applied),
            _ => Err(RuntimeError::BoardEnded(self.id().clone())),
        }
    }

    /// Sends a person's answer to a question of the board. Returns once the outcome is durable, or
    /// [`Outcome::RejectedUnrecorded`] if the answer does not count.
    ///
    /// # Errors
    /// As [`BoardHandle::propose`].
    pub async fn answer(&self, answer: Answer) -> Result<Outcome, RuntimeError> {
        let decided = self.ask(Input::Answer(answer)).await?;
        decided.outcome.ok_or_else(|| RuntimeError::Interrupted(self.id().clone()))
    }

    /// Pauses dispatch. Has no effect on a paused board. For `token` see [`BoardHandle::signal`].
    ///
    /// # Errors
    /// As [`BoardHandle::signal`].
    pub async fn pause(&self, token: Option<IdempotencyKey>) -> Result<RequestEffect, RuntimeError> {
        self.control(Input::Pause { key: token }).await
    }

    /// Resumes dispatch. Has no effect on a board that is not paused. For `token` see [`BoardHandle::signal`].
    ///
    /// # Errors
    /// As [`BoardHandle::signal`].
    pub async fn resume(&self, token: Option<IdempotencyKey>) -> Result<RequestEffect, RuntimeError> {
        self.control(Input::Resume { key: token }).await
    }

    /// Retries invocations that the board has given up, with their triggers, and raises limits. Returns once it is
    /// durable; a repetition with the same token gets the first answer.
    ///
    /// # Errors
    /// [`RuntimeError::CannotRetry`], with nothing recorded; [`RuntimeError::IdempotencyConflict`]; as
    /// [`BoardHandle::propose`].
    pub async fn retry(&self, retried: Retried) -> Result<RequestEffect, RuntimeError> {
        let decided = self.ask(Input::Retry(retried)).await?;
        match decided.outcome {
            Some(Outcome::Duplicate(_)) => Ok(RequestEffect::AlreadyApplied),
            Some(Outcome::RejectedUnrecorded(rejection)) if rejection.code == Code::TokenConflict => {
                Err(RuntimeError::IdempotencyConflict(self.id().clone()))
            }
            Some(Outcome::RejectedUnrecorded(rejection)) => Err(RuntimeError::cannot_retry(self.id(), rejection)),
            _ => Ok(RequestEffect::Applied),
        }
    }

    /// Cancels the board. Has no effect on a cancelled board.
    ///
    /// # Errors
    /// As [`BoardHandle::signal`].
    pub async fn cancel(&self) -> Result<RequestEffect, RuntimeError> {
        self.control(Input::Cancel).await
    }

    async fn control(&self, input: Input) -> Result<RequestEffect, RuntimeError> {
        let is_cancel = matches!(input, Input::Cancel);
        match self.request(input).await {
            Err(RuntimeError::BoardEnded(board)) => match self.status().ended.filter(|ended| ended.is_final()) {
                // Already cancelled.
                Some(ended) if is_cancel && ended.end == End::Cancelled => Ok(RequestEffect::AlreadyApplied),
                Some(_) => Err(RuntimeError::BoardEnded(board)),
                // The board was in this state before.
                None => Ok(RequestEffect::AlreadyApplied),
            },
            heard => heard,
        }
    }

    /// Waits until the board has ended, or has stopped in this process.
    ///
    /// # Errors
    /// Cause of the stop: storage, too many failures, or closing.
    pub async fn wait_for_end(&self) -> Result<Ended, RuntimeError> {
        self.wait_for_end_where(|_| true).await
    }

    /// Waits until the board has ended for good: a stalled one may continue.
    ///
    /// # Errors
    /// The board has stopped in this process.
    pub async fn wait_for_final_end(&self) -> Result<Ended, RuntimeError> {
        self.wait_for_end_where(Ended::is_final).await
    }

    async fn wait_for_end_where(&self, wanted: impl Fn(Ended) -> bool) -> Result<Ended, RuntimeError> {
        let is_wanted = |status: &Lifecycle| match status {
            Lifecycle::Ended(ended) => wanted(*ended),
            Lifecycle::Closed(_) => true,
            Lifecycle::Starting | Lifecycle::Running => false,
        };
        match self.channel.wait_for_lifecycle(is_wanted).await {
            Lifecycle::Ended(ended) => Ok(ended),
            Lifecycle::Closed(reason) => Err(reason),
            Lifecycle::Starting | Lifecycle::Running => Err(RuntimeError::Closed(self.id().clone())),
        }
    }

    /// Ends the board's kernel actor as a crash would, for tests.
    pub fn crash(&self) {
        self.channel.kill_kernel();
    }
}

#[cfg(test)]
mod tests;
