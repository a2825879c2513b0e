//! Tests of `cron.rs`.

use super::Cron;
use crate::id::Timestamp;

/// 2026-01-01T00:00:00Z, a Thursday.
const NEW_YEAR: i64 = 1_767_225_600_000;
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

#[test]
fn a_pattern_says_when_it_is_next() {
    for (pattern, after, next) in [
        ("* * * * *", 0, MINUTE),
        ("* * * * *", MINUTE - 1, MINUTE),
        ("*/15 * * * *", 15 * MINUTE, 30 * MINUTE),
        ("@hourly", 1, HOUR),
        ("@daily", HOUR, DAY),
        ("30 6 * * MON", 0, 4 * DAY + 6 * HOUR + 30 * MINUTE),
        ("0 0 1 2 *", 0, 31 * DAY),
        ("0 0 29 2 *", 0, (365 + 365 + 59) * DAY),
    ] {
        let cron = Cron::parse(pattern).expect("a pattern");
        assert_eq!(cron.next(Timestamp(NEW_YEAR + after)), Some(Timestamp(NEW_YEAR + next)), "{pattern} {after}");
    }
}

#[test]
fn invalid_and_impossible_cron_patterns_are_rejected() {
    let long = "*".repeat(300);
    for pattern in ["", "* * * *", "* * * * * *", "61 * * * *", "0 0 30 2 *", "often", "@often", long.as_str()] {
        assert!(Cron::parse(pattern).is_err(), "{pattern}");
    }
}

#[test]
fn times_at_the_end_of_the_calendar_have_no_next() {
    let cron = Cron::parse("@yearly").expect("a pattern");
    assert_eq!(cron.next(Timestamp(i64::MAX)), None);
    assert_eq!(cron.next(Timestamp(253_402_207_200_000)), None, "the end of the year 9999");
}
