//! Owns the board: takes one input at a time, and lets nobody see what came of it before it is durable.
//!
//! If an append fails, the board in memory is ahead of the journal and is dropped with the actor; its supervisor makes
//! another one from the journal.

use std::sync::Arc;

use patchboard_kernel::board::{Board, BoardError, Effect, From, Input, Outcome, Proposal};
use patchboard_kernel::id::{BoardId, Seq, Token};
use patchboard_kernel::record::Record;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{Context, Durable, breaker, scheduler};
use crate::journal::{Batch, Head, Journal};
use crate::published::Published;
use crate::runtime::RuntimeError;
use crate::snapshot::Snapshot;

pub(crate) enum Message {
    /// Everybody is in place.
    Begin { beginning: Beginning, scheduler: ActorRef<scheduler::Message>, breaker: ActorRef<breaker::Message> },
    /// Something happens to the board.
    Decide { input: Input, asker: Option<Asker> },
}

/// Where the board comes from.
pub(crate) enum Beginning {
    /// It was just made and is durable; this is to be done.
    Created(Box<Board>, Vec<Effect>),
    /// From the journal.
    Recover,
    /// From the journal, only to end it.
    MeltDown,
}

/// Who waits for what comes of an input from outside.
pub(crate) struct Asker {
    pub(crate) answer: oneshot::Sender<Result<Decided, RuntimeError>>,
    /// The place in the queue that the request takes up.
    pub(crate) _place: OwnedSemaphorePermit,
}

/// What came of an input, now durable.
pub(crate) struct Decided {
    pub(crate) outcome: Option<Outcome>,
    /// Whether anything was recorded.
    pub(crate) recorded: bool,
}

pub(crate) struct State {
    context: Arc<Context>,
    published: Arc<Published>,
    running: Option<Running>,
}

struct Running {
    board: Board,
    scheduler: ActorRef<scheduler::Message>,
    breaker: ActorRef<breaker::Message>,
}

pub(crate) struct KernelActor;

impl Actor for KernelActor {
    type Msg = Message;
    type State = State;
    type Arguments = (Arc<Context>, Arc<Published>);

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        (context, published): (Arc<Context>, Arc<Published>),
    ) -> Result<State, ActorProcessingErr> {
        Ok(State { context, published, running: None })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Begin { beginning, scheduler, breaker } => state.begin(beginning, scheduler, breaker).await?,
            Message::Decide { input, asker } => {
                let decided = state.decide(input).await;
                let failure = decided.as_ref().err().cloned();
                if let Some(asker) = asker {
                    // Whoever asked may have stopped waiting; the decision stands.
                    drop(asker.answer.send(decided));
                }
                if let Some(failure) = failure {
                    return Err(failure.into());
                }
            }
        }
        Ok(())
    }
}

impl State {
    async fn begin(
        &mut self,
        beginning: Beginning,
        scheduler: ActorRef<scheduler::Message>,
        breaker: ActorRef<breaker::Message>,
    ) -> Result<(), RuntimeError> {
        let melts = matches!(beginning, Beginning::MeltDown);
        match beginning {
            Beginning::Created(board, effects) => {
                let running = self.running.insert(Running { board: *board, scheduler, breaker });
                running.hand_on(effects);
                self.published.running();
            }
            Beginning::Recover | Beginning::MeltDown => {
                // What became durable just before a crash was shown to nobody. Its readers see that the next record's
                // number does not follow, and read what is missing.
                let board = recover(&self.context, self.published.board()).await?;
                let epoch = board.epoch() + 1;
                self.running = Some(Running { board, scheduler, breaker });
                let writer = self.context.options.ids.writer();
                self.decide(Input::TakeOver { epoch, writer }).await?;
                if melts {
                    self.decide(Input::Meltdown).await?;
                }
                self.published.running();
            }
        }
        Ok(())
    }

    async fn decide(&mut self, input: Input) -> Result<Decided, RuntimeError> {
        let Some(running) = &mut self.running else {
            // It cannot be: addresses are given out after `Begin` was sent.
            return Err(RuntimeError::Interrupted(self.published.board().clone()));
        };
        let board = &mut running.board;
        let (seq, hash) = board.head();
        let is_tick = matches!(input, Input::Tick);
        let answered = answered(&input);
        let mut step = board.step(self.context.options.clock.now(), input);
        let recorded = !step.records.is_empty();
        if recorded {
            let batch = Batch {
                board: board.id().clone(),
                epoch: board.epoch(),
                expected: Some(Head { seq, hash }),
                records: step.records.clone(),
                blobs: step.blobs,
            };
            self.context.journal.append(batch).await?;
            self.published.publish(Snapshot::of(board, step.records.last()), step.records);
        }
        if let Some(token) = answered {
            self.context.options.agent.settled(board.id(), &token);
        }
        // A clock that was set back makes an alarm ring early; it is set again.
        let has_alarm = step.effects.iter().any(|effect| matches!(effect, Effect::WakeAt(_)));
        if is_tick
            && !has_alarm
            && let Some(at) = board.wake_at()
        {
            step.effects.push(Effect::WakeAt(at));
        }
        running.hand_on(step.effects);
        Ok(Decided { outcome: step.outcome, recorded })
    }
}

impl Running {
    /// Lets the other actors do what is to be done. If one of them has ended, its supervisor knows already.
    fn hand_on(&self, effects: Vec<Effect>) {
        if effects.is_empty() {
            return;
        }
        let durable = Arc::new(Durable { seq: self.board.head().0, effects });
        drop(self.breaker.cast(breaker::Message::Durable(Arc::clone(&durable))));
        drop(self.scheduler.cast(scheduler::Message::Durable(durable)));
    }
}

/// The token of the attempt that an input answers.
fn answered(input: &Input) -> Option<Token> {
    match input {
        Input::Propose(Proposal { from: From::Attempt { invocation, attempt }, .. })
        | Input::AgentFailed { invocation, attempt, .. } => Some(Token::of(*invocation, *attempt)),
        Input::Propose(_)
        | Input::Tick
        | Input::Signal { .. }
        | Input::Pause
        | Input::Resume
        | Input::Cancel
        | Input::Meltdown
        | Input::TakeOver { .. } => None,
    }
}

/// How many records are read at once.
const PAGE: usize = 512;

/// Reads the journal and folds it, off the threads that serve other boards.
async fn recover(context: &Arc<Context>, board: &BoardId) -> Result<Board, RuntimeError> {
    let journal = Arc::clone(context.journal.journal());
    let id = board.clone();
    let recovered = tokio::task::spawn_blocking(move || {
        let mut records: Vec<Record> = Vec::new();
        loop {
            let last: Option<Seq> = records.last().map(|record| record.seq);
            let page = Journal::records(&*journal, &id, last, PAGE)?;
            if page.is_empty() {
                break;
            }
            records.extend(page);
        }
        let board = Board::recover(&records)?;
        if *board.id() != id {
            let message = format!("it is of board {}", board.id());
            return Err(BoardError::BadRecord { seq: Seq(0), message }.into());
        }
        Ok::<_, RuntimeError>(board)
    });
    recovered.await.unwrap_or_else(|error| {
        Err(RuntimeError::Crashed { board: board.clone(), reason: format!("recovering the board: {error}") })
    })
}
