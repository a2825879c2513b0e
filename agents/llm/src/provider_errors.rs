//! Reads a provider's reason for a failure, from any place of its error.

use patchboard_kernel::deferral::DeferralReason;
use reqwest::StatusCode;
use serde_json::Value;

/// Members of an answer without a choice that hold the text of an error.
const WORDS: [&str; 3] = ["message", "detail", "error_msg"];

/// Bytes of a foreign text that are examined.
const TEXT_MAX: usize = 8 * 1024;

/// Formats an error as one line: its status, `more`, and the provider's message.
pub(super) fn status_text(status: u16, more: &str, body: &str) -> String {
    let name = match status {
        498 => "Capacity Exceeded",
        499 => "Client Closed Request",
        520 => "Unknown Error of the Server",
        521 => "Server Is Down",
        522 => "Server Unreachable",
        523 => "Server Not Found",
        524 => "No Answer from the Server in Time",
        525 | 526 => "TLS Failed at the Server",
        529 => "Overloaded",
        530 => "Server Not Resolved",
        _ => StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("status"),
    };
    format_failure(&format!("{status} {name}"), more, &error_message(body))
}

/// Formats a failure: our reason, `more`, and the server's message.
pub(super) fn format_failure(why: &str, more: &str, said: &str) -> String {
    match said.trim() {
        "" => format!("{why}{more}"),
        said => format!("{why}{more}: {said}"),
    }
}

/// Returns the message of an error body, with that of the server behind a gateway.
pub(super) fn error_message(body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let value = value.as_array().and_then(|all| all.first()).unwrap_or(&value);
    let nested = ["/error", "/base_resp", "/choices/0/error"];
    let nested = nested.iter().find_map(|place| value.pointer(place).filter(|error| !error.is_null()));
    let error = nested.unwrap_or(value);
    let main = "message detail status_msg error_msg error_description errors title error msg type code";
    let main = error.as_str().map(str::to_owned).or_else(|| main.split(' ').find_map(|name| words(error.get(name)?)));
    let main = main.or_else(|| ["message", "detail"].iter().find_map(|name| words(value.get(name)?)));
    let Some(mut text) = main else { return readable(body) };
    // Message of the provider behind a gateway.
    let raw = error.pointer("/metadata/raw").and_then(|raw| match raw {
        Value::String(raw) => Some(error_message(raw)),
        Value::Object(_) => Some(error_message(&raw.to_string())),
        _ => None,
    });
    for more in raw.into_iter().chain(error.get("code").and_then(Value::as_str).map(str::to_owned)) {
        if !more.is_empty() && !text.contains(&more) {
            text.push_str(&format!(" ({more})"));
        }
    }
    readable(&text)
}

/// Returns a member as text: a string, or the messages of a list of errors.
fn words(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Array(items) => {
            let all: Vec<&str> =
                items.iter().filter_map(|item| item.get("msg").or(item.get("message"))?.as_str()).collect();
            (!all.is_empty()).then(|| all.join("; "))
        }
        Value::Object(members) => ["message", "detail"].iter().find_map(|name| words(members.get(*name)?)),
        _ => None,
    }
}

/// Returns the status of an error inside a successful answer, if the answer is one.
///
/// An error counts if there is no choice beside it, or if it belongs to the first choice.
pub(super) fn embedded_error_status(answer: &Value) -> Option<Option<u16>> {
    let answer = answer.as_array().and_then(|all| all.first()).unwrap_or(answer);
    let choices = answer.get("choices").filter(|choices| !choices.is_null());
    let is_empty = choices.is_none_or(|choices| choices.as_array().is_some_and(Vec::is_empty));
    let choice = choices.and_then(|choices| choices.get(0));
    let inner = choice.and_then(|choice| choice.get("error")).filter(|error| !error.is_null());
    let outer = answer.get("error").filter(|error| !error.is_null() && **error != false);
    let is_error = answer["object"] == "error" || answer["type"] == "error";
    let error = match (inner, outer) {
        (Some(error), _) => error,
        (None, Some(error)) if is_empty => error,
        (None, None)
            if is_empty && (is_error || choices.is_none() && WORDS.iter().any(|name| answer[*name].is_string())) =>
        {
            answer
        }
        (None, None) if is_empty && answer["base_resp"]["status_code"].as_i64().is_some_and(|code| code != 0) => {
            &answer["base_resp"]
        }
        (None, None) if is_empty && answer["errors"].as_array().is_some_and(|errors| !errors.is_empty()) => {
            &answer["errors"][0]
        }
        _ if choice.is_some_and(is_broken) => return Some(Some(503)),
        _ => return None,
    };
    let number = |value: &Value| match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let places = ["code", "status", "status_code", "http_status"];
    let status = places.iter().filter_map(|name| number(error.get(name)?)).find(|code| (400..600).contains(code));
    let status = status.and_then(|code| u16::try_from(code).ok());
    let by_name = || ["code", "type"].iter().find_map(|name| by_name(error.get(name)?.as_str()?));
    Some(status.or_else(by_name).or_else(|| by_words(&error.to_string())))
}

