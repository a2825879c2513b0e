//! Workflow nodes that can never start (W70), and outputs that overwrite each other.

use super::Linter;
use crate::source::child;
use crate::workflow::{Definition, ROLE, WorkflowArgs, check};

impl Linter<'_> {
    /// Warns of nodes that nothing starts, of nodes that wait for these, and of data entries that two nodes write at
    /// the same time.
    pub(super) fn workflow(&mut self) {
        let mut found = Vec::new();
        for (name, seat) in &self.worker_grants {
            let with = seat.worker.with.clone().unwrap_or_default();
            let Ok(with) = serde_json::from_value::<WorkflowArgs>(with.into()) else { continue };
            if !seat.worker.agent.is_builtin(ROLE) {
                continue;
            }
            let at = format!("{}/with/nodes", child("/workers", name.as_str()));
            let definition = Definition { nodes: with.nodes, ..Definition::default() };
            if let Ok(order) = check(&definition) {
                let place = |node: Option<&str>| node.map_or_else(|| at.clone(), |node| child(&at, node));
                let warnings = order.warnings.iter();
                found.extend(warnings.map(|one| (one.code(), place(one.node()), one.to_string(), one.help())));
            }
        }
        for (code, pointer, message, help) in found {
            self.report(code, &pointer, message, help);
            self.point_at_key();
        }
    }
}
