//! Supervises the journal writer and the boards. A fault of one does not reach another.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use patchboard_kernel::blueprint::Blueprint;
use ractor::{Actor, ActorCell, ActorId, ActorRef, SupervisionEvent};

use tokio::time::Instant;

use super::ActorResult;
use super::board::Failures;
use super::journal_writer::JournalWriter;
use super::messages::{StartMode, WriterMessage};
use super::{Context, board, panic_text};
use crate::board_channel::{BoardChannel, Boards};
use crate::error::RuntimeError;
use crate::observer::RestartScope;

pub(crate) enum RootMessage {
    /// From the runtime: starts the actors of a board. Its later state is published.
    Open(Box<board::Arguments>),
    /// From the root itself, after a pause: restarts a board after its supervisor has failed.
    Reopen(Box<SupervisedBoard>),
    /// From the root itself, after a pause: replaces a journal writer that has failed.
    ReplaceWriter,
}

impl RootMessage {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Open(_) => "open",
            Self::Reopen(_) => "reopen",
            Self::ReplaceWriter => "replace_writer",
        }
    }

    fn channel(&self) -> Option<Arc<BoardChannel>> {
        match self {
            Self::Open(arguments) => Some(Arc::clone(&arguments.channel)),
            Self::Reopen(kept) => Some(Arc::clone(&kept.channel)),
            Self::ReplaceWriter => None,
        }
    }
}

/// State of a board outside its supervisor.
pub(crate) struct SupervisedBoard {
    pub(super) channel: Arc<BoardChannel>,
    blueprint: Arc<Blueprint>,
    failures: Failures,
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
    supervisors: HashMap<ActorId, SupervisedBoard>,
}

/// Longest pause before another journal writer starts, after many have failed.
const WRITER_PAUSE_MAX: Duration = Duration::from_secs(1);

pub(crate) struct Root;

impl Actor for Root {
    type Msg = RootMessage;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(&self, myself: ActorRef<RootMessage>, arguments: Arguments) -> ActorResult<State> {
        let Arguments { context, boards, writer } = arguments;
        let writer_failures = Failures::new(context.options.restarts);
        let state =
            State { context, boards, writer, writer_failures, is_writer_due: false, supervisors: HashMap::new() };
        state.start_writer(myself.get_cell()).await?;
        Ok(state)
    }

    async fn handle(&self, myself: ActorRef<RootMessage>, message: RootMessage, state: &mut State) -> ActorResult {
        let published = message.channel();
        if matches!(message, RootMessage::ReplaceWriter) {
            state.is_writer_due = false;
        }
        // The root's failure would end all boards: a message costs at most its own board.
        if let Err(reason) = guarded(state.take(&myself, message)).await {
            match published {
                Some(published) => state.board_ended(&published, &reason),
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
        let (child, orderly, reason) = match event {
            SupervisionEvent::ActorTerminated(child, _, reason) => {
                (child, reason.is_none(), reason.unwrap_or_default())
            }
            SupervisionEvent::ActorFailed(child, error) => (child, false, error.to_string()),
            _ => return Ok(()),
        };
        // The end of a child must be handled: after a panic it is tried once more.
        let mut ended = guarded(async { state.child_ended(&myself, child.get_id(), orderly, &reason) }).await;
        if ended.is_err() {
            ended = guarded(async { state.child_ended(&myself, child.get_id(), orderly, &reason) }).await;
        }
        Ok(ended?)
    }
}

/// Runs work; returns the text of its panic as an error.
async fn guarded<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let mut work = pin!(work);
    let polled = poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(panicked) => Poll::Ready(Err(panic_text(&*panicked))),
        }
    });
    polled.await
}

impl State {
    async fn start_writer(&self, myself: ActorCell) -> ActorResult {
        let (writer, _) = Actor::spawn_linked(None, JournalWriter, Arc::clone(&self.context), myself).await?;
        self.writer.store(Some(Arc::new(writer.clone())));
        // Flushes records queued while there was no writer.
        Ok(writer.cast(WriterMessage::Flush)?)
    }