/// Returns true if a choice reports a failure of its server. After written content it counts as a truncated reply.
fn is_broken(choice: &Value) -> bool {
    let is_failure = ["error", "network_error", "load"].iter().any(|why| choice["finish_reason"] == *why);
    let message = choice.get("message").unwrap_or(&Value::Null);
    let is_empty = |name: &str| match &message[name] {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    choice["finish_reason"] == "insufficient_system_resource"
        || is_failure && ["content", "tool_calls", "reasoning_content", "reasoning"].into_iter().all(is_empty)
}

/// Returns the status for a vendor's error name.
fn by_name(name: &str) -> Option<u16> {
    Some(match name {
        "invalid_request_error" | "invalid_prompt" => 400,
        "authentication_error" => 401,
        "billing_error" | "insufficient_quota" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" | "rate_limit_exceeded" => 429,
        "api_error" | "server_error" | "internal_server_error" => 500,
        "timeout_error" => 504,
        _ => return None,
    })
}

/// Returns the status for the text of an error.
fn by_words(error: &str) -> Option<u16> {
    const NAMES: [(u16, &str); 5] = [
        (402, "insufficient_quota"),
        (401, "authentication error, authentication failed, unauthorized, invalid api key"),
        (429, "rate_limit, rate limit, ratelimit, too many requests, resource_exhausted"),
        (404, "unexpected endpoint"),
        (503, "overloaded, unavailable, capacity, try again, busy, loading"),
    ];
    let error = error.to_ascii_lowercase();
    let is_named = |words: &str| words.split(", ").any(|word| error.contains(word));
    NAMES.into_iter().find(|(_, words)| is_named(words)).map(|(status, _)| status)
}

/// Returns true if a text contains these words as whole words. An underscore separates words, and a plural matches.
pub(super) fn contains_words(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(at, _)| {
        let rest = &text[at + words.len()..];
        let rest = rest.strip_prefix('s').unwrap_or(rest);
        let is_part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        !is_part(text[..at].chars().next_back()) && !is_part(rest.chars().next())
    })
}

/// Returns true if a "not found" error names the model itself.
pub(super) fn names_model(body: &str) -> bool {
    let message = error_message(body).to_ascii_lowercase();
    ["model", "deployment", "engine", "endpoints found"].iter().any(|word| contains_words(&message, word))
}

pub(super) fn is_context_exceeded(body: &str) -> bool {
    const CONTEXT: &str = "context length, context_length, context limit, context size, context window, \
        prompt is too long, input is too long, too many tokens";
    let message = error_message(body).to_ascii_lowercase();
    CONTEXT.split(", ").any(|words| message.contains(words))
}

pub(super) fn is_limit(body: &str) -> bool {
    by_words(&error_message(body)) == Some(429)
}

