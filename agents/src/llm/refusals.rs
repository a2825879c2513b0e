//! Failed exchanges: their failure code, and the deferral where the same request may be answered later.

use patchboard_kernel::deferral::{Deferral, DeferralReason};
use patchboard_kernel::failure::FailureCode;

use super::reasons::{is_key_refused, says_no_tools};
use super::transport::HttpFailure;

/// Names the failure of an exchange.
pub(super) fn code_of(error: &HttpFailure) -> FailureCode {
    match error {
        HttpFailure::Key(_)
        | HttpFailure::NotAdmitted
        | HttpFailure::Connect(_)
        | HttpFailure::Broken { came: false, .. } => FailureCode::Unreachable,
        // It reached the model, or may have: it stays charged.
        HttpFailure::Broken { came: true, .. } | HttpFailure::Form(_) => FailureCode::Protocol,
        HttpFailure::NoAnswer { .. } | HttpFailure::Status { status: 408 | 504, .. } => FailureCode::Timeout,
        HttpFailure::Status { status: 429, body, .. } if is_quota(body) => FailureCode::Refused,
        HttpFailure::Status { status: 429, .. } => FailureCode::RateLimited,
        HttpFailure::Status { status: 409 | 425 | 498 | 500.., .. } => FailureCode::Unreachable,
        HttpFailure::Status { .. } => FailureCode::Refused,
    }
}

/// Gives the deferral of a request that a provider may take later, or once an operator has acted.
pub(super) fn deferral_of(error: &HttpFailure) -> Option<Deferral> {
    use DeferralReason as R;
    let (reason, wait, is_ambiguous) = match error {
        HttpFailure::Key(_) | HttpFailure::Connect(_) | HttpFailure::Broken { came: false, .. } => {
            (R::Unreachable, None, false)
        }
        HttpFailure::NoAnswer { came: false } => (R::NoAnswer, None, false),
        HttpFailure::NotAdmitted
        | HttpFailure::Broken { came: true, .. }
        | HttpFailure::NoAnswer { came: true }
        | HttpFailure::Form(_) => return None,
        HttpFailure::Status { status, wait, body } => {
            let reason = match status {
                401 => R::KeyRefused,
                // Some tell a wrong key as a bad request.
                400 | 403 | 422 if is_key_refused(*status, body) => R::KeyRefused,
                402 => R::PaymentRequired,
                429 if is_quota(body) => R::PaymentRequired,
                403 if !is_moderation(body) => R::AccessDenied,
                404 if says_no_tools(body) => return None,
                404 => R::ModelNotFound,
                429 => R::RateLimited,
                408 | 409 | 425 | 498 => R::Overloaded,
                503 if body.to_ascii_lowercase().contains("loading") => R::ModelLoading,
                500.. => R::Overloaded,
                _ => return None,
            };
            (reason, *wait, *status == 500)
        }
    };
    let wait_ms = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    Some(Deferral { wait_ms, is_ambiguous, ..Deferral::new(reason) })
}

/// Tells whether the same request may well be answered later. A call whose time is over has no later.
pub(super) fn is_passing(failure: &HttpFailure) -> bool {
    let is_over = matches!(failure, HttpFailure::NoAnswer { .. });
    !is_over && deferral_of(failure).is_some_and(|deferral| !deferral.reason.needs_operator())
}

/// Tells whether a 429 means that there is no money left, which no waiting mends.
fn is_quota(body: &str) -> bool {
    ["insufficient_quota", "billing_hard_limit", "insufficient balance"]
        .iter()
        .any(|words| body.to_ascii_lowercase().contains(words))
}

/// Tells whether a 403 is about the content of the request.
fn is_moderation(body: &str) -> bool {
    let body = body.to_ascii_lowercase();
    ["moderation", "flagged", "content policy", "content_policy", "safety"].iter().any(|words| body.contains(words))
}

/// Tells whether a server says that it takes no tools. Some say so as a fault of their own.
pub(super) fn is_of_tools(failure: &HttpFailure) -> bool {
    matches!(failure, HttpFailure::Status { status: 400 | 404 | 422 | 500 | 501, body, .. } if says_no_tools(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, body: &str) -> HttpFailure {
        HttpFailure::Status { status, wait: None, body: body.to_owned() }
    }

    #[test]
    fn a_wrong_key_is_one_whatever_the_status() {
        for (code, body) in [
            (401, "no"),
            (400, r#"[{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}]"#),
            (400, r#"{"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***."}"#),
            (403, r#"{"error": {"code": "invalid_api_key"}}"#),
        ] {
            let deferral = deferral_of(&status(code, body)).expect(body);
            assert_eq!(deferral.reason, DeferralReason::KeyRefused, "{body}");
        }
        for (code, body) in [(400, "temperature is not valid"), (400, "unknown key `seed`: not valid"), (422, "")] {
            assert_eq!(deferral_of(&status(code, body)), None, "{body}");
        }
    }

    #[test]
    fn a_model_without_tools_is_there() {
        let body = r#"{"error": {"message": "No endpoints found that support tool use.", "code": 404}}"#;
        assert!(is_of_tools(&status(404, body)));
        assert_eq!(deferral_of(&status(404, body)), None);
        assert_eq!(deferral_of(&status(404, "no such model")).expect("away").reason, DeferralReason::ModelNotFound);
    }
}
