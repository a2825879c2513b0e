//! Codes and deferrals of failures, by status and by words.

use super::*;

fn status(status: u16, body: &str) -> HttpFailure {
    HttpFailure::Status { status, wait: None, body: body.to_owned(), cause: FailureCause::Unknown }
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
fn operator_errors_with_an_ambiguous_status_are_recognised_by_their_words() {
    use DeferralReason as R;
    let said = |message: &str| format!(r#"{{"error": {{"message": "{message}"}}}}"#);
    for (code, message, expected) in [
        (400, "Your credit balance is too low to access the Anthropic API.", Some(R::PaymentRequired)),
        (
            400,
            "Access denied, please make sure your account is in good standing. (Arrearage)",
            Some(R::PaymentRequired),
        ),
        (429, "Your account is in arrears. Please recharge and try again.", Some(R::PaymentRequired)),
        (429, "Your account org-x is suspended, please check your plan and billing details", Some(R::PaymentRequired)),
        (429, "You exceeded your current quota, please check your plan and billing details.", Some(R::RateLimited)),
        (400, "User location is not supported for the API use.", Some(R::AccessDenied)),
        (403, "Country, region, or territory not supported", Some(R::AccessDenied)),
        (403, "Rate Limit Exceeded", Some(R::RateLimited)),
        (400, "ThrottlingException: Too many requests", Some(R::RateLimited)),
        (
            400,
            "The model `llama3-70b-8192` has been decommissioned and is no longer supported.",
            Some(R::ModelNotFound),
        ),
        (400, "Model Not Exist", Some(R::ModelNotFound)),
        (400, "foo/bar is not a valid model ID", Some(R::ModelNotFound)),
        (400, "Invalid model: foo", Some(R::ModelNotFound)),
        (400, "The provided model identifier is invalid.", Some(R::ModelNotFound)),
        (422, "The model `x` does not exist", Some(R::ModelNotFound)),
        (400, "model does not support `temperature`", None),
        (400, "This model's response_format json_schema is not found to be valid", None),
        (400, "invalid model parameter: top_k", None),
        (400, "Unsupported parameter: 'max_tokens' is not supported with this model.", None),
        (400, "The model's role `system` does not exist", None),
        (400, "content filter", None),
        (422, "invalid\", \"input\": \"my credit balance, rate limit, account suspended", None),
        (424, "Request failed during generation: Server error: CANCELLED", Some(R::Overloaded)),
        (499, "The operation was cancelled.", Some(R::Overloaded)),
    ] {
        let deferral = deferral_of(&status(code, &said(message)));
        assert_eq!(deferral.map(|deferral| deferral.reason), expected, "{code} {message}");
    }
}

#[test]
fn a_model_without_tools_is_there() {
    let body = r#"{"error": {"message": "No endpoints found that support tool use.", "code": 404}}"#;
    assert!(is_tools_rejection(&status(404, body)));
    assert_eq!(deferral_of(&status(404, body)), None);
    assert_eq!(deferral_of(&status(404, "no such model")).expect("away").reason, DeferralReason::ModelNotFound);
}
