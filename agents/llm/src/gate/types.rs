//! Types that callers exchange with the gate.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::BoardId;

/// Key of a bulkhead: the endpoint's base address, the account, and the provider's name of the model. Cheap to clone.
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

    /// Sets the account. Each account of an endpoint has its own limits and outages; `None` means no API key.
    #[must_use]
    pub fn with_account(self, account: Option<Digest>) -> Self {
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

/// Limits that the operator sets for one model, across all boards of the process; `None` means unlimited.
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
    /// Combines two sets of limits; the stricter value of each limit wins.
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

/// Model that may serve a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Key of its bulkhead.
    pub key: ModelKey,
    /// Limits of the operator. If endpoints of one key differ, the strictest value of each limit is in force.
    pub limits: Limits,
    /// Length of this model's outage after which a request uses the next model of its chain.
    pub fallback_after: Duration,
}

/// Request for admission of one call.
#[derive(Clone, Debug)]
pub struct Request {
    /// Board that sends the request; boards share a model fairly.
    pub board: BoardId,
    /// Preferred model.
    pub endpoint: Arc<Endpoint>,
    /// Models to use, in this order, while the preferred one is unavailable.
    pub fallbacks: Vec<Arc<Endpoint>>,
    /// Estimated tokens of prompt and reply.
    pub tokens: u64,
    /// Digest of the prompt; distinguishes a poisonous request from a failing model.
    pub prompt: Digest,
}

/// Verdict on a rejected call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RejectionOutcome {
    /// The model is the cause: the request uses up no attempt and is retried after the wait.
    Deferred {
        /// Time from now until the model may be called again.
        not_before: Duration,
    },
    /// The request is the cause: the call counts as a failed attempt.
    Charged,
}

/// State of one model that the gate knows.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelState {
    /// Key of the model.
    pub key: ModelKey,
    /// Current outage, or the complaint that an operator must fix.
    pub outage: Option<Outage>,
    /// Calls that wait for this model, including deferred ones.
    pub waiting: usize,
    /// Calls in flight.
    pub in_flight: u32,
    /// Requests per second that the gate allows after a rate limit was hit; `None` while none was hit.
    pub pace: Option<f64>,
    /// Deferred attempts by reason, since the gate has known the model: the eviction of an idle one resets them.
    pub deferred: BTreeMap<DeferralReason, u64>,
}

/// Unavailability of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// Reason of the latest rejection.
    pub reason: DeferralReason,
    /// Time since the outage began.
    pub elapsed: Duration,
    /// Time from now until the next probe; `None` while a probe is in flight, or if an operator must act.
    pub next_try: Option<Duration>,
}

/// Wait until the limits of a model leave room for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitWait {
    /// Wait until a part of it may be taken by asking again.
    pub next: Duration,
    /// Wait until all of it may be taken, if no other requests come in between.
    pub whole: Duration,
}

/// Requests of a board that wait for unavailable models.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoardOutage {
    /// Outage of the model that is probed first.
    pub outage: Outage,
    /// Number of waiting requests.
    pub calls: usize,
    /// Time since the oldest of them was queued, within the outage.
    pub elapsed: Duration,
}

/// Change of a model's availability.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transition {
    /// Key of the model.
    pub key: ModelKey,
    /// New availability.
    pub change: Availability,
}

/// New availability of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Availability {
    /// The model is away: one call probes, the others wait.
    Unavailable {
        /// Reason.
        reason: DeferralReason,
        /// Time from now until the first probe.
        next_try: Option<Duration>,
    },
    /// The model serves requests again.
    Recovered {
        /// Length of the outage.
        after: Duration,
    },
}

/// Number of a request within one gate: of the waiting request first, then of its call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Ticket(pub(super) u64);
