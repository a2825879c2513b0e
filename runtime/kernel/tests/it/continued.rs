//! Later calls of an attempt: the cost of each is settled before the next, and no call exceeds a budget.

use crate::played::Played;
use patchboard_kernel::board::{Board, Input, Outcome};
use patchboard_kernel::breaker::{BreakerTransition, Reason};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{InvocationId, Timestamp};
use patchboard_kernel::ledger::{Account, Usage};
use patchboard_kernel::record::{Body, Cause, Failed, Kind, Resource};
use patchboard_kernel::rejection::Code;
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

/// Returns a board with two engineers that may be called at once, with these additional blueprint members.
fn shop(members: Value) -> Played {
    let engineer = json!({"agent": "llm", "limits": {"timeout": "10s", "attempts": 3, "reply_tokens": 100},
        "reads": ["/list"], "writes": [{"path": "/list/-"}]});
    let mut blueprint = json!({
        "workers": {"ada": engineer, "bob": engineer},
        "rules": [
            {"name": "a", "trigger": {"signal": "go"}, "run": "ada"},
            {"name": "b", "trigger": {"signal": "both"}, "run": "bob"},
        ],
    });
    blueprint.as_object_mut().expect("an object").extend(members.as_object().expect("members").clone());
    let mut played = Played::new(blueprint);
    played.signal();
    assert_eq!(played.calls.len(), 1);
    played
}

/// Continues the oldest open call.
fn go_on(played: &mut Played, usage: Option<Usage>, reserve: u64) -> Outcome {
    let (invocation, attempt, _) = played.calls[0].clone();
    played.give(Input::Continue { invocation, attempt, usage, reserve }).outcome.expect("an outcome")
}

fn spent(prompt: u64, completion: u64) -> Option<Usage> {
    Some(Usage { prompt, completion, ..Usage::default() })
}

fn account(played: &Played) -> Account {
    *played.board.ledger().board()
}

fn refused(outcome: &Outcome) -> Code {
    match outcome {
        Outcome::RejectedUnrecorded(rejection) => rejection.code,
        other => panic!("it was {other:?}"),
    }
}

fn failed(played: &Played) -> Failed {
    let failed = played.bodies().filter_map(|body| match body {
        Body::Failed(failed) => Some(failed),
        _ => None,
    });
    failed.last().expect("a failure")
}

fn done() -> Value {
    json!([{"op": "add", "path": "/list/-", "value": "done"}])
}

#[test]
fn each_call_is_settled_by_what_it_cost_and_the_attempt_stays_open() {
    let mut played = shop(json!({}));
    let first = account(&played).reserved;
    assert!(first > 100, "the prompt and the longest reply: {first}");
    let deadline = played.board.scheduler().deadline();
    played.now += 1000;
    assert!(matches!(go_on(&mut played, spent(40, 5), 700), Outcome::Continued { .. }));
    let now = account(&played);
    assert_eq!((now.calls, now.spent, now.reserved, now.running_ms), (2, 45, 700, 1001));
    assert_eq!((now.prompt, now.completion), (40, 5));
    // If the usage is unknown, the whole reservation is charged.
    played.now += 500;
    assert!(matches!(go_on(&mut played, None, 900), Outcome::Continued { .. }));
    let now = account(&played);
    assert_eq!((now.calls, now.spent, now.reserved, now.running_ms), (3, 745, 900, 1502));
    assert_eq!(played.board.scheduler().deadline(), deadline, "the attempt has the time it had");
    assert!(matches!(played.answer(done(), spent(60, 6)), Outcome::Committed { .. }));
    let now = account(&played);
    assert_eq!((now.calls, now.spent, now.reserved), (3, 811, 0));
    let branches: Vec<_> = played.board.ledger().branches().values().map(|account| **account).collect();
    assert_eq!(branches, [now], "of the branch it is the same");
    assert_eq!((played.count(Kind::Invoked), played.count(Kind::Continued)), (1, 2));
    played.holds();
}

#[test]
fn an_attempt_that_is_over_goes_on_with_nothing() {
    let mut played = shop(json!({}));
    let (invocation, attempt, _) = played.calls[0].clone();
    played.answer(done(), spent(1, 1));
    let (records, before) = (played.records.len(), account(&played));
    for (invocation, attempt) in [(invocation, attempt), (invocation, 2), (InvocationId(9), 1)] {
        let step = played.give(Input::Continue { invocation, attempt, usage: spent(5, 5), reserve: 1 });
        assert_eq!(refused(&step.outcome.expect("an outcome")), Code::InvocationClosed);
    }
    assert_eq!((played.records.len(), account(&played)), (records, before));
    played.holds();
}

