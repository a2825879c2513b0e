//! Untrusted input: callers are identified, disk usage is bounded, and clock jumps do not harm the board.

use crate::played::Played;
use patchboard_kernel::admission;
use patchboard_kernel::board::{
    Board, Input, NewBoard, Outcome, Proposal, ProposalSource, RememberedOutcome, ReplyBody, Step,
};
use patchboard_kernel::digest::{Hasher, Salt, sha256};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{IdempotencyKey, InvocationId, Timestamp};
use patchboard_kernel::record::{Answer, Body, Cause, End, Ended, Kind, Principal, Record};
use patchboard_kernel::rejection::{Code, Rejection};
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

const MINUTE: i64 = 60_000;

/// Maximum size in bytes of a record that keeps an excerpt of its reply.
const KEPT_MAX: usize = 6000;

fn members() -> Value {
    json!({
        "workers": {
            "w": {"agent": "llm", "limits": {"timeout": "5m"}, "reads": ["/list"],
                  "writes": [{"path": "/list/-", "ops": ["add"]}]},
            "boss": {"agent": "human"},
            "asks": {"agent": "remote", "writes": [
                {"path": "/list/-", "ops": ["add"], "approval": {"by": "boss", "four_eyes": true, "expires": "10m"}}]},
        },
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
        "limits": {"wall": "30m", "commits": 100_000, "tokens": 1_000_000_000},
    })
}

fn add(text: &str) -> String {
    json!([{"op": "add", "path": "/list/-", "value": text}]).to_string()
}

fn direct(reply: String, token: Option<&str>) -> Input {
    let from = ProposalSource::Direct { key: token.map(IdempotencyKey::from), base: None };
    Input::Propose(Proposal { from, worker: "w".into(), reply: ReplyBody::Text(reply), usage: None, raw: None })
}

fn refused(step: Step) -> Rejection {
    match step.outcome {
        Some(Outcome::RejectedUnrecorded(rejection)) if step.records.is_empty() => rejection,
        other => panic!("it was {other:?}"),
    }
}

fn size(record: &Record) -> usize {
    record.header.len() + record.payload.len()
}

#[test]
fn an_overlong_reply_is_rejected_kept_as_an_excerpt_and_recognised_again() {
    let mut played = Played::new(members());
    let long = |middle: &str| add(&format!("{}{middle}{}", "a".repeat(2_000_000), "b".repeat(2_000_000)));
    for reply in [long("x"), "no JSON ".repeat(500_000)] {
        let step = played.give(direct(reply.clone(), Some(&reply[..1])));
        let record = step.records.first().expect("it is recorded").clone();
        let Ok(Body::Rejected(rejected)) = record.body() else { panic!("it was {:?}", record.kind) };
        assert_eq!(
            (rejected.code, rejected.elided.as_ref().map(|it| it.bytes)),
            (Code::TooLarge, Some(reply.len() as u64))
        );
        assert!(size(&record) < KEPT_MAX, "{}", size(&record));
        assert!(rejected.reply.starts_with(&reply[..1000]) && rejected.reply.ends_with(&reply[reply.len() - 1000..]));
        assert!(!rejected.elided.as_ref().expect("it is").fingerprint.to_string().is_empty());
        let again = played.give(direct(reply.clone(), Some(&reply[..1])));
        assert!(
            matches!(again.outcome, Some(Outcome::Duplicate(RememberedOutcome::Rejected { .. }))),
            "{:?}",
            again.outcome
        );
    }
    // Another reply with the same beginning and end.
    let other = played.give(direct(long("y"), Some("[")));
    let record = other.records.first().expect("it is recorded");
    let Ok(Body::Late(late)) = record.body() else { panic!("it was {:?}", record.kind) };
    assert_eq!((late.code, late.elided.is_some()), (Code::TokenConflict, true));
    assert!(size(record) < KEPT_MAX);
    // A rejection keeps the whole reply if the reason lies in the text.
    played.give(direct(json!([{"op": "remove", "path": "/list", "value": "z".repeat(9000)}]).to_string(), None));
    let Ok(Body::Rejected(rejected)) = played.records.last().expect("a record").body() else { panic!("refused") };
    assert!(rejected.elided.is_none() && rejected.reply.len() > 9000);
    played.holds();
}

