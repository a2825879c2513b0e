//! Negotiations piece by piece; `laws` holds properties, `sessions` whole negotiations.

mod laws;
mod sessions;

use serde_json::{Value, json};

use super::*;
use patchboard_kernel::id::Timestamp;

/// Returns an event of a kind with its required members.
fn event(kind: EventKind) -> Value {
    match kind {
        EventKind::Open => json!({"kind": "open", "ts": 0, "topic": "t", "corr": "c-1"}),
        EventKind::Policy => json!({"kind": "policy", "ts": 0, "negotiation_id": "c-1", "policy": {}}),
        EventKind::Propose | EventKind::Counter => {
            json!({"kind": kind, "ts": 0, "from": "a", "ct": "text/plain", "payload_b64": "eA=="})
        }
        EventKind::Evaluate => json!({"kind": "evaluate", "ts": 0, "from": "a", "score": 1, "notes": ""}),
        EventKind::Decide => json!({"kind": "decide", "ts": 0, "by": "a", "ct": "text/plain", "result_b64": "eA=="}),
        EventKind::Abort => json!({"kind": "abort", "ts": 0, "reason": "r"}),
    }
}

#[test]
fn every_pair_of_kinds_is_in_order_or_rejected_with_a_code() {
    use EventKind::{Abort, Counter, Decide, Evaluate, Open, Policy, Propose};
    use NegotiationCode as Code;
    // Kinds that may follow the shortest beginning that ends in a given kind.
    let beginnings: [(&[EventKind], &[EventKind], Code); 8] = [
        (&[], &[Open], Code::NotOpen),
        (&[Open], &[Policy, Abort], Code::NoPolicy),
        (&[Open, Policy], &[Propose, Abort], Code::NoDraft),
        (&[Open, Policy, Propose], &[Propose, Counter, Evaluate, Decide, Abort], Code::Ended),
        (&[Open, Policy, Propose, Counter], &[Propose, Counter, Evaluate, Decide, Abort], Code::Ended),
        (&[Open, Policy, Propose, Evaluate], &[Propose, Counter, Evaluate, Decide, Abort], Code::Ended),
        (&[Open, Policy, Propose, Decide], &[], Code::Ended),
        (&[Open, Abort], &[], Code::Ended),
    ];
    let mut pairs = 0;
    for (beginning, allowed, code) in beginnings {
        let phase = beginning.iter().try_fold(Phase::New, |phase, kind| phase.after(*kind)).expect("it is in order");
        for kind in EventKind::ALL {
            let found = phase.after(*kind);
            pairs += 1;
            if allowed.contains(kind) {
                assert!(found.is_ok(), "{kind} after {beginning:?}: {found:?}");
                continue;
            }
            let expected = match (phase, kind) {
                (Phase::Opened | Phase::Agreed | Phase::Drafted, Open) => Code::AlreadyOpen,
                (Phase::Agreed | Phase::Drafted, Policy) => Code::PolicyAlreadySet,
                _ => code,
            };
            assert_eq!(found, Err(expected), "{kind} after {beginning:?}");
        }
    }
    assert_eq!(pairs, 8 * EventKind::ALL.len());
}

#[test]
fn an_event_has_what_its_kind_has_and_unknown_members_do_not_matter() {
    for kind in EventKind::ALL {
        let mut value = event(*kind);
        let read = Event::parse(&value).expect("an event");
        assert_eq!(read.kind(), *kind);
        value["x-later"] = json!({"deep": [1]});
        assert_eq!(Event::parse(&value), Ok(read), "{kind}");
        let names: Vec<String> = event(*kind).as_object().expect("an object").keys().cloned().collect();
        // `notes` is optional, and a payload has two forms.
        for name in names.iter().filter(|name| !["notes", "payload_b64"].contains(&name.as_str())) {
            let mut lacking = event(*kind);
            lacking.as_object_mut().expect("an object").remove(name);
            let code = Event::parse(&lacking).expect_err("it lacks something").code;
            assert_eq!(code, NegotiationCode::BadEvent, "{kind} without {name}");
        }
    }
    assert!(Event::parse(&json!({"kind": "haggle", "ts": 0})).is_err());
}

fn draft(ct: &str, payload: Value) -> Draft {
    let mut value = json!({"ts": 0, "from": "a", "ct": ct});
    value.as_object_mut().expect("an object").extend(payload.as_object().expect("an object").clone());
    serde_json::from_value(value).expect("a draft")
}

