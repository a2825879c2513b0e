//! Workflow engine, turn by turn; the tests apply its patches with an independent implementation.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::workflow::expand;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::state::State;

/// Workflow in progress.
struct Run {
    definition: Definition,
    document: Value,
}

impl Run {
    fn of(definition: Value) -> Self {
        let definition: Definition = serde_json::from_value(definition).expect("a definition");
        let workflow = expand(&definition, true).initial().expect("there is one").clone();
        Self { definition, document: json!({"request": {}, "workflow": workflow}) }
    }

    fn try_turn(&mut self, happened: WorkflowEvent<'_>) -> Result<Option<Turn>, TurnError> {
        let state = State::new(&self.document, &Hasher::new(&Salt::ZERO));
        let turn = compute_turn(&self.definition, state.root(), happened)?;
        if let Some(turn) = &turn {
            let patch: json_patch::Patch = serde_json::from_value(turn.patch.clone().into()).expect("a patch");
            json_patch::patch(&mut self.document, &patch).expect("it applies");
        }
        Ok(turn)
    }

    fn turn(&mut self, happened: WorkflowEvent<'_>) -> Option<Turn> {
        self.try_turn(happened).expect("it is no refusal")
    }

    /// Runs a turn and all immediate follow-ups; returns every state change of a node.
    fn settle(&mut self, happened: WorkflowEvent<'_>) -> Vec<String> {
        let mut moves = Vec::new();
        let mut next = self.turn(happened);
        while let Some(turn) = next {
            moves.extend(turn.moves.iter().map(|moved| format!("{} {}", moved.node, moved.to)));
            assert_eq!(self.document["workflow"]["round"]["more"], turn.more);
            next = if turn.more { self.turn(WorkflowEvent::Progress) } else { None };
            assert!(moves.len() < 1000, "it comes to an end");
        }
        moves
    }

    /// Completes a node with an output.
    fn made(&mut self, node: &str, output: Value) -> Vec<String> {
        assert_eq!(self.status(node), "RUNNING");
        self.document["workflow"]["nodes"][node]["output"] = output;
        self.settle(WorkflowEvent::Progress)
    }

    fn status(&self, node: &str) -> &str {
        self.document["workflow"]["nodes"][node]["status"].as_str().expect("a status")
    }

    fn statuses(&self) -> String {
        let of = |id: &String| format!("{id} {}", self.status(id));
        self.definition.nodes.keys().map(of).collect::<Vec<_>>().join(", ")
    }

    fn whole(&self) -> &Value {
        &self.document["workflow"]["status"]
    }

    fn data(&self) -> &Value {
        &self.document["workflow"]["data"]
    }
}

const START: WorkflowEvent<'static> = WorkflowEvent::Start { from_request: true };

#[test]
fn values_go_from_node_to_node_by_the_names_that_each_has_for_them() {
    let mut run = Run::of(json!({"data": {"limit": 2, "unit": "kg"}, "nodes": {
        "parse": {"output_mapping": {"rows": "records", "none": "nothing"}},
        "clean": {"dependencies": ["parse"], "input_mapping": {"r": "records", "max": "limit", "absent": "nothing"}},
    }}));
    run.document["request"]["data"] = json!({"limit": 3});
    assert_eq!(run.settle(START), ["parse READY", "parse RUNNING"]);
    assert_eq!(*run.data(), json!({"limit": 3, "unit": "kg"}), "what the request brings is laid over it");
    let moves = run.made("parse", json!({"rows": [1], "other": 1}));
    assert_eq!(moves, ["parse COMPLETED", "clean READY", "clean RUNNING"]);
    assert_eq!(run.document["workflow"]["nodes"]["clean"]["input"], json!({"r": [1], "max": 3}));
    assert_eq!(*run.data(), json!({"limit": 3, "unit": "kg", "records": [1]}));
    assert_eq!(run.made("clean", json!({})), ["clean COMPLETED"]);
    assert_eq!(*run.whole(), "COMPLETED");
    assert_eq!(run.turn(WorkflowEvent::Progress), None, "there is nothing left to do");
}

#[test]
fn request_data_is_bounded_and_taken_only_on_demand() {
    let mut run = Run::of(json!({"nodes": {"a": {}}}));
    let many: BTreeMap<String, u32> = (0..257).map(|number| (format!("k{number}"), number)).collect();
    run.document["request"]["data"] = json!(many);
    let refused = run.try_turn(START).expect_err("too many");
    assert_eq!(refused.code, WorkflowCode::TooMuchData);
    assert_eq!(run.settle(WorkflowEvent::Start { from_request: false }), ["a READY", "a RUNNING"]);
    assert_eq!(*run.data(), json!({}));
}

#[test]
fn a_document_without_a_valid_workflow_is_rejected() {
    let mut run = Run::of(json!({"nodes": {"a": {}}}));
    run.document["workflow"]["nodes"]["a"]["status"] = json!("DONE");
    assert_eq!(run.try_turn(START).expect_err("no such status").code, WorkflowCode::NoState);
    run.document = json!({});
    assert_eq!(run.try_turn(START).expect_err("nothing is there").code, WorkflowCode::NoState);
}

