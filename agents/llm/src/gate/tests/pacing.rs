//! Rate limits known only to the provider: a token bucket, as in `ratesrv.py` of the shared cases.

use std::cell::Cell;
use std::time::Duration;

use patchboard_kernel::deferral::DeferralReason::RateLimited;

use super::world::{Reply, Sent, World};
use super::{millis, plain, refusal, secs};

/// Token bucket that refuses requests beyond its rate.
fn bucket(rate: f64, burst: f64, retry_after: Option<u64>) -> impl FnMut(&Sent) -> Reply {
    let mut tokens = burst;
    let mut last = Duration::ZERO;
    move |sent| {
        tokens = burst.min(tokens + (sent.at - last).as_secs_f64() * rate);
        last = sent.at;
        if tokens >= 1.0 {
            tokens -= 1.0;
            Reply::Answer(millis(100))
        } else {
            Reply::Refuse(millis(5), refusal(RateLimited, retry_after.map(secs)))
        }
    }
}

/// Returns the seconds that a board with 40 items and 8 concurrent calls takes, after one call that makes the items.
fn fan_out(rate: f64, burst: f64, retry_after: Option<u64>, split: Duration, seed: u64) -> f64 {
    let is_first = Cell::new(true);
    let mut limited = bucket(rate, burst, retry_after);
    let mut world = World::new(vec![plain("m")], seed, |sent| match limited(sent) {
        Reply::Answer(_) if is_first.replace(false) => Reply::Answer(split),
        reply => reply,
    });
    world.board(0, 1, 1);
    world.run(100_000);
    world.board(1, 40, 8);
    world.run(1_000_000);
    assert_eq!(world.done.len(), 41, "every item is done");
    assert!(world.lost.is_empty());
    world.now.as_secs_f64()
}

#[test]
fn a_fan_out_meets_the_goals_at_four_and_two_requests_a_second() {
    for rate in [4.0, 2.0] {
        for retry_after in [1, 2, 25] {
            for split in [1, 20, 100, 300, 600, 900, 1500, 5000] {
                for seed in 0..5 {
                    let split = millis(split);
                    let took = fan_out(rate, rate, Some(retry_after), split, seed);
                    let took = took - split.as_secs_f64();
                    let most = 1.3 * (40.0 / rate + retry_after as f64);
                    assert!(took <= most, "rate {rate}, Retry-After {retry_after}, split {split:?}: {took} > {most}");
                }
            }
        }
    }
}

#[test]
fn every_rate_is_found_and_nothing_is_lost() {
    for rate in [0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 7.0, 10.0, 20.0, 50.0] {
        for retry_after in [None, Some(1), Some(2), Some(25)] {
            for seconds in [1.0, 0.5, 2.0, 5.0, 20.0] {
                let burst = f64::max(rate * seconds, 1.0);
                let took = fan_out(rate, burst, retry_after, millis(20), 1);
                let ideal = 40.0 / rate;
                let wait = retry_after.unwrap_or(2) as f64;
                // The bound is tight only for a bucket of one second's rate; otherwise each halving of the pace costs a
                // round.
                let most =
                    if seconds == 1.0 && rate >= 1.0 { 1.3 * (ideal + wait) } else { 2.5 * ideal + 5.0 * wait + 5.0 };
                assert!(took <= most, "rate {rate}, burst {burst}, Retry-After {retry_after:?}: {took} > {most}");
            }
        }
    }
}

#[test]
fn a_long_run_uses_most_of_the_rate_with_few_refusals() {
    for rate in [0.5, 2.0, 4.0, 20.0, 50.0] {
        for retry_after in [Some(1), Some(2), Some(25)] {
            let mut world = World::new(vec![plain("m")], 3, bucket(rate, rate.max(1.0), retry_after));
            let items = (rate * 3600.0).min(20_000.0) as usize;
            let ideal = items as f64 / rate;
            world.board(0, items, 40);
            world.run(10_000_000);
            let (took, refused) = (world.now.as_secs_f64(), world.sent.len() - items);
            assert!(took < 1.25 * ideal, "rate {rate}, Retry-After {retry_after:?}: {took}");
            assert!(refused < items / 20 + 50, "rate {rate}, Retry-After {retry_after:?}: {refused} of {items}");
        }
    }
}

#[test]
fn a_pace_spaces_requests_evenly() {
    let mut world = World::new(vec![plain("m")], 3, bucket(4.0, 4.0, Some(2)));
    world.board(0, 60, 8);
    world.run(100_000);
    let back = world.sent.iter().find(|sent| sent.at > secs(2)).expect("it went on").at;
    let paced: Vec<Duration> = world.sent.iter().map(|sent| sent.at).filter(|at| *at >= back).collect();
    assert!(paced.len() > 40);
    for pair in paced.windows(2) {
        assert!(pair[1] - pair[0] >= millis(200), "{pair:?}");
    }
}

#[test]
fn boards_share_a_limited_model_fairly() {
    for retry_after in [Some(1), Some(25), None] {
        let mut world = World::new(vec![plain("m")], 5, bucket(10.0, 10.0, retry_after));
        for board in 0..30 {
            world.board(board * 100, 20, 8);
        }
        world.run(1_000_000);
        assert_eq!(world.done.len(), 600);
        let ends = (0..30).map(|board| world.done.iter().filter(|done| done.0 == board).map(|done| done.2).max());
        let ends: Vec<Duration> = ends.map(|end| end.expect("each board is done")).collect();
        let (first, last) = (ends.iter().min().expect("boards"), ends.iter().max().expect("boards"));
        assert!(*last <= *first * 3, "boards end between {first:?} and {last:?}");
        let (least, most) = (world.waited.iter().min().expect("boards"), world.waited.iter().max().expect("boards"));
        assert!(*most <= *least * 3, "boards wait between {least:?} and {most:?}");
        // After the first burst, which no queue can share out, all boards advance alike.
        let done = |board, from, to| {
            world.done.iter().filter(|done| done.0 == board && done.2 > secs(from) && done.2 <= secs(to)).count()
        };
        for from in [5, 30] {
            let counts: Vec<usize> = (1..30).map(|board| done(board, from, from + 15)).collect();
            let spread = counts.iter().max().expect("boards") - counts.iter().min().expect("boards");
            assert!(spread <= 1, "from {from} s: {counts:?}");
        }
    }
}

#[test]
fn a_small_board_is_served_beside_a_large_one() {
    let mut world = World::new(vec![plain("m")], 5, bucket(5.0, 5.0, Some(1)));
    world.board(0, 500, 400);
    world.board(1000, 5, 1);
    world.run(1_000_000);
    let end = world.done.iter().filter(|done| done.0 == 1).map(|done| done.2).max().expect("the small board is done");
    assert!(end < secs(10), "{end:?}");
    // Within a board, requests go in the order asked.
    let order: Vec<usize> = world.done.iter().filter(|done| done.0 == 0).map(|done| done.1).skip(20).collect();
    let ordered = order.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!(ordered + 5 > order.len(), "{order:?}");
}