#[test]
fn a_reply_that_would_take_much_memory_is_known_by_its_text() {
    let hasher = Hasher::new(&Salt([7; 32]));
    let of = |text: &str| ReplyBody::Text(text.to_owned()).digest(&hasher, patchboard_kernel::record::FORMAT);
    let large = format!("[{}0]", "0,".repeat(4_000_000));
    assert_eq!(of(&large), hasher.text(&large));
    // For smaller replies, white space makes no difference.
    assert_eq!(of(&add("a")), of(&add("a").replace(':', ": ")));
}

#[test]
fn late_replies_and_failures_are_recorded_in_bounded_size() {
    let mut played = Played::new(members());
    played.signal();
    let large = add(&"x".repeat(7_000_000));
    let answer = |invocation, attempt, reply: &str| {
        let from = ProposalSource::Attempt { invocation: InvocationId(invocation), attempt };
        let reply = ReplyBody::Text(reply.to_owned());
        Input::Propose(Proposal { from, worker: "w".into(), reply, usage: None, raw: Some("y".repeat(7_000_000)) })
    };
    played.give(answer(99, 1, &large));
    // A failure records its reason, up to a limit.
    let (invocation, attempt) = (InvocationId(1), 1);
    let message = "m".repeat(7_000_000);
    played.give(Input::AgentFailed { invocation, attempt, code: FailureCode::Crashed, message, usage: None });
    for name in ["nobody", "nobody else", &"n".repeat(1_000_000)] {
        let value = json!("x".repeat(1_000_000));
        let rejection = refused(played.give(Input::Signal { name: name.to_owned(), value, key: None }));
        assert_eq!(rejection.code, Code::UnknownSignal);
        assert!(rejection.violations[0].message.ends_with("rules handle `go`"), "{}", rejection.violations[0].message);
        assert!(rejection.violations[0].message.len() < 300);
    }
    played.give(Input::Cancel);
    played.give(direct(large, None));
    let late = played.bodies().filter_map(|body| if let Body::Late(late) = body { Some(late) } else { None });
    let codes: Vec<Code> = late.map(|late| late.code).collect();
    assert_eq!(codes, [Code::InvocationClosed, Code::BoardNotRunning]);
    assert!(played.records.iter().map(size).max() < Some(KEPT_MAX));
    played.holds();
}

#[test]
fn the_journal_has_a_limit_of_which_outsiders_get_half() {
    let mut blueprint = members();
    blueprint["limits"]["journal"] = json!(200_000);
    let mut played = Played::new(blueprint);
    let mut given = 0;
    while let Outcome::Rejected { .. } = played.direct("w", &format!("[{}]", "x".repeat(8000))) {
        given += 1;
    }
    let rejection = refused(played.give(direct(add("late"), None)));
    assert_eq!(rejection.code, Code::JournalFull);
    let bytes: usize = played.records.iter().map(size).sum();
    assert!((100_000..120_000).contains(&bytes), "{given} replies, {bytes} bytes");
    assert_eq!(
        refused(played.give(Input::Signal { name: "go".into(), value: Value::Null, key: None })).code,
        Code::JournalFull
    );
    played.holds();
}

#[test]
fn a_board_stops_at_its_journal_limit_and_continues_with_a_higher_one() {
    let mut blueprint = members();
    blueprint["limits"]["journal"] = json!(40_000);
    blueprint["rules"][0]["trigger"] = json!({"op": "add", "path": "/list/*"});
    let mut played = Played::new(blueprint);
    played.direct("w", &add("first"));
    while played.board.ended().is_none() {
        played.answer(json!([{"op": "add", "path": "/list/-", "value": "x".repeat(300)}]), None);
    }
    assert_eq!(played.board.ended(), Some(Ended { end: End::Stopped, cause: Cause::Journal }));
    let of_views = played.bodies().filter_map(|body| if let Body::Invoked(it) = body { it.view_bytes } else { None });
    let (records, views): (usize, u64) = (played.records.iter().map(size).sum(), of_views.sum());
    assert!(views > 1000 && (40_000..44_000).contains(&(records as u64 + views)), "{records} + {views}");
    // A full journal still accepts a takeover, and an operator may raise the limit.
    played.give(Input::take_over(1, "next".to_owned()));
    let mut raised = patchboard_kernel::record::Retried::default();
    raised.limits.journal = Some(30_000);
    assert!(played.board.judge_retry(&raised).is_err());
    raised.limits.journal = Some(80_000);
    played.give(Input::Retry(raised));
    assert_eq!(played.board.ended(), None);
    played.holds();
}

