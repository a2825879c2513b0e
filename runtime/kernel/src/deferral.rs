//! Why a provider did not take a request, and when it may be asked again.
//!
//! A deferred request is no failure: it uses up no attempt and moves no breaker. The provider's words are the shell's to
//! read; the kernel is given the reason and a time.

use serde::{Deserialize, Serialize};

use crate::rejection::coded;

coded! {
    /// Why a provider did not take a request; stable, part of the journal format.
    DeferralReason {
        /// Too many requests or tokens in a span of time.
        RateLimited = "rate_limited",
        /// The provider cannot serve now: status 408, 409, 421, 423, 424, 425, 498, 499 or 5xx, or an overload inside another
        /// answer.
        Overloaded = "overloaded",
        /// The server is loading the model.
        ModelLoading = "model_loading",
        /// No connection, no name, or a connection that broke before a byte came.
        Unreachable = "unreachable",
        /// No byte came within the call's time, while the model answered nobody else either.
        NoAnswer = "no_answer",
        /// The key is missing, wrong or expired: status 401, or a program that prints none.
        KeyRefused = "key_refused",
        /// Nothing is left to pay with: status 402, or a quota that is used up.
        PaymentRequired = "payment_required",
        /// The account may not use the model: status 403 or 451.
        AccessDenied = "access_denied",
        /// The server has no such model, or serves none at this address: status 404, 405, or a redirect elsewhere.
        ModelNotFound = "model_not_found",
        /// The provider refuses this request, and another model is there to take it.
        RequestRefused = "request_refused",
    }
}

impl DeferralReason {
    /// Whether waiting mends nothing: an operator must.
    pub const fn needs_operator(self) -> bool {
        match self {
            Self::RateLimited
            | Self::Overloaded
            | Self::ModelLoading
            | Self::Unreachable
            | Self::NoAnswer
            | Self::RequestRefused => false,
            Self::KeyRefused | Self::PaymentRequired | Self::AccessDenied | Self::ModelNotFound => true,
        }
    }
}

/// A request that a provider did not take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deferral {
    /// Why.
    pub reason: DeferralReason,
    /// Milliseconds to wait before the request may be repeated; none if the provider does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Milliseconds after the first of an unbroken series of deferrals at which the board is paused; none: the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_ms: Option<u64>,
    /// Whether the request itself may be what failed: status 500.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_ambiguous: bool,
    /// Another model may take the request: the board goes on although only an operator can mend this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_served_elsewhere: bool,
}

impl Deferral {
    /// A deferral of which no more is known than why.
    pub const fn new(reason: DeferralReason) -> Self {
        Self { reason, wait_ms: None, patience_ms: None, is_ambiguous: false, is_served_elsewhere: false }
    }
}

/// The wait where neither the provider nor a gate says one, in milliseconds.
pub const WAIT_MS: u64 = 1000;

/// The patience where no model says one, in milliseconds: a day.
pub const PATIENCE_MS: u64 = 24 * 60 * 60 * 1000;
