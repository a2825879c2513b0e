//! What wakes what: whether rules can fire, wait for each other, or go round for ever.
//!
//! Judged from the contracts alone: a rule on an event can fire if some worker's grants can cause such an event. What
//! people and administrators propose from outside is not known here, so these findings are warnings, apart from rules
//! that wait for each other.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use super::{Check, Expression, Read, Seat, Write};
use crate::blueprint::{Action, AgentKind, EventOp, Freshness, Rule, Run, Trigger};
use crate::event::caused;
use crate::id::{RuleName, WorkerName};
use crate::pattern::{Pattern, PatternToken};
use crate::source::child;

/// What each worker can cause of what each rule on an event waits for, by the rule's number.
type Causes<'a> = BTreeMap<&'a WorkerName, BTreeMap<usize, BTreeSet<EventOp>>>;

impl<'a> Check<'a> {
    /// Warns of rules and workers that will not do what they seem to.
    pub(super) fn flow(&mut self) {
        self.starts();
        let causes = self.causes();
        self.firing(&causes);
        self.loops(&causes);
        self.own_rest();
        self.readable_triggers();
        self.first_only();
        self.stale_storms(&causes);
        self.idle_workers();
        if self.blueprint.done.is_none() {
            let help = "Write `done: {when: has(state.answer)}`; without it a board that has nothing left to do ends as \
                        quiescent.";
            self.find("no_done", "", "nothing says when the task is finished", help);
        }
    }

