//! Workflows on boards with scripted agents: timing, breakers, large values, and write protection.

use std::sync::Arc;

use crate::played::Played;
use patchboard_kernel::board::{Input, Outcome};
use patchboard_kernel::call_context::CallContext;
use patchboard_kernel::id::{RuleName, Timestamp};
use patchboard_kernel::record::Kind;
use patchboard_lint::Diagnostic;
use patchboard_lint::source::Source;
use patchboard_protocols::workflow::{WorkflowArgs, engine};
use serde_json::{Value, json};

const HOUR: i64 = 3_600_000;

/// Board of a workflow. The engine's seat is answered by a function of its view.
struct Flow {
    played: Played,
    /// Views of the open calls, in order.
    shown: Vec<Arc<CallContext>>,
}

impl Flow {
    fn of(request: Value, members: Value) -> Self {
        let mut blueprint = json!({"blueprint": 1, "name": "flow"});
        blueprint.as_object_mut().expect("an object").extend(members.as_object().expect("an object").clone());
        let mut none = |_: &str| Err::<String, _>("there are no files".to_owned());
        let source =
            patchboard_protocols::resolve(Source::from_value("flow", blueprint), &mut none).expect("it is sound");
        assert_eq!(patchboard_protocols::check(&source).findings, []);
        let mut flow = Self { played: Played::asked(request, source.value().clone()), shown: Vec::new() };
        flow.settle();
        flow
    }

    fn calls(&self) -> Vec<&str> {
        self.played.calls.iter().map(|(.., worker)| worker.as_str()).collect()
    }

    /// Answers the engine until it has nothing left to decide.
    fn settle(&mut self) {
        loop {
            self.shown.extend(self.played.prompts.drain(..).map(|(.., shown)| shown));
            let Some(at) = self.played.calls.iter().position(|(.., worker)| worker == "workflow") else { return };
            let shown = Arc::clone(&self.shown[at]);
            let with: WorkflowArgs =
                serde_json::from_value(shown.worker_plan().worker.with.clone().expect("it is told").into())
                    .expect("so");
            let rule = shown.triggered_by().map_or("", RuleName::as_str);
            let resumed = shown.signal().and_then(|signal| signal["node"].as_str());
            let happened = with.event_of_rule(rule, resumed);
            let turn = engine::compute_turn(&with.clone().definition(), shown.basis().state.root(), happened);
            let reply = match turn.expect("it is no refusal") {
                Some(turn) => json!({"patch": turn.patch}),
                None => json!({"pass": "nothing is to be done"}),
            };
            self.answer(at, reply);
        }
    }

    fn answer(&mut self, at: usize, reply: Value) {
        let call = self.played.calls.remove(at);
        self.played.calls.insert(0, call);
        self.shown.remove(at);
        let outcome = self.played.answer(reply, None);
        assert!(matches!(outcome, Outcome::Committed { .. } | Outcome::NoOp { .. }), "{outcome:?}");
    }

    /// Answers the call of a node with the node's output.
    fn makes(&mut self, node: &str, output: Value) {
        let at = self.played.calls.iter().position(|(.., worker)| worker == node).expect("it is called");
        self.answer(at, json!([{"op": "add", "path": format!("/workflow/nodes/{node}/output"), "value": output}]));
        self.settle();
    }

    fn tick_at(&mut self, now: i64) {
        self.played.now = now - 1;
        self.played.give(Input::Tick);
        self.settle();
    }

    fn at(&self, place: &str) -> Value {
        let state = self.played.board.state().root().to_value();
        state.pointer(&format!("/workflow/{place}")).cloned().unwrap_or_default()
    }

    fn status(&self, node: &str) -> Value {
        self.at(&format!("nodes/{node}/status"))
    }
}

fn remote() -> Value {
    json!({"agent": "remote", "patch": {"max_bytes": 1_000_000}})
}

#[test]
fn a_moment_starts_what_is_ready_and_nothing_else() {
    let nodes = json!({
        "a": {"trigger_type": "SCHEDULE", "every": "0 6 * * *"},
        "b": {"dependencies": ["a"], "trigger_type": "SCHEDULE", "every": "0 6 * * *"},
    });
    let mut flow =
        Flow::of(Value::Null, json!({"workflow": {"nodes": nodes}, "workers": {"a": remote(), "b": remote()}}));
    assert_eq!((flow.status("a"), flow.status("b")), (json!("READY"), json!("PENDING")));
    assert_eq!((flow.calls(), flow.played.board.wake_at()), (vec![], Some(Timestamp(6 * HOUR))));
    flow.tick_at(6 * HOUR);
    assert_eq!((flow.calls(), flow.status("b")), (vec!["a"], json!("PENDING")));
    flow.makes("a", json!({}));
    assert_eq!((flow.calls(), flow.status("b")), (vec![], json!("READY")), "that moment was not b's");
    flow.tick_at(30 * HOUR);
    flow.makes("b", json!({}));
    assert_eq!(flow.at("status"), "COMPLETED");
    assert!(flow.played.board.ended().is_some());
    flow.played.holds();
}

