//! External requests with an idempotency key: a repetition returns the first outcome and has no effect.

use std::collections::BTreeMap;
use std::convert::Infallible;

use crate::played::Played;
use patchboard_kernel::board::{Board, Input, Outcome, Proposal, ProposalSource, RememberedOutcome, ReplyBody};
use patchboard_kernel::id::{IdempotencyKey, Timestamp};
use patchboard_kernel::record::{Answer, Kind};
use patchboard_kernel::rejection::{Code, Stage};
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

/// Retention time of an idempotency key, in milliseconds.
const WINDOW: i64 = 3_600_000;

fn board() -> Played {
    Played::new(json!({
        "workers": {"w": {"agent": "llm", "reads": ["/list"], "writes": [{"path": "/list/-", "ops": ["add"]}]}},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
        "limits": {"wall": "30d"},
    }))
}

fn token(text: &str) -> Option<IdempotencyKey> {
    Some(IdempotencyKey::from(text))
}

fn signal(value: Value, with: &str) -> Input {
    Input::Signal { name: "go".into(), value, key: token(with) }
}

#[test]
fn a_repeated_signal_triggers_once() {
    let mut played = board();
    let first = played.give(signal(json!(1), "a"));
    let seq = first.records[0].seq;
    let records = played.records.len();
    assert_eq!(
        played.give(signal(json!(1), "a")).outcome,
        Some(Outcome::Duplicate(RememberedOutcome::Recorded { seq }))
    );
    let other = played.give(signal(json!(2), "a")).outcome;
    let Some(Outcome::RejectedUnrecorded(rejection)) = other else { panic!("it was {other:?}") };
    assert_eq!(rejection.code, Code::TokenConflict);
    assert_eq!(played.records.len(), records, "nothing was recorded");
    played.give(signal(json!(2), "b"));
    assert_eq!(played.count(Kind::Scheduled), 2);
    played.holds();
}

#[test]
fn a_blueprint_says_for_how_long_a_repetition_is_known() {
    for (dedup, window) in [(Value::Null, WINDOW), (json!("2d"), 172_800_000), (json!("5s"), 5000)] {
        let mut limits = json!({"wall": "30d"});
        if !dedup.is_null() {
            limits["dedup"] = dedup;
        }
        let mut played = Played::new(json!({
            "workers": {"w": {"agent": "llm", "reads": ["/list"], "writes": [{"path": "/list/-", "ops": ["add"]}]}},
            "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
            "limits": limits,
        }));
        let seq = played.give(signal(json!(1), "a")).records[0].seq;
        let first = played.now;
        played.now = first + window - 2;
        assert_eq!(
            played.give(signal(json!(1), "a")).outcome,
            Some(Outcome::Duplicate(RememberedOutcome::Recorded { seq }))
        );
        // This also holds for a board recovered from records or from a snapshot.
        let recovered = Board::recover(&played.records, &PLANS).expect("the journal is enough");
        let again = recovered.clone().step_ungated(Timestamp(played.now), signal(json!(1), "a"));
        assert_eq!(again.outcome, Some(Outcome::Duplicate(RememberedOutcome::Recorded { seq })));
        let mut parts = BTreeMap::new();
        let stored = recovered.store(true, &mut |part| {
            parts.insert(part.hash, part.text.to_string());
            Ok::<_, Infallible>(())
        });
        let digest = stored.unwrap_or_else(|never| match never {}).manifest.hash;
        let fetched = Board::restore(&played.records[0], digest, &mut |hash| Ok(parts.get(&hash).cloned()), &PLANS);
        let again = fetched.expect("a board").step_ungated(Timestamp(played.now), signal(json!(1), "a"));
        assert_eq!(again.outcome, Some(Outcome::Duplicate(RememberedOutcome::Recorded { seq })));
        played.now = first + window - 1;
        assert_eq!(played.give(signal(json!(1), "a")).outcome, None);
        assert_eq!(played.count(Kind::Signal), 2);
    }
}

#[test]
fn a_signal_with_an_invalid_value_is_rejected_unrecorded() {
    let mut played = Played::new(json!({
        "signals": {"go": {"type": "string", "maxLength": 3}, "other": true},
        "workers": {"w": {"agent": "llm", "reads": ["/list"], "writes": [{"path": "/list/-", "ops": ["add"]}]}},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
    }));
    let records = played.records.len();
    for wrong in [json!(7), json!("four"), Value::Null] {
        let Some(Outcome::RejectedUnrecorded(rejection)) = played.give(signal(wrong, "a")).outcome else {
            panic!("it fits")
        };
        assert_eq!((rejection.stage, rejection.code), (Stage::Schema, Code::SchemaViolation));
    }
    assert_eq!(played.records.len(), records, "nothing was recorded");
    // The key was not used up. Other declared signals may carry any value.
    assert_eq!(played.give(signal(json!("two"), "a")).outcome, None);
    played.give(Input::Signal { name: "other".into(), value: json!(7), key: None });
    assert_eq!((played.count(Kind::Signal), played.count(Kind::Scheduled)), (2, 1));
    let unheard = played.give(Input::Signal { name: "third".into(), value: json!(7), key: None }).outcome;
    let Some(Outcome::RejectedUnrecorded(rejection)) = unheard else { panic!("it was {unheard:?}") };
    assert_eq!(rejection.code, Code::UnknownSignal);
    played.holds();
}

