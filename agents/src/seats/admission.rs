//! Calls of models go through the gate: a call that the kernel names becomes a permit, a refusal becomes a deferral.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::admission::{Admission, Waiting};
use patchboard_kernel::deferral::{Deferral, PATIENCE_MS};
use patchboard_kernel::digest::sha256;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::BoardId;
use patchboard_runtime::agent::{Admitted, Answer, Call, Failure, Permit};

use super::Seats;
use crate::config::{DEFAULT_MODEL, Model};
use crate::gate::{self, Endpoint, Limits, ModelKey, Refusal, Request, Verdict};

impl Seats {
    /// Asks the gate for a call. A model that is not configured is let through: the call says what is missing.
    pub(super) fn ask_gate(&self, board: &BoardId, waiting: &Waiting) -> Admitted {
        let name = waiting.model.as_deref().unwrap_or(DEFAULT_MODEL);
        let Some(model) = self.config.model(Some(name)) else { return Admitted::Now(Permit::ungated()) };
        let request = Request {
            board: board.clone(),
            endpoint: Arc::new(endpoint(model)),
            fallbacks: Vec::new(),
            tokens: waiting.tokens,
            // The prompt is compiled when the call is admitted: until then the invocation stands for it.
            prompt: sha256(format!("{board}/{}", waiting.invocation).as_bytes()),
        };
        let (gate, name) = (self.gate.clone(), name.to_owned());
        let left = waiting.not_before.map_or(0, |not_before| not_before.ms_since(self.means.clock.now()));
        if left == 0 {
            return match gate.admit(request) {
                gate::Admission::Now(permit) => Admitted::Now(permitted(name, permit)),
                gate::Admission::Later(waiting) => Admitted::Later(Box::pin(within_patience(name, waiting))),
            };
        }
        Admitted::Later(Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(left)).await;
            match gate.admit(request) {
                gate::Admission::Now(permit) => Some(permitted(name, permit)),
                gate::Admission::Later(waiting) => within_patience(name, waiting).await,
            }
        }))
    }
}

async fn within_patience(model: String, waiting: gate::Waiting) -> Option<Permit> {
    let permit = tokio::time::timeout(Duration::from_millis(PATIENCE_MS), waiting).await.ok()?;
    Some(permitted(model, permit))
}

fn permitted(model: String, permit: gate::Permit) -> Permit {
    let guard: Arc<dyn Any + Send + Sync> = Arc::new(permit);
    Permit { admission: Admission { model: Some(model) }, guard: Some(guard) }
}

fn endpoint(model: &Model) -> Endpoint {
    let fallback_after = Duration::from_secs(30);
    Endpoint { key: ModelKey::new(&model.url, &model.model), limits: Limits::default(), fallback_after }
}

/// Reports to the gate what came of a call, and lets it decide whether a request is deferred.
pub(super) fn report(call: &Call, answer: Answer) -> Answer {
    let guard = call.permit.as_ref().and_then(|permit| permit.guard.as_ref());
    let Some(permit) = guard.and_then(|guard| guard.downcast_ref::<gate::Permit>()) else { return answer };
    let failure = match answer {
        Ok(reply) => {
            permit.answered();
            return Ok(reply);
        }
        Err(failure) => failure,
    };
    let deferral = match failure.deferral {
        // Waiting mends nothing: the board is paused, and every other board finds out for itself.
        Some(deferral) if deferral.reason.needs_operator() => return Err(failure),
        Some(deferral) => match permit.refused(Refusal::new(deferral, deferral.is_ambiguous)) {
            Verdict::Deferred { not_before } => {
                let wait_ms = u64::try_from(not_before.as_millis()).unwrap_or(u64::MAX);
                Some(Deferral { wait_ms: Some(wait_ms), ..deferral })
            }
            Verdict::Charged => None,
        },
        None => {
            if !matches!(failure.code, FailureCode::NotConfigured | FailureCode::Unreachable | FailureCode::Timeout) {
                permit.answered();
            }
            None
        }
    };
    Err(Failure { deferral, ..failure })
}
