//! Retries by operators: invocations that were given up, and limits that were reached.

use patchboard_kernel::board::{Input, Outcome};
use patchboard_kernel::breaker::BreakerState;
use patchboard_kernel::id::InvocationId;
use patchboard_kernel::record::{Body, Cause, End, Kind, LimitOverrides, Resource, Retried, WorkerLimitOverrides};
use patchboard_kernel::rejection::Code;
use serde_json::{Value, json};

use crate::played::Played;
use crate::played::files::{by, create};
use crate::provider::{admit_at_a_price, board, fail, priced, retry};

fn raised_of(worker: &str, tokens: u64) -> Retried {
    let worker_limits = WorkerLimitOverrides { tokens: Some(tokens), money: None };
    Retried { worker: Some(worker.into()), worker_limits, ..Retried::default() }
}

fn cause(played: &Played) -> Option<Cause> {
    played.board.ended().map(|ended| ended.cause)
}

/// Returns the workers of the open calls.
fn called(played: &Played) -> Vec<&str> {
    played.calls.iter().map(|call| call.2.as_str()).collect()
}

fn add() -> Value {
    json!([{"op": "add", "path": "/list/-", "value": 1}])
}

fn judged(played: &Played, retried: &Retried) -> (Code, String) {
    let refused = played.board.judge_retry(retried).expect_err("it is refused");
    (refused.code, refused.violations[0].message.clone())
}

#[test]
fn invocations_given_up_are_retried_with_their_trigger() {
    let mut played = board(2, json!({}));
    played.signal();
    played.signal();
    for _ in 0..4 {
        fail(&mut played);
    }
    assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::GaveUp));
    assert_eq!(played.board.given_up().len(), 2);
    let wrong = Retried { worker: Some("other".into()), ..Retried::default() };
    assert_eq!(retry(&mut played, wrong), Err(Code::NothingGivenUp));
    let one = Retried { invocation: Some(InvocationId(2)), token: Some("t".into()), ..Retried::default() };
    assert_eq!(retry(&mut played, one.clone()), Ok(()));
    assert_eq!((played.board.ended(), played.calls.len()), (None, 1));
    assert!(matches!(played.give(Input::Retry(one)).outcome, Some(Outcome::Duplicate(_))));
    let Some(Body::Scheduled(scheduled)) = played.bodies().filter(|body| body.kind() == Kind::Scheduled).last() else {
        panic!("it was scheduled")
    };
    assert_eq!((scheduled.retries, scheduled.invocation), (Some(InvocationId(2)), InvocationId(3)));
    played.answer(json!({"patch": [{"op": "add", "path": "/list/-", "value": 1}]}), None);
    assert_eq!(played.board.given_up().len(), 1, "the other one is still there");
    assert_eq!(retry(&mut played, Retried::default()), Ok(()));
    assert_eq!(played.board.given_up().len(), 0);
    played.holds();
}

