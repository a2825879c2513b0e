//! Agents that play the scenarios and err in a third of their calls.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use patchboard_faults::malformed;
use patchboard_faults::random::Random;
use patchboard_faults::scenario::{self, Scenario};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::ledger::Usage;
use patchboard_runtime::agent::{Agent, Call, CallResult, Failure, Reply};
use patchboard_runtime::runtime::Runtime;
use serde_json::{Value, json};

pub(crate) struct FaultyAgents {
    seed: u64,
    /// Runtime, while the test runs.
    runtime: Mutex<Option<Arc<Runtime>>>,
}

impl FaultyAgents {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, runtime: Mutex::default() }
    }

    pub(crate) fn runs_in(&self, runtime: &Arc<Runtime>) {
        *self.runtime.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(runtime));
    }

    pub(crate) fn runs_in_none(&self) {
        *self.runtime.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the scenario of a board and its document; `None` if the runtime no longer has the board.
    fn board(&self, call: &Call) -> Option<(&'static dyn Scenario, Value)> {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let snapshot = runtime.status(&call.board)?;
        let scenario = scenario::ALL.iter().find(|one| one.name() == snapshot.blueprint.name.as_str())?;
        Some((*scenario, snapshot.state.root().to_value()))
    }
}

impl Agent for FaultyAgents {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        let which =
            call.board.as_str().bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let random = Random::from_parts(self.seed, &[which, call.invocation.0, call.attempt.into()]);
        Box::pin(answer(self.board(call), call, random))
    }
}

async fn answer(board: Option<(&'static dyn Scenario, Value)>, call: &Call, mut random: Random) -> CallResult {
    let failure = |message: &str| Failure {
        code: FailureCode::Crashed,
        message: message.to_owned(),
        usage: None,
        deferral: None,
    };
    let Some((scenario, document)) = board else { return Err(failure("the board is not run here")) };
    let worker = call.worker.as_str();
    let ops = scenario.answer(worker, scenario::trigger_path(&call.prompt.user), &document);
    let reply = |ops: &[Value]| json!({"patch": ops, "intent": "what is due"}).to_string();
    tokio::time::sleep(Duration::from_millis(50 + random.below(700))).await;
    // Programs err less: a failed program is not called again.
    let dice = if worker == "environment" { 50 + random.below(60) } else { random.below(100) };
    let text = match dice {
        0..8 => malformed::mutate(&reply(&ops), &mut random).1,
        8..16 => reply(&[ops, scenario.unauthorized_write(worker, &document, &mut random)].concat()),
        16..18 => reply(&[json!({"op": "add", "path": "/extra", "value": "much ".repeat(1 << random.below(18))})]),
        18..20 => "[".repeat(1 + random.index(100_000)),
        20..22 => "[]".to_owned(),
        22..25 => panic!("as it may happen"),
        25..28 => return Err(failure("it is gone")),
        28..30 => std::future::pending().await,
        30..32 => {
            // Replies after the call's timeout.
            tokio::time::sleep(call.timeout + Duration::from_millis(100)).await;
            reply(&ops)
        }
        _ => reply(&ops),
    };
    let tokens = |text: &str| (text.len() as u64).div_ceil(4);
    let usage = Usage { prompt: tokens(&call.prompt.user), completion: tokens(&text), ..Usage::default() };
    Ok(Reply::new(text, Some(usage)))
}
