//! Owns the board: takes one input at a time, and releases its effects only after its records are durable.
//!
//! If an append fails, the board in memory is ahead of the journal and is dropped with the actor; the root
//! starts another one, which recovers from the journal.

mod snapshots;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use patchboard_kernel::admission::WaitingCall;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Cancellation, Effects, Input, Outcome, Proposal, ProposalSource};
use patchboard_kernel::driver::Driver;
use patchboard_kernel::id::{BoardId, IdempotencyKey};
use patchboard_kernel::record::{Body, Ended, Epoch, Kind, Principal};
use ractor::{Actor, ActorRef, SupervisionEvent};

use super::admission::{self, WaitingCalls};
use super::breaker::{self, BreakerActor};
use super::messages::{BreakerMessage, CallKey, InputResult, KernelMessage, SchedulerMessage, StartMode};
use super::scheduler::{self, SchedulerActor};
use super::{ActorResult, Context};
use crate::agent::{AdmissionDecision, Call, Permit};
use crate::board_channel::BoardChannel;
use crate::clock::BoardClock;
use crate::cpu_time;
use crate::error::RuntimeError;
use crate::failpoints::Failpoints;
use crate::observer;
use crate::recovery::{self, Recovered};
use crate::snapshotter::Snapshotter;
use crate::status::BoardStatus;

/// State of the kernel actor. Futures of messages are boxed: the actor's own future would have room for the largest
/// as long as the board lives.
pub(crate) struct State {
    myself: ActorRef<KernelMessage>,
    probe: Failpoints,
    context: Arc<Context>,
    channel: Arc<BoardChannel>,
    clock: Arc<BoardClock>,
    /// Set until the board begins.
    start: Option<Box<(StartMode, Arc<Blueprint>)>>,
    running: Option<Box<ActiveBoard>>,
}

pub(crate) struct Arguments {
    pub(crate) context: Arc<Context>,
    pub(crate) channel: Arc<BoardChannel>,
    pub(crate) blueprint: Arc<Blueprint>,
    pub(crate) beginning: StartMode,
}

struct ActiveBoard {
    waiting: WaitingCalls,
    driver: Driver,
    snapshotter: Snapshotter,
    scheduler: ActorRef<SchedulerMessage>,
    /// Started by the first cancellation.
    breaker: Option<ActorRef<BreakerMessage>>,
}

pub(crate) struct KernelActor;

impl Actor for KernelActor {
    type Msg = KernelMessage;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(&self, myself: ActorRef<KernelMessage>, arguments: Arguments) -> ActorResult<State> {
        let Arguments { context, channel, blueprint, beginning } = arguments;
        let probe = context.options.failpoints.for_board(channel.board());
        let clock = Arc::new(BoardClock::new(Arc::clone(&context.options.clock)));
        let start = Some(Box::new((beginning, blueprint)));
        Ok(State { myself, probe, context, channel, clock, start, running: None })
    }

    async fn post_start(&self, _: ActorRef<KernelMessage>, state: &mut State) -> ActorResult {
        state.probe.hit("kernel", "begin");
        if let Some(start) = state.start.take() {
            let (beginning, blueprint) = *start;
            Box::pin(state.begin(beginning, &blueprint)).await?;
        }
        state.start_due_snapshot_task(None).await
    }

