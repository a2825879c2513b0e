//! Reports on workflows: the execution order, or the reason that there is none; and the status on a board.

use std::collections::BTreeMap;

use patchboard_kernel::tree::Node;
use patchboard_protocols::workflow::{ExecutionOrder, Warning, WorkflowError};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Report on a workflow that can be run.
#[derive(Serialize, ToSchema)]
pub struct WorkflowOrder {
    /// True.
    valid: bool,
    /// Nodes without dependencies.
    roots: Vec<String>,
    /// Nodes on which no other node depends.
    leaves: Vec<String>,
    /// Stages, one after the other; the nodes of a stage can run in parallel.
    stages: Vec<Vec<String>>,
    /// All nodes, each after its dependencies; among candidates, the smallest id comes first.
    order: Vec<String>,
    /// Warnings about likely mistakes, which do not prevent an order.
    warnings: Vec<WorkflowWarning>,
}

/// Warning about a likely mistake in a workflow.
#[derive(Serialize, ToSchema)]
pub(crate) struct WorkflowWarning {
    /// Stable code, like `workflow_unreachable_node`.
    code: &'static str,
    /// Message for people.
    message: String,
    /// Node, if the warning concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// Entry of the data that two nodes write in no order.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Second node that writes the entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<String>,
}

/// Report on a workflow that cannot be run.
#[derive(Serialize, ToSchema)]
pub struct InvalidWorkflow {
    /// False.
    valid: bool,
    /// Code of the first error.
    #[schema(required)]
    error_code: Option<String>,
    /// Nodes that wait for each other, each for the one before it; null without such nodes.
    #[schema(required)]
    cycle: Option<Vec<String>>,
    /// All errors.
    errors: Vec<WorkflowErrorInfo>,
}

/// Error of a workflow.
#[derive(Serialize, ToSchema)]
#[schema(as = WorkflowError)]
pub(crate) struct WorkflowErrorInfo {
    /// Stable code; docs/codes.md has the meanings.
    code: String,
    /// Message for people.
    message: String,
}

/// Report on a workflow: its order, or the reason that it has none.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum WorkflowReport {
    /// Workflow that can be run.
    Valid(WorkflowOrder),
    /// Workflow that cannot be run.
    Invalid(InvalidWorkflow),
}

impl WorkflowReport {
    /// Returns the report of a check.
    pub fn new(checked: &Result<ExecutionOrder<'_>, Vec<WorkflowError>>) -> Self {
        match checked {
            Ok(order) => Self::Valid(WorkflowOrder::new(order)),
            Err(errors) => Self::Invalid(InvalidWorkflow::new(errors)),
        }
    }

    /// Returns true if the workflow can be run.
    pub const fn is_valid(&self) -> bool {
        matches!(self, Self::Valid(_))
    }
}

impl WorkflowOrder {
    fn new(order: &ExecutionOrder<'_>) -> Self {
        let ExecutionOrder { roots, leaves, stages, order, warnings } = order;
        Self {
            valid: true,
            roots: owned(roots),
            leaves: owned(leaves),
            stages: stages.iter().map(|stage| owned(stage)).collect(),
            order: owned(order),
            warnings: warnings.iter().map(WorkflowWarning::new).collect(),
        }
    }
}

impl WorkflowWarning {
    fn new(warning: &Warning<'_>) -> Self {
        let (key, other) = match warning {
            Warning::SharedOutput { key, other, .. } => (Some((*key).to_owned()), Some((*other).to_owned())),
            _ => (None, None),
        };
        let node = warning.node().map(ToOwned::to_owned);
        Self { code: warning.code(), message: warning.to_string(), node, key, other }
    }
}

impl InvalidWorkflow {
    fn new(errors: &[WorkflowError]) -> Self {
        let info = |error: &WorkflowError| WorkflowErrorInfo {
            code: error.code().as_str().to_owned(),
            message: error.to_string(),
        };
        let cycle = errors.iter().find_map(WorkflowError::cycle);
        Self {
            valid: false,
            error_code: errors.first().map(|error| error.code().as_str().to_owned()),
            cycle: cycle.map(|nodes| owned(&nodes)),
            errors: errors.iter().map(info).collect(),
        }
    }

    /// Returns the report of a file that is no workflow.
    pub fn unreadable(code: &str, message: &str) -> Self {
        let error = WorkflowErrorInfo { code: code.to_owned(), message: message.to_owned() };
        Self { valid: false, error_code: Some(code.to_owned()), cycle: None, errors: vec![error] }
    }
}

fn owned(nodes: &[&str]) -> Vec<String> {
    nodes.iter().map(|node| (*node).to_owned()).collect()
}

/// Status of a board's workflow.
#[derive(Serialize, ToSchema)]
pub(crate) struct WorkflowStatus {
    /// Status: `RUNNING`, `COMPLETED` or `FAILED`.
    #[schema(value_type = String)]
    status: Value,
    /// Nodes, by their ids.
    nodes: BTreeMap<String, WorkflowNodeStatus>,
    /// Data of the workflow.
    #[schema(value_type = Value)]
    data: Option<Value>,
}

/// Status of a node of a workflow.
#[derive(Serialize, ToSchema)]
pub(crate) struct WorkflowNodeStatus {
    /// Status: `PENDING`, `RUNNING`, `COMPLETED`, `FAILED` or another of docs/workflows.md.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    status: Option<Value>,
    /// Error of a node that is FAILED.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    error: Option<Value>,
}

impl WorkflowStatus {
    pub(crate) fn read(document: &Node) -> Option<Self> {
        let workflow = document.child("workflow")?;
        let part = |node: &Node, name: &str| node.child(name).map(Node::to_value);
        let node = |node: &Node| WorkflowNodeStatus { status: part(node, "status"), error: part(node, "error") };
        let nodes = workflow.child("nodes")?.as_object()?.iter();
        Some(Self {
            status: part(workflow, "status")?,
            nodes: nodes.map(|(id, there)| (id.to_string(), node(there))).collect(),
            data: part(workflow, "data"),
        })
    }

    pub(crate) fn is_running(&self) -> bool {
        self.status == "RUNNING"
    }
}
