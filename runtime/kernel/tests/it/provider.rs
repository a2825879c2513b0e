//! Calls that wait for their provider, and retries by operators.

use patchboard_kernel::admission::Admission;
use patchboard_kernel::board::{Input, Outcome, Proposal, ProposalSource, ReplyBody, RequestDeferral, Step};
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{InvocationId, Timestamp};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::money::Price;
use patchboard_kernel::record::{Body, Cause, Kind, LimitOverrides, PauseCause, Resource, Retried};
use patchboard_kernel::rejection::Code;
use serde_json::{Value, json};

use crate::played::Played;

const HOUR: u64 = 3_600_000;

pub(crate) fn board(concurrency: u32, limits: Value) -> Played {
    Played::new(json!({
        "concurrency": concurrency,
        "workers": {
            "writer": {"agent": "llm", "reads": ["/list"], "writes": [{"path": "/list/-"}], "limits": {"attempts": 2}},
            "other": {"agent": "llm", "model": "second", "reads": ["/list"], "writes": [{"path": "/list/-"}]},
        },
        "models": {"second": "second"},
        "rules": [
            {"name": "write", "trigger": {"signal": "go"}, "run": "writer"},
            {"name": "help", "trigger": {"signal": "help"}, "run": "other"},
        ],
        "limits": limits,
    }))
}

fn not_taken(reason: DeferralReason, wait_ms: u64) -> RequestDeferral {
    let (patience_ms, message) = (24 * HOUR, "slow down".to_owned());
    RequestDeferral { reason, wait_ms, patience_ms, is_served_elsewhere: false, message }
}

/// Gives an input while the gate admits no call.
fn closed(played: &mut Played, at: i64, input: Input) -> Step {
    played.now = at;
    let step = played.board.step(Timestamp(at), input);
    played.keep(&step);
    step
}

fn defer(played: &mut Played, at: i64, not_taken: RequestDeferral) -> Step {
    let (invocation, attempt, _) = played.calls.remove(0);
    closed(played, at, Input::Defer { invocation, attempt, usage: None, deferral: not_taken })
}

fn admit(played: &mut Played, at: i64, invocation: u64, attempt: u32) -> Step {
    let (invocation, admission) =
        (InvocationId(invocation), Admission { model: Some("elsewhere".to_owned()), price: None, reply_tokens: None });
    closed(played, at, Input::Admit { invocation, attempt, admission })
}

pub(crate) fn fail(played: &mut Played) {
    let (invocation, attempt, _) = played.calls.remove(0);
    let (code, message) = (FailureCode::Protocol, "not JSON".to_owned());
    played.give(Input::AgentFailed { invocation, attempt, code, message, usage: None });
}

pub(crate) fn retry(played: &mut Played, retried: Retried) -> Result<(), Code> {
    match played.give(Input::Retry(retried)).outcome {
        Some(Outcome::RejectedUnrecorded(rejection)) => Err(rejection.code),
        _ => Ok(()),
    }
}

/// Returns the calls that a step reports as waiting for admission.
fn awaiting(step: &Step) -> Vec<(u64, u32)> {
    let named = step.effects.awaiting_admission.iter().flatten();
    named.map(|call| (call.invocation.0, call.attempt)).collect()
}

#[test]
fn a_deferred_attempt_is_not_counted_and_the_next_one_sees_the_state_as_it_is() {
    let mut played = board(4, json!({}));
    played.signal();
    for round in 1..=6 {
        let step = defer(&mut played, round * 1000, not_taken(DeferralReason::RateLimited, 500));
        let attempt = u32::try_from(round).expect("few") + 1;
        assert_eq!(awaiting(&step), [(1, attempt)]);
        assert!(step.records.iter().all(|record| record.kind == Kind::Deferred), "{:?}", step.records);
        let reply = ReplyBody::Json(json!([{"op": "add", "path": "/list/-", "value": round}]));
        let from = ProposalSource::Direct { key: None, base: None };
        let proposal = Proposal { from, worker: "other".into(), reply, usage: None, raw: None };
        closed(&mut played, round * 1000 + 100, Input::Propose(proposal));
        admit(&mut played, round * 1000 + 600, 1, attempt);
        assert!(played.view().contains(&format!("{round}")), "{}", played.view());
    }
    assert_eq!(played.board.ledger().board().committed(), played.board.scheduler().open()[&InvocationId(1)].reserved);
    // Both attempts of the worker are left.
    fail(&mut played);
    assert_eq!(played.board.ended(), None);
    fail(&mut played);
    assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::GaveUp));
    played.holds();
}