#[test]
fn limits_are_raised_and_honoured_and_branches_get_one_try() {
    let mut played = board(1, json!({"commits": 1}));
    played.signal();
    played.signal();
    played.answer(json!({"patch": [{"op": "add", "path": "/list/-", "value": 1}]}), None);
    assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::Commits));
    assert_eq!(retry(&mut played, Retried::default()), Err(Code::LimitReached));
    let raised = |commits| Retried {
        limits: LimitOverrides { commits: Some(commits), ..LimitOverrides::default() },
        ..Retried::default()
    };
    assert_eq!(retry(&mut played, raised(1)), Err(Code::LimitReached));
    let keyed = Retried { token: Some("t".into()), ..raised(3) };
    assert_eq!(played.board.judge_retry(&raised(1)).map_err(|refused| refused.code), Err(Code::BadLimit));
    assert_eq!(played.board.judge_retry(&keyed), Ok(()));
    assert_eq!(retry(&mut played, keyed.clone()), Ok(()));
    assert_eq!(played.board.limits().commits, 3);
    assert_eq!(played.board.judge_retry(&keyed), Ok(()), "a repetition is answered like the first");
    assert_eq!(played.board.judge_retry(&raised(3)).map_err(|refused| refused.code), Err(Code::BadLimit));
    played.answer(json!({"patch": [{"op": "add", "path": "/list/-", "value": 2}]}), None);
    assert_eq!(played.board.version().0, 2);
    played.holds();

    // A stopped branch is half open afterwards.
    let mut played = board(1, json!({}));
    for _ in 0..2 {
        played.signal();
        played.answer(json!({"patch": []}), None);
    }
    played.signal();
    let stopped = played.board.breaker().states().any(|(_, position)| matches!(position, BreakerState::Open { .. }));
    assert!(stopped, "two proposals that change nothing stop a branch");
    assert_eq!(played.board.ended().map(|ended| ended.end), Some(End::Stopped));
    let more = Retried {
        limits: LimitOverrides { tokens: Some(10_000_000), ..LimitOverrides::default() },
        ..Retried::default()
    };
    assert_eq!(retry(&mut played, more), Ok(()));
    assert_eq!(played.calls.len(), 1, "what waited for the breaker has its try");
    played.holds();

    // A probe that ended with its board is made again.
    played.give(Input::Meltdown);
    played.calls.clear();
    assert_eq!(retry(&mut played, Retried::default()), Ok(()));
    assert_eq!(played.calls.len(), 1, "the branch has another try");
    played.holds();
}

#[test]
fn a_board_that_is_done_or_cancelled_takes_nothing_up() {
    let mut played = board(1, json!({}));
    played.signal();
    played.give(Input::Cancel);
    assert_eq!(retry(&mut played, Retried::default()), Err(Code::BoardNotRunning));
    played.holds();
}

#[test]
fn a_board_that_a_breaker_stops_keeps_what_its_last_commit_wakes() {
    let writes = json!([{"path": "/on", "ops": ["replace"]}]);
    let mut played = Played::new(json!({
        "state": {"schema": {}, "initial": {"on": 0}},
        "workers": {
            "switch": {"agent": "llm", "reads": ["/on"], "writes": writes},
            "other": {"agent": "llm", "reads": ["/on"], "writes": writes},
            "keeper": {"agent": "llm", "reads": ["/on"]},
        },
        "rules": [
            {"name": "begin", "trigger": "start", "run": "switch"},
            {"name": "lit", "trigger": {"op": "replace", "path": "/on"}, "when": "value == 1", "run": "other"},
            {"name": "dark", "trigger": {"op": "replace", "path": "/on"}, "when": "value == 0", "run": "switch"},
            {"name": "calm", "trigger": {"idle": ["begin", "lit", "dark"]}, "run": "keeper"},
        ],
        "circuit": {"cycles": {"window": 4, "repeats": 1, "then": "stop_board"}},
    }));
    let set = |value: u32| json!([{"op": "replace", "path": "/on", "value": value}]);
    let mut value = 1;
    while cause(&played).is_none() {
        played.answer(set(value), None);
        value = 1 - value;
    }
    assert_eq!(cause(&played), Some(Cause::Cycles));
    let given_up: Vec<_> = played.board.given_up().iter().map(|queued| queued.branch.worker.to_string()).collect();
    assert_eq!(given_up, ["switch"], "the commit that stopped the board woke it");
    played.holds();
    played.calls.clear();
    assert_eq!(retry(&mut played, Retried::default()), Ok(()));
    assert_eq!((cause(&played), called(&played)), (None, vec!["switch"]));
    // A rule that waits until no call is open is kept as well.
    played.answer(set(5), None);
    assert_eq!(called(&played), ["keeper"]);
    played.holds();
}

#[test]
fn a_rule_that_waits_for_rest_is_given_up_with_the_board_that_a_limit_stops() {
    let writes = json!([{"path": "/list/-"}]);
    let mut played = Played::new(json!({
        "workers": {"one": {"agent": "llm", "writes": writes}, "two": {"agent": "llm", "writes": writes}},
        "rules": [
            {"name": "begin", "trigger": "start", "run": "one"},
            {"name": "then", "trigger": {"idle": ["begin"]}, "run": "two"},
        ],
        "limits": {"commits": 1},
    }));
    played.answer(add(), None);
    assert_eq!((cause(&played), played.board.given_up().len()), (Some(Cause::Commits), 1));
    let more =
        Retried { limits: LimitOverrides { commits: Some(2), ..LimitOverrides::default() }, ..Retried::default() };
    assert_eq!(retry(&mut played, more), Ok(()));
    assert_eq!(called(&played), ["two"]);
    played.holds();
}

