//! Limits set by the operator.

use std::collections::BTreeMap;
use std::time::Duration;

use patchboard_kernel::deferral::DeferralReason::RateLimited;

use super::super::quota::Quota;
use super::super::types::{LimitWait, Limits, Request};
use super::world::{Reply, World};
use super::{admitted, ask, at_most, core, endpoint, millis, refusal, request, secs};

#[test]
fn concurrency_holds_across_boards() {
    let limits = Limits { concurrency: at_most(3), ..Limits::default() };
    let mut world = World::new(vec![endpoint("m", limits)], 1, |_| Reply::Answer(secs(1)));
    for board in 0..4 {
        world.board(board * 100, 10, 10);
    }
    world.run(10_000);
    assert_eq!(world.done.len(), 40);
    assert_eq!(world.sent.iter().map(|sent| sent.in_flight).max(), Some(3));
    assert!(world.now < secs(15), "{:?}", world.now);
}

#[test]
fn no_minute_exceeds_the_allowance_by_more_than_the_burst() {
    for allowance in [1, 10, 60, 100, 600] {
        let limits = Limits { requests_per_minute: at_most(allowance), ..Limits::default() };
        let mut world = World::new(vec![endpoint("m", limits)], 1, |_| Reply::Answer(millis(10)));
        let items = allowance as usize * 3;
        world.board(0, items, 50);
        world.run(1_000_000);
        assert_eq!(world.done.len(), items);
        let most = allowance as usize + (allowance as usize).div_ceil(20) + 1;
        for (index, sent) in world.sent.iter().enumerate() {
            let within = world.sent[index..].iter().take_while(|other| other.at < sent.at + secs(60)).count();
            assert!(within <= most, "{allowance} a minute: {within} from {:?}", sent.at);
        }
        assert!(world.now <= secs(181), "{allowance} a minute: {:?}", world.now);
    }
}

#[test]
fn tokens_are_counted_and_a_request_above_the_allowance_goes_alone() {
    let mut quota = Quota::per_minute(at_most(600).expect("not zero"), Duration::ZERO);
    let mut now = Duration::ZERO;
    let mut taken_at = Vec::new();
    for tokens in [10_000, 1, 300, 30, u64::MAX, 0, 1] {
        while let Err(at) = quota.take(now, tokens) {
            assert!(at > now, "the next attempt lies ahead");
            now = at;
        }
        taken_at.push(now.as_secs());
    }
    // Of 10,000 tokens only 600 count; the rate is 10 a second, the burst 30.
    assert_eq!(taken_at, [0, 57, 60, 90, 93, 150, 150]);
}

#[test]
fn a_large_request_does_not_starve_and_does_not_take_from_requests_twice() {
    let limits = Limits { requests_per_minute: at_most(20), tokens_per_minute: at_most(6000), ..Limits::default() };
    let model = endpoint("m", limits);
    let mut core = core();
    let mut sent = BTreeMap::new();
    let mut names = BTreeMap::new();
    for (board, tokens) in [("a", 6000), ("b", 6000), ("c", 10), ("d", 10)] {
        let (ticket, is_admitted) = {
            let request = super::Request { tokens, ..request(board, 1, &model) };
            ask(&mut core, Duration::ZERO, request)
        };
        names.insert(ticket, board);
        if is_admitted {
            sent.insert(board, 0);
        }
    }
    while let Some(at) = core.wake_at() {
        core.advance(at);
        for ticket in admitted(&mut core) {
            sent.insert(names[&ticket], at.as_secs());
        }
    }
    assert_eq!(sent["a"], 0);
    assert!((59..=61).contains(&sent["b"]), "{sent:?}");
    assert!((114..=121).contains(&sent["c"]) && (114..=124).contains(&sent["d"]), "{sent:?}");
}

#[test]
fn the_strictest_limits_of_one_key_hold() {
    let mut core = core();
    let loose = endpoint("m", Limits { concurrency: at_most(5), ..Limits::default() });
    let strict = endpoint("m", Limits { concurrency: at_most(1), ..Limits::default() });
    assert!(ask(&mut core, secs(0), request("a", 1, &strict)).1);
    assert!(!ask(&mut core, secs(0), request("a", 2, &loose)).1);
}

#[test]
fn further_requests_of_a_call_count_against_the_limits_of_its_model() {
    let mut core = core();
    let endpoint = endpoint("m", Limits { requests_per_minute: at_most(60), ..Limits::default() });
    let ticket = core.ask(secs(0), request("b", 0, &endpoint));
    assert_eq!(core.take_effects().admitted.len(), 1);
    // A burst of three, then one a second.
    assert_eq!([core.charge_request(secs(0), ticket, 1), core.charge_request(secs(0), ticket, 1)], [Ok(()); 2]);
    assert_eq!(core.charge_request(secs(0), ticket, 1), Err(LimitWait { next: secs(1), whole: secs(1) }));
    assert_eq!(core.charge_request(secs(1), ticket, 1), Ok(()));
    core.on_finish(secs(2), ticket);
    assert_eq!(core.charge_request(secs(2), ticket, 1), Ok(()), "a call that is over has no limits");
}

#[test]
fn the_wait_for_tokens_is_reported_whole_and_paid_in_parts() {
    let mut core = core();
    // Ten tokens a second, with a burst of thirty.
    let endpoint = endpoint("m", Limits { tokens_per_minute: at_most(600), ..Limits::default() });
    let ticket = core.ask(secs(0), Request { tokens: 30, ..request("b", 0, &endpoint) });
    assert_eq!(core.take_effects().admitted.len(), 1);
    assert_eq!(core.charge_request(secs(0), ticket, 100), Err(LimitWait { next: secs(3), whole: secs(3) }));
    assert_eq!(core.charge_request(secs(3), ticket, 100), Ok(()));
    // Thirty of the hundred tokens were covered; seventy are owed.
    assert_eq!(core.charge_request(secs(3), ticket, 10), Err(LimitWait { next: secs(3), whole: secs(8) }));
    assert_eq!(core.charge_request(secs(6), ticket, 10), Err(LimitWait { next: secs(3), whole: secs(5) }));
    assert_eq!(core.charge_request(secs(9), ticket, 10), Err(LimitWait { next: secs(1), whole: secs(2) }));
    assert_eq!(core.charge_request(secs(11), ticket, 10), Ok(()));
}

#[test]
fn a_refusal_of_a_further_request_says_nothing_of_those_before_it() {
    let mut core = core();
    let endpoint = endpoint("m", Limits::default());
    let ticket = core.ask(secs(0), request("b", 0, &endpoint));
    assert_eq!(core.take_effects().admitted.len(), 1);
    for turn in 1..=10 {
        assert_eq!(core.charge_request(secs(turn * 10), ticket, 1), Ok(()));
    }
    core.on_rejection(secs(100), ticket, &refusal(RateLimited, Some(secs(1))));
    core.on_finish(secs(100), ticket);
    core.advance(secs(110));
    let ticket = core.ask(secs(110), request("b", 1, &endpoint));
    core.on_answer(secs(110), ticket);
    let pace = core.state(secs(110))[0].pace.expect("a pace is learnt");
    assert!(pace < 1.0, "a request in ten seconds was taken, and not {pace} a second");
}
