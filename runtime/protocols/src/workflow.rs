//! Workflows: dependent nodes in a deterministic order.
//!
//! A definition is checked before any of it is stored (SW4RM section 3.11.3, requirement rows W58 to W70). A workflow
//! in a blueprint becomes rules of an ordinary board (`expansion`); [`engine`] decides its next steps.

mod dag;
pub mod engine;
mod expansion;
mod include;
mod lint;
mod status;
mod warning;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use patchboard_kernel::rejection::code_enum;
use patchboard_lint::extension::{Expanded, Extension};
use patchboard_lint::source::{FileLoader, Source};
use patchboard_lint::{FindingCode, LintContext};

pub use expansion::{Expansion, GeneratedPart, NodeGrants, REQUEST_DATA_SCHEMA, RESUME_SIGNAL, WorkflowArgs, expand};
pub use status::Status;
pub use warning::{Warning, is_node_name};

/// Expands `workflow` of blueprints, and warns of nodes that cannot start.
pub struct Workflows;

impl Extension for Workflows {
    fn expand(&self, source: &mut Source, files: &mut dyn FileLoader, file: Option<&String>) -> Expanded {
        include::resolve(source, files, file)
    }

    fn codes(&self) -> &'static [FindingCode] {
        lint::CODES
    }

    fn lint(&self, context: &mut LintContext<'_, '_>) {
        lint::check(context);
    }
}

/// Maximum nodes of a workflow.
pub const NODES_MAX: usize = 1_000_000;
/// Maximum nodes of a blueprint's workflow: each takes up to three of its 256 rules, and a grant of a worker.
pub const RUNNING_NODES_MAX: usize = 64;
/// Maximum characters of a node id in a blueprint's workflow: the names of its rules end with it.
pub const ID_CHARS_MAX: usize = 48;
/// Maximum problems reported.
pub const PROBLEMS_MAX: usize = 20;

/// Returns the order of a workflow, with warnings. Fails with the first twenty problems: all problems of single nodes,
/// or else one cycle.
pub fn check(definition: &Definition) -> Result<ExecutionOrder<'_>, Vec<WorkflowError>> {
    let mut order = dag::check(definition)?;
    order.warnings.extend(warning::taken_signals(definition));
    Ok(order)
}

/// Definition of a workflow (W58).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Name of the workflow.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workflow_id: String,
    /// Nodes, by id.
    pub nodes: BTreeMap<String, Node>,
    /// Initial data of the workflow (`workflow_data`, W63).
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
    /// Other information about the workflow.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl Definition {
    /// Parses a definition. Fails with the reason why the value is no definition.
    pub fn parse(value: Value) -> Result<Self, String> {
        // serde would accept an array of members for an object as well.
        if !value.is_object() {
            return Err("it is no object".to_owned());
        }
        let nodes = value.get("nodes").and_then(Value::as_object).into_iter().flatten();
        if let Some((id, _)) = nodes.into_iter().find(|(_, node)| !node.is_object()) {
            return Err(format!("the node `{id}` is no object"));
        }
        serde_json::from_value(value).map_err(|error| error.to_string())
    }
}

/// Node of a workflow (W59).
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Node {
    /// Repeated id; must equal the node's key if present.
    pub node_id: Option<String>,
    /// Worker of the node; if empty, the worker named like the node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub agent_id: String,
    /// Nodes that must be completed before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<String>,
    /// Trigger that starts it after its dependencies.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub trigger_type: TriggerType,
    /// For `EVENT`: the signal; the node's id if absent.
    pub signal: Option<String>,
    /// For `SCHEDULE`: the times in cron notation; without it the node never starts.
    pub every: Option<String>,
    /// CEL condition over `data`, evaluated once the dependencies are completed; if it is false the node is skipped
    /// (W60).
    pub when: Option<String>,
    /// Inputs: the node's own names for entries of the workflow's data.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub input_mapping: BTreeMap<String, String>,
    /// Outputs: names in the node's result, and the entries of the workflow's data that they become.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub output_mapping: BTreeMap<String, String>,
    /// Other information about the node.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl Node {
    /// Returns true for a schedule without times.
    const fn never_starts(&self) -> bool {
        matches!(self.trigger_type, TriggerType::Schedule) && self.every.is_none()
    }

    /// Returns the signal that starts it, if it waits for one.
    pub fn awaited_signal<'n>(&'n self, id: &'n str) -> Option<&'n str> {
        let is_event = matches!(self.trigger_type, TriggerType::Event);
        is_event.then(|| self.signal.as_deref().unwrap_or(id))
    }

    /// Returns the worker of the node.
    pub fn worker<'n>(&'n self, id: &'n str) -> &'n str {
        if self.agent_id.is_empty() { id } else { &self.agent_id }
    }
}