#[test]
fn a_board_may_have_less_patience_than_its_model() {
    let mut played = Played::new(json!({
        "blueprint": 2,
        "limits": {"patience": "1h"},
        "workers": {"model": {"agent": "llm", "writes": [{"path": "/list/-"}]}},
        "rules": [{"name": "ask", "trigger": {"signal": "go"}, "run": "model"}],
    }));
    played.signal();
    // A wait of two hours pauses the board after one hour, and not earlier.
    let step = defer(&mut played, 1000, not_taken(DeferralReason::RateLimited, 2 * HOUR));
    let end = Timestamp(1000).plus_ms(HOUR);
    assert!(step.records.iter().all(|record| record.kind == Kind::Deferred), "{:?}", step.records);
    let (_, wait) = played.board.scheduler().provider_waits().next().expect("it waits");
    assert_eq!((wait.not_before, wait.patience), (end, end));
    let step = closed(&mut played, end.0, Input::Tick);
    assert_eq!(step.records.first().map(|record| record.kind), Some(Kind::Tick));
    assert_eq!(played.board.pause_cause(), Some(PauseCause::ProviderUnavailable));
    played.holds();
}

#[test]
fn the_call_of_a_board_inside_needs_admission_once_it_was_deferred() {
    let inner = json!({"of": "inside", "output": {"/list/-": "/found"}});
    let inside = json!({
        "blueprint": 1, "name": "inside", "request": {"type": "object", "additionalProperties": false, "properties": {}},
        "state": {"schema": {"properties": {"found": {}}}}, "workers": {},
    });
    let mut played = Played::new(json!({
        "concurrency": 1,
        "workers": {
            "sub": {"agent": "board", "board": inner, "writes": [{"path": "/list/-"}], "limits": {"attempts": 1}},
            "model": {"agent": "llm"},
        },
        "rules": [
            {"name": "find", "trigger": {"signal": "go"}, "run": "sub"},
            {"name": "ask", "trigger": {"signal": "ask"}, "run": "model"},
        ],
        "boards": {"inside": inside},
    }));
    let signal = || Input::Signal { name: "go".into(), value: Value::Null, key: None };
    let step = closed(&mut played, 1, signal());
    assert_eq!((awaiting(&step), played.calls.len()), (vec![], 1), "the first call is made at once");
    let step = defer(&mut played, 1_000, not_taken(DeferralReason::Overloaded, 500));
    assert_eq!((awaiting(&step), played.calls.len()), (vec![(1, 2)], 0));
    // A waiting call frees its slot, and uses none at a model either.
    let step = closed(&mut played, 1_500, Input::Signal { name: "ask".into(), value: Value::Null, key: None });
    assert_eq!(awaiting(&step), [(1, 2), (2, 1)]);
    // No further nested board starts while as many calls wait as there are slots.
    closed(&mut played, 2_000, signal());
    closed(&mut played, 1_000_000, Input::Tick);
    assert_eq!((played.calls.len(), played.count(Kind::Invoked)), (0, 1), "no time makes the call");
    closed(
        &mut played,
        1_000_000,
        Input::Admit { invocation: InvocationId(1), attempt: 2, admission: Admission::default() },
    );
    assert_eq!(played.calls.remove(0).0, InvocationId(1));
    played.holds();
}

