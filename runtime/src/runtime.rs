//! Starts boards, finds them, and stops them.
//!
//! The face of this crate: everything outside talks to a [`Runtime`] and to the [`BoardHandle`]s it gives out, never to
//! an actor.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use patchboard_kernel::admission::Admission;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Blob, Board, BoardError, Genesis, Input, Outcome, Proposal};
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::files::Edit;
use patchboard_kernel::id::{BoardId, InvocationId, Seq, Token};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::mode::Mode;
use patchboard_kernel::record::{Answer, Architect, Body, End, Ended, Parent, Principal, Record, Retried};
use patchboard_kernel::rejection::{Code, Rejection, Stage, Violation};
use ractor::{Actor, ActorRef};
use serde_json::Value;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinError;

use crate::actors::board::Arguments;
use crate::actors::kernel::{Beginning, Decided};
use crate::actors::probe::Probe;
use crate::actors::root::{self, Root, WriterSlot};
use crate::actors::{Context, board, journal_writer};
use crate::agent::{Agent, Failure};
use crate::clock::{Clock, SystemClock};
use crate::ids::{Ids, SystemIds};
use crate::journal::group::GroupCommit;
use crate::journal::{Batch, Claim, Journal, JournalError};
use crate::keeping::{self, SnapshotPolicy};
use crate::observer::{Durable, Observer, Unobserved};
use crate::plans::SharedPlans;
use crate::published::{Boards, Held, Published, Status};
use crate::recovery;
use crate::snapshot::Snapshot;
use crate::subscription::{PAGE, Subscription};

/// How often a board that is closed meanwhile is taken over for one request.
const ATTACH_TRIES: u32 = 8;

/// What a runtime is made of.
#[derive(Clone)]
pub struct Options {
    /// Fills the seats of all boards.
    pub agent: Arc<dyn Agent>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Makes ids, salts and writers' names.
    pub ids: Arc<dyn Ids>,
    /// How often a board's actors may fail.
    pub restarts: RestartPolicy,
    /// How many requests from outside may wait for one board; further ones wait before they are admitted.
    pub admission: usize,
    /// How many records a subscriber may fall behind before it has to catch up from the journal.
    pub subscription: usize,
    /// When snapshots are taken.
    pub snapshots: SnapshotPolicy,
    /// Is told what becomes of the boards.
    pub observer: Arc<dyn Observer>,
    /// Where tests make actors panic.
    pub(crate) probe: Probe,
}

/// How a board is made, beside what it is made of. The default is what everybody wants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Founding {
    /// Its id, if the caller names it; else one is made.
    pub id: Option<BoardId>,
    /// Given only to make runs repeatable.
    pub salt: Option<Salt>,
    /// How much of PatchBoard it has.
    pub mode: Mode,
    /// Where a model wrote its blueprint: what that took, which is charged to the board.
    pub designed: Option<Designed>,
    /// Whose work it does, if it is a board inside a board.
    pub parent: Option<Parent>,
    /// The caller who starts it, if it is started from outside; of a board inside another, the one who started that.
    pub principal: Option<Principal>,
}

/// Whether a request did what it asked, or an earlier one had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// It did.
    Now,
    /// It was the repetition of one that was heard before, or things were so already.
    Before,
}

/// What it took to have a model write a board's blueprint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Designed {
    /// Calls of the model.
    pub calls: u32,
    /// Their tokens.
    pub usage: Usage,
    /// Of the tokens: those of calls after the first.
    pub repairs: Usage,
    /// What the model was told, in order, as [`Prompt::to_json`](patchboard_kernel::view::Prompt::to_json) writes it.
    pub prompts: Vec<Arc<str>>,
    /// The model that was asked, and its price.
    pub admitted: Option<Admission>,
}

impl Options {
    /// The machine's clock and randomness, and the default limits.
    pub fn new(agent: Arc<dyn Agent>) -> Self {
        Self {
            agent,
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
            restarts: RestartPolicy::default(),
            admission: 64,
            subscription: 1024,
            snapshots: SnapshotPolicy::default(),
            observer: Arc::new(Unobserved),
            probe: Probe::default(),
        }
    }
}