#[test]
fn invocations_beyond_a_worker_limit_are_given_up() {
    let mut played = Played::new(json!({
        "workers": {
            "writer": {"agent": "llm", "writes": [{"path": "/list/-"}], "limits": {"invocations": 1}},
            "helper": {"agent": "llm", "writes": [{"path": "/list/-"}]},
        },
        "rules": [{"name": "write", "trigger": {"signal": "go"}, "run": "writer"}],
        "circuit": {"budget": {"then": {"wake": "helper"}}},
    }));
    played.signal();
    played.signal();
    assert_eq!(called(&played), ["writer", "helper"]);
    played.signal();
    assert_eq!(called(&played), ["writer", "helper"], "a breaker wakes once for a worker without invocations");
    assert_eq!(played.board.given_up().len(), 2);
    let short = |body: Body| match body {
        Body::Budget(budget) => Some((budget.resource, budget.invocation)),
        _ => None,
    };
    let short: Vec<_> = played.bodies().filter_map(short).collect();
    let each = |invocation| (Resource::Invocations, Some(InvocationId(invocation)));
    assert_eq!(short, [each(2), each(4)]);
    played.answer(add(), None);
    played.answer(add(), None);
    assert_eq!(cause(&played), Some(Cause::Exhausted));
    played.holds();
    // A retry beyond a limit requires the name of the worker.
    assert_eq!(retry(&mut played, Retried::default()), Ok(()), "a branch is stopped");
    assert_eq!(called(&played), Vec::<&str>::new());
    assert_eq!(retry(&mut played, Retried::default()), Err(Code::NothingGivenUp));
    let named = Retried { worker: Some("writer".into()), ..Retried::default() };
    assert_eq!(retry(&mut played, named), Ok(()));
    assert_eq!(called(&played), ["writer"], "one is the try of the branch");
    played.answer(add(), None);
    assert_eq!(called(&played), ["writer"]);
    played.answer(add(), None);
    assert_eq!(cause(&played), Some(Cause::NothingToDo));
    played.holds();
}

/// Returns a board with a worker that has used 900 tokens through a rule and is given up for lack of budget.
fn spent(of_worker: Value, of_rule: Value) -> Played {
    let mut played = Played::new(json!({
        "workers": {
            "writer": {"agent": "llm", "writes": [{"path": "/list/-"}], "limits": of_worker},
            "other": {"agent": "llm"},
        },
        "rules": [{"name": "write", "trigger": {"signal": "go"}, "run": "writer", "limits": of_rule}],
    }));
    played.signal();
    let usage = patchboard_kernel::ledger::Usage { prompt: 890, completion: 10, ..Default::default() };
    played.answer(add(), Some(usage));
    played.signal();
    assert_eq!((cause(&played), played.board.given_up().len()), (Some(Cause::Exhausted), 1));
    played
}

