//! Checks grants that outlive a handoff (W54). The rules of the handoff itself are in the parent.

use patchboard_kernel::blueprint::{GrantOp, Worker};
use patchboard_lint::LintContext;

use crate::Role;

/// Default path of pieces of work, unless the role's `with` sets another (docs/handoff.md).
const TASKS: &str = "/tasks";
/// The group of workers that process them.
const AGENTS: &str = "agents";

/// Warns of group members that may write to pieces of work independent of the owner: they could go on writing after a
/// handoff. A grant without a condition on the piece is not revoked by a transfer of its `owner`.
pub(super) fn check(context: &mut LintContext<'_, '_>) {
    let mut found = Vec::new();
    for (_, role) in context.workers().filter(|(_, worker)| worker.agent.is_builtin(Role::Handoff.as_str())) {
        let with = role.with.as_ref();
        let tasks = with.and_then(|with| with.get("tasks")?.as_str()).unwrap_or(TASKS);
        let piece = format!("{tasks}/*");
        let Some((whole, parts)) = context.parse(&piece).zip(context.parse(&format!("{piece}/*/**"))) else { continue };
        let is_agent =
            |(_, worker): &(&str, &Worker)| worker.group.as_ref().is_some_and(|group| group.as_str() == AGENTS);
        for (name, _) in context.workers().filter(is_agent) {
            for write in context.writes(name) {
                let is_guarded = write.grant.condition.as_ref().is_some_and(|condition| {
                    let of = context.parse(&condition.of).map(|of| of.under_any_binding());
                    of.as_ref() == Some(&whole)
                });
                // An `add` grant changes no existing piece.
                let changes = write.grant.ops.iter().any(|op| *op != GrantOp::Add);
                let reaches = write.pattern.overlaps(&parts) || (changes && write.pattern.overlaps(&whole));
                if reaches && !is_guarded {
                    found.push((write.pointer.clone(), name.to_owned(), piece.clone()));
                }
            }
        }
    }
    for (pointer, name, piece) in found {
        let message = format!("`{name}` may go on writing to a piece of work that it has handed over");
        let help = format!("Add a condition: `where: {{of: {piece}, expr: self.owner == worker}}`.");
        context.report("handoff_unguarded", &pointer, message, help);
    }
}
