//! Outages, slow start, poisonous prompts, and providers that are merely slow.

use std::collections::BTreeSet;
use std::time::Duration;

use patchboard_kernel::deferral::{Deferral, DeferralReason};

use super::super::types::{Availability, RejectionOutcome};
use super::world::{Reply, World};
use super::{admitted, ambiguous, ask, core, endpoint, key, millis, plain, refusal, request, secs};

use DeferralReason::{ModelLoading, NoAnswer, Overloaded, RateLimited, Unreachable};

const DAY: u64 = 24 * 60 * 60;

#[test]
fn outages_of_seconds_to_days_lose_nothing_and_end_soon_after() {
    for seconds in [2, 30, 600, 6 * 3600, 3 * DAY] {
        for (reason, wait) in
            [(Overloaded, None), (Unreachable, None), (RateLimited, Some(2)), (ModelLoading, Some(30))]
        {
            let end = secs(seconds);
            let mut world = World::new(vec![plain("m")], seconds, |sent| {
                if sent.at < end {
                    Reply::Refuse(millis(20), refusal(reason, wait.map(secs)))
                } else {
                    Reply::Answer(secs(1))
                }
            });
            for board in 0..50 {
                world.board(board * 10, 3, 2);
            }
            world.run(2_000_000);
            assert_eq!(world.done.len(), 150, "{reason} for {seconds} s");
            let back = world.done[0].2;
            let wait_max = wait.map_or((seconds * 2).min(300), |wait| wait + 1);
            assert!(back <= end + secs(wait_max + 2), "{reason} for {seconds} s: back at {back:?}");
            // All requests were sent before the outage was known: afterwards one probes at a time.
            let probes = world.sent.iter().filter(|sent| sent.at < end && sent.at > millis(500)).count();
            let most = wait.map_or(12 + seconds / 150, |wait| seconds / wait + 1);
            assert!(probes as u64 <= most, "{reason} for {seconds} s: {probes} probes");
            let changes: Vec<bool> =
                world.transitions.iter().map(|one| matches!(one.change, Availability::Unavailable { .. })).collect();
            assert_eq!(changes, [true, false], "{reason} for {seconds} s");
        }
    }
}

#[test]
fn boards_take_turns_at_probing() {
    let end = secs(20);
    let mut world = World::new(vec![plain("m")], 1, |sent| {
        if sent.at < end {
            Reply::Refuse(millis(5), refusal(Overloaded, Some(secs(1))))
        } else {
            Reply::Answer(secs(1))
        }
    });
    for board in 0..10 {
        world.board(board * 10, 2, 2);
    }
    world.run(100_000);
    let probes: BTreeSet<usize> =
        world.sent.iter().filter(|sent| sent.at > millis(500) && sent.at < end).map(|sent| sent.board).collect();
    assert_eq!(probes.len(), 10, "{probes:?}");
}

#[test]
fn a_model_that_is_back_starts_gently() {
    let end = secs(10);
    let mut world = World::new(vec![plain("m")], 1, |sent| {
        if sent.at < end { Reply::Refuse(millis(5), refusal(Overloaded, None)) } else { Reply::Answer(secs(1)) }
    });
    for board in 0..10_000 {
        world.board(board, 1, 1);
    }
    world.run(1_000_000);
    assert_eq!(world.done.len(), 10_000);
    let after = world.sent.iter().filter(|sent| sent.at >= end);
    let mut most = 1;
    let mut at = None;
    let mut steps = Vec::new();
    for sent in after {
        if at != Some(sent.at) {
            steps.push(most);
            at = Some(sent.at);
        }
        most = most.max(sent.in_flight);
    }
    steps.push(most);
    let doubled: Vec<usize> = (0..13).map(|round| 1 << round).collect();
    assert_eq!(steps[1..14], doubled, "{steps:?}");
    assert!(world.wakes < 200, "waiting costs no wake-ups: {}", world.wakes);
}

