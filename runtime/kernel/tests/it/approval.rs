//! Approvals: a proposal is committed once, if the approver agrees to exactly that proposal before the deadline.

use crate::played::Played;
use patchboard_kernel::board::{Input, Outcome};
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::Seq;
use patchboard_kernel::record::{Answer, Body, Cause, Kind};
use patchboard_kernel::rejection::{Code, Stage};
use serde_json::{Value, json};

/// Returns a board with a clerk and a rule that follows; a boss or an auditor must approve payments.
fn office(limits: Value) -> Played {
    Played::new(json!({
        "state": {"schema": {"type": "object"}, "initial": {"payments": [], "notes": [], "rate": 1}},
        "workers": {
            "boss": {"agent": "human"},
            "auditor": {"agent": "human"},
            "clerk": {"agent": "llm", "reads": ["/rate"], "limits": limits, "writes": [
                {"path": "/payments/-", "ops": ["add"], "approval": {"by": "boss", "expires": "10s"}},
                {"path": "/audited/*", "ops": ["add"], "approval": {"by": "auditor", "expires": "5s"}},
                {"path": "/notes/-", "ops": ["add"]},
                {"path": "/rate", "ops": ["replace"]},
            ]},
            "other": {"agent": "llm", "writes": [{"path": "/rate", "ops": ["replace"]}, {"path": "/end", "ops": ["add"]}]},
        },
        "rules": [
            {"name": "go", "trigger": {"signal": "go"}, "run": "clerk"},
            {"name": "after", "trigger": {"after": ["go"]}, "run": "other"},
        ],
        "concurrency": 1,
        "limits": {"wall": "20s"},
    }))
}

fn pay(amount: u32) -> Value {
    json!([{"op": "add", "path": "/payments/-", "value": amount}, {"op": "add", "path": "/notes/-", "value": "paid"}])
}

/// Returns the pending question and its digest.
fn question(played: &Played) -> (Seq, Digest) {
    let (seq, question) = played.board.pending().iter().next().expect("a question");
    (*seq, question.digest)
}

fn answer(played: &mut Played, of: (Seq, Digest), by: &str, agrees: bool) -> Outcome {
    let (of, digest) = of;
    let reason = (!agrees).then(|| "too much".to_owned());
    let input = Input::Answer(Answer { of, by: by.into(), digest, agrees, reason, text: None });
    played.give(input).outcome.expect("an outcome")
}

fn refused(outcome: &Outcome) -> (Stage, Code) {
    match outcome {
        Outcome::RejectedUnrecorded(rejection) | Outcome::Rejected { rejection, .. } => {
            (rejection.stage, rejection.code)
        }
        other => panic!("it was {other:?}"),
    }
}

/// Returns a board with a clerk without freshness checks; bob or carol must approve its writes.
fn careless() -> Played {
    let grants = json!([
        {"path": "/x", "ops": ["add"], "approval": {"by": "bob"}},
        {"path": "/x", "ops": ["replace"], "approval": {"by": "carol"}},
        {"path": "/pub", "ops": ["add", "copy"], "approval": {"by": "bob"}},
    ]);
    let mut played = Played::new(json!({
        "state": {"schema": {"type": "object"}, "initial": {"y": "harmless"}},
        "workers": {
            "bob": {"agent": "human"},
            "carol": {"agent": "human"},
            "clerk": {"agent": "llm", "reads": ["/y"], "freshness": "none", "writes": grants},
            "other": {"agent": "llm", "writes": [{"path": "/x", "ops": ["add"]}, {"path": "/y", "ops": ["replace"]}]},
        },
        "rules": [
            {"name": "go", "trigger": {"signal": "go"}, "run": "clerk"},
            {"name": "beside", "trigger": {"signal": "beside"}, "run": "other"},
        ],
    }));
    played.signal();
    played
}

#[test]
fn an_approval_covers_the_proposal_as_it_was_when_asked() {
    for (asked, beside) in [
        (json!([{"op": "add", "path": "/x", "value": 1}]), json!([{"op": "add", "path": "/x", "value": "another's"}])),
        (
            json!([{"op": "copy", "from": "/y", "path": "/pub"}]),
            json!([{"op": "replace", "path": "/y", "value": "other"}]),
        ),
    ] {
        for is_changed in [false, true] {
            let mut played = careless();
            let outcome = played.answer(asked.clone(), None);
            assert!(matches!(outcome, Outcome::AwaitingApproval { .. }), "{asked}: {outcome:?}");
            if is_changed {
                played.give(Input::Signal { name: "beside".into(), value: Value::Null, key: None });
                assert!(matches!(played.answer(beside.clone(), None), Outcome::Committed { .. }), "{beside}");
            }
            let of = question(&played);
            let outcome = answer(&mut played, of, "bob", true);
            match is_changed {
                false => assert!(matches!(outcome, Outcome::Committed { .. }), "{asked}: {outcome:?}"),
                true => assert_eq!(refused(&outcome).0, Stage::Freshness, "{asked}"),
            }
            played.holds();
        }
    }
}