#[test]
fn an_abandoned_node_fails_and_its_dependants_wait_until_it_is_resumed() {
    let mut run = Run::of(json!({"nodes": {
        "a": {"output_mapping": {"x": "x"}}, "b": {"dependencies": ["a"]}, "c": {"dependencies": ["b"]},
        "d": {"dependencies": ["a"]},
    }}));
    run.settle(START);
    run.made("a", json!({"x": 1}));
    assert_eq!(run.settle(WorkflowEvent::Abandoned("b")), ["b FAILED"]);
    assert_eq!(*run.whole(), "RUNNING", "another is under way");
    assert_eq!(run.turn(WorkflowEvent::Abandoned("b")), None, "once");
    run.made("d", json!({}));
    assert_eq!(
        (run.statuses().as_str(), run.whole().as_str()),
        ("a COMPLETED, b FAILED, c PENDING, d COMPLETED", Some("FAILED"))
    );
    assert_eq!(run.document["workflow"]["nodes"]["b"]["error"], "its worker came to no output");
    assert_eq!(run.settle(WorkflowEvent::Resume("b")), ["b PENDING", "b READY", "b RUNNING"]);
    assert_eq!(*run.whole(), "RUNNING");
    let b = json!({"node_id": "b", "status": "RUNNING", "input": {}});
    assert_eq!(run.document["workflow"]["nodes"]["b"], b, "neither its error nor its old input is there");
    run.made("b", json!({}));
    run.made("c", json!({}));
    assert_eq!(*run.whole(), "COMPLETED");
}

#[test]
fn an_abandoned_node_with_output_is_completed() {
    let mut run = Run::of(json!({"nodes": {"a": {}}}));
    run.settle(START);
    run.document["workflow"]["nodes"]["a"]["output"] = json!({});
    assert_eq!(run.settle(WorkflowEvent::Abandoned("a")), ["a COMPLETED"]);
}

#[test]
fn all_that_depends_on_what_is_resumed_is_done_once_more_and_nothing_else() {
    let mut run = Run::of(json!({"nodes": {
        "a": {}, "b": {"dependencies": ["a"], "trigger_type": "EVENT"}, "c": {"dependencies": ["b"], "trigger_type": "MANUAL"}, "d": {},
    }}));
    run.settle(START);
    run.made("a", json!({}));
    assert_eq!(run.settle(WorkflowEvent::Triggered("b")), ["b RUNNING"]);
    assert_eq!(run.try_turn(WorkflowEvent::Resume("a")).expect_err("b has it").code, WorkflowCode::IllegalTransition);
    assert_eq!(run.try_turn(WorkflowEvent::Resume("z")).expect_err("no node").code, WorkflowCode::UnknownNode);
    run.made("b", json!({}));
    run.settle(WorkflowEvent::Triggered("c"));
    run.made("c", json!({}));
    assert_eq!(run.statuses(), "a COMPLETED, b COMPLETED, c COMPLETED, d RUNNING");
    // Node b was started, and is resumed itself; c has to be started again.
    assert_eq!(run.settle(WorkflowEvent::Resume("b")), ["b PENDING", "c PENDING", "b READY", "b RUNNING"]);
    run.made("b", json!({}));
    assert_eq!(run.statuses(), "a COMPLETED, b COMPLETED, c READY, d RUNNING");
    assert_eq!(run.settle(WorkflowEvent::Resume("a")), ["a PENDING", "b PENDING", "c PENDING", "a READY", "a RUNNING"]);
    run.made("a", json!({}));
    assert_eq!(run.statuses(), "a COMPLETED, b READY, c PENDING, d RUNNING");
    assert_eq!(run.turn(WorkflowEvent::Resume("c")), None, "it was not begun");
}

#[test]
fn a_trigger_counts_when_it_comes_and_once() {
    let mut run = Run::of(json!({"nodes": {
        "a": {}, "b": {"dependencies": ["a"], "trigger_type": "EVENT"}, "c": {"trigger_type": "SCHEDULE"},
    }}));
    assert_eq!(run.settle(START), ["a READY", "c READY", "a RUNNING"]);
    // A trigger that arrives before the dependencies are completed is recorded.
    assert_eq!(run.settle(WorkflowEvent::Triggered("b")), [""; 0]);
    assert_eq!(run.document["workflow"]["nodes"]["b"]["came"], true);
    assert_eq!(run.turn(WorkflowEvent::Triggered("b")), None);
    assert_eq!(run.made("a", json!({})), ["a COMPLETED", "b READY", "b RUNNING"]);
    assert_eq!(run.turn(WorkflowEvent::Triggered("b")), None, "it runs already");
    assert_eq!(run.settle(WorkflowEvent::Triggered("c")), ["c RUNNING"]);
    assert_eq!(run.try_turn(WorkflowEvent::Triggered("z")).expect_err("no node").code, WorkflowCode::UnknownNode);
}

