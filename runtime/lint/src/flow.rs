//! Triggering among rules: rules that cannot fire, wait for each other, or form an endless cycle.
//!
//! Uses the contracts alone: a rule on an event can fire if some worker's grants can cause such an event. External
//! proposals by people and administrators are not known here. So these findings are warnings, apart from rules that
//! wait for each other.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use serde_json::Value;

use super::{Linter, Read, WorkerGrants};
use crate::source::child;
use patchboard_kernel::blueprint::{Action, AgentKind, EventOp, Rule, Run, Trigger, WorkerLimits};
use patchboard_kernel::event::possible_events;
use patchboard_kernel::id::{RuleName, WorkerName};
use patchboard_kernel::pattern::{Pattern, PatternToken};

/// Events that each worker can cause for each rule on an event, by the rule's number.
pub(super) type Causes<'a> = BTreeMap<&'a WorkerName, BTreeMap<usize, BTreeSet<EventOp>>>;

impl<'a> Linter<'a> {
    /// Warns of rules and workers that will not act as intended.
    pub(super) fn flow(&self) {
        self.starts();
        let causes = self.causes();
        self.firing(&causes);
        self.loops(&causes);
        self.nothing_left(&causes);
        self.own_rest();
        self.readable_triggers();
        self.first_only();
        self.early_joins(&causes);
        self.unread_joins();
        self.stale_calls(&causes);
        self.idle_workers();
    }

    /// Reports rules that wait for each other, directly or through others.
    pub(super) fn dependencies(&self) {
        let rules = &self.blueprint.rules;
        let mut index: BTreeMap<&RuleName, usize> = BTreeMap::new();
        for (number, rule) in rules.iter().enumerate() {
            index.entry(&rule.name).or_insert(number);
        }
        let waits_for = |rule: &Rule| -> Vec<usize> {
            let names = match &rule.trigger {
                Trigger::After(names) | Trigger::Settled(names) | Trigger::AfterFirst(names) => names,
                _ => return Vec::new(),
            };
            names.iter().filter_map(|name| index.get(name).copied()).collect()
        };
        let edges: Vec<Vec<usize>> = rules.iter().map(waits_for).collect();
        for cycle in cycles(&edges) {
            let mut names: Vec<&str> = cycle.iter().map(|rule| rules[*rule].name.as_str()).collect();
            names.push(names[0]);
            let message = format!("these rules wait for each other, so none can fire: {}", names.join(" → "));
            let help = "Let one of them wait for something else.";
            let word = rules[cycle[0]].trigger.word();
            self.report("dependency_cycle", &format!("/rules/{}/trigger/{word}", cycle[0]), message, help);
        }
    }

    fn starts(&self) {
        let starts = |rule: &Rule| {
            use Trigger::{Each, Every, Manual, Signal, Start};
            matches!(rule.trigger, Start | Each(_) | Manual | Signal(_) | Every(_))
        };
        if !self.blueprint.rules.iter().any(starts) {
            let help = "Add a rule: `{name: begin, trigger: start, run: <worker>}`.";
            let pointer = if self.blueprint.rules.is_empty() { "" } else { "/rules" };
            self.report("no_start", pointer, "no rule waits for the start, a signal or a person: nothing begins", help);
        }
    }

