//! A question that waits, and words that are no clear answer to it: what they were understood as is put together with what
//! is known, if they go on with the question, and is resolved anew.
//!
//! What was understood is typed and looked at like anything that is asked for. Where it names another action, or something
//! else than what is known, it is a request of its own. What is only like what is known takes its place: who says "the oat
//! milk" when asked about milk is not to lose the milk.

use std::collections::BTreeSet;

use patchboard_kernel::department::{Department, NO_ACTION};
use patchboard_kernel::id::Timestamp;
use serde_json::Value;

use super::found::{Pending, Resolved, Status, Values};
use super::likeness::{Bar, SAME};
use super::resolve::settle;
use super::values::{is_said, likeness_of};

/// What words were understood as.
#[derive(Clone, Copy, Debug)]
pub struct Understood<'a> {
    /// The action.
    pub action: &'a str,
    /// What they say of its slots.
    pub slots: &'a Values,
}

/// What these words mean, with the question that waits if they go on with that. `search` finds rows by an action and slots.
pub fn resolve(
    department: &Department,
    waits: Option<&Pending>,
    understood: Understood<'_>,
    now: Timestamp,
    search: impl FnOnce(&str, &Values) -> Resolved,
) -> Resolved {
    let waits = waits.filter(|waits| waits.department == department.name && now.0 < waits.expires_at);
    let Some((waits, slots)) = waits.and_then(|waits| Some((waits, joined(department, waits, understood)?))) else {
        return search(understood.action, understood.slots);
    };
    if waits.ids.is_empty() {
        return search(&waits.action, &slots).counted(waits);
    }
    // Which row is meant is known already, and need not follow from what finds it.
    let known = Resolved { ids: waits.ids.clone(), ..Resolved::new(Status::Found, &waits.action, slots) };
    settle(department, &waits.action, known).counted(waits)
}

/// What is known with what was said in addition; none if that is a request of its own.
fn joined(department: &Department, waits: &Pending, understood: Understood<'_>) -> Option<Values> {
    let own = department.actions.get(&waits.action)?.slots();
    let said: Values = understood.slots.iter().filter(|(_, value)| is_said(value)).map(pair).collect();
    let is_own = |slot: &String| own.iter().any(|(own, _)| own == slot);
    let is_the_same = understood.action == waits.action;
    // Slots without an action are what an answer has.
    let is_answer = understood.action == NO_ACTION && !said.is_empty() && said.keys().all(is_own);
    if !is_the_same && !is_answer {
        return None;
    }
    let asked = asked(waits);
    let bar = Bar::of(&department.resolve);
    let mut slots = waits.slots.clone();
    for (slot, value) in said {
        match waits.slots.get(&slot) {
            Some(known) if !asked.contains(slot.as_str()) => {
                let (_, name) = own.iter().find(|(own, _)| *own == slot)?;
                match likeness_of(department.storage.fields.get(*name)?, &value, Some(known)) {
                    SAME => {}
                    // Another row may be meant than the one that is known.
                    like if like >= bar.likeness && waits.ids.is_empty() => drop(slots.insert(slot, value)),
                    // It is about something else, of which what is known may not be so.
                    _ => return None,
                }
            }
            _ => drop(slots.insert(slot, value)),
        }
    }
    Some(slots)
}

fn pair((slot, value): (&String, &Value)) -> (String, Value) {
    (slot.clone(), value.clone())
}

/// The slots that were asked for: that of the question, and those of which an option says something else.
fn asked(waits: &Pending) -> BTreeSet<&str> {
    let values = waits.options.iter().flat_map(|option| &option.values);
    let others = values.filter(|(slot, value)| waits.slots.get(*slot) != Some(*value)).map(|(slot, _)| slot.as_str());
    waits.field.as_deref().into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests;
