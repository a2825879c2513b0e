//! Nodes of a workflow that cannot come about (W70).

use std::collections::BTreeSet;

use super::Check;
use crate::blueprint::AgentKind;
use crate::source::child;
use crate::workflow::{Node, TriggerType, With};

impl Check<'_> {
    /// Warns of nodes that nothing starts, and of those that wait for one of them. In a workflow without a cycle there are no
    /// others: from what waits for nothing, every node can be reached.
    pub(super) fn workflow(&mut self) {
        let mut found = Vec::new();
        for (name, seat) in &self.seats {
            let is_engine = matches!(&seat.worker.agent, AgentKind::Builtin(role) if role == "workflow");
            let with = seat.worker.with.clone().unwrap_or_default();
            let Ok(with) = serde_json::from_value::<With>(with.into()) else { continue };
            if is_engine {
                let at = format!("{}/with/nodes", child("/workers", name.as_str()));
                found.extend(unreachable(&with).into_iter().map(|(node, message)| (child(&at, node), message)));
            }
        }
        for (pointer, message) in found {
            let help = "Say when: `every: \"0 6 * * *\"`, or give it another `trigger_type`.";
            self.find("workflow_unreachable_node", &pointer, message, help);
            self.point_at_key();
        }
    }
}

/// These nodes, and why.
fn unreachable(with: &With) -> Vec<(&str, String)> {
    let never_starts = |node: &Node| node.trigger_type == TriggerType::Schedule && node.every.is_none();
    let mut found: Vec<(&str, String)> = Vec::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for (id, _) in with.nodes.iter().filter(|(_, node)| never_starts(node)) {
        found.push((id, format!("`{id}` waits for a moment, and nothing says which")));
        known.insert(id);
    }
    loop {
        let next = with.nodes.iter().find_map(|(id, node)| {
            let waits_for = node.dependencies.iter().find(|needed| known.contains(needed.as_str()))?;
            (!known.contains(id.as_str())).then_some((id, waits_for))
        });
        let Some((id, waits_for)) = next else { return found };
        found.push((id, format!("`{id}` waits for `{waits_for}`, which never starts")));
        known.insert(id);
    }
}
