//! Rules that did not fire because nobody can tell whether they should have.
//!
//! Such a rule and what woke it are kept if a join waits for the rule, and asked again whenever the join could fire. The
//! join fires once each of them has fired for its place after all, is not meant, or has nothing left to be about.

use serde::{Deserialize, Serialize};

use super::Board;
use super::apply::GIVEN_UP_MAX;
use crate::expr::Allowance;
use crate::id::RuleName;
use crate::plan::{Rest, RestKind, WakesOn};
use crate::record::Trigger;
use crate::wish::{self, Wish};

/// A rule that did not fire, and what woke it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Undecided {
    /// The rule.
    pub rule: RuleName,
    /// What woke it: an event, or the start.
    pub trigger: Trigger,
}

impl Board {
    /// Rules that did not fire because nobody can tell whether they should have, oldest first, with what woke them; those
    /// that joins wait for.
    pub fn undecided(&self) -> &[Undecided] {
        &self.undecided
    }

    /// Keeps a rule that did not fire. Where there are too many, the rule is noted alone, and holds up its joins for good.
    pub(super) fn keep_undecided(&mut self, rule: &RuleName, trigger: &Trigger) {
        let undecided = Undecided { rule: rule.clone(), trigger: trigger.clone() };
        if self.plan.joined_on(rule).next().is_none() || self.undecided.contains(&undecided) {
            return;
        }
        if self.undecided.len() < GIVEN_UP_MAX {
            self.undecided.push(undecided);
        } else {
            self.gave_up = true;
            self.forgotten.insert(rule.clone());
        }
    }

    /// Lets go of what a rule did not fire for, if it fires for it now.
    pub(super) fn decide_undecided(&mut self, rule: Option<&RuleName>, trigger: &Trigger) {
        if self.undecided.is_empty() {
            return;
        }
        let Some(rule) = rule.and_then(|name| self.plan.rules.iter().find(|rule| rule.name == *name)) else { return };
        let bound = rule.bindings(trigger, None);
        self.undecided.retain(|undecided| {
            let is_same = undecided.trigger == *trigger || {
                let of_same_place = match (&undecided.trigger, trigger) {
                    (Trigger::Event { path: one, .. }, Trigger::Event { path: other, .. }) => one == other,
                    _ => false,
                };
                of_same_place || (!bound.is_empty() && rule.bindings(&undecided.trigger, None) == bound)
            };
            undecided.rule != rule.name || !is_same
        });
    }

    /// Asks again what a join waits for and a rule could not be decided about: what the rules want now.
    pub(super) fn asked_again(&self, rest: &Rest, allowance: &mut Allowance) -> Vec<Wish> {
        let awaited = self.undecided.iter().filter(|undecided| rest.waits_for_rule(&undecided.rule));
        let again = awaited.flat_map(|Undecided { rule, trigger }| {
            let by = match trigger {
                Trigger::Event { version, .. } => self.commit_of(*version).map(|(_, worker)| worker),
                _ => None,
            };
            wish::wanted_again(&self.plan, self.state.root(), rule, trigger, by.as_ref(), allowance)
        });
        again.collect()
    }

    /// Returns true if a join has not fired because of what could not be decided.
    pub(super) fn is_held_up(&self) -> bool {
        let mut allowance = Allowance::new();
        !self.undecided.is_empty()
            && self.plan.rules.iter().any(|rule| match &rule.wakes_on {
                WakesOn::Rest(rest) if rest.kind == RestKind::Completed => {
                    !self.scheduler.has_fired(&rule.name) && !self.asked_again(rest, &mut allowance).is_empty()
                }
                _ => false,
            })
    }
}
