//! Cancels the calls that the board no longer needs: those of stopped branches, expired ones, all at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use patchboard_kernel::board::Effect;
use patchboard_kernel::id::WorkerName;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::failpoints::Failpoints;
use super::{StepEffects, worker};

pub(crate) enum Message {
    /// A step is durable.
    Durable(Arc<StepEffects>),
}

pub(crate) struct Arguments {
    pub(crate) workers: BTreeMap<WorkerName, ActorRef<worker::Message>>,
    pub(crate) probe: Failpoints,
}

pub(crate) struct BreakerActor;

impl Actor for BreakerActor {
    type Msg = Message;
    type State = Arguments;
    type Arguments = Arguments;

    async fn pre_start(&self, _: ActorRef<Message>, arguments: Arguments) -> Result<Self::State, ActorProcessingErr> {
        Ok(arguments)
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        state.probe.hit("breaker", "durable");
        let Message::Durable(durable) = message;
        for (order, effect) in durable.ordered() {
            if let Effect::Cancel { invocation, worker } = effect
                && let Some(worker) = state.workers.get(worker)
            {
                drop(worker.cast(worker::Message::Cancel(order, *invocation)));
            }
        }
        Ok(())
    }
}
