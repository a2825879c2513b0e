//! `builtin:resume`: goes on where a question was asked, with what the user answers to it.

use patchboard_kernel::department::{Department, Thresholds};
use patchboard_kernel::id::Timestamp;
use serde_json::Value;

use super::found::{ASKED_MAX, Choice, Pending, Resolved, Status, Why};
use super::likeness::{Bar, is_no, is_yes, named};
use super::resolve::{asked_field, settle};
use super::values::{Said, said_of};

/// What an answer to a question means.
pub fn resume(department: &Department, pending: &Pending, text: &str, now: Timestamp) -> Resolved {
    let Pending { action: name, slots, .. } = pending;
    let none = |why| Resolved::none(name, slots.clone(), why);
    let Some(action) = department.actions.get(name) else { return none(Why::UnknownAction) };
    if now.0 >= pending.expires_at {
        return none(Why::Expired);
    }
    let mut known = Resolved::new(Status::Open, name, slots.clone());
    known.ids.clone_from(&pending.ids);
    if pending.options.is_empty() {
        return free(department, pending, known, text);
    }
    match meant(department, pending, text).as_slice() {
        [one] => choose(department, pending, known, &pending.options[*one]),
        [] if is_no(text) => none(Why::Declined),
        [] => again(pending, known, None),
        several => {
            // It is among these: that is an answer, and what is still different is asked next.
            let options: Vec<Choice> = several.iter().map(|&index| pending.options[index].clone()).collect();
            let field = asked_field(department, action, &options);
            Resolved { options, ..known }.asking(department, &field, &field)
        }
    }
}

/// Whether words answer an offer, which nobody has to answer.
pub fn is_answer(pending: &Pending, text: &str) -> bool {
    is_no(text) || is_yes(text) || !named(text, &pending.options, Bar::of(&Thresholds::default())).is_empty()
}

/// The options that an answer names.
fn meant(department: &Department, pending: &Pending, text: &str) -> Vec<usize> {
    let named = named(text, &pending.options, Bar::of(&department.resolve));
    match pending.options.len() {
        // A no to the only one is a no, also where it names it.
        1 if is_no(text) => Vec::new(),
        1 if named.is_empty() && is_yes(text) => vec![0],
        _ => named,
    }
}

/// Takes one of the options.
fn choose(department: &Department, pending: &Pending, known: Resolved, chosen: &Choice) -> Resolved {
    let name = chosen.action.as_deref().unwrap_or(&pending.action);
    let mut found = known;
    let finds = department.actions.get(name).map(|action| action.finds.as_slice()).unwrap_or_default();
    // Of a row only what finds it: the rest may bear the name of a slot that says what it becomes.
    let taken = chosen.values.iter().filter(|(field, _)| chosen.ids.is_empty() || finds.contains(field));
    found.slots.extend(taken.map(|(field, value)| (field.clone(), value.clone())));
    if !chosen.ids.is_empty() {
        found.ids.clone_from(&chosen.ids);
    }
    settle(department, name, found)
}

/// Takes the answer itself as the value that was asked for.
fn free(department: &Department, pending: &Pending, mut known: Resolved, text: &str) -> Resolved {
    let slot = pending.field.clone().unwrap_or_default();
    let slots = department.actions[&pending.action].slots();
    let field =
        slots.iter().find(|(known, _)| *known == slot).and_then(|(_, name)| department.storage.fields.get(*name));
    let Some(field) = field else { return Resolved::none(&pending.action, known.slots, Why::GaveUp) };
    // A full stop ends the sentence, not the value.
    let text = text.trim().trim_end_matches(['.', '!']).trim_end();
    match said_of(field, &Value::from(text), Bar::of(&department.resolve)) {
        Said::Value(value) => {
            known.slots.insert(slot, value);
            settle(department, &pending.action, known)
        }
        Said::Wrong(why) => again(pending, known, Some(why)),
        Said::Among(_) => again(pending, known, None),
    }
}

/// Asks the same again, if it was not asked often enough.
fn again(pending: &Pending, known: Resolved, because: Option<String>) -> Resolved {
    if pending.asked >= ASKED_MAX {
        return Resolved::none(&pending.action, known.slots, Why::GaveUp);
    }
    Resolved {
        status: Status::Open,
        options: pending.options.clone(),
        ask: pending.ask.clone(),
        field: pending.field.clone(),
        asked: pending.asked,
        because,
        ..known
    }
}

#[cfg(test)]
mod tests;