    /// Fails with the first child that does: all actors of the board restart together.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<KernelMessage>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> ActorResult {
        let error = match event {
            SupervisionEvent::ActorTerminated(_, _, reason) => reason.unwrap_or_default().into(),
            SupervisionEvent::ActorFailed(_, error) => error,
            _ => return Ok(()),
        };
        state.probe.hit("kernel", "child_ended");
        Err(error)
    }

    async fn handle(&self, _: ActorRef<KernelMessage>, message: KernelMessage, state: &mut State) -> ActorResult {
        state.probe.hit("kernel", message.kind());
        let mut turn = None;
        match message {
            KernelMessage::SnapshotStored(stored) => Box::pin(state.on_snapshot_stored(stored)).await?,
            KernelMessage::GarbageCollected(collected) => state.on_garbage_collected(collected),
            KernelMessage::SnapshotPermit(permit) => {
                if let Some(running) = &mut state.running {
                    running.snapshotter.has_turn();
                }
                turn = Some(permit);
            }
            KernelMessage::Admitted { key, permit } => Box::pin(state.admitted(key, permit)).await?,
            KernelMessage::Decide { input, principal, caller: asker } => {
                let deciding = Box::pin(state.decide_with(*input, principal, BTreeMap::new()));
                let (decided, used) = match &asker {
                    Some(asker) if asker.is_metered => cpu_time::measure(deciding).await,
                    _ => (deciding.await, Duration::ZERO),
                };
                let failure = decided.as_ref().err().cloned();
                if let Some(asker) = asker {
                    // The caller may have stopped waiting; the decision is final.
                    drop(asker.answer.send((decided, used)));
                }
                if let Some(failure) = failure {
                    return Err(failure.into());
                }
            }
        }
        state.start_due_snapshot_task(turn).await
    }
}

impl State {
    async fn begin(&mut self, beginning: StartMode, blueprint: &Blueprint) -> ActorResult {
        let arguments = scheduler::Arguments {
            clock: Arc::clone(&self.clock),
            kernel: self.myself.clone(),
            agent: Arc::clone(&self.context.options.agent),
            calls_max: blueprint.concurrency as usize,
            probe: self.probe.clone(),
        };
        let (scheduler, _) = Actor::spawn_linked(None, SchedulerActor, arguments, self.myself.get_cell()).await?;
        let melts = matches!(beginning, StartMode::MeltDown);
        let policy = self.context.options.snapshots;
        match beginning {
            StartMode::Created(board, effects) => {
                let (driver, snapshotter) = (Driver::new(*board), Snapshotter::new(policy));
                let (waiting, permits) = (WaitingCalls::default(), BTreeMap::new());
                let running = ActiveBoard { waiting, driver, snapshotter, scheduler, breaker: None };
                let running = self.running.insert(Box::new(running));
                running.dispatch_effects(effects, permits);
                self.channel.mark_running();
                self.ask_gate().await?;
            }
            StartMode::Recover | StartMode::MeltDown => {
                // Records that became durable just before a crash were not published. Subscribers notice the gap in
                // sequence numbers, and read the missing records.
                let recovered = recover(&self.context, self.channel.board()).await?;
                let snapshotter = Snapshotter::from_recovered(policy, &recovered);
                let driver = Driver::new(recovered.board);
                let epoch = driver.board().epoch() + 1;
                self.clock.start_after(driver.board().last_at());
                let waiting = WaitingCalls::default();
                self.running = Some(Box::new(ActiveBoard { waiting, driver, snapshotter, scheduler, breaker: None }));
                let writer = self.context.options.ids.writer();
                if let Some(held) = self.channel.hold().filter(|_| !melts) {
                    self.decide_with(Input::Pause { key: None }, held.by.clone(), BTreeMap::new()).await?;
                }
                self.decide(Input::take_over(epoch, writer)).await?;
                if melts {
                    self.decide(Input::Meltdown).await?;
                }
                self.channel.mark_running();
            }
        }
        Ok(())
    }

    /// Asks the gate for the waiting calls of a board at its start.
    async fn ask_gate(&mut self) -> Result<(), RuntimeError> {
        let named = self.running.as_ref().map(|running| running.driver.board().awaiting_admission());
        for call in named.unwrap_or_default() {
            // An admission may have triggered the request for other calls.
            let is_named = |running: &ActiveBoard| running.driver.board().awaiting_admission().contains(&call);
            if self.running.as_deref().is_some_and(is_named) {
                self.ask_for(&call).await?;
            }
        }
        Ok(())
    }

    async fn ask_for(&mut self, call: &WaitingCall) -> Result<(), RuntimeError> {
        let Some(running) = self.running.as_mut().filter(|_| self.channel.hold().is_none()) else { return Ok(()) };
        let key = admission::key(call);
        match running.waiting.ask(&*self.context.options.agent, running.driver.board(), call) {
            Some(AdmissionDecision::Now(permit)) => self.admit(key, permit).await?,
            Some(AdmissionDecision::Later(admitting)) => {
                drop(running.scheduler.cast(SchedulerMessage::Wait(vec![(key, admitting)])));
            }
            None => {}
        }
        Ok(())
    }

