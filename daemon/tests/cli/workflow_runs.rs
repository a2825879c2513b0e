//! Workflows as boards: running, waiting, failed and resumed nodes, and recovery after a kill.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::sandbox::{CommandResult, Sandbox, shipped};

/// Returns the status of each node, by id.
fn statuses(state: &Value) -> Value {
    let nodes = state["workflow"]["nodes"].as_object().expect("there are nodes");
    nodes.iter().map(|(id, node)| (id.clone(), node["status"].clone())).collect::<serde_json::Map<_, _>>().into()
}

/// Returns the called workers in order, without the deciding seat.
fn called(sandbox: &Sandbox) -> Vec<String> {
    let records = sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
    let worker = |record: &Value| record["worker"].as_str().filter(|worker| *worker != "workflow").map(str::to_owned);
    records.iter().filter(|record| record["kind"] == "invoked").filter_map(worker).collect()
}

fn state(sandbox: &Sandbox) -> Value {
    sandbox.run(&["state", "last", "--output", "json"]).expect_exit(0).json()["state"].clone()
}

/// Returns a blueprint with these nodes, each run by a script worker with the node's name.
fn blueprint(nodes: Value, scripts: Value) -> String {
    let workers: serde_json::Map<String, Value> = scripts
        .as_object()
        .expect("scripts")
        .iter()
        .map(|(name, script)| (name.clone(), json!({"agent": "script", "script": script})))
        .collect();
    json!({"blueprint": 1, "name": "flow", "workflow": {"nodes": nodes}, "workers": workers}).to_string()
}

fn output(node: &str, value: Value) -> Value {
    json!([{"op": "add", "path": format!("/workflow/nodes/{node}/output"), "value": value}])
}

fn run(sandbox: &Sandbox, nodes: Value, scripts: Value) -> CommandResult {
    sandbox.write("flow.json", blueprint(nodes, scripts));
    sandbox.run(&["run", "flow.json", "--output", "json"])
}

fn signal(sandbox: &Sandbox, name: &str, value: &Value) -> CommandResult {
    sandbox.run(&["signal", "last", name, &value.to_string(), "--output", "json"])
}

