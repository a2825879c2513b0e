//! Undecided rules: their condition could not be evaluated for a trigger, or its value named no worker or delay.
//!
//! A board keeps an undecided rule and its trigger if a join waits for the rule, and evaluates it again whenever the
//! join could fire. The join fires once the rule has fired for each such place, its condition is false there, or the
//! place is gone.

use serde::{Deserialize, Serialize};

use super::Board;
use super::apply::GIVEN_UP_MAX;
use crate::expr::Allowance;
use crate::id::{RuleName, WorkerName};
use crate::plan::{QuiescenceKind, QuiescenceWait};
use crate::record::{Scheduled, Skipped, Trigger};
use crate::rules::{self, Activation};

/// An undecided rule and its trigger.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndecidedRule {
    /// The rule.
    pub rule: RuleName,
    /// The worker it would have triggered; `None`: any of its workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerName>,
    /// The trigger: an event, or the start.
    pub trigger: Trigger,
}

impl UndecidedRule {
    /// Returns true if another trigger of the rule is about the same place.
    fn is_about(&self, trigger: &Trigger) -> bool {
        match (&self.trigger, trigger) {
            (Trigger::Event { path: one, .. }, Trigger::Event { path: other, .. }) => one == other,
            (one, other) => one == other,
        }
    }
}

impl Board {
    /// Keeps a rule that did not fire, and replaces the entry for the same place. Beyond the limit only the rule is
    /// kept, and holds up its joins for good.
    pub(super) fn keep_undecided(&mut self, skipped: &Skipped) {
        let (Some(rule), Some(trigger)) = (&skipped.rule, &skipped.trigger) else { return };
        if !self.can_hold_up(rule) {
            return;
        }
        let undecided = UndecidedRule { rule: rule.clone(), worker: skipped.worker.clone(), trigger: trigger.clone() };
        self.undecided.retain(|other| {
            other.rule != undecided.rule || other.worker != undecided.worker || !other.is_about(trigger)
        });
        if self.undecided.len() >= GIVEN_UP_MAX {
            let kept = std::mem::take(&mut self.undecided);
            let is_wanted = |undecided: &UndecidedRule| self.can_hold_up(&undecided.rule) && !self.is_gone(undecided);
            self.undecided = kept.into_iter().filter(is_wanted).collect();
        }
        if self.undecided.len() < GIVEN_UP_MAX {
            self.undecided.push(undecided);
        } else {
            self.gave_up = true;
            self.forgotten_rules.insert(undecided.rule);
        }
    }

    /// Removes the undecided rule that an invocation decides.
    pub(super) fn resolve_undecided(&mut self, scheduled: &Scheduled) {
        // A follow-up or a retry has the trigger of an earlier invocation.
        if scheduled.follows.is_some() || scheduled.retries.is_some() {
            return;
        }
        let Some(rule) = &scheduled.rule else { return };
        self.undecided.retain(|undecided| {
            let is_for = |worker: &WorkerName| *worker == scheduled.worker;
            undecided.rule != *rule
                || !undecided.worker.as_ref().is_none_or(is_for)
                || !undecided.is_about(&scheduled.trigger)
        });
    }

    fn can_hold_up(&self, rule: &RuleName) -> bool {
        self.plan.joined_on(rule).any(|join| !self.scheduler.has_fired(&join))
    }

    fn is_gone(&self, undecided: &UndecidedRule) -> bool {
        let rule = self.plan.rules.iter().find(|rule| rule.name == undecided.rule);
        rule.is_some_and(|rule| rules::is_place_removed(self.state.root(), rule, &undecided.trigger))
    }

    /// Evaluates the undecided rules again that a join waits for. Returns those that fire now or are still undecided.
    pub(super) fn reevaluate_undecided(&self, rest: &QuiescenceWait) -> Vec<(&UndecidedRule, Vec<Activation>)> {
        let mut allowance = Allowance::new();
        let awaited = self.undecided.iter().filter(|undecided| rest.waits_for_rule(&undecided.rule));
        let again = awaited.map(|undecided| {
            let by = match &undecided.trigger {
                Trigger::Event { version, .. } => self.commit_of(*version).map(|(_, worker)| worker),
                _ => None,
            };
            let UndecidedRule { rule, worker, trigger } = undecided;
            let mut wishes =
                rules::reevaluate(&self.plan, self.state.root(), rule, trigger, by.as_ref(), &mut allowance);
            wishes.retain(|wish| match (wish, worker) {
                (Activation::Invoke { worker, .. } | Activation::Skip { worker: Some(worker), .. }, Some(about)) => {
                    worker == about
                }
                _ => true,
            });
            (undecided, wishes)
        });
        again.filter(|(_, wishes)| !wishes.is_empty()).collect()
    }

    /// Returns the joins that have not fired, with what they wait for.
    pub(super) fn joins_to_fire(&self) -> impl Iterator<Item = (&RuleName, &QuiescenceWait)> {
        let joins = self.plan.rules.iter().filter_map(|rule| Some((&rule.name, rule.rest()?)));
        joins.filter(|(name, rest)| rest.kind == QuiescenceKind::Completed && !self.scheduler.has_fired(name))
    }

    /// Returns the undecided rules that hold up a join.
    pub fn undecided(&self) -> Vec<&UndecidedRule> {
        if self.undecided.is_empty() {
            return Vec::new();
        }
        let mut held_up: Vec<&UndecidedRule> = Vec::new();
        for (undecided, _) in self.joins_to_fire().flat_map(|(_, rest)| self.reevaluate_undecided(rest)) {
            if !held_up.contains(&undecided) {
                held_up.push(undecided);
            }
        }
        held_up
    }
}
