//! Handles messages that do not clearly answer a pending question. If the classified message continues the question,
//! its slots are merged with the known ones, and the result is resolved again.
//!
//! A classification is typed and checked like any request. If it names another action, or contradicts a known slot, it
//! is a request of its own. A similar value replaces the known one: "the oat milk", in reply to a question about milk,
//! refines the request instead of dropping it.

use std::collections::BTreeSet;

use patchboard_kernel::id::Timestamp;
use patchboard_protocols::department::{Department, NO_ACTION};

use super::resolve::settle;
use super::similarity::{MatchThresholds, SAME};
use super::types::{OpenQuestion, Resolution, Status, Values};
use super::values::{is_given, value_similarity};

/// Classification of a message.
#[derive(Clone, Copy, Debug)]
pub struct Classification<'a> {
    /// Name of the action.
    pub action: &'a str,
    /// Slots given in the message.
    pub slots: &'a Values,
}

/// Resolves a message, together with the pending question if it continues it. `search` finds rows by an action and
/// slots.
pub fn resolve(
    department: &Department,
    waits: Option<&OpenQuestion>,
    understood: Classification<'_>,
    now: Timestamp,
    search: impl FnOnce(&str, &Values) -> Resolution,
) -> Resolution {
    let waits = waits.filter(|waits| waits.department == department.name && now.0 < waits.expires_at);
    let Some((waits, slots)) = waits.and_then(|waits| Some((waits, merge_slots(department, waits, understood)?)))
    else {
        return search(understood.action, understood.slots);
    };
    if waits.ids.is_empty() {
        return search(&waits.action, &slots).counted(waits);
    }
    // The row is known already, and need not follow from the search fields.
    let known = Resolution { ids: waits.ids.clone(), ..Resolution::new(Status::Found, &waits.action, slots) };
    settle(department, &waits.action, known).counted(waits)
}

/// Merges the known slots with the given ones; `None` if the message is a request of its own.
fn merge_slots(department: &Department, waits: &OpenQuestion, understood: Classification<'_>) -> Option<Values> {
    let own = department.actions.get(&waits.action)?.slots();
    let given_slots: Values = understood.slots.clone().into_iter().filter(|(_, value)| is_given(value)).collect();
    let is_own = |slot: &String| own.iter().any(|(own, _)| own == slot);
    let is_the_same = understood.action == waits.action;
    // A classification with slots but no action is typical of an answer.
    let is_answer = understood.action == NO_ACTION && !given_slots.is_empty() && given_slots.keys().all(is_own);
    if !is_the_same && !is_answer {
        return None;
    }
    let asked_slots = asked_slots(waits);
    let bar = MatchThresholds::new(&department.resolve);
    let mut slots = waits.slots.clone();
    for (slot, value) in given_slots {
        match waits.slots.get(&slot) {
            Some(known) if !asked_slots.contains(slot.as_str()) => {
                let (_, name) = own.iter().find(|(own, _)| *own == slot)?;
                match value_similarity(department.storage.fields.get(*name)?, &value, Some(known)) {
                    SAME => {}
                    // No row is fixed yet, so the new value may select another one.
                    like if like >= bar.likeness && waits.ids.is_empty() => drop(slots.insert(slot, value)),
                    // The message is about another target, for which the known slots may be wrong.
                    _ => return None,
                }
            }
            _ => drop(slots.insert(slot, value)),
        }
    }
    Some(slots)
}

/// Returns the slots that were asked for: that of the question, and those in which an option differs from the known
/// value.
fn asked_slots(waits: &OpenQuestion) -> BTreeSet<&str> {
    let values = waits.options.iter().flat_map(|option| &option.values);
    let others = values.filter(|(slot, value)| waits.slots.get(*slot) != Some(*value)).map(|(slot, _)| slot.as_str());
    waits.field.as_deref().into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests;
