//! Workflows: nodes that depend on each other, in an order that is the same each time.
//!
//! A definition is checked before anything of it is kept (SW4RM section 3.11.3, requirement rows W58 to W70). One that a
//! blueprint has becomes rules of an ordinary board (`expansion`); what it does next is decided by [`engine`].

mod dag;
pub mod engine;
mod expansion;
mod shared;
mod status;
mod warning;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::rejection::coded;

pub use expansion::{Expansion, Grants, Made, REQUESTED, RESUMPTION, With, expand};
pub use status::Status;
pub use warning::{Warning, is_node_name};

/// The coordination role of the seat that decides what a workflow does next.
pub const ROLE: &str = "workflow";
/// How many nodes a workflow may have.
pub const NODES_MAX: usize = 1_000_000;
/// How many nodes the workflow of a blueprint may have: each takes up to three of its 256 rules, and a grant of a worker.
pub const RUNNING_NODES_MAX: usize = 64;
/// Characters of the id of a node in the workflow of a blueprint: the names of its rules end with it.
pub const ID_CHARS_MAX: usize = 48;
/// How many problems are told.
pub const PROBLEMS_MAX: usize = 20;

/// In what order a workflow goes, and what it is warned of.
///
/// # Errors
/// What prevents it, the first twenty: everything that is wrong with single nodes, or else one cycle.
pub fn check(definition: &Definition) -> Result<Order<'_>, Vec<Problem>> {
    let mut order = dag::check(definition)?;
    order.warnings.extend(warning::taken_signals(definition));
    Ok(order)
}

/// What is to be done, and in what order (W58).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// What it is called.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workflow_id: String,
    /// The nodes, by their ids.
    pub nodes: BTreeMap<String, Node>,
    /// What the workflow's data are at first (`workflow_data`, W63).
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
    /// What else is said of it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl Definition {
    /// Reads a definition.
    ///
    /// # Errors
    /// Why this is none.
    pub fn read(value: Value) -> Result<Self, String> {
        // serde takes a list of members for an object as well.
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

/// One step (W59).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Node {
    /// Its id once more; if it is there it is the one under which the node stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// Who does it; where it is empty, whoever is called as the node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub agent_id: String,
    /// What has to be completed before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<String>,
    /// What starts it, once that is so.
    #[serde(skip_serializing_if = "TriggerType::is_dependency")]
    pub trigger_type: TriggerType,
    /// Of `EVENT`: the signal; the node's id where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Of `SCHEDULE`: when, in cron's notation; where it is absent the node never starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// A CEL condition over `data`, asked once the dependencies are completed; where it does not hold the node is skipped
    /// (W60).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// What it is given: its own names for entries of the workflow's data.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub input_mapping: BTreeMap<String, String>,
    /// What it gives: names of what it made, and the entries of the workflow's data that they become.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub output_mapping: BTreeMap<String, String>,
    /// What else is said of it.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl Node {
    /// Whether it waits for a moment that never comes.
    const fn never_starts(&self) -> bool {
        matches!(self.trigger_type, TriggerType::Schedule) && self.every.is_none()
    }

    /// The signal that starts it, if it waits for one.
    pub fn awaited<'n>(&'n self, id: &'n str) -> Option<&'n str> {
        let is_event = matches!(self.trigger_type, TriggerType::Event);
        is_event.then(|| self.signal.as_deref().unwrap_or(id))
    }

    /// Who does it.
    pub fn worker<'n>(&'n self, id: &'n str) -> &'n str {
        if self.agent_id.is_empty() { id } else { &self.agent_id }
    }
}

/// What starts a node (W62).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TriggerType {
    /// That its dependencies are completed.
    #[default]
    Dependency,
    /// A signal.
    Event,
    /// A moment.
    Schedule,
    /// A person.
    Manual,
}

impl TriggerType {
    const fn is_dependency(&self) -> bool {
        matches!(self, Self::Dependency)
    }
}

coded! {
    /// Why a workflow has no order, or does not go on as it is asked to.
    WorkflowCode {
        /// It has no node.
        Empty = "workflow_empty",
        /// It has more nodes than there may be.
        TooLarge = "workflow_too_large",
        /// A node says that it is another than the one under whose id it stands.
        OtherId = "workflow_node_id",
        /// A node waits for itself.
        SelfDependency = "workflow_self_dependency",
        /// A node waits for one that is not there.
        UnknownDependency = "workflow_unknown_dependency",
        /// Nodes wait for each other; they are named.
        Cycle = "workflow_cycle_detected",
        /// A node that runs, or waits for its trigger, would have to become something that it cannot become from there.
        IllegalMove = "workflow_illegal_move",
        /// There is no such node.
        UnknownNode = "workflow_unknown_node",
        /// The document does not say how far the workflow is.
        NoState = "workflow_no_state",
        /// The request brings more entries for the workflow's data than there may be.
        TooMuchData = "workflow_too_much_data",
    }
}

/// What prevents a workflow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// It has no node, or too many.
    Size {
        /// How many.
        nodes: usize,
    },
    /// A node says that it is another.
    OtherId {
        /// Under what it stands.
        node: String,
        /// What it says.
        says: String,
    },
    /// A node depends on itself.
    SelfDependency {
        /// Which.
        node: String,
    },
    /// A node depends on one that is not there.
    UnknownDependency {
        /// Which.
        node: String,
        /// On what.
        dependency: String,
    },
    /// Nodes wait for each other for ever.
    Cycle {
        /// Each depends on the one before it, and the first on the last. The smallest id is first.
        nodes: Vec<String>,
    },
}

impl Problem {
    /// Its stable code.
    pub const fn code(&self) -> WorkflowCode {
        match self {
            Self::Size { nodes: 0 } => WorkflowCode::Empty,
            Self::Size { .. } => WorkflowCode::TooLarge,
            Self::OtherId { .. } => WorkflowCode::OtherId,
            Self::SelfDependency { .. } => WorkflowCode::SelfDependency,
            Self::UnknownDependency { .. } => WorkflowCode::UnknownDependency,
            Self::Cycle { .. } => WorkflowCode::Cycle,
        }
    }

    /// The nodes of a cycle; a node that depends on itself is one.
    pub fn cycle(&self) -> Option<Vec<&str>> {
        match self {
            Self::SelfDependency { node } => Some(vec![node]),
            Self::Cycle { nodes } => Some(nodes.iter().map(String::as_str).collect()),
            Self::Size { .. } | Self::OtherId { .. } | Self::UnknownDependency { .. } => None,
        }
    }
}

/// How many nodes of a cycle a sentence names.
const NAMED_MAX: usize = 20;

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { nodes: 0 } => f.write_str("there is no node, so nothing can begin"),
            Self::Size { nodes } => write!(f, "there are {nodes} nodes; a workflow has at most {NODES_MAX}"),
            Self::OtherId { node, says } => write!(f, "the node under `{node}` says that it is `{says}`"),
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

/// What is known of a sound workflow before it runs, by ids of its definition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Order<'d> {
    /// What depends on nothing.
    pub roots: Vec<&'d str>,
    /// What nothing depends on.
    pub leaves: Vec<&'d str>,
    /// What can be done at the same time, one stage after the other; each in the order of ids.
    pub stages: Vec<Vec<&'d str>>,
    /// All nodes, one after the other: of those that could be next always the one with the smallest id.
    pub order: Vec<&'d str>,
    /// What will not come out as it is meant: it has an order all the same (W70). First nodes that nothing starts, in the order.
    #[serde(skip)]
    pub warnings: Vec<Warning<'d>>,
}

#[cfg(test)]
mod tests;
