//! What a workflow that has an order is warned of.

use std::fmt;

use super::{Definition, ID_CHARS_MAX, PROBLEMS_MAX, RESUMPTION, RUNNING_NODES_MAX};

/// What will not come out as it is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Warning<'d> {
    /// A node that nothing starts. In a workflow without a cycle there are no others: from what waits for nothing, every node can
    /// be reached.
    Unreachable {
        /// Which.
        node: &'d str,
        /// For which such node it waits; none: it waits for a moment that is not named.
        waits_for: Option<&'d str>,
    },
    /// Two outputs become the same entry of the data, and nothing says which of them is the later.
    SharedOutput {
        /// The entry.
        key: &'d str,
        /// Who writes it.
        node: &'d str,
        /// Who else does: a node between which and the first there is no path, or the same with another output.
        other: &'d str,
    },
    /// It has more nodes than the workflow of a blueprint may have.
    TooLarge {
        /// How many.
        nodes: usize,
    },
    /// The id of a node is no name that a blueprint takes.
    NodeName {
        /// Which.
        node: &'d str,
    },
    /// A node waits for the signal from which a workflow is resumed; no blueprint takes it.
    TakenSignal {
        /// Which.
        node: &'d str,
    },
}

impl<'d> Warning<'d> {
    /// Its stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "workflow_unreachable_node",
            Self::SharedOutput { .. } => "workflow_shared_output",
            Self::TooLarge { .. } => "workflow_too_large",
            Self::NodeName { .. } => "workflow_node_name",
            Self::TakenSignal { .. } => "workflow_bad_trigger",
        }
    }

    /// The node that it is about, if it is about one.
    pub const fn node(self) -> Option<&'d str> {
        match self {
            Self::Unreachable { node, .. }
            | Self::SharedOutput { node, .. }
            | Self::NodeName { node }
            | Self::TakenSignal { node } => Some(node),
            Self::TooLarge { .. } => None,
        }
    }

    /// What to do about it.
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
            Self::TakenSignal { .. } => "Let it wait for another one: `signal: NAME`.",
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
            Self::TakenSignal { node } => {
                write!(f, "`{node}` waits for the signal `{RESUMPTION}`, from which the workflow itself goes on")
            }
        }
    }
}

/// The first nodes that wait for a signal which is the workflow's own.
pub(super) fn taken_signals(definition: &Definition) -> impl Iterator<Item = Warning<'_>> {
    let nodes = definition.nodes.iter().filter(|(id, node)| node.awaited(id) == Some(RESUMPTION));
    nodes.map(|(id, _)| Warning::TakenSignal { node: id }).take(PROBLEMS_MAX)
}

/// Whether the id of a node is a name that a blueprint takes: the names of its rules end with it.
pub fn is_node_name(id: &str) -> bool {
    id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        && id.len() <= ID_CHARS_MAX
}