#[test]
fn a_slow_start_ends_at_the_configured_concurrency() {
    let limits = super::Limits { concurrency: super::at_most(5), ..Default::default() };
    let end = secs(10);
    let mut world = World::new(vec![endpoint("m", limits)], 1, |sent| {
        if sent.at < end { Reply::Refuse(millis(5), refusal(Overloaded, None)) } else { Reply::Answer(secs(1)) }
    });
    world.board(0, 100, 50);
    world.run(100_000);
    assert_eq!(world.sent.iter().map(|sent| sent.in_flight).max(), Some(5));
}

#[test]
fn one_poisonous_prompt_never_closes_a_model_and_counts_as_an_attempt() {
    let mut world = World::new(vec![plain("m")], 1, |sent| {
        if sent.item == 7 { Reply::Refuse(millis(50), ambiguous()) } else { Reply::Answer(millis(300)) }
    });
    for board in 0..5 {
        world.board(board * 10, 10, 2);
    }
    world.run(100_000);
    assert_eq!((world.done.len(), world.lost.len()), (49, 1));
    assert!(world.transitions.is_empty(), "{:?}", world.transitions);
}

#[test]
fn a_poisonous_prompt_alone_is_charged_each_time() {
    let mut core = core();
    for at in 0..5 {
        let (ticket, is_admitted) = ask(&mut core, secs(at), request("a", 1, &plain("m")));
        assert!(is_admitted);
        assert_eq!(core.on_rejection(secs(at), ticket, &ambiguous()), RejectionOutcome::Charged);
        core.on_finish(secs(at), ticket);
    }
}

#[test]
fn a_500_for_two_different_requests_is_the_models_until_it_answers() {
    let mut core = core();
    let model = plain("m");
    let tickets = [1, 2, 3].map(|prompt| ask(&mut core, secs(1), request("a", prompt, &model)).0);
    assert_eq!(core.on_rejection(secs(2), tickets[0], &ambiguous()), RejectionOutcome::Charged);
    core.on_answer(secs(2), tickets[2]);
    assert_eq!(core.on_rejection(secs(2), tickets[1], &ambiguous()), RejectionOutcome::Charged);
    let (third, _) = ask(&mut core, secs(3), request("b", 4, &model));
    assert!(
        matches!(core.on_rejection(secs(3), third, &ambiguous()), RejectionOutcome::Deferred { not_before } if not_before >= secs(1))
    );
    assert!(core.state(secs(3))[0].outage.is_some());
}

#[test]
fn a_silent_model_is_away_and_a_slow_one_is_not() {
    // No call is answered within the first minute: each ends unanswered after 30 s.
    let mut world = World::new(vec![plain("m")], 1, |sent| {
        if sent.at < secs(60) { Reply::Refuse(secs(30), refusal(NoAnswer, None)) } else { Reply::Answer(secs(1)) }
    });
    world.board(0, 20, 8);
    world.run(100_000);
    assert_eq!((world.done.len(), world.lost.len()), (20, 0));
    // Each call takes 25 s, and one prompt is never answered.
    let mut world = World::new(vec![plain("m")], 1, |sent| {
        if sent.item == 3 { Reply::Refuse(secs(30), refusal(NoAnswer, None)) } else { Reply::Answer(secs(25)) }
    });
    world.board(0, 40, 4);
    world.run(100_000);
    assert_eq!((world.done.len(), world.lost.len()), (39, 1));
    assert!(world.transitions.is_empty(), "{:?}", world.transitions);
}

#[test]
fn an_answer_that_arrives_late_ends_the_silence() {
    let mut core = core();
    let model = plain("m");
    let (first, _) = ask(&mut core, secs(0), request("a", 1, &model));
    let (second, _) = ask(&mut core, secs(0), request("b", 2, &model));
    assert!(matches!(core.on_rejection(secs(60), first, &refusal(NoAnswer, None)), RejectionOutcome::Deferred { .. }));
    assert!(core.state(secs(60))[0].outage.is_some());
    core.on_answer(secs(61), second);
    assert_eq!(core.state(secs(61))[0].outage, None);
}