    /// Warns of workers that are woken for each of many elements and read what they write, so that calls side by side make each
    /// other stale.
    fn stale_storms(&mut self, causes: &Causes<'a>) {
        let blueprint = self.blueprint;
        let mut found = Vec::new();
        for (number, rule) in blueprint.rules.iter().enumerate() {
            let (op, path) = match &rule.trigger {
                Trigger::Event { op, path } => (*op, path),
                Trigger::Each(path) => (Some(EventOp::Add), path),
                _ => continue,
            };
            let Ok(place) = self.paths.parse(path) else { continue };
            let is_any = |token: &PatternToken| matches!(token, PatternToken::Any | PatternToken::Bound(_));
            let Some(last) = place.tokens().iter().rposition(is_any) else { continue };
            let (element, is_of_member) = (place.prefix(last + 1), last + 1 < place.tokens().len());
            // A member that names a worker gives each element to one worker.
            let is_given_to_one = is_of_member && matches!(rule.run, Run::Member { .. });
            if is_given_to_one || (!is_of_member && !matches!(op, None | Some(EventOp::Add))) {
                continue;
            }
            let is_given = matches!(rule.trigger, Trigger::Each(_));
            for (name, seat) in self.seats.iter().filter(|(name, _)| blueprint.woken_by(&rule.run).contains(name)) {
                // A worker that makes its next element itself has one at a time.
                let is_made_by_others =
                    causes.iter().any(|(other, caused)| other != name && caused.contains_key(&number));
                if !is_given && !is_made_by_others {
                    continue;
                }
                let side_by_side =
                    seat.worker.limits.at_once().unwrap_or(blueprint.concurrency).min(blueprint.concurrency);
                // A blueprint that sets the number of conflicts expects them.
                let is_expected = self.source.value().pointer(&format!("{}/limits/conflicts", seat.pointer)).is_some();
                if is_expected
                    || side_by_side < 2
                    || matches!(seat.worker.freshness, Freshness::None | Freshness::Target)
                {
                    continue;
                }
                let meets = |read: &Read, write: &Write<'_>| {
                    // A grant whose condition asks for `worker` is one on its own elements, of which it has few at once.
                    if is_of_member && self.asks_for_worker(write) {
                        return false;
                    }
                    let is_of_element = element.collides(&write.pattern) || element.lies_above(&write.pattern);
                    is_of_element
                        && read.pattern.names().next().is_none()
                        && (read.pattern.collides(&write.pattern) || read.pattern.lies_above(&write.pattern))
                };
                let pair = seat.reads.iter().find_map(|read| {
                    seat.writes
                        .iter()
                        .find(|write| meets(read, write))
                        .map(|write| (read.pattern.to_string(), &write.grant.path))
                });
                if let Some((read, written)) = pair {
                    let message = format!(
                        "`{}` wakes `{name}` for each change at `{path}`; each call reads all of `{read}` and writes `{written}`, so \
                         that calls side by side make each other stale",
                        rule.name
                    );
                    found.push((format!("/rules/{number}/run"), message));
                }
            }
        }
        for (pointer, message) in found {
            let help = "Bind a name in the trigger (`/notes/{note}`, `blueprint: 2`) and use it in `reads` and `writes`; or set the \
                        worker's `freshness: target` or `limits: {concurrency: 1}`.";
            self.find("stale_storm", &pointer, message, help);
        }
    }

    /// Returns true if the condition of a grant asks who writes.
    fn asks_for_worker(&self, write: &Write<'_>) -> bool {
        let condition = format!("{}/where/expr", write.pointer);
        let of_grant = |expression: &&Expression<'_>| expression.pointer == condition;
        self.expressions.iter().filter(of_grant).any(|expression| expression.expr.uses("worker"))
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

    /// Rules whose event no worker can cause, or that wait for such a rule.
    fn firing(&mut self, causes: &Causes<'a>) {
        let rules = &self.blueprint.rules;
        let mut dead: BTreeMap<usize, String> = BTreeMap::new();
        for (number, rule) in rules.iter().enumerate() {
            if let Trigger::Event { op, path } = &rule.trigger {
                let appends = |place: Pattern| place.tokens().last() == Some(&PatternToken::Append);
                if self.paths.parse(path).is_ok_and(appends) {
                    let elements = path.trim_end_matches('-');
                    dead.insert(number, format!("what is appended has an index: write `{elements}*`"));
                    continue;
                }
                let caused = causes.values().any(|caused| caused.contains_key(&number));
                // What is known of files changes with every edit.
                let is_pattern = self.paths.parse(path).is_ok_and(|place| !self.is_of_files(&place));
                if is_pattern && !caused {
                    let what = op.map_or("any event".to_owned(), |op| format!("the event `{op}`"));
                    dead.insert(number, format!("no worker's grants can cause {what} at `{path}`"));
                }
            }
        }
        for (number, rule) in rules.iter().enumerate() {
            let Trigger::Each(path) = &rule.trigger else { continue };
            let Ok(place) = self.paths.parse(path).map(|place| place.under_any_binding()) else { continue };
            let is_there = !place.instances_of_value(&self.blueprint.state.initial, 1).is_empty();
            if !is_there && !self.is_given(&place) {
                dead.insert(number, format!("the board begins with nothing at `{path}`"));
            }
        }
        // A rule that waits for a dead one is dead, or for nothing but dead ones; each round finds one more or is the last.
        loop {
            let more = rules.iter().enumerate().find_map(|(number, rule)| {
                if dead.contains_key(&number) {
                    return None;
                }
                let is_dead = |name: &&RuleName| dead.keys().any(|other| rules[*other].name == **name);
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
            });
            let Some((number, reason)) = more else { break };
            dead.insert(number, reason);
        }
        for (number, reason) in dead {
            let message = format!("`{}` can never fire: {reason}", rules[number].name);
            let help = "Grant a worker the write that it waits for, or change the trigger.";
            self.find("never_fires", &format!("/rules/{number}/trigger"), message, help);
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
    fn is_limited(&self, worker: &WorkerName) -> bool {
        let given = format!("{}/limits/invocations", child("/workers", worker.as_str()));
        self.source.value().pointer(&given).is_some()
    }

    /// Warns of rules that fire whenever they rest themselves, directly or round several, and have nothing that ends it.
    fn own_rest(&mut self) {
        let rules = &self.blueprint.rules;
        let is_limited = |worker: &WorkerName| self.is_limited(worker);
        let is_bounded =
            |rule: &Rule| rule.when.is_some() || self.blueprint.woken_by(&rule.run).into_iter().all(is_limited);
        let waits_for = |rule: &Rule| -> Vec<usize> {
            let Trigger::Idle(names) = &rule.trigger else { return Vec::new() };
            let named = |(number, other): (usize, &Rule)| names.contains(&other.name).then_some(number);
            if is_bounded(rule) { Vec::new() } else { rules.iter().enumerate().filter_map(named).collect() }
        };
        let edges: Vec<Vec<usize>> = rules.iter().map(waits_for).collect();
        for cycle in cycles(&edges) {
            let mut names: Vec<&str> = cycle.iter().map(|rule| rules[*rule].name.as_str()).collect();
            names.push(names[0]);
            let message = format!("`{}` fires whenever it rests, without an end: {}", names[0], names.join(" → "));
            let help = "Give it a condition (`when`) that its worker's writes end, or its worker `limits.invocations`; or wait for other \
                        rules.";
            self.find("loop_without_progress", &format!("/rules/{}/trigger/idle", cycle[0]), message, help);
        }
    }

    /// Rules that wait for the first of several things that another rule does.
    fn first_only(&mut self) {
        if !self.blueprint.joins_on_first() {
            return;
        }
        let rules = &self.blueprint.rules;
        for (number, rule) in rules.iter().enumerate() {
            let Trigger::After(names) = &rule.trigger else { continue };
            let is_of_many = |other: &&Rule| {
                let place = other.trigger.template().and_then(|path| self.paths.parse(path).ok());
                names.contains(&other.name) && place.is_some_and(|place| !place.is_place())
            };
            if let Some(other) = rules.iter().find(is_of_many) {
                let message = format!(
                    "`{}` fires after the first completion of `{}`, which fires for every place that matches",
                    rule.name, other.name
                );
                let help = format!(
                    "Write `blueprint: 2`, where `after` waits for all of them, or `{{idle: [{}]}}`.",
                    other.name
                );
                self.find("first_only", &format!("/rules/{number}/trigger/after"), message, help);
            }
        }
    }

    fn readable_triggers(&mut self) {
        for (number, rule) in self.blueprint.rules.iter().enumerate() {
            let Some(path) = rule.trigger.template() else { continue };
            let Ok(place) = self.paths.parse(path) else { continue };
            let is_blind = |worker: &&WorkerName| {
                let seen = |read: &Read| {
                    read.pattern.collides(&place) || read.pattern.lies_above(&place) || place.lies_above(&read.pattern)
                };
                // What a board inside is given is said at its border.
                let is_blind = |seat: &Seat<'_>| seat.worker.agent != AgentKind::Board && !seat.reads.iter().any(seen);
                self.seats.get(worker).is_some_and(is_blind)
            };
            if let Some(worker) = self.blueprint.woken_by(&rule.run).into_iter().find(is_blind) {
                let message = format!("`{worker}` is woken by `{path}` but may not read it");
                let help = format!("Add `{path}` to its `reads`, or it will not see what happened.");
                let pointer = format!("/rules/{number}/trigger/{}", rule.trigger.word());
                self.find("trigger_unreadable", &pointer, message, help);
            }
        }
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
