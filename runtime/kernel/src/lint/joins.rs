//! Joins that do not wait for all that they seem to.

use std::collections::BTreeSet;

use super::flow::Causes;
use super::{Check, Seat};
use crate::blueprint::{Rule, Run, Trigger};
use crate::id::RuleName;
use crate::pattern::Pattern;

impl Check<'_> {
    /// Rules that wait for the first of several things that another rule does.
    pub(super) fn first_only(&mut self) {
        if !self.blueprint.joins_on_first() {
            return;
        }
        let rules = &self.blueprint.rules;
        for (number, rule) in rules.iter().enumerate() {
            let Trigger::After(names) = &rule.trigger else { continue };
            let many = |other: &Rule| {
                let place = other.trigger.template().and_then(|path| self.paths.parse(path).ok());
                let woken = self.blueprint.woken_by(&other.run).len();
                match (place.is_some_and(|place| !place.is_place()), &other.run) {
                    (true, _) => Some("fires for every place that matches".to_owned()),
                    (false, Run::Group(_)) if woken > 1 => Some(format!("wakes {woken} workers")),
                    _ => None,
                }
            };
            let of_many = rules.iter().filter(|other| names.contains(&other.name));
            if let Some((other, why)) = of_many.into_iter().find_map(|other| Some((other, many(other)?))) {
                let message =
                    format!("`{}` fires after the first completion of `{}`, which {why}", rule.name, other.name);
                let help = format!(
                    "Write `blueprint: 2`, where `after` waits for all of them, or `{{idle: [{}]}}`.",
                    other.name
                );
                self.find("first_only", &format!("/rules/{number}/trigger/after"), message, help);
            }
        }
    }

    /// Warns of joins whose worker reads what a rule may still be writing that the join does not wait for.
    pub(super) fn early_joins(&mut self, causes: &Causes<'_>) {
        if self.blueprint.joins_on_first() {
            return;
        }
        let rules = &self.blueprint.rules;
        let names = |names: &[RuleName]| -> Vec<usize> {
            rules.iter().enumerate().filter(|(_, rule)| names.contains(&rule.name)).map(|(number, _)| number).collect()
        };
        let wakes = |rule: &Rule| -> BTreeSet<usize> {
            let workers = self.blueprint.woken_by(&rule.run);
            let caused =
                workers.into_iter().filter_map(|worker| causes.get(worker)).flatten().map(|(number, _)| *number);
            let after = rules.iter().enumerate().filter(|(_, other)| match &other.trigger {
                Trigger::After(names) | Trigger::Settled(names) | Trigger::AfterFirst(names) => {
                    names.contains(&rule.name)
                }
                _ => false,
            });
            caused.chain(after.map(|(number, _)| number)).collect()
        };
        let next: Vec<BTreeSet<usize>> = rules.iter().map(wakes).collect();
        let mut found = Vec::new();
        for (number, rule) in rules.iter().enumerate() {
            let (Trigger::After(awaited) | Trigger::Settled(awaited)) = &rule.trigger else { continue };
            let awaited = names(awaited);
            // It waits for all that can still wake what it names, too.
            let waited = closure(&awaited, |of| {
                next.iter().enumerate().filter(|(_, woken)| woken.contains(&of)).map(|(other, _)| other).collect()
            });
            let woken = closure(&awaited, |of| next[of].iter().copied().filter(|other| *other != number).collect());
            let late = closure(&[number], |of| next[of].iter().copied().collect());
            let is_loose = |other: &&usize| !waited.contains(*other) && !late.contains(*other);
            let overlap = woken.iter().filter(is_loose).find_map(|other| {
                let (read, written) = self.read_and_written(rule, &rules[*other])?;
                Some((&rules[*other].name, read, written))
            });
            if let Some((other, read, written)) = overlap {
                let message = format!(
                    "`{}` does not wait for `{other}`, which may still be writing `{written}` when it fires, and `{}` reads `{read}`",
                    rule.name, rule.run
                );
                let help = format!("Name `{other}` as well: `{}: […, {other}]`.", rule.trigger.word());
                found.push((format!("/rules/{number}/trigger/{}", rule.trigger.word()), message, help));
            }
        }
        for (pointer, message, help) in found {
            self.find("early_join", &pointer, message, help);
        }
    }

    /// A place that the worker of one rule reads and that of another writes.
    fn read_and_written(&self, rule: &Rule, other: &Rule) -> Option<(Pattern, String)> {
        let seats = |rule: &Rule| -> Vec<&Seat<'_>> {
            self.blueprint.woken_by(&rule.run).into_iter().filter_map(|name| self.seats.get(name)).collect()
        };
        let mut writes = seats(other).into_iter().flat_map(|seat| &seat.writes);
        writes.find_map(|write| {
            let meets = |pattern: &Pattern| pattern.collides(&write.pattern) || pattern.lies_above(&write.pattern);
            let read = seats(rule).into_iter().flat_map(|seat| &seat.reads).find(|read| meets(&read.pattern))?;
            Some((read.pattern.clone(), write.grant.path.clone()))
        })
    }
}

/// All that is reached from some nodes, with these.
fn closure(from: &[usize], next: impl Fn(usize) -> Vec<usize>) -> BTreeSet<usize> {
    let mut reached: BTreeSet<usize> = from.iter().copied().collect();
    let mut pending = from.to_vec();
    while let Some(node) = pending.pop() {
        pending.extend(next(node).into_iter().filter(|node| reached.insert(*node)));
    }
    reached
}