#[test]
fn each_request_of_a_conversation_is_judged_by_itself() {
    let mut core = core();
    let (ticket, _) = ask(&mut core, secs(0), request("a", 1, &plain("m")));
    core.on_answer(secs(1), ticket);
    assert_eq!(core.charge_request(secs(2), ticket, 1), Ok(()));
    // The answer to the call's own earlier turn says nothing about this silence.
    assert!(matches!(core.on_rejection(secs(32), ticket, &refusal(NoAnswer, None)), RejectionOutcome::Deferred { .. }));
    assert!(core.state(secs(32))[0].outage.is_some());
}

#[test]
fn a_failure_after_bytes_is_charged() {
    let mut core = core();
    let (ticket, _) = ask(&mut core, secs(0), request("a", 1, &plain("m")));
    core.on_answer(secs(1), ticket);
    assert_eq!(core.on_rejection(secs(2), ticket, &refusal(Unreachable, None)), RejectionOutcome::Charged);
    assert_eq!(core.state(secs(2))[0].outage, None);
}

#[test]
fn a_wait_that_the_provider_asks_for_counts_first() {
    for (asked, least, most) in
        [(Some(1), 1, 2), (Some(25), 25, 26), (Some(3600), 3600, 3700), (Some(10 * DAY), DAY, DAY + 2000), (None, 1, 2)]
    {
        let mut core = core();
        let (ticket, _) = ask(&mut core, secs(0), request("a", 1, &plain("m")));
        let verdict = core.on_rejection(secs(0), ticket, &refusal(RateLimited, asked.map(secs)));
        let RejectionOutcome::Deferred { not_before } = verdict else { panic!("{verdict:?}") };
        assert!((secs(least)..=secs(most)).contains(&not_before), "{asked:?}: {not_before:?}");
    }
}

#[test]
fn waits_grow_from_a_second_to_five_minutes() {
    let mut core = core();
    let model = plain("m");
    let mut now = secs(0);
    let mut waits = Vec::new();
    for _ in 0..14 {
        let (ticket, is_admitted) = ask(&mut core, now, request("a", 1, &model));
        assert!(is_admitted, "a probe is admitted at {now:?}");
        let verdict = core.on_rejection(now, ticket, &refusal(Unreachable, None));
        core.on_finish(now, ticket);
        let RejectionOutcome::Deferred { not_before } = verdict else { panic!("{verdict:?}") };
        waits.push(not_before);
        now += not_before;
    }
    for (index, wait) in (1_u32..).zip(&waits) {
        let most = secs(2_u64.pow(index)).min(secs(300));
        assert!((most / 2).max(secs(1)) <= *wait && *wait <= most, "wait {index} of {waits:?}");
    }
    assert!(waits[10..].iter().any(|wait| *wait != waits[10]), "waits have jitter: {waits:?}");
}

#[test]
fn a_wait_of_zero_is_no_invitation_to_a_loop() {
    let mut world = World::new(vec![plain("m")], 1, |sent| {
        if sent.at < secs(600) {
            Reply::Refuse(millis(5), refusal(RateLimited, Some(Duration::ZERO)))
        } else {
            Reply::Answer(secs(1))
        }
    });
    world.board(0, 8, 8);
    world.run(100_000);
    assert!(world.sent.len() < 40, "{}", world.sent.len());
}

#[test]
fn refusals_of_one_burst_count_once() {
    let mut core = core();
    let model = plain("m");
    let burst = [1, 2, 3, 4, 5, 6].map(|prompt| ask(&mut core, secs(0), request("a", prompt, &model)).0);
    for ticket in burst {
        core.on_rejection(millis(5), ticket, &refusal(Overloaded, None));
        core.on_finish(millis(5), ticket);
    }
    let state = core.state(millis(5)).remove(0);
    assert!(state.outage.is_some_and(|outage| outage.next_try.is_some_and(|next| next <= secs(2))), "{state:?}");
    assert_eq!(state.deferred[&Overloaded], 6);
}

