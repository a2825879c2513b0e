//! Supervises the journal writer and the boards' kernels. A fault of one does not reach another.
//!
//! A board's other actors are children of its kernel actor, and end with it. So a failed board is restarted by another
//! kernel actor, which recovers it from the journal.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::blueprint::Blueprint;
use patchboard_storage::journal::Claim;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::time::Instant;

use super::journal_writer::JournalWriter;
use super::kernel::{self, KernelActor};
use super::messages::{StartMode, WriterMessage};
use super::restarts::{Failures, may_pass};
use super::{ActorResult, Context, Task, guarded};
use crate::board_channel::{BoardChannel, Boards};
use crate::error::RuntimeError;
use crate::observer::RestartScope;

pub(crate) enum RootMessage {
    /// From the runtime: starts the actors of a board. Its later state is published.
    Open(Box<Opening>),
    /// From the runtime: lets the board's kernel decide the inputs it has received, then ends the board here.
    Close(Arc<BoardChannel>),
    /// From the root itself, after a pause: restarts the actors of a board.
    Restart(Arc<BoardChannel>),
    /// From the root itself, after a pause: replaces a journal writer that has failed.
    ReplaceWriter,
}

impl RootMessage {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Open(_) => "open",
            Self::Close(_) => "close",
            Self::Restart(_) => "restart",
            Self::ReplaceWriter => "replace_writer",
        }
    }

    const fn channel(&self) -> Option<&Arc<BoardChannel>> {
        match self {
            Self::Open(opening) => Some(&opening.channel),
            Self::Close(channel) | Self::Restart(channel) => Some(channel),
            Self::ReplaceWriter => None,
        }
    }
}

/// Board to be started.
pub(crate) struct Opening {
    pub(crate) channel: Arc<BoardChannel>,
    pub(crate) blueprint: Arc<Blueprint>,
    pub(crate) beginning: StartMode,
    pub(crate) claim: Claim,
}

/// Board with a running kernel actor, or in the pause before its restart.
struct SupervisedBoard {
    channel: Arc<BoardChannel>,
    blueprint: Arc<Blueprint>,
    failures: Failures,
    /// True once the board is only being ended.
    is_melting: bool,
    /// Released before clients see that the board is gone, so that they can claim it.
    _claim: Claim,
}

/// Address of the journal writer; empty while it is being replaced.
pub(crate) type WriterSlot = Arc<arc_swap::ArcSwapOption<ActorRef<WriterMessage>>>;

pub(crate) struct Arguments {
    pub(crate) context: Arc<Context>,
    pub(crate) boards: Arc<Boards>,
    pub(crate) writer: WriterSlot,
}

pub(crate) struct State {
    context: Arc<Context>,
    boards: Arc<Boards>,
    writer: WriterSlot,
    writer_failures: Failures,
    /// A message to replace the writer is pending: a writer that failed to start may also be reported as ended.
    is_writer_due: bool,
    /// By kernel actor.
    running: HashMap<ActorId, SupervisedBoard>,
    /// Failed boards, each with the timer of its restart.
    pausing: Vec<(SupervisedBoard, Task)>,
}

/// Longest pause before another journal writer starts, after many have failed.
const WRITER_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Target of log lines about failed boards. Commands that report the failure themselves filter it.
const RESTARTS: &str = "patchboard_runtime::restarts";

/// Time for a kernel that is closed to decide the inputs it has received. Then it is killed.
const CLOSING_MAX: Duration = Duration::from_secs(10);

pub(crate) struct Root;

impl Actor for Root {
    type Msg = RootMessage;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(&self, myself: ActorRef<RootMessage>, arguments: Arguments) -> ActorResult<State> {
        let state = State::new(arguments);
        state.start_writer(myself.get_cell()).await?;
        Ok(state)
    }

