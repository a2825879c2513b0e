//! What wakes what: whether rules can fire, wait for each other, or go round for ever.
//!
//! Judged from the contracts alone: a rule on an event can fire if some worker's grants can cause such an event. What
//! people and administrators propose from outside is not known here, so these findings are warnings, apart from rules
//! that wait for each other.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use serde_json::Value;

use super::{Check, Read, Seat};
use crate::blueprint::{Action, AgentKind, EventOp, Rule, Run, Trigger, WorkerLimits};
use crate::event::caused;
use crate::id::{RuleName, WorkerName};
use crate::pattern::{Pattern, PatternToken};
use crate::source::child;

/// What each worker can cause of what each rule on an event waits for, by the rule's number.
pub(super) type Causes<'a> = BTreeMap<&'a WorkerName, BTreeMap<usize, BTreeSet<EventOp>>>;

impl<'a> Check<'a> {
    /// Warns of rules and workers that will not do what they seem to.
    pub(super) fn flow(&mut self) {
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
        self.stale_storms(&causes);
        self.idle_workers();
    }

    /// Rules that wait for each other, directly or round several.
    pub(super) fn dependencies(&mut self) {
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
            self.find("dependency_cycle", &format!("/rules/{}/trigger/{word}", cycle[0]), message, help);
        }
    }

    fn starts(&mut self) {
        let starts = |rule: &Rule| {
            use Trigger::{Each, Every, Manual, Signal, Start};
            matches!(rule.trigger, Start | Each(_) | Manual | Signal(_) | Every(_))
        };
        if !self.blueprint.rules.iter().any(starts) {
            let help = "Add a rule: `{name: begin, trigger: start, run: <worker>}`.";
            let pointer = if self.blueprint.rules.is_empty() { "" } else { "/rules" };
            self.find("no_start", pointer, "no rule waits for the start, a signal or a person: nothing begins", help);
        }
    }

    /// Only what is not empty. Asks of every grant and every rule whether they meet, so it is done once.
    fn causes(&self) -> Causes<'a> {
        let mut causes = Causes::new();
        for (number, rule) in self.blueprint.rules.iter().enumerate() {
            let Trigger::Event { op, path } = &rule.trigger else { continue };
            let Ok(place) = self.paths.parse(path) else { continue };
            for (worker, write) in self.writes() {
                let events = caused(&write.pattern, &write.grant.ops, &place);
                let events = events.filter(|event| op.is_none_or(|op| op == *event));
                for event in events {
                    causes.entry(worker).or_default().entry(number).or_default().insert(event);
                }
            }
        }
        causes
    }

    /// Rules whose workers wake each other by nothing but overwriting.
    ///
    /// A heuristic: in a cycle of rules where each worker's writes wake the next rule only by `replace` events, nothing
    /// grows or shrinks on the way, so nothing that the contracts say brings it to an end. A rule with a condition, or a
    /// worker whose `invocations` the blueprint limits itself, is taken to end the cycle.
    fn loops(&mut self, causes: &Causes<'a>) {
        let rules = &self.blueprint.rules;
        let is_limited = |worker: &WorkerName| self.is_limited(worker);
        let bounded =
            |rule: &Rule| rule.when.is_some() || self.blueprint.woken_by(&rule.run).into_iter().all(is_limited);
        let only_replaces = BTreeSet::from([EventOp::Replace]);
        let wakes = |rule: &Rule| -> Vec<usize> {
            if bounded(rule) {
                return Vec::new();
            }
            let woken = self.blueprint.woken_by(&rule.run).into_iter();
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
            let message = format!("these rules may wake each other for ever by overwriting: {}", steps.join(", "));
            let help = "Give one a condition (`when`) that ends it, or a worker its own `limits.invocations`.";
            self.find("loop_without_progress", &format!("/rules/{}", cycle[0]), message, help);
        }
    }

    /// Whether the blueprint says how often a worker may be called.
    pub(super) fn is_limited(&self, worker: &WorkerName) -> bool {
        let given = format!("{}/limits/invocations", child("/workers", worker.as_str()));
        self.source.value().pointer(&given).is_some()
    }

    /// Warns of rules that fire whenever they rest themselves, directly or round several, and have nothing that ends it.
    fn own_rest(&mut self) {
        let rules = &self.blueprint.rules;
        let is_limited = |worker: &WorkerName| {
            self.is_limited(worker)
                && self.blueprint.workers[worker].limits.invocations <= WorkerLimits::default().invocations
        };
        let may_end = |(number, rule): (usize, &Rule)| {
            let condition = format!("/rules/{number}/when");
            let asked = self.expressions.iter().find(|expression| expression.pointer == condition);
            // A condition that looks at nothing always comes out the same.
            asked.is_some_and(|expression| !expression.expr.references().is_empty())
                || self.blueprint.woken_by(&rule.run).into_iter().all(is_limited)
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
            self.find("loop_without_progress", &format!("/rules/{}/trigger/idle", cycle[0]), message, help);
        }
    }

    fn readable_triggers(&mut self) {
        for (number, rule) in self.blueprint.rules.iter().enumerate() {
            let Some(path) = rule.trigger.template() else { continue };
            let Ok(place) = self.paths.parse(path) else { continue };
            // Of what is gone there is nothing to see.
            if matches!(&rule.trigger, Trigger::Event { op: Some(EventOp::Remove), .. }) {
                continue;
            }
            let binds: BTreeSet<&str> = place.names().collect();
            let is_blind = |worker: &&WorkerName| {
                let seen = |read: &Read| {
                    // It knows which element it is, and sees another part of it that others know of.
                    let is_about_it = read.pattern.names().any(|name| binds.contains(name))
                        && self.is_known(&read.pattern)
                        && self.says_enough(rule, &place, &read.pattern);
                    is_about_it
                        || read.pattern.collides(&place)
                        || read.pattern.lies_above(&place)
                        || place.lies_above(&read.pattern)
                };
                // What a board inside is given is said at its border.
                let is_blind = |seat: &Seat<'_>| seat.worker.agent != AgentKind::Board && !seat.reads.iter().any(seen);
                self.seats.get(worker).is_some_and(is_blind)
            };
            // Who is chosen by its name, at the place itself, has nothing more to see there.
            let is_its_name = matches!(&rule.run, Run::Member { at, .. } if at.is_empty());
            if let Some(worker) = self.blueprint.woken_by(&rule.run).into_iter().find(is_blind).filter(|_| !is_its_name)
            {
                let message = format!("`{worker}` is woken by `{path}` but may not read it");
                let help = format!("Add `{path}` to its `reads`, or it will not see what happened.");
                let pointer = format!("/rules/{number}/trigger/{}", rule.trigger.word());
                self.find("trigger_unreadable", &pointer, message, help);
            }
        }
    }

    /// Returns true if a worker that is woken by a place need not read it where it reads this: another part of the same element, what
    /// is there from the beginning, what a mark is about, or what is chosen by the value.
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

    /// Returns true for a place whose value says no more than that it is there, or which of a few it is.
    pub(super) fn is_mark(&self, place: &Pattern) -> bool {
        let known = self.schema_of(&place.under_any_binding());
        let Some(said) = known.and_then(|(schema, sought, _)| schema.fragment(&sought)) else { return true };
        let is_named = said.get("enum").is_some() || said.get("const").is_some();
        let is_content = |of: &Value| ["object", "array", "string"].iter().any(|content| of == content);
        is_named || !(said.get("type").is_some_and(is_content) || said.get("properties").is_some())
    }

    /// Returns true if a rule is about a place, or a worker writes there.
    fn is_known(&self, place: &Pattern) -> bool {
        let is_at = |other: &Pattern| other.collides(place) || other.lies_above(place);
        let triggers = self.blueprint.rules.iter().filter_map(|rule| self.paths.parse(rule.trigger.template()?).ok());
        triggers.into_iter().any(|trigger| is_at(&trigger)) || self.writes().any(|(_, write)| is_at(&write.pattern))
    }

    fn idle_workers(&mut self) {
        let blueprint = self.blueprint;
        let mut woken: BTreeSet<&WorkerName> =
            blueprint.rules.iter().flat_map(|rule| blueprint.woken_by(&rule.run)).collect();
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
            self.find("idle_worker", &pointer, format!("nothing ever wakes `{name}`"), help);
            self.point_at_key();
        }
    }
}

/// One cycle of every strongly connected part of a graph, each from its first node on, in order of their first nodes.
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

/// A shortest way from `first` back to itself inside a strongly connected part.
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