    /// Handles the gate's answer for a waiting call. The permit is dropped if the call is no longer named.
    async fn admitted(&mut self, key: CallKey, permit: Option<Permit>) -> Result<(), RuntimeError> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let Some(permit) = permit else {
            running.waiting.remove(key);
            return self.decide(Input::Unavailable).await.map(drop);
        };
        match running.waiting.take(running.driver.board(), key, &permit) {
            Some(call) => {
                drop(permit);
                self.ask_for(&call).await
            }
            None => self.admit(key, permit).await,
        }
    }

    async fn admit(&mut self, key: CallKey, permit: Permit) -> Result<(), RuntimeError> {
        let (invocation, attempt) = key;
        let admission = permit.admission.clone();
        let permits = BTreeMap::from([(key, permit)]);
        self.decide_with(Input::Admit { invocation, attempt, admission }, None, permits).await.map(drop)
    }

    async fn decide(&mut self, input: Input) -> Result<InputResult, RuntimeError> {
        self.decide_with(input, None, BTreeMap::new()).await
    }

    async fn decide_with(
        &mut self,
        input: Input,
        principal: Option<Principal>,
        permits: BTreeMap<CallKey, Permit>,
    ) -> Result<InputResult, RuntimeError> {
        if let Some(ms) = self.clock.jump() {
            Box::pin(self.decide_now(Input::ClockJump { ms }, None, BTreeMap::new())).await?;
        }
        self.decide_now(input, principal, permits).await
    }

    async fn decide_now(
        &mut self,
        input: Input,
        principal: Option<Principal>,
        mut permits: BTreeMap<CallKey, Permit>,
    ) -> Result<InputResult, RuntimeError> {
        let Some(running) = &mut self.running else {
            // Unreachable: the board begins before the first message.
            return Err(RuntimeError::Interrupted(self.channel.board().clone()));
        };
        let judged = match &input {
            Input::Retry(retried) => running.driver.board().judge_retry(retried),
            Input::Signal { key: token, .. } => running.driver.board().judge_signal(token.as_ref()),
            _ => Ok(()),
        };
        if let Err(rejection) = judged {
            return Ok(InputResult { outcome: Some(Outcome::RejectedUnrecorded(rejection)), recorded: false });
        }
        let began = Instant::now();
        if matches!(input, Input::Resume { .. }) {
            self.channel.release_hold();
        }
        // A board that is being closed makes no more calls.
        let is_held = self.channel.hold().is_some() || self.channel.is_closing();
        let is_tick = matches!(input, Input::Tick);
        let answered = attempt_key(&input);
        let agent = &self.context.options.agent;
        let (waiting, mut later) = (&mut running.waiting, Vec::new());
        let now = self.clock.now();
        let decided = running.driver.decide_as(now, input, principal, &mut |board, call| {
            let key = admission::key(call);
            if is_held {
                return None;
            }
            match waiting.ask(&**agent, board, call)? {
                AdmissionDecision::Now(permit) => {
                    let admission = permit.admission.clone();
                    permits.insert(key, permit);
                    Some(admission)
                }
                AdmissionDecision::Later(admitting) => {
                    later.push((key, admitting));
                    None
                }
            }
        });
        let recorded = decided.append.is_some();
        let mut step = match decided.append {
            Some(append) => {
                let appended = self.context.journal.append(append).await;
                running.driver.complete_append(appended.map(drop))?
            }
            None => decided.released.unwrap_or_default(),
        };
        let board = running.driver.board();
        if matches!(step.outcome, Some(Outcome::Duplicate(_))) {
            self.context.observe(|observer| observer.on_duplicate(board.id()));
        }
        if recorded {
            let durable = observer::DurableStep { board: board.id(), records: &step.records, took: began.elapsed() };
            self.context.observe(|observer| observer.on_durable_step(&durable));
            log_step(&durable);
            running.snapshotter.count_records(&step.records);
            self.channel.publish(BoardStatus::new(board, step.records.last()), step.records);
            // Notified agents find the end published.
            if board.ended().is_some_and(Ended::is_final) {
                self.context.notify_board_ended(board.id());
            }
        }
        if let Some(token) = answered {
            self.context.options.agent.on_settled(board.id(), &token);
        }
        // A clock that was set back makes an alarm fire early; it is armed once more.
        if is_tick {
            step.effects.wake_at = step.effects.wake_at.or_else(|| board.wake_at());
        }
        if is_held {
            // A recorded call is made when the board is resumed, as after a crash.
            step.effects.calls.clear();
        }
        running.waiting.stepped(board, &step.effects, &mut permits);
        if !later.is_empty() {
            drop(running.scheduler.cast(SchedulerMessage::Wait(later)));
        }
        let cancellations = std::mem::take(&mut step.effects.cancellations);
        running.dispatch_effects(step.effects, permits);
        if !cancellations.is_empty() {
            Box::pin(running.cancel(cancellations, &self.myself, &self.probe)).await;
        }
        Ok(InputResult { outcome: step.outcome, recorded })
    }
}

