//! `builtin:confirm`: what came of a request, as a result with one sentence. No other role of a department makes sentences.

use patchboard_kernel::department::sentence::{self, Part};
use patchboard_kernel::department::{Action, Department, Promised};
use patchboard_kernel::id::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::found::{ASKED_MAX, Choice, Done, Outcome, Pending, Resolved, Status, Values, Why};
use super::likeness::said;

/// Values of one enumeration.
const SAID_MAX: usize = 20;
/// Characters of a sentence.
const SENTENCE_CHARS_MAX: usize = 2000;

/// What a department tells the board that asked it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Told {
    /// Which department.
    pub department: String,
    /// How it ended.
    pub status: Ending,
    /// That in a sentence.
    pub text: String,
    /// What the user has to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// What there is to choose among.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<Values>,
    /// What the next words of the user are taken with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
    /// Why it was refused; stable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<Why>,
    /// What that follows from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Value>,
    /// What would have to be meant instead: a patch of `/classified`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patch: Vec<Value>,
    /// What it promised.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
}

/// How a request to a department ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It was done.
    Done,
    /// It could not be done.
    Error,
    /// The user has to say something first.
    Clarification,
    /// There is nothing to do it with.
    Refusal,
}

impl Told {
    fn new(department: &Department, status: Ending, text: &str) -> Self {
        Self {
            department: department.name.clone(),
            status,
            text: crate::one_line(text, SENTENCE_CHARS_MAX),
            question: None,
            options: Vec::new(),
            pending: None,
            finding: None,
            evidence: None,
            patch: Vec::new(),
            data: Map::new(),
        }
    }
}

/// The result of what was done.
pub fn done(department: &Department, outcome: &Outcome) -> Told {
    match outcome.status {
        Done::Error => {
            let why = outcome.message.clone().unwrap_or_else(|| "It could not be done.".to_owned());
            Told::new(department, Ending::Error, &why)
        }
        Done::Done => {
            let sentence = department.actions.get(&outcome.action).map(|action| sentence_of(action, outcome));
            let told = Told::new(department, Ending::Done, sentence.as_deref().unwrap_or("Done."));
            Told { data: data(department, outcome), ..told }
        }
    }
}

/// The result of what was not done: a question, or a refusal. A question waits from now on.
pub fn not_done(department: &Department, resolved: &Resolved, now: Timestamp) -> Told {
    match resolved.status {
        Status::Open => question(department, resolved, now),
        // Without an outcome nothing was done.
        Status::Found | Status::None => refusal(department, resolved, now),
    }
}

/// The sentence of an action.
fn sentence_of(action: &Action, outcome: &Outcome) -> String {
    let template = action.confirm.as_str();
    // What no row was found by goes by what it became.
    let is_only_set = |name: &str| action.sets.iter().any(|set| set == name) && action.slot_set(name) == name;
    let first = outcome.rows.first();
    let before = first.and_then(|row| row.before.as_ref());
    let values = first.and_then(|row| row.values());
    let of = |values: Option<&Values>, field: &str| values.and_then(|values| values.get(field)).map(said);
    let slot = |name: &str| {
        let found = match name.strip_prefix(patchboard_kernel::department::SLOT_OF_NEW) {
            Some(field) => of(values, field),
            // What was found goes by what it was.
            None if is_only_set(name) => of(values, name),
            None => of(before, name).or_else(|| of(values, name)),
        };
        found.or_else(|| of(Some(&outcome.slots), name)).unwrap_or_else(|| "nothing".to_owned())
    };
    let rows = |field: &str| {
        let all: Vec<String> = outcome.rows.iter().filter_map(|row| of(row.values(), field)).collect();
        let shown = all.len().min(SAID_MAX);
        let more = usize::try_from(outcome.count).unwrap_or(usize::MAX).max(all.len()) - shown;
        match (all.is_empty(), more) {
            (true, 0) => "nothing".to_owned(),
            (_, 0) => listed(&all, "and"),
            (_, more) => format!("{} and {more} more", all[..shown].join(", ")),
        }
    };
    let part = |part: Part<'_>| match part {
        Part::Text(text) => text.to_owned(),
        Part::Slot(name) => slot(name),
        Part::Rows(field) => rows(field),
        Part::Count => outcome.count.to_string(),
    };
    match sentence::parts(template) {
        Ok(parts) => parts.into_iter().map(part).collect(),
        Err(_) => template.to_owned(),
    }
}

/// What of a result others build on.
fn data(department: &Department, outcome: &Outcome) -> Map<String, Value> {
    let mut rows = outcome.rows.iter().filter_map(|row| row.values().cloned()).map(Value::Object);
    let one = |promised: &Promised| match promised {
        Promised::Rows => Some(rows.clone().collect::<Vec<_>>().into()),
        Promised::Row => rows.next(),
        Promised::Count => Some(outcome.count.into()),
    };
    let mut data = Map::new();
    let mut one = one;
    for (name, promised) in &department.promises {
        data.extend(one(promised).map(|value| (name.clone(), value)));
    }
    data
}

