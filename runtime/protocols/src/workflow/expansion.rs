//! Expansion of a workflow into a blueprint: a worker for the decisions, rules for it and for the nodes, and
//! invariants.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::engine::{DATA_MAX, WorkflowEvent};
use super::{Definition, Node, Status, TriggerType};
use patchboard_lint::source::child;

/// Name of the workflow worker, and of the rule that starts it.
const WORKER: &str = "workflow";
const OUTPUT: &str = "workflow-output";
const ROUND: &str = "workflow-round";
const RESUME: &str = "workflow-resume";
/// Name prefixes of a node's rules, followed by its id. No prefix begins with another one.
const RUN: &str = "run-";
const START: &str = "start-";
const GAVE_UP: &str = "gave-up-";

/// Signal that resumes a workflow, with `{node}`.
pub const RESUME_SIGNAL: &str = "resume";

/// Schema definition shared by all nodes.
const NODE_DEFINITION: &str = "workflow:node";

/// Arguments of the workflow worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowArgs {
    /// The nodes, reduced to the data for decisions.
    pub nodes: BTreeMap<String, Node>,
    /// True if the request may provide data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_request: bool,
}

impl WorkflowArgs {
    fn new(definition: &Definition, from_request: bool) -> Self {
        let bare = |node: &Node| Node { node_id: None, agent_id: String::new(), metadata: Map::new(), ..node.clone() };
        let nodes = definition.nodes.iter().map(|(id, node)| (id.clone(), bare(node))).collect();
        Self { nodes, from_request }
    }

    /// Converts the arguments back into a definition.
    pub fn definition(self) -> Definition {
        Definition { nodes: self.nodes, ..Definition::default() }
    }

    /// Returns the event signalled by a workflow rule; `resumed` is the node named by the signal.
    pub fn event_of_rule<'h>(&self, rule: &'h str, resumed: Option<&'h str>) -> WorkflowEvent<'h> {
        if rule == WORKER {
            WorkflowEvent::Start { from_request: self.from_request }
        } else if rule == RESUME {
            WorkflowEvent::Resume(resumed.unwrap_or_default())
        } else if let Some(node) = rule.strip_prefix(START) {
            WorkflowEvent::Triggered(node)
        } else if let Some(node) = rule.strip_prefix(GAVE_UP) {
            WorkflowEvent::Abandoned(node)
        } else {
            WorkflowEvent::Progress
        }
    }
}

/// Additional grants of a node's worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeGrants {
    /// The worker.
    pub worker: String,
    /// The node.
    pub node: String,
    /// Place that it may read: the node's input.
    pub read: String,
    /// Place that it may add: the node's output.
    pub write: String,
}

/// A part of the blueprint generated from a workflow.
#[derive(Clone, PartialEq, Debug)]
pub struct GeneratedPart {
    /// JSON Pointer to the list or object in the blueprint that contains it.
    pub within: &'static str,
    /// Member name; absent for an element of a list, which has a `name`.
    pub name: Option<&'static str>,
    /// The node that it was generated from; absent for the whole workflow.
    pub node: Option<String>,
    /// The generated value.
    pub value: Value,
}

/// Parts of a blueprint generated from a workflow.
#[derive(Clone, PartialEq, Debug)]
pub struct Expansion {
    /// Generated parts; the blueprint must not define the same names.
    pub made: Vec<GeneratedPart>,
    /// Additional grants of the nodes' workers.
    pub grants: Vec<NodeGrants>,
    /// Defaults for settings absent from the blueprint: container, member, value.
    pub defaults: Vec<(&'static str, &'static str, Value)>,
}

impl Expansion {
    /// Returns the initial value of `/workflow`.
    pub fn initial(&self) -> Option<&Value> {
        self.made.iter().find(|made| made.within == INITIAL).map(|made| &made.value)
    }
}

const INITIAL: &str = "/state/initial";

/// Schema of the data in a request.
pub const REQUEST_DATA_SCHEMA: &str = "/request/properties/data";