#[test]
fn tokens_of_a_worker_and_of_its_rules_are_raised() {
    let worker = json!({"reply_tokens": 300, "tokens": 1000});
    for (of_worker, of_rule) in [
        (worker.clone(), json!({})),
        (json!({"reply_tokens": 300}), json!({"tokens": 1000})),
        (worker, json!({"tokens": 1100})),
    ] {
        let mut played = spent(of_worker, of_rule);
        let before = played.records.len();
        assert_eq!(retry(&mut played, Retried::default()), Err(Code::LimitReached), "it would be given up again");
        let more = Retried {
            limits: LimitOverrides { tokens: Some(9_000_000), ..LimitOverrides::default() },
            ..Retried::default()
        };
        assert_eq!(retry(&mut played, more), Err(Code::LimitReached), "the board's tokens are not what it lacks");
        assert_eq!(retry(&mut played, raised_of("writer", 1_150)), Err(Code::LimitReached), "not enough");
        assert_eq!(played.records.len(), before);
        assert_eq!(judged(&played, &raised_of("writer", 1000)).0, Code::BadLimit);
        assert_eq!(played.board.judge_retry(&raised_of("writer", 5_000)), Ok(()));
        let keyed = Retried { token: Some("t".into()), ..raised_of("writer", 5_000) };
        assert_eq!(retry(&mut played, keyed), Ok(()));
        assert_eq!((cause(&played), called(&played)), (None, vec!["writer"]));
        let other = Retried { token: Some("t".into()), ..raised_of("writer", 6_000) };
        assert_eq!(retry(&mut played, other), Err(Code::TokenConflict), "another limit is another request");
        played.holds();
        // The raised limit replaces the worker's limit, also in a snapshot.
        let restored = crate::snapshot::restored(&played.board, &played.records);
        for board in [&played.board, &restored] {
            let limits = board.worker_call_limits(&"writer".into());
            assert!(limits.worker_tokens.is_none_or(|tokens| tokens == 5_000), "{limits:?}");
            assert_eq!(board.worker_call_limits(&"other".into()).worker_tokens, None);
        }
    }
}

#[test]
fn a_limit_of_a_worker_that_it_has_not_cannot_be_raised() {
    let mut played = spent(json!({"reply_tokens": 300, "tokens": 1000}), json!({}));
    let (code, message) = judged(&played, &Retried { worker: None, ..raised_of("writer", 5_000) });
    assert_eq!((code, message.as_str()), (Code::BadLimit, "a limit of a worker is raised with the worker's name"));
    let money = WorkerLimitOverrides { tokens: None, money: Some(5) };
    let (code, message) = judged(&played, &Retried { worker_limits: money, ..raised_of("writer", 5_000) });
    assert_eq!(code, Code::BadLimit);
    assert!(message.contains("no `limits.money` of worker writer"), "{message}");
    let edits =
        Retried { limits: LimitOverrides { edits: Some(5), ..LimitOverrides::default() }, ..Retried::default() };
    assert!(judged(&played, &edits).1.contains("no workspace"), "{:?}", judged(&played, &edits));
    // The invocation identifies its worker.
    let invocation = Some(played.board.given_up()[0].invocation);
    let named = Retried { worker: None, invocation, ..raised_of("writer", 5_000) };
    assert_eq!(played.board.judge_retry(&named), Ok(()));
    assert_eq!(retry(&mut played, named), Ok(()));
    assert_eq!(called(&played), ["writer"]);
}

#[test]
fn money_of_a_worker_is_raised() {
    let mut played = priced(json!({}), json!({"money": 0.000_001}));
    admit_at_a_price(&mut played, 1);
    assert_eq!(cause(&played), Some(Cause::Exhausted));
    let raised = |money| {
        let worker_limits = WorkerLimitOverrides { tokens: None, money: Some(money) };
        Retried { worker: Some("writer".into()), worker_limits, ..Retried::default() }
    };
    assert_eq!(judged(&played, &raised(1000)).0, Code::BadLimit);
    assert_eq!(retry(&mut played, raised(1_000_000_000)), Ok(()));
    assert_eq!(called(&played), ["writer"]);
    assert_eq!(played.board.worker_call_limits(&"writer".into()).worker_money, Some(1_000_000_000));
    played.holds();
}

#[test]
fn edits_are_raised() {
    let engineer = json!({"agent": "llm", "files": {"edit": ["**"]}, "writes": [{"path": "/list/-"}]});
    let mut played = Played::new(json!({
        "workspace": {"dir": "code"}, "limits": {"edits": 1}, "workers": {"ada": engineer},
        "rules": [{"name": "a", "trigger": "start", "run": "ada"}],
    }));
    let edit = |played: &mut Played, name: &str| {
        let edit = by(played, "ada", &[], vec![create(name, "1\n")]);
        played.give(Input::Edit(edit)).outcome
    };
    assert!(matches!(edit(&mut played, "a.py"), Some(Outcome::Committed { .. })));
    assert_eq!((cause(&played), played.board.given_up().len()), (Some(Cause::Edits), 1));
    played.calls.clear();
    assert_eq!(retry(&mut played, Retried::default()), Err(Code::LimitReached));
    let edits = |edits| Retried {
        limits: LimitOverrides { edits: Some(edits), ..LimitOverrides::default() },
        ..Retried::default()
    };
    assert_eq!(judged(&played, &edits(1)).0, Code::BadLimit);
    assert_eq!(retry(&mut played, edits(3)), Ok(()));
    assert_eq!((cause(&played), called(&played)), (None, vec!["ada"]));
    assert!(matches!(edit(&mut played, "b.py"), Some(Outcome::Committed { .. })));
    assert_eq!((cause(&played), played.board.limits().edits), (None, 3));
    assert!(matches!(edit(&mut played, "c.py"), Some(Outcome::Committed { .. })));
    assert_eq!(cause(&played), Some(Cause::Edits));
    played.holds();
}

