//! Rules that wait for other rules to rest: the branches they wait for, and the required outcomes.

use std::collections::BTreeSet;

use super::{CompiledTrigger, Plan, Rule, WorkerPlan};
use crate::blueprint::{Action, EventOp};
use crate::breaker::Branch;
use crate::event::possible_events;
use crate::files::FILES;
use crate::id::{RuleName, WorkerName};
use crate::pattern::Pattern;
use crate::record::SINCE_UNDECIDED_RULES;

/// A wait for branches to rest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuiescenceWait {
    /// Condition on which the rule fires.
    pub kind: QuiescenceKind,
    /// Rules that the blueprint names.
    pub named: Vec<RuleName>,
    /// Rules of the branches that it waits for.
    rules: BTreeSet<RuleName>,
    /// Workers of those branches that circuit breakers trigger.
    woken_by_breakers: BTreeSet<WorkerName>,
}

/// Firing conditions of a rule that waits for rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuiescenceKind {
    /// Each time the named rules rest, with any outcome. Invocations queued behind a stopped branch count as resting.
    Each,
    /// Once, when the named rules and all that can still trigger them rest, and none of their invocations was given up.
    Completed,
    /// Once, when these rest, with any outcome. Invocations queued behind a stopped branch count as resting.
    Settled,
}

impl QuiescenceWait {
    /// Creates a wait for these rules; [`Plan::find_upstream`] adds the upstream rules of joins.
    pub(super) fn new(kind: QuiescenceKind, named: Vec<RuleName>) -> Self {
        let rules = named.iter().cloned().collect();
        Self { kind, named, rules, woken_by_breakers: BTreeSet::new() }
    }

    /// Returns true if it waits for the branch.
    pub fn waits_for(&self, branch: &Branch) -> bool {
        match &branch.rule {
            Some(rule) => self.rules.contains(rule),
            None => self.woken_by_breakers.contains(&branch.worker),
        }
    }

    pub(crate) fn waits_for_any(&self, rules: &BTreeSet<RuleName>) -> bool {
        !self.rules.is_disjoint(rules)
    }

    pub(crate) fn waits_for_rule(&self, rule: &RuleName) -> bool {
        self.rules.contains(rule)
    }
}

impl Rule {
    /// Returns the wait of a rule that fires when others are at rest.
    pub(crate) const fn rest(&self) -> Option<&QuiescenceWait> {
        match &self.trigger {
            CompiledTrigger::Quiescence(rest) => Some(rest),
            _ => None,
        }
    }

    /// Like [`Rule::rest`], for a rule that fires once.
    pub(crate) fn rest_once(&self) -> Option<&QuiescenceWait> {
        self.rest().filter(|rest| rest.kind != QuiescenceKind::Each)
    }
}

impl Plan {
    /// Adds to each join the rules and workers that can still trigger the rules it names.
    pub(super) fn find_upstream(&mut self) {
        if self.rules.iter().all(|rule| rule.rest_once().is_none()) {
            return;
        }
        let causes: Vec<Causes> = self.rules.iter().map(|rule| self.causes(rule)).collect();
        for at in (0..self.rules.len()).filter(|at| self.rules[*at].rest_once().is_some()).collect::<Vec<_>>() {
            // Neither the waiting rule itself nor a join that waits for it by name is a cause of what it waits for.
            let later = self.named_after(at);
            let mut found = BTreeSet::new();
            let mut pending = causes[at].rules.clone();
            while let Some(rule) = pending.pop() {
                if !later.contains(&rule) && found.insert(rule) {
                    pending.extend(&causes[rule].rules);
                }
            }
            let names = found.iter().map(|rule| self.rules[*rule].name.clone()).collect();
            let woken = found.iter().flat_map(|rule| &causes[*rule].woken_by_breakers).cloned().collect();
            if let CompiledTrigger::Quiescence(rest) = &mut self.rules[at].trigger {
                (rest.rules, rest.woken_by_breakers) = (names, woken);
            }
        }
    }

