//! Workflow nodes that can never start (W70), and outputs that overwrite each other.

use patchboard_kernel::lint::LintContext;
use patchboard_kernel::source::child;

use super::{Definition, ROLE, WorkflowArgs, check as check_definition};

/// Warns of nodes that nothing starts, of nodes that wait for these, and of data entries that two nodes write at the
/// same time.
pub(super) fn check(context: &mut LintContext<'_, '_>) {
    let mut found = Vec::new();
    for (name, worker) in context.workers() {
        let with = worker.with.clone().unwrap_or_default();
        let Ok(with) = serde_json::from_value::<WorkflowArgs>(with.into()) else { continue };
        if !worker.agent.is_builtin(ROLE) {
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
        context.warn_at_key(code, &pointer, message, help.to_owned());
    }
}
