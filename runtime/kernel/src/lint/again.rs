//! Rules that wake a worker again when there is nothing left that it may write.

use std::collections::BTreeSet;

use super::flow::Causes;
use super::{Check, Seat, Write};
use crate::blueprint::{EventOp, GrantOp, Rule, Trigger};
use crate::event::caused;
use crate::id::WorkerName;
use crate::pattern::PatternToken;

impl<'a> Check<'a> {
    /// Warns of rules that wake a worker for its own writes, or for each of many elements, where that worker may only add what has
    /// been added by then.
    pub(super) fn nothing_left(&mut self, causes: &Causes<'a>) {
        let blueprint = self.blueprint;
        let mut found = Vec::new();
        for (number, rule) in blueprint.rules.iter().enumerate().filter(|(_, rule)| rule.when.is_none()) {
            for worker in blueprint.woken_by(&rule.run) {
                let Some(seat) = self.seats.get(worker).filter(|seat| seat.worker.files.is_none()) else { continue };
                let is_itself = causes.get(worker).is_some_and(|caused| caused.contains_key(&number));
                let told = match is_itself {
                    true => self.after_itself(rule, worker, seat),
                    false => self.after_the_first(rule, worker, seat),
                };
                found.extend(told.map(|(message, help)| (format!("/rules/{number}/trigger"), message, help)));
            }
        }
        for (pointer, message, help) in found {
            self.find("nothing_left", &pointer, message, help);
        }
    }

    /// Says that a worker which its own writes wake can write nothing then, and what mends it.
    fn after_itself(&self, rule: &Rule, worker: &WorkerName, seat: &Seat<'_>) -> Option<(String, String)> {
        let Trigger::Event { path, .. } = &rule.trigger else { return None };
        let place = self.paths.parse(path).ok()?;
        let bound: BTreeSet<&str> = place.names().collect();
        let written = self.all_added_once(seat, &bound)?;
        let message = format!(
            "`{}` wakes `{worker}` again for what it writes itself, and there is nothing then that it may write: it may only add `{written}`",
            rule.name
        );
        let help = "Name in the trigger what the worker waits for, or add a condition: `when: event.worker != worker`.";
        Some((message, help.to_owned()))
    }

    /// Says that a worker which each of many elements wakes can write for the first one only, and what mends it.
    fn after_the_first(&self, rule: &'a Rule, worker: &WorkerName, seat: &Seat<'_>) -> Option<(String, String)> {
        let path = rule.trigger.template().filter(|_| self.fires_for_each(rule))?;
        if seat.worker.pass || self.is_limited(worker) {
            return None;
        }
        let written = self.all_added_once(seat, &BTreeSet::new())?;
        let message = format!(
            "`{}` wakes `{worker}` for each change at `{path}`, and it may only add `{written}`: after the first call there is nothing that it \
             may write",
            rule.name
        );
        let help = "Wait for all of them, `trigger: {after: [RULE]}`; or let the worker write a place of each, or `replace` this one.";
        Some((message, help.to_owned()))
    }

    /// Returns the first place that a worker may write, if invocations with these names bound alike can write each of them once.
    fn all_added_once<'w>(&self, seat: &'w Seat<'_>, bound: &BTreeSet<&str>) -> Option<&'w str> {
        let is_once = seat.writes.iter().all(|write| self.is_added_once(write, bound));
        seat.writes.first().filter(|_| is_once).map(|write| write.grant.path.as_str())
    }

    fn is_added_once(&self, write: &Write<'_>, bound: &BTreeSet<&str>) -> bool {
        let is_one = |token: &PatternToken| match token {
            PatternToken::Literal(_) => true,
            PatternToken::Bound(name) => bound.contains(name.as_str()),
            PatternToken::Any | PatternToken::Deep | PatternToken::Append => false,
        };
        let is_removed = |other: &Write<'_>| {
            let place = write.pattern.under_any_binding();
            caused(&other.pattern, &other.grant.ops, &place).any(|event| event == EventOp::Remove)
        };
        write.grant.ops.iter().all(|op| *op == GrantOp::Add)
            && write.pattern.tokens().iter().all(is_one)
            && !self.writes().any(|(_, other)| is_removed(other))
    }
}