#[test]
fn a_probe_that_ends_without_a_word_leaves_the_probe_to_the_next() {
    let mut core = core();
    let model = plain("m");
    let (ticket, _) = ask(&mut core, secs(0), request("a", 1, &model));
    core.on_rejection(secs(0), ticket, &refusal(Overloaded, Some(secs(5))));
    core.on_finish(secs(0), ticket);
    let (first, is_admitted) = ask(&mut core, secs(1), request("a", 2, &model));
    assert!(!is_admitted);
    let (second, _) = ask(&mut core, secs(1), request("b", 3, &model));
    let at = core.wake_at().expect("a probe is due");
    core.advance(at);
    assert_eq!(admitted(&mut core), [first]);
    assert_eq!(core.wake_at(), None, "the rest waits for the probe");
    core.on_finish(at, first);
    assert_eq!(admitted(&mut core), [second]);
}

#[test]
fn a_cancelled_request_leaves_its_turn_to_the_next() {
    let limits = super::Limits { concurrency: super::at_most(1), ..Default::default() };
    let model = endpoint("m", limits);
    let mut core = core();
    let (running, _) = ask(&mut core, secs(0), request("a", 1, &model));
    let (cancelled, _) = ask(&mut core, secs(0), request("a", 2, &model));
    let (next, _) = ask(&mut core, secs(0), request("b", 3, &model));
    core.cancel(secs(1), cancelled);
    core.on_finish(secs(2), running);
    assert_eq!(admitted(&mut core), [next]);
    core.on_finish(secs(3), next);
    assert!(!core.has_waiters());
    assert_eq!(core.state(secs(3))[0].in_flight, 0);
}

#[test]
fn waits_outlast_a_stopped_or_reversed_clock() {
    let mut core = core();
    let model = plain("m");
    let (ticket, _) = ask(&mut core, secs(100), request("a", 1, &model));
    core.on_rejection(secs(100), ticket, &refusal(Overloaded, Some(secs(5))));
    core.on_finish(secs(100), ticket);
    let (waiting, is_admitted) = ask(&mut core, secs(50), request("a", 2, &model));
    assert!(!is_admitted);
    for _ in 0..100 {
        core.advance(secs(100));
        core.advance(secs(0));
    }
    assert!(admitted(&mut core).is_empty());
    core.advance(secs(106));
    assert_eq!(admitted(&mut core), [waiting]);
}

#[test]
fn a_hold_closes_a_model_until_a_probe_is_answered() {
    let mut core = core();
    let model = plain("m");
    core.hold(secs(0), &key("m"), RateLimited, secs(60));
    core.hold(secs(0), &key("m"), RateLimited, secs(10));
    let (first, is_admitted) = ask(&mut core, secs(1), request("a", 1, &model));
    assert!(!is_admitted);
    let at = core.wake_at().expect("a probe is due");
    assert!((secs(60)..secs(62)).contains(&at), "{at:?}");
    core.advance(at);
    assert_eq!(admitted(&mut core), [first]);
    core.on_answer(at, first);
    assert_eq!(core.state(at)[0].outage, None);
    // The journal of another board is older than what the gate has seen.
    core.hold(at, &key("m"), RateLimited, secs(60));
    assert_eq!(core.state(at)[0].outage, None);
}

#[test]
fn idle_models_are_forgotten() {
    let mut core = core();
    for number in 0..100 {
        let (ticket, _) = ask(&mut core, secs(number), request("a", 1, &plain(&format!("m{number}"))));
        core.on_rejection(secs(number), ticket, &refusal(RateLimited, None));
        core.on_finish(secs(number), ticket);
    }
    assert_eq!(core.state(secs(100)).len(), 100);
    assert_eq!(core.state(secs(3600)).len(), 0);
}

#[test]
fn the_wait_is_that_of_the_deferral() {
    let mut core = core();
    let (ticket, _) = ask(&mut core, secs(0), request("a", 1, &plain("m")));
    let deferral = Deferral { wait_ms: Some(1500), ..Deferral::new(RateLimited) };
    let verdict = core.on_rejection(secs(0), ticket, &deferral);
    let RejectionOutcome::Deferred { not_before } = verdict else { panic!("{verdict:?}") };
    assert!((millis(1500)..=millis(1530)).contains(&not_before), "{not_before:?}");
}
