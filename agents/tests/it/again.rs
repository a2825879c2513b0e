//! Further attempts of one invocation: no request is sent twice.

use std::collections::BTreeSet;

use patchboard_agents::config::Model;
use patchboard_endpoint::{Endpoint, ScriptedResponse};
use patchboard_kernel::digest::sha256;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::scheduler::AttemptHistory;
use patchboard_llm::{Chat, Variables};
use patchboard_runtime::agent::{Agent as _, Call, Permit};
use serde_json::{Value, json};

use crate::support::{call, seat};
use crate::tools::{Bench, Log, logged};

/// Returns the attempt after these failures.
fn attempt(failures: &[FailureCode]) -> Call {
    after(AttemptHistory { failures: failures.to_vec(), rejected_views: Vec::new() })
}

fn after(past: AttemptHistory) -> Call {
    let fields = json!({"agent": "llm", "writes": [{"path": "/a"}], "limits": {"reply_tokens": 100},
        "files": {"iterations": 3}});
    let number = u32::try_from(past.failures.len()).expect("few attempts");
    let mut call = call("w", seat(fields), "What is shown.", number);
    (call.decided.attempt, call.decided.earlier_attempts) = (number + 1, past);
    Call { permit: Some(Permit::ungated()), ..call }
}

fn empty() -> ScriptedResponse {
    ScriptedResponse::complete("", "stop", Value::Null)
}

fn cut_off() -> ScriptedResponse {
    ScriptedResponse::complete("[{", "length", Value::Null)
}

fn unreadable() -> ScriptedResponse {
    ScriptedResponse::Say(200, "", "<html>".to_owned())
}

fn ok() -> ScriptedResponse {
    ScriptedResponse::complete("[]", "stop", Value::Null)
}

/// Returns the last message of a request.
fn last(body: &Value) -> &Value {
    body["messages"].as_array().and_then(|all| all.last()).expect("messages")
}

#[tokio::test]
async fn the_next_request_says_what_was_wrong_and_has_more_room() {
    for (act, code, room, word) in [
        (cut_off(), FailureCode::Truncated, 200, "cut off"),
        (empty(), FailureCode::Empty, 200, "empty"),
        (unreadable(), FailureCode::Protocol, 100, "could not be read"),
        (ScriptedResponse::BreakOff, FailureCode::Protocol, 100, "could not be read"),
    ] {
        let endpoint = Endpoint::new(vec![act, ok()]);
        let chat = Chat::new(&Model::new(endpoint.url.clone(), "m"), &Variables::new()).expect("a client");
        assert_eq!(chat.call(&attempt(&[])).await.expect_err("no reply").code, code);
        chat.call(&attempt(&[code])).await.expect("a reply");
        let sent = endpoint.bodies();
        assert_eq!(last(&sent[1])["role"], "user");
        let said = last(&sent[1])["content"].as_str().expect("words");
        assert!(said.contains(word), "{said}");
        assert_eq!((&sent[0]["max_tokens"], &sent[1]["max_tokens"]), (&json!(100), &json!(room)));
        assert_eq!(
            sent[1]["messages"].as_array().map(|all| all[..2].to_vec()),
            sent[0]["messages"].as_array().cloned()
        );
    }
}

#[tokio::test]
async fn the_same_bytes_are_never_sent_twice_for_one_invocation() {
    let acts = vec![empty(), cut_off(), cut_off(), unreadable(), empty(), ok()];
    let endpoint = Endpoint::new(acts);
    let model = Model { context: 1000, ..Model::new(endpoint.url.clone(), "m") };
    let chat = Chat::new(&model, &Variables::new()).expect("a client");
    let mut failures = Vec::new();
    for _ in 0..5 {
        failures.push(chat.call(&attempt(&failures)).await.expect_err("no reply").code);
    }
    chat.call(&attempt(&failures)).await.expect("a reply");
    let sent = endpoint.bodies();
    let rooms: Vec<u64> = sent.iter().map(|body| body["max_tokens"].as_u64().expect("a limit")).collect();
    assert_eq!(rooms, [100, 200, 400, 800, 800, 1000], "as much as the model has, at most");
    let different: BTreeSet<String> = sent.iter().map(Value::to_string).collect();
    assert_eq!(different.len(), 6);
}

#[tokio::test]
async fn a_view_with_a_rejected_reply_is_sent_with_a_notice() {
    let endpoint = Endpoint::new(vec![ok(), ok(), ok(), ok(), cut_off(), ok()]);
    let chat = Chat::new(&Model::new(endpoint.url.clone(), "m"), &Variables::new()).expect("a client");
    let (view, other) = (attempt(&[]).view_hash, sha256(b"another view"));
    let mut past = AttemptHistory::default();
    for refused in [view, view, other, view] {
        chat.call(&after(past.clone())).await.expect("a reply");
        past.rejected_views.push(refused);
    }
    past.failures.push(chat.call(&after(past.clone())).await.expect_err("cut off").code);
    chat.call(&after(past)).await.expect("a reply");
    let sent = endpoint.bodies();
    // The fourth request repeats the third: the rejection in between was of another view.
    assert_eq!(sent[2], sent[3]);
    let different: BTreeSet<String> = sent.iter().map(Value::to_string).collect();
    assert_eq!(different.len(), 5);
    assert!(last(&sent[1])["content"].as_str().expect("words").starts_with("Your last reply to this was refused"));
}

#[tokio::test]
async fn a_request_that_was_not_taken_may_be_sent_again_as_it_was() {
    let endpoint = Endpoint::new(vec![ScriptedResponse::Say(429, "", String::new()), ok()]);
    let chat = Chat::new(&Model::new(endpoint.url.clone(), "m"), &Variables::new()).expect("a client");
    assert!(chat.call(&attempt(&[])).await.expect_err("later").deferral.is_some());
    chat.call(&attempt(&[])).await.expect("a reply");
    let sent = endpoint.bodies();
    assert_eq!(sent[0], sent[1]);
}

#[tokio::test]
async fn an_attempt_with_tools_starts_over_and_says_so() {
    let endpoint = Endpoint::new(vec![ScriptedResponse::call_tools(&[("a", "echo", "{}")], 1, 1), cut_off(), ok()]);
    let chat = Chat::new(&Model::new(endpoint.url.clone(), "m"), &Variables::new()).expect("a client");
    let log = Log::default();
    let mut bench = Bench { log: log.clone(), ..Bench::default() };
    let failed = chat.run_tool_loop(&attempt(&[]), &mut bench).await.expect_err("cut off").code;
    assert_eq!(failed, FailureCode::Truncated);
    chat.run_tool_loop(&attempt(&[failed]), &mut bench).await.expect("a reply");
    let sent = endpoint.bodies();
    assert_eq!(logged(&log).iter().filter(|what| what.starts_with("echo")).count(), 1);
    assert!(last(&sent[2])["content"].as_str().expect("words").contains("cut off"));
    assert_eq!(sent[2]["max_tokens"], 200);
}