#[test]
fn a_delay_pauses_while_its_exempt_workers_wait_for_their_provider() {
    const MINUTE: i64 = 60_000;
    let late = |name: &str, delay: Value| json!({"name": name, "trigger": {"op": "add", "path": "/list/*"}, "run": name, "delay": delay});
    let seat = json!({"agent": "remote", "reads": ["/list"]});
    let mut played = Played::new(json!({
        "workers": {
            "model": {"agent": "llm", "group": "models", "reads": ["/list"], "limits": {"timeout": "5m"}},
            "adds": {"agent": "remote", "writes": [{"path": "/list/-"}]},
            "patient": seat, "punctual": seat,
        },
        "rules": [
            {"name": "ask", "trigger": {"op": "add", "path": "/list/*"}, "run": "model"},
            late("patient", json!({"for": "10m", "except_waits_of": ["models"]})),
            late("punctual", json!("30m")),
        ],
    }));
    let reply = ReplyBody::Json(json!([{"op": "add", "path": "/list/-", "value": 1}]));
    let from = ProposalSource::Direct { key: None, base: None };
    let proposal = Proposal { from, worker: "adds".into(), reply, usage: None, raw: None };
    closed(&mut played, 0, Input::Propose(proposal.clone()));
    let wake_at = |played: &Played| played.board.wake_at().map(|at| at.0 / MINUTE);
    let calls = |played: &mut Played| {
        played.calls.drain(..).map(|(invocation, attempt, _)| (invocation.0, attempt)).collect::<Vec<_>>()
    };
    // The gate holds the call back for 3 minutes, and the provider rejects it after 2 more.
    assert_eq!(wake_at(&played), Some(30), "the time of one rule stands still");
    admit(&mut played, 3 * MINUTE, 1, 1);
    assert_eq!((wake_at(&played), played.calls.len()), (Some(8), 1), "the call times out before that");
    let step = defer(&mut played, 5 * MINUTE, not_taken(DeferralReason::Overloaded, 1_000));
    assert_eq!((awaiting(&step), wake_at(&played)), (vec![(1, 2)], Some(30)));
    let due = |played: &Played| {
        let delayed = played.board.scheduler().delayed().iter();
        delayed.map(|delayed| delayed.due.0 / MINUTE).collect::<Vec<_>>()
    };
    assert_eq!(due(&played), [15, 30], "ten minutes are left of the one, and the other counts all");
    played.holds();
    closed(&mut played, 29 * MINUTE, Input::Tick);
    assert_eq!(played.count(Kind::Tick), 0);
    closed(&mut played, 30 * MINUTE, Input::Tick);
    assert_eq!(calls(&mut played), [(3, 1)], "punctual");
    closed(&mut played, 31 * MINUTE, Input::Pause { key: None });
    closed(&mut played, 35 * MINUTE, Input::Resume { key: None });
    admit(&mut played, 36 * MINUTE, 1, 2);
    assert_eq!(calls(&mut played), [(1, 2)]);
    assert_eq!(played.board.scheduler().delayed()[0].due.0, 46 * MINUTE);
    closed(
        &mut played,
        40 * MINUTE,
        Input::AgentFailed {
            invocation: InvocationId(1),
            attempt: 2,
            code: FailureCode::NotConfigured,
            message: String::new(),
            usage: None,
        },
    );
    closed(&mut played, 46 * MINUTE, Input::Tick);
    assert!(calls(&mut played).contains(&(2, 1)), "patient");
    // After a deferral, a delay that began during the call has at most its full length left.
    closed(&mut played, 50 * MINUTE, Input::Propose(proposal.clone()));
    let step = admit(&mut played, 50 * MINUTE, 4, 1);
    assert!(awaiting(&step).is_empty() && played.calls.len() == 1);
    closed(&mut played, 53 * MINUTE, Input::Propose(proposal));
    defer(&mut played, 54 * MINUTE, not_taken(DeferralReason::Overloaded, 1_000));
    assert_eq!(due(&played)[..2], [64, 64]);
    played.holds();
}

