//! Why an attempt ended without a proposal.

use crate::rejection::coded;

coded! {
    /// Why an attempt ended without a proposal; stable, part of the journal format.
    FailureCode {
        /// No answer within the worker's time.
        Timeout = "timeout",
        /// The agent could not be reached.
        Unreachable = "unreachable",
        /// The provider refused the request.
        Refused = "refused",
        /// The provider asked to wait longer than we will.
        RateLimited = "rate_limited",
        /// The reply was cut off at its token limit.
        Truncated = "truncated",
        /// The reply was empty.
        Empty = "empty",
        /// The answer was not in the form its protocol prescribes.
        Protocol = "protocol",
        /// The agent, or the actor around it, crashed.
        Crashed = "crashed",
        /// The call was under way when the process ended; nothing is known of its outcome.
        Lost = "lost",
        /// Who leased the call has not renewed the lease.
        LeaseExpired = "lease_expired",
        /// The recording holds no reply for this view.
        CassetteMiss = "cassette_miss",
        /// The attempt would have made another call, and the budgets do not suffice for it.
        BudgetExhausted = "budget_exhausted",
        /// The seat is not configured: no such model, program or key.
        NotConfigured = "not_configured",
    }
}

impl FailureCode {
    /// Whether the same call may end better when it is made again.
    pub const fn is_worth_another_attempt(self) -> bool {
        match self {
            Self::Refused | Self::RateLimited | Self::CassetteMiss | Self::BudgetExhausted | Self::NotConfigured => {
                false
            }
            Self::Timeout
            | Self::Unreachable
            | Self::Truncated
            | Self::Empty
            | Self::Protocol
            | Self::Crashed
            | Self::LeaseExpired
            | Self::Lost => true,
        }
    }
}