#[test]
fn a_question_that_never_expires_waits_for_its_answer_however_long_it_takes() {
    let mut played = Played::new(json!({
        "blueprint": 2,
        "state": {"schema": {"type": "object"}, "initial": {"payments": []}},
        "workers": {
            "boss": {"agent": "human"},
            "clerk": {"agent": "llm", "writes": [
                {"path": "/payments/-", "ops": ["add"], "approval": {"by": "boss", "expires": "never"}}]},
        },
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "clerk"}],
    }));
    played.signal();
    played.answer(json!([{"op": "add", "path": "/payments/-", "value": 1}]), None);
    assert_eq!(played.board.pending().values().next().expect("a question").expires, None);
    assert_eq!(played.board.wake_at(), None, "nothing is due");
    // Ten years later.
    played.now += 10 * 365 * 86_400_000;
    played.give(Input::Tick);
    let of = question(&played);
    assert!(matches!(answer(&mut played, of, "boss", true), Outcome::Committed { .. }));
    played.holds();
}

#[test]
fn an_approved_proposal_is_committed_and_then_completes_the_rule() {
    let mut played = office(json!({}));
    played.signal();
    let outcome = played.answer(pay(5), None);
    assert!(matches!(outcome, Outcome::AwaitingApproval { .. }), "{outcome:?}");
    assert_eq!((played.board.ended(), played.board.version().0, played.calls.len()), (None, 0, 0));
    assert!(played.board.waits_for_persons());
    let of = question(&played);
    assert!(matches!(answer(&mut played, of, "boss", true), Outcome::Committed { .. }));
    assert_eq!(played.board.state().root()["payments"].to_value(), json!([5]));
    assert_eq!(played.calls[0].2, "other");
    let Some(Body::Committed(committed)) = played.bodies().find(|body| body.kind() == Kind::Committed) else {
        panic!("it was committed")
    };
    assert_eq!((committed.by.approval, committed.by.usage), (Some(of.0), None));
    assert_eq!(refused(&answer(&mut played, of, "boss", true)), (Stage::Approval, Code::NotPending), "once");
    played.holds();
}

#[test]
fn every_way_to_answer_wrongly_has_a_code_and_changes_nothing() {
    let mut played = office(json!({}));
    played.signal();
    played.answer(pay(5), None);
    let (seq, digest) = question(&played);
    let before = played.records.len();
    for (of, by, code) in [
        ((Seq(seq.0 + 1), digest), "boss", Code::NotPending),
        ((seq, digest), "auditor", Code::WrongApprover),
        ((seq, Digest([1; 32])), "boss", Code::ApprovalMismatch),
    ] {
        assert_eq!(refused(&answer(&mut played, of, by, true)), (Stage::Approval, code));
    }
    played.now += 10_000;
    assert_eq!(refused(&answer(&mut played, (seq, digest), "boss", true)), (Stage::Approval, Code::ApprovalExpired));
    assert_eq!((played.records.len(), played.board.pending().len()), (before, 1));

    // The timer ends the question and its invocation: no answer arrived.
    played.give(Input::Tick);
    let Some(Body::Rejected(rejected)) = played.bodies().find(|body| body.kind() == Kind::Rejected) else {
        panic!("it is over")
    };
    assert_eq!((rejected.code, rejected.is_final, rejected.by.approval), (Code::ApprovalExpired, true, Some(seq)));
    assert_eq!(played.board.ended().map(|ended| ended.cause), Some(Cause::GaveUp));
    assert_eq!(refused(&answer(&mut played, (seq, digest), "boss", true)).1, Code::NotPending);
    played.holds();
}

#[test]
fn a_denied_approval_is_reported_to_the_worker_which_may_retry() {
    let mut played = office(json!({"attempts": 2}));
    played.signal();
    played.answer(pay(500), None);
    let of = question(&played);
    assert_eq!(refused(&answer(&mut played, of, "boss", false)), (Stage::Approval, Code::Denied));
    assert!(played.view().contains("boss does not agree: too much"), "{}", played.view());
    assert!(matches!(played.answer(pay(5), None), Outcome::AwaitingApproval { .. }));
    let of = question(&played);
    assert!(matches!(answer(&mut played, of, "boss", true), Outcome::Committed { .. }));
    played.holds();
}

#[test]
fn changes_during_an_approval_can_make_the_proposal_stale() {
    let mut played = office(json!({}));
    played.signal();
    // A value in the read set changes meanwhile, so the approved proposal is stale, and retried.
    played.answer(pay(5), None);
    played.direct("other", &json!([{"op": "replace", "path": "/rate", "value": 2}]).to_string());
    let of = question(&played);
    assert_eq!(refused(&answer(&mut played, of, "boss", true)), (Stage::Freshness, Code::StaleRead));
    assert_eq!(played.calls.len(), 1, "a conflict costs no attempt");

    // Values outside the read set may change.
    played.answer(pay(6), None);
    played.direct("clerk", &json!([{"op": "add", "path": "/notes/-", "value": "aside"}]).to_string());
    let of = question(&played);
    assert!(matches!(answer(&mut played, of, "boss", true), Outcome::Committed { .. }));
    played.holds();
}

