//! Rules that did not fire because nobody can tell whether they should have.
//!
//! Such a rule and what woke it are kept if a join waits for the rule, and asked again whenever the join could fire. The
//! join fires once the rule has fired for each such place after all, is not meant there, or has nothing left to be about.

use serde::{Deserialize, Serialize};

use super::Board;
use super::apply::GIVEN_UP_MAX;
use crate::expr::Allowance;
use crate::id::{RuleName, WorkerName};
use crate::plan::{Rest, RestKind, WakesOn};
use crate::record::{Scheduled, Skipped, Trigger};
use crate::wish::{self, Wish};

/// A rule that did not fire, and what woke it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Undecided {
    /// The rule.
    pub rule: RuleName,
    /// The worker that it would have woken; none: any of its workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerName>,
    /// What woke it: an event, or the start.
    pub trigger: Trigger,
}

impl Undecided {
    /// Returns true if another trigger of the rule is about the same place.
    fn is_about(&self, trigger: &Trigger) -> bool {
        match (&self.trigger, trigger) {
            (Trigger::Event { path: one, .. }, Trigger::Event { path: other, .. }) => one == other,
            (one, other) => one == other,
        }
    }
}

impl Board {
    /// Keeps a rule that did not fire, in the place of what was kept of it for the same place. Where there are too many, the rule
    /// is noted alone, and holds up its joins for good.
    pub(super) fn keep_undecided(&mut self, skipped: &Skipped) {
        let (Some(rule), Some(trigger)) = (&skipped.rule, &skipped.trigger) else { return };
        if !self.can_hold_up(rule) {
            return;
        }
        let undecided = Undecided { rule: rule.clone(), worker: skipped.worker.clone(), trigger: trigger.clone() };
        self.undecided.retain(|other| {
            other.rule != undecided.rule || other.worker != undecided.worker || !other.is_about(trigger)
        });
        if self.undecided.len() >= GIVEN_UP_MAX {
            let kept = std::mem::take(&mut self.undecided);
            let is_wanted = |undecided: &Undecided| self.can_hold_up(&undecided.rule) && !self.is_gone(undecided);
            self.undecided = kept.into_iter().filter(is_wanted).collect();
        }
        if self.undecided.len() < GIVEN_UP_MAX {
            self.undecided.push(undecided);
        } else {
            self.gave_up = true;
            self.forgotten.insert(undecided.rule);
        }
    }

    /// Lets go of what a rule did not fire for, if it fires for it now.
    pub(super) fn decide_undecided(&mut self, scheduled: &Scheduled) {
        // What goes on with an earlier invocation decides nothing.
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

    fn is_gone(&self, undecided: &Undecided) -> bool {
        let rule = self.plan.rules.iter().find(|rule| rule.name == undecided.rule);
        rule.is_some_and(|rule| wish::is_gone(self.state.root(), rule, &undecided.trigger))
    }

    /// Asks again what a join waits for and could not be decided; each with what its rule wants now, if that is not nothing.
    pub(super) fn asked_again(&self, rest: &Rest) -> Vec<(&Undecided, Vec<Wish>)> {
        let mut allowance = Allowance::new();
        let awaited = self.undecided.iter().filter(|undecided| rest.waits_for_rule(&undecided.rule));
        let again = awaited.map(|undecided| {
            let by = match &undecided.trigger {
                Trigger::Event { version, .. } => self.commit_of(*version).map(|(_, worker)| worker),
                _ => None,
            };
            let Undecided { rule, worker, trigger } = undecided;
            let mut wishes =
                wish::wanted_again(&self.plan, self.state.root(), rule, trigger, by.as_ref(), &mut allowance);
            wishes.retain(|wish| match (wish, worker) {
                (Wish::Invoke { worker, .. } | Wish::Skip { worker: Some(worker), .. }, Some(about)) => worker == about,
                _ => true,
            });
            (undecided, wishes)
        });
        again.filter(|(_, wishes)| !wishes.is_empty()).collect()
    }

    /// Rules that did not fire because nobody can tell whether they should have, and that hold up a join.
    pub fn undecided(&self) -> Vec<&Undecided> {
        let mut held_up: Vec<&Undecided> = Vec::new();
        for rule in self.plan.rules.iter().filter(|_| !self.undecided.is_empty()) {
            let WakesOn::Rest(rest) = &rule.wakes_on else { continue };
            if rest.kind == RestKind::Completed && !self.scheduler.has_fired(&rule.name) {
                for (undecided, _) in self.asked_again(rest) {
                    if !held_up.contains(&undecided) {
                        held_up.push(undecided);
                    }
                }
            }
        }
        held_up
    }
}