/// Trigger of a node (W62).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TriggerType {
    /// Completion of its dependencies.
    #[default]
    Dependency,
    /// A signal.
    Event,
    /// A point in time.
    Schedule,
    /// A person.
    Manual,
}

code_enum! {
    /// Reason why a workflow has no order or cannot make a requested transition.
    WorkflowCode {
        /// The workflow has no node.
        Empty = "workflow_empty",
        /// The workflow has more nodes than the limit.
        TooLarge = "workflow_too_large",
        /// The `node_id` of a node differs from its key.
        IdMismatch = "workflow_node_id",
        /// A node depends on itself.
        SelfDependency = "workflow_self_dependency",
        /// A node depends on a node that does not exist.
        UnknownDependency = "workflow_unknown_dependency",
        /// Nodes depend on each other; the message names them.
        Cycle = "workflow_cycle_detected",
        /// A node that runs or waits for its trigger cannot make the requested status transition.
        IllegalTransition = "workflow_illegal_move",
        /// There is no such node.
        UnknownNode = "workflow_unknown_node",
        /// The document does not hold the status of the workflow.
        NoState = "workflow_no_state",
        /// The request has more entries for the workflow's data than the limit.
        TooMuchData = "workflow_too_much_data",
    }
}

/// Problem that prevents a workflow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkflowError {
    /// The workflow has no node, or too many.
    Size {
        /// Number of nodes.
        nodes: usize,
    },
    /// The `node_id` of a node differs from its key.
    IdMismatch {
        /// Key of the node.
        node: String,
        /// Value of its `node_id`.
        node_id: String,
    },
    /// A node depends on itself.
    SelfDependency {
        /// Id of the node.
        node: String,
    },
    /// A node depends on a node that does not exist.
    UnknownDependency {
        /// Id of the node.
        node: String,
        /// Missing dependency.
        dependency: String,
    },
    /// Nodes depend on each other in a cycle.
    Cycle {
        /// Nodes of the cycle: each depends on the one before it, and the first on the last. The smallest id is first.
        nodes: Vec<String>,
    },
}

impl WorkflowError {
    /// Returns its stable code.
    pub const fn code(&self) -> WorkflowCode {
        match self {
            Self::Size { nodes: 0 } => WorkflowCode::Empty,
            Self::Size { .. } => WorkflowCode::TooLarge,
            Self::IdMismatch { .. } => WorkflowCode::IdMismatch,
            Self::SelfDependency { .. } => WorkflowCode::SelfDependency,
            Self::UnknownDependency { .. } => WorkflowCode::UnknownDependency,
            Self::Cycle { .. } => WorkflowCode::Cycle,
        }
    }

    /// Returns the nodes of a cycle; a node that depends on itself is one.
    pub fn cycle(&self) -> Option<Vec<&str>> {
        match self {
            Self::SelfDependency { node } => Some(vec![node]),
            Self::Cycle { nodes } => Some(nodes.iter().map(String::as_str).collect()),
            Self::Size { .. } | Self::IdMismatch { .. } | Self::UnknownDependency { .. } => None,
        }
    }
}

/// Maximum nodes of a cycle named in a message.
const NAMED_MAX: usize = 20;

impl fmt::Display for WorkflowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { nodes: 0 } => f.write_str("there is no node, so nothing can begin"),
            Self::Size { nodes } => write!(f, "there are {nodes} nodes; a workflow has at most {NODES_MAX}"),
            Self::IdMismatch { node, node_id: says } => write!(f, "the node under `{node}` says that it is `{says}`"),
            Self::SelfDependency { node } => write!(f, "`{node}` depends on itself"),
            Self::UnknownDependency { node, dependency } => {
                write!(f, "`{node}` depends on `{dependency}`, and there is no such node")
            }
            Self::Cycle { nodes } => {
                let named: Vec<&str> = nodes.iter().take(NAMED_MAX).map(String::as_str).collect();
                let more = nodes.len() - named.len();
                let more = if more > 0 { format!(" -> {more} more") } else { String::new() };
                let first = nodes.first().map_or("", String::as_str);
                write!(f, "nodes wait for each other: {}{more} -> {first}", named.join(" -> "))
            }
        }
    }
}

/// Static properties of a valid workflow, by ids of its definition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ExecutionOrder<'d> {
    /// Nodes without dependencies.
    pub roots: Vec<&'d str>,
    /// Nodes on which no other node depends.
    pub leaves: Vec<&'d str>,
    /// Stages, one after the other; the nodes of a stage can run in parallel. Each is in the order of ids.
    pub stages: Vec<Vec<&'d str>>,
    /// All nodes in a topological order; among candidates, the smallest id is next.
    pub order: Vec<&'d str>,
    /// Warnings about defects that do not prevent an order (W70); nodes that never start are first, in order.
    #[serde(skip)]
    pub warnings: Vec<Warning<'d>>,
}

#[cfg(test)]
mod tests;