/// Values between nodes are copied, so neither the view nor the patch of the engine's seat limits their size.
#[test]
fn values_of_any_size_go_from_node_to_node() {
    let nodes = json!({
        "a": {"input_mapping": {"text": "text"}, "output_mapping": {"text": "longer"}},
        "b": {"dependencies": ["a"], "input_mapping": {"text": "longer"}, "when": "size(data.longer) > 400000"},
    });
    let request = json!({"type": "object", "properties": {"data": {"type": "object"}}});
    let (long, longer) = ("x".repeat(300_000), "y".repeat(500_000));
    let mut flow = Flow::of(
        json!({"data": {"text": long}}),
        json!({"request": request, "workflow": {"nodes": nodes}, "workers": {"a": remote(), "b": remote()}}),
    );
    assert_eq!(flow.at("nodes/a/input"), json!({"text": long}));
    flow.makes("a", json!({"text": longer}));
    assert_eq!(flow.at("nodes/b/input"), json!({"text": longer}));
    flow.makes("b", json!({}));
    assert_eq!(flow.at("status"), "COMPLETED");
    flow.played.holds();
}

#[test]
fn a_node_stopped_by_a_breaker_fails_and_others_continue() {
    let nodes = json!({"a": {}, "b": {}, "c": {"dependencies": ["a"]}});
    let mut flow = Flow::of(
        Value::Null,
        json!({
            "workflow": {"nodes": nodes}, "workers": {"a": remote(), "b": remote(), "c": remote()},
            "circuit": {"rejections": {"limit": 1, "then": "stop_branch"}},
        }),
    );
    assert_eq!(flow.calls(), ["a", "b"]);
    flow.shown.remove(0);
    let outcome = flow.played.answer(json!([{"op": "add", "path": "/workflow/nodes/a/output", "value": 3}]), None);
    assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
    flow.settle();
    assert_eq!(
        (flow.status("a"), flow.status("c"), flow.at("status")),
        (json!("FAILED"), json!("PENDING"), json!("RUNNING"))
    );
    flow.makes("b", json!({}));
    assert_eq!(flow.at("status"), "FAILED");
    flow.played.holds();
}

#[test]
fn next_nodes_are_decided_before_waiting_workers_are_called() {
    let nodes = json!({"a": {}, "b": {}, "c": {"dependencies": ["a"]}});
    let workers = json!({"a": remote(), "b": remote(), "c": remote()});
    let mut flow = Flow::of(Value::Null, json!({"workflow": {"nodes": nodes}, "workers": workers, "concurrency": 1}));
    assert_eq!((flow.calls(), flow.status("b")), (vec!["a"], json!("RUNNING")));
    flow.makes("a", json!({}));
    assert_eq!(
        (flow.calls(), flow.status("c")),
        (vec!["b"], json!("RUNNING")),
        "c waits behind b, for its place alone"
    );
    flow.makes("b", json!({}));
    flow.makes("c", json!({}));
    assert_eq!(flow.at("status"), "COMPLETED");
    flow.played.holds();
}

#[test]
fn false_workflow_states_are_rejected_from_every_worker() {
    let mut flow = Flow::of(
        Value::Null,
        json!({"workflow": {"nodes": {"a": {}, "b": {"dependencies": ["a"]}}}, "workers": {"a": remote(), "b": remote()}}),
    );
    let leap = json!([{"op": "replace", "path": "/workflow/nodes/b/status", "value": "COMPLETED"}]);
    let refused = flow.played.rejection("workflow", leap);
    assert_eq!(refused.violations[0].rule.as_deref(), Some("workflow-moves"));
    let early = json!([{"op": "add", "path": "/workflow/nodes/b/output", "value": {}}]);
    let refused = flow.played.rejection("b", early);
    assert_eq!(refused.violations[0].rule.as_deref(), Some("workflow-outputs"));
    for (path, value) in [("a/status", json!("COMPLETED")), ("b/output", json!({})), ("b/input", json!({}))] {
        let beyond = json!([{"op": "add", "path": format!("/workflow/nodes/{path}"), "value": value}]);
        let refused = flow.played.rejection("a", beyond);
        assert_eq!(refused.violations[0].code.as_str(), "path_not_granted", "{path}");
    }
    flow.makes("a", json!({}));
    flow.makes("b", json!({}));
    assert_eq!((flow.at("status"), flow.played.count(Kind::Rejected)), (json!("COMPLETED"), 5));
    flow.played.holds();
}

