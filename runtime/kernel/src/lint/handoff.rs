//! Who goes on writing to a piece of work that is handed over (W54). The rules of the handoff itself are in `crate::handoff`.

use super::Check;
use crate::blueprint::GrantOp;

/// The role that hands work over.
const ROLE: &str = "handoff";
/// Where pieces of work stand unless the role is told otherwise in its `with` (docs/handoff.md).
const TASKS: &str = "/tasks";
/// The group of those who work on them.
const AGENTS: &str = "agents";

impl Check<'_> {
    /// Warns of members of the group that may write to pieces of work whoever has them: after a handoff the one before would go
    /// on. What a grant without a condition on the piece allows, no transfer of its `owner` takes away.
    pub(super) fn handoff(&mut self) {
        let mut found = Vec::new();
        for role in self.seats.values().filter(|seat| seat.worker.agent.is_builtin(ROLE)) {
            let with = role.worker.with.as_ref();
            let tasks = with.and_then(|with| with.get("tasks")?.as_str()).unwrap_or(TASKS);
            let piece = format!("{tasks}/*");
            let parse = |path: &str| self.paths.parse(path).ok();
            let Some((whole, parts)) = parse(&piece).zip(parse(&format!("{piece}/*/**"))) else { continue };
            for (name, seat) in &self.seats {
                if seat.worker.group.as_ref().is_none_or(|group| group.as_str() != AGENTS) {
                    continue;
                }
                for write in &seat.writes {
                    let is_guarded = write.grant.condition.as_ref().is_some_and(|condition| {
                        let of = parse(&condition.of).map(|of| of.under_any_binding());
                        of.as_ref() == Some(&whole)
                    });
                    // Who adds a piece changes none that is there.
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
            self.find("handoff_unguarded", &pointer, message, help);
        }
    }
}
