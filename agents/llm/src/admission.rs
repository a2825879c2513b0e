//! Admission of model calls through the gate: maps kernel requests to permits, and provider refusals to deferrals.

use std::any::Any;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use patchboard_kernel::admission::{Admission, WaitingCall};
use patchboard_kernel::deferral::{Deferral, DeferralReason};
use patchboard_kernel::digest::sha256;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_runtime::agent::{AdmissionDecision, Call, CallResult, Failure, Permit};
use patchboard_runtime::clock::Clock;
use tokio::time::Instant;

use crate::config::Model;
use crate::credentials::account;
use crate::gate::{self, Endpoint, Gate, LimitWait, Limits, ModelKey, RejectionOutcome, Request};
use crate::reply_failures::reply_tokens_after;

/// Requests admission of a call to the first model of a chain, or to one of its fallbacks. A call of an unconfigured
/// model is admitted, and reports the missing configuration.
pub fn ask_gate(
    gate: &Gate,
    clock: &Arc<dyn Clock>,
    chain: &[(&str, &Model)],
    board: &BoardId,
    waiting: &WaitingCall,
) -> AdmissionDecision {
    let Some((&(name, model), fallbacks)) = chain.split_first() else {
        return AdmissionDecision::Now(Permit::ungated());
    };
    let patience = model.patience.as_ms().min(waiting.patience_ms.unwrap_or(u64::MAX));
    let patience = Duration::from_millis(patience);
    let endpoint = |model: &Model| {
        let endpoint = endpoint(model);
        Endpoint { fallback_after: endpoint.fallback_after.min(patience / 2), ..endpoint }
    };
    // A fallback that is too expensive would end the board, and the preferred model may come back.
    let (fallbacks, dear): (Vec<_>, Vec<_>) =
        fallbacks.iter().partition(|(other, model)| waiting.affords(&admission(other, model, waiting)));
    let is_served_later = dear.iter().any(|(other, model)| waiting.may_afford(&admission(other, model, waiting)));
    let (others, fallbacks): (Vec<_>, Vec<_>) = fallbacks
        .into_iter()
        .map(|(other, model)| (admission(other, model, waiting), Arc::new(endpoint(model))))
        .unzip();
    let larger = u64::from(reply_tokens(model, waiting).saturating_sub(waiting.reply_tokens));
    let (key, now) = (key(model), clock.now());
    let left = waiting.wait.as_ref().map_or(0, |wait| wait.not_before.ms_since(now));
    let left = Duration::from_millis(left);
    if let Some(wait) = waiting.wait.as_ref().filter(|_| !left.is_zero()) {
        gate.hold(&key, wait.reason, left);
    }
    // With several models the gate decides better which one to use, and when.
    let pause = if fallbacks.is_empty() { left } else { Duration::ZERO };
    let request = Request {
        board: board.clone(),
        endpoint: Arc::new(endpoint(model)),
        fallbacks,
        tokens: waiting.tokens.saturating_add(larger),
        // The prompt is compiled at admission: until then the invocation identifies it.
        prompt: sha256(format!("{board}/{}", waiting.invocation).as_bytes()),
    };
    let chain = ModelChain {
        admissions: std::iter::once(admission(name, model, waiting)).chain(others).collect(),
        patience,
        clock: Arc::clone(clock),
        until: waiting.wait.as_ref().map(|wait| wait.patience),
        is_served_later,
    };
    let gate = gate.clone();
    if pause.is_zero() {
        return match gate.admit(request) {
            gate::AdmitResult::Now(permit) => AdmissionDecision::Now(chain.permitted(permit)),
            gate::AdmitResult::Later(waiting) => AdmissionDecision::Later(Box::pin(chain.within_patience(waiting))),
        };
    }
    AdmissionDecision::Later(Box::pin(async move {
        gate.wait(key, pause).await;
        match gate.admit(request) {
            gate::AdmitResult::Now(permit) => Some(chain.permitted(permit)),
            gate::AdmitResult::Later(waiting) => chain.within_patience(waiting).await,
        }
    }))
}

struct ModelChain {
    /// The preferred model, then its fallbacks.
    admissions: Vec<Admission>,
    /// Time that a call waits for all of them.
    patience: Duration,
    clock: Arc<dyn Clock>,
    /// End of patience, if the call was deferred before.
    until: Option<Timestamp>,
    /// A fallback may be affordable once other calls of the board are settled.
    is_served_later: bool,
}

impl ModelChain {
    async fn within_patience(self, waiting: gate::PendingPermit) -> Option<Permit> {
        let permit = tokio::time::timeout(self.patience, waiting).await.ok()?;
        Some(self.permitted(permit))
    }

    fn permitted(self, permit: gate::Permit) -> Permit {
        let admission = self.admissions.get(permit.position()).cloned().unwrap_or_default();
        let guard: Arc<dyn Any + Send + Sync> = Arc::new(ModelPermit {
            permit,
            chain: self,
            is_used: AtomicBool::default(),
            is_limited: AtomicBool::default(),
            is_at_fault: AtomicBool::default(),
        });
        Permit { admission, guard: Some(guard) }
    }

    /// Returns the longest wait that ends within the board's patience.
    fn wait_max(&self) -> Duration {
        let Some(until) = self.until else { return self.patience };
        let left = Duration::from_millis(until.ms_since(self.clock.now()));
        // Leaves time for the refusal to reach the board.
        left.saturating_sub((left / 4).min(Duration::from_secs(1)))
    }
}

/// Right to one call, with the patience that applies if it is deferred.
struct ModelPermit {
    permit: gate::Permit,
    chain: ModelChain,
    is_used: AtomicBool,
    /// The operator's limits blocked a further request, and the call is deferred for that.
    is_limited: AtomicBool,
    /// The server fails on this request while it answers another one.
    is_at_fault: AtomicBool,
}