/// How often a board's actors may fail before the board is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestartPolicy {
    /// So many restarts are made...
    pub max: u32,
    /// ...within this time; one more failure is the end.
    pub window: Duration,
    /// The pause before the second restart within the window; it doubles with each further one. The first is immediate.
    pub backoff: Duration,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self { max: 5, window: Duration::from_secs(60), backoff: Duration::from_millis(20) }
    }
}

/// Why a board cannot be run, or a request to it has no answer.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// Storage.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The kernel cannot make or recover the board.
    #[error(transparent)]
    Board(#[from] BoardError),
    /// The board is already running in this process.
    #[error("board {0} is already running here")]
    AlreadyRunning(BoardId),
    /// The board is not running any more.
    #[error("board {0} is not running: resume it first")]
    Closed(BoardId),
    /// A token was used again, for another request.
    #[error("the token was used before on board {0}, for another request, or for a board that is not there any more")]
    TokenConflict(BoardId),
    /// The value of a signal is not what the blueprint says it is.
    #[error("the signal does not fit the blueprint of board {board}: {}", .violations.first().map_or("", |first| first.message.as_str()))]
    BadSignal {
        /// The board.
        board: BoardId,
        /// What is wrong with the value.
        violations: Vec<Violation>,
    },
    /// A signal was refused; it was not recorded.
    #[error("board {board} does not take the signal: {message}")]
    Unheard {
        /// The board.
        board: BoardId,
        /// Stable name of the reason: `backlog_full`, `journal_full` or `unknown_signal`.
        code: Code,
        /// Why.
        message: String,
    },
    /// A board takes nothing up again; nothing was recorded.
    #[error("board {board} cannot retry: {message}")]
    CannotRetry {
        /// The board.
        board: BoardId,
        /// Stable name of the reason.
        code: Code,
        /// Why.
        message: String,
    },
    /// The board has ended, so the request changes nothing.
    #[error("board {0} has ended")]
    Over(BoardId),
    /// The board's actors failed while they held the request.
    #[error("board {0} was interrupted; whether the request was recorded is not known: repeat it with the same token")]
    Interrupted(BoardId),
    /// The board's actors failed too often.
    #[error("board {board} was given up after repeated failures, the last one: {reason}")]
    Crashed {
        /// The board.
        board: BoardId,
        /// The last failure.
        reason: String,
    },
    /// The runtime itself could not be started.
    #[error("the runtime cannot start: {0}")]
    Start(String),
}

impl RuntimeError {
    /// Returns the error of a retry that was refused.
    pub fn cannot_retry(board: &BoardId, rejection: Rejection) -> Self {
        let code = rejection.code;
        let message = rejection.violations.into_iter().next().map(|first| first.message).unwrap_or_default();
        Self::CannotRetry { board: board.clone(), code, message }
    }

    /// Stable name; messages may change, codes may not.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Journal(error) => error.code(),
            Self::Board(BoardError::BadRequest(_)) | Self::BadSignal { .. } => "bad_request",
            Self::Board(BoardError::BadBlueprint(_)) => "bad_blueprint",
            Self::Board(BoardError::BadRecord { .. }) => "bad_record",
            Self::CannotRetry { code: Code::BoardNotRunning, .. } => "board_over",
            Self::CannotRetry { code, .. } | Self::Unheard { code, .. } => code.as_str(),
            Self::AlreadyRunning(_) => "already_running",
            Self::Closed(_) => "board_closed",
            Self::Over(_) => "board_over",
            Self::TokenConflict(_) => "token_conflict",
            Self::Interrupted(_) => "interrupted",
            Self::Crashed { .. } => "crashed",
            Self::Start(_) => "start",
        }
    }
}

/// Runs boards. Dropped without [`Runtime::shutdown`], it ends as a crash would: nothing acknowledged is lost.
pub struct Runtime {
    running: Arc<Running>,
}

/// What all boards share.
struct Running {
    context: Arc<Context>,
    boards: Arc<Boards>,
    root: ActorRef<root::Message>,
}

