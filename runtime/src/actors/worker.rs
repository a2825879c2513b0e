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
use ractor::{Actor, ActorRef};
use tokio::sync::Semaphore;

use super::messages::{CallKey, KernelMessage, WorkerMessage};
use super::{ActorResult, Task, guarded};
use crate::agent::{Agent, Call, CallResult, Failure};
use crate::failpoints::Failpoints;

pub(crate) struct Arguments {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) kernel: ActorRef<KernelMessage>,
    pub(crate) calls_max: usize,
    pub(crate) probe: Failpoints,
}

pub(crate) struct State {
    probe: Failpoints,
    agent: Arc<dyn Agent>,
    kernel: ActorRef<KernelMessage>,
    places: Arc<Semaphore>,
    running: BTreeMap<InvocationId, RunningCall>,
}

struct RunningCall {
    attempt: u32,
    _task: Task,
}

pub(crate) struct WorkerActor;

impl Actor for WorkerActor {
    type Msg = WorkerMessage;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(&self, _: ActorRef<WorkerMessage>, arguments: Arguments) -> ActorResult<State> {
        let Arguments { agent, kernel, calls_max, probe } = arguments;
        let places = Arc::new(Semaphore::new(calls_max.max(1)));
        Ok(State { probe, agent, kernel, places, running: BTreeMap::new() })
    }

    async fn handle(&self, myself: ActorRef<WorkerMessage>, message: WorkerMessage, state: &mut State) -> ActorResult {
        state.probe.hit("worker", message.kind());
        match message {
            WorkerMessage::Call(call) => state.call(&myself, call),
            WorkerMessage::Cancel(call) => state.cancel(call),
            WorkerMessage::Answered(call, answer) => state.answered(&call, answer),
        }
        Ok(())
    }
}

impl State {
    fn call(&mut self, myself: &ActorRef<WorkerMessage>, call: Arc<Call>) {
        let (invocation, attempt) = (call.invocation, call.attempt);
        let task = run(Arc::clone(&self.agent), Arc::clone(&self.places), myself.clone(), call);
        // An earlier attempt that is still running is over for the board; its task is aborted here.
        self.running.insert(invocation, RunningCall { attempt, _task: task });
    }

    /// Aborts a call, unless it has ended or a later attempt has taken its place.
    fn cancel(&mut self, (invocation, attempt): CallKey) {
        if self.running.get(&invocation).is_some_and(|running| running.attempt <= attempt) {
            self.running.remove(&invocation);
        }
    }

    fn answered(&mut self, call: &Call, answer: CallResult) {
        if self.running.get(&call.invocation).is_none_or(|running| running.attempt != call.attempt) {
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
        // If the kernel has ended, the root restarts the actors of the board.
        drop(self.kernel.cast(KernelMessage::Decide { input: Box::new(input), principal: None, caller: None }));
    }
}

/// Runs a call as a task and reports its end. A panic of the agent becomes a failure.
fn run(agent: Arc<dyn Agent>, places: Arc<Semaphore>, myself: ActorRef<WorkerMessage>, call: Arc<Call>) -> Task {
    let running = tokio::spawn(async move {
        let called = guarded(async {
            let _place = places.acquire().await;
            agent.call(&call).await
        });
        let answer = called.await.unwrap_or_else(|_| Err(Failure::new(FailureCode::Crashed, "the agent panicked")));
        drop(myself.cast(WorkerMessage::Answered(call, answer)));
    });
    Task(running.abort_handle())
}

#[cfg(test)]
mod tests;