#[test]
fn a_payload_is_read_on_demand_and_kept_as_it_came() {
    let json = draft("application/json", json!({"payload_b64": "eyJhIjogMS4wfQ"}));
    assert_eq!(json.content(), Ok(Content::Json(json!({"a": 1}))));
    assert_eq!(json.to_base64().as_deref(), Ok("eyJhIjogMS4wfQ"), "not even what is left out at its end is added");
    let problem = draft("application/problem+json; charset=utf-8", json!({"payload": {"b": 2, "a": "ü"}}));
    assert_eq!(problem.bytes().as_deref(), Ok("{\"a\":\"ü\",\"b\":2}".as_bytes()));
    let text = draft("text/plain", json!({"payload": "x\n"}));
    assert_eq!((text.content(), text.to_base64().as_deref()), (Ok(Content::Text("x\n".to_owned())), Ok("eAo=")));
    assert_eq!(draft("image/png", json!({"payload_b64": "/w=="})).content(), Ok(Content::Bytes(vec![255])));
    let code = |draft: &Draft| draft.content().expect_err("it cannot be read").code;
    assert_eq!(code(&draft("text/plain", json!({}))), NegotiationCode::BadPayload);
    assert_eq!(code(&draft("text/plain", json!({"payload": "x", "payload_b64": "eA=="}))), NegotiationCode::BadPayload);
    for bad in ["e", "e?==", "eA==eA==", "eB=="] {
        assert_eq!(code(&draft("text/plain", json!({"payload_b64": bad}))), NegotiationCode::BadPayload, "{bad}");
    }
    for bad in ["{", "{\"a\":1,\"a\":2}", &"[".repeat(60)] {
        let draft = Draft { payload_b64: None, payload: Some(json!(bad)), ..draft("text/plain", json!({})) };
        let bytes = draft.bytes().expect("bytes");
        assert_eq!(
            Content::from_bytes("application/json", bytes).expect_err("no JSON").code,
            NegotiationCode::BadJson,
            "{bad}"
        );
    }
    let (most, more) = ("x".repeat(PAYLOAD_BYTES_MAX), "x".repeat(PAYLOAD_BYTES_MAX + 1));
    assert!(draft("text/plain", json!({"payload": most})).content().is_ok());
    assert_eq!(code(&draft("text/plain", json!({"payload": more}))), NegotiationCode::TooLarge);
    assert_eq!(code(&draft("text/plain", json!({"payload_b64": "eHh4".repeat(22_000)}))), NegotiationCode::TooLarge);
}

#[test]
fn a_draft_is_checked_by_a_schema_and_by_expressions() {
    let schema = json!({"type": "object", "required": ["price"], "properties": {"price": {"type": "integer"}}});
    let example = |name: &str, expr: &str, weight| Example { name: name.to_owned(), expr: expr.to_owned(), weight };
    let examples = [example("fair", "draft.price <= 100", 2.0), example("said", "draft.price > 0", 1.0)];
    let checks = Checks::compile(Some(&schema), &examples).expect("they can be used");
    let run = |content: &Content| -> Vec<(String, bool)> {
        checks.run(content, (true, false)).into_iter().map(|check| (check.name, check.passed)).collect()
    };
    let named =
        |passed: [bool; 3]| ["schema", "fair", "said"].map(str::to_owned).into_iter().zip(passed).collect::<Vec<_>>();
    assert_eq!(run(&Content::Json(json!({"price": 100}))), named([true, true, true]));
    assert_eq!(run(&Content::Json(json!({"price": 101}))), named([true, false, true]));
    assert_eq!(run(&Content::Json(json!({}))), named([false, false, false]), "an expression that has no value fails");
    assert_eq!(run(&Content::Text("x".to_owned())), named([false, false, false]));
    let failed = checks.run(&Content::Json(json!({"price": "x"})), (true, false));
    assert!(failed[0].problems[0].starts_with("/price: "), "{:?}", failed[0].problems);
    assert_eq!((failed[0].required, failed[1].required), (true, false));
    assert_eq!(deterministic(&checks.run(&Content::Json(json!({"price": 101})), (true, true))), Some(0.5));
    let code = |schema: Option<&Value>, examples: &[Example]| match Checks::compile(schema, examples) {
        Ok(_) => None,
        Err(why) => Some(why.code),
    };
    assert_eq!(code(Some(&json!({"type": "objekt"})), &[]), Some(NegotiationCode::BadSetup));
    assert_eq!(code(None, &[example("x", "request.y == 1", 1.0)]), Some(NegotiationCode::BadSetup));
    assert_eq!(code(None, &[example("x", "true", -1.0)]), Some(NegotiationCode::BadSetup));
    assert_eq!(code(None, &vec![example("x", "true", 1.0); EXAMPLES_MAX + 1]), Some(NegotiationCode::BadSetup));
}