#[test]
fn a_jump_of_the_clock_costs_no_time_and_moves_deadlines_but_not_schedules_or_questions() {
    let mut blueprint = members();
    blueprint["rules"]
        .as_array_mut()
        .expect("a list")
        .push(json!({"name": "daily", "trigger": {"every": "0 12 * * *"}, "run": "w"}));
    let mut played = Played::new(blueprint);
    played.signal();
    played.give(Input::Propose(Proposal {
        from: ProposalSource::Direct { key: None, base: None },
        worker: "asks".into(),
        reply: ReplyBody::Text(add("may I?")),
        usage: None,
        raw: None,
    }));
    played.now += MINUTE - 1;
    let day = 24 * 60 * MINUTE;
    played.now += day;
    played.give(Input::ClockJump { ms: day as u64 });
    let ran = played.board.running_ms() as i64;
    assert!((MINUTE..MINUTE + 10).contains(&ran), "{ran}");
    // The question was open for ten minutes, and noon has passed. The call still has its five minutes.
    let step = played.give(Input::Tick);
    let kinds: Vec<Kind> = step.records.iter().map(|record| record.kind).collect();
    assert_eq!(kinds, [Kind::Tick, Kind::Rejected, Kind::Scheduled, Kind::Invoked]);
    played.now += 3 * MINUTE;
    assert!(played.give(Input::Tick).records.is_empty());
    assert!(matches!(
        played.answer(json!([{"op": "add", "path": "/list/-", "value": 1}]), None),
        Outcome::Committed { .. }
    ));
    assert_eq!(played.board.ended(), None);
    // Without a jump, the same time would have ended the board.
    let mut other = Played::new(members());
    other.signal();
    other.now += day;
    other.give(Input::Tick);
    assert_eq!(other.board.ended(), Some(Ended { end: End::Stopped, cause: Cause::Wall }));
    played.holds();
    other.holds();
}

#[test]
fn a_clock_that_jumps_moves_places_that_are_kept_for_a_worker() {
    let may = json!([{"path": "/n", "ops": ["replace"]}]);
    let mut played = Played::new(json!({
        "state": {"schema": {}, "initial": {"n": 0}},
        "workers": {
            "slow": {"agent": "llm", "reads": ["/n"], "writes": may},
            "fast": {"agent": "llm", "reads": ["/n"], "writes": may},
        },
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "slow"}],
    }));
    played.signal();
    let set = |number: u64| json!([{"op": "replace", "path": "/n", "value": number}]);
    played.direct("fast", &set(1).to_string());
    played.answer(set(2), None);
    let until = |played: &Played| played.board.reservations().iter().map(|(_, held)| held.until.0).collect::<Vec<_>>();
    let before = until(&played);
    assert_eq!(before.len(), 1);
    played.now += 3_600_000;
    played.give(Input::ClockJump { ms: 3_600_000 });
    assert_eq!(until(&played), [before[0] + 3_600_000]);
    played.holds();
}

/// Creates a board with a salt, and makes its first call.
fn salted(salt: Salt) -> (Vec<Record>, Step) {
    let blueprint = json!({"blueprint": 1, "name": "salted", "state": {"schema": {}, "initial": {"list": []}}});
    let mut blueprint = blueprint.as_object().expect("an object").clone();
    let mut members = members();
    members["rules"][0]["trigger"] = json!("start");
    members["workers"]["w"]["reads"] = json!(["/request"]);
    blueprint.extend(members.as_object().expect("an object").clone());
    let blueprint = serde_json::from_value(blueprint.into()).expect("a blueprint");
    let genesis = NewBoard { salt, ..NewBoard::new("salted", blueprint, json!({"pin": "4711"}), Timestamp(0)) };
    let (mut board, mut step) = Board::create(genesis, &PLANS).expect("a board");
    board.admit(Timestamp(0), &mut step, &mut admission::admit_all);
    (step.records.clone(), step)
}

