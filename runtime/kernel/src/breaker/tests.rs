//! Breakers: what counts, what trips them, and their probes.

use super::*;
use crate::blueprint::{Cycles, Streak};

fn branch() -> Branch {
    Branch { rule: Some("r".into()), worker: "w".into() }
}

fn written(value: u8) -> AttemptOutcome {
    AttemptOutcome::Commit { written: Digest([value; 32]), binding: None }
}

#[test]
fn each_binding_goes_in_circles_of_its_own() {
    let policy = Circuit::default();
    let mut breaker = Breaker::default();
    let mut hear = |value: u8, of: u8| {
        let of = Some(Digest([of; 32]));
        breaker.record_outcome(
            &policy,
            Some(&branch()),
            AttemptOutcome::Commit { written: Digest([value; 32]), binding: of },
        );
        breaker.due(&policy, &branch()).map(|due| due.reason)
    };
    // One return in each of many bindings is no cycle; interleaved bindings do not hide one.
    for round in 0..2 {
        for of in 0..100 {
            assert_eq!(hear(of, of), None, "{round}");
        }
    }
    assert_eq!(hear(7, 7), Some(Reason::Cycles));
    // The history is bounded.
    let mut breaker = Breaker::default();
    for of in 0..10_000_u32 {
        let of = Some(crate::digest::sha256(&of.to_be_bytes()));
        breaker.record_outcome(
            &policy,
            Some(&branch()),
            AttemptOutcome::Commit { written: Digest([0; 32]), binding: of },
        );
    }
    assert_eq!(breaker.branches[&branch()].recent_bound.len(), BINDINGS_MAX);
}

#[test]
fn invocations_that_end_in_crashes_stop_the_branch_unless_it_answers_in_between() {
    let policy = Circuit::default();
    let mut breaker = Breaker::default();
    let crash = |is_final| AttemptOutcome::Failure { is_final, is_crash: true };
    let mut hear = |heard| {
        breaker.record_outcome(&policy, Some(&branch()), heard);
        breaker.due(&policy, &branch()).map(|due| (due.reason, due.change))
    };
    // Attempts that are retried do not count, nor do failures for which the agent is not to blame.
    for _ in 0..5 {
        assert_eq!(hear(crash(false)), None);
        assert_eq!(hear(AttemptOutcome::Failure { is_final: true, is_crash: false }), None);
    }
    assert_eq!([hear(crash(true)), hear(crash(true)), hear(AttemptOutcome::Rejection { is_final: false })], [None; 3]);
    assert_eq!([hear(crash(true)), hear(crash(true))], [None; 2]);
    assert_eq!(hear(crash(true)), Some((Reason::Crashes, BreakerTransition::Opened)));
}

#[test]
fn rejections_in_a_row_first_reduce_the_view_and_then_stop_the_branch() {
    let policy = Circuit::default();
    let mut breaker = Breaker::default();
    let mut changes = Vec::new();
    for _ in 0..6 {
        breaker.record_outcome(&policy, Some(&branch()), AttemptOutcome::Rejection { is_final: false });
        if let Some(due) = breaker.due(&policy, &branch()) {
            changes.push(due.change);
            breaker.apply(&branch(), due.change, due.reason);
        }
    }
    assert_eq!(changes, [BreakerTransition::Reduced, BreakerTransition::Opened]);
    assert!(!breaker.admits(&branch()));
}

#[test]
fn a_commit_ends_a_streak() {
    let policy = Circuit::default();
    let mut breaker = Breaker::default();
    for value in 0..10 {
        breaker.record_outcome(&policy, Some(&branch()), AttemptOutcome::Rejection { is_final: false });
        breaker.record_outcome(&policy, Some(&branch()), AttemptOutcome::Rejection { is_final: false });
        breaker.record_outcome(&policy, Some(&branch()), written(value));
        assert_eq!(breaker.due(&policy, &branch()), None);
    }
}

#[test]
fn oscillations_of_every_period_up_to_half_the_window_are_cycles() {
    let policy = Circuit::default();
    for period in 2..=8_u8 {
        let mut breaker = Breaker::default();
        let tripped_after = (0..40_u8).find(|turn| {
            breaker.record_outcome(&policy, Some(&branch()), written(turn % period));
            breaker.due(&policy, &branch()).is_some_and(|due| due.reason == Reason::Cycles)
        });
        assert_eq!(tripped_after, Some(period + 1), "period {period}");
    }
}

#[test]
fn a_cycle_that_goes_on_with_less_to_see_is_stopped() {
    let cycles = Cycles { then: Action::ReduceView, ..Cycles::default() };
    let policy = Circuit { cycles, ..Circuit::default() };
    let mut breaker = Breaker::default();
    let mut changes = Vec::new();
    for turn in 0..12 {
        breaker.record_outcome(&policy, Some(&branch()), written(turn % 2));
        if let Some(due) = breaker.due(&policy, &branch()).filter(|due| due.reason == Reason::Cycles) {
            changes.push((turn, due.change));
            breaker.apply(&branch(), due.change, due.reason);
        }
    }
    assert_eq!(changes, [(3, BreakerTransition::Reduced), (7, BreakerTransition::Opened)]);
}