/// A runtime that ends whether or not this is held: what agents have that run boards themselves.
#[derive(Clone)]
pub struct WeakRuntime {
    running: Weak<Running>,
}

impl WeakRuntime {
    /// The runtime, unless it has ended. To be held for as long as one request takes.
    pub fn upgrade(&self) -> Option<Runtime> {
        self.running.upgrade().map(|running| Runtime { running })
    }
}

impl Runtime {
    /// Starts the actors that all boards share.
    ///
    /// # Errors
    /// [`RuntimeError::Start`].
    pub async fn start(journal: Arc<dyn Journal>, options: Options) -> Result<Self, RuntimeError> {
        let writer: WriterSlot = Arc::new(ArcSwapOption::empty());
        let wake = {
            let writer = Arc::clone(&writer);
            move || {
                if let Some(writer) = &*writer.load() {
                    // One that has ended is replaced, and its successor begins with what is queued.
                    drop(writer.cast(journal_writer::Message::Flush));
                }
            }
        };
        let context = Arc::new(Context {
            journal: GroupCommit::new(journal, wake),
            options,
            plans: SharedPlans::default(),
            keepers: Arc::new(Semaphore::new(keeping::AT_ONCE)),
        });
        let boards = Arc::new(Boards::default());
        let arguments = root::Arguments { context: Arc::clone(&context), boards: Arc::clone(&boards), writer };
        let spawned = Actor::spawn(None, Root, arguments).await;
        let (root, _) = spawned.map_err(|error| RuntimeError::Start(error.to_string()))?;
        let runtime = Self { running: Arc::new(Running { context, boards, root }) };
        runtime.running.context.options.agent.started(&runtime.downgrade());
        Ok(runtime)
    }

    /// The same without keeping it.
    pub fn downgrade(&self) -> WeakRuntime {
        WeakRuntime { running: Arc::downgrade(&self.running) }
    }

    /// Makes a new board and runs it. `salt`: given only to make runs repeatable.
    ///
    /// # Errors
    /// [`RuntimeError::Board`] if blueprint and request make no board; storage.
    pub async fn create(
        &self,
        blueprint: Blueprint,
        request: Value,
        salt: Option<Salt>,
    ) -> Result<BoardHandle, RuntimeError> {
        self.create_with(blueprint, request, Founding { salt, ..Founding::default() }).await
    }

    /// The same, founded in another way than usual.
    ///
    /// # Errors
    /// As [`Runtime::create`].
    pub async fn create_with(
        &self,
        mut blueprint: Blueprint,
        request: Value,
        founding: Founding,
    ) -> Result<BoardHandle, RuntimeError> {
        let Founding { id, salt, mode, designed, parent, principal } = founding;
        let options = &self.running.context.options;
        blueprint.fit_views(&|model| options.agent.context(model));
        let id = id.unwrap_or_else(|| options.ids.board());
        let salt = salt.unwrap_or_else(|| options.ids.salt());
        let (at, began) = (options.clock.now(), Instant::now());
        let (texts, hasher) = (designed.iter().flat_map(|designed| &designed.prompts), Hasher::new(&salt));
        let prompts: Vec<Blob> = texts.map(|text| Blob { hash: hasher.text(text), text: Arc::clone(text) }).collect();
        let architect = designed.as_ref().map(|Designed { calls, usage, repairs, admitted, .. }| {
            let prompts = prompts.iter().map(|prompt| prompt.hash).collect();
            let (usage, repairs) = (usage.bounded(), repairs.bounded());
            Architect { calls: *calls, usage, repairs, prompts, admitted: admitted.clone() }
        });
        let genesis =
            Genesis { mode, architect, parent, salt, principal, ..Genesis::new(id.clone(), blueprint, request, at) };
        let (board, step) = Board::create(genesis, &self.running.context.plans)?;
        let opening = self.opening(&id, None)?;
        let claim = self.running.context.journal.journal().claim(&id, false)?;
        let batch = Batch {
            board: id.clone(),
            epoch: board.epoch(),
            expected: None,
            records: step.records.clone(),
            blobs: prompts.into_iter().chain(step.blobs).collect(),
        };
        self.running.context.journal.append(batch).await?;
        let made = Durable { board: &id, records: &step.records, took: began.elapsed() };
        self.running.context.observe(|observer| observer.durable(&made));
        tracing::info!(board = %id, name = board.blueprint().name.as_str(), "the board was made");
        opening.published.publish(Snapshot::of(&board, step.records.last()), step.records);
        let blueprint = Arc::clone(board.blueprint());
        self.open(opening, blueprint, Beginning::Created(Box::new(board), step.effects), claim).await
    }