#[test]
fn a_stopped_branch_alone_can_be_retried() {
    let mut played = Played::new(json!({
        "state": {"schema": {}, "initial": {"on": 0}},
        "workers": {
            "writer": {"agent": "llm", "reads": ["/on"], "writes": [{"path": "/on", "ops": ["replace"]}]},
            "other": {"agent": "llm"},
        },
        "rules": [{"name": "write", "trigger": {"signal": "go"}, "run": "writer"}],
        "circuit": {"cycles": {"window": 4, "repeats": 1, "then": "stop_branch"}},
    }));
    for value in [1, 0, 1] {
        played.signal();
        played.answer(json!([{"op": "replace", "path": "/on", "value": value}]), None);
    }
    played.signal();
    assert_eq!((cause(&played), called(&played)), (Some(Cause::Breaker), Vec::new()));
    assert_eq!(played.board.given_up().len(), 0);
    let wrong = Retried { worker: Some("other".into()), ..Retried::default() };
    assert_eq!(retry(&mut played, wrong.clone()), Err(Code::NothingGivenUp));
    assert_eq!(judged(&played, &wrong).0, Code::NothingGivenUp);
    let stopped = Retried { worker: Some("writer".into()), ..Retried::default() };
    assert_eq!(played.board.judge_retry(&stopped), Ok(()));
    assert_eq!(retry(&mut played, stopped), Ok(()));
    assert_eq!(called(&played), ["writer"]);
    played.holds();
}