    async fn handle(&self, myself: ActorRef<RootMessage>, message: RootMessage, state: &mut State) -> ActorResult {
        let channel = message.channel().cloned();
        if matches!(message, RootMessage::ReplaceWriter) {
            state.is_writer_due = false;
        }
        // The root's failure would end all boards: a message costs at most its own board.
        if let Err(reason) = guarded(state.take(&myself, message)).await {
            match channel {
                Some(channel) => state.message_failed(&channel, reason),
                None => state.writer_failed(&myself, &reason),
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<RootMessage>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> ActorResult {
        // A child that ended without a reason was stopped on purpose, as the writer at a shutdown.
        let (child, mut error) = match event {
            SupervisionEvent::ActorTerminated(child, _, reason) => (child, reason.map(ActorProcessingErr::from)),
            SupervisionEvent::ActorFailed(child, error) => (child, Some(error)),
            _ => return Ok(()),
        };
        // The end of a child must be handled: after a panic it is tried once more.
        let mut ended = Err(String::new());
        for _ in 0..2 {
            ended = guarded(async { state.child_ended(&myself, child.get_id(), &mut error) }).await;
            if ended.is_ok() {
                break;
            }
        }
        Ok(ended?)
    }
}

impl State {
    fn new(Arguments { context, boards, writer }: Arguments) -> Self {
        let writer_failures = Failures::new(context.options.restarts);
        let (running, pausing) = (HashMap::new(), Vec::new());
        Self { context, boards, writer, writer_failures, is_writer_due: false, running, pausing }
    }

    async fn start_writer(&self, myself: ActorCell) -> ActorResult {
        let (writer, _) = Actor::spawn_linked(None, JournalWriter, Arc::clone(&self.context), myself).await?;
        self.writer.store(Some(Arc::new(writer.clone())));
        // Flushes records queued while there was no writer.
        Ok(writer.cast(WriterMessage::Flush)?)
    }

    async fn take(&mut self, myself: &ActorRef<RootMessage>, message: RootMessage) {
        self.context.options.failpoints.hit("root", message.kind());
        match message {
            RootMessage::Open(opening) => {
                let Opening { channel, blueprint, beginning, claim } = *opening;
                let failures = Failures::new(self.context.options.restarts);
                let board = SupervisedBoard { channel, blueprint, failures, is_melting: false, _claim: claim };
                self.start(myself, board, beginning).await;
            }
            RootMessage::Restart(channel) => {
                if let Some(board) = self.take_pausing(&channel) {
                    let beginning = if board.is_melting { StartMode::MeltDown } else { StartMode::Recover };
                    self.start(myself, board, beginning).await;
                }
            }
            RootMessage::Close(channel) => {
                if let Some(board) = self.take_pausing(&channel) {
                    let closed = RuntimeError::Closed(channel.board().clone());
                    self.board_gone(board, closed);
                } else if let Some(kernel) = channel.clear_kernel() {
                    tokio::spawn(async move {
                        if kernel.drain_and_wait(Some(CLOSING_MAX)).await.is_err() {
                            kernel.kill();
                        }
                    });
                }
            }
            RootMessage::ReplaceWriter => {
                if let Err(error) = self.start_writer(myself.get_cell()).await {
                    self.writer_failed(myself, &error.to_string());
                }
            }
        }
    }

    /// Starts the kernel actor of a board, unless closing the board was requested meanwhile.
    async fn start(&mut self, myself: &ActorRef<RootMessage>, board: SupervisedBoard, beginning: StartMode) {
        let channel = Arc::clone(&board.channel);
        if channel.is_closing() {
            return self.board_gone(board, RuntimeError::Closed(channel.board().clone()));
        }
        let arguments = kernel::Arguments {
            context: Arc::clone(&self.context),
            channel: Arc::clone(&channel),
            blueprint: Arc::clone(&board.blueprint),
            beginning,
        };
        match Actor::spawn_linked(None, KernelActor, arguments, myself.get_cell()).await {
            Ok((kernel, _)) => {
                self.running.insert(kernel.get_id(), board);
                channel.set_kernel(kernel);
            }
            Err(error) => {
                let reason = error.to_string();
                self.board_gone(board, crashed(&channel, reason));
            }
        }
    }

    /// Removes a board from the boards that wait for their restart.
    fn take_pausing(&mut self, channel: &Arc<BoardChannel>) -> Option<SupervisedBoard> {
        let at = self.pausing.iter().position(|(board, _)| Arc::ptr_eq(&board.channel, channel))?;
        Some(self.pausing.swap_remove(at).0)
    }

    /// Gives up a board after a panic at one of its messages.
    fn message_failed(&mut self, channel: &Arc<BoardChannel>, reason: String) {
        if let Some(board) = self.take_pausing(channel) {
            self.board_gone(board, crashed(channel, reason));
        } else if let Some(kernel) = channel.clear_kernel() {
            // The rest follows when it has ended.
            kernel.kill();
        } else {
            self.boards.remove(channel);
            self.context.board_closed(channel, crashed(channel, reason));
        }
    }

    /// Handles the end of a child. Takes the error, which is `None` if the child was stopped on purpose.
    fn child_ended(&mut self, myself: &ActorRef<RootMessage>, child: ActorId, error: &mut Option<ActorProcessingErr>) {
        self.context.options.failpoints.hit("root", "child_ended");
        let error = error.take();
        if let Some(board) = self.running.remove(&child) {
            return self.kernel_ended(myself, board, error);
        }
        let is_writer = self.writer.load().as_ref().is_some_and(|writer| writer.get_id() == child);
        if let Some(error) = error.filter(|_| is_writer) {
            self.writer_failed(myself, &error.to_string());
        }
    }

    /// Restarts a board whose kernel has ended, unless the board is closed, the error is permanent, or its actors have
    /// failed too often. A board whose actors crashed too often is started once more, to end it.
    fn kernel_ended(
        &mut self,
        myself: &ActorRef<RootMessage>,
        mut board: SupervisedBoard,
        error: Option<ActorProcessingErr>,
    ) {
        let channel = Arc::clone(&board.channel);
        channel.clear_kernel();
        let id = channel.board();
        let Some(error) = error.filter(|_| !channel.is_closing()) else {
            return self.board_gone(board, RuntimeError::Closed(id.clone()));
        };
        let reason = error.to_string();
        let cause = match error.downcast::<RuntimeError>() {
            Ok(known) => *known,
            Err(_) => crashed(&channel, reason.clone()),
        };
        // A full disk is no fault of the board: it stops as it is and can be resumed once there is space.
        let is_crash = matches!(cause, RuntimeError::Crashed { .. });
        let may_restart = may_pass(&cause) && !board.is_melting;
        let pause = if may_restart { board.failures.next_restart(Instant::now()) } else { None };
        let pause = match pause {
            Some(pause) => {
                let pause_ms = pause.as_millis();
                tracing::warn!(target: RESTARTS, board = %id, reason, pause_ms, "the board's actors failed and are restarted");
                self.context.observe(|observer| observer.on_restart(RestartScope::Board));
                pause
            }
            None if is_crash && !board.is_melting => {
                tracing::error!(target: RESTARTS, board = %id, reason, "the board's actors failed too often; the board ends");
                board.is_melting = true;
                Duration::ZERO
            }
            None => {
                tracing::error!(target: RESTARTS, board = %id, reason, "the board is given up");
                return self.board_gone(board, cause);
            }
        };
        let timer = myself.send_after(pause, move || RootMessage::Restart(channel));
        self.pausing.push((board, Task(timer.abort_handle())));
    }

    /// Replaces the journal writer, which has failed because of a bug. Its successor begins with the queue. If that
    /// happens too often, the queued appends fail instead, so that no board waits forever.
    fn writer_failed(&mut self, myself: &ActorRef<RootMessage>, reason: &str) {
        tracing::error!(reason, "the journal writer failed and is replaced");
        if self.is_writer_due {
            return;
        }
        self.is_writer_due = true;
        self.context.observe(|observer| observer.on_restart(RestartScope::JournalWriter));
        let pause = self.writer_failures.next_restart(Instant::now()).unwrap_or_else(|| {
            self.context.journal.fail_queued(reason);
            WRITER_PAUSE_MAX
        });
        drop(myself.send_after(pause.min(WRITER_PAUSE_MAX), || RootMessage::ReplaceWriter));
    }

    fn board_gone(&self, board: SupervisedBoard, reason: RuntimeError) {
        let channel = Arc::clone(&board.channel);
        // Releases the claim.
        drop(board);
        // A notified caller may resume the board.
        self.boards.remove(&channel);
        self.context.board_closed(&channel, reason);
    }
}

fn crashed(channel: &BoardChannel, reason: String) -> RuntimeError {
    RuntimeError::Crashed { board: channel.board().clone(), reason }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;
    use crate::agent::{Agent, Call, CallResult};
    use crate::group_commit::GroupCommit;
    use crate::options::Options;
    use crate::plan_cache::PlanCache;
    use patchboard_storage::sqlite::SqliteJournal;

    /// Agent that is never called.
    struct Idle;

    impl Agent for Idle {
        fn call<'a>(&'a self, _: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
            Box::pin(std::future::pending())
        }
    }

    /// Replaces the root in tests: counts the requests for another writer.
    struct Asked(Arc<AtomicUsize>);

    impl Actor for Asked {
        type Msg = RootMessage;
        type State = ();
        type Arguments = ();

        async fn pre_start(&self, _: ActorRef<RootMessage>, (): ()) -> ActorResult {
            Ok(())
        }

        async fn handle(&self, _: ActorRef<RootMessage>, message: RootMessage, (): &mut ()) -> ActorResult {
            self.0.fetch_add(usize::from(message.kind() == "replace_writer"), Ordering::SeqCst);
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_that_is_reported_twice_as_failed_is_replaced_once() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let journal = SqliteJournal::open(dir.path()).expect("the journal opens");
        let options = Options::new(Arc::new(Idle));
        let context = Arc::new(Context {
            journal: GroupCommit::new(Arc::new(journal), || ()),
            options,
            plans: PlanCache::new(patchboard_protocols::PLANS),
            snapshot_permits: Arc::new(Semaphore::new(1)),
        });
        let mut state = State::new(Arguments { context, boards: Arc::default(), writer: WriterSlot::default() });
        let asked = Arc::new(AtomicUsize::new(0));
        let (root, _) = Actor::spawn(None, Asked(Arc::clone(&asked)), ()).await.expect("started");
        state.writer_failed(&root, "its start message could not be sent");
        state.writer_failed(&root, "it has ended");
        tokio::time::sleep(WRITER_PAUSE_MAX * 2).await;
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        root.stop(None);
    }
}
