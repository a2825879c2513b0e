//! Pauses in headers and bodies.

use proptest::prelude::*;

use super::*;

fn wait(headers: &[(&'static str, &'static str)], body: &str) -> Option<u128> {
    wait_of(429, headers, body)
}

fn wait_of(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Option<u128> {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let headers = headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    requested_pause(status, &headers.collect(), body, now).map(|wait| wait.as_millis())
}

#[test]
fn limits_that_are_not_used_up_say_nothing_of_an_overload() {
    let headers = [
        ("anthropic-ratelimit-tokens-remaining", "39000"),
        ("anthropic-ratelimit-tokens-reset", "2023-11-14T22:14:20Z"),
        ("x-ratelimit-reset-requests", "2m"),
    ];
    assert_eq!((wait_of(529, &headers, ""), wait_of(429, &headers, "")), (None, Some(120_000)));
    let exhausted = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "2m")];
    assert_eq!(wait_of(503, &exhausted, ""), Some(120_000));
}

#[test]
fn a_wait_is_read_from_every_header_in_its_order() {
    for (headers, expected) in [
        (&[("retry-after", "3"), ("retry-after-ms", "20")][..], Some(3_000)),
        (&[("retry-after", " 0.5")], Some(500)),
        (&[("retry-after", "3600")], Some(3_600_000)),
        (&[("retry-after", "soon"), ("retry-after-ms", "20")], Some(20)),
        (&[("retry-after", "Tue, 14 Nov 2023 22:13:30 GMT")], Some(10_000)),
        (&[("retry-after", "Tue, 14 Nov 2023 22:13:10 GMT")], Some(0)),
        (&[("retry-after", "1700000007")], Some(7_000)),
        (&[("retry-after", "1, 3")], Some(3_000)),
        (&[("retry-after", "soon, later")], None),
        (&[("retry-after", "-1")], None),
        (&[("retry-after", "1e400")], None),
        (&[("retry-after", "NaN")], None),
        (&[("retry-after", "999999999")], Some(86_400_000)),
        (&[("x", "3")], None),
        (&[("x-ratelimit-reset-requests", "2s"), ("x-ratelimit-reset-tokens", "6m0s")], Some(360_000)),
        (
            &[
                ("x-ratelimit-reset-requests", "2s"),
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-tokens", "6m0s"),
                ("x-ratelimit-remaining-tokens", "9"),
            ],
            Some(2_000),
        ),
        (&[("x-ratelimit-reset", "1700000004000")], Some(4_000)),
        (&[("x-ratelimit-reset-requests", "1.5")], Some(1_500)),
        (&[("anthropic-ratelimit-tokens-reset", "2023-11-14T22:13:25Z")], Some(5_000)),
        (&[("ratelimit-reset", "8")], Some(8_000)),
    ] {
        assert_eq!(wait(headers, ""), expected, "{headers:?}");
    }
}

#[test]
fn a_wait_is_read_from_the_words_of_a_body() {
    for (body, expected) in [
        ("Rate limit reached: Limit 10000. Please try again in 6.2s.", Some(6_200)),
        ("try again in 1m30s", Some(90_000)),
        ("Try again in 200ms. Visit us", Some(200)),
        ("Please retry after 12 seconds or so", Some(12_000)),
        ("please wait a while", None),
        ("try again in a 3", None),
        (r#"{"error": {"details": [{"@type": "x.RetryInfo", "retryDelay": "13.5s"}]}}"#, Some(13_500)),
        (r#"{"error": "loading", "estimated_time": 20.5}"#, Some(20_500)),
        (
            r#"{"error": {"metadata": {"headers": {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": 1700000009000}}}}"#,
            Some(9_000),
        ),
        (r#"{"error": {"metadata": {"headers": {"é": 1, "retry-after": "\n"}}}}"#, None),
        ("", None),
    ] {
        assert_eq!(wait(&[], body), expected, "{body}");
    }
    assert_eq!(wait(&[("retry-after", "1")], "try again in 6s"), Some(1_000));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "([0-9.]{0,5}(s|ms|h|m|d|é| |try again in |wait |\\PC)){0,6}") {
        let _ = in_body(&text);
        let _ = span(&text, SystemTime::UNIX_EPOCH);
    }
}
