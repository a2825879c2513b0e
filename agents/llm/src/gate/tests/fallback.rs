//! Fallbacks to the next model of a chain, and back.

use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::deferral::DeferralReason::{KeyRefused, Overloaded};

use super::super::route::{Candidate, Unavailability, choose};
use super::super::types::{Endpoint, Limits, Request};
use super::world::{Reply, World};
use super::{ambiguous, ask, core, key, millis, plain, refusal, request, secs};

fn chain(fallback_after: u64) -> Vec<Arc<Endpoint>> {
    let endpoint =
        |model| Endpoint { key: key(model), limits: Limits::default(), fallback_after: secs(fallback_after) };
    ["first", "second"].map(|model| Arc::new(endpoint(model))).to_vec()
}

fn with_fallback(board: &str, prompt: usize, fallback_after: u64) -> Request {
    let chain = chain(fallback_after);
    Request { fallbacks: chain[1..].to_vec(), ..request(board, prompt, &chain[0]) }
}

#[test]
fn the_first_usable_model_is_chosen() {
    let open = Candidate { absence: None, has_rejected: false, fallback_after: secs(30) };
    let away = |since, until| Candidate {
        absence: Some(Unavailability {
            since: secs(since),
            until: secs(until),
            wants_probe: false,
            needs_operator: false,
        }),
        ..open
    };
    let refused = Candidate { has_rejected: true, ..open };
    let mut keyless = away(90, 200);
    keyless.absence.as_mut().expect("away").needs_operator = true;
    let mut due = away(10, 99);
    due.absence.as_mut().expect("away").wants_probe = true;
    for (chain, expected) in [
        (vec![open, open], 0),
        (vec![away(90, 200), open], 0),
        (vec![away(70, 200), open], 1),
        (vec![away(70, 200), away(90, 300)], 1),
        (vec![away(10, 200), away(20, 150), away(10, 170)], 1),
        (vec![refused, open], 1),
        (vec![refused, refused], 0),
        (vec![refused, away(10, 200)], 1),
        (vec![keyless, open], 1),
        (vec![due, open], 0),
        (vec![], 0),
    ] {
        assert_eq!(choose(secs(100), &chain), expected, "{chain:?}");
    }
}

#[test]
fn requests_move_to_the_fallback_and_return() {
    for fallback_after in [0, 5, 30] {
        let (begin, end) = (secs(10), secs(300));
        let mut world = World::new(chain(fallback_after), 1, |sent| {
            let is_away = sent.key == key("first") && sent.at >= begin && sent.at < end;
            if is_away { Reply::Refuse(millis(5), refusal(Overloaded, None)) } else { Reply::Answer(secs(1)) }
        });
        for board in 0..10 {
            world.board(board * 1000, 1200, 2);
        }
        world.run(1_000_000);
        assert_eq!(world.done.len(), 12_000);
        let on_second: Vec<Duration> =
            world.sent.iter().filter(|sent| sent.key == key("second")).map(|sent| sent.at).collect();
        let (from, to) = (on_second.first().expect("it was used"), on_second.last().expect("it was used"));
        assert!(*from >= begin + secs(fallback_after) && *from <= begin + secs(fallback_after + 3), "{from:?}");
        assert!(*to > end - secs(5) && *to < end + secs(310), "{to:?}");
        let on_first = world.sent.iter().filter(|sent| sent.key == key("first") && sent.at > *to).count();
        assert!(on_first > 1000, "after {to:?}: {on_first}");
        let probes = world.sent.iter().filter(|sent| sent.key == key("first") && sent.at > secs(12) && sent.at < end);
        assert!(probes.count() < 25);
    }
}

#[test]
fn waiting_requests_move_when_the_time_has_come() {
    let mut core = core();
    let (ticket, _) = ask(&mut core, secs(0), request("a", 1, &plain("first")));
    core.on_rejection(secs(0), ticket, &refusal(Overloaded, Some(secs(600))));
    core.on_finish(secs(0), ticket);
    let waiting: Vec<_> = (0..100).map(|prompt| ask(&mut core, secs(1), with_fallback("b", prompt, 30)).0).collect();
    assert_eq!(core.wake_at(), Some(secs(30)));
    core.advance(secs(30));
    let admitted = core.take_effects().admitted;
    assert_eq!(admitted.iter().map(|one| one.ticket).collect::<Vec<_>>(), waiting);
    assert!(admitted.iter().all(|one| one.position == 1 && one.endpoint.key == key("second")));
}

#[test]
fn a_model_that_needs_an_operator_is_left_at_once() {
    let mut core = core();
    let (first, _) = ask(&mut core, secs(0), with_fallback("a", 1, 30));
    core.on_rejection(secs(0), first, &refusal(KeyRefused, None));
    core.on_finish(secs(0), first);
    core.ask(secs(0), with_fallback("a", 1, 30));
    assert_eq!(core.take_effects().admitted[0].position, 1);
}

#[test]
fn a_request_that_a_model_refused_goes_to_the_next() {
    let mut core = core();
    let (first, _) = ask(&mut core, secs(0), with_fallback("a", 1, 30));
    core.on_rejection(secs(0), first, &ambiguous());
    core.on_finish(secs(0), first);
    core.ask(secs(1), with_fallback("a", 1, 30));
    core.ask(secs(1), with_fallback("a", 2, 30));
    let positions: Vec<usize> = core.take_effects().admitted.iter().map(|one| one.position).collect();
    assert_eq!(positions, [1, 0]);
}

#[test]
fn a_model_is_probed_while_its_requests_wait_for_another() {
    // Both models are away, the second one for the whole test: it is sent one probe at a time.
    let mut world = World::new(chain(5), 1, |sent| {
        let end = if sent.key == key("first") { secs(60) } else { secs(100_000) };
        if sent.at < end { Reply::Refuse(millis(5), refusal(Overloaded, None)) } else { Reply::Answer(secs(1)) }
    });
    world.board(0, 20, 8);
    world.run(100_000);
    assert_eq!(world.done.len(), 20);
    assert!(world.now < secs(400), "{:?}", world.now);
}