#[test]
fn waiting_takes_no_place_and_no_running_time_and_survives_a_crash() {
    let mut played = office(json!({}));
    played.signal();
    played.answer(pay(1), None);
    played.signal();
    assert_eq!(played.calls.len(), 1, "another is dispatched although one at a time is allowed");
    played.answer(pay(2), None);
    assert_eq!(played.board.pending().len(), 2);
    let running = played.board.running_ms();
    played.now += 9_000;
    played.give(Input::take_over(1, "again".into()));
    assert_eq!((played.count(Kind::Failed), played.board.pending().len()), (0, 2), "no call was lost");
    assert!(played.board.running_ms() <= running + 1, "only people were waited for");
    let of = question(&played);
    assert!(matches!(answer(&mut played, of, "boss", true), Outcome::Committed { .. }));
    // The end of the board closes its questions.
    played.give(Input::Cancel);
    assert!(played.board.pending().is_empty());
    played.holds();
}

#[test]
fn one_patch_is_put_to_one_person_and_a_repeated_one_once() {
    let mut played = office(json!({}));
    played.signal();
    let both = json!([{"op": "add", "path": "/payments/-", "value": 1}, {"op": "add", "path": "/audited", "value": {}},
        {"op": "add", "path": "/audited/x", "value": 1}]);
    let Outcome::Rejected { rejection, .. } = played.answer(both, None) else { panic!("it is refused") };
    assert!(rejection.violations.iter().any(|violation| violation.code == Code::SeveralApprovers), "{rejection:?}");

    let first = played.calls[0].clone();
    let seq = match played.answer(pay(1), None) {
        Outcome::AwaitingApproval { seq } => seq,
        other => panic!("it was {other:?}"),
    };
    played.calls.insert(0, first);
    let again = played.answer(pay(1), None);
    assert!(
        matches!(&again, Outcome::Duplicate(verdict) if format!("{verdict:?}").contains(&format!("{seq:?}"))),
        "{again:?}"
    );

    // A direct proposal needs approval like any other.
    assert!(matches!(played.direct("clerk", &pay(7).to_string()), Outcome::AwaitingApproval { .. }));
    let questions: Vec<(Seq, Digest)> =
        played.board.pending().iter().map(|(seq, question)| (*seq, question.digest)).collect();
    assert_eq!(questions.len(), 2);
    for of in questions {
        assert!(matches!(answer(&mut played, of, "boss", true), Outcome::Committed { .. }));
    }
    assert_eq!(played.board.state().root()["payments"].to_value(), json!([1, 7]));
    played.holds();
}

#[test]
fn a_question_keeps_a_quiescent_board_running_until_answered() {
    for agrees in [true, false] {
        let mut played = office(json!({}));
        assert!(played.board.ended().is_some(), "nobody has anything to do");
        assert!(matches!(played.direct("clerk", &pay(7).to_string()), Outcome::AwaitingApproval { .. }));
        assert!(played.board.ended().is_none() && played.board.waits_for_persons());
        let of = question(&played);
        match answer(&mut played, of, "boss", agrees) {
            Outcome::Committed { .. } => assert!(agrees),
            outcome => assert_eq!((refused(&outcome), agrees), ((Stage::Approval, Code::Denied), false)),
        }
        assert!(played.board.ended().is_some(), "it stands still again");
        played.holds();
    }
}

#[test]
fn questions_have_a_limit() {
    let mut played = office(json!({}));
    played.signal();
    for amount in 0..64 {
        assert!(matches!(played.direct("clerk", &pay(amount).to_string()), Outcome::AwaitingApproval { .. }));
    }
    assert_eq!(refused(&played.direct("clerk", &pay(64).to_string())), (Stage::Approval, Code::ApprovalLimit));
    played.holds();
}

#[test]
fn an_invocation_returning_from_approval_waits_for_a_slot() {
    let mut played = office(json!({"attempts": 2}));
    played.signal();
    assert!(matches!(played.answer(pay(5), None), Outcome::AwaitingApproval { .. }));
    let of = question(&played);
    // Another invocation of the clerk takes the only slot.
    played.signal();
    assert_eq!(played.calls.len(), 1);
    assert!(matches!(answer(&mut played, of, "boss", false), Outcome::Rejected { .. }));
    assert_eq!(played.calls.len(), 1, "one call at a time");
    played.answer(json!([]), None);
    assert_eq!((played.calls.len(), played.calls[0].2.as_str()), (1, "clerk"), "its second attempt");
    played.holds();
}
