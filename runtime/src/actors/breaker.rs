//! Cancels the calls that the board no longer needs: those of stopped branches, expired ones, all at the end.
//!
//! The cancellations follow the calls through the scheduler, the only sender of a worker.

use ractor::{Actor, ActorRef};

use super::ActorResult;
use super::messages::{BreakerMessage, SchedulerMessage};
use crate::failpoints::Failpoints;

pub(crate) struct Arguments {
    pub(crate) scheduler: ActorRef<SchedulerMessage>,
    pub(crate) probe: Failpoints,
}

pub(crate) struct BreakerActor;

impl Actor for BreakerActor {
    type Msg = BreakerMessage;
    type State = Arguments;
    type Arguments = Arguments;

    async fn pre_start(&self, _: ActorRef<BreakerMessage>, arguments: Arguments) -> ActorResult<Self::State> {
        Ok(arguments)
    }

    async fn handle(
        &self,
        _: ActorRef<BreakerMessage>,
        message: BreakerMessage,
        state: &mut Self::State,
    ) -> ActorResult {
        state.probe.hit("breaker", "durable");
        let BreakerMessage::Durable(cancellations) = message;
        drop(state.scheduler.cast(SchedulerMessage::Cancel(cancellations)));
        Ok(())
    }
}
