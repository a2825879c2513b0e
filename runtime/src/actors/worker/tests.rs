//! From the calls and cancellations of the kernel to the answers of the agent.

use std::pin::Pin;
use std::time::Duration;

use patchboard_kernel::ablation::Mode;
use patchboard_kernel::board::{self, Cancellation};
use patchboard_kernel::call_context::CallContext;
use patchboard_kernel::digest::{Hasher, Salt, sha256};
use patchboard_kernel::freshness::ReadSet;
use patchboard_kernel::id::{IdempotencyKey, InvocationId, Seq};
use patchboard_kernel::plan::PlanSource as _;
use patchboard_kernel::scheduler::AttemptHistory;
use patchboard_kernel::state;
use patchboard_kernel::view::Prompt;
use patchboard_protocols::PLANS;
use serde_json::json;
use tokio::sync::mpsc;

use super::*;
use crate::actors::breaker::{self, BreakerActor};
use crate::actors::messages::{BreakerMessage, SchedulerMessage};
use crate::actors::scheduler::{self, SchedulerActor};
use crate::agent::Reply;
use crate::clock::{BoardClock, SystemClock};

/// Actor in place of the kernel's, which forwards the answered invocations.
struct Ear;

impl Actor for Ear {
    type Msg = KernelMessage;
    type State = mpsc::UnboundedSender<(InvocationId, u32)>;
    type Arguments = mpsc::UnboundedSender<(InvocationId, u32)>;

    async fn pre_start(&self, _: ActorRef<KernelMessage>, heard: Self::State) -> ActorResult<Self::State> {
        Ok(heard)
    }

    async fn handle(&self, _: ActorRef<KernelMessage>, message: KernelMessage, heard: &mut Self::State) -> ActorResult {
        if let KernelMessage::Decide { input, .. } = message
            && let Input::Propose(proposal) = *input
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

fn call(invocation: u64, attempt: u32) -> Call {
    let blueprint =
        json!({"blueprint": 1, "name": "b", "state": {"schema": true}, "workers": {"w": {"agent": "script"}}});
    let plan = PLANS.plan(serde_json::from_value(blueprint).expect("a blueprint"), &Mode::default()).expect("a plan");
    let state = state::State::new(&json!({}), &Hasher::new(&Salt::ZERO));
    let basis = ReadSet { state, reads: Vec::new(), members: Vec::new() };
    let shown = CallContext::new(plan, "w".into(), Arc::new(basis), false).expect("the worker is there");
    let invocation = InvocationId(invocation);
    let decided = board::Call {
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
        timeout_ms: 60_000,
        admitted: None,
    };
    Call::new(decided, None)
}

/// Effect of a step.
enum Made {
    Calls(Vec<Call>),
    Cancels(u64, u32),
}

/// Starts the actors between the kernel and the agent, and a receiver of the answers in place of the kernel.
struct Actors {
    scheduler: ActorRef<SchedulerMessage>,
    breaker: ActorRef<BreakerMessage>,
    answers: mpsc::UnboundedReceiver<(InvocationId, u32)>,
}

impl Actors {
    async fn start() -> Self {
        let (heard, answers) = mpsc::unbounded_channel();
        let (kernel, _) = Actor::spawn(None, Ear, heard).await.expect("spawned");
        let probe = Failpoints::default();
        let clock = Arc::new(BoardClock::new(Arc::new(SystemClock)));
        let agent = Arc::new(Slow);
        let arguments = scheduler::Arguments { clock, kernel, agent, calls_max: 2, probe: probe.clone() };
        let (scheduler, _) = Actor::spawn(None, SchedulerActor, arguments).await.expect("spawned");
        let arguments = breaker::Arguments { scheduler: scheduler.clone(), probe };
        let (breaker, _) = Actor::spawn(None, BreakerActor, arguments).await.expect("spawned");
        Self { scheduler, breaker, answers }
    }

    fn make(&self, calls: Vec<Call>) {
        let calls = calls.into_iter().map(Arc::new).collect();
        let durable = SchedulerMessage::Durable { calls, awaiting_admission: None, wake_at: None, ended: None };
        self.scheduler.cast(durable).expect("sent");
    }

    fn cancel(&self, invocation: u64, attempt: u32) {
        let cancellation = Cancellation { invocation: InvocationId(invocation), attempt, worker: "w".into() };
        self.breaker.cast(BreakerMessage::Durable(vec![cancellation])).expect("sent");
    }
}

/// Returns the calls that are answered after these effects and enough time.
async fn answered(effects: Vec<Made>) -> Vec<(u64, u32)> {
    let mut actors = Actors::start().await;
    for effect in effects {
        match effect {
            Made::Calls(calls) => actors.make(calls),
            Made::Cancels(invocation, attempt) => actors.cancel(invocation, attempt),
        }
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut all = Vec::new();
    while let Ok((invocation, attempt)) = actors.answers.try_recv() {
        all.push((invocation.0, attempt));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_not_answered() {
    let both = || Made::Calls(vec![call(1, 1), call(2, 1)]);
    assert_eq!(answered(vec![both()]).await, [(1, 1), (2, 1)]);
    assert_eq!(answered(vec![both(), Made::Cancels(1, 1)]).await, [(2, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_does_not_concern_a_later_attempt() {
    let attempt = |attempt| Made::Calls(vec![call(1, attempt)]);
    assert_eq!(answered(vec![attempt(1), Made::Cancels(1, 1), attempt(2)]).await, [(1, 2)]);
    assert_eq!(answered(vec![attempt(1), attempt(2), Made::Cancels(1, 1)]).await, [(1, 2)]);
    assert_eq!(answered(vec![attempt(1), attempt(2), Made::Cancels(1, 2)]).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_cancellation_overtakes_its_call() {
    let mut actors = Actors::start().await;
    for invocation in 1..=500 {
        actors.make(vec![call(invocation, 1)]);
        actors.cancel(invocation, 1);
    }
    actors.make(vec![call(501, 1)]);
    assert_eq!(actors.answers.recv().await, Some((InvocationId(501), 1)));
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_run_at_once_than_may() {
    let start = tokio::time::Instant::now();
    let mut actors = Actors::start().await;
    actors.make((1..=6).map(|number| call(number, 1)).collect());
    for _ in 0..6 {
        actors.answers.recv().await.expect("answered");
    }
    assert_eq!(start.elapsed().as_secs(), 3);
}
