//! Malformed messages and impossible requests: each request with an id gets an answer.

use std::io::Write as _;

use serde_json::{Value, json};

use super::{Agent, directory};

fn says(agent: &mut Agent, line: &str) {
    writeln!(agent.stdin.as_mut().expect("it is open"), "{line}").expect("it reads");
}

/// Returns the error for a line: id, JSON-RPC code, problem code and message.
fn error(agent: &mut Agent, line: &str) -> (Value, i64, String, String) {
    says(agent, line);
    let answer = agent.hear();
    let error = &answer["error"];
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{line:.200}: {answer:.200}")).to_owned();
    let number = error["code"].as_i64().unwrap_or_else(|| panic!("{line:.200}: {answer:.200}"));
    assert_eq!((&answer["jsonrpc"], answer.as_object().map(|it| it.contains_key("id"))), (&json!("2.0"), Some(true)));
    (answer["id"].clone(), number, text(&error["data"]["code"]), text(&error["message"]))
}

#[test]
fn invalid_messages_get_an_error_answer() {
    let directory = directory();
    let mut agent = Agent::new(directory.path(), "t", &[]);
    let ping = json!({"jsonrpc": "2.0", "id": 8, "method": "ping"});
    for (line, id, number, code, part) in [
        ("nonsense", json!(null), -32700, "not_json", "one line of JSON"),
        (r#"{"jsonrpc": "2.0", "#, json!(null), -32700, "not_json", "one line of JSON"),
        (format!("[{ping}]").as_str(), json!(null), -32600, "bad_body", "a line of its own"),
        ("[]", json!(null), -32600, "bad_body", "batches"),
        ("5", json!(null), -32600, "bad_body", "an object"),
        (r#""x""#, json!(null), -32600, "bad_body", "an object"),
        ("null", json!(null), -32600, "bad_body", "an object"),
        ("{}", json!(null), -32600, "bad_body", "jsonrpc"),
        (r#"{"jsonrpc":"2.0"}"#, json!(null), -32600, "bad_body", "has a method"),
        (r#"{"jsonrpc":"2.0","id":3}"#, json!(3), -32600, "bad_body", "has a method"),
        (r#"{"id":"a","method":"ping"}"#, json!("a"), -32600, "bad_body", "jsonrpc"),
        (r#"{"jsonrpc":"2.0","id":4,"method":5}"#, json!(4), -32600, "bad_body", "is a text"),
        (r#"{"jsonrpc":"2.0","method":5}"#, json!(null), -32600, "bad_body", "is a text"),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, json!(null), -32600, "bad_body", "whole number"),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, json!(null), -32600, "bad_body", "whole number"),
        (r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":[]}"#, json!(5), -32600, "bad_body", "params"),
        (r#"{"jsonrpc":"2.0","id":6,"method":"ping","params":{"_meta":1}}"#, json!(6), -32600, "bad_body", "_meta"),
    ] {
        let found = error(&mut agent, line);
        assert_eq!((&found.0, found.1, found.2.as_str()), (&id, number, code), "{line}: {found:?}");
        assert!(found.3.contains(part), "{line}: {found:?}");
    }
    // Notifications and unsolicited responses get no answer.
    for line in [
        r#"{"jsonrpc":"2.0","method":"notifications/none"}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}"#,
    ] {
        says(&mut agent, line);
    }
    says(&mut agent, &ping.to_string());
    assert_eq!(agent.hear(), json!({"jsonrpc": "2.0", "id": 8, "result": {}}));
    // The protocol version that allows batches is supported without them.
    let hello =
        json!({"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    assert_eq!(agent.ask("initialize", &hello)["result"]["protocolVersion"], "2025-03-26");
    assert_eq!(error(&mut agent, &format!("[{ping}]")).1, -32600);
    agent.leaves();
}

#[test]
fn a_request_that_cannot_be_understood_learns_why() {
    let directory = directory();
    let mut agent = Agent::new(directory.path(), "t", &[]);
    for (method, params, number, code, message) in [
        ("none", json!({}), -32601, "no_such_method", "there is no method none"),
        ("prompts/get", json!({"name": "x"}), -32601, "no_such_method", "there is no method prompts/get"),
        ("resources/list", json!({}), -32601, "no_such_method", "there is no method resources/list"),
        ("tools/call", json!({}), -32602, "bad_body", "missing field `name`"),
        ("tools/call", json!({"name": 5}), -32602, "bad_body", "expected a string"),
        ("tools/call", json!({"name": "view", "arguments": 5}), -32602, "bad_body", "expected a map"),
        ("tools/call", json!({"name": "none"}), -32602, "no_such_tool", "there is no tool none"),
        ("tools/list", json!({"cursor": 5}), -32602, "bad_body", "expected a string"),
        ("initialize", json!({}), -32602, "bad_body", "missing field `protocolVersion`"),
    ] {
        let line = json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params}).to_string();
        let found = error(&mut agent, &line);
        assert_eq!((&found.0, found.1, found.2.as_str()), (&json!("a"), number, code), "{line}: {found:?}");
        assert!(found.3.contains(message), "{line}: {found:?}");
    }
    assert_eq!(error(&mut agent, r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#).1, -32602);
    let long = json!({"jsonrpc": "2.0", "id": 1, "method": "x".repeat(100_000)}).to_string();
    let found = error(&mut agent, &long);
    assert!(found.1 == -32601 && found.3.len() < 200, "{found:?}");
    agent.leaves();
}
