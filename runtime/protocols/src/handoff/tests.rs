//! Edge cases of handoff moves, routes and follow-ups; the published vectors are in `tests/it/sw4rm.rs`.

use std::fmt;

use serde_json::{Value, json};

use super::*;
use patchboard_kernel::blueprint::DELAY_MS_MAX;

fn request(more: Value) -> Request {
    let mut request = json!({
        "request_id": "h1", "from_agent": "ada", "reason": "lunch", "timeout_ms": 1000,
        "context": {"content_type": "text/plain", "content": "half done"},
    });
    request.as_object_mut().expect("an object").extend(more.as_object().expect("members").clone());
    serde_json::from_value(request).expect("a request")
}

fn agents(agents: Value) -> Agents {
    serde_json::from_value(agents).expect("agents")
}

fn code<T: fmt::Debug>(refused: Result<T, HandoffError>) -> HandoffCode {
    refused.expect_err("it is refused").code
}

#[test]
fn there_are_four_moves_and_what_is_over_stays_so() {
    let mut legal = 0;
    for from in HandoffState::ALL {
        for to in HandoffState::ALL {
            match check_transition(*from, *to) {
                Ok(()) => legal += 1,
                Err(code) => assert_eq!(code == HandoffCode::Terminal, from.is_terminal(), "{from} {to}"),
            }
        }
    }
    assert_eq!(legal, TRANSITIONS.len());
    let over: Vec<&HandoffState> = HandoffState::ALL.iter().filter(|state| state.is_terminal()).collect();
    assert_eq!(over, [&HandoffState::Rejected, &HandoffState::Completed, &HandoffState::Expired]);
}

#[test]
fn only_who_was_asked_answers_and_only_who_can_accepts() {
    let asked = || Handoff::new(request(json!({"capabilities_required": ["rust"]}))).offer("bob");
    let can = BTreeSet::from(["rust".to_owned(), "go".to_owned()]);
    let accepted = asked().accept("bob", &can).expect("it may");
    assert_eq!(accepted.clone().moved(HandoffState::Completed).map(|done| done.state), Ok(HandoffState::Completed));
    assert_eq!(code(accepted.clone().reject("bob", "no")), HandoffCode::IllegalTransition);
    assert_eq!(
        code(accepted.moved(HandoffState::Completed).expect("it is").moved(HandoffState::Expired)),
        HandoffCode::Terminal
    );
    assert_eq!(code(asked().accept("cyd", &can)), HandoffCode::NotAddressed);
    assert_eq!(code(Handoff::new(request(json!({}))).accept("bob", &can)), HandoffCode::NotAddressed);
    assert_eq!(code(asked().accept("bob", &BTreeSet::new())), HandoffCode::Incapable);
    assert_eq!(code(asked().reject("bob", " \n")), HandoffCode::ReasonMissing);
    let rejected = asked().reject("bob", "no time").expect("it may");
    assert_eq!(rejected.rejection, Some(HandoffRejection { by: "bob".to_owned(), reason: "no time".to_owned() }));
}

#[test]
fn a_handoff_request_needs_an_existing_task_and_a_new_id() {
    let asked = request(json!({"task": "ticket"}));
    let tasks = BTreeSet::from(["ticket".to_owned()]);
    assert_eq!(check_request(&asked, &[], &tasks), Ok(()));
    assert_eq!(code(check_request(&asked, &[], &BTreeSet::new())), HandoffCode::UnknownTask);
    let there = Handoff::new(asked.clone());
    assert_eq!(code(check_request(&asked, std::slice::from_ref(&there), &tasks)), HandoffCode::IllegalTransition);
    assert_eq!(
        code(check_request(&asked, &[there.moved(HandoffState::Expired).expect("it may")], &tasks)),
        HandoffCode::Terminal
    );
    let bad = request(json!({"task": "ticket", "context": {"content_type": "image/png", "content": "%"}}));
    assert_eq!(code(check_request(&bad, &[], &tasks)), HandoffCode::BadContext);
}

