//! What a workflow becomes in a blueprint: a seat, what wakes it and the workers of the nodes, and what must hold of the
//! document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::engine::{DATA_MAX, Happened};
use super::{Definition, Node, Status, TriggerType};
use crate::source::child;

/// The seat, and the rule by which it begins.
const SEAT: &str = "workflow";
const OUTPUT: &str = "workflow-output";
const ROUND: &str = "workflow-round";
const RESUME: &str = "workflow-resume";
/// The rules of a node begin so and end with its id; no two of these are the beginning of one name.
const RUN: &str = "run-";
const START: &str = "start-";
const GAVE_UP: &str = "gave-up-";

/// The signal from which a workflow goes on, with `{node}`.
pub const RESUMPTION: &str = "resume";

/// The definition of the schema that all nodes refer to.
const NODE_DEFINITION: &str = "workflow:node";

/// What the seat of a workflow is told.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct With {
    /// The nodes, with what a decision needs.
    pub nodes: BTreeMap<String, Node>,
    /// Whether the request may bring data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_request: bool,
}

impl With {
    fn of(definition: &Definition, from_request: bool) -> Self {
        let bare = |node: &Node| Node { node_id: None, agent_id: String::new(), metadata: Map::new(), ..node.clone() };
        let nodes = definition.nodes.iter().map(|(id, node)| (id.clone(), bare(node))).collect();
        Self { nodes, from_request }
    }

    /// The same as a definition.
    pub fn definition(self) -> Definition {
        Definition { nodes: self.nodes, ..Definition::default() }
    }

    /// What a rule of the workflow says by waking its seat; `resumed` is the node that the signal named.
    pub fn happened<'h>(&self, rule: &'h str, resumed: Option<&'h str>) -> Happened<'h> {
        if rule == SEAT {
            Happened::Start { from_request: self.from_request }
        } else if rule == RESUME {
            Happened::Resume(resumed.unwrap_or_default())
        } else if let Some(node) = rule.strip_prefix(START) {
            Happened::Came(node)
        } else if let Some(node) = rule.strip_prefix(GAVE_UP) {
            Happened::GaveUp(node)
        } else {
            Happened::GoesOn
        }
    }
}

/// What the worker of a node may do because of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grants {
    /// The worker.
    pub worker: String,
    /// The node.
    pub node: String,
    /// What it may read: its input.
    pub read: String,
    /// What it may add: its output.
    pub write: String,
}

/// Something that a workflow becomes.
#[derive(Clone, PartialEq, Debug)]
pub struct Made {
    /// The list that it is an element of, or the mapping that it is a member of: a JSON Pointer into a blueprint.
    pub within: &'static str,
    /// Its name there; absent for an element of a list, which has a `name`.
    pub name: Option<&'static str>,
    /// The node that it is made of; absent if of all of them.
    pub node: Option<String>,
    /// What it is.
    pub value: Value,
}

/// The parts of a blueprint that a workflow becomes.
#[derive(Clone, PartialEq, Debug)]
pub struct Expansion {
    /// What is put into it; there must be nothing else of the name.
    pub made: Vec<Made>,
    /// What the workers of the nodes may do beside.
    pub grants: Vec<Grants>,
    /// What is put where the blueprint says nothing itself: a holder, a member, a value.
    pub defaults: Vec<(&'static str, &'static str, Value)>,
}

impl Expansion {
    /// What is at first at `/workflow`.
    pub fn initial(&self) -> Option<&Value> {
        self.made.iter().find(|made| made.within == INITIAL).map(|made| &made.value)
    }
}

const INITIAL: &str = "/state/initial";

/// What a request brings for the data.
pub const REQUESTED: &str = "/request/properties/data";

/// What becomes of a sound workflow; `from_request`: whether the request may have a member `data`.
pub fn expand(definition: &Definition, from_request: bool) -> Expansion {
    let named =
        |within: &'static str, name: &'static str, value: Value| Made { within, name: Some(name), node: None, value };
    let ids: Vec<&String> = definition.nodes.keys().collect();
    let mut made = vec![
        named("/workers", SEAT, seat(definition, from_request)),
        named("/state/schema/properties", "workflow", schema(&ids)),
        named("/state/schema/$defs", NODE_DEFINITION, schema_of_node()),
        named(INITIAL, "workflow", initial(definition)),
        named(
            "/signals",
            RESUMPTION,
            json!({
                "type": "object",
                "required": ["node"],
                "additionalProperties": false,
                "properties": {"node": {"enum": ids}},
            }),
        ),
    ];
    let element = |within: &'static str, node: Option<&String>, value: Value| {
        made.push(Made { within, name: None, node: node.cloned(), value });
    };
    each_element(definition, element);
    let grants = definition.nodes.iter().map(|(id, node)| {
        let at = child("/workflow/nodes", id);
        let (read, write) = (format!("{at}/input"), format!("{at}/output"));
        Grants { worker: node.worker(id).to_owned(), node: id.clone(), read, write }
    });
    let mut defaults = vec![
        ("", "done", json!({"when": "state.workflow.status == \"COMPLETED\""})),
        // Who is to do something once more comes to the same again.
        ("/circuit", "cycles", json!({"window": 1, "repeats": 2, "then": "stop_branch"})),
    ];
    // What the seat would not take is refused with the request.
    defaults.extend(from_request.then(|| (REQUESTED, "maxProperties", DATA_MAX.into())));
    Expansion { grants: grants.collect(), made, defaults }
}