#[test]
fn an_attempt_ends_for_lack_of_budget_and_the_branch_with_it() {
    let mut played = shop(json!({"limits": {"tokens": 3000}}));
    assert!(matches!(go_on(&mut played, spent(900, 100), 2000), Outcome::Continued { .. }));
    // The call's own reservation does not count against it; its spent tokens do.
    assert_eq!(refused(&go_on(&mut played, spent(1200, 300), 501)), Code::BudgetExhausted);
    let now = account(&played);
    assert_eq!((now.calls, now.spent, now.reserved), (2, 2500, 0));
    let failed = failed(&played);
    assert_eq!((failed.code, failed.is_final, failed.needed), (FailureCode::BudgetExhausted, true, Some(501)));
    assert_eq!(failed.by.usage, spent(1200, 300));
    let short: Vec<_> = played.bodies().skip_while(|body| body.kind() != Kind::Failed).skip(1).collect();
    let [Body::Budget(budget), Body::Breaker(moved), Body::Ended(ended)] = &short[..] else { panic!("{short:?}") };
    assert_eq!((budget.resource, budget.needed, budget.left), (Resource::BoardTokens, 501, 500));
    assert_eq!(
        (moved.reason, moved.change, ended.cause),
        (Reason::Budget, BreakerTransition::Opened, Cause::Exhausted)
    );
    // A later report of the agent is ignored.
    let (invocation, attempt, _) = played.calls[0].clone();
    let (code, message) = (FailureCode::BudgetExhausted, "told".to_owned());
    let step = played.give(Input::AgentFailed { invocation, attempt, code, message, usage: spent(1200, 300) });
    assert!(step.records.is_empty() && account(&played) == now);
    played.holds();
}

#[test]
fn the_budgets_of_the_worker_and_of_the_rule_count_too() {
    let worker =
        json!({"agent": "llm", "limits": {"tokens": 2000, "reply_tokens": 100}, "writes": [{"path": "/list/-"}]});
    let rule = |limit: Option<u64>| json!([{"name": "a", "trigger": {"signal": "go"}, "run": "ada", "limits": {"tokens": limit}}]);
    for (limit, resource) in [(None, Resource::WorkerTokens), (Some(1999), Resource::BranchTokens)] {
        let mut played = shop(json!({"workers": {"ada": worker}, "rules": rule(limit)}));
        assert_eq!(refused(&go_on(&mut played, spent(1, 0), 2000)), Code::BudgetExhausted);
        let short = played.bodies().find_map(|body| if let Body::Budget(budget) = body { Some(budget) } else { None });
        assert_eq!(short.expect("a shortfall").resource, resource);
        played.holds();
    }
}

#[test]
fn tokens_reserved_by_others_end_an_attempt_without_stopping_its_branch() {
    let mut played = shop(json!({"limits": {"tokens": 3000}}));
    played.give(Input::Signal { name: "both".into(), value: Value::Null, key: None });
    assert_eq!(played.calls.len(), 2);
    let others = account(&played).reserved / 2;
    let needed = 3000 - others + 1;
    assert_eq!(refused(&go_on(&mut played, spent(0, 0), needed)), Code::BudgetExhausted);
    assert_eq!((played.count(Kind::Budget), played.count(Kind::Breaker)), (0, 0), "it may yet suffice");
    assert!(failed(&played).is_final);
    played.calls.remove(0);
    assert!(matches!(go_on(&mut played, spent(0, 0), 3000), Outcome::Continued { .. }));
    played.holds();
}

#[test]
fn tokens_released_within_an_attempt_start_waiting_calls() {
    let mut played = shop(json!({"limits": {"tokens": 2500}, "concurrency": 2}));
    assert!(matches!(go_on(&mut played, spent(0, 0), 2400), Outcome::Continued { .. }));
    played.give(Input::Signal { name: "both".into(), value: Value::Null, key: None });
    assert_eq!(played.calls.len(), 1, "the other one waits for what is held");
    assert!(matches!(go_on(&mut played, spent(10, 10), 300), Outcome::Continued { .. }));
    assert_eq!(played.calls.len(), 2);
    played.holds();
}

#[test]
fn time_is_over_for_all_calls_of_an_attempt_together() {
    let mut played = shop(json!({}));
    played.now += 9_000;
    assert!(matches!(go_on(&mut played, spent(1, 1), 500), Outcome::Continued { .. }));
    played.now += 1_000;
    played.give(Input::Tick);
    assert_eq!(failed(&played).code, FailureCode::Timeout);
    let now = account(&played);
    assert_eq!(now.spent, 502, "the call under way is charged what was set aside for it, those before what they cost");
    assert_eq!(played.calls.last().map(|call| call.1), Some(2), "another attempt is made");
    played.holds();
}

#[test]
fn a_lost_attempt_loses_its_last_call_only() {
    let mut played = shop(json!({}));
    go_on(&mut played, spent(30, 3), 500);
    let mut recovered = Board::recover(&played.records, &PLANS).expect("the journal is enough");
    let step = recovered.step(Timestamp(9), Input::take_over(1, "next".into()));
    played.keep(&step);
    played.board = recovered;
    assert_eq!((failed(&played).code, account(&played).spent), (FailureCode::Lost, 533));
    played.holds();
}

#[test]
fn no_number_is_too_large_to_be_recorded() {
    let mut played = shop(json!({"limits": {"tokens": 9_007_199_254_740_991_u64}}));
    assert_eq!(refused(&go_on(&mut played, spent(u64::MAX, u64::MAX), u64::MAX)), Code::BudgetExhausted);
    assert_eq!(failed(&played).needed, Some(9_007_199_254_740_991));
    played.holds();
}
