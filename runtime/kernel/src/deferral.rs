//! Deferrals: reasons why a provider did not serve a request, and the time of the next try.
//!
//! A deferred request is no failure: it uses up no attempt and does not affect the circuit breaker. The shell
//! interprets the provider's answer; the kernel receives the reason and a time.

use serde::{Deserialize, Serialize};

use crate::rejection::code_enum;

code_enum! {
    /// Reason why a provider did not serve a request; stable, part of the journal format.
    DeferralReason {
        /// Too many requests or tokens in a span of time.
        RateLimited = "rate_limited",
        /// The provider cannot serve now: status 408, 409, 421, 423, 424, 425, 498, 499 or 5xx, or an overload inside
        /// another answer.
        Overloaded = "overloaded",
        /// The server is loading the model.
        ModelLoading = "model_loading",
        /// No connection, no name resolution, or a connection that broke before the first byte.
        Unreachable = "unreachable",
        /// No byte arrived within the call's time limit, and the model answered no other call either.
        NoAnswer = "no_answer",
        /// The key is missing, wrong or expired: status 401, or a program that prints none.
        KeyRefused = "key_refused",
        /// No credit: status 402, or an exhausted quota.
        PaymentRequired = "payment_required",
        /// The account may not use the model: status 403 or 451.
        AccessDenied = "access_denied",
        /// The server has no such model, or serves none at this address: status 404, 405, or a redirect elsewhere.
        ModelNotFound = "model_not_found",
        /// The provider rejects this request, and another model is available for it.
        RequestRefused = "request_refused",
    }
}

impl DeferralReason {
    /// Returns true if only an operator can fix the cause; waiting is useless.
    pub const fn needs_operator(self) -> bool {
        matches!(self, Self::KeyRefused | Self::PaymentRequired | Self::AccessDenied | Self::ModelNotFound)
    }
}

/// Request that a provider did not serve.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deferral {
    /// Reason of the deferral.
    pub reason: DeferralReason,
    /// Milliseconds before the request may be repeated; `None` if the provider does not specify it.
    pub wait_ms: Option<u64>,
    /// Milliseconds from the first of an unbroken series of deferrals to the pause of the board; `None` for the
    /// default.
    pub patience_ms: Option<u64>,
    /// True if the request itself may be the cause of the error: status 500.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_ambiguous: bool,
    /// True if another model may serve the request, so that the board continues even if only an operator can fix this
    /// one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_served_elsewhere: bool,
}

impl Deferral {
    /// Creates a deferral with only a reason.
    pub const fn new(reason: DeferralReason) -> Self {
        Self { reason, wait_ms: None, patience_ms: None, is_ambiguous: false, is_served_elsewhere: false }
    }
}

/// Default wait in milliseconds, if neither the provider nor a gate specifies one.
pub const WAIT_MS: u64 = 1000;

/// Default patience in milliseconds, if no model specifies one: a day.
pub const PATIENCE_MS: u64 = 24 * 60 * 60 * 1000;
