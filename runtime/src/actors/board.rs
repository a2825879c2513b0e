//! Supervises the actors of one board: restarts them together from the journal, gives up after too many failures.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::blueprint::Blueprint;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::time::Instant;

use super::ActorResult;
use super::kernel::KernelActor;
use super::messages::{BoardMessage, KernelMessage, StartMode};
use super::{Context, breaker, scheduler, stop, worker};
use crate::board_channel::BoardChannel;
use crate::clock::BoardClock;
use crate::error::RuntimeError;
use crate::failpoints::Failpoints;
use crate::observer::RestartScope;
use crate::options::RestartPolicy;
use patchboard_storage::journal::Claim;

pub(crate) struct Arguments {
    pub(crate) context: Arc<Context>,
    pub(crate) channel: Arc<BoardChannel>,
    pub(crate) blueprint: Arc<Blueprint>,
    pub(crate) beginning: StartMode,
    pub(crate) claim: Claim,
}

pub(crate) struct State {
    context: Arc<Context>,
    channel: Arc<BoardChannel>,
    blueprint: Arc<Blueprint>,
    /// None between a failure and the restart.
    generation: Option<Generation>,
    failures: Failures,
    /// True once the board is only being ended.
    is_melting: bool,
    /// Released before clients see that the board is gone, so that they can claim it.
    claim: Option<Claim>,
}

/// Children that were created together.
struct Generation {
    kernel: ActorRef<KernelMessage>,
    others: Vec<ActorCell>,
}

pub(crate) struct BoardSupervisor;

impl Actor for BoardSupervisor {
    type Msg = BoardMessage;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(&self, myself: ActorRef<BoardMessage>, arguments: Arguments) -> ActorResult<State> {
        let Arguments { context, channel: published, blueprint, beginning, claim } = arguments;
        myself.cast(BoardMessage::Restart(beginning))?;
        let failures = Failures::new(context.options.restarts);
        Ok(State {
            context,
            channel: published,
            blueprint,
            generation: None,
            failures,
            is_melting: false,
            claim: Some(claim),
        })
    }

