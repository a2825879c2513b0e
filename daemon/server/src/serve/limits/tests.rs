//! Limits per caller, on given times.

use std::collections::BTreeMap;
use std::time::Duration;

use patchboard_faults::random::Random;

use super::{LimitSettings, Limits, Peer, Rate, RateKey, RateLimiter};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn callers_stay_within_burst_and_rate() {
    // Compared with a log of all admitted requests.
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let (rate, burst) = (1 + random.below(5), 1 + random.below(8));
        let drip = SECOND / u32::try_from(rate).expect("few");
        let mut buckets = RateLimiter::new(Rate { interval: drip, burst: u32::try_from(burst).expect("few") }, 4);
        let mut let_through: BTreeMap<u64, Vec<Duration>> = BTreeMap::new();
        let mut now = Duration::ZERO;
        for _ in 0..500 {
            now += Duration::from_millis(random.below(200));
            let key = random.below(3);
            match buckets.add(key, now) {
                Ok(()) => let_through.entry(key).or_default().push(now),
                Err(wait) => {
                    assert!(wait > Duration::ZERO && wait <= drip, "{wait:?}");
                    assert!(buckets.time_until_free(&key, now + wait).is_none(), "the wait is long enough");
                }
            }
        }
        for times in let_through.values() {
            for (first, from) in times.iter().enumerate() {
                for (last, to) in times.iter().enumerate().skip(first) {
                    let most = burst as f64 + (*to - *from).as_secs_f64() / drip.as_secs_f64() + 1e-6;
                    assert!((last - first + 1) as f64 <= most, "seed {seed}");
                }
            }
        }
    }
}

#[test]
fn rate_limiter_memory_is_bounded_for_any_callers() {
    let mut buckets = RateLimiter::new(Rate { interval: SECOND, burst: 3 }, 100);
    for key in 0..10_000 {
        assert_eq!(buckets.add(key, Duration::from_millis(key)), Ok(()));
        assert!(buckets.empty_at.len() <= 100);
    }
    // The caller with the most use is not evicted.
    let now = SECOND * 20;
    for _ in 0..3 {
        assert_eq!(buckets.add(77_777, now), Ok(()));
    }
    for key in 20_000..20_500 {
        assert_eq!(buckets.add(key, now), Ok(()));
    }
    assert!(buckets.add(77_777, now).is_err());
}

#[test]
fn a_stream_leaves_its_place_when_it_ends() {
    let limits = Limits::new(LimitSettings { streams: 2, ..LimitSettings::default() });
    let (one, other) = ("10.0.0.1".parse().expect("an address"), "10.0.0.2".parse().expect("an address"));
    let first = limits.stream(RateKey::Address(one)).expect("a place");
    let second = limits.stream(RateKey::Address(one)).expect("another");
    assert!(limits.stream(RateKey::Address(one)).is_err());
    assert!(limits.stream(RateKey::Address(other)).is_ok());
    drop(first);
    let third = limits.stream(RateKey::Address(one)).expect("a place");
    drop((second, third));
    assert!(limits.streams.lock().is_empty());
}

#[test]
fn bodies_of_one_caller_have_a_rate() {
    let limits = Limits::new(LimitSettings { body_mib_per_minute: 1, ..LimitSettings::default() });
    let (one, other) = ("10.0.0.1".parse().expect("an address"), "10.0.0.2".parse().expect("an address"));
    for _ in 0..4 {
        assert!(limits.body(RateKey::Address(one), 256 << 10).is_ok());
    }
    assert!(limits.body(RateKey::Address(one), 1).is_err());
    assert!(limits.body(RateKey::Address(other), 8 << 20).is_ok(), "a body is read as a whole");
    assert!(limits.body(RateKey::Address(other), 1).is_err());
}

#[test]
fn addresses_of_one_network_of_version_6_are_one() {
    let address = |text: &str| Peer(text.parse().expect("an address")).address().to_string();
    assert_eq!(address("[2001:db8:1:2:3:4:5:6]:80"), "2001:db8:1:2::");
    assert_eq!(address("[::ffff:10.0.0.1]:80"), "10.0.0.1");
    assert_eq!(address("10.0.0.1:80"), "10.0.0.1");
}

#[test]
fn limit_settings_that_block_every_call_are_invalid() {
    assert_eq!(LimitSettings::default().validation_error(), None);
    assert!(LimitSettings { streams: 0, ..LimitSettings::default() }.validation_error().is_some());
    assert!(LimitSettings { head_bytes: 100, ..LimitSettings::default() }.validation_error().is_some());
}
