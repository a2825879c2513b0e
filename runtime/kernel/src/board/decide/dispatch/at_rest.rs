//! Rules that wait until other rules are at rest.

use std::collections::BTreeSet;

use super::super::StepBuilder;
use crate::blueprint::EventOp;
use crate::board::UndecidedRule;
use crate::breaker::Branch;
use crate::id::RuleName;
use crate::plan::{CompiledTrigger, QuiescenceKind, QuiescenceWait, Rule};
use crate::record::{SINCE_UNDECIDED_RULES, Trigger};
use crate::rules::{self, Activation, TriggerEvent};
use crate::scheduler::QueuedInvocation;

impl StepBuilder<'_> {
    /// Queues invocations of rules that waited for other rules to settle. Returns true if there were any.
    pub(super) fn schedule_rested(&mut self) -> bool {
        if self.waiting_rules.is_empty() {
            return false;
        }
        let busy = self.board.waiting_rules();
        let rested: BTreeSet<RuleName> = self.waiting_rules.difference(&busy).cloned().collect();
        if self.fire_undecided(&rested) {
            return true;
        }
        let (first, later) = self.split_by_order(rested);
        self.waiting_rules = busy;
        self.waiting_rules.extend(later);
        if first.is_empty() {
            return false;
        }
        self.schedule(&TriggerEvent::Rested(&first));
        true
    }

    /// Evaluates undecided rules again that joins at rest wait for. Returns true if an invocation is queued.
    fn fire_undecided(&mut self, rested: &BTreeSet<RuleName>) -> bool {
        let board = &*self.board;
        if board.undecided.is_empty() {
            return false;
        }
        let joins = board.joins_to_fire().filter(|(name, _)| rested.contains(*name));
        let asked = joins.flat_map(|(_, rest)| board.reevaluate_undecided(rest));
        let asked: Vec<(UndecidedRule, Vec<Activation>)> =
            asked.map(|(undecided, wishes)| (undecided.clone(), wishes)).collect();
        let mut is_queued = false;
        for (undecided, wishes) in asked {
            // Two joins may wait for the same rule: once is enough.
            if !self.board.undecided.contains(&undecided) {
                continue;
            }
            for wish in wishes {
                let Activation::Invoke { rule, worker, trigger, delay } = wish else { continue };
                let due = (delay > 0).then(|| self.at.plus_ms(delay));
                self.enqueue(Branch { rule: Some(rule), worker }, trigger, due);
                is_queued = true;
            }
        }
        is_queued
    }

    /// Divides rules with a completed wait: those that may fire now, and those that wait for one of these. Leaves out
    /// joins that have fired, or that one was given up for.
    fn split_by_order(&self, rested: BTreeSet<RuleName>) -> (BTreeSet<RuleName>, BTreeSet<RuleName>) {
        let board = &*self.board;
        let may_fire = |(name, rest): &(RuleName, QuiescenceWait)| match rest.kind {
            QuiescenceKind::Each => true,
            QuiescenceKind::Settled => !board.scheduler.has_fired(name),
            QuiescenceKind::Completed => {
                // An invocation that changed nothing counts as completed, even if its breaker opened.
                let is_lost = |queued: &&QueuedInvocation| !queued.is_ineffective && rest.waits_for(&queued.branch);
                let mut lost = board.given_up.iter().filter(is_lost).filter(|queued| !self.is_obsolete(queued));
                let is_undecided = !board.reevaluate_undecided(rest).is_empty();
                let is_complete = lost.next().is_none() && !is_undecided && !rest.waits_for_any(&board.forgotten_rules);
                // A join that has not fired may still fire.
                let is_join =
                    |rule: &&Rule| matches!(rule.trigger, CompiledTrigger::After(_)) || rule.rest_once().is_some();
                let mut named = board.plan.rules.iter().filter(|rule| rest.named.contains(&rule.name)).filter(is_join);
                let has_all = named.all(|rule| board.scheduler.has_fired(&rule.name));
                !board.scheduler.has_fired(name) && is_complete && has_all
            }
        };
        let rules = board.plan.rules.iter().filter(|rule| rested.contains(&rule.name));
        let rules = rules.filter_map(|rule| Some((rule.name.clone(), rule.rest()?.clone())));
        let waits: Vec<(RuleName, QuiescenceWait)> = rules.filter(may_fire).collect();
        // `idle` waits only for the rules it names.
        let is_first = |(name, rest): &&(RuleName, QuiescenceWait)| {
            rest.kind == QuiescenceKind::Each
                || waits.iter().all(|(other, _)| other == name || !rest.waits_for_rule(other))
        };
        let mut first: BTreeSet<RuleName> = waits.iter().filter(is_first).map(|(name, _)| name.clone()).collect();
        if first.is_empty() {
            // In a cycle of rules one goes first, but none that only waits for the others.
            let is_mutual = |(name, rest): &&(RuleName, QuiescenceWait)| {
                let mut before = waits.iter().filter(|(other, _)| other != name && rest.waits_for_rule(other));
                before.all(|(_, other)| other.waits_for_rule(name))
            };
            first.extend(waits.iter().find(is_mutual).or(waits.first()).map(|(name, _)| name.clone()));
        }
        let later = waits.into_iter().map(|(name, _)| name).filter(|name| !first.contains(name)).collect();
        (first, later)
    }

    /// Returns true if the place of an invocation that was given up is gone, unless its trigger was the removal.
    pub(super) fn is_obsolete(&self, queued: &QueuedInvocation) -> bool {
        if matches!(queued.trigger, Trigger::Event { op: EventOp::Remove, .. }) {
            return false;
        }
        let plan = &self.board.plan;
        let rule = plan.rules.iter().find(|rule| queued.branch.rule.as_ref() == Some(&rule.name));
        let is_gone = |rule| rules::is_place_removed(self.board.state.root(), rule, &queued.trigger);
        plan.journal_format >= SINCE_UNDECIDED_RULES && rule.is_some_and(is_gone)
    }
}
