//! Interface of agents: the calls that the runtime makes, and their answers.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::admission::{Admission, WaitingCall};
use patchboard_kernel::board::{self, ReplyBody};
use patchboard_kernel::deferral::{Deferral, DeferralReason};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, IdempotencyKey};
use patchboard_kernel::ledger::Usage;

/// One attempt of one invocation, durable in the journal before its agent is called.
#[derive(Clone, Debug)]
pub struct Call {
    /// The call as the board has decided it.
    pub decided: board::Call,
    /// Timeout of the agent.
    pub timeout: Duration,
    /// Permit of a language model's call.
    pub permit: Option<Permit>,
}

/// Longest time that is withheld from a call's timeout, in milliseconds.
const SPARE_MAX_MS: u64 = 500;

impl Call {
    /// Creates the call of an agent, with the permit of the gate, if there is one.
    pub fn new(decided: board::Call, permit: Option<Permit>) -> Self {
        let permit = decided.admitted.as_ref().map(|admission| {
            // The kernel reserves a larger reply limit only if a budget suffices for it.
            Permit { admission: admission.clone(), ..permit.unwrap_or_else(Permit::ungated) }
        });
        // An agent that waits for a provider still reports within the board's timeout that no byte arrived.
        let spare_ms = if permit.is_some() { (decided.timeout_ms / 20).min(SPARE_MAX_MS) } else { 0 };
        let timeout = Duration::from_millis(decided.timeout_ms - spare_ms);
        Self { decided, timeout, permit }
    }
}

impl Deref for Call {
    type Target = board::Call;

    fn deref(&self) -> &board::Call {
        &self.decided
    }
}

/// An agent's answer: the text of a patch or of an envelope around one (SPEC section 4).
#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    /// Text, expected to be strict JSON; the kernel judges.
    pub text: String,
    /// Usage, if any and if known.
    pub usage: Option<Usage>,
    /// Original reply, if the text was made from it ([`patchboard_kernel::blueprint::Worker::format`]).
    pub converted_from: Option<String>,
    /// Original text of the model, if wrapping around it was removed.
    pub raw: Option<String>,
}

impl Reply {
    /// Creates a reply without an original.
    pub fn new(text: impl Into<String>, usage: Option<Usage>) -> Self {
        Self { text: text.into(), usage, converted_from: None, raw: None }
    }

    /// Converts the reply into the kernel's form.
    pub fn into_body(self) -> ReplyBody {
        match self.converted_from {
            Some(of) => ReplyBody::Derived { reply: self.text, source: of },
            None => ReplyBody::Text(self.text),
        }
    }
}

/// Failed call.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    /// Stable code.
    pub code: FailureCode,
    /// Message for people, without secrets.
    pub message: String,
    /// Usage of the failed call, if known.
    pub usage: Option<Usage>,
    /// Set if the provider did not accept the request, and may accept it later.
    pub deferral: Option<Deferral>,
}

impl Failure {
    /// Builds a failure without known usage.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), usage: None, deferral: None }
    }
}

/// Permit for a call. When its last clone is dropped, the call is over.
#[derive(Clone)]
pub struct Permit {
    /// Admission of the call: model, price and reply limit.
    pub admission: Admission,
    /// Guard of the agent, dropped with the permit.
    pub guard: Option<Arc<dyn Any + Send + Sync>>,
}

impl Permit {
    /// Creates a permit without a gate.
    pub fn ungated() -> Self {
        Self { admission: Admission::default(), guard: None }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("admission", &self.admission).finish_non_exhaustive()
    }
}

/// Future of a permit; none if the provider was unavailable for the operator's whole patience. Dropping it cancels the
/// wait.
pub type PermitFuture = Pin<Box<dyn Future<Output = Option<Permit>> + Send>>;

/// Decision about admission.
pub enum AdmissionDecision {
    /// Admitted.
    Now(Permit),
    /// Waits for admission.
    Later(PermitFuture),
}

/// Answer to a call.
pub type CallResult = Result<Reply, Failure>;

/// Serves seats. One agent may serve many workers and many calls at once.
pub trait Agent: Send + Sync + 'static {
    /// Answers one call. Dropping the future cancels the call.
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>>;

    /// Requests admission of a call: of a language model, or of an inner board that waits for one. Must not block.
    fn admit(&self, _board: &BoardId, _waiting: &WaitingCall) -> AdmissionDecision {
        AdmissionDecision::Now(Permit::ungated())
    }

    /// Returns the reason why the gate holds back calls of a board; none if their models are available.
    fn deferral_reason(&self, _board: &BoardId) -> Option<DeferralReason> {
        None
    }

    /// Returns the context in tokens, prompt and reply together, of the operator's model of this name or the default
    /// one. The smallest among the model and its fallbacks counts. Returns none if it is unknown.
    fn context_window(&self, _model: Option<&str>) -> Option<u32> {
        None
    }

    /// Reports that the outcome of an answered call is durable, in the order of the journal. Recordings hold the next
    /// answer back until then, so that the order of answers is the order of records.
    fn on_settled(&self, _board: &BoardId, _token: &IdempotencyKey) {}

    /// Reports that a board no longer runs here: it has ended for good, was closed or evicted, or the runtime stops.
    /// State kept for it can be dropped. May be called more than once, and does not wait for open calls.
    fn on_board_ended(&self, _board: &BoardId) {}
}
