//! Timing of the first and repeated admission requests for a call.

use std::sync::Mutex;

use patchboard_kernel::admission::{Admission, WaitingCall};
use patchboard_kernel::ledger::Usage;

use super::*;
use crate::agent::{AdmissionDecision, Permit};

/// Agent with a function as its gate, which waits for a permit before it answers.
struct Gated<F> {
    gate: F,
    asked: Mutex<Vec<InvocationId>>,
    answers: tokio::sync::Semaphore,
    usage: Usage,
}

impl<F: Fn(&WaitingCall, usize) -> AdmissionDecision + Send + Sync + 'static> Gated<F> {
    fn new(usage: u64, gate: F) -> Arc<Self> {
        let usage = Usage { prompt: usage, ..Usage::default() };
        let answers = tokio::sync::Semaphore::new(0);
        Arc::new(Self { gate, asked: Mutex::default(), answers, usage })
    }

    fn asked_for(&self, invocation: u64) -> usize {
        let asked = self.asked.lock().expect("no panic");
        asked.iter().filter(|asked| **asked == InvocationId(invocation)).count()
    }
}

impl<F: Fn(&WaitingCall, usize) -> AdmissionDecision + Send + Sync + 'static> Agent for Gated<F> {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        let reply = json!([{"op": "replace", "path": format!("/{}", call.worker), "value": "done"}]);
        Box::pin(async move {
            self.answers.acquire().await.expect("open").forget();
            Ok(Reply::new(reply.to_string(), Some(self.usage)))
        })
    }

    fn admit(&self, _: &BoardId, waiting: &WaitingCall) -> AdmissionDecision {
        self.asked.lock().expect("no panic").push(waiting.invocation);
        (self.gate)(waiting, self.asked_for(waiting.invocation.0))
    }
}

/// Returns a blueprint of two language models that each write once, and of external notes.
fn two(limits: Value) -> Blueprint {
    let text = json!({"type": "string"});
    let seat = |name: &str| {
        json!({
            "agent": "llm",
            "role": "Write.",
            "reads": [format!("/{name}")],
            "writes": [{"path": format!("/{name}"), "ops": ["replace"]}],
            "limits": {"reply_tokens": 1000, "attempts": 1},
        })
    };
    let rule = |name: &str| json!({"name": name, "trigger": "start", "run": name});
    let blueprint = json!({
        "blueprint": 2,
        "name": "two",
        "limits": limits,
        "state": {
            "schema": {
                "type": "object",
                "properties": {"one": text, "two": text, "steps": {"type": "array", "items": {"type": "integer"}}},
                "additionalProperties": false,
            },
            "initial": {"one": "", "two": "", "steps": []},
        },
        "workers": {
            "one": seat("one"),
            "two": seat("two"),
            "walker": {
                "agent": "script",
                "reads": ["/steps"],
                "writes": [{"path": "/steps/-", "ops": ["add"]}],
                "freshness": "none",
            },
        },
        "rules": [rule("one"), rule("two")],
        "done": {"when": "state.one != \"\" && state.two != \"\""},
    });
    serde_json::from_value(blueprint).expect("a blueprint")
}

/// Returns a permit for a model with a price in millionths of the currency per token.
fn priced(name: &str, price: u64) -> Permit {
    let price = price * 1_000_000_000;
    let price = json!({"input": price, "cached": price, "output": price, "currency": "EUR"});
    let price = Some(serde_json::from_value(price).expect("a price"));
    Permit { admission: Admission { model: Some(name.to_owned()), price, reply_tokens: None }, guard: None }
}

/// Returns the answer of a gate that takes a moment.
fn later(permit: Permit) -> AdmissionDecision {
    AdmissionDecision::Later(Box::pin(async move {
        tokio::task::yield_now().await;
        Some(permit)
    }))
}

#[tokio::test(start_paused = true)]
async fn the_gate_is_asked_again_for_a_call_without_a_budget_once_another_call_is_settled() {
    for is_later in [false, true] {
        let dir = dir();
        let journal = sqlite(dir.path());
        // Each call reserves at least 1,000 tokens, and uses 10.
        let agent = Gated::new(10, move |_, _| match is_later {
            false => AdmissionDecision::Now(Permit::ungated()),
            true => later(Permit::ungated()),
        });
        let runtime = runtime(journal.clone(), Arc::clone(&agent) as Arc<dyn Agent>).await;
        let board = create(&runtime, two(json!({"tokens": 1900}))).await;
        until(&mut board.subscribe(None), Kind::Invoked).await;
        for step in 0..10 {
            board.propose(proposal(&format!("t{step}"), STEP)).await.expect("committed");
        }
        assert_eq!((agent.asked_for(1), agent.asked_for(2)), (1, 1), "{is_later}");
        agent.answers.add_permits(2);
        assert_eq!(board.wait_for_end().await.expect("ended").end, End::Done);
        assert_eq!(agent.asked_for(1) + agent.asked_for(2), 3, "{is_later}");
        assert_sound(&journal, board.id());
        runtime.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_with_an_unaffordable_model_is_given_up_after_one_admission() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let agent = Gated::new(10, |_, _| later(priced("dear", 1000)));
    let runtime = runtime(journal.clone(), Arc::clone(&agent) as Arc<dyn Agent>).await;
    let board = create(&runtime, two(json!({"money": 0.5}))).await;
    assert_eq!(board.wait_for_end().await.expect("ended").end, End::Stopped);
    assert_eq!((agent.asked_for(1), agent.asked_for(2)), (1, 1));
    assert_sound(&journal, board.id());
    runtime.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_gate_is_asked_again_where_the_admitted_model_has_become_too_dear() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let (dear, cheap) = (priced("dear", 1000), priced("cheap", 0));
    let release = Arc::new(Notify::new());
    let for_second = Arc::clone(&release);
    // The first call costs more than it reserved: the money left never exceeds that at the second call's admission
    // request.
    let agent = Gated::new(1500, move |waiting, nth| match (waiting.invocation.0, nth) {
        (1, _) => AdmissionDecision::Now(dear.clone()),
        (_, 1) => {
            let (release, dear) = (Arc::clone(&for_second), dear.clone());
            AdmissionDecision::Later(Box::pin(async move {
                release.notified().await;
                Some(dear)
            }))
        }
        _ => AdmissionDecision::Now(cheap.clone()),
    });
    let runtime = runtime(journal.clone(), Arc::clone(&agent) as Arc<dyn Agent>).await;
    let board = create(&runtime, two(json!({"money": 2.5}))).await;
    agent.answers.add_permits(2);
    until(&mut board.subscribe(None), Kind::Committed).await;
    release.notify_one();
    assert_eq!(board.wait_for_end().await.expect("ended").end, End::Done);
    let records = assert_sound(&journal, board.id());
    let models = records.iter().filter(|record| record.kind == Kind::Invoked).map(|record| match record.body() {
        Ok(Body::Invoked(invoked)) => invoked.admitted.clone().and_then(|admitted| admitted.model),
        _ => None,
    });
    assert_eq!(models.collect::<Vec<_>>(), [Some("dear".to_owned()), Some("cheap".to_owned())]);
    runtime.shutdown().await;
}
