//! Reasons why an attempt ended without a proposal.

use crate::rejection::code_enum;

code_enum! {
    /// Reason why an attempt ended without a proposal; stable, part of the journal format.
    FailureCode {
        /// No answer within the worker's time limit.
        Timeout = "timeout",
        /// The agent could not be reached.
        Unreachable = "unreachable",
        /// The provider rejected the request.
        Refused = "refused",
        /// The provider demanded a longer wait than the limit.
        RateLimited = "rate_limited",
        /// The reply was truncated at its token limit.
        Truncated = "truncated",
        /// The reply was empty.
        Empty = "empty",
        /// The answer does not follow its protocol.
        Protocol = "protocol",
        /// The agent, or the actor around it, crashed.
        Crashed = "crashed",
        /// The call was in progress when the process ended; its outcome is unknown.
        Lost = "lost",
        /// The process that leased the call has not renewed the lease.
        LeaseExpired = "lease_expired",
        /// The recording holds no reply for this view.
        CassetteMiss = "cassette_miss",
        /// The budgets do not suffice for another call that the attempt needs.
        BudgetExhausted = "budget_exhausted",
        /// The seat is not configured: no such model, program or key.
        NotConfigured = "not_configured",
    }
}

impl FailureCode {
    /// Returns true if a retry may succeed.
    pub const fn is_retryable(self) -> bool {
        !matches!(
            self,
            Self::Refused | Self::RateLimited | Self::CassetteMiss | Self::BudgetExhausted | Self::NotConfigured
        )
    }
}
