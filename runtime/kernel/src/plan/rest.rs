//! Rules that wait until others rest: which branches they wait for, and what has to become of them.

use std::collections::BTreeSet;

use super::{Plan, Rule, Seat, WakesOn};
use crate::blueprint::Action;
use crate::breaker::Branch;
use crate::files::FILES;
use crate::id::{RuleName, WorkerName};
use crate::pattern::Pattern;

/// A wait for branches to rest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rest {
    /// When the rule fires.
    pub kind: RestKind,
    /// Rules that the blueprint names.
    pub named: Vec<RuleName>,
    /// Rules of the branches that it waits for.
    rules: BTreeSet<RuleName>,
    /// Workers of those branches that breakers start.
    woken_by_breakers: BTreeSet<WorkerName>,
}

/// When a rule fires that waits for rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestKind {
    /// Each time that the named rules rest, however their invocations ended. What waits for a stopped branch rests.
    Each,
    /// Once, when the named rules and all that can still wake them rest, and none of their invocations was given up.
    Completed,
    /// Once, when they rest, however their invocations ended. What waits for a stopped branch rests.
    Settled,
}

impl Rest {
    /// A wait for these rules; [`Plan::find_upstream`] adds what joins wait for beside them.
    pub(super) fn of(kind: RestKind, named: Vec<RuleName>) -> Self {
        let rules = named.iter().cloned().collect();
        Self { kind, named, rules, woken_by_breakers: BTreeSet::new() }
    }

    /// Returns true if it waits for what the branch does.
    pub fn waits_for(&self, branch: &Branch) -> bool {
        match &branch.rule {
            Some(rule) => self.rules.contains(rule),
            None => self.woken_by_breakers.contains(&branch.worker),
        }
    }

    /// Returns true if it waits for what the rule does.
    pub(crate) fn waits_for_rule(&self, rule: &RuleName) -> bool {
        self.rules.contains(rule)
    }
}

impl Plan {
    /// Gives joins the rules and workers that can still wake the rules they name.
    pub(super) fn find_upstream(&mut self) {
        for at in 0..self.rules.len() {
            let WakesOn::Rest(rest) = &self.rules[at].wakes_on else { continue };
            if rest.kind == RestKind::Each {
                continue;
            }
            let rest = self.upstream(&self.rules[at].name, rest);
            self.rules[at].wakes_on = WakesOn::Rest(rest);
        }
    }

    /// Follows backwards what wakes the named rules; the waiting rule itself is no cause of its own.
    fn upstream(&self, waiting: &RuleName, rest: &Rest) -> Rest {
        let mut found = Rest { rules: BTreeSet::new(), woken_by_breakers: BTreeSet::new(), ..rest.clone() };
        let mut pending = rest.named.clone();
        while let Some(name) = pending.pop() {
            if name == *waiting || !found.rules.insert(name.clone()) {
                continue;
            }
            let Some(rule) = self.rules.iter().find(|rule| rule.name == name) else { continue };
            match &rule.wakes_on {
                WakesOn::After(names) => pending.extend(names.iter().cloned()),
                WakesOn::Rest(rest) => pending.extend(rest.named.iter().cloned()),
                WakesOn::Event { .. } => {
                    for seat in self.seats.values().filter(|seat| may_cause(seat, rule)) {
                        let running = self.rules.iter().filter(|rule| rule.workers.contains(&seat.name));
                        pending.extend(running.map(|rule| rule.name.clone()));
                        let is_woken =
                            |(_, action): (_, &Action)| matches!(action, Action::Wake(name) if *name == seat.name);
                        if self.blueprint.circuit.actions().into_iter().any(is_woken) {
                            found.woken_by_breakers.insert(seat.name.clone());
                        }
                    }
                }
                WakesOn::Start | WakesOn::Each(_) | WakesOn::Signal(_) | WakesOn::Every(_) => {}
            }
        }
        found
    }

    /// Rules that wait for what the branch does to rest.
    pub(crate) fn waiting_for(&self, branch: &Branch) -> Vec<RuleName> {
        let waits = |rule: &&Rule| matches!(&rule.wakes_on, WakesOn::Rest(rest) if rest.waits_for(branch));
        self.rules.iter().filter(waits).map(|rule| rule.name.clone()).collect()
    }

    /// Joins that can fire on a board that has just begun: of rules that begin with it.
    pub(crate) fn waiting_for_start(&self) -> BTreeSet<RuleName> {
        let begins = |rule: &Rule| matches!(rule.wakes_on, WakesOn::Start | WakesOn::Each(_));
        let waits = |rule: &&Rule| match &rule.wakes_on {
            WakesOn::Rest(rest) if rest.kind != RestKind::Each => {
                self.rules.iter().any(|rule| begins(rule) && rest.rules.contains(&rule.name))
            }
            _ => false,
        };
        self.rules.iter().filter(waits).map(|rule| rule.name.clone()).collect()
    }
}

/// Returns true if the worker's writes may cause what the rule waits for.
fn may_cause(seat: &Seat, rule: &Rule) -> bool {
    let WakesOn::Event { op, path } = &rule.wakes_on else { return false };
    let contract = seat.open.as_deref().unwrap_or(&seat.contract);
    let writes = || {
        contract
            .writes()
            .any(|(pattern, ops)| crate::event::caused(pattern, ops, path).any(|it| op.is_none_or(|op| op == it)))
    };
    let edits = || {
        let files = Pattern::parse(&format!("/{FILES}/**")).ok();
        seat.files.as_ref().is_some_and(|files| !files.spec().edit.is_empty())
            && files.is_some_and(|files| files.overlaps(path))
    };
    writes() || edits()
}
