//! Replies by attempt, bound names, deliberate failures and faulty scripts.

use serde_json::json;

use super::*;

fn seat(script: Value) -> Worker {
    serde_json::from_value(json!({"agent": "script", "script": script})).expect("a seat")
}

fn answer(seat: &Worker, occurrence: u32) -> CallResult {
    turn(seat, occurrence, None)?.answer
}

fn text(seat: &Worker, occurrence: u32) -> String {
    answer(seat, occurrence).expect("a reply").text
}

#[test]
fn a_bound_name_is_filled_in() {
    let seat = seat(json!([
        {
            "patch": [{"op": "add", "path": "/notes/{note}/of", "value": {"path": "{note} of {other} {not"}}],
            "expand": ["/notes/{note}", {"at": "/{note}", "from": "{note}"}],
        },
        {"tools": [{"name": "view", "arguments": {"path": "{note}.py"}}], "reply": [{"op": "remove", "path": "/{note}"}]},
    ]));
    let bound = json!({"note": "a/b{other}", "other": "x"});
    let bound = bound.as_object();
    let answer = turn(&seat, 0, bound).and_then(|turn| turn.answer).expect("a reply");
    let expected = json!({
        "patch": [{"op": "add", "path": "/notes/a~1b{other}/of", "value": {"path": "a/b{other} of x {not"}}],
        "expand": ["/notes/a~1b{other}", {"at": "/a~1b{other}", "from": "a/b{other}"}],
    });
    assert_eq!(serde_json::from_str::<Value>(&answer.text).expect("JSON"), expected);
    let turn = turn(&seat, 1, bound).expect("a turn");
    assert_eq!(turn.steps[0].arguments["path"], "a/b{other}.py");
    let expected = json!([{"op": "remove", "path": "/a~1b{other}"}]);
    assert_eq!(serde_json::from_str::<Value>(&turn.answer.expect("a reply").text).expect("JSON"), expected);
}

#[test]
fn the_nth_attempt_gets_the_nth_reply_and_the_last_repeats() {
    let seat = seat(json!([[], {"patch": []}, {"text": "not json"}]));
    assert_eq!(text(&seat, 0), "[]");
    assert_eq!(text(&seat, 1), r#"{"patch":[]}"#);
    for occurrence in [2, 3, u32::MAX] {
        assert_eq!(text(&seat, occurrence), "not json");
    }
}

#[test]
fn a_script_may_fail_on_purpose() {
    let seat = seat(json!([{"fail": "rate_limited"}, {"fail": "crashed", "message": "bang"}]));
    assert_eq!(answer(&seat, 0).expect_err("fails").code, FailureCode::RateLimited);
    assert_eq!(answer(&seat, 1).expect_err("fails"), Failure::new(FailureCode::Crashed, "bang"));
}

#[test]
fn a_script_that_cannot_be_followed_is_reported_before_and_at_the_call() {
    for (script, word) in [
        (json!([]), "empty"),
        (json!([3]), "neither"),
        (json!([{"text": 1}]), "text"),
        (json!([{"fail": "boredom"}]), "boredom"),
        (json!([{"fail": "timeout", "when": "now"}]), "when"),
        (json!([{"tools": [{"name": "view"}]}]), "reply"),
        (json!([{"tools": "view", "reply": []}]), "tools"),
        (json!([{"tools": [{"name": "view", "argument": {}}], "reply": []}]), "argument"),
        (json!([{"tools": [{"name": "view", "arguments": []}], "reply": []}]), "tools"),
        (json!([{"tools": [{"name": "view", "retry": 101}], "reply": []}]), "at most 100"),
        (json!([{"tools": [], "reply": 3}]), "neither"),
    ] {
        let seat = seat(script);
        assert!(config_error(&seat).expect("a problem").contains(word), "{seat:?}");
        assert_eq!(answer(&seat, 0).expect_err("fails").code, FailureCode::NotConfigured);
    }
    assert_eq!(config_error(&seat(json!([[]]))), None);
    let uses = json!([{"tools": [{"name": "view"}], "reply": []}]);
    assert!(config_error(&seat(uses.clone())).expect("a problem").contains("has no files"));
    let with_files = json!({"agent": "script", "script": uses, "files": {}});
    assert_eq!(config_error(&serde_json::from_value(with_files).expect("a seat")), None);
}
