//! Plays boards with models that are rate-limited, unavailable, paid for, or replaced by another one; and a board that
//! is retried.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use patchboard_kernel::admission::{Admission, WaitingCall};
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::deferral::{Deferral, DeferralReason};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::BoardId;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::money::Price;
use patchboard_kernel::record::{LimitOverrides, Retried};
use patchboard_lint::source::Source;
use patchboard_runtime::agent::{AdmissionDecision, Agent, Call, CallResult, Failure, Permit, Reply};
use serde_json::Value;

use super::play::{House, Seats, accepted, until};

/// A blueprint with models that write lines. One worker has too little money for any call.
const LINES: &str = r#"
blueprint: 2
name: lines
state:
  schema:
    type: object
    additionalProperties: false
    properties: {request: {}, lines: {type: array, items: {type: string}}}
  initial: {lines: []}
workers:
  writer:
    agent: llm
    role: Write a line.
    writes: [{path: /lines/-, ops: [add]}]
  editor:
    agent: llm
    role: Write another line.
    reads: [/lines]
    writes: [{path: /lines/-, ops: [add]}]
    limits: {money: 0.05, reply_tokens: 100}
  poor:
    agent: llm
    role: Write a line.
    writes: [{path: /lines/-, ops: [add]}]
    limits: {money: 0.000001}
rules:
  - {name: begin, trigger: start, run: writer}
  - {name: poor, trigger: {op: add, path: /lines/*}, run: poor}
  - {name: edit, trigger: {op: add, path: /lines/*}, run: editor}
limits: {money: 1.5, wall: 1h}
done: {when: size(state.lines) > 1}
"#;

/// A blueprint with a line that a person must approve, without an expiry.
const DRAFT: &str = r#"
blueprint: 2
name: draft
state:
  schema:
    type: object
    additionalProperties: false
    properties: {request: {}, lines: {type: array, items: {type: string}}}
  initial: {lines: []}
workers:
  boss: {agent: human}
  writer:
    agent: llm
    role: Write a line.
    writes: [{path: /lines/-, ops: [add], approval: {by: boss, expires: never}}]
    limits: {attempts: 2}
rules:
  - {name: begin, trigger: start, run: writer}
limits: {tokens: 5000}
done: {when: size(state.lines) > 0}
"#;

/// Provider that gives prepared answers in order, at the operator's price.
struct Provider(Mutex<std::vec::IntoIter<CallResult>>);

impl Agent for Provider {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        let answer = self.0.lock().unwrap_or_else(PoisonError::into_inner).next();
        Box::pin(ready(answer.unwrap_or_else(|| panic!("{} is called once too often", call.worker))))
    }

    fn admit(&self, _: &BoardId, waiting: &WaitingCall) -> AdmissionDecision {
        // The second model is used after the first has refused the request.
        let is_elsewhere = waiting.wait.as_ref().is_some_and(|wait| wait.reason == DeferralReason::RequestRefused);
        let admission = match is_elsewhere {
            true => admission("second", 800_000_000),
            false => admission("default", 2_500_000_000),
        };
        AdmissionDecision::Now(Permit { admission, guard: None })
    }
}

/// Returns the admission to a model with this price of its prompts.
pub(super) fn admission(model: &str, input: u64) -> Admission {
    let price = Price { input, cached: input / 10, output: 4 * input, currency: "USD".to_owned() };
    Admission { model: Some(model.to_owned()), price: Some(price), reply_tokens: None }
}

fn provider(answers: Vec<CallResult>) -> Seats {
    Seats::of(Arc::new(Provider(Mutex::new(answers.into_iter()))))
}

fn says(text: &str) -> CallResult {
    let usage = Usage { prompt: 300, completion: 20, cached: 100, estimated: false, money: 0 };
    let patch = format!(r#"[{{"op":"add","path":"/lines/-","value":"{text}"}}]"#);
    let raw = Some(format!("<think>A line.</think>\n```json\n{patch}\n```"));
    Ok(Reply { raw, ..Reply::new(patch, Some(usage)) })
}

fn defers(reason: DeferralReason, wait_ms: Option<u64>) -> Failure {
    let deferral = Deferral { wait_ms, ..Deferral::new(reason) };
    Failure { code: FailureCode::Unreachable, message: format!("{reason}"), usage: None, deferral: Some(deferral) }
}

fn read(text: &str) -> Blueprint {
    accepted(&Source::read("golden.yaml", text).expect("it can be read"))
}

/// Plays a board that is deferred for a rate limit, an outage, a refused request that another model then serves, and a
/// refused key. It is paused for the key, and resumed.
pub(super) async fn provider_waits(house: &House) {
    let usage = Some(Usage { prompt: 40, completion: 0, cached: 0, estimated: true, money: 0 });
    let deferral = Deferral { is_served_elsewhere: true, ..Deferral::new(DeferralReason::RequestRefused) };
    let agent = provider(vec![
        Err(defers(DeferralReason::RateLimited, Some(6200))),
        Err(Failure { usage, ..defers(DeferralReason::Overloaded, None) }),
        Err(Failure { deferral: Some(deferral), ..defers(DeferralReason::RequestRefused, Some(0)) }),
        says("one"),
        Err(defers(DeferralReason::KeyRefused, None)),
        says("two"),
    ]);
    let runtime = house.runtime(agent).await;
    let board = runtime.create(read(LINES), Value::Null, None).await.expect("a board");
    until(&board, |snapshot| snapshot.paused).await;
    board.resume(Some("the key is new".into())).await.expect("resumed");
    board.wait_for_end().await.expect("it ends");
    runtime.shutdown().await;
}

/// Plays a board that gives up and is retried with more tokens. A person is asked, and the question never expires.
pub(super) async fn retried(house: &House) {
    let fails = |code| Err(Failure { code, message: "the process ended".to_owned(), usage: None, deferral: None });
    let agent = provider(vec![fails(FailureCode::Crashed), fails(FailureCode::Crashed), says("one")]);
    let runtime = house.runtime(agent).await;
    let board = runtime.create(read(DRAFT), Value::Null, None).await.expect("a board");
    board.wait_for_end().await.expect("it gives up");
    let limits = LimitOverrides { tokens: Some(50_000), wall_ms: Some(7_200_000), ..LimitOverrides::default() };
    let worker = Some("writer".into());
    let retried = Retried { worker, limits, token: Some("once more".into()), ..Retried::default() };
    board.retry(retried).await.expect("retried");
    until(&board, |snapshot| snapshot.waits_for_persons).await;
    runtime.shutdown().await;
}