#[test]
fn a_route_goes_to_the_one_of_those_who_can_who_can_do_least_beside() {
    let all = agents(
        json!({"ada": ["rust"], "bob": ["rust", "go", "c"], "cyd": ["rust", "go"], "dan": ["rust", "c"], "eve": ["go"]}),
    );
    let routed = |more: Value, refused: &[&str]| {
        let refused: Vec<String> = refused.iter().map(|name| (*name).to_owned()).collect();
        route(&request(more), &refused, &all).map_err(|why| why.code)
    };
    let rust = json!({"capabilities_required": ["rust"]});
    assert_eq!(routed(rust.clone(), &[]), Ok("cyd"), "dan can do as much, and comes later");
    assert_eq!(routed(rust.clone(), &["cyd"]), Ok("dan"));
    assert_eq!(routed(rust, &["cyd", "dan", "bob"]), Err(HandoffCode::NoRoute), "nobody is asked whose work it is");
    assert_eq!(routed(json!({}), &[]), Ok("eve"));
    assert_eq!(routed(json!({"capabilities_required": ["rust", "c", "rust"]}), &[]), Ok("dan"));
    assert_eq!(routed(json!({"capabilities_required": ["cobol"]}), &[]), Err(HandoffCode::NoRoute));
    // A request for a named agent is routed to that agent, or rejected.
    assert_eq!(routed(json!({"to_agent": "bob"}), &[]), Ok("bob"));
    assert_eq!(routed(json!({"to_agent": "zoe"}), &[]), Err(HandoffCode::NoRoute));
    assert_eq!(routed(json!({"to_agent": "ada"}), &[]), Err(HandoffCode::NoRoute));
    assert_eq!(routed(json!({"to_agent": "eve", "capabilities_required": ["c"]}), &[]), Err(HandoffCode::NoRoute));
    // After that agent has refused, others are eligible.
    assert_eq!(routed(json!({"to_agent": "eve"}), &["eve"]), Ok("cyd"));
}

#[test]
fn pending_handoffs_are_ordered_by_priority_and_age() {
    let asked = |id: &str, priority: i32| Handoff::new(request(json!({"request_id": id, "priority": priority})));
    let accepted = asked("z", 9).offer("bob").accept("bob", &BTreeSet::new()).expect("it may");
    let all = [
        asked("a", 0).offer("bob"),
        asked("b", 7).offer("bob"),
        asked("c", -1).offer("bob"),
        asked("d", 7).offer("bob"),
        asked("e", 8).offer("cyd"),
        asked("f", 8),
        accepted,
    ];
    let ids: Vec<&str> = pending(&all, "bob").iter().map(|handoff| handoff.request.request_id.as_str()).collect();
    assert_eq!(ids, ["b", "d", "a", "c"]);
    assert_eq!(find(&all, "e").map(|handoff| handoff.to.as_deref()), Ok(Some("cyd")));
    assert_eq!(code(find(&all, "nope")), HandoffCode::Unknown);
}

#[test]
fn rejecting_agents_are_skipped_and_a_person_is_asked_in_the_end() {
    let all = agents(json!({"ada": [], "bob": [], "cyd": []}));
    let first = Handoff::new(request(json!({"to_agent": "cyd"})));
    assert_eq!(next_action(&first, &all, 0), HandoffAction::Offer { to: "cyd".to_owned() });
    let first = first.offer("cyd");
    assert_eq!(next_action(&first, &all, 0), HandoffAction::Nothing);
    let first = first.reject("cyd", "busy").expect("it may");
    assert_eq!(next_action(&first, &all, 0), HandoffAction::Retry { to: "bob".to_owned() });
    let second = first.next_attempt("bob");
    assert_eq!(
        (second.request.request_id.as_str(), second.first.as_deref(), second.attempt, second.tried.as_slice()),
        ("h1.2", Some("h1"), 2, ["cyd".to_owned()].as_slice())
    );
    let third = second.clone().reject("bob", "never").expect("it may");
    let HandoffAction::Escalate { why } = next_action(&third, &all, 0) else { panic!("nobody is left") };
    assert!(why.contains("`h1.2`") && why.ends_with("the last one said: never"), "{why}");
    assert_eq!(third.next_attempt("cyd").request.request_id, "h1.3");
    let taken = second.accept("bob", &BTreeSet::new()).expect("it may");
    assert_eq!(next_action(&taken, &all, 0), HandoffAction::Transfer { to: "bob".to_owned() });
    assert_eq!(next_action(&taken.moved(HandoffState::Completed).expect("it may"), &all, 0), HandoffAction::Nothing);
}