    /// Takes a board over from its journal and goes on with it. Calls that were under way are lost and made again.
    ///
    /// # Errors
    /// [`JournalError::Owned`] if another process runs it; [`JournalError::NotFound`];
    /// [`RuntimeError::AlreadyRunning`]; [`RuntimeError::Board`] if the records are no board; storage.
    pub async fn resume(&self, board: &BoardId) -> Result<BoardHandle, RuntimeError> {
        self.take_over(board, false, None).await
    }

    /// Like [`Runtime::resume`], but the board is paused before anything else, by the caller whom the record names: nobody is
    /// called until it is resumed. A board that has ended is not paused, and calls nobody either, whatever takes it up again.
    ///
    /// # Errors
    /// As [`Runtime::resume`].
    pub async fn resume_paused(&self, board: &BoardId, by: Option<Principal>) -> Result<BoardHandle, RuntimeError> {
        self.take_over(board, false, Some(Held { by })).await
    }

    /// Like [`Runtime::resume`], also if another process seems to run the board. That one can write no more.
    ///
    /// # Errors
    /// As [`Runtime::resume`], but never [`JournalError::Owned`].
    pub async fn seize(&self, board: &BoardId) -> Result<BoardHandle, RuntimeError> {
        self.take_over(board, true, None).await
    }

    async fn take_over(&self, board: &BoardId, force: bool, held: Option<Held>) -> Result<BoardHandle, RuntimeError> {
        match self.running.boards.get(board) {
            // It was given up and is on its way out.
            Some(published) if published.is_gone() => self.close_board(published).await,
            Some(_) => return Err(RuntimeError::AlreadyRunning(board.clone())),
            None => {}
        }
        let journal = self.running.context.journal.journal();
        let blueprint = Arc::new(blueprint_of(&**journal, board)?);
        let opening = self.opening(board, held)?;
        let claim = journal.claim(board, force)?;
        self.open(opening, blueprint, Beginning::Recover, claim).await
    }

    /// The board as it runs here, or taken over as by [`Runtime::resume`] if it does not. One that is being made or taken
    /// over by somebody else of this runtime is waited for.
    ///
    /// # Errors
    /// As [`Runtime::resume`], [`RuntimeError::AlreadyRunning`] only if it is closed and opened again and again meanwhile.
    pub async fn attach(&self, board: &BoardId) -> Result<BoardHandle, RuntimeError> {
        for _ in 0..ATTACH_TRIES {
            match self.running.boards.get(board) {
                Some(published) if !published.is_gone() => match published.taken_on().await {
                    // Whoever opened it has given it up; perhaps there is none to be opened.
                    Status::Gone(RuntimeError::Closed(_)) => {}
                    Status::Gone(reason) => return Err(reason),
                    Status::Starting | Status::Running | Status::Ended(_) => return Ok(self.handle(published)),
                },
                _ => match self.resume(board).await {
                    Err(RuntimeError::AlreadyRunning(_)) => {}
                    resumed => return resumed,
                },
            }
        }
        Err(RuntimeError::AlreadyRunning(board.clone()))
    }