#[test]
fn a_call_that_waits_takes_no_place_no_time_and_no_reservation() {
    let mut played = board(1, json!({"wall": "60s"}));
    played.signal();
    defer(&mut played, 10, not_taken(DeferralReason::Overloaded, 2 * HOUR));
    assert_eq!(played.board.ledger().board().reserved, 0);
    // Another model's call takes the only slot.
    let help = Input::Signal { name: "help".into(), value: Value::Null, key: None };
    let step = closed(&mut played, 20, help);
    assert_eq!(awaiting(&step), [(1, 2), (2, 1)]);
    admit(&mut played, 30, 2, 1);
    assert_eq!(played.calls.len(), 1);
    played.answer(json!({"patch": [{"op": "add", "path": "/list/-", "value": 1}]}), None);
    // `answer` admits every call: the first is retried after hours that do not count as running time.
    let ran = played.board.running_ms();
    assert!(ran < 100, "{ran}");
    played.holds();
}

#[test]
fn calls_of_one_model_that_wait_are_as_many_as_places_and_hold_up_no_other() {
    let mut played = board(2, json!({}));
    let mut step = Step::default();
    for at in 1..=5 {
        let go = Input::Signal { name: "go".into(), value: Value::Null, key: None };
        step = closed(&mut played, at, go);
    }
    assert_eq!(awaiting(&step), [(1, 1), (2, 1)]);
    let help = Input::Signal { name: "help".into(), value: Value::Null, key: None };
    assert_eq!(awaiting(&closed(&mut played, 6, help)), [(1, 1), (2, 1), (6, 1)]);
    assert!(closed(&mut played, 7, Input::Tick).records.is_empty());
    assert_eq!(played.count(Kind::Invoked), 0);
}

#[test]
fn admissions_of_closed_or_unknown_calls_are_ignored() {
    let mut played = board(1, json!({}));
    let go = Input::Signal { name: "go".into(), value: Value::Null, key: None };
    closed(&mut played, 1, go);
    assert!(admit(&mut played, 2, 1, 2).records.is_empty(), "there is no second attempt yet");
    assert!(admit(&mut played, 2, 7, 1).records.is_empty(), "there is no such invocation");
    assert_eq!(admit(&mut played, 3, 1, 1).records.len(), 1);
    assert!(admit(&mut played, 4, 1, 1).records.is_empty(), "it is under way");
    let Some(Body::Invoked(invoked)) = played.bodies().last() else { panic!("it was invoked") };
    assert_eq!(invoked.admitted.and_then(|admitted| admitted.model).as_deref(), Some("elsewhere"));
    closed(&mut played, 5, Input::Pause { key: None });
    assert!(played.board.awaiting_admission().is_empty());
}

#[test]
fn operator_errors_and_the_wait_limit_pause_the_board() {
    let mut played = board(1, json!({}));
    played.signal();
    let step = defer(&mut played, 10, not_taken(DeferralReason::KeyRefused, 1000));
    assert_eq!(step.records.iter().map(|record| record.kind).collect::<Vec<_>>(), [Kind::Deferred, Kind::Paused]);
    assert_eq!(played.board.pause_cause(), Some(PauseCause::ProviderUnavailable));
    // The call is retried when the operator resumes the board, and the wait limit starts again.
    closed(&mut played, 25 * 3_600_000, Input::Resume { key: None });
    assert_eq!(played.board.pause_cause(), None);
    assert_eq!(played.board.awaiting_admission()[0].wait, None);
    admit(&mut played, 25 * 3_600_000, 1, 2);
    let began = 25 * 3_600_000;
    let patience = played.board.wake_at();
    defer(&mut played, began + 5, not_taken(DeferralReason::Unreachable, 60_000));
    assert_ne!(played.board.wake_at(), patience);
    assert_eq!(played.board.wake_at(), Some(Timestamp(began + 5 + 24 * 3_600_000)));
    closed(&mut played, began + 24 * 3_600_000, Input::Tick);
    assert!(!played.board.is_paused());
    closed(&mut played, began + 5 + 24 * 3_600_000, Input::Tick);
    assert!(played.board.is_paused());
    // No call was ever admitted, as reported by the shell.
    let mut other = board(1, json!({}));
    closed(&mut other, 1, Input::Signal { name: "go".into(), value: Value::Null, key: None });
    closed(&mut other, 2, Input::Unavailable);
    assert_eq!(other.board.pause_cause(), Some(PauseCause::ProviderUnavailable));
    assert!(closed(&mut other, 3, Input::Unavailable).records.is_empty());
    played.holds();
    other.holds();
}