#[test]
fn invocations_beyond_the_limit_take_nothing_of_it() {
    let mut played = Played::new(json!({
        "workers": {"writer": {"agent": "llm", "writes": [{"path": "/list/-"}], "limits": {"invocations": 2}}},
        "rules": [
            {"name": "later", "trigger": {"signal": "go"}, "when": "size(state.list) > 0", "delay": "1s", "run": "writer"},
            {"name": "now", "trigger": {"signal": "now"}, "run": "writer"},
        ],
    }));
    played.direct("writer", r#"[{"op": "add", "path": "/list/-", "value": 1}]"#);
    for _ in 0..6 {
        played.signal();
    }
    assert_eq!((played.count(Kind::Budget), played.board.given_up().len()), (4, 4));
    // The two invocations within the limit are skipped by their condition, and free the limit for others.
    let amended = Input::Amend { path: "/list".into(), value: json!([]) };
    played.give(amended);
    played.now += 2_000;
    played.give(Input::Tick);
    assert_eq!(played.count(Kind::Skipped), 2);
    for _ in 0..3 {
        played.give(Input::Signal { name: "now".into(), value: Value::Null, key: None });
    }
    assert_eq!((called(&played), played.count(Kind::Budget)), (vec!["writer", "writer"], 5));
    played.holds();
    // A large external value is not kept.
    let value = json!("x".repeat(20_000));
    played.give(Input::Signal { name: "now".into(), value, key: None });
    assert_eq!(played.board.given_up().len(), 5);
    played.holds();
}

#[test]
fn replies_that_changed_nothing_until_their_breaker_opened_are_asked_for_again() {
    for (reply, then) in [
        (json!([]), "stop_board"),
        (json!([]), "stop_branch"),
        (json!({"pass": "nothing to do"}), "stop_board"),
        (json!({"pass": "nothing to do"}), "stop_branch"),
    ] {
        let mut played = Played::new(json!({
            "blueprint": 2,
            "workers": {"writer": {"agent": "llm", "pass": true, "writes": [{"path": "/list/-"}]}},
            "rules": [{"name": "write", "trigger": {"signal": "go"}, "run": "writer"}],
            "circuit": {"no_ops": {"limit": 2, "then": then}, "passes": {"limit": 2, "then": then}},
        }));
        let nothing = |played: &mut Played| {
            played.signal();
            played.answer(reply.clone(), None);
        };
        nothing(&mut played);
        played.signal();
        played.answer(add(), None);
        assert_eq!(played.board.given_up().len(), 0, "a commit ends a streak");
        nothing(&mut played);
        nothing(&mut played);
        assert_eq!(played.board.ended().map(|ended| ended.end), Some(End::Stopped), "{reply} {then}");
        assert_eq!(played.board.given_up().len(), 2, "{reply} {then}");
        let restored = crate::snapshot::restored(&played.board, &played.records);
        assert_eq!(restored.given_up(), played.board.given_up());
        played.holds();
        // The probe of the branch fails, and is requested again as well.
        assert_eq!(retry(&mut played, Retried::default()), Ok(()));
        played.answer(reply.clone(), None);
        assert_eq!(retry(&mut played, Retried::default()), Ok(()), "{reply} {then}");
        for _ in 0..2 {
            played.answer(add(), None);
        }
        assert_eq!((played.board.version().0, cause(&played)), (3, Some(Cause::NothingToDo)), "{reply} {then}");
        played.holds();
    }
}

#[test]
fn retrying_one_worker_keeps_the_given_up_invocations_of_others() {
    let writer = json!({"agent": "llm", "writes": [{"path": "/list/-"}], "limits": {"attempts": 1}});
    let mut played = Played::new(json!({
        "workers": {"ada": writer, "bob": writer},
        "rules": [
            {"name": "a", "trigger": "start", "run": "ada"},
            {"name": "b", "trigger": "start", "run": "bob"},
        ],
    }));
    fail(&mut played);
    fail(&mut played);
    assert_eq!(cause(&played), Some(Cause::GaveUp));
    assert_eq!(retry(&mut played, Retried { worker: Some("ada".into()), ..Retried::default() }), Ok(()));
    played.answer(add(), None);
    assert_eq!(cause(&played), Some(Cause::GaveUp), "bob's is still to be done");
    assert_eq!(retry(&mut played, Retried::default()), Ok(()));
    played.answer(add(), None);
    assert_eq!(cause(&played), Some(Cause::NothingToDo));
    played.holds();
}

#[test]
fn only_the_streak_that_opened_a_breaker_is_given_up_and_until_the_branch_works_again() {
    let mut played = Played::new(json!({
        "workers": {"writer": {"agent": "llm", "pass": true, "writes": [{"path": "/list/-"}]}},
        "rules": [{"name": "write", "trigger": {"signal": "go"}, "run": "writer"}],
        "circuit": {"no_ops": {"limit": 2, "then": "stop_branch"}, "cooldown": 2},
    }));
    for reply in [json!({"pass": "no"}), json!({"pass": "no"}), json!([]), json!({"pass": "no"}), json!([])] {
        played.signal();
        played.answer(reply, None);
    }
    let given_up =
        |played: &Played| played.board.given_up().iter().map(|queued| queued.invocation.0).collect::<Vec<_>>();
    assert_eq!(given_up(&played), [3, 5], "a pass is an answer");
    played.holds();
    // Decisions of others pass; the branch makes its probe, and works again.
    played.signal();
    while played.calls.is_empty() {
        played.direct("writer", r#"[{"op": "add", "path": "/list/-", "value": 1}]"#);
    }
    played.answer(add(), None);
    assert_eq!(given_up(&played), Vec::<u64>::new());
    played.holds();
    // A large external value is not kept.
    for _ in 0..2 {
        let value = json!("x".repeat(20_000));
        played.give(Input::Signal { name: "go".into(), value, key: None });
        played.answer(json!([]), None);
    }
    assert_eq!(given_up(&played), Vec::<u64>::new());
    played.holds();
}