    /// Finds the rule and those that wait for it by name, directly or through others.
    fn named_after(&self, rule: usize) -> BTreeSet<usize> {
        let mut later = BTreeSet::from([rule]);
        loop {
            let names: BTreeSet<&RuleName> = later.iter().map(|rule| &self.rules[*rule].name).collect();
            let is_later = |name: &RuleName| names.contains(name);
            let waits = |rule: &Rule| match &rule.trigger {
                CompiledTrigger::After(named) => named.iter().any(is_later),
                _ => rule.rest_once().is_some_and(|rest| rest.named.iter().any(is_later)),
            };
            let more: BTreeSet<usize> = (0..self.rules.len()).filter(|at| waits(&self.rules[*at])).collect();
            let known = later.len();
            later.extend(more);
            if later.len() == known {
                return later;
            }
        }
    }

    /// Finds the causes of a rule: the rules it names or, for a change, those that run a worker that may cause it.
    fn causes(&self, rule: &Rule) -> Causes {
        let number_of = |name: &RuleName| self.rules.iter().position(|rule| rule.name == *name);
        let of = |names: &[RuleName]| names.iter().filter_map(number_of).collect();
        match &rule.trigger {
            CompiledTrigger::After(names) => Causes { rules: of(names), ..Causes::default() },
            CompiledTrigger::Quiescence(rest) => Causes { rules: of(&rest.named), ..Causes::default() },
            CompiledTrigger::Event { op, path } => {
                let files = Pattern::parse(&format!("/{FILES}/**"));
                let is_of_files = files.is_ok_and(|files| files.overlaps(path));
                let writers = self.workers.values().filter(|seat| may_cause(seat, *op, path, is_of_files));
                let workers: BTreeSet<&WorkerName> = writers.map(|seat| &seat.name).collect();
                let runs = |rule: &Rule| rule.workers.iter().any(|worker| workers.contains(worker));
                let rules = self.rules.iter().enumerate().filter(|(_, rule)| runs(rule)).map(|(at, _)| at);
                let woken = self.blueprint.circuit.actions().filter_map(|(_, action)| match action {
                    Action::Wake(worker) if workers.contains(worker) => Some(worker.clone()),
                    _ => None,
                });
                Causes { rules: rules.collect(), woken_by_breakers: woken.collect() }
            }
            _ => Causes::default(),
        }
    }

    /// Returns the rules that wait for the branch to rest.
    pub(crate) fn waiting_for(&self, branch: &Branch) -> Vec<RuleName> {
        let waits = |rule: &&Rule| rule.rest().is_some_and(|rest| rest.waits_for(branch));
        self.rules.iter().filter(waits).map(|rule| rule.name.clone()).collect()
    }

    /// Returns the `after` rules that an undecided rule can hold up; none before journal format 16.
    pub(crate) fn joined_on(&self, name: &RuleName) -> impl Iterator<Item = RuleName> {
        let waits = |rest: &QuiescenceWait| rest.kind == QuiescenceKind::Completed && rest.waits_for_rule(name);
        let joins = move |rule: &&Rule| rule.name != *name && rule.rest().is_some_and(waits);
        let rules = if self.journal_format >= SINCE_UNDECIDED_RULES { self.rules.as_slice() } else { &[] };
        rules.iter().filter(joins).map(|rule| rule.name.clone())
    }

    /// Returns the joins that can fire on a board that has just started, because they wait for rules of its start.
    pub(crate) fn waiting_for_start(&self) -> BTreeSet<RuleName> {
        let begins = |rule: &Rule| matches!(rule.trigger, CompiledTrigger::Start | CompiledTrigger::Each(_));
        let is_begun =
            |rest: &QuiescenceWait| self.rules.iter().any(|rule| begins(rule) && rest.rules.contains(&rule.name));
        let waits = |rule: &&Rule| rule.rest_once().is_some_and(is_begun);
        self.rules.iter().filter(waits).map(|rule| rule.name.clone()).collect()
    }
}

/// Causes of a rule.
#[derive(Default)]
struct Causes {
    /// Rules, by index.
    rules: Vec<usize>,
    /// Workers that a circuit breaker triggers.
    woken_by_breakers: Vec<WorkerName>,
}

/// Returns true if the worker's writes or file edits may cause such a change.
fn may_cause(worker_plan: &WorkerPlan, op: Option<EventOp>, path: &Pattern, is_of_files: bool) -> bool {
    // The declared contract counts, also in modes that do not enforce it.
    let contract = &worker_plan.contract;
    let edits = is_of_files && worker_plan.files.as_ref().is_some_and(|files| !files.spec().edit.is_empty());
    edits
        || contract
            .writes()
            .any(|(written, ops)| possible_events(written, ops, path).any(|it| op.is_none_or(|op| op == it)))
}