#[test]
fn a_provider_that_answers_within_an_attempt_ends_a_series_of_deferrals() {
    let mut played = board(1, json!({}));
    played.signal();
    defer(&mut played, 1_000, not_taken(DeferralReason::Overloaded, 500));
    admit(&mut played, 2_000, 1, 2);
    let (invocation, attempt) = (InvocationId(1), 2);
    closed(&mut played, 3_000, Input::Continue { invocation, attempt, usage: None, reserve: 100 });
    let step = defer(&mut played, 4_000, not_taken(DeferralReason::Overloaded, 500));
    let patience = step.records.iter().find_map(|record| match record.body().expect("a body") {
        Body::Deferred(deferred) => Some(deferred.patience),
        _ => None,
    });
    assert_eq!(patience, Some(Timestamp(4_000).plus_ms(24 * HOUR)));
    played.holds();
}

pub(crate) fn priced(limits: Value, of_worker: Value) -> Played {
    let writes = json!([{"path": "/list/-"}]);
    let mut played = Played::new(json!({
        "blueprint": 2,
        "workers": {"writer": {"agent": "llm", "reads": ["/list"], "writes": writes, "limits": of_worker}},
        "rules": [{"name": "write", "trigger": {"signal": "go"}, "run": "writer"}],
        "limits": limits,
    }));
    closed(&mut played, 0, Input::Signal { name: "go".into(), value: Value::Null, key: None });
    played
}

pub(crate) fn admit_at_a_price(played: &mut Played, attempt: u32) -> Step {
    let price = Price { input: 2_000_000_000, cached: 1_000_000_000, output: 10_000_000_000, currency: "EUR".into() };
    let admission = Admission { model: Some("default".to_owned()), price: Some(price), reply_tokens: None };
    let at = played.now;
    closed(played, at, Input::Admit { invocation: InvocationId(1), attempt, admission })
}

#[test]
fn money_is_reserved_by_the_price_of_the_call_and_settled_by_what_it_took() {
    let mut played = priced(json!({"money": 0.02}), json!({"reply_tokens": 1000, "attempts": 3}));
    admit_at_a_price(&mut played, 1);
    let held = played.board.scheduler().open()[&InvocationId(1)].reserved - 1000;
    let account = *played.board.ledger().board();
    assert_eq!((account.money, account.money_reserved), (0, held * 2000 + 10_000_000));
    // Reported usage is charged, cached tokens at their own price.
    let (invocation, attempt, _) = played.calls.remove(0);
    let usage = Some(Usage { prompt: 1000, cached: 400, completion: 50, estimated: false, money: 0 });
    let failed = |invocation, attempt, usage| {
        let (code, message) = (FailureCode::Protocol, "not JSON".to_owned());
        Input::AgentFailed { invocation, attempt, code, message, usage }
    };
    closed(&mut played, 10, failed(invocation, attempt, usage));
    let account = *played.board.ledger().board();
    assert_eq!((account.money, account.money_reserved), (600 * 2000 + 400 * 1000 + 50 * 10_000, 0));
    // If the usage is unknown, the whole reservation is charged.
    admit_at_a_price(&mut played, 2);
    let (before, open) =
        (played.board.ledger().board().money, played.board.scheduler().open()[&InvocationId(1)].reserved);
    let (invocation, attempt, _) = played.calls.remove(0);
    closed(&mut played, 20, failed(invocation, attempt, None));
    assert_eq!(played.board.ledger().board().money, before + (open - 1000) * 2000 + 10_000_000);
    played.holds();
    // The budget does not cover the third call.
    let step = admit_at_a_price(&mut played, 3);
    let short = step.records.iter().find_map(|record| match record.body().expect("a body") {
        Body::Budget(budget) => Some(budget),
        _ => None,
    });
    let short = short.expect("a budget does not suffice");
    assert_eq!((short.resource, short.left), (Resource::BoardMoney, 20_000_000 - played.board.ledger().board().money));
    assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::Exhausted));
    played.holds();
    // A higher limit lets the board continue.
    let more = |money| Retried {
        limits: LimitOverrides { money: Some(money), ..LimitOverrides::default() },
        ..Retried::default()
    };
    assert_eq!(retry(&mut played, more(1_000_000_000)), Ok(()));
    assert_eq!(played.board.limits().money, Some(1_000_000_000));
    played.holds();
}