#[test]
fn a_single_known_score_counts_alone() {
    for (deterministic, confidence, weight, expected) in [
        (Some(1.0), Some(0.5), 0.5, 0.75),
        (Some(0.25), Some(0.75), 0.0, 0.25),
        (Some(0.25), Some(0.75), 1.0, 0.75),
        (Some(0.25), None, 1.0, 0.25),
        (None, Some(0.75), 0.0, 0.75),
        (None, None, 0.5, 0.0),
    ] {
        let found = blend(deterministic, confidence, weight);
        assert!((found - expected).abs() < 1e-12, "{deterministic:?} {confidence:?} {weight}: {found}");
    }
}

#[test]
fn differences_are_counted_and_named() {
    let json = |value: Value| Content::Json(value);
    let text = |text: &str| Content::Text(text.to_owned());
    for (before, after, magnitude, paths) in [
        (json(json!({"a": 1, "b": [2, 3]})), json(json!({"a": 1, "b": [2, 4]})), 1.0 / 3.0, vec!["/b/1"]),
        (json(json!({"a": 1})), json(json!({"a": 1, "b": 2, "c/d": 3})), 2.0 / 3.0, vec!["/b", "/c~1d"]),
        (json(json!({"a": {}})), json(json!({"a": []})), 1.0, vec!["/a"]),
        (json(json!({"0": 1})), json(json!([1])), 1.0, vec![""]),
        (json(json!([1, 2, 3])), json(json!([1])), 2.0 / 3.0, vec!["/1", "/2"]),
        (text("a\nb\nc\nd\n"), text("a\nc\nd\n"), 0.25, vec![""]),
        (text("a\nb\n"), text("b\na\n"), 0.5, vec![""]),
        (text("a"), text("a\n"), 1.0, vec![""]),
        (text(""), text(""), 0.0, vec![]),
        (text("a"), json(json!("a")), 1.0, vec![""]),
    ] {
        let found = delta(&before, &after);
        assert!((found.magnitude - magnitude).abs() < 1e-12, "{before:?} {after:?}: {found:?}");
        assert_eq!(found.changed_paths.iter().map(String::as_str).collect::<Vec<_>>(), paths);
    }
    let many = |of: i64| json(Value::Array((0..1000).map(|n| json!(n + of)).collect()));
    let found = delta(&many(0), &many(1));
    assert_eq!((found.changed_paths.len(), found.more), (PATHS_MAX, 1000 - PATHS_MAX as u64));
    // A patch with that many operations is longer than the whole value.
    assert_eq!(patch(&many(0), &many(1)).expect("JSON")[0]["path"], "");
    assert_eq!(patch(&text("a"), &text("b")), None);
}

/// Returns rounds with these scores, each sufficiently different from the one before.
fn rounds(scores: &[f64]) -> Vec<RoundSummary> {
    let round = |(at, score): (usize, &f64)| RoundSummary {
        started_at: Timestamp(0),
        score: Some(*score),
        is_valid: true,
        magnitude: (at > 0).then_some(0.5),
        tokens: 10,
        invalid_drafts: 0,
        human_choice: None,
    };
    scores.iter().enumerate().map(round).collect()
}

