//! A journal with an intact hash chain and changed decisions. Proves that replay names the first record that differs.
//!
//! An attacker that can write the file and knows the salt can chain any history, but cannot make the kernel decide it
//! again.

use std::collections::BTreeSet;

use patchboard_kernel::blueprint::EventOp;
use patchboard_kernel::breaker::Reason;
use patchboard_kernel::digest::{Digest, Hasher, Salt};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::Seq;
use patchboard_kernel::record::{Body, Cause, GENESIS, Kind, Record, Trigger};
use patchboard_kernel::rejection::Code;
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use serde_json::json;

use super::world::Simulation;

#[test]
fn an_altered_and_rechained_decision_is_named() {
    // Inputs are not decisions. Only the chain protects a tick, a jump of the clock, a signal, a person's answer, a
    // pause or a takeover.
    let decisions: BTreeSet<Kind> = Kind::ALL
        .iter()
        .copied()
        .filter(|kind| {
            use Kind as K;
            !matches!(
                kind,
                K::Created
                    | K::Epoch
                    | K::Paused
                    | K::Resumed
                    | K::Tick
                    | K::Jumped
                    | K::Signal
                    | K::Answer
                    | K::Late
                    | K::Redacted
                    | K::Retried
            )
        })
        .collect();
    let mut forged = BTreeSet::new();
    for seed in 0..400 {
        if seed >= 20 && forged == decisions {
            break;
        }
        let mut world = Simulation::new(seed, false, Default::default());
        world.run();
        let records = world.records();
        replay::replay(records, None, &PLANS).expect("the run follows from its records");
        for kind in Kind::ALL {
            // The last record of its kind, so that many records precede it.
            let Some(place) = records.iter().rposition(|record| record.kind == *kind) else { continue };
            let mut body = records[place].body().expect("it can be read").clone();
            if !forge(&mut body) {
                continue;
            }
            let history = rechain(records, place, &body);
            let Err(difference) = replay::replay(&history, None, &PLANS) else {
                panic!("SEED={seed}: nobody noticed that record {place} ({kind}) was changed to {body:?}")
            };
            assert_eq!(difference.seq, Seq(place as u64), "SEED={seed}: {difference}");
            forged.insert(*kind);
        }
    }
    assert_eq!(forged, decisions, "every kind of decision was forged");
}

/// Changes a decision of the kernel. Returns false if the body holds none.
fn forge(body: &mut Body) -> bool {
    match body {
        Body::Continued(continued) => continued.by.base = continued.by.base.next(),
        Body::Committed(committed) => committed.state = Digest([9; 32]),
        Body::NoOp(no_op) => no_op.by.base = no_op.by.base.next(),
        Body::Approval(approval) => approval.expires = approval.expires.map(|expires| expires.plus_ms(1)),
        Body::Expanded(expanded) => expanded.by.base = expanded.by.base.next(),
        Body::Rejected(rejected) => {
            rejected.code = if rejected.code == Code::TooDeep { Code::TooLarge } else { Code::TooDeep };
        }
        // A failure by timeout or takeover is a decision; one that an agent reported is an input.
        Body::Failed(failed) => {
            if !matches!(failed.code, FailureCode::Timeout | FailureCode::Lost) {
                return false;
            }
            failed.is_final = !failed.is_final;
        }
        Body::Scheduled(scheduled) => {
            scheduled.trigger = match &scheduled.trigger {
                Trigger::Event { path, version, .. } => {
                    Trigger::Event { op: EventOp::Remove, path: path.clone(), version: *version }
                }
                _ => Trigger::Event { op: EventOp::Add, path: "/x".into(), version: Default::default() },
            };
        }
        Body::Invoked(invoked) => invoked.view = Digest([9; 32]),
        Body::Deferred(deferred) => deferred.by.base = deferred.by.base.next(),
        Body::Reserved(reserved) => reserved.decisions += 1,
        Body::Skipped(skipped) => skipped.message.push('!'),
        Body::Breaker(moved) => {
            moved.reason = if moved.reason == Reason::Budget { Reason::Cycles } else { Reason::Budget };
        }
        Body::Budget(budget) => budget.left += 1,
        Body::Ended(ended) => {
            ended.cause = if ended.cause == Cause::Wall { Cause::Commits } else { Cause::Wall };
        }
        Body::Snapshot(snapshot) => snapshot.digest = Digest([9; 32]),
        Body::Created(_)
        | Body::Epoch(_)
        | Body::Late(_)
        | Body::Paused(_)
        | Body::Retried(_)
        | Body::Resumed(_)
        | Body::Tick(_)
        | Body::Jumped(_)
        | Body::Signal(_)
        | Body::Redacted(_)
        | Body::Answer(_) => return false,
    }
    true
}

/// Returns the history with another body at `place`, and with all hashes recomputed.
fn rechain(records: &[Record], place: usize, body: &Body) -> Vec<Record> {
    let hasher = Hasher::new(&Salt([7; 32]));
    let mut previous = GENESIS;
    let mut history = Vec::with_capacity(records.len());
    for (index, record) in records.iter().enumerate() {
        let body = if index == place { body } else { record.body().expect("it can be read") };
        let record = Record::seal(previous, record.seq, record.at, body.clone(), &hasher);
        record.check_chain(previous).expect("it was just chained");
        record.check_values(&hasher).expect("it was just committed to");
        previous = record.hash;
        history.push(record);
    }
    history
}

#[test]
fn an_altered_and_rechained_request_is_named() {
    let mut world = Simulation::new(1, false, Default::default());
    world.run();
    let records = world.records();
    let mut body = records[0].body().expect("it can be read").clone();
    let Body::Created(created) = &mut body else { panic!("a journal begins with created") };
    created.request = json!({"goal": "another"});
    let difference = replay::replay(&rechain(records, 0, &body), None, &PLANS).err().expect("it does not follow");
    assert_eq!(difference.seq, Seq(0), "{difference}");
}
