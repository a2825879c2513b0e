//! Delivers the calls that the board has decided on and their cancellations, and fires its alarm.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::board::{Cancellation, Input};
use patchboard_kernel::id::{Timestamp, WorkerName};
use ractor::{Actor, ActorRef};

use super::admission;
use super::messages::{CallKey, KernelMessage, SchedulerMessage, WorkerMessage};
use super::worker::{self, WorkerActor};
use super::{ActorResult, Task};
use crate::agent::{Agent, Call, PermitFuture};
use crate::clock::BoardClock;
use crate::failpoints::Failpoints;

pub(crate) struct Arguments {
    pub(crate) clock: Arc<BoardClock>,
    pub(crate) kernel: ActorRef<KernelMessage>,
    pub(crate) agent: Arc<dyn Agent>,
    /// Calls of a worker at a time, at most.
    pub(crate) calls_max: usize,
    pub(crate) probe: Failpoints,
}

pub(crate) struct State {
    of_board: Arguments,
    alarm: Option<Task>,
    waiting: BTreeMap<CallKey, Task>,
    /// Actors of the workers that were called.
    workers: BTreeMap<WorkerName, ActorRef<WorkerMessage>>,
}

/// Longest time between looks at the clock, because a clock jump may bring a schedule nearer.
const ALARM_MAX: Duration = Duration::from_secs(60);

pub(crate) struct SchedulerActor;

impl Actor for SchedulerActor {
    type Msg = SchedulerMessage;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(&self, _: ActorRef<SchedulerMessage>, arguments: Arguments) -> ActorResult<State> {
        Ok(State { of_board: arguments, alarm: None, waiting: BTreeMap::new(), workers: BTreeMap::new() })
    }

    async fn handle(&self, _: ActorRef<SchedulerMessage>, message: SchedulerMessage, state: &mut State) -> ActorResult {
        match message {
            SchedulerMessage::Wait(calls) => state.wait(calls),
            SchedulerMessage::Durable { calls, awaiting_admission, wake_at, ended } => {
                state.of_board.probe.hit("scheduler", "durable");
                for call in calls {
                    Box::pin(state.call(call)).await;
                }
                if let Some(named) = awaiting_admission {
                    let is_named = |key: &CallKey| named.iter().any(|call| admission::key(call) == *key);
                    state.waiting.retain(|key, task| is_named(key) && !task.0.is_finished());
                }
                if ended.is_some() {
                    state.alarm = None;
                }
                if let Some(at) = wake_at {
                    state.alarm = Some(state.alarm_at(at));
                }
            }
            SchedulerMessage::Cancel(cancellations) => {
                for Cancellation { invocation, attempt, worker } in cancellations {
                    if let Some(actor) = state.workers.get(&worker) {
                        drop(actor.cast(WorkerMessage::Cancel((invocation, attempt))));
                    }
                }
            }
        }
        Ok(())
    }
}

impl State {
    /// Delivers a call. The first call of a worker starts its actor. A message to an actor that has ended is lost: the
    /// kernel fails with it.
    async fn call(&mut self, call: Arc<Call>) {
        if !self.workers.contains_key(&call.worker) {
            let Arguments { kernel, agent, calls_max, probe, .. } = &self.of_board;
            let arguments = worker::Arguments {
                agent: Arc::clone(agent),
                kernel: kernel.clone(),
                calls_max: *calls_max,
                probe: probe.clone(),
            };
            // Fails only if the kernel is ending.
            let spawned = Actor::spawn_linked(None, WorkerActor, arguments, kernel.get_cell()).await;
            let Ok((actor, _)) = spawned else { return };
            self.workers.insert(call.worker.clone(), actor);
        }
        if let Some(actor) = self.workers.get(&call.worker) {
            drop(actor.cast(WorkerMessage::Call(call)));
        }
    }

    /// Waits for each admission in a task of its own, and passes it to the kernel.
    fn wait(&mut self, calls: Vec<(CallKey, PermitFuture)>) {
        for (key, admitting) in calls {
            let kernel = self.of_board.kernel.clone();
            let task = tokio::spawn(async move {
                let permit = admitting.await;
                drop(kernel.cast(KernelMessage::Admitted { key, permit }));
            });
            self.waiting.insert(key, Task(task.abort_handle()));
        }
    }

    fn alarm_at(&self, at: Timestamp) -> Task {
        // At least a millisecond, so that a clock that disagrees with tokio's cannot make this a busy loop.
        let pause = Duration::from_millis(at.ms_since(self.of_board.clock.now()).max(1)).min(ALARM_MAX);
        let kernel = self.of_board.kernel.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            drop(kernel.cast(KernelMessage::Decide { input: Box::new(Input::Tick), principal: None, caller: None }));
        });
        Task(task.abort_handle())
    }
}