#[test]
fn handoffs_end_when_superseded_by_another_owner_or_request() {
    let here = TaskStatus { owner: Some("ada"), under_way: None };
    let gone = TaskStatus { owner: Some("cyd"), under_way: None };
    let twice = TaskStatus { owner: Some("ada"), under_way: Some("h2") };
    let new = Handoff::new(request(json!({"task": "ticket"})));
    let asked = new.clone().offer("bob");
    let refused = asked.clone().reject("bob", "busy").expect("it may");
    let late = asked.clone().moved(HandoffState::Expired).expect("it may");
    let taken = asked.clone().accept("bob", &BTreeSet::new()).expect("it may");
    let done = taken.clone().moved(HandoffState::Completed).expect("it may");
    let all = [&new, &asked, &refused, &late, &taken, &done];
    assert!(all.iter().all(|handoff| superseded(handoff, here).is_none()));
    let reasons = |work: TaskStatus<'_>| all.map(|handoff| superseded(handoff, work));
    let is_gone = Some("`ticket` is not the work of `ada` any more".to_owned());
    assert_eq!(reasons(gone), [is_gone.clone(), is_gone.clone(), is_gone.clone(), is_gone, None, None]);
    let is_twice = Some("`ticket` is being handed over already, by `h2`".to_owned());
    let asked_goes_on = None;
    assert_eq!(reasons(twice), [is_twice.clone(), asked_goes_on, is_twice.clone(), is_twice, None, None]);
    assert!(superseded(&new, TaskStatus::default()).is_some(), "nobody hands over what is not there");
}

#[test]
fn expired_handoffs_are_retried_and_then_escalated() {
    let all = agents(json!({"ada": [], "bob": []}));
    let mut handoff = Handoff::new(request(json!({}))).offer("bob").moved(HandoffState::Expired).expect("it may");
    for attempt in 1..=3 {
        assert_eq!(handoff.attempt, attempt);
        let asked_again = next_action(&handoff, &all, 2);
        assert_eq!(asked_again == HandoffAction::Retry { to: "bob".to_owned() }, attempt <= 2, "{asked_again:?}");
        handoff = handoff.next_attempt("bob").moved(HandoffState::Expired).expect("it may");
    }
    let HandoffAction::Escalate { why } = next_action(&handoff, &all, 2) else {
        panic!("it was asked for often enough")
    };
    assert_eq!(why, "`h1.4` was asked for 4 times and not answered in time");
}

#[test]
fn a_context_is_what_its_type_says_and_comes_back_as_it_was() {
    for (content_type, bytes) in [
        ("application/json", r#"{"a":[1,2.5,"ü"]}"#.as_bytes()),
        ("application/ld+json; charset=utf-8", b"[]"),
        ("text/markdown", "# Hälfte\r\n".as_bytes()),
        ("application/octet-stream", &[0, 255, 1]),
        ("image/png", b""),
    ] {
        let context = Context::from_bytes(content_type, bytes).expect("it can be read");
        assert_eq!(context.bytes().as_deref(), Ok(bytes), "{content_type}");
    }
    for (content_type, bytes) in
        [("application/json", b"{".as_slice()), ("application/json", br#"{"a":1,"a":2}"#), ("text/plain", &[0xff])]
    {
        assert_eq!(code(Context::from_bytes(content_type, bytes)), HandoffCode::BadContext, "{content_type}");
    }
    for (content_type, content) in
        [("text/plain", json!(1)), ("image/png", json!("no base64!")), ("image/png", json!({}))]
    {
        let context = Context { content_type: content_type.to_owned(), content };
        assert_eq!(code(context.bytes()), HandoffCode::BadContext, "{content_type}");
    }
}

#[test]
fn a_request_has_what_it_needs_and_no_more_than_it_may() {
    assert_eq!(u64::try_from(TIMEOUT_MS_MAX), Ok(DELAY_MS_MAX), "an expiry is a rule's delay");
    assert_eq!(request(json!({})).check(), Ok(()));
    let long = |chars: usize| "x".repeat(chars);
    for more in [
        json!({"request_id": ""}),
        json!({"from_agent": " "}),
        json!({"reason": ""}),
        json!({"to_agent": long(NAME_CHARS_MAX + 1)}),
        json!({"reason": long(REASON_CHARS_MAX + 1)}),
        json!({"capabilities_required": vec!["x"; CAPABILITIES_MAX + 1]}),
        json!({"capabilities_required": [""]}),
        json!({"timeout_ms": 0}),
        json!({"timeout_ms": TIMEOUT_MS_MAX + 1}),
        json!({"context": {"content_type": "text/plain", "content": long(CONTENT_BYTES_MAX)}}),
    ] {
        assert_eq!(request(more.clone()).check().map_err(|why| why.code), Err(HandoffCode::BadRequest), "{more}");
    }
    let wrong = json!({"context": {"content_type": "image/png", "content": "?"}});
    assert_eq!(request(wrong).check().map_err(|why| why.code), Err(HandoffCode::BadContext));
}