#[test]
fn each_line_of_the_table_decides_and_the_first_that_is_so() {
    let policy = Policy { max_rounds: 4, oscillation_limit: 1, round_timeout_ms: 100, ..Policy::default() };
    let with = |scores: &[f64], change: &dyn Fn(&mut RoundSummary)| {
        let mut rounds = rounds(scores);
        change(rounds.last_mut().expect("a round"));
        rounds
    };
    let said = |scores: &[f64], said: HumanChoice| with(scores, &|last| last.human_choice = Some(said));
    let open = |change: &dyn Fn(&mut RoundSummary)| {
        with(&[0.1, 0.0], &|last| {
            last.score = None;
            change(last);
        })
    };
    let asks = |hitl| Policy { hitl, ..policy };
    let (dear, poor) = (5000, Policy { total_token_budget: Some(29), ..policy });
    let stopped = |reason| RoundAction::Stop(reason);
    let cases: Vec<(&str, Policy, Vec<RoundSummary>, i64, RoundAction)> = vec![
        ("nothing has begun", policy, Vec::new(), 0, RoundAction::Wait),
        ("a round that is not over", policy, open(&|_| ()), 99, RoundAction::Wait),
        ("its time is over", policy, open(&|_| ()), 100, stopped(StopReason::Timeout)),
        (
            "a clock that went back is no time",
            policy,
            open(&|last| last.started_at = Timestamp(1000)),
            0,
            RoundAction::Wait,
        ),
        ("dear before it is over", policy, open(&|last| last.tokens = dear), 0, stopped(StopReason::Budget)),
        ("dear and late", policy, open(&|last| last.tokens = dear), 100, stopped(StopReason::Timeout)),
        ("invalid drafts", policy, open(&|last| last.invalid_drafts = 3), 0, stopped(StopReason::InvalidDrafts)),
        ("fewer of them", policy, open(&|last| last.invalid_drafts = 2), 0, RoundAction::Wait),
        ("another round", policy, rounds(&[0.1]), 1000, RoundAction::Continue),
        ("good enough", policy, rounds(&[0.8]), 0, RoundAction::Accept),
        ("what doubles lose is nothing", policy, rounds(&[0.799_999_999_9]), 0, RoundAction::Accept),
        ("good but not valid", policy, with(&[0.9], &|last| last.is_valid = false), 0, RoundAction::Continue),
        ("good and dear", policy, with(&[0.9], &|last| last.tokens = dear), 0, RoundAction::Accept),
        ("good in the last round", policy, rounds(&[0.1, 0.2, 0.3, 0.9]), 0, RoundAction::Accept),
        ("good after turns", policy, rounds(&[0.1, 0.2, 0.1, 0.9]), 0, RoundAction::Accept),
        (
            "good and hardly different",
            policy,
            with(&[0.1, 0.9], &|last| last.magnitude = Some(0.0)),
            0,
            RoundAction::Accept,
        ),
        ("dear", policy, with(&[0.1], &|last| last.tokens = dear), 0, stopped(StopReason::Budget)),
        ("as dear as may be", policy, with(&[0.1], &|last| last.tokens = 4000), 0, RoundAction::Continue),
        ("dear in all", poor, rounds(&[0.1, 0.2, 0.3]), 0, stopped(StopReason::Budget)),
        ("dear after turns", poor, rounds(&[0.3, 0.2, 0.3, 0.2]), 0, stopped(StopReason::Budget)),
        ("one turn", policy, rounds(&[0.1, 0.3, 0.2]), 0, RoundAction::Continue),
        ("two turns", policy, rounds(&[0.3, 0.1, 0.3, 0.2]), 0, stopped(StopReason::Oscillation)),
        (
            "hardly different",
            policy,
            with(&[0.2, 0.2], &|last| last.magnitude = Some(0.1)),
            0,
            stopped(StopReason::NoProgress),
        ),
        (
            "hardly different and worse",
            policy,
            with(&[0.3, 0.2], &|last| last.magnitude = Some(0.1)),
            0,
            stopped(StopReason::NoProgress),
        ),
        (
            "hardly different and not better than doubles lose",
            policy,
            with(&[0.2, 0.200_000_000_1], &|last| last.magnitude = Some(0.1)),
            0,
            stopped(StopReason::NoProgress),
        ),
        (
            "hardly different and better",
            policy,
            with(&[0.1, 0.2], &|last| last.magnitude = Some(0.1)),
            0,
            RoundAction::Continue,
        ),
        (
            "hardly different in the last round",
            policy,
            with(&[0.1, 0.2, 0.3, 0.3], &|last| last.magnitude = Some(0.1)),
            0,
            stopped(StopReason::NoProgress),
        ),
        ("no more rounds", policy, rounds(&[0.1, 0.2, 0.3, 0.4]), 0, stopped(StopReason::MaxRounds)),
        (
            "a pause before it is taken",
            asks(Hitl::PauseOnFinalAccept),
            rounds(&[0.9]),
            0,
            RoundAction::Pause(PauseReason::FinalAccept),
        ),
        ("no pause between", asks(Hitl::PauseOnFinalAccept), rounds(&[0.1]), 0, RoundAction::Continue),
        (
            "a pause between",
            asks(Hitl::PauseBetweenRounds),
            rounds(&[0.1]),
            0,
            RoundAction::Pause(PauseReason::BetweenRounds),
        ),
        (
            "and before it is taken",
            asks(Hitl::PauseBetweenRounds),
            rounds(&[0.9]),
            0,
            RoundAction::Pause(PauseReason::FinalAccept),
        ),
        (
            "nobody is asked in vain",
            asks(Hitl::PauseBetweenRounds),
            rounds(&[0.1, 0.2, 0.3, 0.4]),
            0,
            stopped(StopReason::MaxRounds),
        ),
        ("go on", asks(Hitl::PauseBetweenRounds), said(&[0.1], HumanChoice::Continue), 0, RoundAction::Continue),
        (
            "go on although it is good",
            asks(Hitl::PauseOnFinalAccept),
            said(&[0.9], HumanChoice::Continue),
            0,
            RoundAction::Continue,
        ),
        (
            "go on although there is no more",
            asks(Hitl::PauseOnFinalAccept),
            said(&[0.1, 0.2, 0.3, 0.9], HumanChoice::Continue),
            0,
            stopped(StopReason::MaxRounds),
        ),
        (
            "take it although it is not",
            asks(Hitl::PauseBetweenRounds),
            said(&[0.1], HumanChoice::Accept),
            0,
            RoundAction::Accept,
        ),
        ("stop", asks(Hitl::PauseBetweenRounds), said(&[0.9], HumanChoice::Stop), 0, stopped(StopReason::Hitl)),
    ];
    for (name, policy, rounds, now, expected) in cases {
        assert_eq!(next_action(&policy, &rounds, 3, Timestamp(now)), expected, "{name}");
    }
}