    async fn take(&mut self, myself: &ActorRef<RootMessage>, message: RootMessage) {
        self.context.options.failpoints.hit("root", message.kind());
        match message {
            RootMessage::Open(arguments) => {
                let (published, blueprint) = (Arc::clone(&arguments.channel), Arc::clone(&arguments.blueprint));
                let failures = Failures::new(self.context.options.restarts);
                self.open(myself, SupervisedBoard { channel: published, blueprint, failures }, *arguments).await;
            }
            // A caller has asked for its end while it had no supervisor.
            RootMessage::Reopen(kept) if kept.channel.is_closing() || kept.channel.is_closed() => {
                let closed = RuntimeError::Closed(kept.channel.board().clone());
                self.board_gone(&kept.channel, closed);
            }
            RootMessage::Reopen(kept) => {
                // The previous supervisor has released its claim with the rest of its state.
                match self.context.journal.journal().claim(kept.channel.board(), false).await {
                    Ok(claim) => {
                        let arguments = board::Arguments {
                            context: Arc::clone(&self.context),
                            channel: Arc::clone(&kept.channel),
                            blueprint: Arc::clone(&kept.blueprint),
                            beginning: StartMode::Recover,
                            claim,
                        };
                        self.open(myself, *kept, arguments).await;
                    }
                    Err(error) => self.supervisor_failed(myself, *kept, &error.to_string()),
                }
            }
            RootMessage::ReplaceWriter => {
                if let Err(error) = self.start_writer(myself.get_cell()).await {
                    self.writer_failed(myself, &error.to_string());
                }
            }
        }
    }

    fn child_ended(&mut self, myself: &ActorRef<RootMessage>, child: ActorId, orderly: bool, reason: &str) {
        self.context.options.failpoints.hit("root", "child_ended");
        if let Some(kept) = self.supervisors.remove(&child) {
            match orderly {
                true => self.board_ended(&kept.channel, reason),
                false => self.supervisor_failed(myself, kept, reason),
            }
            return;
        }
        let is_writer = self.writer.load().as_ref().is_some_and(|writer| writer.get_id() == child);
        if is_writer && !orderly {
            self.writer_failed(myself, reason);
        }
    }

    async fn open(&mut self, myself: &ActorRef<RootMessage>, kept: SupervisedBoard, arguments: board::Arguments) {
        let spawned = Actor::spawn_linked(None, board::BoardSupervisor, arguments, myself.get_cell()).await;
        match spawned {
            Ok((supervisor, _)) => {
                kept.channel.set_supervisor(supervisor.clone());
                self.supervisors.insert(supervisor.get_id(), kept);
            }
            Err(error) => self.board_ended(&kept.channel, &error.to_string()),
        }
    }

    /// Replaces a board's supervisor, which has failed because of a bug, unless that happens too often or the board is
    /// over anyway.
    fn supervisor_failed(&self, myself: &ActorRef<RootMessage>, mut kept: SupervisedBoard, reason: &str) {
        let board = kept.channel.board().clone();
        let is_over = kept.channel.is_closed() || kept.channel.is_closing();
        let pause = if is_over { None } else { kept.failures.next_restart(Instant::now()) };
        let Some(pause) = pause else { return self.board_ended(&kept.channel, reason) };
        tracing::error!(%board, reason, "the board's supervisor failed and is replaced");
        self.context.observe(|observer| observer.on_restart(RestartScope::Supervisor));
        kept.channel.clear_kernel();
        kept.channel.clear_supervisor();
        drop(myself.send_after(pause, move || RootMessage::Reopen(Box::new(kept))));
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

    /// Reports the end of a board's supervisor, which gives the reason itself unless it failed.
    fn board_ended(&self, published: &Arc<BoardChannel>, reason: &str) {
        let crashed = RuntimeError::Crashed { board: published.board().clone(), reason: reason.to_owned() };
        self.board_gone(published, crashed);
    }

    fn board_gone(&self, published: &Arc<BoardChannel>, reason: RuntimeError) {
        // A notified caller may resume the board.
        self.boards.remove(published);
        self.context.board_closed(published, reason);
    }
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
    async fn a_writer_that_is_told_twice_to_have_failed_is_replaced_once() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let journal = SqliteJournal::open(dir.path()).expect("the journal opens");
        let options = Options::new(Arc::new(Idle));
        let writer_failures = Failures::new(options.restarts);
        let context = Arc::new(Context {
            journal: GroupCommit::new(Arc::new(journal), || ()),
            options,
            plans: PlanCache::default(),
            snapshot_permits: Arc::new(Semaphore::new(1)),
        });
        let mut state = State {
            context,
            boards: Arc::default(),
            writer: WriterSlot::default(),
            writer_failures,
            is_writer_due: false,
            supervisors: HashMap::new(),
        };
        let asked = Arc::new(AtomicUsize::new(0));
        let (root, _) = Actor::spawn(None, Asked(Arc::clone(&asked)), ()).await.expect("started");
        state.writer_failed(&root, "it could not be told to begin");
        state.writer_failed(&root, "it has ended");
        tokio::time::sleep(WRITER_PAUSE_MAX * 2).await;
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        root.stop(None);
    }
}
