//! Failed exchanges: their failure code, and the deferral if the same request may be answered later.

use patchboard_kernel::deferral::{Deferral, DeferralReason};
use patchboard_kernel::failure::FailureCode;

use super::keys::KeyError;
use super::provider_errors::{is_key_refused, is_limit, is_tools_unsupported, operator_reason};
use super::transport::{FailureCause, HttpFailure, Received};

pub(super) fn code_of(error: &HttpFailure) -> FailureCode {
    match error {
        HttpFailure::Key(KeyError { is_transient: false, .. }) => FailureCode::Refused,
        HttpFailure::Key(_)
        | HttpFailure::NotAdmitted
        | HttpFailure::Connect(_)
        | HttpFailure::ConnectionLost { received: false, .. } => FailureCode::Unreachable,
        // The request reached the model, or may have: it stays charged, like a timeout.
        HttpFailure::ConnectionLost { received: true, .. }
        | HttpFailure::InvalidBody(_)
        | HttpFailure::NotAnApi { .. } => FailureCode::Protocol,
        HttpFailure::Status { status, .. } if is_ambiguous_status(*status) => FailureCode::Protocol,
        HttpFailure::NoAnswer { .. } | HttpFailure::Status { status: 408 | 504, .. } => FailureCode::Timeout,
        HttpFailure::Status { status: 429, body, .. } if operator_reason(429, body).is_some() => FailureCode::Refused,
        HttpFailure::Limited { .. } | HttpFailure::Status { status: 429, .. } => FailureCode::RateLimited,
        HttpFailure::Status { status: 409 | 421 | 423 | 425 | 498 | 500.., .. } => FailureCode::Unreachable,
        HttpFailure::Status { .. } => FailureCode::Refused,
    }
}

/// Returns the deferral of a request that a provider may accept later, or once an operator has acted.
pub(super) fn deferral_of(error: &HttpFailure) -> Option<Deferral> {
    use DeferralReason as R;
    let (reason, wait, is_ambiguous) = match error {
        HttpFailure::Key(KeyError { is_transient: false, .. }) => (R::KeyRefused, None, false),
        HttpFailure::Key(_) | HttpFailure::Connect(_) | HttpFailure::ConnectionLost { received: false, .. } => {
            (R::Unreachable, None, false)
        }
        HttpFailure::NoAnswer { received: Received::Nothing | Received::KeepAlives } => (R::NoAnswer, None, false),
        HttpFailure::NotAdmitted
        | HttpFailure::ConnectionLost { received: true, .. }
        | HttpFailure::NoAnswer { received: Received::Part }
        | HttpFailure::InvalidBody(_)
        | HttpFailure::NotAnApi { .. } => return None,
        HttpFailure::Limited { wait } => (R::RateLimited, Some(*wait), false),
        HttpFailure::Status { status, cause: FailureCause::Request, .. } if is_ambiguous_status(*status) => {
            return None;
        }
        HttpFailure::Status { status, wait, body, cause: fault } => {
            let reason = match status {
                401 => R::KeyRefused,
                // Some report a wrong key as a bad request.
                400 | 403 | 422 if is_key_refused(*status, body) => R::KeyRefused,
                402 => R::PaymentRequired,
                400 | 403 | 422 | 429 if let Some(reason) = operator_reason(*status, body) => reason,
                400 | 403 if is_limit(body) => R::RateLimited,
                403 if !is_moderation(body) => R::AccessDenied,
                404 if is_tools_unsupported(body) => return None,
                // No API at the configured address.
                300..400 | 404 | 405 => R::ModelNotFound,
                451 => R::AccessDenied,
                429 => R::RateLimited,
                408 | 409 | 421 | 423 | 424 | 425 | 498 | 499 => R::Overloaded,
                503 if body.to_ascii_lowercase().contains("loading") => R::ModelLoading,
                500.. => R::Overloaded,
                _ => return None,
            };
            (reason, *wait, is_ambiguous_status(*status) && *fault == FailureCause::Unknown)
        }
    };
    let wait_ms = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    Some(Deferral { wait_ms, is_ambiguous, ..Deferral::new(reason) })
}

pub(super) const fn is_ambiguous_status(status: u16) -> bool {
    matches!(status, 424 | 499 | 500)
}

/// Returns true if the same request may be answered later. A call past its deadline cannot.
pub(super) fn is_transient(failure: &HttpFailure) -> bool {
    let is_over = matches!(failure, HttpFailure::NoAnswer { .. });
    !is_over && deferral_of(failure).is_some_and(|deferral| !deferral.reason.needs_operator())
}

/// Returns true if a 403 is about the content of the request.
fn is_moderation(body: &str) -> bool {
    let body = body.to_ascii_lowercase();
    ["moderation", "flagged", "content policy", "content_policy", "safety"].iter().any(|words| body.contains(words))
}

/// Returns true if a server reports that it accepts no tools, which some report as an internal error.
pub(super) fn is_tools_rejection(failure: &HttpFailure) -> bool {
    matches!(failure, HttpFailure::Status { status: 400 | 404 | 422 | 500 | 501, body, .. } if is_tools_unsupported(body))
}

#[cfg(test)]
mod tests;