#[test]
fn a_condition_that_does_not_hold_skips_a_node_and_all_that_waits_for_it() {
    let nodes = json!({"nodes": {
        "a": {"output_mapping": {"n": "count"}},
        "b": {"dependencies": ["a"], "when": "data.count > 10"}, "c": {"dependencies": ["b"]},
        "d": {"dependencies": ["a", "c"]}, "e": {"dependencies": ["a"], "when": "data.count <= 10"},
    }});
    let mut run = Run::of(nodes.clone());
    run.settle(START);
    run.made("a", json!({"n": 3}));
    run.made("e", json!({}));
    assert_eq!(run.statuses(), "a COMPLETED, b SKIPPED, c SKIPPED, d SKIPPED, e COMPLETED");
    assert_eq!(*run.whole(), "COMPLETED", "a bypass is no failure");
    // A condition that cannot be evaluated fails the node instead of skipping it.
    let mut run = Run::of(nodes);
    run.settle(START);
    run.made("a", json!({}));
    assert_eq!(run.statuses(), "a COMPLETED, b FAILED, c PENDING, d PENDING, e FAILED");
    assert_eq!(*run.whole(), "FAILED");
    let error = run.document["workflow"]["nodes"]["b"]["error"].as_str().expect("an error");
    assert!(error.starts_with("its `when`: "), "{error}");
}

#[test]
fn a_turn_has_so_much_room_and_the_next_goes_on() {
    let mapping: BTreeMap<String, &str> = (0..64).map(|number| (format!("p{number}"), "k")).collect();
    let node = json!({"input_mapping": mapping});
    let nodes: BTreeMap<String, &Value> = (0..64).map(|number| (format!("n{number:02}"), &node)).collect();
    let mut run = Run::of(json!({"nodes": nodes, "data": {"k": 1}}));
    let mut turns = 0;
    let mut next = run.turn(START);
    while let Some(turn) = next {
        assert!(turn.patch.len() <= 1000, "{}", turn.patch.len());
        turns += 1;
        next = if turn.more { run.turn(WorkflowEvent::Progress) } else { None };
    }
    assert!(turns > 5, "{turns}");
    for (id, node) in run.document["workflow"]["nodes"].as_object().expect("nodes") {
        assert_eq!(
            (&node["status"], node["input"].as_object().map(serde_json::Map::len)),
            (&json!("RUNNING"), Some(64)),
            "{id}"
        );
    }
}

/// Generates nodes with dependencies on earlier ones, their failures, and two orders of completion.
fn workflows() -> impl Strategy<Value = (Vec<Vec<usize>>, Vec<bool>, [Vec<usize>; 2])> {
    (1..9_usize).prop_flat_map(|count| {
        let needs: Vec<_> = (0..count).map(|node| prop::collection::vec(0..node.max(1), 0..3)).collect();
        let order = || prop::collection::vec(0..8_usize, count);
        (needs, prop::collection::vec(prop::bool::weighted(0.2), count), [order(), order()])
    })
}

proptest! {
    /// No node runs before its dependencies, every turn terminates, and the order of completion does not change the
    /// result.
    #[test]
    fn the_order_in_which_workers_finish_does_not_matter((needs, fails, orders) in workflows()) {
        let id = |node: usize| format!("n{node}");
        let node = |(at, needs): (usize, &Vec<usize>)| {
            let needs: Vec<String> = needs.iter().filter(|needed| **needed != at).map(|needed| id(*needed)).collect();
            (id(at), json!({"dependencies": needs, "output_mapping": {"x": id(at)}, "input_mapping": {"x": "n0"}}))
        };
        let nodes: BTreeMap<String, Value> = needs.iter().enumerate().map(node).collect();
        let mut ends = Vec::new();
        for order in orders {
            let mut run = Run::of(json!({"nodes": nodes}));
            run.settle(START);
            for choice in order {
                let running: Vec<usize> = (0..needs.len()).filter(|node| run.status(&id(*node)) == "RUNNING").collect();
                let Some(node) = running.get(choice % running.len().max(1)).copied() else { break };
                for needed in &run.definition.nodes[&id(node)].dependencies {
                    prop_assert_eq!(run.status(needed), "COMPLETED");
                }
                if fails[node] {
                    run.settle(WorkflowEvent::Abandoned(&id(node)));
                } else {
                    run.made(&id(node), json!({"x": node}));
                }
            }
            let whole = if fails.iter().enumerate().any(|(node, fails)| *fails && run.status(&id(node)) == "FAILED") { "FAILED" } else { "COMPLETED" };
            prop_assert_eq!(run.whole(), whole);
            ends.push((run.statuses(), run.data().clone()));
        }
        prop_assert_eq!(&ends[0], &ends[1]);
    }
}