/// The rules and the invariants.
fn each_element(definition: &Definition, mut element: impl FnMut(&'static str, Option<&String>, Value)) {
    const RULES: &str = "/rules";
    // What is next is decided before those go on who wait for a place.
    let decide = |name: &str, trigger: Value, when: Option<String>| {
        let mut rule = json!({"name": name, "trigger": trigger, "run": SEAT, "urgent": true});
        if let Some(when) = when {
            rule["when"] = when.into();
        }
        rule
    };
    element(RULES, None, decide(SEAT, json!("start"), None));
    element(RULES, None, decide(OUTPUT, json!({"op": "add", "path": "/workflow/nodes/*/output"}), None));
    let round = json!({"op": "replace", "path": "/workflow/round"});
    element(RULES, None, decide(ROUND, round, Some("value.more".to_owned())));
    element(RULES, None, decide(RESUME, json!({"signal": RESUMPTION}), None));
    for (id, node) in &definition.nodes {
        let run = format!("{RUN}{id}");
        let input = json!({"op": "add", "path": format!("{}/input", child("/workflow/nodes", id))});
        element(RULES, Some(id), json!({"name": run, "trigger": input, "run": node.worker(id)}));
        let own = format!("state.workflow.nodes[\"{id}\"]");
        let gave_up = format!("{own}.status == \"RUNNING\" && !has({own}.output)");
        element(RULES, Some(id), decide(&format!("{GAVE_UP}{id}"), json!({"idle": [run]}), Some(gave_up)));
        let (trigger, when) = match (node.trigger_type, &node.every) {
            (TriggerType::Event, _) => (json!({"signal": node.awaited(id)}), None),
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

/// That every node is what it was, or one of the successors of that.
fn moves() -> String {
    let before = "before.workflow.nodes[self.node_id].status";
    let mut moves = format!("self.status == {before}");
    for from in Status::ALL {
        let next: Vec<String> = from.successors().iter().map(|next| format!("\"{next}\"")).collect();
        moves.push_str(&format!(" || ({before} == \"{from}\" && self.status in [{}])", next.join(", ")));
    }
    moves
}

/// Who decides what is next. It writes what nobody else may, and copies values without a look at them.
fn seat(definition: &Definition, from_request: bool) -> Value {
    let grant = |path: &str, ops: &[&str]| json!({"path": path, "ops": ops});
    let mut reads = vec!["/workflow"];
    reads.extend(from_request.then_some("/request/data"));
    json!({
        "agent": "builtin:workflow",
        "description": "Decides which node of the workflow is next.",
        "with": With::of(definition, from_request),
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
        // It is the only writer of all that it goes by, one call at a time, and what a call decides is held against what
        // was before: nothing that it was not shown can be lost.
        "freshness": "none",
        "view": {"budget": VIEW_CHARS},
        "limits": {"invocations": 1_000_000, "exempt": true},
        "patch": {"max_ops": 1000, "max_bytes": 1_048_576},
    })
}

/// Its view is for people who look what it was shown; it goes by the document.
const VIEW_CHARS: u32 = 24_000;

fn schema(ids: &[&String]) -> Value {
    let node = json!({"$ref": format!("#/$defs/{NODE_DEFINITION}")});
    let nodes: Map<String, Value> = ids.iter().map(|id| ((*id).clone(), node.clone())).collect();
    json!({
        "type": "object",
        "required": ["status", "round", "nodes", "data"],
        "additionalProperties": false,
        "properties": {
            "status": {"enum": [Status::Running, Status::Completed, Status::Failed]},
            "round": {
                "type": "object",
                "required": ["number", "more"],
                "additionalProperties": false,
                "properties": {"number": {"type": "integer", "minimum": 0}, "more": {"type": "boolean"}},
            },
            "nodes": {"type": "object", "required": ids, "additionalProperties": false, "properties": nodes},
            "data": {"type": "object"},
        },
    })
}

fn schema_of_node() -> Value {
    json!({
        "type": "object",
        "required": ["node_id", "status"],
        "additionalProperties": false,
        "properties": {
            "node_id": {"type": "string"},
            "status": {"enum": Status::ALL},
            "came": {"const": true},
            "input": {"type": "object"},
            "output": {"type": "object"},
            "error": {"type": "string"},
        },
    })
}

fn initial(definition: &Definition) -> Value {
    let node = |id: &String| (id.clone(), json!({"node_id": id, "status": Status::Pending}));
    let nodes: Map<String, Value> = definition.nodes.keys().map(node).collect();
    json!({
        "status": Status::Running,
        "round": {"number": 0, "more": true},
        "nodes": nodes,
        "data": definition.data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{Expr, Variable, Variables};

    /// The invariant on the board says of all 36 pairs what the table says; what stays is no move.
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
        let with = With::of(&definition, true);
        let mut names = std::collections::BTreeSet::new();
        for made in expand(&definition, true).made.iter().filter(|made| made.within == "/rules") {
            let name = made.value["name"].as_str().expect("a name").to_owned();
            let happened = with.happened(&name, Some("a"));
            let expected = match &made.node {
                None if name == SEAT => Happened::Start { from_request: true },
                None if name == RESUME => Happened::Resume("a"),
                Some(node) if name == format!("start-{node}") => Happened::Came(node),
                Some(node) if name == format!("gave-up-{node}") => Happened::GaveUp(node),
                _ => Happened::GoesOn,
            };
            assert_eq!(happened, expected, "{name}");
            assert!(names.insert(name), "each name is there once");
        }
        assert_eq!(names.len(), 4 + 3 * ids.len());
    }
}