#[test]
fn the_shipped_workflow_runs_to_its_end_and_is_found_sound() {
    let sandbox = Sandbox::new();
    let etl = shipped("etl.yaml");
    let checked = sandbox.run(&["check", &etl]).expect_exit(0);
    assert!(checked.stdout.contains(" 0 errors, 0 warnings"), "{}", checked.stdout);
    let ran = sandbox.run(&["run", &etl, "--output", "json"]).expect_exit(0).json();
    assert_eq!(ran["end"], "done");
    let (state, workflow) = (&ran["state"], &ran["state"]["workflow"]);
    let completed = "COMPLETED";
    assert_eq!(
        statuses(state),
        json!({"parse": completed, "clean": completed, "count": completed, "inspect": "SKIPPED", "report": completed})
    );
    assert_eq!(workflow["nodes"]["parse"]["input"], json!({"file": "orders.csv"}));
    assert_eq!(
        workflow["nodes"]["report"]["input"],
        json!({"orders": [{"item": "apples", "count": 3}, {"item": "quinces", "count": 2}], "total": 5})
    );
    assert_eq!(workflow["data"]["report"], "5 pieces in 2 orders: 3 apples, 2 quinces.");
    assert_eq!(called(&sandbox), ["parser", "cleaner", "counter", "writer"]);
    sandbox.run(&["verify", "last"]).expect_exit(0);
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_person_is_waited_for_where_the_data_of_the_request_say_so() {
    let sandbox = Sandbox::new();
    let request = json!({"data": {"tolerated": 0}}).to_string();
    let ran =
        sandbox.run(&["run", &shipped("etl.yaml"), "--request", &request, "--output", "json"]).expect_exit(4).json();
    assert_eq!((&ran["end"], &ran["state"]["workflow"]["status"]), (&json!("quiescent"), &json!("RUNNING")));
    assert_eq!(ran["state"]["workflow"]["nodes"]["inspect"]["status"], "READY");
    let ran = signal(&sandbox, "start-inspect", &Value::Null).expect_exit(0).json();
    assert_eq!(ran["end"], "done");
    assert_eq!(state(&sandbox)["workflow"]["data"]["finding"], "One line has no count.");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_failed_workflow_resumes_from_its_failed_node() {
    let sandbox = Sandbox::new();
    let nodes = json!({
        "a": {"output_mapping": {"x": "x"}},
        "b": {"dependencies": ["a"], "input_mapping": {"x": "x"}, "output_mapping": {"y": "y"}},
        "c": {"dependencies": ["b"], "input_mapping": {"y": "y"}},
        "d": {"dependencies": ["a"]},
    });
    let scripts = json!({
        "a": [output("a", json!({"x": 1}))],
        "b": [{"fail": "refused", "message": "not today"}, output("b", json!({"y": 2}))],
        "c": [output("c", json!({}))],
        "d": [output("d", json!({}))],
    });
    let failed = run(&sandbox, nodes, scripts).expect_exit(4).json();
    assert_eq!((&failed["end"], &failed["cause"]), (&json!("quiescent"), &json!("gave_up")));
    assert_eq!(statuses(&failed["state"]), json!({"a": "COMPLETED", "b": "FAILED", "c": "PENDING", "d": "COMPLETED"}));
    assert_eq!(failed["state"]["workflow"]["status"], "FAILED");
    assert_eq!(failed["state"]["workflow"]["nodes"]["b"]["error"], "its worker came to no output");
    let resumed = signal(&sandbox, "resume", &json!({"node": "b"})).expect_exit(0).json();
    assert_eq!(resumed["end"], "done");
    let state = state(&sandbox);
    assert_eq!(statuses(&state), json!({"a": "COMPLETED", "b": "COMPLETED", "c": "COMPLETED", "d": "COMPLETED"}));
    assert_eq!(state["workflow"]["nodes"]["c"]["input"], json!({"y": 2}));
    assert_eq!(state["workflow"]["nodes"]["b"].get("error"), None);
    assert_eq!(called(&sandbox), ["a", "b", "d", "b", "c"]);
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_workflow_is_resumed_from_nodes_that_it_has_and_that_are_not_running() {
    let sandbox = Sandbox::new();
    let nodes = json!({"a": {}, "b": {"dependencies": ["a"], "trigger_type": "EVENT", "signal": "go"}});
    let scripts = json!({"a": [output("a", json!({}))], "b": [output("b", json!({}))]});
    run(&sandbox, nodes, scripts).expect_exit(4);
    let refused = signal(&sandbox, "resume", &json!({"node": "z"}));
    assert_eq!((refused.code, &refused.error()["code"]), (2, &json!("bad_request")));
    // Repeated resumes give the same result and trip no circuit breaker.
    for _ in 0..4 {
        signal(&sandbox, "resume", &json!({"node": "a"})).expect_exit(4);
        assert_eq!(statuses(&state(&sandbox)), json!({"a": "COMPLETED", "b": "READY"}));
    }
    signal(&sandbox, "go", &Value::Null).expect_exit(0);
    assert_eq!(called(&sandbox), ["a", "a", "a", "a", "a", "b"]);
}

#[test]
fn resetting_a_running_node_is_rejected_and_recorded() {
    let sandbox = Sandbox::new();
    // The board waits for an answer, so `a` is RUNNING.
    let nodes = json!({"a": {}});
    let asks = json!([{"clarify": {"question": "Which?"}}, output("a", json!({}))]);
    let mut blueprint: Value = serde_json::from_str(&blueprint(nodes, json!({"a": asks}))).expect("JSON");
    blueprint["workers"]["person"] = json!({"agent": "human"});
    blueprint["workers"]["a"]["clarify"] = json!({"by": "person"});
    sandbox.write("flow.json", blueprint.to_string());
    let ran = sandbox.run(&["run", "flow.json", "--output", "json"]).expect_exit(5).json();
    assert_eq!(statuses(&ran["state"]), json!({"a": "RUNNING"}));
    signal(&sandbox, "resume", &json!({"node": "a"})).expect_exit(5);
    assert_eq!(statuses(&state(&sandbox)), json!({"a": "RUNNING"}));
    let log = sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).stdout;
    assert!(log.contains("workflow_illegal_move: `a` is RUNNING and cannot become PENDING"), "{log}");
}

#[test]
fn no_node_waits_for_the_signal_of_the_workflow_itself() {
    let sandbox = Sandbox::new();
    for nodes in [
        json!({"a": {"trigger_type": "EVENT", "signal": "resume"}}),
        json!({"resume": {"trigger_type": "EVENT", "agent_id": "a"}}),
    ] {
        sandbox.write("nodes.json", json!({"nodes": nodes}).to_string());
        let report = sandbox.run(&["workflow", "check", "nodes.json"]).expect_exit(0).json();
        assert_eq!(report["warnings"][0]["code"], "workflow_bad_trigger", "{report}");
        sandbox.write("flow.json", blueprint(nodes, json!({"a": [output("a", json!({}))]})));
        let found = sandbox.run(&["check", "flow.json"]).expect_exit(2).stdout;
        assert!(found.contains("workflow_bad_trigger") && found.contains("waits for the signal `resume`"), "{found}");
        let refused = sandbox.run(&["run", "flow.json", "--output", "json"]).expect_exit(2).error();
        assert_eq!(refused["findings"][0]["code"], "workflow_bad_trigger", "{refused}");
    }
}

#[test]
fn an_event_that_comes_early_counts_and_a_worker_may_do_several_nodes() {
    let sandbox = Sandbox::new();
    let nodes = json!({
        "first": {"agent_id": "one", "trigger_type": "EVENT"},
        "second": {"agent_id": "one", "dependencies": ["first"], "trigger_type": "EVENT", "signal": "go"},
    });
    let scripts = json!({"one": [output("first", json!({})), output("second", json!({}))]});
    let waiting = run(&sandbox, nodes, scripts).expect_exit(4).json();
    assert_eq!(statuses(&waiting["state"]), json!({"first": "READY", "second": "PENDING"}));
    signal(&sandbox, "go", &Value::Null).expect_exit(4);
    assert_eq!(statuses(&state(&sandbox)), json!({"first": "READY", "second": "PENDING"}));
    signal(&sandbox, "first", &Value::Null).expect_exit(0);
    assert_eq!(called(&sandbox), ["one", "one"]);
}

#[test]
fn a_node_for_which_its_worker_has_no_invocation_left_fails() {
    let sandbox = Sandbox::new();
    let nodes = json!({"first": {"agent_id": "one"}, "second": {"agent_id": "one", "dependencies": ["first"]}});
    let scripts = json!({"one": [output("first", json!({})), output("second", json!({}))]});
    let mut blueprint: Value = serde_json::from_str(&blueprint(nodes, scripts)).expect("JSON");
    blueprint["workers"]["one"]["limits"] = json!({"invocations": 1});
    sandbox.write("flow.json", blueprint.to_string());
    let ran = sandbox.run(&["run", "flow.json", "--output", "json"]).expect_exit(3).json();
    assert_eq!((&ran["end"], &ran["cause"]), (&json!("stopped"), &json!("exhausted")));
    assert_eq!(statuses(&ran["state"]), json!({"first": "COMPLETED", "second": "FAILED"}));
    assert_eq!(ran["state"]["workflow"]["status"], "FAILED");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_request_with_too_much_workflow_data_is_rejected() {
    let sandbox = Sandbox::new();
    let scripts = json!({"one": [output("one", json!({}))]});
    let mut blueprint: Value = serde_json::from_str(&blueprint(json!({"one": {}}), scripts)).expect("JSON");
    for data in [json!(true), json!({"type": "object"})] {
        blueprint["request"] = json!({"type": "object", "properties": {"data": data}});
        sandbox.write("flow.json", blueprint.to_string());
        let run = |entries: usize| {
            let data: serde_json::Map<String, Value> = (0..entries).map(|at| (format!("e{at}"), json!(at))).collect();
            let request = json!({"data": data}).to_string();
            sandbox.run(&["run", "flow.json", "--request", &request, "--output", "json"])
        };
        let ran = run(256).expect_exit(0).json();
        assert_eq!(ran["state"]["workflow"]["data"].as_object().map(serde_json::Map::len), Some(256));
        assert_eq!(run(257).expect_exit(2).error()["code"], "bad_request");
    }
}

#[test]
fn skipping_a_node_skips_its_dependants() {
    let sandbox = Sandbox::new();
    let nodes = json!({
        "a": {"output_mapping": {"n": "count"}},
        "b": {"dependencies": ["a"], "when": "data.count > 10"},
        "c": {"dependencies": ["b"]},
    });
    let script = |node: &str| json!([output(node, json!({"n": 3}))]);
    let ran = run(&sandbox, nodes, json!({"a": script("a"), "b": script("b"), "c": script("c")})).expect_exit(0).json();
    assert_eq!(statuses(&ran["state"]), json!({"a": "COMPLETED", "b": "SKIPPED", "c": "SKIPPED"}));
    assert_eq!(called(&sandbox), ["a"]);
}

#[test]
fn a_run_names_the_node_with_an_undecidable_condition_and_the_reason() {
    let sandbox = Sandbox::new();
    let nodes = json!({
        "a": {"output_mapping": {"n": "count"}},
        "b": {"dependencies": ["a"], "when": "data.count > 10"},
    });
    // The first output is a string, so the numeric comparison fails.
    let texts = json!([output("a", json!({"n": "three"})), output("a", json!({"n": 30}))]);
    let ran = run(&sandbox, nodes, json!({"a": texts, "b": [output("b", json!({}))]})).expect_exit(4);
    assert!(ran.stderr.contains("node b of the workflow FAILED: "), "{}", ran.stderr);
    let why = &ran.json()["state"]["workflow"]["nodes"]["b"]["error"];
    assert!(ran.stderr.contains(why.as_str().expect("a text")), "{why} in {}", ran.stderr);
    // Retries were not exhausted, so the message must not suggest `retry`: the kernel would reject it.
    assert!(!ran.stderr.contains("patchboard retry"), "{}", ran.stderr);
    let resumed = signal(&sandbox, "resume", &json!({"node": "a"})).expect_exit(0).json();
    assert_eq!(resumed["end"], "done");
}

#[test]
fn no_output_comes_to_a_node_that_does_not_run_and_no_status_leaps() {
    let sandbox = Sandbox::new();
    // The worker writes the output of another node too early. Its grants allow this, because it also runs that node.
    let nodes = json!({"a": {"agent_id": "w"}, "b": {"agent_id": "w", "dependencies": ["a"]}});
    let early =
        run(&sandbox, nodes, json!({"w": [output("b", json!({})), output("a", json!({})), output("b", json!({}))]}));
    early.expect_exit(0);
    let records = sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
    let refused: Vec<&Value> = records.iter().filter(|record| record["kind"] == "rejected").collect();
    assert_eq!(refused.len(), 1);
    assert!(refused[0].to_string().contains("workflow-outputs"), "{}", refused[0]);
}

#[test]
fn an_invalid_workflow_file_is_rejected_with_its_position_before_storage() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "flows/loop.yaml",
        "nodes:\n  a: {dependencies: [c]}\n  b: {dependencies: [a]}\n  c: {dependencies: [b]}\n",
    );
    let blueprint = "blueprint: 1\nname: flow\nworkflow: flows/loop.yaml\nworkers:\n  a: &w {agent: script, script: [[{op: add, path: /workflow/nodes/a/output, value: {}}]]}\n";
    sandbox.write("flow.yaml", blueprint);
    let refused = sandbox.run(&["run", "flow.yaml", "--output", "json"]).expect_exit(2).error();
    let finding = &refused["findings"][0];
    assert_eq!(finding["code"], "workflow_cycle_detected");
    assert!(finding["message"].as_str().is_some_and(|message| message.ends_with("a -> b -> c -> a")), "{finding}");
    assert!(finding["file"].as_str().is_some_and(|file| file.ends_with("flows/loop.yaml")), "{finding}");
    assert_eq!(sandbox.run(&["boards", "--output", "json"]).expect_exit(0).stdout.trim(), "");
    sandbox.write("flows/loop.yaml", "nodes:\n  a: {}\n");
    sandbox.run(&["run", "flow.yaml"]).expect_exit(0);
    // The expanded output is self-contained and passes `check` again.
    let whole = sandbox.run(&["check", "flow.yaml", "--whole"]).expect_exit(0).stdout;
    sandbox.write("whole.json", whole);
    sandbox.run(&["check", "whole.json"]).expect_exit(0);
}

/// A workflow with slow programs as workers, so that a kill hits them at work.
fn slow() -> String {
    let nodes = json!({
        "a": {"output_mapping": {"x": "a"}},
        "b": {"dependencies": ["a"], "input_mapping": {"x": "a"}, "output_mapping": {"x": "b"}},
        "c": {"dependencies": ["a"], "input_mapping": {"x": "a"}, "output_mapping": {"x": "c"}},
        "d": {"dependencies": ["b", "c"], "input_mapping": {"x": "b", "y": "c"}, "output_mapping": {"x": "d"}},
        "e": {"dependencies": ["a"], "when": "data.a == \"no\""},
        "f": {"dependencies": ["d"], "input_mapping": {"x": "d"}},
    });
    let worker = |node: &str| {
        let patch = output(node, json!({"x": format!("of {node}")}));
        let program = json!(["sh", "-c", format!("sleep 0.05; printf '%s\\n' '{patch}'")]);
        (node.to_owned(), json!({"agent": "command", "program": program, "limits": {"attempts": 20}}))
    };
    let workers: serde_json::Map<_, _> = ["a", "b", "c", "d", "e", "f"].into_iter().map(worker).collect();
    json!({"blueprint": 1, "name": "slow", "workflow": {"nodes": nodes}, "workers": workers}).to_string()
}

/// After a kill at any point, the run reaches the same end and repeats no reported step.
#[test]
fn killed_again_and_again_it_ends_as_if_it_had_not_been() {
    let whole = Sandbox::new();
    whole.write("slow.json", slow());
    let expected = whole.run(&["run", "slow.json", "--allow-inline", "--output", "json"]).expect_exit(0).json();
    let sandbox = Sandbox::new();
    sandbox.write("slow.json", slow());
    let mut kills = 0;
    for turn in 0..60 {
        let arguments: &[&str] = match turn {
            0 => &["run", "slow.json", "--allow-inline"],
            _ => &["resume", "last", "--allow-inline"],
        };
        let mut child = sandbox
            .command(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be run");
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        for (number, line) in stderr.lines().enumerate() {
            line.expect("stderr is text");
            if number == 4 + turn % 5 {
                child.kill().expect("it can be killed");
            }
        }
        let code = child.wait().expect("it ends").code();
        sandbox.run(&["verify", "last"]).expect_exit(0);
        if code.is_some() {
            assert_eq!(code, Some(0), "it ended by itself, and done");
            break;
        }
        kills += 1;
    }
    assert!(kills >= 3, "it was killed {kills} times only");
    let found = state(&sandbox);
    for part in ["status", "data", "nodes"] {
        assert_eq!(found["workflow"][part], expected["state"]["workflow"][part], "after {kills} kills");
    }
    assert_eq!(found["workflow"]["nodes"]["d"]["input"], json!({"x": "of b", "y": "of c"}));
    let records = sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
    let mut outputs: Vec<&str> = records
        .iter()
        .filter(|record| record["kind"] == "committed")
        .filter_map(|record| record["by"]["worker"].as_str().filter(|worker| *worker != "workflow"))
        .collect();
    outputs.sort_unstable();
    assert_eq!(outputs, ["a", "b", "c", "d", "f"], "once each");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}
