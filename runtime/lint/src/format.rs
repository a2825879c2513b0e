//! Members that the format of a blueprint does not have.

use super::Linter;
use patchboard_kernel::blueprint::{Approval, Expiry, Trigger};

impl Linter<'_> {
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