#[test]
fn an_open_branch_gets_one_probe_after_its_cooldown() {
    let policy = Circuit {
        no_ops: Streak { limit: 1, then: Action::StopBranch },
        cycles: Cycles::default(),
        cooldown: 3,
        ..Circuit::default()
    };
    let mut breaker = Breaker::default();
    breaker.record_outcome(&policy, Some(&branch()), AttemptOutcome::NoOp);
    breaker.apply(&branch(), BreakerTransition::Opened, Reason::NoOps);
    for _ in 0..2 {
        breaker.record_outcome(&policy, None, AttemptOutcome::NoOp);
        assert!(breaker.cooled_down(&policy).is_empty());
    }
    breaker.record_outcome(&policy, None, AttemptOutcome::NoOp);
    assert_eq!(breaker.cooled_down(&policy), [branch()]);
    breaker.apply(&branch(), BreakerTransition::HalfOpened, Reason::Cooldown);
    assert!(breaker.admits(&branch()));
    breaker.dispatched(&branch(), InvocationId(9));
    assert!(!breaker.admits(&branch()));
    breaker.record_outcome(&policy, Some(&branch()), written(1));
    let due = breaker.due(&policy, &branch()).expect("the probe was committed");
    assert_eq!((due.reason, due.change), (Reason::ProbeCommitted, BreakerTransition::Closed));
}

/// Returns a breaker with a half-open branch and its probe in progress.
fn probed() -> Breaker {
    let mut breaker = Breaker::default();
    breaker.apply(&branch(), BreakerTransition::HalfOpened, Reason::Cooldown);
    breaker.dispatched(&branch(), InvocationId(1));
    breaker
}

#[test]
fn a_probe_that_is_rejected_to_the_end_stops_the_branch_again_and_does_no_more() {
    let rejections = Streak { limit: 3, then: Action::StopBoard };
    let policy = Circuit { rejections, ..Circuit::default() };
    let mut breaker = probed();
    for is_final in [false, false, true] {
        assert_eq!(breaker.due(&policy, &branch()), None);
        breaker.record_outcome(&policy, Some(&branch()), AttemptOutcome::Rejection { is_final });
    }
    let due = breaker.due(&policy, &branch()).expect("the probe failed");
    assert_eq!(due, DueTransition { reason: Reason::ProbeFailed, action: None, change: BreakerTransition::Opened });
    // The transition ends the streak: results after the next cooldown are counted from zero.
    breaker.apply(&branch(), due.change, due.reason);
    breaker.apply(&branch(), BreakerTransition::HalfOpened, Reason::Cooldown);
    breaker.record_outcome(&policy, Some(&branch()), AttemptOutcome::Rejection { is_final: false });
    assert_eq!(breaker.due(&policy, &branch()), None);
}

#[test]
fn a_probe_that_crashes_or_goes_in_circles_is_judged_as_a_probe() {
    let crashes = Streak { limit: 1, then: Action::StopBoard };
    let cycles = Cycles { repeats: 1, then: Action::StopBoard, ..Cycles::default() };
    let policy = Circuit { crashes, cycles, ..Circuit::default() };
    let mut breaker = probed();
    breaker.record_outcome(&policy, Some(&branch()), AttemptOutcome::Failure { is_final: true, is_crash: true });
    let due = breaker.due(&policy, &branch()).map(|due| (due.reason, due.action));
    assert_eq!(due, Some((Reason::ProbeFailed, None)));
    // A branch stopped by a budget may still commit calls in progress. Its next commit is a return, and its probe.
    let mut breaker = Breaker::default();
    breaker.apply(&branch(), BreakerTransition::Opened, Reason::Budget);
    breaker.record_outcome(&policy, Some(&branch()), written(1));
    breaker.apply(&branch(), BreakerTransition::HalfOpened, Reason::Cooldown);
    breaker.record_outcome(&policy, Some(&branch()), written(1));
    let due = breaker.due(&policy, &branch()).map(|due| (due.reason, due.change));
    assert_eq!(due, Some((Reason::ProbeCommitted, BreakerTransition::Closed)));
}

#[test]
fn a_streak_while_the_probe_may_go_on_stops_the_branch_as_the_blueprint_says() {
    let rejections = Streak { limit: 2, then: Action::ReduceView };
    let policy = Circuit { rejections, ..Circuit::default() };
    let mut breaker = probed();
    breaker.record_outcome(&policy, Some(&branch()), AttemptOutcome::Rejection { is_final: false });
    breaker.record_outcome(&policy, Some(&branch()), AttemptOutcome::Rejection { is_final: false });
    let due = breaker.due(&policy, &branch()).map(|due| (due.reason, due.change));
    assert_eq!(due, Some((Reason::Rejections, BreakerTransition::Opened)));
}

#[test]
fn a_probe_that_changes_nothing_stops_the_branch_again() {
    let policy = Circuit { no_ops: Streak { limit: 5, then: Action::StopBranch }, ..Circuit::default() };
    let mut breaker = Breaker::default();
    breaker.apply(&branch(), BreakerTransition::HalfOpened, Reason::Cooldown);
    breaker.dispatched(&branch(), InvocationId(1));
    breaker.record_outcome(&policy, Some(&branch()), AttemptOutcome::NoOp);
    let due = breaker.due(&policy, &branch()).expect("the probe failed");
    assert_eq!((due.reason, due.change), (Reason::ProbeFailed, BreakerTransition::Opened));
}