#[test]
fn a_conversation_that_is_taken_up_again_ends_no_series_of_deferrals() {
    let mut played = board(1, json!({}));
    played.signal();
    defer(&mut played, 1_000, not_taken(DeferralReason::Overloaded, 500));
    admit(&mut played, 2_000, 1, 2);
    let (invocation, attempt) = (InvocationId(1), 2);
    let usage = Some(Usage::default());
    closed(&mut played, 2_000, Input::Continue { invocation, attempt, usage, reserve: 100 });
    let step = defer(&mut played, 4_000, not_taken(DeferralReason::Overloaded, 500));
    let deferred = step.records.iter().find_map(|record| match record.body().expect("a body") {
        Body::Deferred(deferred) => Some((deferred.patience, deferred.model.clone())),
        _ => None,
    });
    assert_eq!(deferred, Some((Timestamp(1_000).plus_ms(24 * HOUR), Some("elsewhere".to_owned()))));
    played.holds();
}

#[test]
fn a_reply_has_no_larger_room_than_the_budget_allows() {
    let mut played = Played::new(json!({
        "workers": {"writer": {"agent": "llm", "writes": [{"path": "/list/-"}], "limits": {"reply_tokens": 300}}},
        "rules": [{"name": "write", "trigger": {"signal": "go"}, "run": "writer"}],
        "limits": {"tokens": 2_000},
    }));
    closed(&mut played, 0, Input::Signal { name: "go".into(), value: Value::Null, key: None });
    for (room, attempt, expected) in [(Some(400), 1, Some(400)), (Some(9_000), 2, None)] {
        let admission = Admission { reply_tokens: room, ..Admission::default() };
        let step = closed(&mut played, 10, Input::Admit { invocation: InvocationId(1), attempt, admission });
        let admitted = step.effects.calls.iter().find_map(|call| call.admitted.clone());
        assert_eq!(admitted.map(|admission| admission.reply_tokens), Some(expected), "{room:?}");
        let usage = Some(Usage { prompt: 10, completion: 10, ..Usage::default() });
        let (invocation, attempt, _) = played.calls.remove(0);
        let (code, message) = (FailureCode::Truncated, "cut off".to_owned());
        closed(&mut played, 20, Input::AgentFailed { invocation, attempt, code, message, usage });
    }
    assert_eq!(played.count(Kind::Budget), 0);
    played.holds();
}

#[test]
fn a_worker_may_have_money_of_its_own() {
    let mut played = priced(json!({}), json!({"money": 0.000_001}));
    let step = admit_at_a_price(&mut played, 1);
    let resources = step.records.iter().filter_map(|record| match record.body().expect("a body") {
        Body::Budget(budget) => Some(budget.resource),
        _ => None,
    });
    assert_eq!(resources.collect::<Vec<_>>(), [Resource::WorkerMoney]);
    played.holds();
}