/// Expands a checked workflow. `from_request` permits a member `data` of the request.
pub fn expand(definition: &Definition, from_request: bool) -> Expansion {
    let named = |within: &'static str, name: &'static str, value: Value| {
        let name = Some(name);
        GeneratedPart { within, name, node: None, value }
    };
    let ids: Vec<&String> = definition.nodes.keys().collect();
    let signal = json!({
        "type": "object", "required": ["node"], "additionalProperties": false, "properties": {"node": {"enum": ids}},
    });
    let mut made = vec![
        named("/workers", WORKER, workflow_worker(definition, from_request)),
        named("/state/schema/properties", "workflow", schema(&ids)),
        named("/state/schema/$defs", NODE_DEFINITION, schema_of_node()),
        named(INITIAL, "workflow", initial(definition)),
        named("/signals", RESUME_SIGNAL, signal),
    ];
    let element = |within: &'static str, node: Option<&String>, value: Value| {
        made.push(GeneratedPart { within, name: None, node: node.cloned(), value });
    };
    each_element(definition, element);
    let grants = definition.nodes.iter().map(|(id, node)| {
        let at = child("/workflow/nodes", id);
        let (read, write) = (format!("{at}/input"), format!("{at}/output"));
        NodeGrants { worker: node.worker(id).to_owned(), node: id.clone(), read, write }
    });
    let mut defaults = vec![
        ("", "done", json!({"when": "state.workflow.status == \"COMPLETED\""})),
        // Resumed nodes repeat earlier values. A window of one commit never holds two returns, which disables the
        // check.
        ("/circuit", "cycles", json!({"window": 1, "repeats": 2, "then": "stop_branch"})),
    ];
    // Reject excess data with the request, before the workflow worker would.
    defaults.extend(from_request.then(|| (REQUEST_DATA_SCHEMA, "maxProperties", DATA_MAX.into())));
    Expansion { grants: grants.collect(), made, defaults }
}

