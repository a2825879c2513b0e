//! Dispatches the calls that the board has decided on, and fires its alarm.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Effect, Input};
use patchboard_kernel::id::{BoardId, IdempotencyKey, Timestamp, WorkerName};
use patchboard_kernel::scheduler::AttemptHistory;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinHandle;

use super::failpoints::Failpoints;
use super::{CallKey, StepEffects, kernel, worker};
use crate::agent::{Call, Permit, PermitFuture};
use crate::clock::BoardClock;

pub(crate) enum Message {
    /// Calls that the gate does not admit at once.
    Wait(Vec<(CallKey, PermitFuture)>),
    /// A step is durable.
    Durable(Arc<StepEffects>),
}

pub(crate) struct Arguments<'a> {
    pub(crate) board: BoardId,
    pub(crate) blueprint: &'a Blueprint,
    pub(crate) clock: Arc<BoardClock>,
    pub(crate) kernel: ActorRef<kernel::Message>,
    pub(crate) workers: BTreeMap<WorkerName, ActorRef<worker::Message>>,
    pub(crate) probe: Failpoints,
}

pub(crate) struct State {
    probe: Failpoints,
    board: BoardId,
    clock: Arc<BoardClock>,
    kernel: ActorRef<kernel::Message>,
    routes: BTreeMap<WorkerName, WorkerRoute>,
    alarm: Option<Task>,
    /// Calls that wait for admission.
    waiting: BTreeMap<CallKey, Task>,
}

struct WorkerRoute {
    /// Operator's name of its model.
    model: Option<String>,
    actor: ActorRef<worker::Message>,
}

/// Returns the timeout of an agent. If it waits for a provider, the timeout is a little shorter than the board's, so
/// that it can still report that no byte arrived.
fn time_of(timeout_ms: u64, is_admitted: bool) -> Duration {
    let spare = if is_admitted { (timeout_ms / 20).min(SPARE_MAX_MS) } else { 0 };
    Duration::from_millis(timeout_ms - spare)
}

/// Longest time between looks at the clock, because a clock jump may bring a schedule nearer.
const ALARM_MAX: Duration = Duration::from_secs(60);

/// Longest time that is withheld from a call's timeout, in milliseconds.
const SPARE_MAX_MS: u64 = 500;

/// Task that is aborted when dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) struct SchedulerActor;

impl Actor for SchedulerActor {
    type Msg = Message;
    type State = State;
    type Arguments = State;

    async fn pre_start(&self, _: ActorRef<Message>, state: State) -> Result<State, ActorProcessingErr> {
        Ok(state)
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Wait(calls) => state.wait(calls),
            Message::Durable(durable) => {
                state.probe.hit("scheduler", "durable");
                state.deliver(&durable);
            }
        }
        Ok(())
    }
}

impl State {
    pub(crate) fn new(arguments: Arguments<'_>) -> Self {
        let Arguments { board, blueprint, clock, kernel, workers, probe } = arguments;
        let seat = |(name, actor): (WorkerName, ActorRef<worker::Message>)| {
            let model = blueprint.model_of(&name).map(str::to_owned);
            (name, WorkerRoute { model, actor })
        };
        let routes = workers.into_iter().map(seat).collect();
        Self { probe, board, clock, kernel, routes, alarm: None, waiting: BTreeMap::new() }
    }

    /// Waits for each admission in a task of its own, and passes it to the kernel.
    fn wait(&mut self, calls: Vec<(CallKey, PermitFuture)>) {
        for (key, admitting) in calls {
            let kernel = self.kernel.clone();
            let task = tokio::spawn(async move {
                let permit = admitting.await;
                drop(kernel.cast(kernel::Message::Admitted { key, permit }));
            });
            self.waiting.insert(key, Task(task));
        }
    }

    fn deliver(&mut self, durable: &StepEffects) {
        for (order, effect) in durable.ordered() {
            match effect {
                Effect::Call {
                    invocation,
                    cause,
                    attempt,
                    worker,
                    view,
                    prompt,
                    context,
                    parent,
                    timeout_ms,
                    occurrence,
                    admitted,
                    history: past,
                } => {
                    let Some(seat) = self.routes.get(worker) else { continue };
                    let call = Call {
                        board: self.board.clone(),
                        parent: parent.clone(),
                        invocation: *invocation,
                        cause: *cause,
                        attempt: *attempt,
                        idempotency_key: IdempotencyKey::for_attempt(*invocation, *attempt),
                        worker: worker.clone(),
                        model: admitted
                            .as_ref()
                            .and_then(|admitted| admitted.model.clone())
                            .or_else(|| seat.model.clone()),
                        view_hash: *view,
                        prompt: Arc::clone(prompt),
                        context: Arc::clone(context),
                        occurrence: *occurrence,
                        earlier_attempts: AttemptHistory::clone(past),
                        timeout: time_of(*timeout_ms, admitted.is_some()),
                        permit: admitted.as_ref().map(|admission| {
                            let permit = durable.permits.get(&(*invocation, *attempt)).cloned();
                            let permit = permit.unwrap_or_else(Permit::ungated);
                            // The kernel reserves a larger reply limit only if a budget suffices for it.
                            Permit { admission: admission.clone(), ..permit }
                        }),
                    };
                    // If the worker's actor has ended, the supervisor restarts all of them.
                    drop(seat.actor.cast(worker::Message::Call(order, Box::new(call))));
                }
                Effect::WakeAt(at) => self.alarm = Some(self.alarm_at(*at)),
                Effect::Ended(_) => self.alarm = None,
                Effect::RequestAdmission(named) => {
                    let is_named = |key: &CallKey| named.iter().any(|call| (call.invocation, call.attempt) == *key);
                    self.waiting.retain(|key, task| is_named(key) && !task.0.is_finished());
                }
                Effect::Cancel { .. } => {}
            }
        }
    }

    fn alarm_at(&self, at: Timestamp) -> Task {
        // At least a millisecond, so that a clock that disagrees with tokio's cannot make this a busy loop.
        let pause = Duration::from_millis(at.ms_since(self.clock.now()).max(1)).min(ALARM_MAX);
        let kernel = self.kernel.clone();
        Task(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            drop(kernel.cast(kernel::Message::Decide { input: Input::Tick, principal: None, caller: None }));
        }))
    }
}
