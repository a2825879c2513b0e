//! Calls of remote seats, leased by external processes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use patchboard_agents::config::{Config, Environment};
use patchboard_agents::lease::{Lease, LeaseHolder, Leases};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::InvocationId;
use patchboard_runtime::agent::{Agent as _, CallResult};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::{call, seat};

const MINUTE: Duration = Duration::from_secs(60);
const NOW: Duration = Duration::ZERO;

/// Returns seats with leases for their remote calls.
fn seats(leases: &Leases) -> Arc<AgentRegistry> {
    let environment = Environment::from_process();
    Arc::new(AgentRegistry::new(Config::default(), &environment, InlinePrograms::Denied).with_leases(leases.clone()))
}

/// Makes the n-th call of the worker `w`, with a timeout of an hour.
fn calling(seats: &Arc<AgentRegistry>, n: u32) -> JoinHandle<CallResult> {
    let (seats, mut call) = (Arc::clone(seats), call("w", seat(json!({"agent": "remote"})), "x", n));
    call.timeout = 60 * MINUTE;
    tokio::spawn(async move { seats.call(&call).await })
}

async fn lease(leases: &Leases, patience: Duration, key: Option<&str>) -> Option<Lease> {
    leases
        .lease(&"b".into(), &"w".into(), MINUTE, patience, LeaseHolder { key: key.map(str::to_owned), api_token: None })
        .await
}

fn invocation(lease: Option<Lease>) -> Option<u64> {
    lease.map(|lease| lease.call.invocation.0)
}

#[tokio::test(start_paused = true)]
async fn calls_are_leased_once_each_and_the_oldest_first() {
    let leases = Leases::default();
    let seats = seats(&leases);
    assert_eq!(invocation(lease(&leases, MINUTE, None).await), None, "nobody calls");
    let _calls: Vec<_> = (0..3).map(|n| calling(&seats, n)).collect();
    assert_eq!(invocation(lease(&leases, MINUTE, Some("k")).await), Some(1));
    assert_eq!(invocation(lease(&leases, NOW, None).await), Some(2));
    assert_eq!(invocation(lease(&leases, NOW, Some("k")).await), Some(1), "who has the key has it already");
    assert_eq!(invocation(lease(&leases, NOW, Some("l")).await), Some(3));
    assert_eq!(invocation(lease(&leases, NOW, None).await), None);
    assert_eq!(leases.open_calls(&"b".into()).iter().filter(|call| call.expires_in.is_some()).count(), 3);
    assert_eq!(leases.open_calls(&"c".into()).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn everybody_who_waits_learns_of_a_call() {
    let leases = Leases::default();
    let seats = seats(&leases);
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let leases = leases.clone();
            tokio::spawn(async move { invocation(lease(&leases, MINUTE, None).await) })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _calls: Vec<_> = (0..7).map(|n| calling(&seats, n)).collect();
    let mut leased = Vec::new();
    for waiting in waiting {
        leased.push(waiting.await.expect("it waits"));
    }
    leased.sort_unstable();
    assert_eq!(leased, [None, Some(1), Some(2), Some(3), Some(4), Some(5), Some(6), Some(7)]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_renewed_ends_the_attempt() {
    let leases = Leases::default();
    let called = calling(&seats(&leases), 0);
    let held = lease(&leases, MINUTE, None).await.expect("somebody calls");
    assert_eq!((held.expires_in, held.time_left), (MINUTE, 60 * MINUTE));
    let renew = |attempt, lasts| leases.renew(&"b".into(), &"w".into(), InvocationId(1), attempt, lasts, None);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(50)).await;
        assert!(renew(2, MINUTE).is_none(), "it is another attempt's");
        assert_eq!(renew(1, MINUTE).map(|lease| lease.expires_in), Some(MINUTE));
    }
    // A lease never outlasts its attempt.
    assert_eq!(renew(1, 100 * MINUTE).map(|lease| lease.expires_in), Some(60 * MINUTE - Duration::from_secs(150)));
    renew(1, MINUTE).expect("it is held");
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(renew(1, MINUTE).is_none());
    let failure = called.await.expect("it is answered").expect_err("nobody answered");
    assert_eq!(failure.code, FailureCode::LeaseExpired);
    assert_eq!(leases.open_calls(&"b".into()).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_ends_with_the_token_of_who_has_leased_or_renewed_it() {
    let leases = Leases::default();
    let seats = seats(&leases);
    let lease = async |token| {
        let taker = LeaseHolder { key: None, api_token: Some(token) };
        leases.lease(&"b".into(), &"w".into(), MINUTE, MINUTE, taker).await.expect("a call waits")
    };
    let ends = async |called: JoinHandle<CallResult>| {
        let failure = called.await.expect("it is answered").expect_err("no answer came");
        assert_eq!(failure.code, FailureCode::LeaseExpired);
    };
    let (first, second) = (calling(&seats, 0), calling(&seats, 1));
    assert_eq!(invocation(Some(lease(7).await)), Some(1));
    assert_eq!(invocation(Some(lease(8).await)), Some(2));
    leases.renew(&"b".into(), &"w".into(), InvocationId(2), 1, MINUTE, Some(9)).expect("it is held");
    assert_eq!(leases.holder_tokens(), BTreeSet::from([7, 9]));
    leases.expire_for_token(8);
    assert_eq!(leases.open_calls(&"b".into()).len(), 2);
    leases.expire_for_token(7);
    ends(first).await;
    assert_eq!(leases.holder_tokens(), BTreeSet::from([9]));
    leases.expire_for_token(9);
    ends(second).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_decided_or_withdrawn_is_no_ones_any_more() {
    let leases = Leases::default();
    let seats = seats(&leases);
    let (decided, withdrawn) = (calling(&seats, 0), calling(&seats, 1));
    assert_eq!(invocation(lease(&leases, MINUTE, None).await), Some(1));
    leases.close(&"b".into(), &"w".into(), InvocationId(1), 2);
    assert_eq!(leases.open_calls(&"b".into()).len(), 2, "another attempt was decided");
    leases.close(&"b".into(), &"w".into(), InvocationId(1), 1);
    drop(decided.await.expect("it ends"));
    withdrawn.abort();
    drop(withdrawn.await);
    assert_eq!(leases.open_calls(&"b".into()).len(), 0);
    assert_eq!(invocation(lease(&leases, MINUTE, None).await), None);
}