    /// Returns the non-empty causes. Compares every grant with every rule, so it runs once.
    fn causes(&self) -> Causes<'a> {
        let mut causes = Causes::new();
        for (number, rule) in self.blueprint.rules.iter().enumerate() {
            let Trigger::Event { op, path } = &rule.trigger else { continue };
            let Ok(place) = self.paths.parse(path) else { continue };
            for (worker, write) in self.writes() {
                let events = possible_events(&write.pattern, &write.grant.ops, &place);
                let events = events.filter(|event| op.is_none_or(|op| op == *event));
                for event in events {
                    causes.entry(worker).or_default().entry(number).or_default().insert(event);
                }
            }
        }
        causes
    }

    /// Warns of rules that trigger each other's workers only by overwriting.
    ///
    /// A heuristic: in a cycle of rules where each worker's writes trigger the next rule only by `replace` events,
    /// nothing grows or shrinks. So nothing in the contracts ends the cycle. A rule with a condition, or a worker with
    /// an explicit `invocations` limit, is assumed to end it.
    fn loops(&self, causes: &Causes<'a>) {
        let rules = &self.blueprint.rules;
        let is_limited = |worker: &WorkerName| self.is_limited(worker);
        let bounded = |rule: &Rule| {
            rule.when.is_some() || self.blueprint.triggered_workers(&rule.run).into_iter().all(is_limited)
        };
        let only_replaces = BTreeSet::from([EventOp::Replace]);
        let wakes = |rule: &Rule| -> Vec<usize> {
            if bounded(rule) {
                return Vec::new();
            }
            let woken = self.blueprint.triggered_workers(&rule.run).into_iter();
            let caused = woken.filter(|worker| !is_limited(worker)).filter_map(|worker| causes.get(worker)).flatten();
            caused
                .filter(|(other, events)| **events == only_replaces && !bounded(&rules[**other]))
                .map(|(n, _)| *n)
                .collect()
        };
        let edges: Vec<Vec<usize>> = rules.iter().map(wakes).collect();
        for cycle in cycles(&edges) {
            let steps: Vec<String> =
                cycle.iter().map(|rule| format!("`{}` runs `{}`", rules[*rule].name, rules[*rule].run)).collect();
            let message = format!("these rules may trigger each other for ever by overwriting: {}", steps.join(", "));
            let help = "Give one a condition (`when`) that ends it, or a worker its own `limits.invocations`.";
            self.report("loop_without_progress", &format!("/rules/{}", cycle[0]), message, help);
        }
    }

    /// Returns true if the blueprint limits a worker's invocations explicitly.
    pub(super) fn is_limited(&self, worker: &WorkerName) -> bool {
        let given = format!("{}/limits/invocations", child("/workers", worker.as_str()));
        self.source.value().pointer(&given).is_some()
    }

    /// Warns of `idle` rules that wait for themselves, directly or through others, without an end.
    fn own_rest(&self) {
        let rules = &self.blueprint.rules;
        let is_limited = |worker: &WorkerName| {
            self.is_limited(worker)
                && self.blueprint.workers[worker].limits.invocations <= WorkerLimits::default().invocations
        };
        let may_end = |(number, rule): (usize, &Rule)| {
            let condition = format!("/rules/{number}/when");
            let asked = self.expressions.iter().find(|expression| expression.pointer == condition);
            // A condition without references has a constant result.
            asked.is_some_and(|expression| !expression.expr.references().is_empty())
                || self.blueprint.triggered_workers(&rule.run).into_iter().all(is_limited)
        };
        let is_bounded: Vec<bool> = rules.iter().enumerate().map(may_end).collect();
        let waits_for = |(number, rule): (usize, &Rule)| -> Vec<usize> {
            let Trigger::Idle(names) = &rule.trigger else { return Vec::new() };
            let named = |(number, other): (usize, &Rule)| names.contains(&other.name).then_some(number);
            if is_bounded[number] { Vec::new() } else { rules.iter().enumerate().filter_map(named).collect() }
        };
        let edges: Vec<Vec<usize>> = rules.iter().enumerate().map(waits_for).collect();
        for cycle in cycles(&edges) {
            let mut names: Vec<&str> = cycle.iter().map(|rule| rules[*rule].name.as_str()).collect();
            names.push(names[0]);
            let message = format!("`{}` fires whenever it rests, without an end: {}", names[0], names.join(" → "));
            let help = "Give it a condition (`when`) that its worker's writes end, or its worker `limits.invocations`; or wait for other \
                        rules.";
            self.report("loop_without_progress", &format!("/rules/{}/trigger/idle", cycle[0]), message, help);
        }
    }

    fn readable_triggers(&self) {
        for (number, rule) in self.blueprint.rules.iter().enumerate() {
            let Some(path) = rule.trigger.template() else { continue };
            let Ok(place) = self.paths.parse(path) else { continue };
            // A removed value is not visible.
            if matches!(&rule.trigger, Trigger::Event { op: Some(EventOp::Remove), .. }) {
                continue;
            }
            let binds: BTreeSet<&str> = place.names().collect();
            let is_blind = |worker: &&WorkerName| {
                let seen = |read: &Read| {
                    // The worker knows its element, and reads another known part of it.
                    let is_about_it = read.pattern.names().any(|name| binds.contains(name))
                        && self.is_known(&read.pattern)
                        && self.says_enough(rule, &place, &read.pattern);
                    is_about_it
                        || read.pattern.collides(&place)
                        || read.pattern.lies_above(&place)
                        || place.lies_above(&read.pattern)
                };
                // The check of nested boards covers their input.
                let is_blind =
                    |seat: &WorkerGrants<'_>| seat.worker.agent != AgentKind::Board && !seat.reads.iter().any(seen);
                self.worker_grants.get(worker).is_some_and(is_blind)
            };
            // A worker chosen by the name at the place itself has nothing more to read there.
            let is_its_name = matches!(&rule.run, Run::Member { at, .. } if at.is_empty());
            if let Some(worker) =
                self.blueprint.triggered_workers(&rule.run).into_iter().find(is_blind).filter(|_| !is_its_name)
            {
                let message = format!("`{worker}` is triggered by `{path}` but may not read it");
                let help = format!("Add `{path}` to its `reads`, or it will not see what happened.");
                let pointer = format!("/rules/{number}/trigger/{}", rule.trigger.word());
                self.report("trigger_unreadable", &pointer, message, help);
            }
        }
    }

    /// Returns true if a triggered worker may read `read` instead of its trigger's place. That is another part of the
    /// same element, data from the beginning, the subject of a mark, or the value that selects the worker.
    fn says_enough(&self, rule: &Rule, place: &Pattern, read: &Pattern) -> bool {
        if rule.when.is_some() || matches!(rule.run, Run::Member { .. }) {
            return true;
        }
        if matches!(rule.trigger, Trigger::Each(_)) {
            return self.is_there_at_first(&read.under_any_binding());
        }
        let is_shared = |(a, b): &(&PatternToken, &PatternToken)| a == b;
        let mut shared = place.tokens().iter().zip(read.tokens()).take_while(is_shared);
        shared.any(|(token, _)| matches!(token, PatternToken::Bound(_))) || self.is_mark(place)
    }

    /// Returns true for a place with a marker value: it shows that the place exists, or is one of a few values.
    pub(super) fn is_mark(&self, place: &Pattern) -> bool {
        let known = self.schema_of(&place.under_any_binding());
        let Some(said) = known.and_then(|(schema, sought, _)| schema.fragment(&sought)) else { return true };
        let is_named = said.get("enum").is_some() || said.get("const").is_some();
        let is_content = |of: &Value| ["object", "array", "string"].iter().any(|content| of == content);
        is_named || !(said.get("type").is_some_and(is_content) || said.get("properties").is_some())
    }

    /// Returns true if a rule waits for a place, or a worker writes there.
    fn is_known(&self, place: &Pattern) -> bool {
        let is_at = |other: &Pattern| other.collides(place) || other.lies_above(place);
        let triggers = self.blueprint.rules.iter().filter_map(|rule| self.paths.parse(rule.trigger.template()?).ok());
        triggers.into_iter().any(|trigger| is_at(&trigger)) || self.writes().any(|(_, write)| is_at(&write.pattern))
    }

    fn idle_workers(&self) {
        let blueprint = self.blueprint;
        let mut woken: BTreeSet<&WorkerName> =
            blueprint.rules.iter().flat_map(|rule| blueprint.triggered_workers(&rule.run)).collect();
        for (_, action) in blueprint.circuit.actions() {
            if let Action::Wake(worker) = action {
                woken.insert(worker);
            }
        }
        let grants = blueprint.workers.values().flat_map(|worker| &worker.writes);
        let asked = grants.filter_map(|grant| grant.approval.as_ref());
        let asked = asked.chain(blueprint.workers.values().filter_map(|worker| worker.clarify.as_ref()));
        woken.extend(asked.map(|asked| &asked.by));
        for name in blueprint.workers.keys().filter(|name| !woken.contains(name)) {
            let pointer = child("/workers", name.as_str());
            let help = format!("Add a rule with `run: {name}`, or remove the worker.");
            self.report_at_key("idle_worker", &pointer, format!("no rule ever triggers `{name}`"), help);
        }
    }
}