#[test]
fn scores_turn_where_a_rise_follows_a_fall_or_the_other_way() {
    for (scores, turns) in [
        (&[][..], 0),
        (&[0.5], 0),
        (&[0.1, 0.2, 0.3], 0),
        (&[0.1, 0.2, 0.1], 1),
        (&[0.2, 0.6, 0.4, 0.4, 0.7], 2),
        (&[0.2, 0.2, 0.2], 0),
        (&[0.1, 0.2, 0.1, 0.2, 0.1], 3),
    ] {
        assert_eq!(oscillations(scores), turns, "{scores:?}");
    }
}

#[test]
fn wishes_make_a_policy_stricter_within_its_bounds() {
    let wish = |value: Value| -> Preferences { serde_json::from_value(value).expect("preferences") };
    let profile =
        Profile { strictest: wish(json!({"max_rounds": 3, "hitl": "PauseOnFinalAccept"})), ..Profile::default() };
    let a = wish(json!({"max_rounds": 1, "score_threshold": 7, "diff_tolerance": 0.9, "round_timeout_ms": 5,
        "token_budget_per_round": 0, "total_token_budget": 9000, "oscillation_limit": 1, "hitl": "PauseBetweenRounds",
        "scoring": {"llm_weight": 0.25, "require_schema_valid": false}}));
    let b = wish(json!({"max_rounds": 50, "score_threshold": 0.1, "total_token_budget": 8000}));
    let found = effective_policy(&profile, [&a, &b]);
    let scoring = Scoring { llm_weight: 0.25, ..Scoring::default() };
    let expected = Policy {
        max_rounds: 3,
        score_threshold: 1.0,
        diff_tolerance: 0.5,
        round_timeout_ms: 1000,
        token_budget_per_round: 1,
        total_token_budget: Some(8000),
        oscillation_limit: 1,
        hitl: Hitl::PauseOnFinalAccept,
        scoring,
    };
    assert_eq!(found, expected);
    assert_eq!(effective_policy(&profile, []), Policy::default());
    assert_eq!(found.validation_errors(), [""; 0]);
    let bad = Policy { max_rounds: 0, score_threshold: 7.0, ..Policy::default() };
    assert_eq!(bad.validation_errors().len(), 2, "{:?}", bad.validation_errors());
}