/// Reads a reason that needs an operator, if the status of a rejection does not show it.
pub(super) fn operator_reason(status: u16, body: &str) -> Option<DeferralReason> {
    const PAYMENT: &str = "insufficient_quota, billing_hard_limit, insufficient balance, credit balance, \
        purchase credits, out of credits, arrear, recharge, in good standing, account is suspended";
    const PLACE: &str = "location is not supported, region is not supported, territory not supported";
    const MODEL: &str = "not found, not exist, not a valid model, invalid model, unknown model, no such model, \
        no models loaded, decommissioned, no longer supported, no longer available, model identifier is invalid";
    // A part of the request may be called unknown as well.
    const PARTS: &str = "parameter, argument, field, tool, schema, format, role, temperature, reasoning, adapter, file";
    // Some servers repeat the prompt in their rejection: only their own message counts.
    let lower = error_message(body).to_ascii_lowercase();
    let is_suspended = lower.contains("account") && contains_words(&lower, "suspended");
    if is_suspended || PAYMENT.split(", ").any(|words| lower.contains(words)) {
        return Some(DeferralReason::PaymentRequired);
    }
    if PLACE.split(", ").any(|words| lower.contains(words)) {
        return Some(DeferralReason::AccessDenied);
    }
    let is_of_model = |sentence: String| {
        let has = |all: &str| all.split(", ").any(|word| sentence.contains(word));
        contains_words(&sentence, "model") && has(MODEL) && !has(PARTS)
    };
    (matches!(status, 400 | 422) && sentences(body).any(is_of_model)).then_some(DeferralReason::ModelNotFound)
}

/// Returns true if a rejection concerns the key, though its status does not say so.
pub(super) fn is_key_refused(status: u16, body: &str) -> bool {
    const KEYS: &str = "api key, api_key, api-key, apikey, access token";
    const WRONG: &str = "not valid, invalid, incorrect, expired, missing, revoked, wrong, malformed, unauthorized, \
        not found";
    matches!(status, 400 | 401 | 403 | 422)
        && sentences(body).any(|sentence| {
            KEYS.split(", ").any(|key| sentence.contains(key))
                && WRONG.split(", ").any(|word| contains_words(&sentence, word))
        })
}

pub(super) fn is_tools_unsupported(body: &str) -> bool {
    const TOOLS: &str = "tool, tool use, tool calling, function calling, function call";
    const NONE: &str = "not support, not supported, unsupported, not available, no support, not enabled, no endpoint, \
        cannot use, not permitted, not allowed, not implemented, requires --";
    // A part of one tool may be called unsupported as well.
    const PARTS: &str = "schema, name, description, choice, type, parameter, keyword, tool_call_id, tool_calls, role, \
        message, parallel_tool_calls, argument, strict";
    sentences(body).any(|sentence| {
        let has = |all: &str| all.split(", ").any(|word| contains_words(&sentence, word));
        has(TOOLS) && NONE.split(", ").any(|none| sentence.contains(none)) && !has(PARTS)
            || sentence.contains("enable-auto-tool-choice")
            || sentence.contains("tools param requires")
    })
}

/// Returns the sentences of an error in lower case, without links.
fn sentences(body: &str) -> impl Iterator<Item = String> {
    let message = error_message(body);
    let words: Vec<&str> = message.split_whitespace().filter(|word| !word.contains("://")).collect();
    let text = words.join(" ").to_lowercase();
    text.split_inclusive(['!', '?', ';'])
        .flat_map(|part| part.split(". "))
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter()
}

/// Extracts text from markup, for error pages of proxies: the title and the text of the body.
fn readable(text: &str) -> String {
    let text = &text[..text.floor_char_boundary(TEXT_MAX)];
    let lower = text.to_ascii_lowercase();
    if !lower.trim_start().starts_with('<') {
        return text.to_owned();
    }
    let (mut words, mut at) = (String::new(), 0);
    while at < text.len() {
        let Some(open) = text[at..].find('<').map(|open| at + open) else {
            words.push_str(&text[at..]);
            break;
        };
        words.push_str(&text[at..open]);
        words.push(' ');
        // These elements have no visible text.
        let silent =
            ["script", "style", "svg", "noscript"].into_iter().find(|name| lower[open + 1..].starts_with(name));
        let from = match silent.and_then(|name| lower[open..].find(&format!("</{name}"))) {
            Some(end) => open + end,
            None => open,
        };
        at = text[from..].find('>').map_or(text.len(), |end| from + end + 1);
    }
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    // nginx and others repeat the title in the body.
    let half = words.len() / 2;
    match (words.get(..half), words.get(half..)) {
        (Some(first), Some(second)) if !first.is_empty() && first.trim() == second.trim() => first.trim().to_owned(),
        _ => words,
    }
}

#[cfg(test)]
mod tests;
