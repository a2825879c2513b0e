//! Warnings about a valid workflow.

use std::fmt;

use super::{Definition, ID_CHARS_MAX, PROBLEMS_MAX, RESUME_SIGNAL, RUNNING_NODES_MAX};

/// A part of the workflow that cannot work as intended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Warning<'d> {
    /// A node that never starts. In an acyclic workflow there are no others, since every node can be reached from the
    /// roots.
    Unreachable {
        /// Id of the node.
        node: &'d str,
        /// Dependency that never starts; `None`: the node itself has a schedule without times.
        waits_for: Option<&'d str>,
    },
    /// Two outputs write the same entry of the data in no defined order.
    SharedOutput {
        /// The entry.
        key: &'d str,
        /// Id of the first writer.
        node: &'d str,
        /// Id of the second writer: a node without a path to or from the first, or the same node with another output.
        other: &'d str,
    },
    /// More nodes than a blueprint's workflow may have.
    TooLarge {
        /// Number of nodes.
        nodes: usize,
    },
    /// A node id that is not valid as a name in a blueprint.
    NodeName {
        /// Id of the node.
        node: &'d str,
    },
    /// A node waits for the signal that resumes a workflow; blueprints reject it.
    ReservedSignal {
        /// Id of the node.
        node: &'d str,
    },
}

impl<'d> Warning<'d> {
    /// Returns the stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "workflow_unreachable_node",
            Self::SharedOutput { .. } => "workflow_shared_output",
            Self::TooLarge { .. } => "workflow_too_large",
            Self::NodeName { .. } => "workflow_node_name",
            Self::ReservedSignal { .. } => "workflow_bad_trigger",
        }
    }

    /// Returns the node concerned, if it is a single one.
    pub const fn node(self) -> Option<&'d str> {
        match self {
            Self::Unreachable { node, .. }
            | Self::SharedOutput { node, .. }
            | Self::NodeName { node }
            | Self::ReservedSignal { node } => Some(node),
            Self::TooLarge { .. } => None,
        }
    }

    /// Returns advice for the user.
    pub const fn help(self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "Say when: `every: \"0 6 * * *\"`, or give it another `trigger_type`.",
            Self::SharedOutput { .. } => {
                "Let one depend on the other, map them to different entries, or give each a `when` of which only one can hold."
            }
            Self::TooLarge { .. } => {
                "Let one worker do several of them, or let a node be a board with a workflow of its own."
            }
            Self::NodeName { .. } => {
                "It begins with a letter or digit and has letters, digits, dashes and underscores, at most 48."
            }
            Self::ReservedSignal { .. } => "Let it wait for another one: `signal: NAME`.",
        }
    }
}

impl fmt::Display for Warning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { node, waits_for: Some(needed) } => {
                write!(f, "`{node}` waits for `{needed}`, which never starts")
            }
            Self::Unreachable { node, waits_for: None } => {
                write!(f, "`{node}` waits for a moment, and nothing says which")
            }
            Self::SharedOutput { key, node, other } if node == other => {
                write!(f, "two outputs of `{node}` become `{key}`, so one of them is lost")
            }
            Self::SharedOutput { key, node, other } => {
                write!(f, "`{node}` and `{other}` both write `{key}`, and nothing says which of them is the later")
            }
            Self::TooLarge { nodes } => {
                write!(f, "there are {nodes} nodes; a blueprint's workflow has at most {RUNNING_NODES_MAX}")
            }
            Self::NodeName { node } => write!(f, "the id `{node}` is no name, so no blueprint's workflow takes it"),
            Self::ReservedSignal { node } => {
                write!(f, "`{node}` waits for the signal `{RESUME_SIGNAL}`, from which the workflow itself goes on")
            }
        }
    }
}

/// Returns the first nodes that wait for the workflow's own signal.
pub(super) fn taken_signals(definition: &Definition) -> impl Iterator<Item = Warning<'_>> {
    let nodes = definition.nodes.iter().filter(|(id, node)| node.awaited_signal(id) == Some(RESUME_SIGNAL));
    nodes.map(|(id, _)| Warning::ReservedSignal { node: id }).take(PROBLEMS_MAX)
}

/// Returns true if a node id is valid as a name in a blueprint: the names of its rules end with it.
pub fn is_node_name(id: &str) -> bool {
    id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        && id.len() <= ID_CHARS_MAX
}
