//! Pipelined requests of an agent: their order, and the read set that they are judged by.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::ways::{Then, way};
use super::{Agent, directory};

/// Sends several tool calls in one write.
fn send(agent: &mut Agent, calls: &[(&str, Value)]) {
    let mut lines = String::new();
    for (tool, arguments) in calls {
        agent.asked += 1;
        let params = json!({"name": tool, "arguments": arguments});
        let message = json!({"jsonrpc": "2.0", "id": agent.asked, "method": "tools/call", "params": params});
        lines.push_str(&format!("{message}\n"));
    }
    agent.stdin.as_mut().expect("it is open").write_all(lines.as_bytes()).expect("it reads");
}

/// Returns the codes of the next `count` answers, sorted by id; empty for successes.
fn codes(agent: &mut Agent, count: usize) -> Vec<String> {
    let mut answers: Vec<Value> = (0..count).map(|_| agent.hear()).collect();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    let code = |answer: &Value| answer["result"]["structuredContent"]["code"].as_str().unwrap_or_default().to_owned();
    answers.iter().map(code).collect()
}

/// Returns an agent behind a proxy that delays requests containing `request`, and answers to requests containing
/// `answer`.
fn held_up(directory: &Path, request: &'static str, answer: &'static str) -> Agent {
    let mut first = Agent::new(directory, "t", &[]);
    first.does("list", &json!({}));
    let late = |text: &str, what: &str| {
        if !what.is_empty() && text.contains(what) {
            std::thread::sleep(Duration::from_millis(600));
        }
        Then::Arrives
    };
    way(directory, move |text| late(text, request), move |text| late(text, answer));
    Agent::new(directory, "t", &[])
}

#[test]
fn a_view_is_no_excuse_for_an_edit_that_was_sent_with_it() {
    let directory = directory();
    let mut agent = held_up(directory.path(), "old_str", "");
    let edit = || ("str_replace", Agent::replaces("return 1", "return 2"));
    send(&mut agent, &[("view", json!({"path": "a.py"})), edit()]);
    assert_eq!(codes(&mut agent, 2), ["", "unseen_target"], "it was not answered when the edit was sent");
    // The answered view is in the read set.
    send(&mut agent, &[edit()]);
    assert_eq!(codes(&mut agent, 1), [""]);
    agent.leaves();
}

#[test]
fn edits_that_are_sent_together_are_made_in_their_order() {
    let directory = directory();
    let mut agent = held_up(directory.path(), "return-2", "");
    agent.does("view", &json!({"path": "a.py"}));
    let edits = (1..=12).map(|at| {
        let (from, to) = (format!("return {at}\n"), format!("return {}\n", at + 1));
        ("str_replace", json!({"path": "a.py", "old_str": from, "new_str": to, "intent": format!("return-{at}")}))
    });
    send(&mut agent, &edits.collect::<Vec<_>>());
    assert_eq!(codes(&mut agent, 12), [""; 12]);
    let text = std::fs::read_to_string(directory.path().join("a.py")).expect("a file");
    assert!(text.ends_with("    return 13\n"), "{text}");
    agent.leaves();
}

#[test]
fn the_answer_of_a_cancelled_request_counts_as_unread() {
    let directory = directory();
    std::fs::write(directory.path().join("b.txt"), "b\n").expect("a file");
    let mut agent = held_up(directory.path(), "", r#""path":"a.py""#);
    send(&mut agent, &[("view", json!({"path": "a.py"}))]);
    std::thread::sleep(Duration::from_millis(300));
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": agent.asked}});
    writeln!(agent.stdin.as_mut().expect("it is open"), "{cancelled}").expect("it reads");
    // The first answer belongs to the next request.
    assert!(agent.does("view", &json!({"path": "b.txt"})).contains('b'));
    let edit = Agent::replaces("return 1", "return 2");
    agent.refuses("unseen_target", "str_replace", &edit);
    agent.does("str_replace", &edit);
    agent.leaves();
}
