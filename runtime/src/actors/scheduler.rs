//! Delivers the calls that the board has decided on, and rings when it wants to be woken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Effect, Input};
use patchboard_kernel::id::{BoardId, Timestamp, Token, WorkerName};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinHandle;

use super::probe::Probe;
use super::{Durable, kernel, worker};
use crate::agent::Call;
use crate::clock::Clock;

pub(crate) enum Message {
    /// A step is durable.
    Durable(Arc<Durable>),
}

pub(crate) struct Arguments<'a> {
    pub(crate) board: BoardId,
    pub(crate) blueprint: &'a Blueprint,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) kernel: ActorRef<kernel::Message>,
    pub(crate) workers: BTreeMap<WorkerName, ActorRef<worker::Message>>,
    pub(crate) probe: Probe,
}

pub(crate) struct State {
    probe: Probe,
    board: BoardId,
    clock: Arc<dyn Clock>,
    kernel: ActorRef<kernel::Message>,
    seats: BTreeMap<WorkerName, Seat>,
    alarm: Option<Alarm>,
}

struct Seat {
    /// The operator's name of its model.
    model: Option<String>,
    actor: ActorRef<worker::Message>,
}

/// Rings once, unless it is replaced or dropped before.
struct Alarm(JoinHandle<()>);

impl Drop for Alarm {
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
        state.probe.at("scheduler", "durable");
        match message {
            Message::Durable(durable) => state.deliver(&durable),
        }
        Ok(())
    }
}

impl State {
    pub(crate) fn new(arguments: Arguments<'_>) -> Self {
        let Arguments { board, blueprint, clock, kernel, workers, probe } = arguments;
        let seat = |(name, actor): (WorkerName, ActorRef<worker::Message>)| {
            let model = blueprint.model_of(&name).map(str::to_owned);
            (name, Seat { model, actor })
        };
        let seats = workers.into_iter().map(seat).collect();
        Self { probe, board, clock, kernel, seats, alarm: None }
    }

    fn deliver(&mut self, durable: &Durable) {
        for (order, effect) in durable.ordered() {
            match effect {
                Effect::Call { invocation, attempt, worker, view, prompt, shown, parent, timeout_ms, occurrence } => {
                    let Some(seat) = self.seats.get(worker) else { continue };
                    let call = Call {
                        board: self.board.clone(),
                        parent: parent.clone(),
                        invocation: *invocation,
                        attempt: *attempt,
                        token: Token::of(*invocation, *attempt),
                        worker: worker.clone(),
                        model: seat.model.clone(),
                        view_hash: *view,
                        prompt: Arc::clone(prompt),
                        shown: Arc::clone(shown),
                        occurrence: *occurrence,
                        timeout: Duration::from_millis(*timeout_ms),
                    };
                    // If the worker's actor has ended, the supervisor starts everything afresh.
                    drop(seat.actor.cast(worker::Message::Call(order, Box::new(call))));
                }
                Effect::WakeAt(at) => self.alarm = Some(self.alarm_at(*at)),
                Effect::Ended(_) => self.alarm = None,
                Effect::Cancel { .. } => {}
            }
        }
    }

    fn alarm_at(&self, at: Timestamp) -> Alarm {
        // At least a moment, so that a clock that disagrees with tokio's cannot make this a busy loop.
        let pause = Duration::from_millis(at.ms_since(self.clock.now()).max(1));
        let kernel = self.kernel.clone();
        Alarm(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            drop(kernel.cast(kernel::Message::Decide { input: Input::Tick, asker: None }));
        }))
    }
}