/// A nested board has a workflow of its own, and a blueprint with its own document has both.
#[test]
fn a_workflow_comes_beside_what_the_blueprint_has_and_into_boards_inside() {
    let inside = json!({
        "blueprint": 1, "name": "inside", "request": {"type": "object", "additionalProperties": false, "properties": {}}, "workers": {"a": remote()}, "workflow": {"nodes": {"a": {}}},
    });
    let blueprint = json!({
        "blueprint": 1, "name": "outside",
        "state": {"schema": {"type": "object", "additionalProperties": false, "properties": {"request": true, "kept": {"type": "string"}}},
                  "initial": {"kept": "x"}},
        "workers": {
            "a": {"agent": "board", "board": {"of": "inside", "output": {"/workflow/nodes/a/output": "/workflow/nodes/a/output"}},
                  "writes": [{"path": "/workflow/nodes/a/output", "ops": ["add"], "value": {"type": "object", "maxProperties": 3}}]},
            "other": {"agent": "remote", "reads": ["/kept"]},
        },
        "rules": [{"name": "own", "trigger": "manual", "run": "other"}],
        "done": {"when": "state.kept == 'y'"},
        "boards": {"inside": inside},
        "workflow": {"nodes": {"a": {}}},
    });
    let mut none = |_: &str| Err::<String, _>("there are no files".to_owned());
    let source =
        patchboard_protocols::resolve(Source::from_value("outside", blueprint), &mut none).expect("it is sound");
    let report = patchboard_protocols::check(&source);
    let errors: Vec<_> =
        report.findings.iter().filter(|finding| finding.severity == patchboard_lint::Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
    let value = source.value();
    assert_eq!(value["state"]["initial"]["kept"], "x");
    assert_eq!(value["done"]["when"], "state.kept == 'y'", "what the blueprint says counts");
    assert_eq!(value["workers"]["a"]["writes"].as_array().map(Vec::len), Some(1), "also of grants");
    assert_eq!(value["rules"][0]["name"], "own");
    assert_eq!(value["boards"]["inside"]["workers"]["workflow"]["agent"], "builtin:workflow");
    assert_eq!((value.get("workflow"), value["boards"]["inside"].get("workflow")), (None, None));
}

/// Resolves a blueprint with fragments from a list.
fn resolved(text: &str, fragments: &[(&str, &str)]) -> Result<Source, Vec<Diagnostic>> {
    let text_of = |name: &str| fragments.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
    let mut load = |name: &str| text_of(name).ok_or_else(|| "no such file".to_owned());
    patchboard_protocols::resolve(Source::read("b.yaml", text).expect("it is YAML"), &mut load)
}

#[test]
fn a_workflow_in_a_fragment_becomes_what_it_is_in_a_blueprint() {
    let flow = "workflow: {nodes: {first: {agent_id: w}, second: {agent_id: w, dependencies: [first]}}}";
    let head = "blueprint: 1\nname: n\nstate: {schema: {}, initial: {}}\nworkers: {w: {agent: llm}}\n";
    let own = resolved(&format!("{head}{flow}"), &[]).expect("it is sound");
    let fragment = resolved(&format!("{head}use: [f]"), &[("f", flow)]).expect("it is sound");
    let mut included = fragment.value().clone();
    assert_eq!(included.as_object_mut().and_then(|members| members.remove("use")), Some(json!([])));
    assert_eq!(&included, own.value());
    assert!(included["workers"].get("workflow").is_some(), "{included}");
    // This also works from a separate file.
    let named = resolved(&format!("{head}use: [f]"), &[("f", "workflow: g"), ("g", &flow["workflow: ".len()..])]);
    assert_eq!(named.expect("it is sound").value()["rules"], own.value()["rules"]);
}

#[test]
fn a_finding_of_a_workflow_names_the_fragment_and_the_place() {
    let flow = "rules: []\nworkflow:\n  nodes:\n    a: {dependencies: [b]}\n";
    let findings = resolved("use: [x]", &[("x", flow)]).expect_err("it is rejected");
    let [finding] = findings.try_into().expect("one finding");
    let place = finding.position.map(|position| (position.line, position.column));
    assert_eq!((finding.file.as_deref(), place), (Some("x"), Some((4, 24))));
    assert_eq!(finding.code, "workflow_unknown_dependency");
    assert_eq!(finding.message, "`a` depends on `b`, and there is no such node");
}
