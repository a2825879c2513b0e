//! Workflow nodes that can never start (W70), and outputs that overwrite each other.

use patchboard_lint::Severity::{Error, Warning};
use patchboard_lint::source::child;
use patchboard_lint::{FindingCode, LintContext};

use super::{Definition, WorkflowArgs, check as check_definition};
use crate::Role;

/// Findings about a workflow, in a check or where it is expanded.
pub(super) const CODES: &[FindingCode] = &[
    ("workflow_empty", Error, "A workflow has no node."),
    ("workflow_too_large", Error, "The workflow of a blueprint has more nodes than it may have."),
    ("workflow_node_id", Error, "A node's `node_id` differs from its key."),
    ("workflow_node_name", Error, "The id of a node is no name."),
    ("workflow_self_dependency", Error, "A node waits for itself."),
    ("workflow_unknown_dependency", Error, "A node waits for one that is not there."),
    ("workflow_cycle_detected", Error, "Nodes wait for each other; they are named."),
    (
        "workflow_bad_trigger",
        Error,
        "A node says of its trigger what belongs to another kind of trigger, or waits for the workflow's own signal.",
    ),
    ("workflow_unreachable_node", Warning, "A node that nothing starts, or that waits for such a one."),
    ("workflow_shared_output", Warning, "Two outputs become the same entry of the data, in no order."),
];

/// Warns of nodes that nothing starts, of nodes that wait for these, and of data entries that two nodes write at the
/// same time.
pub(super) fn check(context: &mut LintContext<'_, '_>) {
    let mut found = Vec::new();
    for (name, worker) in context.workers() {
        let with = worker.with.clone().unwrap_or_default();
        let Ok(with) = serde_json::from_value::<WorkflowArgs>(with.into()) else { continue };
        if !worker.agent.is_builtin(Role::Workflow.as_str()) {
            continue;
        }
        let at = format!("{}/with/nodes", child("/workers", name));
        let definition = Definition { nodes: with.nodes, ..Definition::default() };
        if let Ok(order) = check_definition(&definition) {
            let place = |node: Option<&str>| node.map_or_else(|| at.clone(), |node| child(&at, node));
            let warnings = order.warnings.iter();
            found.extend(warnings.map(|one| (one.code(), place(one.node()), one.to_string(), one.help())));
        }
    }
    for (code, pointer, message, help) in found {
        context.report_at_key(code, &pointer, message, help.to_owned());
    }
}