#[test]
fn signals_that_wait_take_a_bounded_memory() {
    let writes = json!([{"path": "/list/-", "ops": ["add"]}]);
    let mut played = Played::new(json!({
        "workers": {
            "w": {"agent": "llm", "reads": ["/list"], "writes": writes, "limits": {"attempts": 1, "invocations": 1000}},
            "v": {"agent": "llm", "reads": ["/list"], "writes": writes, "limits": {"invocations": 1000}},
        },
        "rules": [
            {"name": "w", "trigger": {"signal": "go"}, "run": "w"},
            {"name": "v", "trigger": {"signal": "go"}, "run": "v"},
        ],
    }));
    // 63 kB of text that take some 8 MB as values, shared by both workers.
    let value = Value::Array(vec![json!({"": 0}); 9000]);
    let mut heard = 0;
    while played.board.judge_signal(None).is_ok() {
        assert!(heard < 100, "there is a bound");
        played.give(signal(value.clone(), &heard.to_string()));
        heard += 1;
    }
    assert!((6..=12).contains(&heard), "it was {heard}");
    let rejection = played.board.judge_signal(token("new").as_ref()).expect_err("no room");
    assert_eq!((rejection.stage, rejection.code), (Stage::Application, Code::BacklogFull));
    // A repetition returns the first outcome.
    assert_eq!(played.board.judge_signal(token("0").as_ref()), Ok(()));
    // A signal that both workers have finished frees its room, also on a recovered board.
    let mut makes_room = |_: &i32| {
        played.answer(json!([{"op": "add", "path": "/list/-", "value": "step"}]), None);
        played.board.judge_signal(None).is_ok()
    };
    assert!((1..heard * 2).find(&mut makes_room).is_some_and(|answers| answers > 1));
    assert_eq!(Board::recover(&played.records, &PLANS).expect("the journal is enough").judge_signal(None), Ok(()));
}

#[test]
fn a_signal_beyond_the_backlog_is_rejected_unrecorded() {
    let mut played = Played::new(json!({
        "concurrency": 1,
        "backlog": {"go": {"at": "/list", "max": 3}},
        "workers": {"w": {"agent": "llm", "reads": ["/list"], "writes": [
            {"path": "/list/-", "ops": ["add"]}, {"path": "/list/*", "ops": ["remove"]}]}},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
    }));
    let add = json!([{"op": "add", "path": "/list/-", "value": "step"}]);
    played.give(signal(json!(1), "a"));
    played.answer(add, None);
    // One element exists, one call is open, and one invocation is queued.
    played.give(signal(json!(2), "b"));
    played.give(signal(json!(3), "c"));
    let records = played.records.len();
    let Some(Outcome::RejectedUnrecorded(rejection)) = played.give(signal(json!(4), "d")).outcome else {
        panic!("it was heard")
    };
    assert_eq!((rejection.stage, rejection.code), (Stage::Application, Code::BacklogFull));
    assert_eq!(rejection.violations[0].message, "1 wait at /list and 2 are on the way there; 3 may wait");
    assert_eq!(played.records.len(), records, "nothing was recorded");
    // Other signals are accepted, and a repetition returns the first outcome.
    played.give(Input::Signal { name: "other".into(), value: json!(7), key: None });
    assert!(matches!(played.give(signal(json!(3), "c")).outcome, Some(Outcome::Duplicate(_))));
    // One element less waits, and the call that removed it has added none.
    let taken = played.answer(json!([{"op": "remove", "path": "/list/0"}]), None);
    assert!(matches!(taken, Outcome::Committed { .. }), "{taken:?}");
    assert_eq!(played.give(signal(json!(4), "d")).outcome, None);
    played.holds();
}

#[test]
fn request_outcomes_are_remembered_across_recovery_within_the_window() {
    let mut played = board();
    played.give(signal(Value::Null, "a"));
    played.board = Board::recover(&played.records, &PLANS).expect("the journal is enough");
    played.now += WINDOW - 2;
    assert!(matches!(played.give(signal(Value::Null, "a")).outcome, Some(Outcome::Duplicate(_))));
    played.now += 1;
    assert_eq!(played.give(signal(Value::Null, "a")).outcome, None);
    played.holds();
}

