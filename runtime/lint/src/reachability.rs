//! Reachability of rules, by the grants of the workers that can be triggered before.

use std::collections::{BTreeMap, BTreeSet};

use super::flow::Causes;
use super::{GrantedWrite, Linter};
use patchboard_kernel::blueprint::{Action, EventOp, Trigger};
use patchboard_kernel::event::possible_events;
use patchboard_kernel::id::{RuleName, WorkerName};
use patchboard_kernel::pattern::{Pattern, PatternToken};

/// Rules that never fire, by number, with the reason.
type NeverFiring = BTreeMap<usize, String>;

impl Linter<'_> {
    /// Reports rules on an event that no worker can cause, and rules that wait for such a rule.
    pub(super) fn firing(&self, causes: &Causes<'_>) {
        let rules = &self.blueprint.rules;
        let mut dead: BTreeMap<usize, String> = BTreeMap::new();
        for (number, rule) in rules.iter().enumerate() {
            let Trigger::Event { op, path } = &rule.trigger else { continue };
            let Ok(place) = self.paths.parse(path) else { continue };
            if place.tokens().last() == Some(&PatternToken::Append) {
                let elements = path.trim_end_matches('-');
                dead.insert(number, format!("what is appended has an index: write `{elements}*`"));
                continue;
            }
            let caused = causes.values().any(|caused| caused.contains_key(&number));
            // The kernel's data about files changes with every edit.
            if !caused && !self.is_of_files(&place) {
                let what = op.map_or("any event".to_owned(), |op| format!("the event `{op}`"));
                dead.insert(number, format!("no worker's grants can cause {what} at `{path}`"));
            }
            if *op == Some(EventOp::Add) && self.is_always_there(&place) {
                dead.insert(number, format!("`{path}` is there at the beginning, so that it is only replaced"));
            }
        }
        for (number, rule) in rules.iter().enumerate() {
            let Trigger::Each(path) = &rule.trigger else { continue };
            let Ok(place) = self.paths.parse(path).map(|place| place.under_any_binding()) else { continue };
            let is_there = self.initial.first(&place).is_some();
            if !is_there && !self.is_given(&place) {
                dead.insert(number, format!("the board begins with nothing at `{path}`"));
            }
        }
        loop {
            let more = self.waits_in_vain(&dead).or_else(|| self.woken_by_itself(&dead, causes));
            let Some((number, reason)) = more else { break };
            dead.insert(number, reason);
        }
        for (number, reason) in dead {
            let message = format!("`{}` can never fire: {reason}", rules[number].name);
            let help = "Grant a triggered worker the write that it waits for, or change the trigger.";
            self.report("never_fires", &format!("/rules/{number}/trigger"), message, help);
        }
    }

    /// Returns true if a place exists at the beginning, and no worker may remove it.
    pub(super) fn is_always_there(&self, place: &Pattern) -> bool {
        let is_removed = |write: &GrantedWrite<'_>| {
            possible_events(&write.pattern, &write.grant.ops, place).any(|event| event == EventOp::Remove)
        };
        place.is_place() && self.initial.first(place).is_some() && !self.writes().any(|(_, write)| is_removed(write))
    }

    /// Returns a rule that waits for one that never fires, or only for such rules.
    fn waits_in_vain(&self, dead: &NeverFiring) -> Option<(usize, String)> {
        let rules = &self.blueprint.rules;
        let is_dead = |name: &&RuleName| dead.keys().any(|other| rules[*other].name == **name);
        rules.iter().enumerate().filter(|(number, _)| !dead.contains_key(number)).find_map(|(number, rule)| {
            let name = match &rule.trigger {
                Trigger::After(names) if self.blueprint.joins_on_first() => names.iter().find(is_dead)?,
                Trigger::AfterFirst(names) => names.iter().find(is_dead)?,
                Trigger::After(names) | Trigger::Settled(names) | Trigger::Idle(names)
                    if names.iter().all(|name| is_dead(&name)) =>
                {
                    names.first()?
                }
                _ => return None,
            };
            Some((number, format!("it waits for `{name}`, which never fires")))
        })
    }

    /// Returns a rule on an event, if all workers that can cause the event are triggered only after the rule has fired.
    fn woken_by_itself(&self, dead: &NeverFiring, causes: &Causes<'_>) -> Option<(usize, String)> {
        let blueprint = self.blueprint;
        let by_rules: BTreeSet<&WorkerName> =
            blueprint.rules.iter().flat_map(|rule| blueprint.triggered_workers(&rule.run)).collect();
        // Workers that no rule triggers may propose unasked; breakers trigger others.
        let mut awake: BTreeSet<&WorkerName> =
            blueprint.workers.keys().filter(|name| !by_rules.contains(name)).collect();
        awake.extend(blueprint.circuit.actions().filter_map(|(_, action)| match action {
            Action::Wake(worker) => Some(worker),
            _ => None,
        }));
        let mut waiting: Vec<usize> = (0..blueprint.rules.len()).filter(|number| !dead.contains_key(number)).collect();
        loop {
            let fires = |number: &usize| {
                let caused =
                    |worker: &&WorkerName| causes.get(*worker).is_some_and(|caused| caused.contains_key(number));
                let is_of_board = matches!(&blueprint.rules[*number].trigger, Trigger::Event { path, .. }
                    if self.paths.parse(path).is_ok_and(|place| self.is_of_files(&place)));
                !matches!(blueprint.rules[*number].trigger, Trigger::Event { .. })
                    || is_of_board
                    || awake.iter().any(caused)
            };
            let (firing, still): (Vec<usize>, Vec<usize>) = waiting.iter().copied().partition(fires);
            if firing.is_empty() {
                break;
            }
            awake.extend(
                firing.into_iter().flat_map(|number| blueprint.triggered_workers(&blueprint.rules[number].run)),
            );
            waiting = still;
        }
        let number = waiting.into_iter().next()?;
        let able: Vec<String> = causes
            .iter()
            .filter(|(_, caused)| caused.contains_key(&number))
            .map(|(worker, _)| format!("`{worker}`"))
            .collect();
        Some((number, format!("only {} may cause what it waits for, and nothing else triggers it", able.join(" or "))))
    }
}
