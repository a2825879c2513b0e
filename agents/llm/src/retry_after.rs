//! Reads the pause that a provider asks for, from the headers and the body of its answer.

use std::time::{Duration, SystemTime};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

/// Longest accepted pause.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Threshold of a number of seconds: larger ones are points in time since the epoch.
const EPOCH_MIN: f64 = 1_000_000_000.0;

/// Returns the pause that an answer asks for: `Retry-After`, `retry-after-ms`, the reset of an exhausted limit, then
/// the body. If the status is no rate limit, limits with a remainder are ignored.
pub(super) fn requested_pause(status: u16, headers: &HeaderMap, body: &str, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let after = text("retry-after").and_then(|value| after(value, now));
    let wait = after
        .or_else(|| Duration::try_from_secs_f64(text("retry-after-ms")?.parse::<f64>().ok()? / 1000.0).ok())
        .or_else(|| reset(status == 429, headers, now))
        .or_else(|| quoted(status, body, now))
        .or_else(|| in_body(body));
    wait.map(|wait| wait.min(WAIT_MAX))
}

/// Parses `Retry-After`: seconds, fractions of them, or a date (RFC 9110, 10.2.3).
fn after(value: &str, now: SystemTime) -> Option<Duration> {
    if let Some(wait) = span(value, now) {
        return Some(wait);
    }
    let Ok(then) = jiff::fmt::rfc2822::parse(value) else {
        // A proxy that adds its own header joins both.
        return value.split(',').filter_map(|part| span(part.trim(), now)).max();
    };
    Some(SystemTime::from(then.timestamp()).duration_since(now).unwrap_or(Duration::ZERO))
}

/// Returns the largest reset among limits with a remainder of zero. For a rate limit without one, the largest reset.
fn reset(is_limit: bool, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let resets = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str();
        if !name.contains("ratelimit") {
            return None;
        }
        let at = name.find("reset")?;
        let value = value.to_str().ok()?.trim();
        let wait = span(value, now).or_else(|| {
            let then = SystemTime::from(value.parse::<jiff::Timestamp>().ok()?);
            Some(then.duration_since(now).unwrap_or(Duration::ZERO))
        })?;
        // Name of the matching header, with `remaining` in place of `reset`.
        let remaining = format!("{}remaining{}", &name[..at], &name[at + "reset".len()..]);
        let is_exhausted =
            headers.get(remaining).is_some_and(|left| left.to_str().is_ok_and(|left| left.trim() == "0"));
        Some((is_exhausted, wait))
    });
    resets.max().filter(|(is_exhausted, _)| is_limit || *is_exhausted).map(|(_, wait)| wait)
}

/// Reads the headers of a server behind a gateway, quoted in the body (`error.metadata.headers`).
fn quoted(status: u16, body: &str, now: SystemTime) -> Option<Duration> {
    let value: Value = serde_json::from_str(body).ok()?;
    let quoted = value.pointer("/error/metadata/headers")?.as_object()?;
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pair = |(name, value): (&String, &Value)| {
        Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(text(value)).ok()?))
    };
    let headers: HeaderMap = quoted.iter().filter_map(pair).collect();
    requested_pause(status, &headers, "", now)
}

/// Reads a pause from a body: Google's `retryDelay`, an estimate of loading time, or words.
fn in_body(body: &str) -> Option<Duration> {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    if let Some(delay) = find(&value, "retryDelay", 0).and_then(|delay| units(delay.as_str()?)) {
        return Some(delay);
    }
    for name in ["retry_after", "retry_after_seconds", "estimated_time"] {
        let seconds = find(&value, name, 0).and_then(Value::as_f64);
        if let Some(wait) = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
            return Some(wait);
        }
    }
    let words = body.to_ascii_lowercase();
    ["try again in ", "retry in ", "retry after ", "wait ", "available in "].iter().find_map(|lead| {
        let rest = &words[words.find(lead)? + lead.len()..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | ' ')).unwrap_or(rest.len());
        units(rest[..end].trim_end_matches(['.', ' ']))
    })
}

/// Finds the first member of this name, at most eight levels deep.
fn find<'v>(value: &'v Value, name: &str, depth: u32) -> Option<&'v Value> {
    if depth > 8 {
        return None;
    }
    match value {
        Value::Object(members) => {
            members.get(name).or_else(|| members.values().find_map(|member| find(member, name, depth + 1)))
        }
        Value::Array(items) => items.iter().find_map(|item| find(item, name, depth + 1)),
        _ => None,
    }
}

/// Parses a time span: seconds, a point in time as seconds or milliseconds since the epoch, or numbers with units.
fn span(text: &str, now: SystemTime) -> Option<Duration> {
    let Ok(number) = text.parse::<f64>() else { return units(text) };
    if number < EPOCH_MIN {
        return Duration::try_from_secs_f64(number).ok();
    }
    let seconds = if number < EPOCH_MIN * 1000.0 { number } else { number / 1000.0 };
    let then = SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
    Some(then.duration_since(now).unwrap_or(Duration::ZERO))
}

/// Parses numbers with units: `1m30s`, `200ms`, `6.2 seconds`. Ends before the first other word.
fn units(text: &str) -> Option<Duration> {
    let (mut total, mut rest) = (None, text.trim());
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (Ok(number), after) = (rest[..digits].trim_end_matches('.').parse::<f64>(), rest[digits..].trim_start())
        else {
            break;
        };
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let seconds = match after[..letters].to_ascii_lowercase().as_str() {
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" | "millisecond" | "milliseconds" => 1e-3,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => break,
        };
        let part = Duration::try_from_secs_f64(number * seconds).ok()?;
        total = Some(total.unwrap_or(Duration::ZERO).checked_add(part)?);
        rest = after[letters..].trim_start();
    }
    total
}

#[cfg(test)]
mod tests;
