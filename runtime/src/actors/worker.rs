//! Runs the calls of one worker's agent, each as a task of its own, and passes the answers to the kernel.
//!
//! Never waits for an agent itself, so it can cancel a call at any time. The board decides how many calls may run; the
//! limit here only enforces it. The board also decides their timeouts.

use std::collections::BTreeMap;
use std::sync::Arc;

use patchboard_kernel::blueprint::AgentKind;
use patchboard_kernel::board::{Input, Proposal, ProposalSource, RequestDeferral};
use patchboard_kernel::deferral::{Deferral, PATIENCE_MS, WAIT_MS};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::InvocationId;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::failpoints::Failpoints;
use super::{EffectOrder, kernel};
use crate::agent::{Agent, Call, CallResult, Failure};

pub(crate) enum Message {
    /// Call the agent.
    Call(EffectOrder, Box<Call>),
    /// Cancels the invocation's call, if it was made before this.
    Cancel(EffectOrder, InvocationId),
    /// A call has ended.
    Answered(EffectOrder, Box<Call>, CallResult),
}

impl Message {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Call(..) => "call",
            Self::Cancel(..) => "withdraw",
            Self::Answered(..) => "answered",
        }
    }
}

pub(crate) struct Arguments {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) kernel: ActorRef<kernel::Message>,
    pub(crate) calls_max: usize,
    pub(crate) probe: Failpoints,
}

pub(crate) struct State {
    probe: Failpoints,
    agent: Arc<dyn Agent>,
    kernel: ActorRef<kernel::Message>,
    places: Arc<Semaphore>,
    running: BTreeMap<InvocationId, RunningCall>,
    /// Cancellations that arrived before their call.
    cancelled_before_start: BTreeMap<InvocationId, EffectOrder>,
}

struct RunningCall {
    order: EffectOrder,
    _task: Task,
}

/// Task that is aborted when dropped.
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) struct WorkerActor;

impl Actor for WorkerActor {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(&self, _: ActorRef<Message>, arguments: Arguments) -> Result<State, ActorProcessingErr> {
        let Arguments { agent, kernel, calls_max, probe } = arguments;
        let places = Arc::new(Semaphore::new(calls_max.max(1)));
        Ok(State { probe, agent, kernel, places, running: BTreeMap::new(), cancelled_before_start: BTreeMap::new() })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        state.probe.hit("worker", message.kind());
        match message {
            Message::Call(order, call) => state.call(&myself, order, call),
            Message::Cancel(order, invocation) => state.cancel(order, invocation),
            Message::Answered(order, call, answer) => state.answered(order, &call, answer),
        }
        Ok(())
    }
}

impl State {
    fn call(&mut self, myself: &ActorRef<Message>, order: EffectOrder, call: Box<Call>) {
        let withdrawn =
            self.cancelled_before_start.remove(&call.invocation).is_some_and(|withdrawal| withdrawal > order);
        // Calls arrive in order, so an earlier cancellation has met its call already.
        self.cancelled_before_start.retain(|_, withdrawal| *withdrawal > order);
        if withdrawn {
            return;
        }
        let invocation = call.invocation;
        let task = run(Arc::clone(&self.agent), Arc::clone(&self.places), myself.clone(), order, call);
        // An earlier attempt that is still running is over for the board; its task is aborted here.
        self.running.insert(invocation, RunningCall { order, _task: task });
    }

    fn cancel(&mut self, order: EffectOrder, invocation: InvocationId) {
        match self.running.get(&invocation) {
            Some(running) if running.order < order => drop(self.running.remove(&invocation)),
            Some(_) => {}
            None => drop(self.cancelled_before_start.insert(invocation, order)),
        }
    }

    fn answered(&mut self, order: EffectOrder, call: &Call, answer: CallResult) {
        if self.running.get(&call.invocation).is_none_or(|running| running.order != order) {
            // Cancelled in the meantime.
            return;
        }
        self.running.remove(&call.invocation);
        let (invocation, attempt) = (call.invocation, call.attempt);
        let input = match answer {
            Ok(mut reply) => Input::Propose(Proposal {
                from: ProposalSource::Attempt { invocation, attempt },
                worker: call.worker.clone(),
                usage: reply.usage,
                raw: reply.raw.take(),
                reply: reply.into_body(),
            }),
            // Only model calls wait for a provider, and calls of inner boards with such calls.
            Err(Failure { message, usage, deferral: Some(deferral), .. })
                if call.permit.is_some() || call.worker_config().agent == AgentKind::Board =>
            {
                let Deferral { reason, wait_ms, patience_ms, is_ambiguous: _, is_served_elsewhere } = deferral;
                let (wait_ms, patience_ms) = (wait_ms.unwrap_or(WAIT_MS), patience_ms.unwrap_or(PATIENCE_MS));
                let not_taken = RequestDeferral { reason, wait_ms, patience_ms, is_served_elsewhere, message };
                Input::Defer { invocation, attempt, usage, deferral: not_taken }
            }
            Err(Failure { code, message, usage, deferral: _ }) => {
                Input::AgentFailed { invocation, attempt, code, message, usage }
            }
        };
        // If the kernel has ended, the supervisor restarts all children.
        drop(self.kernel.cast(kernel::Message::Decide { input, principal: None, caller: None }));
    }
}

/// Runs a call as a task and reports its end. A panic of the agent becomes a failure.
fn run(
    agent: Arc<dyn Agent>,
    places: Arc<Semaphore>,
    myself: ActorRef<Message>,
    order: EffectOrder,
    call: Box<Call>,
) -> Task {
    let watched = tokio::spawn(async move {
        let called = call.clone();
        let task = tokio::spawn(async move {
            let _place = places.acquire().await;
            agent.call(&called).await
        });
        let _task = Task(task.abort_handle());
        let answer = task.await.unwrap_or_else(|error| {
            let message = if error.is_panic() { "the agent panicked" } else { "the agent's task was ended" };
            Err(Failure { code: FailureCode::Crashed, message: message.to_owned(), usage: None, deferral: None })
        });
        drop(myself.cast(Message::Answered(order, call, answer)));
    });
    Task(watched.abort_handle())
}

#[cfg(test)]
mod tests;
