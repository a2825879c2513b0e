//! The shell: permits, futures and the one timer, on tokio's paused clock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use patchboard_kernel::deferral::DeferralReason::{KeyRefused, Overloaded, RateLimited};
use patchboard_kernel::id::BoardId;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::super::{AdmitResult, Availability, BoardOutage, Gate, Limits, PendingPermit, Permit, RejectionOutcome};
use super::{at_most, endpoint, key, millis, plain, refusal, request, secs};

fn gate() -> Gate {
    Gate::with_jitter(Box::new(|| 0.0))
}

fn now(admission: AdmitResult) -> Permit {
    match admission {
        AdmitResult::Now(permit) => permit,
        AdmitResult::Later(_) => panic!("the call is admitted at once"),
    }
}

fn later(admission: AdmitResult) -> PendingPermit {
    match admission {
        AdmitResult::Later(waiting) => waiting,
        AdmitResult::Now(_) => panic!("the call waits"),
    }
}

#[test]
fn the_gate_and_its_permits_can_cross_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    crosses::<Gate>();
    crosses::<Permit>();
    crosses::<PendingPermit>();
}

#[test]
fn an_open_model_admits_without_a_runtime() {
    let gate = Gate::new();
    let permit = now(gate.admit(request("a", 1, &plain("m"))));
    assert_eq!((permit.position(), permit.endpoint().key.model()), (0, "m"));
    assert_eq!(gate.state()[0].in_flight, 1);
    drop(permit);
    assert_eq!(gate.state()[0].in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_refused_model_is_probed_after_the_wait_and_reports_both() {
    let gate = gate();
    let mut transitions = gate.subscribe();
    let permit = now(gate.admit(request("a", 1, &plain("m"))));
    let verdict = permit.report_rejection(refusal(RateLimited, Some(secs(25))));
    assert_eq!(verdict, RejectionOutcome::Deferred { not_before: secs(25) });
    drop(permit);
    let begin = Instant::now();
    let waiting = later(gate.admit(request("a", 1, &plain("m"))));
    let other = later(gate.admit(request("b", 2, &plain("m"))));
    let state = gate.state().remove(0);
    assert_eq!((state.waiting, state.outage.and_then(|outage| outage.next_try)), (2, Some(secs(25))));
    let permit = waiting.await;
    assert_eq!(begin.elapsed(), secs(25));
    let mut other = Box::pin(other);
    assert!(timeout(secs(1000), &mut other).await.is_err(), "one call probes, the other waits");
    permit.report_answer();
    drop(other.await);
    assert!(matches!(
        transitions.try_recv().expect("away").change,
        Availability::Unavailable { reason: RateLimited, .. }
    ));
    assert!(matches!(transitions.try_recv().expect("back").change, Availability::Recovered { .. }));
    assert!(transitions.try_recv().is_err());
}

#[test]
fn a_refusal_that_an_operator_must_fix_is_reported_and_closes_nothing() {
    let gate = gate();
    let mut transitions = gate.subscribe();
    for prompt in 1..3 {
        let permit = now(gate.admit(request("a", prompt, &plain("m"))));
        permit.report_operator_error(KeyRefused);
    }
    let state = gate.state().remove(0);
    let outage = state.outage.expect("it is not available");
    assert_eq!((outage.reason, outage.next_try, state.deferred[&KeyRefused]), (KeyRefused, None, 2));
    assert!(gate.board_outage(&BoardId::from("a")).is_none(), "no board waits for it");
    now(gate.admit(request("b", 3, &plain("m")))).report_answer();
    assert_eq!(gate.state()[0].outage, None);
    let changes =
        [transitions.try_recv(), transitions.try_recv()].map(|transition| transition.expect("a transition").change);
    assert!(
        matches!(
            changes,
            [Availability::Unavailable { reason: KeyRefused, next_try: None }, Availability::Recovered { .. }]
        ),
        "{changes:?}"
    );
    assert!(transitions.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_deferred_call_waits_for_its_model_and_boards_know_for_what() {
    let gate = gate();
    let key = plain("m").key.clone();
    let permit = now(gate.admit(request("a", 1, &plain("m"))));
    permit.report_rejection(refusal(RateLimited, Some(secs(25))));
    drop(permit);
    let mut deferred = Box::pin(gate.wait(key, secs(25)));
    assert!(timeout(secs(1), &mut deferred).await.is_err());
    let held = later(gate.admit(request("b", 2, &plain("m"))));
    assert_eq!(gate.state()[0].waiting, 2);
    sleep(secs(4)).await;
    let BoardOutage { outage, calls, elapsed } = gate.board_outage(&BoardId::from("b")).expect("it waits");
    assert_eq!((outage.reason, outage.next_try, calls, elapsed), (RateLimited, Some(secs(20)), 1, secs(4)));
    assert_eq!(gate.boards_waiting(), BTreeSet::from(["b".into()]));
    assert_eq!(gate.board_outage(&BoardId::from("a")), None, "its wait is in its journal");
    drop((deferred, held));
    assert_eq!(gate.state()[0].waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_is_shut_hears_first_which_models_are_away() {
    let gate = gate();
    let begin = Instant::now();
    gate.shut(secs(30));
    let first = later(gate.admit(request("a", 1, &plain("m"))));
    let other = later(gate.admit(request("b", 2, &plain("n"))));
    for wait in [secs(20), secs(50), secs(10)] {
        gate.hold(&plain("m").key, RateLimited, wait);
    }
    gate.open();
    drop(other.await);
    assert_eq!(begin.elapsed(), secs(0), "of the other model nobody said anything");
    drop(first.await);
    assert_eq!(begin.elapsed(), secs(50), "the longest wait holds");
    // Without `open`, the gate opens when its time is over.
    gate.shut(secs(30));
    drop(later(gate.admit(request("a", 1, &plain("n")))).await);
    assert_eq!(begin.elapsed(), secs(80));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_waiting_request_is_withdrawn_also_with_its_permit_on_the_way() {
    let gate = gate();
    let model = endpoint("m", Limits { concurrency: at_most(1), ..Limits::default() });
    let permit = now(gate.admit(request("a", 1, &model)));
    let first = later(gate.admit(request("a", 2, &model)));
    let second = later(gate.admit(request("a", 3, &model)));
    let third = later(gate.admit(request("a", 4, &model)));
    drop(first);
    assert_eq!(gate.state()[0].waiting, 2);
    // The permit of the second request is sent, but never received.
    drop(permit);
    assert_eq!(gate.state()[0].in_flight, 1);
    drop(second);
    let permit = third.await;
    assert_eq!((gate.state()[0].waiting, gate.state()[0].in_flight), (0, 1));
    drop(permit);
    assert_eq!(gate.state()[0].in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_boards_wait_and_each_is_woken_once() {
    let gate = gate();
    let model = plain("m");
    gate.hold(&key("m"), Overloaded, secs(3600));
    let polls = Arc::new(AtomicUsize::new(0));
    let mut boards = JoinSet::new();
    for board in 0..10_000 {
        let waiting = later(gate.admit(request(&format!("board-{board}"), board, &model)));
        let polls = Arc::clone(&polls);
        boards.spawn(async move {
            let mut waiting = Box::pin(waiting);
            let permit = std::future::poll_fn(|context| {
                polls.fetch_add(1, Ordering::Relaxed);
                waiting.as_mut().poll(context)
            })
            .await;
            sleep(secs(1)).await;
            permit.report_answer();
        });
    }
    let begin = Instant::now();
    while boards.join_next().await.is_some() {}
    assert!(begin.elapsed() < secs(3700), "{:?}", begin.elapsed());
    assert_eq!(polls.load(Ordering::Relaxed), 20_000, "one poll to wait, and one to be admitted");
    assert_eq!(gate.state()[0].in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_limit_per_minute_is_kept_by_the_timer() {
    let gate = gate();
    let model = endpoint("m", Limits { requests_per_minute: at_most(60), ..Limits::default() });
    let begin = Instant::now();
    for prompt in 0..13 {
        match gate.admit(request("a", prompt, &model)) {
            AdmitResult::Now(permit) => drop(permit),
            AdmitResult::Later(waiting) => drop(waiting.await),
        }
    }
    let took = begin.elapsed();
    assert!(took >= secs(10) && took <= secs(10) + millis(20), "{took:?}");
}

#[test]
fn the_timer_starts_again_in_another_runtime() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().expect("a runtime can be made")
    };
    let gate = gate();
    gate.hold(&key("m"), Overloaded, secs(10));
    let mut waiting = Box::pin(later(gate.admit(request("a", 1, &plain("m")))));
    let waits = runtime().block_on(async { timeout(secs(1), &mut waiting).await.is_err() });
    assert!(waits);
    let permit = runtime().block_on(waiting);
    permit.report_answer();
    assert_eq!(gate.state()[0].outage, None);
}