#[test]
fn a_repeated_pause_does_not_undo_what_came_after_it() {
    let mut played = board();
    let pause = || Input::Pause { key: token("a") };
    played.give(pause());
    played.give(Input::Resume { key: token("b") });
    assert!(matches!(played.give(pause()).outcome, Some(Outcome::Duplicate(_))));
    assert!(!played.board.is_paused());
    // A pause that changes nothing is recognised by its key, too.
    played.give(Input::Pause { key: None });
    played.give(Input::Pause { key: token("c") });
    played.give(Input::Resume { key: None });
    assert!(matches!(played.give(Input::Pause { key: token("c") }).outcome, Some(Outcome::Duplicate(_))));
    assert!(!played.board.is_paused());
    // Resuming with the same key is a conflict.
    let other = played.give(Input::Resume { key: token("c") }).outcome;
    assert!(matches!(other, Some(Outcome::RejectedUnrecorded(_))), "it was {other:?}");
    played.holds();
}

#[test]
fn tokens_of_requests_are_none_of_proposals() {
    let mut played = board();
    played.give(signal(Value::Null, "a"));
    let direct = Proposal {
        from: ProposalSource::Direct { key: token("a"), base: None },
        worker: "w".into(),
        reply: ReplyBody::Text("[]".into()),
        usage: None,
        raw: None,
    };
    let outcome = played.board.step(Timestamp(played.now), Input::Propose(direct)).outcome;
    assert!(matches!(outcome, Some(Outcome::NoOp { .. })), "it was {outcome:?}");
}

/// Returns a board with a clerk; a boss must approve its proposals within a day.
fn office() -> Played {
    Played::new(json!({
        "workers": {
            "boss": {"agent": "human"},
            "w": {"agent": "llm", "reads": ["/list"], "writes": [
                {"path": "/list/-", "ops": ["add"], "approval": {"by": "boss", "expires": "1d"}}]},
        },
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
        "limits": {"wall": "30d"},
    }))
}

/// Submits a proposal of the clerk with a token and returns the outcome.
fn say(played: &mut Played, word: &str, with: &str) -> Outcome {
    let patch = json!([{"op": "add", "path": "/list/-", "value": word}]);
    played
        .give(Input::Propose(Proposal {
            from: ProposalSource::Direct { key: token(with), base: None },
            worker: "w".into(),
            reply: ReplyBody::Text(patch.to_string()),
            usage: None,
            raw: None,
        }))
        .outcome
        .expect("an outcome")
}

fn answer(played: &mut Played, agrees: bool) -> Outcome {
    let (of, question) = played.board.pending().iter().next().expect("a question");
    let (of, digest) = (*of, question.digest);
    let input = Input::Answer(Answer { of, by: "boss".into(), digest, agrees, reason: None, text: None });
    played.give(input).outcome.expect("an outcome")
}

#[test]
fn pending_approvals_are_remembered_until_an_hour_after_the_answer() {
    for (agrees, from_snapshot) in [(true, false), (false, false), (true, true)] {
        let mut played = office();
        let Outcome::AwaitingApproval { seq } = say(&mut played, "a", "k") else { panic!("the boss is asked") };
        played.now += 2 * WINDOW;
        // Proposals with other tokens evict old keys, but not this one.
        say(&mut played, "b", "other");
        played.now += 2 * WINDOW;
        say(&mut played, "c", "third");
        played.board = match from_snapshot {
            true => {
                let mut parts = BTreeMap::new();
                let Ok(stored) = played.board.store(true, &mut |part| {
                    parts.insert(part.hash, part.text.to_string());
                    Ok::<_, Infallible>(())
                });
                let digest = stored.manifest.hash;
                let restored =
                    Board::restore(&played.records[0], digest, &mut |hash| Ok(parts.get(&hash).cloned()), &PLANS);
                let restored = restored.expect("it is a snapshot");
                assert_eq!(restored.snapshot_digest(), digest);
                restored
            }
            false => Board::recover(&played.records, &PLANS).expect("the journal is enough"),
        };
        let known = Outcome::Duplicate(RememberedOutcome::AwaitingApproval { seq });
        assert_eq!(say(&mut played, "a", "k"), known, "it is not asked again");
        let Outcome::Rejected { rejection, .. } = say(&mut played, "another", "k") else { panic!("it was taken") };
        assert_eq!(rejection.code, Code::TokenConflict);
        assert_eq!(played.board.pending().len(), 3);
        match answer(&mut played, agrees) {
            Outcome::Committed { .. } => assert!(agrees),
            Outcome::Rejected { .. } => assert!(!agrees),
            other => panic!("it was {other:?}"),
        }
        played.now += WINDOW - 10;
        let again = say(&mut played, "a", "k");
        match (&again, agrees) {
            (Outcome::Duplicate(RememberedOutcome::Committed { .. }), true)
            | (Outcome::Duplicate(RememberedOutcome::Rejected { .. }), false) => {}
            _ => panic!("it was {again:?}"),
        }
        played.now += 10;
        let Outcome::AwaitingApproval { .. } = say(&mut played, "a", "k") else { panic!("it is forgotten") };
        played.holds();
    }
}