    async fn handle(&self, myself: ActorRef<BoardMessage>, message: BoardMessage, state: &mut State) -> ActorResult {
        state.probe().hit("board", message.kind());
        match message {
            BoardMessage::Restart(beginning) => {
                let generation = Box::pin(Generation::start(&myself.get_cell(), state, beginning)).await?;
                state.channel.set_kernel(generation.kernel.clone());
                state.generation = Some(generation);
            }
            BoardMessage::Close(done) => {
                state.channel.clear_kernel();
                if let Some(generation) = state.generation.take() {
                    Box::pin(generation.drain()).await;
                }
                drop(state.claim.take());
                state.context.board_closed(&state.channel, RuntimeError::Closed(state.channel.board().clone()));
                // The caller may have stopped waiting.
                let _ = done.send(());
                myself.stop(None);
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<BoardMessage>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> ActorResult {
        let (child, error) = match event {
            // Only the supervisor stops children of the present generation.
            SupervisionEvent::ActorTerminated(child, _, reason) => (child, reason.unwrap_or_default().into()),
            SupervisionEvent::ActorFailed(child, error) => (child, error),
            _ => return Ok(()),
        };
        state.probe().hit("board", "child_ended");
        if state.generation.as_ref().is_some_and(|generation| generation.contains(&child)) {
            Box::pin(state.child_failed(&myself, error)).await;
        }
        Ok(())
    }
}

impl State {
    fn probe(&self) -> Failpoints {
        self.context.options.failpoints.for_board(self.channel.board())
    }

    async fn child_failed(&mut self, myself: &ActorRef<BoardMessage>, error: ActorProcessingErr) {
        self.channel.clear_kernel();
        if let Some(generation) = self.generation.take() {
            generation.stop().await;
        }
        let board = self.channel.board().clone();
        let reason = error.to_string();
        let cause = match error.downcast::<RuntimeError>() {
            Ok(known) => *known,
            Err(_) => RuntimeError::Crashed { board: board.clone(), reason: reason.clone() },
        };
        // A full disk is no fault of the board: it stops as it is and can be resumed once there is space.
        let is_crash = matches!(cause, RuntimeError::Crashed { .. });
        let pause =
            if may_pass(&cause) && !self.is_melting { self.failures.next_restart(Instant::now()) } else { None };
        if let Some(pause) = pause {
            tracing::warn!(%board, reason, pause_ms = pause.as_millis(), "the board's actors failed and are restarted");
            self.context.observe(|observer| observer.on_restart(RestartScope::Board));
            let restart = move || BoardMessage::Restart(StartMode::Recover);
            drop(myself.send_after(pause, restart));
        } else if is_crash && !self.is_melting {
            tracing::error!(%board, reason, "the board's actors failed too often; the board ends");
            self.is_melting = true;
            drop(myself.cast(BoardMessage::Restart(StartMode::MeltDown)));
        } else {
            tracing::error!(%board, reason, "the board is given up");
            drop(self.claim.take());
            self.context.board_closed(&self.channel, cause);
            myself.stop(None);
        }
    }
}

/// Returns true if a restart from the journal may help.
const fn may_pass(cause: &RuntimeError) -> bool {
    match cause {
        RuntimeError::Journal(error) => error.is_transient(),
        other => matches!(other, RuntimeError::Crashed { .. } | RuntimeError::Interrupted(_)),
    }
}

/// History of recent failures.
pub(crate) struct Failures {
    policy: RestartPolicy,
    recent: VecDeque<Instant>,
}

impl Failures {
    pub(crate) const fn new(policy: RestartPolicy) -> Self {
        Self { policy, recent: VecDeque::new() }
    }

    /// Returns the pause before the restart after a failure now; none if there were too many.
    pub(crate) fn next_restart(&mut self, now: Instant) -> Option<Duration> {
        self.recent.push_back(now);
        while self.recent.front().is_some_and(|failure| now.duration_since(*failure) > self.policy.window) {
            self.recent.pop_front();
        }
        let count = u32::try_from(self.recent.len()).unwrap_or(u32::MAX);
        if count > self.policy.max {
            return None;
        }
        let doublings = count.checked_sub(2).map(|doublings| doublings.min(10));
        Some(doublings.map_or(Duration::ZERO, |doublings| self.policy.backoff * 2_u32.pow(doublings)))
    }
}

impl Generation {
    async fn start(myself: &ActorCell, state: &State, beginning: StartMode) -> ActorResult<Self> {
        let context = &state.context;
        let link = || myself.clone();
        let probe = || context.options.failpoints.for_board(state.channel.board());
        let clock = Arc::new(BoardClock::new(Arc::clone(&context.options.clock)));
        let arguments = (Arc::clone(context), Arc::clone(&state.channel), Arc::clone(&clock));
        let (kernel, _) = Actor::spawn_linked(None, KernelActor, arguments, link()).await?;
        let mut workers = std::collections::BTreeMap::new();
        for name in state.blueprint.workers.keys() {
            let arguments = worker::Arguments {
                agent: Arc::clone(&context.options.agent),
                kernel: kernel.clone(),
                calls_max: state.blueprint.concurrency as usize,
                probe: probe(),
            };
            let (worker, _) = Actor::spawn_linked(None, worker::WorkerActor, arguments, link()).await?;
            workers.insert(name.clone(), worker);
        }
        let mut others: Vec<_> = workers.values().map(ActorRef::get_cell).collect();
        let arguments = scheduler::Arguments { clock, kernel: kernel.clone(), workers, probe: probe() };
        let (scheduler, _) = Actor::spawn_linked(None, scheduler::SchedulerActor, arguments, link()).await?;
        let arguments = breaker::Arguments { scheduler: scheduler.clone(), probe: probe() };
        let (breaker, _) = Actor::spawn_linked(None, breaker::BreakerActor, arguments, link()).await?;
        others.extend([scheduler.get_cell(), breaker.get_cell()]);
        kernel.cast(KernelMessage::Begin { beginning, scheduler, breaker })?;
        Ok(Self { kernel, others })
    }

    fn contains(&self, child: &ActorCell) -> bool {
        let id = child.get_id();
        self.kernel.get_id() == id || self.others.iter().any(|other| other.get_id() == id)
    }

    /// Stops all children; their queues are dropped.
    async fn stop(self) {
        stop(&self.kernel).await;
        for actor in &self.others {
            stop(actor).await;
        }
    }

    /// Cancels the calls, lets the kernel decide the inputs it has received, and ends.
    async fn drain(self) {
        for actor in &self.others {
            stop(actor).await;
        }
        if self.kernel.drain_and_wait(Some(super::STOPPING)).await.is_err() {
            self.kernel.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_counted_within_the_window_and_come_slower_each_time() {
        let policy = RestartPolicy { max: 4, window: Duration::from_secs(60), backoff: Duration::from_millis(20) };
        let mut failures = Failures::new(policy);
        let start = Instant::now();
        let mut after = |seconds| failures.next_restart(start + Duration::from_secs(seconds)).map(|p| p.as_millis());
        assert_eq!([after(0), after(1), after(2), after(3)], [Some(0), Some(20), Some(40), Some(80)]);
        assert_eq!(after(4), None);
        assert_eq!(after(100), Some(0), "the failures of the first seconds are forgotten");
    }
}