#[test]
fn no_hash_in_the_journal_can_be_guessed_without_the_salt() {
    let salt = Salt([7; 32]);
    let (records, step) = salted(salt);
    let other = salted(Salt([8; 32])).0;
    let headers: Vec<&str> = records.iter().map(|record| record.header.as_str()).collect();
    assert_eq!(step.blobs.len(), 2);
    assert!(step.blobs[0].text.contains("4711"));
    for blob in &step.blobs {
        let name = blob.hash.to_string();
        assert!(headers.iter().any(|header| header.contains(&name)));
        assert!(!other.iter().any(|record| record.header.contains(&name)));
        assert_ne!(blob.hash, sha256(blob.text.as_bytes()));
        assert!(Hasher::new(&salt).matches_name(&blob.text, blob.hash));
    }
}

fn token(id: i64) -> Principal {
    let made_by = Some(Box::new(Principal::User { name: "ann".into() }));
    Principal::Token { id, name: format!("token {id}"), person: None, made_by }
}

#[test]
fn the_first_record_of_a_step_names_its_caller_and_replays() {
    let mut played = Played::new(members());
    let callers = [token(1), Principal::User { name: "ann".into() }, Principal::Host];
    for (index, caller) in callers.iter().enumerate() {
        played.now += 1;
        let signal = Input::Signal { name: "go".into(), value: json!(index), key: None };
        let mut step = played.board.step_as(Timestamp(played.now), signal, Some(caller.clone()));
        played.board.admit(Timestamp(played.now), &mut step, &mut admission::admit_all);
        assert!(step.records.len() > 1);
        for (place, record) in step.records.iter().enumerate() {
            assert_eq!(record.principal(), Ok((place == 0).then(|| caller.clone())));
        }
        played.keep(&step);
    }
    played.holds();
}

#[test]
fn four_eyes_are_not_those_of_who_has_proposed_or_begun() {
    let mut blueprint = json!({"blueprint": 1, "name": "eyes", "state": {"schema": {}, "initial": {"list": []}}});
    blueprint.as_object_mut().expect("an object").extend(members().as_object().expect("an object").clone());
    let blueprint = serde_json::from_value(blueprint).expect("a blueprint");
    let genesis = NewBoard { principal: Some(token(1)), ..NewBoard::new("eyes", blueprint, Value::Null, Timestamp(0)) };
    let (mut board, first) = Board::create(genesis, &PLANS).expect("a board");
    let mut records = first.records;
    let mut now = 0;
    let mut give = |board: &mut Board, input, caller| {
        now += 1;
        let step = board.step_as(Timestamp(now), input, caller);
        records.extend(step.records.iter().cloned());
        step
    };
    let from = ProposalSource::Direct { key: None, base: None };
    let reply = ReplyBody::Text(add("a payment"));
    let proposal = Proposal { from, worker: "asks".into(), reply, usage: None, raw: None };
    give(&mut board, Input::Propose(proposal), Some(token(2)));
    let (of, question) = board.pending().iter().next().map(|(seq, it)| (*seq, it.clone())).expect("a question");
    let answer = || {
        Input::Answer(Answer { of, by: "boss".into(), digest: question.digest, agrees: true, reason: None, text: None })
    };
    let stranger = Principal::Address { address: "127.0.0.1".into() };
    for caller in [Some(token(1)), Some(token(2)), Some(stranger), None] {
        let refused = refused(give(&mut board, answer(), caller.clone()));
        assert_eq!(refused.code, Code::FourEyes, "{caller:?}");
    }
    let agreed = give(&mut board, answer(), Some(token(3)));
    assert!(matches!(agreed.outcome, Some(Outcome::Committed { .. })), "{:?}", agreed.outcome);
    assert_eq!(agreed.records[0].principal(), Ok(Some(token(3))));
    patchboard_kernel::replay::replay(&records, None, &PLANS).expect("the run follows from its records");
}

