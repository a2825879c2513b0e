//! Data that callers exchange with the gate.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::deferral::{Deferral, DeferralReason};
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::BoardId;

/// Key of a bulkhead: the endpoint's base address, the account by which it is asked, and the provider's name of the model.
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ModelKey {
    url: Arc<str>,
    model: Arc<str>,
    account: Option<Digest>,
}

impl ModelKey {
    /// Builds the key of a model behind an endpoint.
    pub fn new(url: &str, model: &str) -> Self {
        Self { url: url.into(), model: model.into(), account: None }
    }

    /// The same for one of several accounts, each with limits and outages of its own; none without a key.
    #[must_use]
    pub fn of_account(self, account: Option<Digest>) -> Self {
        Self { account, ..self }
    }

    /// Base address of the endpoint.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Provider's name of the model.
    pub fn model(&self) -> &str {
        &self.model
    }
}

impl fmt::Display for ModelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.model, self.url)
    }
}

/// Limits that the operator sets for one model, across all boards of the process; none means unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Calls in flight.
    pub concurrency: Option<NonZeroU32>,
    /// Requests per minute.
    pub requests_per_minute: Option<NonZeroU32>,
    /// Tokens per minute, as estimated at admission.
    pub tokens_per_minute: Option<NonZeroU32>,
}

impl Limits {
    /// Combines limits: the stricter one of each holds.
    #[must_use]
    pub fn strictest(self, other: Self) -> Self {
        let stricter = |one: Option<NonZeroU32>, other: Option<NonZeroU32>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self {
            concurrency: stricter(self.concurrency, other.concurrency),
            requests_per_minute: stricter(self.requests_per_minute, other.requests_per_minute),
            tokens_per_minute: stricter(self.tokens_per_minute, other.tokens_per_minute),
        }
    }
}

/// Model that a request may be sent to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Key of its bulkhead.
    pub key: ModelKey,
    /// Limits of the operator. Where endpoints of one key differ, the strictest of each limit holds.
    pub limits: Limits,
    /// Time that this model is away before a request uses the next one of its chain.
    pub fallback_after: Duration,
}

/// Request for admission of one call.
#[derive(Clone, Debug)]
pub struct Request {
    /// Board that asks; boards share a model fairly.
    pub board: BoardId,
    /// Preferred model.
    pub endpoint: Arc<Endpoint>,
    /// Models to use, in this order, while the preferred one is unavailable.
    pub fallbacks: Vec<Arc<Endpoint>>,
    /// Estimated tokens of prompt and reply.
    pub tokens: u64,
    /// Digest of the prompt; tells a poisonous request from a failing model.
    pub prompt: Digest,
}

/// Report that a provider did not take a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Reason.
    pub reason: DeferralReason,
    /// Time that the provider asks to wait; none if it does not say.
    pub wait: Option<Duration>,
    /// Whether the request itself may be the cause: status 500 exactly.
    pub is_ambiguous: bool,
}

impl Refusal {
    /// Reads the reason and the wait of a deferral.
    pub fn new(deferral: Deferral, is_ambiguous: bool) -> Self {
        Self { reason: deferral.reason, wait: deferral.wait_ms.map(Duration::from_millis), is_ambiguous }
    }
}

/// Decision on a refused call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The model is the cause: the request uses up no attempt and is asked for again after the wait.
    Deferred {
        /// Time from now until the model may be asked again.
        not_before: Duration,
    },
    /// The request is the cause: the call counts as a failed attempt.
    Charged,
}

/// Report about one model that the gate knows.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelState {
    /// Key of the model.
    pub key: ModelKey,
    /// Outage, if the model is away.
    pub outage: Option<Outage>,
    /// Calls that wait for this model, deferred ones included.
    pub waiting: usize,
    /// Calls in flight.
    pub in_flight: u32,
    /// Requests per second that the gate keeps to after a rate limit was hit; none while it hit none.
    pub pace: Option<f64>,
    /// Deferred attempts by reason, since the gate knows the model.
    pub deferred: BTreeMap<DeferralReason, u64>,
}

/// Unavailability of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// Reason of the latest refusal.
    pub reason: DeferralReason,
    /// Time since it began.
    pub lasts: Duration,
    /// Time from now until the next probe; none while a probe is in flight, or if an operator must act.
    pub next_try: Option<Duration>,
}

/// Time until the limits of a model leave room for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitWait {
    /// Until a part of it may be taken, by asking again.
    pub next: Duration,
    /// Until all of it may be taken, without other requests in between.
    pub whole: Duration,
}

/// Requests of a board that wait for models that are away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Outage of the model that is tried first.
    pub outage: Outage,
    /// Requests that wait.
    pub calls: usize,
    /// Time since the first of them was asked for, within the outage.
    pub lasts: Duration,
}

/// Change of a model's availability.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transition {
    /// Key of the model.
    pub key: ModelKey,
    /// New availability.
    pub change: Change,
}

/// New availability of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The model is away: one call probes, the others wait.
    Away {
        /// Reason.
        reason: DeferralReason,
        /// Time from now until the first probe.
        next_try: Option<Duration>,
    },
    /// The model answers again.
    Back {
        /// Length of the outage.
        after: Duration,
    },
}

/// Number of a request within one gate: first of the waiting one, then of its call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Ticket(pub(super) u64);