impl ActiveBoard {
    /// Passes effects on to the scheduler. If it has ended, the kernel fails with it.
    fn dispatch_effects(&self, effects: Effects, mut permits: BTreeMap<CallKey, Permit>) {
        let Effects { calls, cancellations: _, awaiting_admission, wake_at, ended } = effects;
        if !calls.is_empty() || awaiting_admission.is_some() || wake_at.is_some() || ended.is_some() {
            let calls = calls.into_iter().map(|call| {
                let permit = permits.remove(&(call.invocation, call.attempt));
                Arc::new(Call::new(call, permit))
            });
            let calls = calls.collect();
            drop(self.scheduler.cast(SchedulerMessage::Durable { calls, awaiting_admission, wake_at, ended }));
        }
    }

    /// Passes cancellations on to the breaker, after the calls of the step. The first ones start its actor.
    async fn cancel(&mut self, cancellations: Vec<Cancellation>, kernel: &ActorRef<KernelMessage>, probe: &Failpoints) {
        if self.breaker.is_none() {
            let arguments = breaker::Arguments { scheduler: self.scheduler.clone(), probe: probe.clone() };
            // Fails only if the kernel is ending.
            let spawned = Actor::spawn_linked(None, BreakerActor, arguments, kernel.get_cell()).await;
            self.breaker = spawned.ok().map(|(breaker, _)| breaker);
        }
        if let Some(breaker) = &self.breaker {
            drop(breaker.cast(BreakerMessage::Durable(cancellations)));
        }
    }
}

/// Logs takeover and end of a board.
fn log_step(durable: &observer::DurableStep<'_>) {
    for record in durable.records.iter().filter(|record| matches!(record.kind, Kind::Epoch | Kind::Ended)) {
        let (board, seq) = (durable.board, record.seq);
        match record.body() {
            Ok(Body::Epoch(Epoch { epoch, .. })) => tracing::info!(%board, %seq, epoch, "the board goes on"),
            Ok(Body::Ended(Ended { end, cause })) => tracing::info!(%board, %seq, %end, %cause, "the board ended"),
            _ => {}
        }
    }
}

/// Returns the token of the attempt that an input answers.
fn attempt_key(input: &Input) -> Option<IdempotencyKey> {
    match input {
        Input::Propose(Proposal { from: ProposalSource::Attempt { invocation, attempt }, .. })
        | Input::AgentFailed { invocation, attempt, .. }
        | Input::Defer { invocation, attempt, .. } => Some(IdempotencyKey::for_attempt(*invocation, *attempt)),
        _ => None,
    }
}

/// Recovers the board from its journal, off the threads that serve other boards.
async fn recover(context: &Arc<Context>, board: &BoardId) -> Result<Recovered, RuntimeError> {
    let (beside, id) = (Arc::clone(context), board.clone());
    let recovered =
        tokio::task::spawn_blocking(move || recovery::recover(&**beside.journal.journal(), &id, &beside.plans));
    recovered.await.unwrap_or_else(|error| {
        Err(RuntimeError::Crashed { board: board.clone(), reason: format!("recovering the board: {error}") })
    })
}
