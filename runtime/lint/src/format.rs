//! Members that the format of a blueprint does not have, or has under another name.

use serde_json::Value;

use super::{Diagnostic, Linter};
use patchboard_kernel::blueprint::{Approval, Expiry, Trigger};

/// Member that format 2 renamed. The former name stays valid in every format, for blueprints and fragments that exist.
struct Renamed {
    former: &'static str,
    name: &'static str,
    /// The member in format 2 that is equal to `former: true`.
    written: &'static str,
}

const OF_LIMITS: Renamed =
    Renamed { former: "exempt", name: "unmetered_concurrency", written: "unmetered_concurrency: true" };

const OF_RULE: Renamed = Renamed { former: "urgent", name: "priority", written: "priority: high" };

impl Linter<'_> {
    /// Reports new names in format 1, former names in the text of a blueprint of format 2, and both in one place.
    pub(super) fn renamed(&self) {
        let limits = self.blueprint.workers.keys().map(|name| (format!("/workers/{name}/limits"), OF_LIMITS));
        let rules = (0..self.blueprint.rules.len()).map(|number| (format!("/rules/{number}"), OF_RULE));
        for (at, Renamed { former, name, written }) in limits.chain(rules) {
            let Some(members) = self.source.value().pointer(&at).and_then(Value::as_object) else { continue };
            let (has_former, has_name) = (members.contains_key(former), members.contains_key(name));
            let (old_at, new_at) = (format!("{at}/{former}"), format!("{at}/{name}"));
            if has_name && self.blueprint.blueprint < 2 {
                let message = format!("blueprint format 1 has no `{name}`");
                let help = format!("Write `blueprint: 2` at the top, or `{former}: true` here.");
                self.report("newer_format", &new_at, message, help);
            } else if has_name && has_former {
                let message = format!("`{at}` has `{name}` and its former name `{former}`");
                self.report("duplicate_key", &old_at, message, format!("Remove `{former}`."));
            } else if has_former && self.blueprint.blueprint >= 2 && self.source.is_own(&old_at) {
                let message = format!("`{former}` has a new name in format 2");
                let help = format!("Write `{written}` for `{former}: true`.");
                self.push(Diagnostic::at(self.source, "renamed_field", &old_at, message, help).at_key(self.source));
            }
        }
    }

    /// Reports members of later formats in a blueprint of format 1.
    pub(super) fn format(&self) {
        if self.blueprint.blueprint > 1 {
            return;
        }
        let mut found = Vec::new();
        if self.blueprint.limits.money.is_some() {
            found.push(("/limits/money".to_owned(), "limits.money"));
        }
        if self.blueprint.limits.patience.is_some() {
            found.push(("/limits/patience".to_owned(), "limits.patience"));
        }
        for (number, _) in self.blueprint.rules.iter().enumerate().filter(|(_, rule)| !rule.bind.is_empty()) {
            found.push((format!("/rules/{number}/bind"), "bind"));
        }
        for (number, rule) in self.blueprint.rules.iter().enumerate() {
            let later = match &rule.trigger {
                Trigger::Each(_) => "trigger: {start}",
                Trigger::Settled(_) => "trigger: {settled}",
                Trigger::AfterFirst(_) => "trigger: {after_first}",
                _ => continue,
            };
            found.push((format!("/rules/{number}/trigger"), later));
        }
        let never = |approval: Option<&Approval>| approval.is_some_and(|approval| approval.expires == Expiry::Never);
        for (name, worker) in &self.blueprint.workers {
            let at = |rest: &str| format!("/workers/{name}/{rest}");
            if worker.limits.money.is_some() {
                found.push((at("limits/money"), "limits.money"));
            }
            if never(worker.clarify.as_ref()) {
                found.push((at("clarify/expires"), "expires: never"));
            }
            let writes = worker.writes.iter().enumerate();
            let endless = writes.filter(|(_, grant)| never(grant.approval.as_ref()));
            found.extend(
                endless.map(|(number, _)| (at(&format!("writes/{number}/approval/expires")), "expires: never")),
            );
        }
        for (pointer, member) in found {
            let message = format!("blueprint format 1 has no `{member}`");
            self.report("newer_format", &pointer, message, "Write `blueprint: 2` at the top.");
        }
    }
}
