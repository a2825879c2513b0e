//! Starts, finds and stops boards.
//!
//! The interface of this crate: all callers use a [`Runtime`] and its [`BoardHandle`]s, never an actor.

use std::sync::{Arc, Weak};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Blob, Board, BoardError, NewBoard};
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::driver::Batch;
use patchboard_kernel::id::{BoardId, InvocationId, Seq};
use patchboard_kernel::json;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::plan::UncachedPlans;
use patchboard_kernel::record::{Architect, Body, Principal};
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::{Claim, Journal, JournalError};
use ractor::{Actor, ActorRef};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use crate::actors::Context;
use crate::actors::messages::{StartMode, WriterMessage};
use crate::actors::root::{self, Opening, Root, RootMessage, WriterSlot};
use crate::board_channel::{BoardChannel, Boards, DispatchHold, Lifecycle};
use crate::error::{Result, RuntimeError};
use crate::group_commit::GroupCommit;
use crate::handle::BoardHandle;
use crate::observer::DurableStep;
use crate::options::{ArchitectUsage, CreateOptions, Options};
use crate::plan_cache::PlanCache;
use crate::recovery;
use crate::snapshotter;
use crate::status::BoardStatus;
use crate::subscription::Subscription;

/// Tries of one request to resume a board that is closed meanwhile.
const RESUME_TRIES_MAX: u32 = 8;

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
    /// Starts the actors shared by all boards. `plans` compiles their blueprints.
    pub async fn start(journal: Arc<dyn Journal>, options: Options, plans: UncachedPlans) -> Result<Self> {
        if !json::is_lossless() {
            tracing::warn!(
                "serde_json has the feature raw_value or arbitrary_precision: a record can become unreadable"
            );
        }
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
            plans: PlanCache::new(plans),
            snapshot_permits: Arc::new(Semaphore::new(snapshotter::CONCURRENT_TASKS_MAX)),
        });
        let boards = Arc::new(Boards::default());
        let arguments = root::Arguments { context: Arc::clone(&context), boards: Arc::clone(&boards), writer };
        let spawned = Actor::spawn(None, Root, arguments).await;
        let (root, _) = spawned.map_err(|error| RuntimeError::Start(error.to_string()))?;
        Ok(Self { running: Arc::new(RuntimeInner { context, boards, root }) })
    }

    /// Returns a weak handle.
    pub fn downgrade(&self) -> WeakRuntime {
        WeakRuntime { running: Arc::downgrade(&self.running) }
    }

    /// Creates a new board and runs it. `salt` is set only for reproducible runs. Fails with [`RuntimeError::Board`] if
    /// blueprint or request is invalid.
    pub async fn create(&self, blueprint: Blueprint, request: Value, salt: Option<Salt>) -> Result<BoardHandle> {
        self.create_with(blueprint, request, CreateOptions { salt, ..CreateOptions::default() }).await
    }

    /// Like [`Runtime::create`], with options.
    pub async fn create_with(
        &self,
        mut blueprint: Blueprint,
        request: Value,
        founding: CreateOptions,
    ) -> Result<BoardHandle> {
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
        let (epoch, records) = (board.epoch(), step.records.clone());
        let blobs = prompts.into_iter().chain(step.blobs).collect();
        let batch = Batch { board: id.clone(), epoch, expected: None, records, blobs };
        self.running.context.journal.append(batch).await?;
        let made = DurableStep { board: &id, records: &step.records, took: began.elapsed() };
        self.running.context.observe(|observer| observer.on_durable_step(&made));
        tracing::info!(board = %id, name = board.blueprint().name.as_str(), "the board was made");
        opening.channel.publish(BoardStatus::new(&board, step.records.last()), step.records);
        let blueprint = Arc::clone(board.blueprint());
        self.open(opening, blueprint, StartMode::Created(Box::new(board), step.effects), claim).await
    }

    /// Takes a board over from its journal and runs it. Calls that were in progress are lost and repeated. Fails with
    /// [`JournalError::Owned`] if another process runs it, and with [`RuntimeError::Board`] if the records are invalid.
    pub async fn resume(&self, board: &BoardId) -> Result<BoardHandle> {
        self.take_over(board, false, None).await
    }

    /// Like [`Runtime::resume`], but first pauses the board, in the name of `by`: it dispatches nothing until it is
    /// resumed. A board that has ended is not paused, but makes no calls either, even if a signal or a retry continues
    /// it.
    pub async fn resume_paused(&self, board: &BoardId, by: Option<Principal>) -> Result<BoardHandle> {
        self.take_over(board, false, Some(DispatchHold { by })).await
    }

    /// Like [`Runtime::resume`], even if another process seems to run the board. That process is fenced off.
    pub async fn resume_forced(&self, board: &BoardId) -> Result<BoardHandle> {
        self.take_over(board, true, None).await
    }

    async fn take_over(&self, board: &BoardId, force: bool, held: Option<DispatchHold>) -> Result<BoardHandle> {
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

    /// Returns the running board, or resumes it as [`Runtime::resume`] does. Waits while another caller of this runtime
    /// creates or resumes it. Fails with [`RuntimeError::AlreadyRunning`] only if it is repeatedly closed and opened
    /// meanwhile.
    pub async fn get_or_resume(&self, board: &BoardId) -> Result<BoardHandle> {
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
    fn reserve(&self, board: &BoardId, held: Option<DispatchHold>) -> Result<BoardReservation<'_>> {
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
    ) -> Result<BoardHandle> {
        let published = Arc::clone(&opening.channel);
        let board = Opening { channel: Arc::clone(&published), blueprint, beginning, claim };
        if self.running.root.cast(RootMessage::Open(Box::new(board))).is_err() {
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
    pub async fn nested_boards(
        &self,
        outer: &BoardId,
        invocations: Vec<InvocationId>,
    ) -> Result<Vec<(BoardId, Usage)>> {
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
        if self.running.root.cast(RootMessage::Close(Arc::clone(&published))).is_ok() {
            return published.until_closed().await;
        }
        // The root has ended.
        self.running.boards.remove(&published);
        if !published.is_closed() {
            let closed = RuntimeError::Closed(published.board().clone());
            self.running.context.board_closed(&published, closed);
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
async fn blueprint_of(journal: &dyn Journal, board: &BoardId) -> Result<Blueprint> {
    let first = journal.records(board, None, 1).await?;
    let Some(first) = first.first() else { return Err(JournalError::NotFound(format!("board {board}")).into()) };
    let bad = |message: String| BoardError::BadRecord { seq: first.seq, message };
    match first.body().map_err(|error| bad(error.to_string()))? {
        Body::Created(created) => serde_json::from_value(created.blueprint.clone())
            .map_err(|error| bad(format!("this version cannot read its blueprint: {error}")).into()),
        other => Err(bad(format!("a journal begins with created, not {}", other.kind())).into()),
    }
}

#[cfg(test)]
mod tests;