/// Returns one cycle per strongly connected component, each beginning at its first node, in order of the first nodes.
fn cycles(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut graph = DiGraph::<(), ()>::new();
    for _ in edges {
        graph.add_node(());
    }
    for (from, targets) in edges.iter().enumerate() {
        for to in targets {
            graph.add_edge(NodeIndex::new(from), NodeIndex::new(*to), ());
        }
    }
    let mut found = Vec::new();
    for part in tarjan_scc(&graph) {
        let part: BTreeSet<usize> = part.into_iter().map(NodeIndex::index).collect();
        let Some(first) = part.first().copied() else { continue };
        if part.len() == 1 && !edges[first].contains(&first) {
            continue;
        }
        found.push(shortest_cycle(edges, &part, first));
    }
    found.sort();
    found
}

/// Returns a shortest cycle through `first` inside a strongly connected component.
fn shortest_cycle(edges: &[Vec<usize>], part: &BTreeSet<usize>, first: usize) -> Vec<usize> {
    let mut came_from: BTreeMap<usize, usize> = BTreeMap::new();
    let mut round = vec![first];
    while !round.is_empty() {
        let mut next = Vec::new();
        for from in round {
            for to in edges[from].iter().copied().filter(|to| part.contains(to)) {
                if to == first {
                    let mut way = vec![from];
                    while way.last() != Some(&first) {
                        let Some(before) = way.last().and_then(|node| came_from.get(node)) else { break };
                        way.push(*before);
                    }
                    way.reverse();
                    return way;
                }
                came_from.entry(to).or_insert_with(|| {
                    next.push(to);
                    from
                });
            }
        }
        round = next;
    }
    vec![first]
}
