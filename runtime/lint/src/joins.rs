//! Joins that wait for less than they seem to.

use std::collections::BTreeSet;

use super::flow::Causes;
use super::{GrantedWrite, Linter, WorkerGrants};
use patchboard_kernel::blueprint::{Rule, Run, Trigger};
use patchboard_kernel::expressions;
use patchboard_kernel::id::RuleName;
use patchboard_kernel::pattern::Pattern;

impl<'a> Linter<'a> {
    /// Warns of joins that wait only for the first of several completions of another rule.
    pub(super) fn first_only(&self) {
        if !self.blueprint.joins_on_first() {
            return;
        }
        let rules = &self.blueprint.rules;
        for (number, rule) in rules.iter().enumerate() {
            let Trigger::After(names) = &rule.trigger else { continue };
            let many = |other: &Rule| {
                let place = other.trigger.template().and_then(|path| self.paths.parse(path).ok());
                let woken = self.blueprint.triggered_workers(&other.run).len();
                match (place.is_some_and(|place| !place.is_place()), &other.run) {
                    (true, _) => Some("fires for every place that matches".to_owned()),
                    (false, Run::Group(_)) if woken > 1 => Some(format!("triggers {woken} workers")),
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
                self.report("first_only", &format!("/rules/{number}/trigger/after"), message, help);
            }
        }
    }

    /// Warns of joins that trigger too early: the worker reads a place that a rule outside the join may still be
    /// writing.
    pub(super) fn early_joins(&self, causes: &Causes<'_>) {
        if self.blueprint.joins_on_first() {
            return;
        }
        let rules = &self.blueprint.rules;
        let names = |names: &[RuleName]| -> Vec<usize> {
            rules.iter().enumerate().filter(|(_, rule)| names.contains(&rule.name)).map(|(number, _)| number).collect()
        };
        let wakes = |rule: &Rule| -> BTreeSet<usize> {
            let workers = self.blueprint.triggered_workers(&rule.run);
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
        for (number, rule) in rules.iter().enumerate() {
            let (Trigger::After(awaited) | Trigger::Settled(awaited)) = &rule.trigger else { continue };
            let awaited = names(awaited);
            // A join also waits for all rules that can still trigger the rules it names.
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
                let pointer = format!("/rules/{number}/trigger/{}", rule.trigger.word());
                self.report("early_join", &pointer, message, help);
            }
        }
    }

    /// Warns of joins on a rule with unread results: no worker, rule, condition or board result uses them.
    pub(super) fn unread_joins(&self) {
        let blueprint = self.blueprint;
        for (number, rule) in blueprint.rules.iter().enumerate() {
            let (Trigger::After(awaited) | Trigger::Settled(awaited)) = &rule.trigger else { continue };
            // A worker without reads only marks the moment.
            if self.triggered_grants(rule).iter().any(|seat| seat.reads.is_empty() || seat.worker.files.is_some()) {
                continue;
            }
            for other in blueprint.rules.iter().filter(|other| awaited.contains(&other.name)) {
                let grants = self.triggered_grants(other);
                let is_unread =
                    |write: &GrantedWrite<'_>| !self.is_mark(&write.pattern) && !self.is_used(&write.pattern);
                let written = grants.iter().flat_map(|seat| &seat.writes).next();
                if let Some(written) = written
                    && grants.iter().all(|seat| seat.worker.files.is_none() && seat.writes.iter().all(is_unread))
                {
                    let message = format!(
                        "`{}` waits for `{}`, and nothing reads what that writes: `{}`",
                        rule.name, other.name, written.grant.path
                    );
                    let help = format!("Add it to `reads` of `{}`, or do not wait for it.", rule.run);
                    let pointer = format!("/rules/{number}/trigger/{}", rule.trigger.word());
                    self.report("never_read", &pointer, message, help);
                }
            }
        }
    }

    /// Returns true if a worker, a rule, a condition or the board's result uses data at a place.
    fn is_used(&self, place: &Pattern) -> bool {
        let place = &place.under_any_binding();
        let meets = |other: &Pattern| {
            let other = other.under_any_binding();
            other.collides(place) || other.lies_above(place) || place.lies_above(&other)
        };
        let mut triggers =
            self.blueprint.rules.iter().filter_map(|rule| self.paths.parse(rule.trigger.template()?).ok());
        let mut looks = self.expressions.iter().flat_map(|one| {
            one.expr
                .lookups()
                .into_iter()
                .filter_map(|look| expressions::place(&look, one.owner, self.paths))
                .collect::<Vec<_>>()
        });
        self.worker_grants.values().flat_map(|seat| &seat.reads).any(|read| meets(&read.pattern))
            || triggers.any(|trigger| meets(&trigger))
            || looks.any(|look| meets(&look))
            || self
                .blueprint
                .results()
                .iter()
                .any(|result| Pattern::parse(result.as_str()).is_ok_and(|result| meets(&result)))
    }

    fn triggered_grants(&self, rule: &Rule) -> Vec<&WorkerGrants<'a>> {
        let woken = self.blueprint.triggered_workers(&rule.run);
        woken.into_iter().filter_map(|name| self.worker_grants.get(name)).collect()
    }

    /// Returns a place that one rule's worker reads and the other's writes.
    fn read_and_written(&self, rule: &Rule, other: &Rule) -> Option<(Pattern, String)> {
        let mut writes = self.triggered_grants(other).into_iter().flat_map(|seat| &seat.writes);
        writes.find_map(|write| {
            let meets = |pattern: &Pattern| pattern.collides(&write.pattern) || pattern.lies_above(&write.pattern);
            let read = self
                .triggered_grants(rule)
                .into_iter()
                .flat_map(|seat| &seat.reads)
                .find(|read| meets(&read.pattern))?;
            Some((read.pattern.clone(), write.grant.path.clone()))
        })
    }
}

/// Returns all nodes reachable from some nodes, including these.
fn closure(from: &[usize], next: impl Fn(usize) -> Vec<usize>) -> BTreeSet<usize> {
    let mut reached: BTreeSet<usize> = from.iter().copied().collect();
    let mut pending = from.to_vec();
    while let Some(node) = pending.pop() {
        pending.extend(next(node).into_iter().filter(|node| reached.insert(*node)));
    }
    reached
}
