//! Commands that need only files: decisions on votes, the order of workflows, idempotency keys.

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
    let decided =
        |more: &[&str]| sandbox.run(&[&["room", "decide", "votes.json"], more].concat()).expect_exit(0).json();
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
    let escalated = sandbox.run_with(&["room", "decide", "-"], &input).expect_exit(0).json();
    assert_eq!(escalated["escalation_triggers"], json!(["critic_requested_escalation"]));
}

#[test]
fn invalid_votes_and_policies_are_rejected() {
    let sandbox = Sandbox::new();
    let refused = |votes: &str, more: &[&str], says: &str| {
        let arguments = [&["room", "decide", "-"], more].concat();
        let refused = sandbox.run_with(&arguments, votes).expect_exit(2);
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
    // Lists instead of objects, and empty names.
    refused(r#"[["a", 8, 0.9, true]]"#, &[], "bad_votes");
    for list in ["[]", r#"{"quorum": []}"#] {
        sandbox.write("policy.json", list);
        refused(&vote, &["--policy", "policy.json"], "bad_policy");
    }
    refused(r#"[{"critic_id": "", "abstain": true}]"#, &[], "the `critic_id` of a vote is empty");
    refused(&vote, &["--requested", "a,,b"], "--requested");
    let silent =
        sandbox.run_with(&["room", "decide", "-"], r#"[{"critic_id": "a", "abstain": true}]"#).expect_exit(0).json();
    assert_eq!((&silent["abstained"], &silent["vote_count"]), (&json!(["a"]), &json!(0)));
    let decision = sandbox.run_with(&["room", "decide", "-", "--requested", "a"], "[]").expect_exit(0).json();
    assert_eq!((&decision["decision"], &decision["mean"]), (&json!("ESCALATED_TO_HITL"), &Value::Null));
}

#[test]
fn a_workflow_in_a_file_has_an_order_or_a_reason_why_not() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "etl.yaml",
        "nodes:\n  parse: {agent_id: p}\n  b: {dependencies: [parse]}\n  a: {dependencies: [parse]}\n",
    );
    let sound = sandbox.run(&["workflow", "check", "etl.yaml"]).expect_exit(0).json();
    assert_eq!(sound["stages"], json!([["parse"], ["a", "b"]]));
    assert_eq!((&sound["valid"], &sound["order"]), (&json!(true), &json!(["parse", "a", "b"])));
    assert_eq!(sound["warnings"], json!([]));
    let never = r#"{"nodes": {"b": {"trigger_type": "SCHEDULE"}, "a": {"dependencies": ["b"]}, "c": {"trigger_type": "SCHEDULE", "every": "* * * * *"}}}"#;
    let never = sandbox.run_with(&["workflow", "check", "-"], never).expect_exit(0).json();
    let warned: Vec<(&Value, &Value)> =
        never["warnings"].as_array().expect("a list").iter().map(|one| (&one["code"], &one["node"])).collect();
    let code = json!("workflow_unreachable_node");
    assert_eq!(warned, [(&code, &json!("b")), (&code, &json!("a"))]);
    let of = |text: &str| sandbox.run_with(&["workflow", "check", "-"], text).expect_exit(2);
    let cyclic = of(r#"{"nodes": {"a": {"dependencies": ["b"]}, "b": {"dependencies": ["a"]}, "c": {}}}"#).json();
    assert_eq!((&cyclic["valid"], &cyclic["error_code"]), (&json!(false), &json!("workflow_cycle_detected")));
    assert_eq!(cyclic["cycle"], json!(["a", "b"]));
    let missing = of(r#"{"nodes": {"a": {"dependencies": ["ghost"]}}}"#).json();
    assert_eq!((&missing["error_code"], &missing["cycle"]), (&json!("workflow_unknown_dependency"), &Value::Null));
    assert_eq!(of(r#"{"nodes": {}}"#).json()["error_code"], "workflow_empty");
    for (given, why) in [
        (r#"{"nodes": {"a": {"depends": []}}}"#, "depends"),
        (r#"{"nodes": {"a": []}}"#, "the node `a` is no object"),
        (r#"["etl", {"a": {}}]"#, "it is no object"),
        ("{", "holds no workflow"),
    ] {
        let refused = of(given);
        assert!(refused.stderr.contains("bad_workflow") && refused.stderr.contains(why), "{}", refused.stderr);
        let report = refused.json();
        assert_eq!((&report["valid"], &report["error_code"]), (&json!(false), &json!("bad_workflow")), "{given}");
        assert_eq!((&report["cycle"], &report["errors"][0]["code"]), (&Value::Null, &json!("bad_workflow")), "{given}");
        assert!(report["errors"][0]["message"].as_str().is_some_and(|message| message.contains(why)), "{report}");
    }
    let missing = sandbox.run(&["workflow", "check", "nowhere.yaml"]).expect_exit(2).json();
    assert_eq!((&missing["valid"], &missing["error_code"]), (&json!(false), &json!("bad_workflow")));
}

#[test]
fn a_workflow_that_no_board_takes_or_that_overwrites_itself_is_warned_of() {
    let sandbox = Sandbox::new();
    let warned = |workflow: &Value| -> Value {
        sandbox.run_with(&["workflow", "check", "-"], workflow.to_string()).expect_exit(0).json()["warnings"].clone()
    };
    let nodes: serde_json::Map<String, Value> = (0..65).map(|number| (format!("n{number}"), json!({}))).collect();
    let many = warned(&json!({"nodes": nodes}));
    assert_eq!(
        (&many[0]["code"], &many[0]["node"], &many[1]),
        (&json!("workflow_too_large"), &Value::Null, &Value::Null)
    );
    let named = warned(&json!({"nodes": {"to write": {}}}));
    assert_eq!((&named[0]["code"], &named[0]["node"]), (&json!("workflow_node_name"), &json!("to write")));
    let shared =
        warned(&json!({"nodes": {"a": {"output_mapping": {"x": "sum"}}, "b": {"output_mapping": {"y": "sum"}}}}));
    let warning = ["code", "node", "other", "key"].map(|name| shared[0][name].as_str().unwrap_or_default());
    assert_eq!(warning, ["workflow_shared_output", "a", "b", "sum"]);
    // A blueprint with such a workflow gets the warning, or is rejected.
    let blueprint = |nodes: Value| {
        let workers: serde_json::Map<String, Value> = nodes
            .as_object()
            .expect("nodes")
            .keys()
            .map(|name| (name.clone(), json!({"agent": "script", "script": [[]]})))
            .collect();
        sandbox.write(
            "flow.json",
            json!({"blueprint": 1, "name": "flow", "description": "Flows.", "workflow": {"nodes": nodes}, "workers": workers}).to_string(),
        );
        sandbox.run(&["check", "flow.json"])
    };
    let parallel = json!({"a": {"output_mapping": {"x": "sum"}}, "b": {"output_mapping": {"y": "sum"}}});
    let found = blueprint(parallel).expect_exit(0).stdout;
    assert!(found.contains("workflow_shared_output") && found.contains("different entries"), "{found}");
    let found = blueprint(json!({"to write": {}})).expect_exit(2).stdout;
    assert!(found.contains("workflow_node_name"), "{found}");
}

#[test]
fn the_same_work_has_the_same_token() {
    let sandbox = Sandbox::new();
    sandbox.write("a.json", r#"{"b":2,"a":1}"#);
    sandbox.write("b.json", "{\"a\": 1.0, \"b\": 2}\n");
    let token =
        |arguments: &[&str]| sandbox.run(&[&["token"], arguments].concat()).expect_exit(0).stdout.trim().to_owned();
    // A published test vector, and another with the members sorted.
    assert_eq!(token(&["agent", "work", "a.json"]), "agent:work:6bb2f6594d3064e1");
    assert_eq!(token(&["agent", "work", "a.json", "--json"]), "agent:work:f65efee16e55e693");
    assert_eq!(token(&["agent", "work", "b.json", "--json"]), "agent:work:f65efee16e55e693");
    assert_ne!(token(&["agent", "work", "b.json"]), "agent:work:f65efee16e55e693");
    let printed = sandbox.run(&["token", "agent", "work", "a.json", "--output", "json"]).expect_exit(0).json();
    assert_eq!(printed, json!({"token": "agent:work:6bb2f6594d3064e1"}));
    let unfit = sandbox.run(&["token", "an agent", "work", "a.json"]).expect_exit(0);
    assert!(unfit.stdout.starts_with("an agent:work:") && unfit.stderr.contains("Idempotency-Key"), "{}", unfit.stderr);
    assert!(!sandbox.run(&["token", "agent", "work", "a.json"]).expect_exit(0).stderr.contains("Idempotency-Key"));
    let refused = sandbox.run(&["token", "a\nb", "work", "a.json"]).expect_exit(2);
    assert!(refused.stderr.contains("line feed"), "{}", refused.stderr);
    assert!(sandbox.run(&["token", "agent", "work", "nowhere"]).expect_exit(2).stderr.contains("content_unreadable"));
    for few in [&["token"][..], &["token", "agent"], &["token", "agent", "work"]] {
        sandbox.run(few).expect_exit(2);
    }
    sandbox.run(&["token", "list"]).expect_exit(0);
}