#[test]
fn a_person_does_not_agree_to_what_the_person_has_proposed() {
    let mut members = members();
    members["workers"]["boss"]["writes"] = members["workers"]["asks"]["writes"].clone();
    members["state"] = json!({"schema": {}, "initial": {"list": []}});
    let mut played = Played::new(members);
    let from = ProposalSource::Direct { key: None, base: None };
    let reply = ReplyBody::Text(add("a payment"));
    let proposal = Proposal { from, worker: "boss".into(), reply, usage: None, raw: None };
    drop(played.board.step_as(Timestamp(1), Input::Propose(proposal), Some(token(2))));
    let (of, question) = played.board.pending().iter().next().map(|(seq, it)| (*seq, it.clone())).expect("a question");
    let digest = question.digest;
    let answer = Input::Answer(Answer { of, by: "boss".into(), digest, agrees: true, reason: None, text: None });
    // Answered by another token, possibly of the same person.
    let refused_own = refused(played.board.step_as(Timestamp(2), answer, Some(token(3))));
    assert_eq!(refused_own.code, Code::FourEyes);

    // Proposed as another worker, with a token of the same person.
    let mut members = self::members();
    members["state"] = json!({"schema": {}, "initial": {"list": []}});
    let mut played = Played::new(members);
    let from = ProposalSource::Direct { key: None, base: None };
    let reply = ReplyBody::Text(add("a payment"));
    let proposal = Proposal { from, worker: "asks".into(), reply, usage: None, raw: None };
    let boss = |id| Principal::Token { id, name: String::new(), person: Some("boss".into()), made_by: None };
    drop(played.board.step_as(Timestamp(1), Input::Propose(proposal), Some(boss(2))));
    let (of, question) = played.board.pending().iter().next().map(|(seq, it)| (*seq, it.clone())).expect("a question");
    let digest = question.digest;
    let answer = Input::Answer(Answer { of, by: "boss".into(), digest, agrees: true, reason: None, text: None });
    let refused_own = refused(played.board.step_as(Timestamp(2), answer, Some(boss(3))));
    assert_eq!(refused_own.code, Code::FourEyes);
}

/// Returns a board with a clerk that may write below the request. An invariant, a grant's condition, a rule and `done`
/// depend on the request.
fn bounded() -> Played {
    Played::asked(
        json!({"most": 10, "go": "no"}),
        json!({
            "state": {"schema": {}, "initial": {"n": 0, "secret": 0}},
            "workers": {"clerk": {"agent": "llm", "reads": ["/n"], "writes": [
                {"path": "/request/most", "ops": ["replace"]},
                {"path": "/request/go", "ops": ["replace"]},
                {"path": "/n", "ops": ["replace"]},
                {"path": "/secret", "ops": ["replace"], "where": {"of": "/secret", "expr": "request.go == 'yes'"}},
            ]}},
            "rules": [{"name": "more", "trigger": {"path": "/n"}, "when": "request.go == 'yes'", "run": "clerk"}],
            "invariants": [{"name": "most", "expr": "state.n <= request.most"}],
            "done": {"when": "request.go == 'yes'"},
        }),
    )
}

#[test]
fn the_request_is_what_was_given_whatever_workers_write_there() {
    let mut played = bounded();
    let set = |path: &str, value: Value| json!([{"op": "replace", "path": path, "value": value}]);
    for patch in [set("/request/most", json!(1000)), set("/request/go", json!("yes")), set("/n", json!(5))] {
        assert!(matches!(played.direct("clerk", &patch.to_string()), Outcome::Committed { .. }), "{patch}");
    }
    let rejection = played.rejection("clerk", set("/n", json!(11)));
    assert_eq!(rejection.violations[0].rule.as_deref(), Some("most"));
    let rejection = played.rejection("clerk", set("/secret", json!(1)));
    assert_eq!(rejection.code, Code::ConditionNotMet);
    let (board, request) = (&played.board, json!({"most": 1000, "go": "yes"}));
    assert_eq!(
        board.state().root().child("request").map(|it| it.to_value()),
        Some(request),
        "the document is as written"
    );
    assert_eq!((board.ended().map(|it| it.cause), played.count(Kind::Scheduled)), (Some(Cause::NothingToDo), 0));
    played.holds();
}
