//! What is worked out from files alone: decisions on votes, orders of workflows, tokens of repetitions.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;

fn vote(critic: &str, score: f64, more: &Value) -> Value {
    let mut vote = json!({"critic_id": critic, "score": score, "confidence": 0.9, "passed": true});
    for (name, value) in more.as_object().expect("an object") {
        vote[name] = value.clone();
    }
    vote
}

#[test]
fn votes_in_a_file_become_a_decision() {
    let sandbox = Sandbox::new();
    let votes = json!([vote("alice", 8.0, &json!({})), vote("bob", 6.0, &json!({"confidence": 0.7, "voted_at": 3}))]);
    sandbox.write("votes.json", votes.to_string());
    let decided = |more: &[&str]| sandbox.run(&[&["room", "decide", "votes.json"], more].concat()).exits(0).json();
    let decision = decided(&[]);
    assert_eq!((&decision["decision"], &decision["vote_count"]), (&json!("APPROVED"), &json!(2)));
    assert_eq!((&decision["mean"], &decision["std_dev"]), (&json!(7.0), &json!(1.0)));
    assert!((decision["weighted_mean"].as_f64().expect("a number") - 7.125).abs() < 1e-9);
    assert!(decision["reason"].as_str().is_some_and(|reason| reason.contains("score 7.125")), "{decision}");
    assert_eq!(decided(&["--requested", "alice,bob,carol,dan"])["unavailable_critics"], json!(["carol", "dan"]));
    let short = decided(&["--requested", "alice,bob,carol,dan,eve"]);
    assert_eq!((&short["decision"], &short["quorum_met"]), (&json!("ESCALATED_TO_HITL"), &json!(false)));
    sandbox.write("strict.yaml", "version: strict\nmin_score_threshold: 7.5\n");
    let strict = decided(&["--policy", "strict.yaml"]);
    assert_eq!((&strict["decision"], &strict["policy_version"]), (&json!("REVISION_REQUESTED"), &json!("strict")));
    assert_eq!(strict["reason"], "score 7.125 is below 7.5");
    let asks = json!([vote("alice", 9.0, &json!({"recommendations": ["escalate to security"]}))]);
    let input = asks.to_string();
    let told = sandbox.run_with(&["room", "decide", "-"], &input).exits(0).json();
    assert_eq!(told["escalation_triggers"], json!(["critic_requested_escalation"]));
}

#[test]
fn votes_and_policies_that_cannot_be_meant_are_refused() {
    let sandbox = Sandbox::new();
    let refused = |votes: &str, more: &[&str], says: &str| {
        let arguments = [&["room", "decide", "-"], more].concat();
        let refused = sandbox.run_with(&arguments, votes).exits(2);
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
    };
    refused("[]", &[], "there is no vote");
    refused("{}", &[], "bad_votes");
    refused(r#"[{"critic_id": "a", "score": 11, "confidence": 1, "passed": true}]"#, &[], "the score of a is 11");
    refused(r#"[{"critic_id": "a", "score": 1, "confidence": 1}]"#, &[], "passed");
    refused("[", &[], "bad_votes");
    sandbox.write("policy.json", r#"{"min_pass_ratio": 80}"#);
    let vote = json!([vote("a", 9.0, &json!({}))]).to_string();
    refused(&vote, &["--policy", "policy.json"], "`min_pass_ratio` is 80");
    refused(&vote, &["--policy", "nowhere.json"], "cannot be read");
    let nobody = sandbox.run_with(&["room", "decide", "-", "--requested", "a"], "[]").exits(0).json();
    assert_eq!((&nobody["decision"], &nobody["mean"]), (&json!("ESCALATED_TO_HITL"), &Value::Null));
}

#[test]
fn a_workflow_in_a_file_has_an_order_or_a_reason_why_not() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "etl.yaml",
        "nodes:\n  parse: {agent_id: p}\n  b: {dependencies: [parse]}\n  a: {dependencies: [parse]}\n",
    );
    let sound = sandbox.run(&["workflow", "check", "etl.yaml"]).exits(0).json();
    assert_eq!(sound["stages"], json!([["parse"], ["a", "b"]]));
    assert_eq!((&sound["valid"], &sound["order"]), (&json!(true), &json!(["parse", "a", "b"])));
    let of = |text: &str| sandbox.run_with(&["workflow", "check", "-"], text).exits(2);
    let cyclic = of(r#"{"nodes": {"a": {"dependencies": ["b"]}, "b": {"dependencies": ["a"]}, "c": {}}}"#).json();
    assert_eq!((&cyclic["valid"], &cyclic["error_code"]), (&json!(false), &json!("workflow_cycle_detected")));
    assert_eq!(cyclic["cycle"], json!(["a", "b"]));
    let missing = of(r#"{"nodes": {"a": {"dependencies": ["ghost"]}}}"#).json();
    assert_eq!((&missing["error_code"], &missing["cycle"]), (&json!("workflow_unknown_dependency"), &Value::Null));
    assert_eq!(of(r#"{"nodes": {}}"#).json()["error_code"], "workflow_empty");
    let typo = of(r#"{"nodes": {"a": {"depends": []}}}"#);
    assert!(typo.stderr.contains("bad_workflow") && typo.stderr.contains("depends"), "{}", typo.stderr);
}

#[test]
fn the_same_work_has_the_same_token() {
    let sandbox = Sandbox::new();
    sandbox.write("a.json", r#"{"b":2,"a":1}"#);
    sandbox.write("b.json", "{\"a\": 1.0, \"b\": 2}\n");
    let token = |arguments: &[&str]| sandbox.run(&[&["token"], arguments].concat()).exits(0).stdout.trim().to_owned();
    // One of the published vectors, and another with the members in order.
    assert_eq!(token(&["agent", "work", "a.json"]), "agent:work:6bb2f6594d3064e1");
    assert_eq!(token(&["agent", "work", "a.json", "--json"]), "agent:work:f65efee16e55e693");
    assert_eq!(token(&["agent", "work", "b.json", "--json"]), "agent:work:f65efee16e55e693");
    assert_ne!(token(&["agent", "work", "b.json"]), "agent:work:f65efee16e55e693");
    let told = sandbox.run(&["token", "agent", "work", "a.json", "--output", "json"]).exits(0).json();
    assert_eq!(told, json!({"token": "agent:work:6bb2f6594d3064e1"}));
    let unfit = sandbox.run(&["token", "an agent", "work", "a.json"]).exits(0);
    assert!(unfit.stdout.starts_with("an agent:work:") && unfit.stderr.contains("Idempotency-Key"), "{}", unfit.stderr);
    assert!(!sandbox.run(&["token", "agent", "work", "a.json"]).exits(0).stderr.contains("Idempotency-Key"));
    let refused = sandbox.run(&["token", "a\nb", "work", "a.json"]).exits(2);
    assert!(refused.stderr.contains("line feed"), "{}", refused.stderr);
    assert!(sandbox.run(&["token", "agent", "work", "nowhere"]).exits(2).stderr.contains("content_unreadable"));
    for few in [&["token"][..], &["token", "agent"], &["token", "agent", "work"]] {
        sandbox.run(few).exits(2);
    }
    sandbox.run(&["token", "list"]).exits(0);
}