/// Waits until the limits of a call's model leave room for a request. The permit covers the first request.
/// The error is the time until then, if it is longer than half of the time left.
pub(crate) async fn await_limits(call: Option<&Call>, tokens: u64, deadline: Instant) -> Result<(), Duration> {
    let Some(pass) = pass(call) else { return Ok(()) };
    if !pass.is_used.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    while let Err(LimitWait { next, whole }) = pass.permit.charge_request(tokens) {
        if whole > deadline.saturating_duration_since(Instant::now()) / 2 {
            return Err(whole);
        }
        tokio::time::sleep(next).await;
    }
    Ok(())
}

/// Notes that a call is deferred because of its model's limits, without its provider's involvement.
pub(crate) fn note_limited(call: Option<&Call>) {
    if let Some(pass) = pass(call) {
        pass.is_limited.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn note_reply(call: Option<&Call>) {
    if let Some(pass) = pass(call) {
        pass.permit.report_answer();
    }
}

/// Notes that a server fails on the request of a call while it answers another one.
pub(crate) fn note_request_failure(call: Option<&Call>) {
    if let Some(pass) = pass(call) {
        pass.is_at_fault.store(true, Ordering::Relaxed);
    }
}

fn pass(call: Option<&Call>) -> Option<&ModelPermit> {
    call?.permit.as_ref()?.guard.as_ref()?.downcast_ref()
}

fn admission(name: &str, model: &Model, waiting: &WaitingCall) -> Admission {
    let reply_tokens = reply_tokens(model, waiting);
    let reply_tokens = (reply_tokens != waiting.reply_tokens).then_some(u64::from(reply_tokens));
    Admission { reply_tokens, ..plain(name, model) }
}

/// Returns the token limit of a call's reply: more after a truncated one, up to the model's limit.
fn reply_tokens(model: &Model, waiting: &WaitingCall) -> u32 {
    let most = model.max_reply_tokens.map_or(u32::MAX, NonZeroU32::get);
    reply_tokens_after(&waiting.past, waiting.reply_tokens, model).min(most)
}

/// Returns the admission of a call with the usual reply limit.
pub fn plain(name: &str, model: &Model) -> Admission {
    Admission { model: Some(name.to_owned()), price: model.price.clone(), reply_tokens: None }
}

/// Returns the bulkhead of a server, with the limits of all models of the same endpoint and name.
pub fn bulkhead<'m>(server: &Model, models: impl Iterator<Item = &'m Model>) -> Endpoint {
    let own = endpoint(server);
    models
        .map(endpoint)
        .filter(|other| other.key == own.key)
        .fold(own.clone(), |own, other| Endpoint { limits: own.limits.strictest(other.limits), ..own })
}

pub(crate) fn key(model: &Model) -> ModelKey {
    ModelKey::new(&model.url, &model.model).with_account(account(model))
}

fn endpoint(model: &Model) -> Endpoint {
    Endpoint {
        key: key(model),
        limits: Limits {
            concurrency: model.concurrency,
            requests_per_minute: model.requests_per_minute,
            tokens_per_minute: model.tokens_per_minute,
        },
        // A fallback is tried before patience ends.
        fallback_after: Duration::from_millis(model.fallback_after.as_ms().min(model.patience.as_ms() / 2)),
    }
}

/// Reports the outcome of a call to the gate, which decides about a deferral.
pub fn report(call: &Call, answer: CallResult) -> CallResult {
    let Some(pass) = pass(Some(call)) else { return answer };
    let ModelPermit { permit, chain: ModelChain { patience, is_served_later, .. }, .. } = pass;
    let failure = match answer {
        Ok(reply) => {
            permit.report_answer();
            return Ok(reply);
        }
        Err(failure) => failure,
    };
    let ms = |time: Duration| Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let is_served_elsewhere = permit.is_served_elsewhere() || *is_served_later;
    let deferral = match failure.deferral {
        // Waiting does not help: the board is paused, and every other board finds out for itself.
        Some(deferral) if deferral.reason.needs_operator() && !is_served_elsewhere => {
            permit.report_operator_error(deferral.reason);
            return Err(failure);
        }
        // The provider was not involved.
        Some(deferral) if pass.is_limited.load(Ordering::Relaxed) => {
            Some(Deferral { patience_ms: ms(*patience), is_served_elsewhere, ..deferral })
        }
        Some(deferral) => match permit.report_rejection(deferral) {
            RejectionOutcome::Deferred { not_before } => {
                // Capped to the board's patience, so that this provider is tried once more, and not only a fallback.
                let wait = not_before.min(pass.chain.wait_max());
                Some(Deferral { wait_ms: ms(wait), patience_ms: ms(*patience), is_served_elsewhere, ..deferral })
            }
            RejectionOutcome::Charged => None,
        },
        None if failure.code == FailureCode::Refused => permit.report_prompt_rejected().then(|| Deferral {
            wait_ms: Some(0),
            patience_ms: ms(*patience),
            is_served_elsewhere: true,
            ..Deferral::new(DeferralReason::RequestRefused)
        }),
        // The attempt is charged. The next one goes to a fallback, if there is one.
        None if pass.is_at_fault.load(Ordering::Relaxed) => {
            permit.report_prompt_rejected();
            None
        }
        None => {
            if !matches!(failure.code, FailureCode::NotConfigured | FailureCode::Unreachable | FailureCode::Timeout) {
                permit.report_answer();
            }
            None
        }
    };
    Err(Failure { deferral, ..failure })
}