fn question(department: &Department, open: &Resolved, now: Timestamp) -> Told {
    let mut question = open.ask.clone().unwrap_or_default();
    let field = open.field.as_deref().unwrap_or_default();
    let mut choices: Vec<String> = Vec::new();
    for option in &open.options {
        let choice = match option.values.get(field) {
            Some(value) => said(value),
            None => described(&option.values),
        };
        if !choices.contains(&choice) {
            choices.push(choice);
        }
    }
    if let [Choice { ids, values, .. }] = open.options.as_slice()
        && !ids.is_empty()
    {
        question = match values.contains_key(field) {
            true => format!("did you mean {}", choices.concat()),
            false => format!("did you mean the one with {}", choices.concat()),
        };
    } else if !choices.is_empty() {
        if open.more > 0 {
            choices.push("another".to_owned());
        }
        question = format!("{question}, {}", listed(&choices, "or"));
    }
    if let Some(because) = &open.because {
        question = format!("{question} ({because})");
    }
    question.push('?');
    Told {
        question: Some(question.clone()),
        options: open.options.iter().map(|option| option.values.clone()).collect(),
        pending: Some(Pending {
            options: open.options.clone(),
            more: open.more,
            question: Some(question.clone()),
            asked: open.asked + 1,
            ..pending(department, open, now)
        }),
        ..Told::new(department, Ending::Clarification, &question)
    }
}

fn refusal(department: &Department, none: &Resolved, now: Timestamp) -> Told {
    let why = none.why.unwrap_or(Why::NotFound);
    let entity = &department.storage.entity;
    let text = match why {
        Why::NotFound => {
            let what = described(&looked_for(department, none));
            let what = if what.is_empty() { String::new() } else { format!(" with {what}") };
            match none.nearest.as_slice() {
                [] => format!("There is no {entity}{what}."),
                [Choice { action: Some(other), .. }] => {
                    format!("There is no {entity}{what}; to {other} it is possible.")
                }
                near => {
                    let near: Vec<String> = near.iter().map(|choice| described(&choice.values)).collect();
                    format!(
                        "There is no {entity}{what}; most like it is the one with {}.",
                        near.join(", or the one with ")
                    )
                }
            }
        }
        Why::UnknownAction => {
            let known: Vec<String> = department.actions.keys().cloned().collect();
            format!("That is nothing the department {} does; it does {}.", department.name, listed(&known, "and"))
        }
        Why::Expired => "The question was asked too long ago, so nothing was done.".to_owned(),
        Why::Declined => "Nothing was done, as the user does not want it.".to_owned(),
        Why::GaveUp => {
            let ask = department_ask(department, none);
            format!("Nothing was done: after {ASKED_MAX} questions it is still not clear {ask}.")
        }
    };
    // Nobody is asked again and again for what is only offered.
    let offers = !none.nearest.is_empty();
    let pending = offers.then(|| Pending {
        options: none.nearest.clone(),
        question: Some(text.clone()),
        offer: true,
        asked: ASKED_MAX,
        ..pending(department, none, now)
    });
    Told {
        finding: Some(why),
        evidence: Some(json!({"action": none.action, "slots": none.slots, "nearest": none.nearest})),
        patch: none.nearest.first().map(|choice| patch(department, none, choice)).unwrap_or_default(),
        options: none.nearest.iter().map(|choice| choice.values.clone()).collect(),
        pending,
        ..Told::new(department, Ending::Refusal, &text)
    }
}

/// What the row was to have.
fn looked_for(department: &Department, none: &Resolved) -> Values {
    let finds = department.actions.get(&none.action).map(|action| action.finds.as_slice()).unwrap_or_default();
    none.slots
        .iter()
        .filter(|(slot, _)| finds.contains(slot))
        .map(|(slot, value)| (slot.clone(), value.clone()))
        .collect()
}

fn department_ask(department: &Department, none: &Resolved) -> String {
    none.ask.clone().unwrap_or_else(|| format!("which {} is meant", department.storage.entity))
}

/// What has to be different in `/classified` so that the choice is meant.
fn patch(department: &Department, none: &Resolved, choice: &Choice) -> Vec<Value> {
    let mut patch: Vec<Value> = Vec::new();
    if let Some(action) = &choice.action {
        patch.push(json!({"op": "replace", "path": "/classified/action", "value": action}));
    }
    let action = department.actions.get(choice.action.as_ref().unwrap_or(&none.action));
    let slots: Vec<String> =
        action.map(|action| action.slots().into_iter().map(|(slot, _)| slot).collect()).unwrap_or_default();
    for (slot, value) in choice.values.iter().filter(|(slot, _)| slots.contains(slot)) {
        if none.slots.get(slot) != Some(value) {
            patch.push(json!({"op": "add", "path": format!("/classified/slots/{slot}"), "value": value}));
        }
    }
    // What the other action does not know.
    for slot in none.slots.keys().filter(|slot| !slots.contains(slot)) {
        patch.push(json!({"op": "remove", "path": format!("/classified/slots/{slot}")}));
    }
    patch
}

/// What waits for an answer, without what there is to choose among.
fn pending(department: &Department, of: &Resolved, now: Timestamp) -> Pending {
    Pending {
        department: department.name.clone(),
        action: of.action.clone(),
        slots: of.slots.clone(),
        ids: of.ids.clone(),
        options: Vec::new(),
        more: 0,
        ask: of.ask.clone(),
        field: of.field.clone(),
        question: None,
        offer: false,
        asked: 0,
        expires_at: now.plus_ms(u64::from(department.resolve.ttl) * 1000).0,
    }
}

/// `item bananas and list office`.
fn described(values: &Values) -> String {
    let parts: Vec<String> =
        values.iter().map(|(field, value)| format!("{} {}", field.replace('_', " "), said(value))).collect();
    listed(&parts, "and")
}

/// `a, b and c`.
fn listed(parts: &[String], word: &str) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} {word} {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests;