    /// Keeps a board's place, so that nobody else opens it meanwhile.
    fn opening(&self, board: &BoardId, held: Option<Held>) -> Result<Opening<'_>, RuntimeError> {
        let published = Arc::new(Published::new(board.clone(), held, &self.running.context.options));
        self.running.boards.add(Arc::clone(&published))?;
        Ok(Opening { boards: &self.running.boards, published, is_begun: false })
    }

    /// Starts a board's actors and waits until they have taken it on.
    async fn open(
        &self,
        mut opening: Opening<'_>,
        blueprint: Arc<Blueprint>,
        beginning: Beginning,
        claim: Claim,
    ) -> Result<BoardHandle, RuntimeError> {
        let (context, published) = (Arc::clone(&self.running.context), Arc::clone(&opening.published));
        let arguments = Arguments { context, published: Arc::clone(&published), blueprint, beginning, claim };
        if self.running.root.cast(root::Message::Open(Box::new(arguments))).is_err() {
            return Err(RuntimeError::Closed(published.board().clone()));
        }
        opening.is_begun = true;
        match published.taken_on().await {
            Status::Gone(reason) => Err(reason),
            Status::Starting | Status::Running | Status::Ended(_) => Ok(self.handle(published)),
        }
    }

    /// A board that runs here.
    pub fn board(&self, board: &BoardId) -> Option<BoardHandle> {
        // One that is still being recovered has nothing to show yet.
        self.running
            .boards
            .get(board)
            .filter(|published| published.snapshot().is_some())
            .map(|published| self.handle(published))
    }

    /// The ids of the boards that run here, in order.
    pub fn boards(&self) -> Vec<BoardId> {
        let mut ids: Vec<_> = self.running.boards.all().iter().map(|published| published.board().clone()).collect();
        ids.sort();
        ids
    }

    /// The boards that were made for invocations of a board, with the usage of their calls that are over, by the journal. One
    /// whose records make no board is left out.
    ///
    /// # Errors
    /// Storage.
    pub async fn inside(
        &self,
        outer: &BoardId,
        invocations: Vec<InvocationId>,
    ) -> Result<Vec<(BoardId, Usage)>, RuntimeError> {
        let (context, id) = (Arc::clone(&self.running.context), outer.clone());
        let read = tokio::task::spawn_blocking(move || {
            let journal = &**context.journal.journal();
            let boards = journal.boards()?.into_iter().filter(|summary| summary.parent.as_ref() == Some(&id));
            let inside = boards.filter_map(|summary| {
                let first = journal.records(&summary.id, None, 1).ok()?.pop()?;
                let Ok(Body::Created(created)) = first.body() else { return None };
                created.parent.filter(|parent| invocations.contains(&parent.invocation))?;
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

    /// How many steps wait for the journal writer.
    pub fn journal_queue(&self) -> usize {
        self.running.context.journal.queued()
    }

    /// The last durable picture of a board that runs here.
    pub fn snapshot(&self, board: &BoardId) -> Option<Arc<Snapshot>> {
        self.running.boards.get(board)?.snapshot()
    }

    /// Every record of a board after `after` (`None`: from the first), once [`Runtime::snapshot`] includes it; of one that
    /// does not run here, those there are.
    pub fn watch(&self, board: &BoardId, after: Option<Seq>) -> Subscription {
        let live = self.running.boards.get(board).and_then(|published| published.listen());
        Subscription::new(Arc::clone(self.running.context.journal.journal()), board.clone(), after, live)
    }

    /// Stops one board: what has reached its kernel is decided and made durable, calls under way are given up. It can
    /// be resumed.
    pub async fn close(&self, board: &BoardId) {
        if let Some(published) = self.running.boards.get(board) {
            self.close_board(published).await;
        }
    }

    /// Closes all boards and ends. From its beginning on no board is made or taken over.
    pub async fn shutdown(&self) {
        self.running.boards.shut();
        for published in self.running.boards.all() {
            self.close_board(published).await;
        }
        // The journal writer has nothing left to do: every kernel has had its answer.
        self.running.root.get_cell().stop_children_and_wait(None, None).await;
        if let Err(error) = self.running.root.stop_and_wait(None, None).await {
            tracing::debug!(%error, "the root actor had ended before");
        }
    }

    async fn close_board(&self, published: Arc<Published>) {
        published.close();
        if let Some(supervisor) = published.supervisor().await {
            let (done, closed) = oneshot::channel();
            if supervisor.cast(board::Message::Close(done)).is_ok() {
                // Without an answer it has ended on its own.
                drop(closed.await);
            }
            // The claim on the board ends with the supervisor.
            drop(supervisor.wait(None).await);
        }
        self.running.boards.remove(&published);
        // A supervisor that failed meanwhile leaves it to the root, which may be ending, too.
        if !published.is_gone() {
            self.running.context.gone(&published, RuntimeError::Closed(published.board().clone()));
        }
    }

    fn handle(&self, published: Arc<Published>) -> BoardHandle {
        BoardHandle { context: Arc::clone(&self.running.context), published, principal: None }
    }
}

/// The place of a board that is being opened. It is free again if that comes to nothing, also because nobody waits any more.
struct Opening<'a> {
    boards: &'a Boards,
    published: Arc<Published>,
    /// Whether its actors have it from here on.
    is_begun: bool,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if !self.is_begun {
            self.boards.remove(&self.published);
            self.published.gone(RuntimeError::Closed(self.published.board().clone()));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.root.stop(None);
    }
}

/// The blueprint in a board's first record.
fn blueprint_of(journal: &dyn Journal, board: &BoardId) -> Result<Blueprint, RuntimeError> {
    let first = journal.records(board, None, 1)?;
    let Some(first) = first.first() else { return Err(JournalError::NotFound(format!("board {board}")).into()) };
    let bad = |message: String| BoardError::BadRecord { seq: first.seq, message };
    match first.body().map_err(|error| bad(error.to_string()))? {
        Body::Created(created) => serde_json::from_value(created.blueprint)
            .map_err(|error| bad(format!("this version cannot read its blueprint: {error}")).into()),
        other => Err(bad(format!("a journal begins with created, not {}", other.kind())).into()),
    }
}

/// A board that runs here. Cheap to clone.
#[derive(Clone)]
pub struct BoardHandle {
    context: Arc<Context>,
    published: Arc<Published>,
    /// The caller whom records name that are caused through this handle.
    principal: Option<Principal>,
}

impl BoardHandle {
    /// Returns a handle of a caller from outside: records that are caused through it name the caller.
    #[must_use]
    pub fn by(&self, principal: Principal) -> Self {
        Self { principal: Some(principal), ..self.clone() }
    }

    async fn ask(&self, input: Input) -> Result<Decided, RuntimeError> {
        self.published.ask(input, self.principal.clone()).await
    }

    /// The board.
    pub fn id(&self) -> &BoardId {
        self.published.board()
    }

    /// Its last durable picture.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.published.snapshot().expect("a handle is given out after the first snapshot")
    }

    /// Every record after `after` (`None`: from the first), once [`BoardHandle::snapshot`] includes it. If the board goes,
    /// those that are durable and not in it come last.
    pub fn subscribe(&self, after: Option<Seq>) -> Subscription {
        let journal = Arc::clone(self.context.journal.journal());
        Subscription::new(journal, self.id().clone(), after, self.published.listen())
    }

    /// Folds the records after `after` (`None`: from the first), up to the last one published, off the threads that serve
    /// boards.
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
            (Arc::clone(self.context.journal.journal()), self.id().clone(), self.snapshot().head.seq);
        let read = tokio::task::spawn_blocking(move || {
            let (mut folded, mut last) = (initial, after);
            while last.is_none_or(|last| last < head) {
                let page = journal.records(&board, last, PAGE)?;
                let Some(end) = page.last() else { break };
                last = Some(end.seq);
                page.iter().filter(|record| record.seq <= head).for_each(|record| fold(&mut folded, record));
            }
            Ok(folded)
        });
        let crashed = |error: JoinError| RuntimeError::Crashed { board: self.id().clone(), reason: error.to_string() };
        read.await.map_err(crashed)?
    }

    /// Puts a proposal to the kernel; answers once the outcome is durable.
    ///
    /// # Errors
    /// [`RuntimeError::Interrupted`], [`RuntimeError::Closed`]; storage, after which the proposal may nevertheless have
    /// been recorded.
    pub async fn propose(&self, proposal: Proposal) -> Result<Outcome, RuntimeError> {
        let decided = self.ask(Input::Propose(proposal)).await?;
        decided.outcome.ok_or_else(|| RuntimeError::Interrupted(self.id().clone()))
    }

    /// Changes files of the board's workspace, or tells that they have changed. Answers once what becomes of it is durable,
    /// or with [`Outcome::Refused`] if it is nobody's any more. The files themselves are the caller's.
    ///
    /// # Errors
    /// As [`BoardHandle::propose`].
    pub async fn edit(&self, edit: Edit) -> Result<Outcome, RuntimeError> {
        let decided = self.ask(Input::Edit(edit)).await?;
        decided.outcome.ok_or_else(|| RuntimeError::Interrupted(self.id().clone()))
    }

    /// Asks whether an attempt whose call is answered may make another one, which may take `reserve` tokens; `usage` is what
    /// the answered one cost. Answers once that is durable: with [`Outcome::Continued`]; or with [`Outcome::Refused`] if the
    /// attempt is over, or is with this because the budgets do not suffice ([`Code::BudgetExhausted`]).
    ///
    /// [`Code::BudgetExhausted`]: patchboard_kernel::rejection::Code::BudgetExhausted
    ///
    /// # Errors
    /// As [`BoardHandle::propose`].
    pub async fn go_on(
        &self,
        invocation: InvocationId,
        attempt: u32,
        usage: Option<Usage>,
        reserve: u64,
    ) -> Result<Outcome, RuntimeError> {
        let decided = self.ask(Input::Continue { invocation, attempt, usage, reserve }).await?;
        decided.outcome.ok_or_else(|| RuntimeError::Interrupted(self.id().clone()))
    }

    /// Tells the kernel that an attempt ends without a proposal. Answers once that is durable: whether it counted, which it
    /// does not if the attempt is over.
    ///
    /// # Errors
    /// As [`BoardHandle::propose`].
    pub async fn fail(&self, invocation: InvocationId, attempt: u32, failure: Failure) -> Result<bool, RuntimeError> {
        let Failure { code, message, usage, deferral: _ } = failure;
        let decided = self.ask(Input::AgentFailed { invocation, attempt, code, message, usage }).await?;
        Ok(decided.recorded)
    }

    /// Sends a signal, or asks for a manual rule by its name. Answers once it is durable; with a `token` a repetition is
    /// answered like the first.
    ///
    /// # Errors
    /// [`RuntimeError::Over`] if the board has ended for good; [`RuntimeError::TokenConflict`];
    /// [`RuntimeError::BadSignal`] or [`RuntimeError::Unheard`], and then nothing is recorded; as [`BoardHandle::propose`].
    pub async fn signal(&self, name: &str, value: Value, token: Option<Token>) -> Result<Heard, RuntimeError> {
        self.request(Input::Signal { name: name.to_owned(), value, token }).await
    }

    /// Gives a request that is recorded unless the board has ended for good, or heard it before.
    async fn request(&self, input: Input) -> Result<Heard, RuntimeError> {
        let decided = self.ask(input).await?;
        match decided.outcome {
            Some(Outcome::Duplicate(_)) => Ok(Heard::Before),
            Some(Outcome::Refused(rejection)) if rejection.stage == Stage::Schema => {
                Err(RuntimeError::BadSignal { board: self.id().clone(), violations: rejection.violations })
            }
            Some(Outcome::Refused(rejection)) if rejection.code == Code::TokenConflict => {
                Err(RuntimeError::TokenConflict(self.id().clone()))
            }
            Some(Outcome::Refused(rejection)) => {
                let code = rejection.code;
                let message = rejection.violations.into_iter().next().map(|first| first.message).unwrap_or_default();
                Err(RuntimeError::Unheard { board: self.id().clone(), code, message })
            }
            _ if decided.recorded => Ok(Heard::Now),
            _ => Err(RuntimeError::Over(self.id().clone())),
        }
    }

    /// Gives a person's answer to a question of the board. Answers once what comes of it is durable, or with [`Outcome::Refused`] if the answer does not count.
    ///
    /// # Errors
    /// As [`BoardHandle::propose`].
    pub async fn answer(&self, answer: Answer) -> Result<Outcome, RuntimeError> {
        let decided = self.ask(Input::Answer(answer)).await?;
        decided.outcome.ok_or_else(|| RuntimeError::Interrupted(self.id().clone()))
    }

    /// Dispatches no more. A board that is paused already stays so. For `token` see [`BoardHandle::signal`].
    ///
    /// # Errors
    /// As [`BoardHandle::signal`].
    pub async fn pause(&self, token: Option<Token>) -> Result<Heard, RuntimeError> {
        self.steer(Input::Pause { token }).await
    }

    /// Dispatches again. A board that is not paused goes on as it did. For `token` see [`BoardHandle::signal`].
    ///
    /// # Errors
    /// As [`BoardHandle::signal`].
    pub async fn resume(&self, token: Option<Token>) -> Result<Heard, RuntimeError> {
        self.steer(Input::Resume { token }).await
    }

    /// Queues again what the board gave up, with its trigger, and raises limits. Answers once it is durable; with a token a
    /// repetition is answered like the first.
    ///
    /// # Errors
    /// [`RuntimeError::CannotRetry`], and then nothing is recorded; [`RuntimeError::TokenConflict`]; as
    /// [`BoardHandle::propose`].
    pub async fn retry(&self, retried: Retried) -> Result<Heard, RuntimeError> {
        let decided = self.ask(Input::Retry(retried)).await?;
        match decided.outcome {
            Some(Outcome::Duplicate(_)) => Ok(Heard::Before),
            Some(Outcome::Refused(rejection)) if rejection.code == Code::TokenConflict => {
                Err(RuntimeError::TokenConflict(self.id().clone()))
            }
            Some(Outcome::Refused(rejection)) => Err(RuntimeError::cannot_retry(self.id(), rejection)),
            _ => Ok(Heard::Now),
        }
    }

    /// Ends the board. One that was cancelled before stays so.
    ///
    /// # Errors
    /// As [`BoardHandle::signal`].
    pub async fn cancel(&self) -> Result<Heard, RuntimeError> {
        self.steer(Input::Cancel).await
    }

    async fn steer(&self, input: Input) -> Result<Heard, RuntimeError> {
        let is_cancel = matches!(input, Input::Cancel);
        match self.request(input).await {
            Err(RuntimeError::Over(board)) => match self.snapshot().ended.filter(|ended| ended.is_final()) {
                // It ends once, and has ended as was asked.
                Some(ended) if is_cancel && ended.end == End::Cancelled => Ok(Heard::Before),
                Some(_) => Err(RuntimeError::Over(board)),
                // It was so already.
                None => Ok(Heard::Before),
            },
            heard => heard,
        }
    }

    /// Waits until the board has ended, or cannot go on.
    ///
    /// # Errors
    /// What stopped it: storage, too many failures, or that it was closed.
    pub async fn ended(&self) -> Result<Ended, RuntimeError> {
        self.ended_as(|_| true).await
    }

    /// Waits until the board has ended for good: one that stands still may go on.
    ///
    /// # Errors
    /// It does not go on here.
    pub async fn ended_for_good(&self) -> Result<Ended, RuntimeError> {
        self.ended_as(Ended::is_final).await
    }

    async fn ended_as(&self, wanted: impl Fn(Ended) -> bool) -> Result<Ended, RuntimeError> {
        let is_wanted = |status: &Status| match status {
            Status::Ended(ended) => wanted(*ended),
            Status::Gone(_) => true,
            Status::Starting | Status::Running => false,
        };
        match self.published.status(is_wanted).await {
            Status::Ended(ended) => Ok(ended),
            Status::Gone(reason) => Err(reason),
            Status::Starting | Status::Running => Err(RuntimeError::Closed(self.id().clone())),
        }
    }

    /// Ends the board's kernel actor as a crash would, for trying what happens then.
    pub fn crash(&self) {
        self.published.kill_kernel();
    }
}

#[cfg(test)]
mod tests;
