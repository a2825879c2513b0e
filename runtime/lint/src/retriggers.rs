//! Rules that trigger a worker again when it has nothing left to write.

use super::comparisons::Advice;
use super::flow::Causes;
use super::{GrantedWrite, Linter, WorkerGrants};
use patchboard_kernel::blueprint::{EventOp, GrantOp, Rule, Run, Trigger};
use patchboard_kernel::event::possible_events;
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::pattern::PatternToken;

impl<'a> Linter<'a> {
    /// Warns of rules that trigger a worker for its own writes, or for each of many elements. The worker may only add a
    /// place, and it exists by then.
    pub(super) fn nothing_left(&self, causes: &Causes<'a>) {
        let blueprint = self.blueprint;
        let is_open = |rule: &&Rule| rule.when.is_none() && !matches!(rule.run, Run::Member { .. });
        for (number, rule) in blueprint.rules.iter().enumerate().filter(|(_, rule)| is_open(rule)) {
            for worker in blueprint.triggered_workers(&rule.run) {
                let Some(grants) = self.worker_grants.get(worker).filter(|_| !self.is_limited(worker)) else {
                    continue;
                };
                let is_itself = causes.get(worker).is_some_and(|caused| caused.contains_key(&number));
                let finding = match is_itself {
                    true => self.after_itself(rule, worker, grants),
                    false => self.after_the_first(rule, worker, grants),
                };
                if let Some((message, help)) = finding {
                    self.report("nothing_left", &format!("/rules/{number}/trigger"), message, help);
                }
            }
        }
    }

    /// Reports a worker that its own writes trigger without anything left to write; returns message and help.
    fn after_itself(&self, rule: &Rule, worker: &WorkerName, seat: &WorkerGrants<'a>) -> Option<Advice> {
        let Trigger::Event { path, .. } = &rule.trigger else { return None };
        let (place, write) = (self.paths.parse(path).ok()?, self.one_place(seat)?);
        // The write triggers the worker with the same names bound.
        let binds_alike = write.pattern.tokens().iter().enumerate().all(|(at, token)| match token {
            PatternToken::Bound(_) => place.tokens().get(at) == Some(token),
            _ => true,
        });
        if !binds_alike || !place.under_any_binding().collides(&write.pattern.under_any_binding()) {
            return None;
        }
        let message = format!(
            "`{}` triggers `{worker}` again for its own write, and then it may write nothing more: it may only add `{}`",
            rule.name, write.grant.path
        );
        let help = "Name in the trigger what the worker waits for, or add a condition: `when: event.worker != worker`.";
        Some((message, help.to_owned()))
    }

    /// Reports a worker triggered by each of many elements that can write for the first one only; returns message and
    /// help.
    fn after_the_first(&self, rule: &'a Rule, worker: &WorkerName, seat: &WorkerGrants<'a>) -> Option<Advice> {
        let path = rule.trigger.template().filter(|_| self.fires_for_each(rule))?;
        let write = self.one_place(seat).filter(|write| write.pattern.names().next().is_none())?;
        let message = format!(
            "`{}` triggers `{worker}` for each change at `{path}`, and it may only add `{}`: after the first call there is nothing that it \
             may write",
            rule.name, write.grant.path
        );
        let help = "Wait for all of them, `trigger: {after: [RULE]}`; or let the worker write a place of each, or `replace` this one.";
        Some((message, help.to_owned()))
    }

    /// Returns a worker's only grant, if it may add one place once and no grant removes that place.
    fn one_place<'w>(&self, seat: &'w WorkerGrants<'a>) -> Option<&'w GrantedWrite<'a>> {
        let [write] = seat.writes.as_slice() else { return None };
        let is_one = |token: &PatternToken| matches!(token, PatternToken::Literal(_) | PatternToken::Bound(_));
        let is_removed = |other: &GrantedWrite<'_>| {
            let place = write.pattern.under_any_binding();
            possible_events(&other.pattern, &other.grant.ops, &place).any(|event| event == EventOp::Remove)
        };
        let is_added_once = write.grant.ops.iter().all(|op| *op == GrantOp::Add)
            && write.pattern.tokens().iter().all(is_one)
            && !self.writes().any(|(_, other)| is_removed(other));
        (is_added_once && !seat.worker.pass && seat.worker.files.is_none()).then_some(write)
    }
}
