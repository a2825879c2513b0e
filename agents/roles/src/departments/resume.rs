//! `builtin:resume`: continues a request with a clear answer to its question.

use patchboard_kernel::id::Timestamp;
use patchboard_protocols::department::Department;

use super::answers::{ClearAnswer, answer};
use super::resolve::{asked_field, settle};
use super::types::{Choice, OpenQuestion, Resolution, Status, UnresolvedReason};

/// Applies the answer to a question. An unclear answer is not interpreted further; the question is repeated.
pub fn resume(department: &Department, pending: &OpenQuestion, text: &str, now: Timestamp) -> Resolution {
    let OpenQuestion { action: name, slots, .. } = pending;
    let none = |why| Resolution::none(name, slots.clone(), why);
    let Some(action) = department.actions.get(name) else { return none(UnresolvedReason::UnknownAction) };
    if now.0 >= pending.expires_at {
        return none(UnresolvedReason::Expired);
    }
    let mut known = Resolution::new(Status::Open, name, slots.clone());
    known.ids.clone_from(&pending.ids);
    let of = |index: &usize| pending.options.get(*index).cloned();
    match answer(&pending.into(), text) {
        None => again(pending, known),
        Some(ClearAnswer::No) => none(UnresolvedReason::Declined),
        Some(ClearAnswer::Options(meant)) => match meant.iter().filter_map(of).collect::<Vec<Choice>>().as_slice() {
            [one] => choose(department, pending, known, one),
            options => {
                // The answer narrows the options; the next question is about their remaining difference.
                let field = asked_field(department, action, options);
                Resolution { options: options.to_vec(), ..known }.asking(department, &field, &field)
            }
        },
    }
}

fn choose(department: &Department, pending: &OpenQuestion, known: Resolution, chosen: &Choice) -> Resolution {
    let name = chosen.action.as_deref().unwrap_or(&pending.action);
    let mut found = known;
    let finds = department.actions.get(name).map(|action| action.finds.as_slice()).unwrap_or_default();
    // Takes only the search fields of a row: another field may share its name with a slot for the new value.
    let taken = chosen.values.iter().filter(|(field, _)| chosen.ids.is_empty() || finds.contains(field));
    found.slots.extend(taken.map(|(field, value)| (field.clone(), value.clone())));
    if !chosen.ids.is_empty() {
        found.ids.clone_from(&chosen.ids);
    }
    settle(department, name, found)
}

/// Repeats the question, unless it was asked too often.
fn again(pending: &OpenQuestion, known: Resolution) -> Resolution {
    let same = Resolution {
        options: pending.options.clone(),
        more: pending.more,
        ask: pending.ask.clone(),
        field: pending.field.clone(),
        ..known
    };
    same.counted(pending)
}

#[cfg(test)]
mod tests;