/// Generates the rules and invariants.
fn each_element(definition: &Definition, mut element: impl FnMut(&'static str, Option<&String>, Value)) {
    const RULES: &str = "/rules";
    // Decisions take precedence over queued invocations. `urgent` and `exempt` are the words that all formats have.
    let decide = |name: &str, trigger: Value, when: Option<String>| {
        let mut rule = json!({"name": name, "trigger": trigger, "run": WORKER, "urgent": true});
        if let Some(when) = when {
            rule["when"] = when.into();
        }
        rule
    };
    element(RULES, None, decide(WORKER, json!("start"), None));
    element(RULES, None, decide(OUTPUT, json!({"op": "add", "path": "/workflow/nodes/*/output"}), None));
    let round = json!({"op": "replace", "path": "/workflow/round"});
    element(RULES, None, decide(ROUND, round, Some("value.more".to_owned())));
    element(RULES, None, decide(RESUME, json!({"signal": RESUME_SIGNAL}), None));
    for (id, node) in &definition.nodes {
        let run = format!("{RUN}{id}");
        let input = json!({"op": "add", "path": format!("{}/input", child("/workflow/nodes", id))});
        element(RULES, Some(id), json!({"name": run, "trigger": input, "run": node.worker(id)}));
        let own = format!("state.workflow.nodes[\"{id}\"]");
        let gave_up = format!("{own}.status == \"RUNNING\" && !has({own}.output)");
        element(RULES, Some(id), decide(&format!("{GAVE_UP}{id}"), json!({"idle": [run]}), Some(gave_up)));
        let (trigger, when) = match (node.trigger_type, &node.every) {
            (TriggerType::Event, _) => (json!({"signal": node.awaited_signal(id)}), None),
            (TriggerType::Manual, _) => (json!("manual"), None),
            (TriggerType::Schedule, Some(every)) => {
                (json!({"every": every}), Some(format!("{own}.status == \"READY\"")))
            }
            (TriggerType::Schedule, None) | (TriggerType::Dependency, _) => continue,
        };
        element(RULES, Some(id), decide(&format!("{START}{id}"), trigger, when));
    }
    let each = "/workflow/nodes/*";
    element("/invariants", None, json!({"name": "workflow-moves", "for": each, "expr": moves()}));
    let outputs = "!has(self.output) || self.status == \"RUNNING\" || self.status == \"COMPLETED\"";
    element("/invariants", None, json!({"name": "workflow-outputs", "for": each, "expr": outputs}));
}

/// Returns an invariant: every node keeps its status or moves to a successor.
fn moves() -> String {
    let before = "before.workflow.nodes[self.node_id].status";
    let mut moves = format!("self.status == {before}");
    for from in Status::ALL {
        let next: Vec<String> = from.successors().iter().map(|next| format!("\"{next}\"")).collect();
        moves.push_str(&format!(" || ({before} == \"{from}\" && self.status in [{}])", next.join(", ")));
    }
    moves
}

/// Returns the workflow worker. It has exclusive write grants, and copies values without inspecting them.
fn workflow_worker(definition: &Definition, from_request: bool) -> Value {
    let grant = |path: &str, ops: &[&str]| json!({"path": path, "ops": ops});
    let mut reads = vec!["/workflow"];
    reads.extend(from_request.then_some("/request/data"));
    json!({
        "agent": "builtin:workflow",
        "description": "Decides which node of the workflow is next.",
        "with": WorkflowArgs::new(definition, from_request),
        "pass": true,
        "reads": reads,
        "writes": [
            grant("/workflow/status", &["replace"]),
            grant("/workflow/round", &["replace"]),
            grant("/workflow/data/*", &["add", "replace", "copy"]),
            grant("/workflow/nodes/*/status", &["replace"]),
            grant("/workflow/nodes/*/input", &["add", "remove"]),
            grant("/workflow/nodes/*/input/*", &["add", "copy"]),
            grant("/workflow/nodes/*/output", &["remove"]),
            grant("/workflow/nodes/*/error", &["add", "remove"]),
            grant("/workflow/nodes/*/came", &["add", "remove"]),
        ],
        // Safe without a freshness check: other workers only add outputs, calls run one at a time, and invariants check
        // each decision against the previous state.
        "freshness": "none",
        "view": {"budget": VIEW_CHARS},
        "limits": {"invocations": 1_000_000, "exempt": true},
        "patch": {"max_ops": 1000, "max_bytes": 1_048_576},
    })
}

/// Size of its view, which only serves people; the worker reads the document.
const VIEW_CHARS: u32 = 24_000;

fn schema(ids: &[&String]) -> Value {
    let node = json!({"$ref": format!("#/$defs/{NODE_DEFINITION}")});
    let nodes: Map<String, Value> = ids.iter().map(|id| ((*id).clone(), node.clone())).collect();
    json!({
        "type": "object", "required": ["status", "round", "nodes", "data"], "additionalProperties": false,
        "properties": {
            "status": {"enum": [Status::Running, Status::Completed, Status::Failed]},
            "round": {
                "type": "object", "required": ["number", "more"], "additionalProperties": false,
                "properties": {"number": {"type": "integer", "minimum": 0}, "more": {"type": "boolean"}},
            },
            "nodes": {"type": "object", "required": ids, "additionalProperties": false, "properties": nodes},
            "data": {"type": "object"},
        },
    })
}

fn schema_of_node() -> Value {
    json!({
        "type": "object", "required": ["node_id", "status"], "additionalProperties": false,
        "properties": {
            "node_id": {"type": "string"},
            "status": {"enum": Status::ALL},
            "came": {"const": true},
            "input": {"type": "object"}, "output": {"type": "object"}, "error": {"type": "string"},
        },
    })
}

fn initial(definition: &Definition) -> Value {
    let node = |id: &String| (id.clone(), json!({"node_id": id, "status": Status::Pending}));
    let nodes: Map<String, Value> = definition.nodes.keys().map(node).collect();
    json!({"status": Status::Running, "round": {"number": 0, "more": true}, "nodes": nodes, "data": definition.data})
}

#[cfg(test)]
mod tests {
    use super::*;
    use patchboard_kernel::expr::{Expr, Variable, Variables};

    /// The board invariant agrees with the table on all 36 pairs; an unchanged status is no move.
    #[test]
    fn the_board_allows_what_the_table_allows() {
        let expr = Expr::compile(&moves(), &["before", "self"]).expect("it compiles");
        for from in Status::ALL {
            for next in Status::ALL {
                let before = json!({"workflow": {"nodes": {"n-1": {"node_id": "n-1", "status": from}}}});
                let own = json!({"node_id": "n-1", "status": next});
                let variables: Variables<'_> =
                    [("before", Variable::from(&before)), ("self", Variable::from(&own))].into();
                let expected = from == next || from.successors().contains(next);
                assert_eq!(expr.evaluate(&variables), Ok(expected), "{from} {next}");
            }
        }
    }

    #[test]
    fn a_rule_says_what_happened_whatever_the_nodes_are_called() {
        let ids = ["a", "workflow", "round", "run-a", "gave-up-a", "start-a"];
        let nodes: BTreeMap<&str, Value> = ids.iter().map(|id| (*id, json!({"trigger_type": "EVENT"}))).collect();
        let definition: Definition = serde_json::from_value(json!({"nodes": nodes})).expect("a definition");
        let with = WorkflowArgs::new(&definition, true);
        let mut names = std::collections::BTreeSet::new();
        for made in expand(&definition, true).made.iter().filter(|made| made.within == "/rules") {
            let name = made.value["name"].as_str().expect("a name").to_owned();
            let happened = with.event_of_rule(&name, Some("a"));
            let expected = match &made.node {
                None if name == WORKER => WorkflowEvent::Start { from_request: true },
                None if name == RESUME => WorkflowEvent::Resume("a"),
                Some(node) if name == format!("start-{node}") => WorkflowEvent::Triggered(node),
                Some(node) if name == format!("gave-up-{node}") => WorkflowEvent::Abandoned(node),
                _ => WorkflowEvent::Progress,
            };
            assert_eq!(happened, expected, "{name}");
            assert!(names.insert(name), "each name is there once");
        }
        assert_eq!(names.len(), 4 + 3 * ids.len());
    }
}
