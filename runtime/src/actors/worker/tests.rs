//! Calls and withdrawals come from two senders, so they may arrive in any order.

use std::pin::Pin;
use std::time::Duration;

use patchboard_kernel::ablation::Mode;
use patchboard_kernel::call_context::CallContext;
use patchboard_kernel::digest::{Hasher, Salt, sha256};
use patchboard_kernel::freshness::ReadSet;
use patchboard_kernel::id::{IdempotencyKey, Seq};
use patchboard_kernel::plan::{PlanSource as _, UncachedPlans};
use patchboard_kernel::scheduler::AttemptHistory;
use patchboard_kernel::state;
use patchboard_kernel::view::Prompt;
use serde_json::json;
use tokio::sync::mpsc;

use super::*;
use crate::agent::Reply;

/// Actor in place of the kernel's, which forwards the answered invocations.
struct Ear;

impl Actor for Ear {
    type Msg = kernel::Message;
    type State = mpsc::UnboundedSender<(InvocationId, u32)>;
    type Arguments = mpsc::UnboundedSender<(InvocationId, u32)>;

    async fn pre_start(
        &self,
        _: ActorRef<kernel::Message>,
        heard: Self::State,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(heard)
    }

    async fn handle(
        &self,
        _: ActorRef<kernel::Message>,
        message: kernel::Message,
        heard: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if let kernel::Message::Decide { input: Input::Propose(proposal), .. } = message
            && let ProposalSource::Attempt { invocation, attempt } = proposal.from
        {
            heard.send((invocation, attempt))?;
        }
        Ok(())
    }
}

/// Agent that answers after a second.
struct Slow;

impl Agent for Slow {
    fn call<'a>(&'a self, _: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(Reply::new("[]", None))
        })
    }
}

fn order(seq: u64) -> EffectOrder {
    EffectOrder { seq: Seq(seq), index: 0 }
}

fn call(seq: u64, invocation: u64, attempt: u32) -> Message {
    let blueprint =
        json!({"blueprint": 1, "name": "b", "state": {"schema": true}, "workers": {"w": {"agent": "script"}}});
    let plan =
        UncachedPlans.plan(serde_json::from_value(blueprint).expect("a blueprint"), &Mode::default()).expect("a plan");
    let state = state::State::new(&json!({}), &Hasher::new(&Salt::ZERO));
    let basis = ReadSet { state, reads: Vec::new(), members: Vec::new() };
    let shown = CallContext::new(plan, "w".into(), Arc::new(basis), false).expect("the worker is there");
    let invocation = InvocationId(invocation);
    let call = Call {
        board: "b".into(),
        parent: None,
        invocation,
        cause: Seq(1),
        attempt,
        idempotency_key: IdempotencyKey::for_attempt(invocation, attempt),
        worker: "w".into(),
        model: None,
        view_hash: sha256(b""),
        prompt: Arc::new(Prompt { system: String::new(), user: String::new() }),
        context: Arc::new(shown),
        occurrence: 0,
        earlier_attempts: AttemptHistory::default(),
        timeout: Duration::from_secs(60),
        permit: None,
    };
    Message::Call(order(seq), Box::new(call))
}

fn withdraw(seq: u64, invocation: u64) -> Message {
    Message::Cancel(order(seq), InvocationId(invocation))
}

/// Returns the calls that are answered after these messages and enough time.
async fn answered(messages: Vec<Message>) -> Vec<(u64, u32)> {
    let (heard, mut answers) = mpsc::unbounded_channel();
    let (kernel, _) = Actor::spawn(None, Ear, heard).await.expect("spawned");
    let arguments =
        Arguments { agent: Arc::new(Slow), kernel: kernel.clone(), calls_max: 2, probe: Failpoints::default() };
    let (worker, _) = Actor::spawn(None, WorkerActor, arguments).await.expect("spawned");
    for message in messages {
        worker.cast(message).expect("sent");
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    worker.stop_and_wait(None, None).await.expect("stopped");
    kernel.drain_and_wait(None).await.expect("drained");
    let mut all = Vec::new();
    while let Ok((invocation, attempt)) = answers.try_recv() {
        all.push((invocation.0, attempt));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_call_is_not_answered_whichever_came_first() {
    assert_eq!(answered(vec![call(1, 1, 1), call(2, 2, 1)]).await, [(1, 1), (2, 1)]);
    assert_eq!(answered(vec![call(1, 1, 1), call(2, 2, 1), withdraw(3, 1)]).await, [(2, 1)]);
    assert_eq!(answered(vec![withdraw(3, 1), call(1, 1, 1), call(2, 2, 1)]).await, [(2, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_does_not_concern_a_later_attempt() {
    assert_eq!(answered(vec![call(1, 1, 1), withdraw(2, 1), call(3, 1, 2)]).await, [(1, 2)]);
    assert_eq!(answered(vec![call(1, 1, 1), call(3, 1, 2), withdraw(2, 1)]).await, [(1, 2)]);
    assert_eq!(answered(vec![withdraw(2, 1), call(1, 1, 1), call(3, 1, 2)]).await, [(1, 2)]);
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_run_at_once_than_may() {
    let start = tokio::time::Instant::now();
    let (heard, mut answers) = mpsc::unbounded_channel();
    let (kernel, _) = Actor::spawn(None, Ear, heard).await.expect("spawned");
    let arguments = Arguments { agent: Arc::new(Slow), kernel, calls_max: 2, probe: Failpoints::default() };
    let (worker, _) = Actor::spawn(None, WorkerActor, arguments).await.expect("spawned");
    for number in 1..=6 {
        worker.cast(call(number, number, 1)).expect("sent");
    }
    for _ in 0..6 {
        answers.recv().await.expect("answered");
    }
    assert_eq!(start.elapsed().as_secs(), 3);
}
