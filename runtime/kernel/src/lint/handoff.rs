//! Checks grants that outlive a handoff (W54). The rules of the handoff itself are in `crate::handoff`.

use super::Linter;
use crate::blueprint::GrantOp;

/// The built-in role that transfers work.
const ROLE: &str = "handoff";
/// Default path of pieces of work, unless the role's `with` sets another (docs/handoff.md).
const TASKS: &str = "/tasks";
/// The group of workers that process them.
const AGENTS: &str = "agents";

impl Linter<'_> {
    /// Warns of group members that may write to pieces of work independent of the owner: they could go on writing after
    /// a handoff. A grant without a condition on the piece is not revoked by a transfer of its `owner`.
    pub(super) fn handoff(&mut self) {
        let mut found = Vec::new();
        for role in self.worker_grants.values().filter(|seat| seat.worker.agent.is_builtin(ROLE)) {
            let with = role.worker.with.as_ref();
            let tasks = with.and_then(|with| with.get("tasks")?.as_str()).unwrap_or(TASKS);
            let piece = format!("{tasks}/*");
            let parse = |path: &str| self.paths.parse(path).ok();
            let Some((whole, parts)) = parse(&piece).zip(parse(&format!("{piece}/*/**"))) else { continue };
            for (name, seat) in &self.worker_grants {
                if seat.worker.group.as_ref().is_none_or(|group| group.as_str() != AGENTS) {
                    continue;
                }
                for write in &seat.writes {
                    let is_guarded = write.grant.condition.as_ref().is_some_and(|condition| {
                        let of = parse(&condition.of).map(|of| of.under_any_binding());
                        of.as_ref() == Some(&whole)
                    });
                    // An `add` grant changes no existing piece.
                    let changes = write.grant.ops.iter().any(|op| *op != GrantOp::Add);
                    let reaches = write.pattern.overlaps(&parts) || (changes && write.pattern.overlaps(&whole));
                    if reaches && !is_guarded {
                        found.push((write.pointer.clone(), name.to_string(), piece.clone()));
                    }
                }
            }
        }
        for (pointer, name, piece) in found {
            let message = format!("`{name}` may go on writing to a piece of work that it has handed over");
            let help = format!("Add a condition: `where: {{of: {piece}, expr: self.owner == worker}}`.");
            self.report("handoff_unguarded", &pointer, message, help);
        }
    }
}
