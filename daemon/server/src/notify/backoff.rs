//! Backoff between deliveries, with jitter.

use std::time::Duration;

use super::receiver::DeliveryError;

const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(300);

/// Returns the wait after a number of consecutive failures; `random` is between 0 and 1. A refused notice waits
/// longest.
pub(super) fn after(failures: u32, undelivered: Option<&DeliveryError>, random: f64) -> Duration {
    let is_refused = undelivered.is_some_and(|undelivered| undelivered.is_rejected);
    let doublings = failures.saturating_sub(1).min(16);
    let most = if is_refused { WAIT_MAX } else { WAIT_MIN.saturating_mul(1 << doublings).min(WAIT_MAX) };
    let asked = undelivered.and_then(|undelivered| undelivered.wait).unwrap_or_default();
    most.mul_f64(0.5 + 0.5 * random.clamp(0.0, 1.0)).max(asked).clamp(WAIT_MIN, WAIT_MAX)
}

pub(super) fn random() -> f64 {
    // Without a random number there is only less jitter.
    f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_from_a_second_to_five_minutes() {
        let seconds = |failures, random| after(failures, None, random).as_secs_f64();
        let most: Vec<f64> = (1..12).map(|failures| seconds(failures, 1.0)).collect();
        assert_eq!(most, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0]);
        assert_eq!((seconds(1, 0.0), seconds(3, 0.0), seconds(u32::MAX, 0.0)), (1.0, 2.0, 150.0));
        assert!((0..100).all(|_| (0.0..=1.0).contains(&random())));
    }

    #[test]
    fn a_refusal_waits_long_and_a_wait_that_is_asked_for_is_kept_within_bounds() {
        let undelivered = |is_refused, wait: Option<u64>| DeliveryError {
            why: String::new(),
            is_rejected: is_refused,
            wait: wait.map(Duration::from_secs),
        };
        for (is_refused, asked, expected) in
            [(true, None, 300), (false, Some(60), 60), (false, Some(0), 1), (false, Some(u64::MAX), 300)]
        {
            let wait = after(1, Some(&undelivered(is_refused, asked)), 1.0);
            assert_eq!(wait.as_secs(), expected, "{is_refused} {asked:?}");
        }
    }
}
